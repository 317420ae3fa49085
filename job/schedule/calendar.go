package schedule

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/internal/intern"
)

// Bounds of calendars.
const (
	// MaxCalendarItems is how many items a calendar has at most: the holidays of
	// some decades. A job keeps its calendars by value, so they should be small.
	MaxCalendarItems = 1000
	// MaxCalendars is how many calendars a job has at most.
	MaxCalendars = 5
)

// Calendar is a set of instants at which jobs don't fire: one version of it, which
// never changes. It is safe for concurrent use. Make one with NewCalendar.
type Calendar struct {
	name     string
	version  int64
	weekdays uint8      // bit w: every weekday w, 0 being Sunday
	annual   [13]uint32 // bit d of month m: that day of every year
	daily    bool       // weekdays or annual isn't empty
	spans    []span     // disjoint and apart, ascending
	items    []string
}

// span is from a second on, up to and without another.
type span struct{ from, to int64 }

// CalendarError says why an item of a calendar was refused.
type CalendarError struct {
	Index  int    // of the item, from 0
	Item   string // what was given
	Reason string
}

// Error returns one line that names the item.
func (e *CalendarError) Error() string {
	return fmt.Sprintf("item %d, %s: %s", e.Index+1, strconv.QuoteToASCII(shorten(e.Item)), e.Reason)
}

// itemForms says what an item may be, for messages.
const itemForms = "must be a weekday (SAT), a day of every year (12-25), a date (2026-12-24), dates (2026-12-24/2027-01-01, both included) " +
	"or instants (2026-12-24T18:00:00Z/2026-12-25T06:00:00Z, the last one not included)"

// NewCalendar returns version version of the calendar name with the items, each of
// them a weekday ("SAT"), a day of every year ("12-25"), a date ("2026-12-24"), a range
// of dates of which both are included ("2026-12-24/2027-01-01"), or a range of instants
// of which the last isn't ("2026-12-24T18:00:00Z/2026-12-25T06:00:00Z"). A refusal of an
// item is a *CalendarError. Whether the name is fit to be one is not looked at.
func NewCalendar(name string, version int64, items []string) (*Calendar, error) {
	c := &Calendar{name: name, version: version}
	for i, item := range items {
		if err := c.add(item); err != nil {
			return nil, &CalendarError{Index: i, Item: item, Reason: err.Error()}
		}
	}
	c.daily = c.weekdays != 0 || c.annual != [13]uint32{}
	c.spans = merge(c.spans)
	c.items = c.canonical()
	switch {
	case len(c.items) == 0:
		return nil, errors.New("a calendar needs at least one item")
	case len(c.items) > MaxCalendarItems:
		return nil, fmt.Errorf("a calendar has at most %d items, this one has %d", MaxCalendarItems, len(c.items))
	case c.weekdays == 127:
		return nil, errors.New("a calendar of all seven weekdays leaves no day to fire on")
	}
	return c, nil
}

func (c *Calendar) add(item string) error {
	if w := slices.Index(dowField.names, strings.ToUpper(item)); w >= 0 {
		c.weekdays |= 1 << w
		return nil
	}
	first, last, isRange := strings.Cut(item, "/")
	if !isRange && len(item) == len("01-02") {
		return c.addAnnual(item)
	}
	if !isRange {
		last = first
	}
	from, to, err := parseSpan(first, last)
	if err != nil {
		return err
	}
	c.spans = append(c.spans, span{from, to})
	return nil
}

// addAnnual reads a day of every year. 2000 was a leap year, so 02-29 is one.
func (c *Calendar) addAnnual(item string) error {
	t, err := time.Parse(time.DateOnly, "2000-"+item)
	if err != nil {
		return errors.New(itemForms)
	}
	c.annual[t.Month()] |= 1 << t.Day()
	return nil
}

