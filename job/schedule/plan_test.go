package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func calendar(t testing.TB, items ...string) *Calendar {
	t.Helper()
	c, err := NewCalendar("closed", 1, items)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func instantOf(t testing.TB, text string) int64 {
	t.Helper()
	return unix(t, text)
}

func TestCalendarItems(t *testing.T) {
	for _, c := range []struct{ items, want string }{
		{"sat SUN sun", "SUN SAT"},
		{"12-25 01-01 02-29 12-25", "01-01 02-29 12-25"},
		{"2026-12-25 2026-12-24 2026-12-26", "2026-12-24/2026-12-26"},
		{"2026-12-24/2026-12-26 2026-12-30", "2026-12-24/2026-12-26 2026-12-30"},
		{"2026-12-24T00:00:00Z/2026-12-25T00:00:00Z", "2026-12-24"},
		{"2026-12-24T18:00:00Z/2026-12-25T06:00:00Z 2026-12-25", "2026-12-24T18:00:00Z/2026-12-26T00:00:00Z"},
		{"2026-12-24T18:00:00+02:00/2026-12-24T20:00:00+02:00", "2026-12-24T16:00:00Z/2026-12-24T18:00:00Z"},
		{"0001-01-01 9999-12-31", "0001-01-01 9999-12-31"},
		{"2027-01-01T12:00:00Z/2027-01-02T00:00:00Z 2027-01-02/9999-12-31", "2027-01-01T12:00:00Z/2027-01-02T00:00:00Z 2027-01-02/9999-12-31"},
		{"2027-01-01T12:00:00Z/2027-01-03T12:00:00Z 2027-01-02/9999-12-31", "2027-01-01T12:00:00Z/2027-01-02T00:00:00Z 2027-01-02/9999-12-31"},
		{"2027-01-01/9999-12-31 2027-01-01T12:00:00Z/2027-01-03T12:00:00Z", "2027-01-01/9999-12-31"},
	} {
		got := calendar(t, strings.Fields(c.items)...)
		if text := strings.Join(got.Items(), " "); text != c.want {
			t.Errorf("%s: %s, want %s", c.items, text, c.want)
		}
		if again := calendar(t, got.Items()...); !slices.Equal(again.Items(), got.Items()) {
			t.Errorf("%s isn't canonical: it becomes %s", got.Items(), again.Items())
		}
	}
}

func TestCalendarRefusals(t *testing.T) {
	for item, want := range map[string]string{
		"": "must be a weekday", "SATURDAY": "must be a weekday", "2026-02-29": "must be a weekday", "13-01": "must be a weekday", "02-30": "must be a weekday",
		"2026-12-24/": "must be a weekday", "2026-12-24/2026-12-23": "ends before", "2026-12-24T00:00:00Z": "must be a weekday",
		"2026-12-24T00:00:00Z/2026-12-24T00:00:00Z": "must be a weekday", "2026-12-24T00:00:00.5Z/2026-12-25T00:00:00Z": "whole seconds",
		"0000-12-31": "years 1 to 9999", "9999-12-31T00:00:00Z/9999-12-31T23:00:00-01:00": "years 1 to 9999", "2026-12-24 ": "must be a weekday", "2026-12-24/SAT": "must be a weekday", "\x00": "must be a weekday",
	} {
		_, err := NewCalendar("c", 1, []string{"SUN", item})
		var refused *CalendarError
		if !errors.As(err, &refused) || refused.Index != 1 || refused.Item != item || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "item 2") {
			t.Errorf("%q: %v, want %q", item, err, want)
		}
	}
	many := make([]string, MaxCalendarItems+1)
	for i := range many {
		many[i] = time.Unix(int64(i)*2*secondsPerDay, 0).UTC().Format(time.DateOnly)
	}
	for _, items := range [][]string{nil, many, {"MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"}} {
		if _, err := NewCalendar("c", 1, items); err == nil {
			t.Errorf("%d items were taken", len(items))
		}
	}
	if _, err := NewCalendar("c", 1, many[1:]); err != nil {
		t.Error(err)
	}
}

