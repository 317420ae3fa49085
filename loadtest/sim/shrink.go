package sim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
)

// smaller looks for the fewest steps with which a seed fails in the same way, and shows them.
func (d *driver) smaller(ctx context.Context) error {
	r, _, err := d.play(ctx, task{seed: d.seed, keep: d.keep})
	if err != nil {
		return err
	}
	if len(r.Wrong) == 0 {
		return fmt.Errorf("nothing is wrong with seed %d", d.seed)
	}
	texts := planOf(d.seed)
	all := d.keep
	if all == nil {
		all = make(steps, len(texts))
		for i := range all {
			all[i] = i
		}
	}
	kind := kindOfWrong(r.Wrong[0])
	fmt.Fprintf(d.out, "seed %d, %d steps, %q: %s\n", d.seed, len(all), kind, r.Wrong[0])
	least := shrink(all, d.workers, func(tries []steps) ([]bool, error) { return d.fail(ctx, tries, kind) })
	return d.shown(context.WithoutCancel(ctx), least, texts)
}

// shown prints what is left of a seed, and writes its trace into a file.
func (d *driver) shown(ctx context.Context, least steps, texts []string) error {
	fmt.Fprintf(d.out, "%d steps are left:\n", len(least))
	for _, i := range least {
		fmt.Fprintln(d.out, texts[i])
	}
	r, text, err := d.play(ctx, task{d.seed, least, true, d.log})
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", fmt.Sprintf("sim-seed-%d-*.txt", d.seed))
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	r.Seed, d.keep = d.seed, least
	d.print(&r)
	fmt.Fprintln(d.out, "    its trace:", file.Name())
	return errFailed
}

// fail says which of some plays are wrong in a way.
func (d *driver) fail(ctx context.Context, tries []steps, kind string) ([]bool, error) {
	failed, errs := make([]bool, len(tries)), make([]error, len(tries))
	var under sync.WaitGroup
	for i, keep := range tries {
		under.Go(func() {
			r, _, err := d.play(ctx, task{seed: d.seed, keep: keep})
			failed[i], errs[i] = slices.ContainsFunc(r.Wrong, func(w string) bool { return kindOfWrong(w) == kind }), err
		})
	}
	under.Wait()
	if i := slices.Index(failed, true); i >= 0 {
		fmt.Fprintf(d.out, "%d steps fail, too\n", len(tries[i]))
	}
	return failed, errors.Join(errs...)
}

// shrink takes steps away as long as what is left fails, until none of those that are left can be missed. It
// tries several at a time. If that ends by an error, it returns the fewest that it has found.
func shrink(all steps, width int, fail func([]steps) ([]bool, error)) steps {
	for {
		least, err := shrinkOnce(all, width, fail)
		if err != nil || len(least) == len(all) {
			return least
		}
		all = least
	}
}

// shrinkOnce takes steps away, first many and then few at a time.
func shrinkOnce(least steps, width int, fail func([]steps) ([]bool, error)) (steps, error) {
	for size := (len(least) + 1) / 2; size > 0; size /= 2 {
		for at := 0; at < len(least); {
			var tries []steps
			for i := at; i < len(least) && len(tries) < width; i += size {
				tries = append(tries, append(steps{}, slices.Concat(least[:i], least[min(i+size, len(least)):])...))
			}
			failed, err := fail(tries)
			if err != nil {
				return least, err
			}
			i := slices.Index(failed, true)
			if i < 0 {
				at += len(tries) * size
				continue
			}
			least = tries[i]
			at += i * size // those before are needed
		}
	}
	return least, nil
}

// kindWords is how many words tell what kind of fault a text is about.
const kindWords = 5

// kindOfWrong is what two faults have in common that have one cause, perhaps: the invariant, or else the first
// words without what numbers are in them.
func kindOfWrong(text string) string {
	words := strings.Fields(text)
	if len(words) == 0 {
		return ""
	}
	if first := words[0]; len(first) > 1 && first[0] == 'I' && strings.Trim(first[1:], "0123456789") == "" {
		return first
	}
	for i, w := range words {
		words[i] = strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return -1
			}
			return r
		}, w)
	}
	return strings.Join(words[:min(kindWords, len(words))], " ")
}

// planOf returns the steps of a seed as texts.
func planOf(seed uint64) (texts []string) {
	for i, s := range newWorld(seed, false).plan() {
		texts = append(texts, fmt.Sprintf("%3d  %8.3fs  %s", i, s.at.Seconds(), s.text))
	}
	return texts
}