// parseSpan reads two dates, or two instants.
func parseSpan(first, last string) (from, to int64, err error) {
	a, err1 := time.Parse(time.DateOnly, first)
	b, err2 := time.Parse(time.DateOnly, last)
	if err := errors.Join(err1, err2); err == nil {
		b = b.AddDate(0, 0, 1)
	} else if a, b, err = parseInstants(first, last); err != nil {
		return 0, 0, err
	}
	switch from, to = a.Unix(), b.Unix(); {
	case from < MinSecond || to > endOfTime || to == endOfTime && strings.Contains(last, "T"):
		return 0, 0, errors.New("must lie in the years 1 to 9999")
	case from >= to:
		return 0, 0, errors.New("the range ends before it begins")
	}
	return from, to, nil
}

func parseInstants(first, last string) (a, b time.Time, err error) {
	a, err1 := time.Parse(time.RFC3339, first)
	b, err2 := time.Parse(time.RFC3339, last)
	switch {
	case err1 != nil || err2 != nil || first == last:
		return a, b, errors.New(itemForms)
	case a.Nanosecond() != 0 || b.Nanosecond() != 0:
		return a, b, errors.New("instants are whole seconds")
	}
	return a, b, nil
}

// merge sorts spans and joins those that touch.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	var out []span
	for _, s := range spans {
		n := len(out)
		if n == 0 || s.from > out[n-1].to {
			out = append(out, s)
			continue
		}
		last := &out[n-1]
		if s.to == endOfTime && last.to < endOfTime && !isMidnight(last.from) {
			// The end of time is no instant that can be written: it stays a span of days.
			last.to = s.from
			out = append(out, s)
			continue
		}
		last.to = max(last.to, s.to)
	}
	return out
}

// endOfTime is the midnight after the last day.
const endOfTime = MaxSecond + 1

func isMidnight(at int64) bool { return floorMod(at, secondsPerDay) == 0 }

// canonical lists the items in order, each once.
func (c *Calendar) canonical() (items []string) {
	for w, name := range dowField.names {
		if c.weekdays>>w&1 != 0 {
			items = append(items, name)
		}
	}
	for month, days := range c.annual {
		for d := 1; d <= 31; d++ {
			if days>>d&1 != 0 {
				items = append(items, fmt.Sprintf("%02d-%02d", month, d))
			}
		}
	}
	for _, s := range c.spans {
		items = append(items, s.String())
	}
	return items
}

// String writes a span as an item.
func (s span) String() string {
	if !isMidnight(s.from) || !isMidnight(s.to) {
		return instantText(s.from) + "/" + instantText(s.to)
	}
	first, last := s.from, s.to-secondsPerDay
	if first == last {
		return dateText(first)
	}
	return dateText(first) + "/" + dateText(last)
}

func instantText(at int64) string { return time.Unix(at, 0).UTC().Format(time.RFC3339) }
func dateText(at int64) string    { return time.Unix(at, 0).UTC().Format(time.DateOnly) }

// Name returns the calendar's name.
func (c *Calendar) Name() string { return c.name }

// Version returns which version of the calendar this is.
func (c *Calendar) Version() int64 { return c.version }

// Items lists what the calendar holds in canonical form: weekdays, days of every year,
// and spans that neither overlap nor touch, each in their order. Equal items exclude
// equally. The caller must not change it.
func (c *Calendar) Items() []string { return c.items }

// String returns the calendar's name and version, as "holidays@3".
func (c *Calendar) String() string { return fmt.Sprintf("%s@%d", c.name, c.version) }

// at says whether the calendar holds an instant, and until when, at least, all
// instants from it on are alike.
func (c *Calendar) at(t int64) (holds bool, until int64) {
	until = MaxSecond + 1
	if c.daily {
		day := (t - floorMod(t, secondsPerDay)) / secondsPerDay
		holds, until = c.holdsDay(day), (day+1)*secondsPerDay
	}
	i := c.spanAfter(t)
	switch {
	case i == len(c.spans):
	case c.spans[i].from <= t && holds:
		until = max(until, c.spans[i].to)
	case c.spans[i].from <= t:
		holds, until = true, c.spans[i].to
	case !holds:
		until = min(until, c.spans[i].from)
	}
	return holds, until
}

