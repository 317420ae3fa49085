package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// driver is the program: it has seeds played, and says what came of them.
type driver struct {
	options
	name    string // of the program, as it was called
	out     io.Writer
	play    player
	workers int           // children at a time
	every   time.Duration // between lines on how far it is; zero: as usual
}

// errFailed says that something is wrong that was printed already.
var errFailed = errors.New("failed")

// twiceEvery is how many seeds there are for each that is played twice.
const twiceEvery = 50

// run does what the options say.
func (d *driver) run(ctx context.Context) error {
	switch {
	case d.shrink:
		return d.smaller(ctx)
	case d.runs == 1 && d.results == "":
		return d.one(ctx)
	}
	return d.batch(ctx)
}

// one plays one seed, and prints all that is known of it.
func (d *driver) one(ctx context.Context) error {
	r, text, err := d.checked(ctx, task{d.seed, d.keep, d.trace, d.log})
	if err != nil {
		return err
	}
	fmt.Fprint(d.out, text)
	fmt.Fprintf(d.out, "seed %d: trace %s\n", r.Seed, r.Digest)
	if d.coverage {
		printCoverage(d.out, r.Coverage)
	}
	if len(r.Wrong) == 0 {
		return nil
	}
	d.print(&r)
	return errFailed
}

// print says what is wrong with a seed, and how to look at it.
func (d *driver) print(r *result) {
	fmt.Fprintf(d.out, "seed %d FAILED\n", r.Seed)
	for _, w := range r.Wrong {
		fmt.Fprintln(d.out, "    "+strings.ReplaceAll(w, "\n", "\n    "))
	}
	fmt.Fprintf(d.out, "    play it:   %s\n", d.command(task{seed: r.Seed, keep: d.keep, trace: true}))
	fmt.Fprintf(d.out, "    shrink it: %s -%sshrink\n", d.command(task{seed: r.Seed, keep: d.keep}), prefix)
}

// command is what plays a run.
func (d *driver) command(t task) string {
	return strings.Join(append([]string{d.name}, t.args()...), " ")
}

// checked plays a run, and some seeds twice: both must be the same to the letter.
func (d *driver) checked(ctx context.Context, t task) (r result, text string, err error) {
	r, text, err = d.play(ctx, t)
	if err != nil || t.seed%twiceEvery != 0 || r.Digest == "" {
		return r, text, err
	}
	again, _, err := d.play(ctx, t)
	if err == nil && again.Digest != r.Digest {
		r.Wrong = append(r.Wrong, fmt.Sprintf("two runs of the same seed differ: %s and %s", r.Digest, again.Digest))
		r.Wrong[len(r.Wrong)-1] += d.difference(ctx, t)
	}
	return r, text, err
}

// difference plays a run twice more, and shows where the traces part.
func (d *driver) difference(ctx context.Context, t task) string {
	t.trace = true
	_, a, err := d.play(ctx, t)
	_, b, err2 := d.play(ctx, t)
	if err := errors.Join(err, err2); err != nil {
		return "\nit can't be shown where: " + err.Error()
	}
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return fmt.Sprintf("\nthe first difference is line %d:\n%s\n%s", i+1, as[i], bs[i])
		}
	}
	if len(as) != len(bs) {
		return fmt.Sprintf("\none has %d lines, the other %d", len(as), len(bs))
	}
	return "\nof two more runs the traces were the same"
}

// answer is what came of one run of a batch.
type answer struct {
	result
	err error
}

// batch plays all seeds that were not played before.
func (d *driver) batch(ctx context.Context) error {
	file, t, err := openResults(d.results)
	if err != nil {
		return err
	}
	if len(t.played) > 0 {
		fmt.Fprintf(d.out, "%s: %d seeds were played before, of which %d failed\n", d.results, len(t.played), len(t.failed))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = errors.Join(d.collect(d.start(ctx, t), t, file, cancel), file.close())
	d.report(t)
	if err != nil {
		return err
	}
	return d.verdict(t)
}

// start has workers play. The channel is closed once all have ended.
func (d *driver) start(ctx context.Context, t *tally) <-chan answer {
	var todo []uint64
	for s := d.seed; s < d.seed+uint64(d.runs); s++ {
		if !t.played[s] {
			todo = append(todo, s)
		}
	}
	t.asked = len(todo)
	seeds, answers := make(chan uint64), make(chan answer)
	go func() {
		defer close(seeds)
		for _, s := range todo {
			select {
			case seeds <- s:
			case <-ctx.Done():
				return
			}
		}
	}()
	var workers sync.WaitGroup
	for range d.workers {
		workers.Go(func() {
			for s := range seeds {
				r, _, err := d.checked(ctx, task{seed: s, keep: d.keep})
				answers <- answer{r, err}
			}
		})
	}
	go func() {
		workers.Wait()
		close(answers)
	}()
	return answers
}

// collect takes what comes until all have ended; the first error ends the batch.
func (d *driver) collect(answers <-chan answer, t *tally, file *resultsFile, stop func()) (err error) {
	every := d.every
	if every == 0 {
		every = 5 * time.Second
		if d.runs > 10_000 {
			every = time.Minute
		}
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case a, ok := <-answers:
			switch {
			case !ok:
				return errors.Join(err, file.flush())
			case a.err != nil:
				if err == nil {
					err = a.err
				}
				stop()
				continue
			}
			t.add(&a.result)
			if len(a.Wrong) > 0 {
				first, _, _ := strings.Cut(a.Wrong[0], "\n")
				fmt.Fprintf(d.out, "seed %d FAILED: %s\n", a.Seed, first)
			}
			if failed := file.add(a.result); failed != nil && err == nil {
				err = failed
				stop()
			}
		case <-tick.C:
			fmt.Fprintln(d.out, t.progress())
		}
	}
}

// report prints what is known of the seeds that were played.
func (d *driver) report(t *tally) {
	for i := range t.failed {
		d.print(&t.failed[i])
	}
	fmt.Fprintln(d.out, t.progress())
	if d.coverage {
		printCoverage(d.out, t.coverage)
	}
}

// verdict fails if a seed did, or if a batch that is large enough hasn't seen all that it must.
func (d *driver) verdict(t *tally) error {
	bad := len(t.failed) > 0
	if d.keep == nil {
		for _, what := range unhit(t.coverage, len(t.played)) {
			fmt.Fprintf(d.out, "never happened: %s\n", what)
			bad = true
		}
	}
	if bad {
		return errFailed
	}
	return nil
}
