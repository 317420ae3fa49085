package schedule

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/carillon-scheduler/carillon/internal/intern"
)

// MaxCronLength is the longest expression that ParseCron reads, in bytes. A list
// of all 60 minutes takes 169; what is longer is better written in ranges.
const MaxCronLength = 256

// field describes one field of an expression.
type field struct {
	name     string
	min, max int
	names    []string // three letters, upper case; the first has the value min
	within   string   // the unit that the field starts anew with, for warnings
}

var (
	secondField = field{name: "second", min: 0, max: 59, within: "minute"}
	minuteField = field{name: "minute", min: 0, max: 59, within: "hour"}
	hourField   = field{name: "hour", min: 0, max: 23, within: "day"}
	domField    = field{name: "day of month", min: 1, max: 31, within: "month"}
	monthField  = field{name: "month", min: 1, max: 12, within: "year",
		names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}}
	dowField = field{name: "day of week", min: 0, max: 7, within: "week",
		names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}}
)

// allowed says the range of a field's values, for messages.
func (f *field) allowed() string {
	s := fmt.Sprintf("allowed: %d-%d", f.min, f.max)
	if f.names != nil {
		s += fmt.Sprintf(" or %s-%s", f.names[0], f.names[len(f.names)-1])
	}
	return s
}

var macros = map[string]string{
	"@hourly":   "0 * * * *",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@weekly":   "0 0 * * 0",
	"@monthly":  "0 0 1 * *",
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
}

// parser reads one expression; the first error stops it.
type parser struct {
	expr     string
	at       int // where the token that is being read begins in expr
	err      *Error
	warnings []string
}

func (p *parser) fail(field, token, reason, hint string) {
	if p.err != nil {
		return
	}
	at := p.at
	if end := at + len(token); token == "" {
		at = -1
	} else if end <= len(p.expr) && strings.EqualFold(token, p.expr[at:end]) {
		token = p.expr[at:end] // as it was written
	}
	p.err = &Error{Expr: p.expr, Field: field, Token: token, Offset: at, Reason: reason, Hint: hint}
}

// part is a piece of the expression and where it begins.
type part struct {
	text string
	at   int
}

// crons are the parsed expressions in use, by their canonical text.
var crons intern.Pool[string, Cron]

// ParseCron reads a cron expression in the dialect of the package comment.
// Leading and trailing spaces and TABs are ignored. A refusal is an *Error.
// Expressions with the same canonical text give the same Cron.
func ParseCron(expr string) (*Cron, error) {
	if c := crons.Find(expr); c != nil {
		return c, nil
	}
	p := &parser{expr: expr}
	c := p.parse()
	if p.err != nil {
		return nil, p.err
	}
	return crons.Get(c.text, func() (*Cron, error) { return p.complete(c) })
}

// complete computes what makes a Cron fast, and refuses one that never fires.
func (p *parser) complete(c *Cron) (*Cron, error) {
	c.tabulate()
	if !c.everFires() {
		p.fail("", "", "never fires: no month that it names has such a day", "")
		return nil, p.err
	}
	c.years = c.countYears()
	c.warnings = sync.OnceValue(c.findWarnings)
	return c, nil
}

func (p *parser) parse() *Cron {
	if len(p.expr) > MaxCronLength {
		p.fail("", "", fmt.Sprintf("is %d bytes long, allowed are %d", len(p.expr), MaxCronLength), "")
		return nil
	}
	fields := p.split()
	if p.err != nil {
		return nil
	}
	if source := strings.Trim(p.expr, " \t"); source[0] == '@' {
		full, ok := macros[source]
		if !ok {
			p.at = fields[0].at
			p.failMacro(source)
			return nil
		}
		c := p.fields(cut(full))
		c.text = source
		return c
	}
	return p.fields(fields)
}

