package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"testing"
)

var program options

// TestMain makes the test's binary a program, too: with flags of the program it does what they say, and
// without any it tests.
func TestMain(m *testing.M) {
	program.register(flag.CommandLine)
	flag.Parse()
	if how := os.Getenv(fakeChild); how != "" && program.child {
		beFakeChild(how)
		return
	}
	if !asked(flag.CommandLine) {
		os.Exit(m.Run())
	}
	if !replays {
		fmt.Fprintln(os.Stderr, "sim: this build leaves choices to chance, and no run can be played again: build it by `make sim`")
		os.Exit(2)
	}
	if program.child {
		os.Exit(runChild(m))
	}
	switch err := runDriver(); {
	case errors.Is(err, errFailed):
		os.Exit(1)
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "sim: interrupted")
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "sim:", err)
		os.Exit(1)
	}
}

func runDriver() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := &children{program: self, env: childEnv, limit: childTime}
	if program.live {
		c.live = os.Stderr
	}
	d := &driver{options: program, name: os.Args[0], out: os.Stdout, play: c.play, workers: runtime.NumCPU()}
	return d.run(ctx)
}

// runChild plays one seed as a test, since a bubble needs one.
func runChild(m *testing.M) int {
	if err := errors.Join(limitMyself(), flag.Set("test.run", "^TestPlay$"), flag.Set("test.count", "1")); err != nil {
		fmt.Fprintln(os.Stderr, "sim:", err)
		return 2
	}
	return m.Run()
}

// TestSeeds plays a few seeds in a build that leaves choices to chance: no run of one is the same as another.
func TestSeeds(t *testing.T) {
	for seed := uint64(1); seed <= 8; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := play(t, seed, settings{})
			for _, w := range r.Wrong {
				t.Error(w)
			}
			if t.Failed() {
				t.Logf("\n%s", r.picture)
			}
		})
	}
}

// TestPlay is the program's child; without its flag it does nothing.
func TestPlay(t *testing.T) {
	if !program.child {
		return
	}
	how := settings{keep: program.keep, verbose: program.log}
	if program.live {
		how.live = os.Stderr
	}
	r := play(t, program.seed, how)
	if err := r.tell(os.Stdout, program.trace); err != nil {
		t.Fatal(err)
	}
}
