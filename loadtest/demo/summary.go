package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// summary prints what happened, and the verdict.
func (d *demo) summary() {
	var b strings.Builder
	states := map[string]int{}
	for _, r := range d.books.records {
		states[stateWord(r.slot.GetState())]++
	}
	onTime, made := d.latenesses()
	fmt.Fprintf(&b, "\nSummary\n")
	fmt.Fprintf(&b, "  jobs acknowledged      %d\n", len(d.jobs))
	fmt.Fprintf(&b, "  slots                  %d: %s\n", len(d.books.records), counts(states))
	fmt.Fprintf(&b, "  create → handler       p50 %s, p99 %s (%d immediate jobs)\n", short(sorted(d.latencies, 50)), short(sorted(d.latencies, 99)), len(d.latencies))
	fmt.Fprintf(&b, "  lateness, live         p50 %s, max %s (%d scheduled slots)\n", short(sorted(onTime, 50)), short(sorted(onTime, 100)), len(onTime))
	fmt.Fprintf(&b, "  the server was dead    %s; %d slots backfilled, lateness p50 %s, max %s\n",
		short(d.outage.to.Sub(d.outage.from)), len(made), short(sorted(made, 50)), short(sorted(made, 100)))
	d.daily(&b)
	d.verdict(&b)
	d.screen.print(b.String())
}

// latenesses are those of the slots fired on time, and of those made up for.
func (d *demo) latenesses() (onTime, made []time.Duration) {
	for _, r := range d.books.records {
		late, ok := r.lateness()
		if !ok {
			continue
		}
		switch r.slot.GetTrigger() {
		case carillonv1.SlotTrigger_SLOT_TRIGGER_SCHEDULE:
			onTime = append(onTime, late)
		case carillonv1.SlotTrigger_SLOT_TRIGGER_BACKFILL:
			made = append(made, late)
		}
	}
	return onTime, made
}

func (d *demo) daily(b *strings.Builder) {
	for _, j := range d.jobs {
		if j.rule.every == day {
			fmt.Fprintf(b, "  %-22s %s, next at %s\n", j.id, dailySchedule, j.nextFire.Format("2006-01-02 15:04:05 UTC"))
		}
	}
}

func (d *demo) verdict(b *strings.Builder) {
	if len(d.wrong) == 0 {
		fmt.Fprintf(b, "  %s each expected occurrence has exactly one slot, and each slot ended as it should.\n", d.screen.paint(escGreen, "PASS"))
		return
	}
	fmt.Fprintf(b, "  %s what does not hold (%d):\n", d.screen.paint(escRed, "FAIL"), len(d.wrong))
	for _, text := range d.wrong {
		fmt.Fprintf(b, "    %s\n", text)
	}
}

// counts prints numbers by word, in the order of the words.
func counts(n map[string]int) string {
	var parts []string
	for word, k := range n {
		parts = append(parts, fmt.Sprintf("%s %d", word, k))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

// sorted is the percentile of values in any order.
func sorted(values []time.Duration, p int) time.Duration {
	s := slices.Clone(values)
	slices.Sort(s)
	return percentile(s, p)
}