// split cuts at spaces and TABs and refuses what isn't printable ASCII, since
// other blanks and digits look like the allowed ones.
func (p *parser) split() []part {
	for i, r := range p.expr {
		if r != '\t' && (r < ' ' || r > '~') {
			p.at = i
			_, size := utf8.DecodeRuneInString(p.expr[i:])
			p.fail("character", p.expr[i:i+size], "only printable ASCII is allowed", "separate the fields by spaces or TABs")
			return nil
		}
	}
	fields := cut(p.expr)
	if len(fields) == 0 {
		p.fail("", "", "is empty", `five fields, such as "0 2 * * *"`)
		return nil
	}
	p.at = fields[0].at
	if upper := strings.ToUpper(fields[0].text); strings.HasPrefix(upper, "TZ=") || strings.HasPrefix(upper, "CRON_TZ=") {
		p.fail("time zone", fields[0].text, "a time-zone prefix is not allowed", "schedules are UTC")
	}
	return fields
}

// cut cuts at spaces and TABs.
func cut(expr string) (parts []part) {
	for at := 0; at < len(expr); {
		n := strings.IndexAny(expr[at:], " \t")
		if n < 0 {
			n = len(expr) - at
		}
		if n > 0 {
			parts = append(parts, part{expr[at : at+n], at})
		}
		at += n + 1
	}
	return parts
}

func (p *parser) failMacro(source string) {
	name, _, _ := strings.Cut(source, " ")
	hint := "allowed: @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually"
	switch lower := strings.ToLower(name); {
	case lower == "@every":
		p.fail("macro", name, "is not cron", "use an interval schedule, which has a stored anchor")
	case lower == "@reboot":
		p.fail("macro", name, "has no meaning for a cluster, which doesn't boot", hint)
	case macros[lower] != "" && name == source:
		p.fail("macro", name, "macros are lower case", "write "+lower)
	default:
		p.fail("macro", source, "is unknown", hint)
	}
}

// fields reads five or six fields. On an error the result is of no use.
func (p *parser) fields(fields []part) *Cron {
	c := &Cron{sec: 1}
	if n := len(fields); n != 5 && n != 6 {
		hint := "minute hour day-of-month month day-of-week, with an optional second first"
		if n == 7 {
			hint += "; there is no year field"
		}
		p.fail("", "", fmt.Sprintf("has %s, allowed are 5 or 6", plural(int64(n), "field")), hint)
		return c
	}
	canonical := make([]string, 0, 6)
	next := func(f *field, special func(item string) bool) uint64 {
		text := fields[0].text
		p.at = fields[0].at
		fields = fields[1:]
		bits, canon := p.field(f, text, special)
		canonical = append(canonical, canon)
		return bits
	}
	if len(fields) == 6 {
		c.sec = next(&secondField, nil)
	}
	c.min = next(&minuteField, nil)
	c.hour = uint32(next(&hourField, nil))
	c.dom.starred = isStarred(fields[0].text)
	c.dom.days = uint32(next(&domField, c.dom.special))
	c.month = uint16(next(&monthField, nil))
	c.dow.starred = isStarred(fields[0].text)
	dow := next(&dowField, c.dow.special)
	c.dow.days = uint8(dow&127 | dow>>7)
	c.text = strings.Join(canonical, " ")
	c.stepWarnings = p.warnings
	return c
}

// isStarred is cronie's test of a day field: its first character alone decides.
func isStarred(text string) bool { return text[0] == '*' || text[0] == '?' }

// field reads a list and returns its values as bits, and the canonical text.
// Items that special takes (the extensions) set no bits.
func (p *parser) field(f *field, text string, special func(item string) bool) (bits uint64, canonical string) {
	text = strings.ToUpper(text)
	if text == "?" && special != nil {
		return valueBits(f.min, f.max, 1), text
	}
	items := strings.Split(text, ",")
	start := p.at
	for i, item := range items {
		if item == "" {
			p.at = start
			p.fail(f.name, text, "has an empty list member; "+f.allowed(), "remove the comma")
			return 0, ""
		}
		if special == nil || !special(item) {
			bits |= p.item(f, item)
		}
		if p.err != nil {
			return 0, ""
		}
		items[i] = trimZeros(item)
		p.at += len(item) + len(",")
	}
	return bits, strings.Join(items, ",")
}

