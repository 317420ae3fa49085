package sim

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// options say what the program does: the flags of its command line.
type options struct {
	seed     uint64
	runs     int
	keep     steps
	trace    bool
	log      bool
	live     bool
	shrink   bool
	coverage bool
	child    bool
	results  string
}

// prefix is that of all flags of the program, which go beside those of a test.
const prefix = "sim."

func (o *options) register(f *flag.FlagSet) {
	f.Uint64Var(&o.seed, prefix+"seed", 1, "the first seed")
	f.IntVar(&o.runs, prefix+"runs", 1, "how many seeds are played, from the first on")
	f.Var(&o.keep, prefix+"keep", `play only these steps, as "3,5,9"; "none": none of them`)
	f.BoolVar(&o.trace, prefix+"trace", false, "print the trace of a seed, and a picture of it")
	f.BoolVar(&o.log, prefix+"log", false, "with what the processes log")
	f.BoolVar(&o.live, prefix+"live", false, "print the trace while it grows, for a seed that doesn't end")
	f.BoolVar(&o.shrink, prefix+"shrink", false, "look for the fewest steps with which a seed still fails")
	f.BoolVar(&o.coverage, prefix+"coverage", false, "print what happened, and how often")
	f.BoolVar(&o.child, prefix+"child", false, "play one seed in this process: for the program itself")
	f.StringVar(&o.results, prefix+"results", "", "file to which the results are added; seeds that are there are not played again")
}

// asked reports whether a command line has a flag of the program.
func asked(f *flag.FlagSet) (yes bool) {
	f.Visit(func(f *flag.Flag) { yes = yes || strings.HasPrefix(f.Name, prefix) })
	return yes
}

// steps are places in a plan; nil: all of them.
type steps []int

// String implements flag.Value.
func (s steps) String() string {
	if s == nil {
		return ""
	}
	if len(s) == 0 {
		return "none"
	}
	texts := make([]string, len(s))
	for i, n := range s {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}

// Set implements flag.Value.
func (s *steps) Set(text string) error {
	*s = steps{}
	if text == "none" {
		return nil
	}
	if text == "" {
		*s = nil
		return nil
	}
	for one := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(one))
		if err != nil || n < 0 {
			return fmt.Errorf("%q is no place of a step", one)
		}
		*s = append(*s, n)
	}
	slices.Sort(*s)
	return nil
}