func TestExclusionsAreStoredAsText(t *testing.T) {
	e := Exclude([]*Calendar{calendar(t, "SAT", "SUN", "12-25"), calendar(t, "2026-12-24T18:00:00Z/2026-12-25T06:00:00Z")})
	const want = "closed@1=SUN,SAT,12-25;closed@1=2026-12-24T18:00:00Z/2026-12-25T06:00:00Z"
	if e.String() != want {
		t.Fatalf("%s, want %s", e, want)
	}
	a, err1 := ParseExclusions(want)
	b, err2 := ParseExclusions(strings.Clone(want))
	if err := errors.Join(err1, err2); err != nil || a != b || a.String() != want {
		t.Errorf("%v and %v, %v", a, b, err)
	}
	if none, err := ParseExclusions(""); none != nil || err != nil || none.By(0) != nil || none.String() != "" || none.Calendars() != nil {
		t.Errorf("none: %v, %v", none, err)
	}
	for _, bad := range []string{"x", "x=SAT", "x@1", "x@y=SAT", "x@1=", "x@1=SAT;", "x@1=XXX"} {
		if e, err := ParseExclusions(bad); err == nil {
			t.Errorf("%q is read as %v", bad, e)
		}
	}
}

// Equal schedules are one value in memory; a text that isn't canonical finds the one of
// its canonical text.
func TestParsedSchedulesAreShared(t *testing.T) {
	a, b := mustParse(t, "7 3 * * mon"), mustParse(t, "07  3 * * MON")
	if a != b {
		t.Error("two values of one expression")
	}
	g, err1 := Grid(90 * time.Second)
	h, err2 := Grid(90 * time.Second)
	if err := errors.Join(err1, err2); err != nil || g != h {
		t.Errorf("two values of one grid, %v", err)
	}
}