// item reads *, */s, a, a-b or a-b/s.
func (p *parser) item(f *field, item string) uint64 {
	body, stepText, hasStep := strings.Cut(item, "/")
	low, high, single := p.span(f, item, body)
	if p.err != nil {
		return 0
	}
	if !hasStep {
		return valueBits(low, high, 1)
	}
	step, ok := number(stepText)
	switch {
	case !ok:
		p.fail(f.name, item, fmt.Sprintf("step %q is not a number from 1 to %d; %s", shorten(stepText), math.MaxInt32, f.allowed()), "")
	case step == 0:
		p.fail(f.name, item, "a step of 0 is not allowed; "+f.allowed(), "the least step is 1")
	case single:
		p.fail(f.name, item, "a step needs a range or *; "+f.allowed(),
			fmt.Sprintf("write %d-%d/%d", low, f.last(), step))
	}
	if p.err != nil {
		return 0
	}
	p.warnStep(f, item, low, high, step)
	return valueBits(low, high, step)
}

// last is the highest value that isn't another name of a lower one.
func (f *field) last() int {
	if f.max == 7 {
		return 6
	}
	return f.max
}

// span reads *, a or a-b.
func (p *parser) span(f *field, item, body string) (low, high int, single bool) {
	if body == "*" {
		return f.min, f.max, false
	}
	from, to, isRange := strings.Cut(body, "-")
	low = p.value(f, item, from)
	if !isRange {
		return low, low, true
	}
	high = p.value(f, item, to)
	if p.err == nil && low > high {
		hint := "the lower end comes first"
		if f.max == 7 && high == 0 {
			hint = fmt.Sprintf("write %d-7: at the end of a range Sunday is 7", low)
		}
		p.fail(f.name, item, "reversed range; "+f.allowed(), hint)
	}
	return low, high, false
}

// value reads a number or a name.
func (p *parser) value(f *field, item, text string) int {
	for i, name := range f.names {
		if text == name {
			return f.min + i
		}
	}
	n, ok := number(text)
	switch {
	case ok && n >= f.min && n <= f.max:
		return n
	case ok || isDigits(text):
		p.fail(f.name, item, fmt.Sprintf("%s is out of range; %s", shorten(text), f.allowed()), "")
	case text == "":
		p.fail(f.name, item, "a value is missing; "+f.allowed(), "")
	case text == "?":
		p.fail(f.name, item, "? may only stand alone, in a day field; "+f.allowed(), "write *")
	default:
		p.fail(f.name, item, fmt.Sprintf("%q is not a value; %s", shorten(text), f.allowed()), f.hint(text))
	}
	return 0
}

// hint guesses what a text that is no value was meant to be.
func (f *field) hint(text string) string {
	switch {
	case f.max == 7 && (text == "L" || text == "LW"):
		return "the last Friday of a month is 5L"
	case f.max == 31 && strings.ContainsAny(text, "LW"):
		return "extensions: L, L-1 to L-30, LW, 1W to 31W"
	case f.max == 7 && strings.ContainsAny(text, "L#"):
		return "extensions: 0L to 7L, 0#1 to 7#5"
	case f.names != nil && len(text) > 3:
		return "names have three letters"
	}
	return ""
}

// number reads decimal digits up to 2^31-1; leading zeros are decimal.
func number(text string) (n int, ok bool) {
	if !isDigits(text) {
		return 0, false
	}
	for _, r := range text {
		n = n*10 + int(r-'0')
		if n > math.MaxInt32 {
			return 0, false
		}
	}
	return n, true
}

func isDigits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != ""
}

// valueBits returns the bits low, low+step, … up to high.
func valueBits(low, high, step int) (bits uint64) {
	for v := low; v <= high; v += step {
		bits |= 1 << v
	}
	return bits
}

// trimZeros drops the leading zeros of every number in an item.
func trimZeros(item string) string {
	if !strings.Contains(item, "0") {
		return item
	}
	out := make([]byte, 0, len(item))
	inNumber := false // a digit other than a leading zero was copied
	for i := range len(item) {
		ch := item[i]
		digit := ch >= '0' && ch <= '9'
		nextDigit := i+1 < len(item) && item[i+1] >= '0' && item[i+1] <= '9'
		if ch == '0' && !inNumber && nextDigit {
			continue
		}
		inNumber = digit
		out = append(out, ch)
	}
	return string(out)
}
