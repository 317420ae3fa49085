package schedule

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error says why a schedule was refused.
type Error struct {
	Expr   string // what was given
	Field  string // the field at fault, such as "day of month"; empty if it is the whole
	Token  string // the part of the field at fault, if there is one
	Offset int    // of the token in Expr, in bytes; -1 if there is no token
	Reason string // what is wrong, with the allowed range where there is one
	Hint   string // what to write instead, if known
}

// Error returns one line that names the field, the token and its place, the allowed
// range and the hint.
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
		if e.Offset > 0 {
			fmt.Fprintf(&b, " at character %d", utf8.RuneCountInString(e.Expr[:e.Offset])+1)
		}
		b.WriteString(": ")
	}
	b.WriteString(e.Reason)
	if e.Hint != "" {
		b.WriteString(" (" + e.Hint + ")")
	}
	return b.String()
}

// Pointer returns two lines, the expression and a mark under the token, or "" if there
// is no token to point at.
func (e *Error) Pointer() string {
	if e.Offset < 0 || e.Offset+len(e.Token) > len(e.Expr) {
		return ""
	}
	// A TAB before the token stays one, so that the mark stands below.
	indent := strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, e.Expr[:e.Offset])
	return e.Expr + "\n" + indent + strings.Repeat("^", max(1, utf8.RuneCountInString(e.Token)))
}

// shorten keeps a message to one line, whatever was given.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}
