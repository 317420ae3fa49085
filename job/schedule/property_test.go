package schedule

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/adhocore/gronx"
	netresearch "github.com/netresearch/go-cron"
)

// fourCenturies is the calendar's cycle, and a day for the time of day.
const fourCenturies = daysPer400 + 1

// randomInstant favours the present and the edges of months, days and the range.
func randomInstant(r *rand.Rand) int64 {
	switch r.IntN(8) {
	case 0:
		return MinSecond + r.Int64N(MaxSecond-MinSecond)
	case 1: // the last days of a year between 1 and 9999
		return time.Date(2+r.IntN(9997), 1, 1, 0, 0, 0, 0, time.UTC).Unix() - r.Int64N(3*secondsPerDay)
	case 2: // around the end of a February
		return time.Date(1890+r.IntN(300), 3, 1, 0, 0, 0, 0, time.UTC).Unix() + r.Int64N(4*secondsPerDay) - 2*secondsPerDay
	case 3: // a midnight to the second
		return secondsPerDay*(r.Int64N(60_000)-15_000) + r.Int64N(3) - 1
	default:
		return r.Int64N(4e9) - 1e9
	}
}

// pairsWanted is how many pairs of an expression and an instant are compared with a
// walk, over a hundred instants of each of many expressions.
const (
	expressionsTried = 10_000
	instantsTried    = 110
	pairsWanted      = 1_000_000 // some expressions never fire, some instants' next lies beyond the walk
)

// TestRandomCronAgainstCalendarWalk compares Next, Prev, Count and Nth with a walk over
// the days of some years, for random expressions and instants.
func TestRandomCronAgainstCalendarWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(20260310, 1))
	refused, pairs := 0, 0
	for range expressionsTried {
		o := randomOracle(r, true)
		c, err := ParseCron(o.text)
		if err != nil {
			refused++
			checkNever(t, o, err, refused)
			continue
		}
		w := o.walk(randomInstant(r), 1100)
		for range instantsTried {
			pairs += w.compare(t, c, w.first+r.Int64N(w.end-w.first), w.first+r.Int64N(w.end-w.first))
		}
		checkInverse(t, c, randomInstant(r))
		if t.Failed() {
			return
		}
	}
	t.Logf("%d pairs compared, %d expressions refused", pairs, refused)
	if pairs < pairsWanted {
		t.Errorf("only %d pairs compared", pairs)
	}
}

// TestRareCronAgainstCalendarWalk walks as far as it takes, which is far for some.
func TestRareCronAgainstCalendarWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(20260310, 4))
	for accepted := 0; accepted < 5000; {
		o := randomOracle(r, true)
		c, err := ParseCron(o.text)
		if err != nil {
			continue
		}
		accepted++
		compareWithWalk(t, o, c, randomInstant(r))
		if t.Failed() {
			return
		}
	}
}

// walk is the days of a range on which an oracle fires.
type walk struct {
	o          *oracle
	first, end int64 // midnights; the end isn't part of it
	days       []int64
	seconds    []int64
}

func (o *oracle) walk(from int64, days int) *walk {
	from = max(from, MinSecond)
	from = min(from-floorMod(from, secondsPerDay), MaxSecond+1-int64(days)*secondsPerDay)
	w := &walk{o: o, first: from, end: from + int64(days)*secondsPerDay, seconds: o.seconds()}
	day := time.Unix(from, 0).UTC()
	for range days {
		if o.matchesDay(day) {
			w.days = append(w.days, day.Unix())
		}
		day = day.AddDate(0, 0, 1)
	}
	return w
}

// upTo returns how many fire times of the walk lie up to and at an instant.
func (w *walk) upTo(at int64) int64 {
	n, onDay := slices.BinarySearch(w.days, at-floorMod(at, secondsPerDay))
	count := int64(n) * int64(len(w.seconds))
	if onDay {
		k, there := slices.BinarySearch(w.seconds, floorMod(at, secondsPerDay))
		if there {
			k++
		}
		count += int64(k)
	}
	return count
}

// at returns the n-th fire time of the walk, from 0 on, if it has one.
func (w *walk) at(n int64) (int64, bool) {
	per := int64(len(w.seconds))
	if n < 0 || n >= int64(len(w.days))*per {
		return 0, false
	}
	return w.days[n/per] + w.seconds[n%per], true
}

