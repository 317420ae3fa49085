package schedule

import (
	"strconv"
	"strings"
)

// Error says why a schedule was refused.
type Error struct {
	Expr   string // what was given
	Field  string // the field at fault, such as "day of month"; empty if it is the whole
	Token  string // the part of the field at fault, if there is one
	Reason string // what is wrong, with the allowed range where there is one
	Hint   string // what to write instead, if known
}

// Error returns one line that names the field, the token, the allowed range and
// the hint.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("schedule ")
	b.WriteString(strconv.QuoteToASCII(shorten(e.Expr)))
	b.WriteString(": ")
	if e.Field != "" {
		b.WriteString(e.Field)
		if e.Token != "" {
			b.WriteString(" " + strconv.QuoteToASCII(shorten(e.Token)))
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Reason)
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// shorten keeps a message to one line, whatever was given.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
