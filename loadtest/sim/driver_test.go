package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeChild is set for a process that only plays a child, badly.
const fakeChild = "CARILLON_SIM_FAKE_CHILD"

// beFakeChild does what the variable says.
func beFakeChild(how string) {
	switch how {
	case "ends well":
		r := result{Seed: program.seed, Digest: program.keep.String(), lines: []line{{at: time.Second, who: "somebody", text: "does something"}}, Coverage: map[string]int{"a": 2}}
		if r.tell(os.Stdout, program.trace) != nil {
			os.Exit(3)
		}
		fmt.Println("PASS")
	case "panics":
		panic("a fault in a child")
	case "hangs":
		time.Sleep(time.Hour)
	case "takes all memory":
		if limitMyself() != nil {
			os.Exit(3)
		}
		fmt.Println(len(make([]byte, childMemory)))
	case "says nothing":
	case "fails":
		fmt.Println("--- FAIL: this is why")
		os.Exit(1)
	}
}

func fake(t *testing.T, how string) *children {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &children{program: self, env: []string{fakeChild + "=" + how}, limit: 20 * time.Second}
}

func TestAChildTellsItsResult(t *testing.T) {
	r, text, err := fake(t, "ends well").play(t.Context(), task{seed: 7, keep: steps{1, 4}, trace: true})
	if err != nil || r.Seed != 7 || r.Digest != "1,4" || r.Coverage["a"] != 2 || len(r.Wrong) > 0 {
		t.Errorf("got %+v, %v", r, err)
	}
	if !strings.Contains(text, "does something") || strings.Contains(text, "{") || strings.Contains(text, "PASS") {
		t.Errorf("its trace is %q", text)
	}
}

func TestAChildThatEndsBadlyIsAFailedSeed(t *testing.T) {
	for how, want := range map[string]string{"panics": "crashed: panic: a fault in a child", "takes all memory": "out of memory", "says nothing": "crashed", "fails": "this is why"} {
		r, _, err := fake(t, how).play(t.Context(), task{seed: 7})
		if err != nil || r.Seed != 7 || len(r.Wrong) != 1 || !strings.Contains(r.Wrong[0], want) {
			t.Errorf("%s: got %+v, %v", how, r, err)
		}
	}
}

func TestAChildThatHangsIsEnded(t *testing.T) {
	c := fake(t, "hangs")
	c.limit = 500 * time.Millisecond
	r, _, err := c.play(t.Context(), task{seed: 7})
	if err != nil || len(r.Wrong) != 1 || !strings.HasPrefix(r.Wrong[0], "hung") || !strings.Contains(r.Wrong[0], "SIGQUIT") {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestAChildEndsWithItsParentsPatience(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, _, err := fake(t, "hangs").play(ctx, task{seed: 7}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// players is a fake that notes which seeds were played.
type players struct {
	mu     sync.Mutex
	played []uint64
	wrong  map[uint64]string
	unsure uint64 // this seed is never the same
}

func (p *players) play(_ context.Context, t task) (result, string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.played = append(p.played, t.seed)
	r := result{Seed: t.seed, Digest: fmt.Sprint(t.seed), Coverage: map[string]int{"a": 1, fmt.Sprint("seed ", t.seed): 1}}
	if w := p.wrong[t.seed]; w != "" {
		r.Wrong = []string{w}
	}
	text := "same\n"
	if t.seed == p.unsure {
		r.Digest = fmt.Sprint(len(p.played))
		text += r.Digest + "\n"
	}
	return r, text, nil
}

func TestABatchGoesOnWhereItEnded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results.jsonl")
	first := &players{wrong: map[uint64]string{12: "I3 shard 1: is lost"}}
	var out strings.Builder
	d := &driver{options: options{seed: 1, runs: 60, results: file}, name: "sim", out: &out, play: first.play, workers: 3}
	if err := d.run(t.Context()); !errors.Is(err, errFailed) {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "seed 12 FAILED") || !strings.Contains(out.String(), "sim -sim.seed 12 -sim.trace") {
		t.Errorf("it says\n%s", out.String())
	}
	if len(first.played) != 61 { // 50 twice
		t.Errorf("%d were played", len(first.played))
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"Seed":61,"Dig`); err != nil { // the machine went away
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	then := &players{}
	d.runs, d.play, d.coverage = 65, then.play, true
	out.Reset()
	if err := d.run(t.Context()); !errors.Is(err, errFailed) {
		t.Fatal("the seed that failed before is forgotten")
	}
	slices.Sort(then.played)
	if !slices.Equal(then.played, []uint64{61, 62, 63, 64, 65}) {
		t.Errorf("played: %v", then.played)
	}
	for _, want := range []string{"60 seeds were played before, of which 1 failed", "        65  a\n", "seed 12 FAILED"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it doesn't say %q:\n%s", want, out.String())
		}
	}
}

func TestASeedThatIsNeverTheSameFails(t *testing.T) {
	var out strings.Builder
	p := &players{unsure: 100}
	d := &driver{options: options{seed: 99, runs: 3}, name: "sim", out: &out, play: p.play, workers: 2}
	if err := d.run(t.Context()); !errors.Is(err, errFailed) {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "two runs of the same seed differ") || !strings.Contains(out.String(), "the first difference is line 2") {
		t.Errorf("it says\n%s", out.String())
	}
}

func TestABatchEndsWhenItIsTold(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := &players{}
	play := func(ctx context.Context, t task) (result, string, error) {
		if t.seed == 30 {
			cancel()
		}
		if err := ctx.Err(); err != nil {
			return result{}, "", err
		}
		return p.play(ctx, t)
	}
	var out strings.Builder
	d := &driver{options: options{seed: 1, runs: 10_000}, name: "sim", out: &out, play: play, workers: 2}
	if err := d.run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if n := len(p.played); n < 20 || n > 40 {
		t.Errorf("%d were played", n)
	}
}

func TestAMeagreBatchFails(t *testing.T) {
	var out strings.Builder
	d := &driver{options: options{seed: 1, runs: enoughSeeds}, name: "sim", out: &out, play: new(players).play, workers: 2}
	if err := d.run(t.Context()); !errors.Is(err, errFailed) || !strings.Contains(out.String(), "never happened: "+must[0]+"\n") {
		t.Errorf("got %v, and it says\n%s", err, out.String())
	}
}

func TestOnlyFlagsOfTheProgramMakeItOne(t *testing.T) {
	for _, args := range [][]string{{"-v"}, {"-v", "-sim.trace"}} {
		flags := flag.NewFlagSet("test", flag.ContinueOnError)
		flags.Bool("v", false, "")
		var o options
		o.register(flags)
		if err := flags.Parse(args); err != nil || asked(flags) != (len(args) > 1) {
			t.Errorf("%v: asked %v, %v", args, asked(flags), err)
		}
	}
}
