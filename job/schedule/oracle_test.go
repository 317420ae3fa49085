package schedule

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// The oracle of the property tests: random expressions that come with their
// meaning, as predicates on time.Time, made beside the text and not by parsing
// it. Fire times are found by walking days.

type dayMatcher func(day time.Time) bool

type oracle struct {
	text                 string
	plain                bool // no extension and no star but a bare one: what the public parsers read alike
	second, minute, hour [60]bool
	month                [13]bool
	dom, dow             dayMatcher
	both                 bool // both day fields must match
}

func (o *oracle) matchesDay(day time.Time) bool {
	if !o.month[day.Month()] {
		return false
	}
	if o.both {
		return o.dom(day) && o.dow(day)
	}
	return o.dom(day) || o.dow(day)
}

// seconds lists the fire times of a day, in seconds of that day.
func (o *oracle) seconds() (all []int64) {
	for h := range 24 {
		for m := range 60 {
			if !o.hour[h] || !o.minute[m] {
				continue
			}
			for s := range 60 {
				if o.second[s] {
					all = append(all, int64(h*3600+m*60+s))
				}
			}
		}
	}
	return all
}

// next walks up to days days from after.
func (o *oracle) next(after int64, days int) (int64, bool) {
	day := time.Unix(after, 0).UTC().Truncate(24 * time.Hour)
	times := o.seconds()
	for range days {
		if o.matchesDay(day) {
			for _, s := range times {
				if t := day.Unix() + s; t > after && t <= MaxSecond {
					return t, true
				}
			}
		}
		day = day.AddDate(0, 0, 1)
	}
	return 0, false
}

// prev walks up to days days back from before.
func (o *oracle) prev(before int64, days int) (int64, bool) {
	day := time.Unix(before, 0).UTC().Truncate(24 * time.Hour)
	times := o.seconds()
	for range days {
		if o.matchesDay(day) {
			for i := len(times) - 1; i >= 0; i-- {
				if t := day.Unix() + times[i]; t < before && t >= MinSecond {
					return t, true
				}
			}
		}
		day = day.AddDate(0, 0, -1)
	}
	return 0, false
}

// item is a list member: its text and the values it names.
type item struct {
	text   string
	values []int
	plain  bool
}

func randomItem(r *rand.Rand, lo, hi int, name func(int) string) item {
	a, b := lo+r.IntN(hi-lo+1), lo+r.IntN(hi-lo+1)
	a, b = min(a, b), max(a, b)
	step := 1 + r.IntN(hi)
	switch r.IntN(6) {
	case 0:
		return item{fmt.Sprintf("*/%d", step), upTo(lo, hi, step), false}
	case 1:
		return item{fmt.Sprintf("%d-%d/%d", a, b, step), upTo(a, b, step), step <= b-a}
	case 2:
		return item{fmt.Sprintf("%d-%d", a, b), upTo(a, b, 1), true}
	case 3:
		return item{name(a), []int{a}, true}
	default:
		return item{fmt.Sprintf("%0*d", 1+r.IntN(2), a), []int{a}, true}
	}
}

func upTo(a, b, step int) (values []int) {
	for v := a; v <= b; v += step {
		values = append(values, v)
	}
	return values
}

// randomList returns the text of a field and its values; a bare * now and then.
func randomList(r *rand.Rand, lo, hi int, name func(int) string, star float64) (text string, values []int, plain bool) {
	if r.Float64() < star {
		return "*", upTo(lo, hi, 1), true
	}
	plain = true
	var texts []string
	for range 1 + r.IntN(3) {
		it := randomItem(r, lo, hi, name)
		texts = append(texts, it.text)
		values = append(values, it.values...)
		plain = plain && it.plain
	}
	return strings.Join(texts, ","), values, plain
}

func mark(set []bool, values []int) {
	for _, v := range values {
		set[v] = true
	}
}

func digits(v int) string { return fmt.Sprint(v) }

func caseOf(r *rand.Rand, s string) string {
	return []string{s, strings.ToUpper(s), strings.ToLower(s)}[r.IntN(3)]
}

