package checker

import (
	"bufio"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
)

// byProduct yields what the product's own reader finds.
func byProduct(r schedule.Recurrence, after, until job.Instant) iter.Seq[job.Instant] {
	return func(yield func(job.Instant) bool) {
		for sec, ok := r.Next(after.Seconds()); ok && job.AtSecond(sec) <= until; sec, ok = r.Next(sec) {
			if !yield(job.AtSecond(sec)) {
				return
			}
		}
	}
}

// first collects at most n fire times.
func first(n int, times iter.Seq[job.Instant]) (out []string) {
	for at := range times {
		if len(out) == n {
			break
		}
		out = append(out, at.Time().Format(time.RFC3339))
	}
	return out
}

func TestTheVectorsOfTheProduct(t *testing.T) {
	f, err := os.Open("../../job/schedule/testdata/cron_vectors.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unescape := strings.NewReplacer(`\t`, "\t", `\n`, "\n", `\u00a0`, "\u00a0", "<EMPTY>", "")
	checked := 0
	for scan := bufio.NewScanner(f); scan.Scan(); {
		if strings.HasPrefix(scan.Text(), "##") {
			continue
		}
		columns := strings.Split(scan.Text(), "\t")
		checkVector(t, unescape.Replace(columns[0]), columns[1], columns[2])
		checked++
	}
	if checked < 150 {
		t.Errorf("only %d vectors", checked)
	}
}

func checkVector(t *testing.T, expr, from, want string) {
	t.Helper()
	c, err := parseCron(expr)
	if want == "ERROR" || err != nil {
		if (want == "ERROR") != (err != nil) {
			t.Errorf("%q: %v, want %s", expr, err, want)
		}
		return
	}
	at, err := time.Parse(time.RFC3339, from)
	if err != nil {
		t.Fatal(err)
	}
	after, until := job.At(at), min(job.At(at.AddDate(40, 0, 0)), job.MaxInstant)
	got := append(first(3, c.within(after, until)), "NONE", "NONE", "NONE")[:3]
	if want == "NEVER" {
		want = "NONE,NONE,NONE"
	}
	if diff := cmp.Diff(strings.Split(want, ","), got); diff != "" {
		t.Errorf("%q from %s (-want +got):\n%s", expr, from, diff)
	}
}

// Many random expressions, over many dense or wide ranges, read by both readers.
func TestBothReadersAgreeOnRandomExpressions(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	read := 0
	for range 1500 {
		expr := randomExpression(rnd)
		r, refused := schedule.ParseCron(expr)
		c, err := parseCron(expr)
		if refused != nil && strings.Contains(refused.Error(), "never fires") {
			continue
		}
		if (refused != nil) != (err != nil) {
			t.Errorf("%q: the product says %v, the checker %v", expr, refused, err)
			continue
		}
		if err != nil {
			continue
		}
		read++
		after := job.At(time.Date(1999+rnd.IntN(200), 1, rnd.IntN(366), rnd.IntN(24), rnd.IntN(60), rnd.IntN(60), rnd.IntN(2)*1000, time.UTC))
		span := []time.Duration{time.Hour, 26 * time.Hour, 40 * 24 * time.Hour, 800 * 24 * time.Hour}[rnd.IntN(4)]
		compare(t, expr, c, r, after, after.Add(span))
	}
	if read < 1000 {
		t.Errorf("only %d expressions could be read", read)
	}
}

// compare holds the first fire times of a range against each other, and what each
// second around them is.
func compare(t *testing.T, what string, c recurrence, r schedule.Recurrence, after, until job.Instant) {
	t.Helper()
	got, want := first(500, c.within(after, until)), first(500, byProduct(r, after, until))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%q after %s until %s (-product +checker):\n%s", what, after, until, diff)
	}
	for i := range 20 {
		at := job.AtSecond(after.Seconds() + int64(i))
		next, ok := r.Next(at.Seconds() - 1)
		if fires := ok && next == at.Seconds(); c.has(at) != fires || c.has(at+1) {
			t.Errorf("%q: at %s the product says %v, the checker %v", what, at, fires, !fires)
		}
	}
	for at := range c.within(after, until) {
		if !c.has(at) {
			t.Errorf("%q has not its own fire time %s", what, at)
		}
		break
	}
}

func randomExpression(rnd *rand.Rand) string {
	if rnd.IntN(50) == 0 {
		return slices.Sorted(maps.Keys(macros))[rnd.IntN(len(macros))]
	}
	fields := []string{randomField(rnd, 0, 59, nil), randomField(rnd, 0, 23, nil),
		randomField(rnd, 1, 31, func() string {
			return []string{"?", "L", "LW", fmt.Sprintf("L-%d", rnd.IntN(32)), fmt.Sprintf("%dW", rnd.IntN(33))}[rnd.IntN(5)]
		}),
		randomField(rnd, 1, 12, func() string { return mixCase(rnd, time.Month(1 + rnd.IntN(12)).String()[:3]) }),
		randomField(rnd, 0, 7, func() string {
			day := mixCase(rnd, time.Weekday(rnd.IntN(7)).String()[:3])
			return []string{"?", day, day + "L", fmt.Sprintf("%dL", rnd.IntN(8)), fmt.Sprintf("%s#%d", day, rnd.IntN(7)), "MON-" + day}[rnd.IntN(6)]
		})}
	if rnd.IntN(2) == 0 {
		fields = append([]string{randomField(rnd, 0, 59, nil)}, fields...)
	}
	return strings.Join(fields, []string{" ", "  ", "\t"}[rnd.IntN(3)])
}