func TestAPlanInWords(t *testing.T) {
	p := Always(mustParse(t, "0 2 * * *"))
	p.Spread, p.Offset = 300, 137
	p.From, p.To = instantOf(t, "2026-12-01T00:00:00Z"), instantOf(t, "2026-12-31T23:59:59Z")
	p.Except = Exclude([]*Calendar{calendar(t, "SAT")})
	p.MaxOccurrences = 3
	const want = "at 02:00 UTC every day, 2 minutes 17 seconds later (of a spread of 5 minutes), from 2026-12-01T00:00:00Z, 3 times at most, up to 2026-12-31T23:59:59Z, except what is in closed@1"
	if got := p.Describe(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	p = Always(mustParse(t, "0 2 * * *"))
	p.Spread, p.Unplaced = 300, true
	if got, want := p.Describe(), "at 02:00 UTC every day, later by up to 5 minutes, which the job's name decides"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := Always(mustParse(t, "0 2 * * *")).Describe(); got != "at 02:00 UTC every day" {
		t.Error(got)
	}
}

func TestWarningsOfAPlan(t *testing.T) {
	now := instantOf(t, "2025-03-01T00:00:00Z")
	for _, c := range []struct {
		expr   string
		spread int64
		want   string // a part of one of the warnings, or none at all
	}{
		{"0 2 * * *", 0, ""},
		{"0 2 * * *", 86400, ""},
		{"0 2 * * *", 86401, "spread is longer"},
		{"0 0 29 2 *", 0, "the next fire time is more than 2 years away: 2028-02-29T00:00:00Z"},
		{"0 0 1 3 *", 0, ""}, // just fired: in 365 days
		{"*/90 * * * *", 0, "every 90 minutes isn't cron: use an interval of 90m"},
		{"0 */5 * * *", 0, "every 5 hours isn't cron: use an interval of 5h"},
	} {
		p := Always(mustParse(t, c.expr))
		p.Spread = c.spread
		next, _ := p.NextRun(now, MaxSecond)
		w := p.Warnings(now, next)
		if found := strings.Contains(strings.Join(w, "; "), c.want); !found || c.want == "" && len(w) > 0 {
			t.Errorf("%s, spread %d: %q, want %q", c.expr, c.spread, w, c.want)
		}
	}
}

// randomItems returns the items of a calendar and what they mean, made beside them and
// by package time.
func randomItems(r *rand.Rand, first, end int64) (items []string, holds func(t time.Time) bool) {
	var rules []func(t time.Time) bool
	for range 1 + r.IntN(4) {
		at := time.Unix(first+r.Int64N(end-first), 0).UTC()
		switch r.IntN(4) {
		case 0:
			items = append(items, strings.ToUpper(at.Weekday().String()[:3]))
			rules = append(rules, func(t time.Time) bool { return t.Weekday() == at.Weekday() })
		case 1:
			items = append(items, at.Format("01-02"))
			rules = append(rules, func(t time.Time) bool { return t.Month() == at.Month() && t.Day() == at.Day() })
		case 2:
			last := at.AddDate(0, 0, r.IntN(40))
			items = append(items, at.Format(time.DateOnly)+"/"+last.Format(time.DateOnly))
			from, to := at.Truncate(24*time.Hour), last.Truncate(24*time.Hour).AddDate(0, 0, 1)
			rules = append(rules, func(t time.Time) bool { return !t.Before(from) && t.Before(to) })
		case 3:
			to := at.Add(time.Duration(1+r.IntN(1_000_000)) * time.Second)
			items = append(items, at.Format(time.RFC3339)+"/"+to.Format(time.RFC3339))
			rules = append(rules, func(t time.Time) bool { return !t.Before(at) && t.Before(to) })
		}
	}
	return items, func(t time.Time) bool {
		return slices.ContainsFunc(rules, func(rule func(time.Time) bool) bool { return rule(t) })
	}
}

// randomPlan returns a plan and, by a walk, all its occurrences in a range, and which of
// them are excluded.
func randomPlan(t *testing.T, r *rand.Rand) (p Plan, first, end int64, all []int64, excluded map[int64]bool) {
	for {
		o := randomOracle(r, true)
		c, err := ParseCron(o.text)
		if err != nil {
			continue
		}
		w := o.walk(r.Int64N(4e9)-1e9, 200)
		if n := len(w.days) * len(w.seconds); n == 0 || n > 5000 {
			continue
		}
		p = Always(c)
		p.Offset = r.Int64N([]int64{1, 300, 40 * secondsPerDay}[r.IntN(3)])
		if r.IntN(2) == 0 {
			p.From = w.first + r.Int64N(w.end-w.first)
		}
		if r.IntN(2) == 0 {
			p.To = w.first + r.Int64N(w.end-w.first)
		}
		var rules []func(time.Time) bool
		var calendars []*Calendar
		for range r.IntN(3) {
			items, holds := randomItems(r, w.first, w.end)
			if c, err := NewCalendar(fmt.Sprint("c", len(calendars)), 1, items); err == nil {
				calendars, rules = append(calendars, c), append(rules, holds)
			}
		}
		p.Except = Exclude(calendars)
		excluded = map[int64]bool{}
		for i := range int64(len(w.days) * len(w.seconds)) {
			at, _ := w.at(i)
			at += p.Offset
			if at < p.From || at > p.To {
				continue
			}
			all = append(all, at)
			excluded[at] = slices.ContainsFunc(rules, func(holds func(time.Time) bool) bool { return holds(time.Unix(at, 0).UTC()) })
		}
		return p, w.first + p.Offset, w.end + p.Offset, all, excluded
	}
}

// TestRandomPlansAgainstAWalk compares everything that a plan says with a walk.
func TestRandomPlansAgainstAWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(20261130, 1))
	for range 2000 {
		p, first, end, all, excluded := randomPlan(t, r)
		runs := slices.DeleteFunc(slices.Clone(all), func(at int64) bool { return excluded[at] })
		upTo := func(list []int64, at int64) int {
			n, found := slices.BinarySearch(list, at)
			if found {
				n++
			}
			return n
		}
		for range 20 {
			a, b := first+r.Int64N(end-first), first+r.Int64N(end-first)
			a, b = min(a, b), max(a, b)
			says := fmt.Sprintf("%s, offset %d, %s to %s, except %s, between %s and %s", p.Recurrence, p.Offset, rfc3339(p.From), rfc3339(p.To), p.Except, rfc3339(a), rfc3339(b))
			if n := upTo(all, a); n < len(all) {
				if got, ok := p.Next(a); !ok || got != all[n] {
					t.Fatalf("%s: Next is %s, %v, want %s", says, rfc3339(got), ok, rfc3339(all[n]))
				}
			}
			if n := upTo(all, a-1); n > 0 {
				if got, ok := p.Prev(a); !ok || got != all[n-1] {
					t.Fatalf("%s: Prev is %s, %v, want %s", says, rfc3339(got), ok, rfc3339(all[n-1]))
				}
			}
			if want, got := upTo(all, b)-upTo(all, a), p.Count(a, b); got != int64(want) {
				t.Fatalf("%s: Count is %d, want %d", says, got, want)
			}
			if got, want := slices.Collect(p.Between(a, b)), all[upTo(all, a):upTo(all, b)]; !slices.Equal(got, want) {
				t.Fatalf("%s: Between has %d, want %d", says, len(got), len(want))
			}
			wantRuns := runs[upTo(runs, a):upTo(runs, b)]
			if got := p.CountRuns(a, b); got != int64(len(wantRuns)) {
				t.Fatalf("%s: CountRuns is %d, want %d", says, got, len(wantRuns))
			}
			next, ok := p.NextRun(a, b)
			if ok != (len(wantRuns) > 0) || ok && next != wantRuns[0] {
				t.Fatalf("%s: NextRun is %s, %v, want the first of %d", says, rfc3339(next), ok, len(wantRuns))
			}
			if n := len(wantRuns); n > 0 {
				last, ok := p.NthRun(a, int64(n))
				if !ok || last != wantRuns[n-1] {
					t.Fatalf("%s: NthRun(%d) is %s, %v, want %s", says, n, rfc3339(last), ok, rfc3339(wantRuns[n-1]))
				}
				if prev, ok := p.PrevRun(b + 1); !ok || prev != wantRuns[n-1] {
					t.Fatalf("%s: PrevRun is %s, %v, want %s", says, rfc3339(prev), ok, rfc3339(wantRuns[n-1]))
				}
			}
			for _, at := range all[upTo(all, a):upTo(all, b)] {
				if (p.Except.By(at) != nil) != excluded[at] {
					t.Fatalf("%s: %s is excluded by %v, want %v", says, rfc3339(at), p.Except.By(at), excluded[at])
				}
			}
		}
	}
}