// compare compares c with the walk at an instant of it, and in the range from it to
// another one, and returns how many comparisons that were.
func (w *walk) compare(t *testing.T, c *Cron, at, other int64) (compared int) {
	rank := w.upTo(at)
	if want, known := w.at(rank); known {
		compared++
		if got, ok := c.Next(at); !ok || got != want {
			t.Errorf("%q: Next(%s) = %s, %v; want %s", w.o.text, rfc3339(at), rfc3339(got), ok, rfc3339(want))
		}
	}
	if want, known := w.at(w.upTo(at-1) - 1); known {
		if got, ok := c.Prev(at); !ok || got != want {
			t.Errorf("%q: Prev(%s) = %s, %v; want %s", w.o.text, rfc3339(at), rfc3339(got), ok, rfc3339(want))
		}
	}
	want := max(0, w.upTo(other)-rank)
	if got := c.Count(at, other); got != want {
		t.Errorf("%q: Count(%s, %s) = %d, want %d", w.o.text, rfc3339(at), rfc3339(other), got, want)
	}
	if last, known := w.at(rank + want - 1); known && want > 0 {
		if got, ok := c.Nth(at, want); !ok || got != last {
			t.Errorf("%q: Nth(%s, %d) = %s, %v; want %s", w.o.text, rfc3339(at), want, rfc3339(got), ok, rfc3339(last))
		}
	}
	return compared
}

// checkNever proves a refusal by walking the calendar's whole cycle (the first
// few of them: it takes a while).
func checkNever(t *testing.T, o *oracle, err error, count int) {
	var refusal *Error
	if !errors.As(err, &refusal) || !strings.HasPrefix(refusal.Reason, "never fires") {
		t.Errorf("ParseCron(%q): %v", o.text, err)
		return
	}
	if count > 10 {
		return
	}
	if at, ok := o.next(946684799, fourCenturies); ok {
		t.Errorf("ParseCron(%q): %v; but it fires at %s", o.text, err, rfc3339(at))
	}
}

func compareWithWalk(t *testing.T, o *oracle, c *Cron, at int64) {
	next, ok := c.Next(at)
	if want, wantOK := o.next(at, fourCenturies); ok != wantOK || next != want {
		t.Errorf("%q: Next(%s) = %s, %v; want %s, %v", o.text, rfc3339(at), rfc3339(next), ok, rfc3339(want), wantOK)
		return
	}
	prev, okPrev := c.Prev(at)
	if want, wantOK := o.prev(at, fourCenturies); okPrev != wantOK || prev != want {
		t.Errorf("%q: Prev(%s) = %s, %v; want %s, %v", o.text, rfc3339(at), rfc3339(prev), okPrev, rfc3339(want), wantOK)
		return
	}
	checkInverse(t, c, at)
}

// checkInverse checks that Prev undoes Next and the other way round, and that
// nothing lies between.
func checkInverse(t testing.TB, s Recurrence, at int64) {
	next, ok := s.Next(at)
	if !ok {
		return
	}
	if next <= at {
		t.Errorf("%v: Next(%d) = %d is not after", s, at, next)
	}
	if again, ok := s.Next(next - 1); !ok || again != next {
		t.Errorf("%v: Next(%d) = %d, %v; want the same %d", s, next-1, again, ok, next)
	}
	if back, ok := s.Prev(next + 1); !ok || back != next {
		t.Errorf("%v: Prev(%d) = %d, %v; want %d", s, next+1, back, ok, next)
	}
	if prev, ok := s.Prev(next); ok {
		if prev > at {
			t.Errorf("%v: %d lies between %d and its Next %d", s, prev, at, next)
		}
		if forth, ok := s.Next(prev); !ok || forth != next {
			t.Errorf("%v: Next(Prev(%d)) = %d, %v", s, next, forth, ok)
		}
	}
}