// since returns an instant at or before t from which on, up to t, the calendar holds all
// instants; one after t if it doesn't hold t.
func (c *Calendar) since(t int64) int64 {
	first := t + 1
	if c.daily {
		day := (t - floorMod(t, secondsPerDay)) / secondsPerDay
		if c.holdsDay(day) {
			first = day * secondsPerDay
		}
	}
	if i := c.spanAfter(t); i < len(c.spans) && c.spans[i].from <= t {
		first = min(first, c.spans[i].from)
	}
	return first
}

// spanAfter returns the place of the first span that ends after t.
func (c *Calendar) spanAfter(t int64) int {
	i, _ := slices.BinarySearchFunc(c.spans, t, func(s span, t int64) int {
		if s.to <= t {
			return -1
		}
		return 1
	})
	return i
}

func (c *Calendar) holdsDay(day int64) bool {
	if c.weekdays>>weekday(day)&1 != 0 {
		return true
	}
	_, month, d := civilFromDays(day)
	return c.annual[month]>>d&1 != 0
}

// Exclusions are the calendars of a job. Nil excludes nothing. It is immutable and
// safe for concurrent use.
type Exclusions struct {
	calendars []*Calendar
	text      string
}

// Exclude brings calendars together.
func Exclude(calendars []*Calendar) *Exclusions {
	if len(calendars) == 0 {
		return nil
	}
	var b strings.Builder
	for i, c := range calendars {
		if i > 0 {
			b.WriteByte(';')
		}
		b.WriteString(c.String() + "=" + strings.Join(c.items, ","))
	}
	return &Exclusions{calendars: calendars, text: b.String()}
}

// exclusions are those in use, by their text.
var exclusions intern.Pool[string, Exclusions]

// ParseExclusions reads what String wrote. Equal texts give the same value.
func ParseExclusions(text string) (*Exclusions, error) {
	if text == "" {
		return nil, nil
	}
	return exclusions.Get(text, func() (*Exclusions, error) {
		var calendars []*Calendar
		for part := range strings.SplitSeq(text, ";") {
			c, err := parseCalendar(part)
			if err != nil {
				return nil, fmt.Errorf("calendars of a job: %w", err)
			}
			calendars = append(calendars, c)
		}
		return &Exclusions{calendars: calendars, text: text}, nil
	})
}

func parseCalendar(part string) (*Calendar, error) {
	id, items, ok1 := strings.Cut(part, "=")
	name, number, ok2 := strings.Cut(id, "@")
	version, err := strconv.ParseInt(number, 10, 64)
	if !ok1 || !ok2 || err != nil {
		return nil, fmt.Errorf("%q is not a calendar's name, version and items", shorten(part))
	}
	return NewCalendar(name, version, strings.Split(items, ","))
}

// String returns the calendars with all that they hold: what is stored with a job. It
// is empty for none.
func (e *Exclusions) String() string {
	if e == nil {
		return ""
	}
	return e.text
}

// Calendars lists the calendars. The caller must not change it.
func (e *Exclusions) Calendars() []*Calendar {
	if e == nil {
		return nil
	}
	return e.calendars
}

// By returns the first calendar that holds an instant (Unix seconds), or nil.
func (e *Exclusions) By(t int64) *Calendar {
	if e == nil {
		return nil
	}
	for _, c := range e.calendars {
		if holds, _ := c.at(t); holds {
			return c
		}
	}
	return nil
}

// at says whether an instant is excluded, and until when, at least, all instants from
// it on are alike.
func (e *Exclusions) at(t int64) (excluded bool, until int64) {
	until = MaxSecond + 1
	if e == nil {
		return false, until
	}
	for _, c := range e.calendars {
		holds, its := c.at(t)
		switch {
		case holds && excluded:
			until = max(until, its)
		case holds:
			excluded, until = true, its
		case !excluded:
			until = min(until, its)
		}
	}
	return excluded, until
}

// since is that of the calendars together.
func (e *Exclusions) since(t int64) int64 {
	first := t + 1
	if e != nil {
		for _, c := range e.calendars {
			first = min(first, c.since(t))
		}
	}
	return first
}
