package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"
)

// tally sums up a batch: with what was played before, if its results are in a file.
type tally struct {
	began    time.Time
	asked    int // seeds that are still to be played when it begins
	done     int // of these
	played   map[uint64]bool
	failed   []result
	coverage map[string]int
}

func newTally() *tally {
	return &tally{began: time.Now(), played: map[uint64]bool{}, coverage: map[string]int{}}
}

func (t *tally) add(r *result) {
	t.done++
	t.note(r)
	t.cover(r.Coverage)
}

func (t *tally) note(r *result) {
	t.played[r.Seed] = true
	if len(r.Wrong) > 0 {
		t.failed = append(t.failed, *r)
		slices.SortFunc(t.failed, func(a, b result) int { return int(int64(a.Seed) - int64(b.Seed)) })
	}
}

func (t *tally) cover(counts map[string]int) {
	for what, n := range counts {
		t.coverage[what] += n
	}
}

// progress says where it stands.
func (t *tally) progress() string {
	took := time.Since(t.began)
	rate := float64(t.done) / took.Seconds()
	text := fmt.Sprintf("%d of %d seeds, %d failed, %.1f seeds/s", t.done, t.asked, len(t.failed), rate)
	if left := t.asked - t.done; left > 0 && t.done > 0 {
		return text + fmt.Sprintf(", %s left", (time.Duration(float64(left)/rate)*time.Second).Round(time.Second))
	}
	return text + fmt.Sprintf(", took %s", took.Round(time.Second))
}

// resultsFile is a file with a line for each seed that was played, and lines with the coverage of all those
// since the last such line. Lines are added together, so that a run which is ended at any time
// goes on with what there is.
type resultsFile struct {
	file    *os.File // nil: nobody wants results
	pending []result
}

// pendingSeeds is how many seeds are played anew at most after a crash of the program.
const pendingSeeds = 50

// covered is a line with the coverage of some seeds.
type coveredLine struct {
	Seeds    int
	Coverage map[string]int
}

// openResults reads a file of results, which need not be there; "" is none.
func openResults(name string) (*resultsFile, *tally, error) {
	t := newTally()
	if name == "" {
		return &resultsFile{}, t, nil
	}
	text, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	whole := text[:bytes.LastIndexByte(text, '\n')+1] // the last line may not have been written to its end
	for n, line := range bytes.Split(bytes.TrimSpace(whole), []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		if err := t.read(line); err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", name, n+1, err)
		}
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, err
	}
	if err := f.Truncate(int64(len(whole))); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	if _, err := f.Seek(int64(len(whole)), 0); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return &resultsFile{file: f}, t, nil
}

// read takes a line of a file of results.
func (t *tally) read(line []byte) error {
	var of struct {
		result
		Seeds int
	}
	if err := json.Unmarshal(line, &of); err != nil {
		return err
	}
	if of.Seeds == 0 {
		t.note(&of.result)
	}
	t.cover(of.Coverage)
	return nil
}

func (f *resultsFile) add(r result) error {
	if f.file == nil {
		return nil
	}
	f.pending = append(f.pending, r)
	if len(f.pending) < pendingSeeds {
		return nil
	}
	return f.flush()
}

// flush writes what is pending.
func (f *resultsFile) flush() error {
	if len(f.pending) == 0 {
		return nil
	}
	var text bytes.Buffer
	lines := json.NewEncoder(&text)
	sum := newTally()
	for _, r := range f.pending {
		sum.cover(r.Coverage)
		r.Coverage = nil
		if err := lines.Encode(r); err != nil {
			return err
		}
	}
	if err := lines.Encode(coveredLine{len(f.pending), sum.coverage}); err != nil {
		return err
	}
	f.pending = nil
	_, err := f.file.Write(text.Bytes())
	return err
}

func (f *resultsFile) close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