// randomField makes a list; now and then one that is to be refused.
func randomField(rnd *rand.Rand, low, high int, special func() string) string {
	if rnd.IntN(3) == 0 {
		return "*"
	}
	var items []string
	for range 1 + rnd.IntN(3) {
		a, b := low+rnd.IntN(high-low+1), low+rnd.IntN(high-low+1)
		switch n := rnd.IntN(200); {
		case n == 0:
			items = append(items, fmt.Sprintf("%d-%d/%d", a, b, rnd.IntN(3)))
		case n == 1:
			items = append(items, fmt.Sprintf("%d/2", high+rnd.IntN(2)))
		case n < 60 && special != nil:
			items = append(items, special())
		case n < 90:
			items = append(items, fmt.Sprintf("*/%d", 1+rnd.IntN(high+5)))
		case n < 130:
			items = append(items, fmt.Sprintf("%02d-%d", min(a, b), max(a, b)))
		case n < 150:
			items = append(items, fmt.Sprintf("%d-%d/%d", min(a, b), max(a, b), 1+rnd.IntN(high)))
		default:
			items = append(items, fmt.Sprintf("%0*d", 1+rnd.IntN(3), a))
		}
		if items[0] == "?" {
			return "?"
		}
	}
	return strings.Join(items, ",")
}

func mixCase(rnd *rand.Rand, s string) string {
	return []string{s, strings.ToUpper(s), strings.ToLower(s)}[rnd.IntN(3)]
}

func TestBothReadersAgreeOnRandomIntervals(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		every := time.Duration(1+rnd.IntN(1+rnd.IntN(200_000))) * time.Second
		anchor := job.AtSecond(rnd.Int64N(4e9) - 1e9)
		r, err := schedule.NewInterval(every, anchor.Seconds())
		if err != nil {
			t.Fatal(err)
		}
		c, err := recurrenceOf(job.Schedule{Kind: job.KindInterval, Every: every, Anchor: anchor})
		if err != nil {
			t.Fatal(err)
		}
		after := job.AtSecond(rnd.Int64N(4e9)-1e9) + job.Instant(rnd.IntN(2))
		compare(t, fmt.Sprintf("every %s from %s", every, anchor), c, r, after, after.Add(time.Duration(rnd.IntN(1e6))*time.Second))
	}
}

func TestSchedulesThatCannotBeRead(t *testing.T) {
	for _, s := range []job.Schedule{{Kind: job.KindImmediate}, {Kind: job.KindOnce}, {Kind: job.KindInterval}, {Kind: job.KindCron, Cron: "* * *"}} {
		if c, err := recurrenceOf(s); err == nil {
			t.Errorf("%+v is read as %v", s, c)
		}
	}
}

// A few days of a job of every second are read in an instant.
func BenchmarkThreeDaysOfSeconds(b *testing.B) {
	for b.Loop() {
		c, err := parseCron("* * * * * *")
		if err != nil {
			b.Fatal(err)
		}
		n, from := 0, job.At(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC))
		for range c.within(from, from.Add(72*time.Hour)) {
			n++
		}
		if n != 72*3600 {
			b.Fatalf("%d fire times", n)
		}
	}
}

// The checker reads bounds, spreads and calendars as the product does.
func TestPlansAgainstTheProduct(t *testing.T) {
	rnd := rand.New(rand.NewPCG(31, 1))
	begin := job.At(time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC))
	items := []string{"SAT", "SUN", "12-25", "12-24", "2026-12-05/2026-12-08", "2026-12-10", "2026-12-01T06:00:00Z/2026-12-03T18:30:00Z"}
	fired := 0
	for range 500 {
		hours := func(most int) time.Duration { return time.Duration(rnd.IntN(most)) * time.Hour }
		s := job.Schedule{Kind: job.KindCron, Cron: []string{"0 * * * *", "30 */7 * * *", "0 12 * * 1-5"}[rnd.IntN(3)], Dialect: schedule.DialectVersion, Offset: time.Duration(rnd.IntN(5000)) * time.Second}
		if rnd.IntN(2) == 0 {
			s.Start = begin.Add(hours(400))
		}
		if rnd.IntN(2) == 0 {
			s.End = begin.Add(hours(800))
		}
		s.MaxOccurrences = int32(rnd.IntN(2) * rnd.IntN(100))
		rnd.Shuffle(len(items), func(i, k int) { items[i], items[k] = items[k], items[i] })
		made, err := schedule.NewCalendar("c", 1, items[:1+rnd.IntN(4)])
		if err != nil {
			t.Fatal(err)
		}
		s.Calendars = schedule.Exclude([]*schedule.Calendar{made}).String()
		j := job.Job{EffectiveFrom: begin.Add(hours(200))}
		if err := s.Count(j.EffectiveFrom.Add(hours(50) - 25*time.Hour)); err != nil {
			t.Fatal(err)
		}
		j.Schedule = s
		theirs, err := j.Plan()
		if err != nil {
			t.Fatal(err)
		}
		ours, err := planOf(&j)
		if err != nil {
			t.Fatal(err)
		}
		until := begin.Add(1000 * time.Hour)
		ours.limit(until)
		var want []job.Instant
		for at := range theirs.Between(j.EffectiveFrom.Seconds(), until.Seconds()) {
			want = append(want, job.AtSecond(at))
			if fires := job.AtSecond(at); !ours.has(fires) || ours.has(fires+job.Second) || ours.excludes(fires) != (theirs.Except.By(at) != nil) {
				t.Fatalf("%+v: they disagree on %s", s, fires)
			}
		}
		fired += len(want)
		if diff := cmp.Diff(want, slices.Collect(ours.within(j.EffectiveFrom, until))); diff != "" {
			t.Fatalf("%+v from %s (-product +checker):\n%s", s, j.EffectiveFrom, diff)
		}
	}
	if fired < 10_000 {
		t.Errorf("only %d occurrences were compared", fired)
	}
}