// randomOracle returns an expression with its meaning. With extensions, it may
// have seconds, L, W, # and ?.
func randomOracle(r *rand.Rand, extensions bool) *oracle {
	o := &oracle{plain: true}
	var fields []string
	add := func(text string, plain bool) {
		fields = append(fields, text)
		o.plain = o.plain && plain
	}
	o.second[0] = true
	if extensions && r.IntN(3) == 0 {
		text, values, _ := randomList(r, 0, 59, digits, 0.1)
		o.second = [60]bool{}
		mark(o.second[:], values)
		add(text, false)
	}
	text, values, _ := randomList(r, 0, 59, digits, 0.2)
	mark(o.minute[:], values)
	add(text, true)
	text, values, _ = randomList(r, 0, 23, digits, 0.3)
	mark(o.hour[:], values)
	add(text, true)

	domText, domPlain := o.randomDom(r, extensions)
	add(domText, domPlain)
	text, values, _ = randomList(r, 1, 12, func(v int) string { return caseOf(r, time.Month(v).String()[:3]) }, 0.5)
	mark(o.month[:], values)
	add(text, true)
	dowText, dowPlain := o.randomDow(r, extensions)
	add(dowText, dowPlain)
	o.both = strings.ContainsAny(domText[:1], "*?") || strings.ContainsAny(dowText[:1], "*?")
	o.text = strings.Join(fields, []string{" ", "  ", "\t"}[r.IntN(3)])
	return o
}

func (o *oracle) randomDom(r *rand.Rand, extensions bool) (text string, plain bool) {
	if extensions && r.IntN(2) == 0 {
		text, o.dom = specialDom(r)
		return text, false
	}
	text, values, plain := randomList(r, 1, 31, digits, 0.4)
	var set [32]bool
	mark(set[:], values)
	o.dom = func(day time.Time) bool { return set[day.Day()] }
	return text, plain
}

func (o *oracle) randomDow(r *rand.Rand, extensions bool) (text string, plain bool) {
	if extensions && r.IntN(2) == 0 {
		text, o.dow = specialDow(r)
		return text, false
	}
	text, values, plain := randomList(r, 0, 7, func(v int) string { return caseOf(r, time.Weekday(v % 7).String()[:3]) }, 0.4)
	var set [8]bool
	mark(set[:], values)
	o.dow = func(day time.Time) bool { return set[day.Weekday()] || day.Weekday() == time.Sunday && set[7] }
	return text, plain
}

func lastDay(day time.Time) int {
	return time.Date(day.Year(), day.Month()+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

func always(time.Time) bool { return true }

func specialDom(r *rand.Rand) (string, dayMatcher) {
	n := 1 + r.IntN(30)
	switch r.IntN(6) {
	case 0:
		return "?", always
	case 1:
		return "L", func(day time.Time) bool { return day.Day() == lastDay(day) }
	case 2:
		return fmt.Sprintf("L-%d", n), func(day time.Time) bool { return day.Day() == lastDay(day)-n }
	case 3:
		return "LW", func(day time.Time) bool { return day.Day() == nearestByWalk(day, lastDay(day)) }
	case 4:
		return fmt.Sprintf("%dW", n+1), func(day time.Time) bool {
			return n+1 <= lastDay(day) && day.Day() == nearestByWalk(day, n+1)
		}
	default:
		return fmt.Sprintf("%d,L", n), func(day time.Time) bool { return day.Day() == n || day.Day() == lastDay(day) }
	}
}

// nearestByWalk measures the distance of every Monday to Friday of the month
// from day n.
func nearestByWalk(in time.Time, n int) (best int) {
	distance := func(d int) int { return max(d-n, n-d) }
	for d := 1; d <= lastDay(in); d++ {
		wd := time.Date(in.Year(), in.Month(), d, 0, 0, 0, 0, time.UTC).Weekday()
		if wd == time.Saturday || wd == time.Sunday {
			continue
		}
		if best == 0 || distance(d) < distance(best) {
			best = d
		}
	}
	return best
}

func specialDow(r *rand.Rand) (string, dayMatcher) {
	w, n := r.IntN(8), 1+r.IntN(5)
	weekday := time.Weekday(w % 7)
	switch r.IntN(4) {
	case 0:
		return "?", always
	case 1:
		return fmt.Sprintf("%dL", w), func(day time.Time) bool {
			return day.Weekday() == weekday && day.AddDate(0, 0, 7).Month() != day.Month()
		}
	case 2:
		return fmt.Sprintf("%s#%d", caseOf(r, weekday.String()[:3]), n), isNth(weekday, n)
	default:
		other := isNth(time.Wednesday, 2)
		return fmt.Sprintf("%d,3#2", w), func(day time.Time) bool { return day.Weekday() == weekday || other(day) }
	}
}

// isNth counts how many weeks back the month still is the same.
func isNth(weekday time.Weekday, n int) dayMatcher {
	return func(day time.Time) bool {
		if day.Weekday() != weekday {
			return false
		}
		count := 1
		for back := day.AddDate(0, 0, -7); back.Month() == day.Month(); back = back.AddDate(0, 0, -7) {
			count++
		}
		return count == n
	}
}