// TestRandomCronAgainstPublicParsers compares Next with two public parsers
// where they read the same dialect: five fields, no extension, and no star in
// the day fields but a bare one.
func TestRandomCronAgainstPublicParsers(t *testing.T) {
	theirs := netresearch.MustNewParser(netresearch.Minute | netresearch.Hour | netresearch.Dom |
		netresearch.Month | netresearch.Dow | netresearch.DowOrDom)
	r := rand.New(rand.NewPCG(20260310, 2))
	const wanted = 50_000
	compared := 0
	for tried := 0; compared < wanted && tried < 100*wanted && !t.Failed(); tried++ {
		o := randomOracle(r, false)
		c, err := ParseCron(o.text)
		if err != nil || !o.plain || len(c.stepWarnings) > 0 {
			continue
		}
		at := r.Int64N(2e9)
		next, ok := c.Next(at)
		if !ok || next-at > 4*366*secondsPerDay {
			continue // beyond their search
		}
		compared++
		text := strings.Join(strings.Fields(o.text), " ")
		start := time.Unix(at, 0).UTC()
		if got, err := gronx.NextTickAfter(text, start, false); err != nil || got.Unix() != next {
			t.Errorf("%q from %s: we say %s, gronx %s, %v", text, rfc3339(at), rfc3339(next), rfc3339(got.Unix()), err)
		}
		schedule, err := theirs.Parse(text)
		if err != nil {
			if !strings.Contains(err.Error(), "step") { // it refuses steps that cronie only warns of
				t.Errorf("%q: go-cron: %v", text, err)
			}
			continue
		}
		if got := schedule.Next(start); got.Unix() != next {
			t.Errorf("%q from %s: we say %s, go-cron %s", text, rfc3339(at), rfc3339(next), rfc3339(got.Unix()))
		}
	}
	if compared < wanted {
		t.Errorf("only %d comparisons", compared)
	}
}

func TestRandomIntervals(t *testing.T) {
	r := rand.New(rand.NewPCG(20260310, 3))
	for range 20_000 {
		every := 1 + r.Int64N([]int64{100, 1e5, int64(MaxInterval / time.Second)}[r.IntN(3)])
		anchor := randomInstant(r)
		i, err := NewInterval(time.Duration(every)*time.Second, anchor)
		if err != nil {
			t.Fatal(err)
		}
		at := randomInstant(r)
		next, ok := i.Next(at)
		if ok && ((next-anchor)%every != 0 || next <= at || next-at > every) {
			t.Fatalf("%v: Next(%d) = %d", i, at, next)
		}
		if !ok && at+every <= MaxSecond {
			t.Fatalf("%v: no Next(%d)", i, at)
		}
		prev, ok := i.Prev(at)
		if ok && ((anchor-prev)%every != 0 || prev >= at || at-prev > every) {
			t.Fatalf("%v: Prev(%d) = %d", i, at, prev)
		}
		if !ok && at-every >= MinSecond {
			t.Fatalf("%v: no Prev(%d)", i, at)
		}
		checkInverse(t, i, at)
	}
}

func TestCivilAgainstTimePackage(t *testing.T) {
	for day := MinSecond / secondsPerDay; day <= MaxSecond/secondsPerDay; day++ {
		want := time.Unix(day*secondsPerDay, 0).UTC()
		y, m, d := civilFromDays(day)
		if y != want.Year() || m != int(want.Month()) || d != want.Day() {
			t.Fatalf("day %d is %v, not %d-%d-%d", day, want, y, m, d)
		}
		if back := daysFromCivil(y, m, d); back != day {
			t.Fatalf("%d-%d-%d is day %d, not %d", y, m, d, day, back)
		}
		if weekday(day) != int(want.Weekday()) {
			t.Fatalf("day %d is a %v", day, want.Weekday())
		}
	}
}

func FuzzParseCron(f *testing.F) {
	for _, v := range readVectors(f) {
		f.Add(v.expr)
	}
	for _, expr := range []string{"0 0 LW,15w,L-3 * mon#2,5l", "@hourly", "@DAILY", "@every 1s", "*/7 */5 */9 */10 */5 */2"} {
		f.Add(expr)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		c, err := ParseCron(expr)
		if err != nil {
			var refusal *Error
			if !errors.As(err, &refusal) || refusal.Reason == "" || strings.ContainsAny(err.Error(), "\n\r\x00") {
				t.Fatalf("ParseCron(%q): %q", expr, err)
			}
			return
		}
		again, err := ParseCron(c.String())
		if err != nil || again.String() != c.String() {
			t.Fatalf("%q became %q, which becomes %v, %v", expr, c, again, err)
		}
		if c.Describe() == "" || again.Describe() != c.Describe() {
			t.Fatalf("%q: descriptions %q and %q", expr, c.Describe(), again.Describe())
		}
		c.Warnings()
		for _, at := range []int64{MinSecond, 0, 1_785_000_000} {
			next, ok := c.Next(at)
			if same, _ := again.Next(at); !ok || same != next {
				t.Fatalf("%q: Next(%d) = %d, %v; %q: %d", expr, at, next, ok, c, same)
			}
			checkInverse(t, c, at)
			if nth, ok := c.Nth(at, 1000); ok && c.Count(at, nth) != 1000 {
				t.Fatalf("%q: the 1000th after %d is %d, up to which there are %d", expr, at, nth, c.Count(at, nth))
			}
		}
	})
}