// A plan without an end in reach still answers at the ends of time.
func TestPlansAtTheEndsOfTime(t *testing.T) {
	p := Always(mustParse(t, "* * * * * *"))
	p.Offset = 300
	if at, ok := p.Next(MaxSecond); ok {
		t.Errorf("after the last second comes %d", at)
	}
	if at, ok := p.Next(MaxSecond - 1); !ok || at != MaxSecond {
		t.Errorf("the last second is %d, %v", at, ok)
	}
	if at, ok := p.Prev(MinSecond); ok {
		t.Errorf("before the first second comes %d", at)
	}
	if at, ok := p.Prev(1 << 62); !ok || at != MaxSecond {
		t.Errorf("the last second is %d, %v", at, ok)
	}
	if n := p.Count(-1<<62, 1<<62); n != MaxSecond-MinSecond+1-300 {
		t.Errorf("there are %d seconds", n)
	}
	if at, ok := p.NthRun(MaxSecond-2, 3); ok {
		t.Errorf("the third of two is %d", at)
	}
	for _, n := range []int64{0, -1, 1 << 62} {
		if at, ok := mustParse(t, "* * * * * *").Nth(0, n); ok {
			t.Errorf("the %dth is %d", n, at)
		}
	}
	if at, ok := mustParse(t, "0 0 29 2 *").Nth(MinSecond, 2424); !ok || rfc3339(at) != "9996-02-29T00:00:00Z" {
		t.Errorf("the last leap day is %s, %v", rfc3339(at), ok)
	}
	if at, ok := mustParse(t, "0 0 29 2 *").Nth(MinSecond, 2425); ok {
		t.Errorf("one more leap day is %s", rfc3339(at))
	}
}

// What never fires is found out soon: the search for a run among a century of excluded
// days ends.
func TestWhatIsAlwaysExcluded(t *testing.T) {
	p := Always(mustParse(t, "* * * * * 1-3"))
	p.Except = Exclude([]*Calendar{calendar(t, "MON", "TUE"), calendar(t, "WED", "THU")})
	if at, ok := p.NextRun(0, 36525*secondsPerDay); ok {
		t.Errorf("it runs at %s", rfc3339(at))
	}
	if n := p.CountRuns(0, 36525*secondsPerDay); n != 0 {
		t.Errorf("it runs %d times", n)
	}
	if at, ok := p.NthRun(0, 1); ok {
		t.Errorf("it runs first at %s", rfc3339(at))
	}
	if at, ok := p.PrevRun(36525 * secondsPerDay); ok {
		t.Errorf("it ran at %s", rfc3339(at))
	}
}

func TestSpreadOffsets(t *testing.T) {
	places := map[time.Duration]int{}
	for i := range 60_000 {
		d := SpreadOffset(time.Minute, fmt.Sprint("default/job-", i))
		if d < 0 || d >= time.Minute || d%time.Second != 0 {
			t.Fatalf("job %d is moved by %v", i, d)
		}
		places[d]++
	}
	for d, n := range places {
		if n < 800 || n > 1200 {
			t.Errorf("%d of 60,000 jobs are moved by %v", n, d)
		}
	}
	// Stored jobs keep their offset, but a preview computes it: it must never change.
	if d := SpreadOffset(time.Hour, "default/nightly"); d != 28*time.Minute+31*time.Second {
		t.Errorf("default/nightly is moved by %v", d)
	}
	for d, good := range map[time.Duration]bool{0: false, time.Second: false, MinSpread: true, 1500 * time.Millisecond: false, MaxSpread: true, MaxSpread + time.Second: false, -time.Minute: false} {
		if err := CheckSpread(d); (err == nil) != good {
			t.Errorf("a spread of %v: %v", d, err)
		}
	}
}

func TestErrorsPointAtTheToken(t *testing.T) {
	for expr, want := range map[string]string{
		"0 24 * * *":       "  ^^",
		"0 0 1,32,5 * *":   "      ^^",
		"  60 * * * *":     "  ^^",
		"0\t0 * * mon-fry": " \t      ^^^^^^^",
		"*/0 * * * *":      "^^^",
		"1,,2 * * * *":     "^^^^",
		"0 0 * * *x":       "        ^^",
		"TZ=UTC * * * * *": "^^^^^^",
		"0 0 * * é":        "        ^",
		"@Daily":           "^^^^^^",
		"0 0 * * \xff":     "        ^",
		"\xff":             "^",
		"* * * *":          "",
		"0 0 30 2 *":       "",
	} {
		_, err := ParseCron(expr)
		var refusal *Error
		if !errors.As(err, &refusal) {
			t.Errorf("%q: %v", expr, err)
			continue
		}
		if want != "" {
			want = expr + "\n" + want
		}
		if got := refusal.Pointer(); got != want {
			t.Errorf("%q is marked\n%s\nwant\n%s", expr, got, want)
		}
	}
	_, err := ParseCron("0 0 1,32 * *")
	if got, want := fmt.Sprint(err), `schedule "0 0 1,32 * *": day of month "32" at character 7: 32 is out of range; allowed: 1-31`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Whatever an item is, it is refused by a CalendarError or has a canonical form that means
// the same.
func FuzzNewCalendar(f *testing.F) {
	for _, items := range []string{"SAT,SUN", "12-25", "2026-12-24/2027-01-01", "2026-12-24T18:00:00Z/2026-12-25T06:00:00+02:00", "02-29,0001-01-01,9999-12-31", "2026-12-24,2026-12-25,,x"} {
		f.Add(items)
	}
	f.Fuzz(func(t *testing.T, text string) {
		items := strings.Split(text, ",")
		c, err := NewCalendar("c", 1, items)
		var refused *CalendarError
		if err != nil {
			if errors.As(err, &refused) && (refused.Index >= len(items) || refused.Item != items[refused.Index]) {
				t.Fatalf("%q: %+v", text, refused)
			}
			return
		}
		again, err := ParseExclusions(Exclude([]*Calendar{c}).String())
		if err != nil || !slices.Equal(again.Calendars()[0].Items(), c.Items()) {
			t.Fatalf("%q became %v, which becomes %v, %v", text, c.Items(), again, err)
		}
		for _, at := range []int64{MinSecond, -1, 0, 1_785_000_000, MaxSecond} {
			holds, until := c.at(at)
			if until <= at {
				t.Fatalf("%q: at %d it knows until %d", text, at, until)
			}
			if last, _ := c.at(until - 1); last != holds {
				t.Fatalf("%q: at %d it is %v until %d, and %v just before", text, at, holds, until, last)
			}
		}
	})
}
