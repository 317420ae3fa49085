package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// policyFlags are the flags of what a job says beside its schedule and its retries.
type policyFlags struct {
	startDeadline, totalDeadline, catchUpAge, startWithin, finishWithin, retention time.Duration
	catchUp, overlap, onDeadLetter                                                 string
	catchUpCount, maxRunning, priority                                             int32
}

func (f *policyFlags) register(flags *pflag.FlagSet) {
	flags.DurationVar(&f.startDeadline, "start-deadline", 0, "expire a slot that has not begun so long after its fire time")
	flags.DurationVar(&f.totalDeadline, "total-deadline", 0, "expire a slot that has not ended so long after its fire time")
	f.registerCatchUp(flags)
	flags.StringVar(&f.overlap, "overlap", "", "while another slot is open: allow, queue, skip or replace (default: allow)")
	flags.Int32Var(&f.maxRunning, "max-running", 0, "how many slots run at a time, with --overlap allow")
	flags.Int32Var(&f.priority, "priority", 0, "which slots of a handler go first, -10 to 10")
	flags.DurationVar(&f.startWithin, "start-within", 0, "objective: started so long after the fire time")
	flags.DurationVar(&f.finishWithin, "finish-within", 0, "objective: ended so long after the fire time")
	flags.DurationVar(&f.retention, "retention", 0, "keep the job's slots so long after they ended (default: as long as all others)")
	flags.StringVar(&f.onDeadLetter, "on-dead-letter", "", "the handler that is run for a slot that became a dead letter")
}

// registerCatchUp registers the flags of the catch-up alone.
func (f *policyFlags) registerCatchUp(flags *pflag.FlagSet) {
	flags.StringVar(&f.catchUp, "catch-up", "", "which missed occurrences are made up for: all, latest or none (default: all)")
	flags.DurationVar(&f.catchUpAge, "catch-up-max-age", 0, "make up only for what was missed so long ago at most")
	flags.Int32Var(&f.catchUpCount, "catch-up-max-count", 0, "make up only for the newest so many")
}

// apply adds to a job what the flags say.
func (f *policyFlags) apply(cmd *cobra.Command, j *carillonv1.Job) (err error) {
	given := cmd.Flags().Changed
	set := func(flag string, d time.Duration) *durationpb.Duration {
		if !given(flag) {
			return nil
		}
		return durationpb.New(d)
	}
	j.StartDeadline, j.TotalDeadline = set("start-deadline", f.startDeadline), set("total-deadline", f.totalDeadline)
	j.Priority, j.OnDeadLetter, j.Retention = f.priority, f.onDeadLetter, set("retention", f.retention)
	catchUp := &carillonv1.CatchUpPolicy{MaxAge: set("catch-up-max-age", f.catchUpAge), MaxCount: f.catchUpCount}
	if catchUp.Mode, err = parseMode[carillonv1.CatchUpMode]("--catch-up", f.catchUp); err != nil {
		return err
	}
	overlap := &carillonv1.OverlapPolicy{MaxRunning: f.maxRunning}
	if overlap.Mode, err = parseMode[carillonv1.OverlapMode]("--overlap", f.overlap); err != nil {
		return err
	}
	j.CatchUp, j.Overlap = catchUp, overlap
	if given("start-within") || given("finish-within") {
		j.Objectives = &carillonv1.Objectives{StartWithin: set("start-within", f.startWithin), FinishWithin: set("finish-within", f.finishWithin)}
	}
	return nil
}

// parseMode reads the last word of an enum's value, in lower case; empty is the default.
func parseMode[E interface {
	~int32
	protoreflect.Enum
}](flag, text string) (E, error) {
	var mode E
	if text == "" {
		return mode, nil
	}
	values := mode.Descriptor().Values()
	var words []string
	for i := range values.Len() {
		v := values.Get(i)
		if v.Number() == 0 {
			continue
		}
		if modeWord(string(v.Name())) == text {
			return E(v.Number()), nil
		}
		words = append(words, modeWord(string(v.Name())))
	}
	return mode, invalidInput("%s must be one of %s, is %q", flag, strings.Join(words, ", "), text)
}

// modeWord is the word for a value of a mode's enum: latest for CATCH_UP_MODE_LATEST.
func modeWord(name string) string {
	_, word, _ := strings.Cut(name, "_MODE_")
	return strings.ToLower(word)
}

// catchUpText says which missed occurrences are made up for.
func catchUpText(c *carillonv1.CatchUpPolicy) string {
	text := modeWord(c.GetMode().String())
	if c.GetMaxCount() > 0 {
		text += fmt.Sprintf(", the newest %d", c.GetMaxCount())
	}
	if c.GetMaxAge() != nil {
		text += fmt.Sprintf(", no older than %s", c.GetMaxAge().AsDuration())
	}
	return text
}

// policyRows shows what a job says beside its schedule and its retries, if it says
// anything.
func policyRows(j *carillonv1.Job) (rows [][]string) {
	line := func(name string, set bool, format string, args ...any) {
		if set {
			rows = append(rows, []string{name, fmt.Sprintf(format, args...)})
		}
	}
	line("start deadline", j.GetStartDeadline() != nil, "%s after the fire time", j.GetStartDeadline().AsDuration())
	line("total deadline", j.GetTotalDeadline() != nil, "%s after the fire time", j.GetTotalDeadline().AsDuration())
	text := catchUpText(j.GetCatchUp())
	line("catch up", text != "all", "%s", text)
	o := j.GetOverlap()
	text = modeWord(o.GetMode().String())
	if o.GetMaxRunning() > 0 {
		text += fmt.Sprintf(", %d at a time", o.GetMaxRunning())
	}
	line("overlap", text != "allow", "%s", text)
	line("priority", j.GetPriority() != 0, "%d", j.GetPriority())
	line("start within", j.GetObjectives().GetStartWithin() != nil, "%s", j.GetObjectives().GetStartWithin().AsDuration())
	line("finish within", j.GetObjectives().GetFinishWithin() != nil, "%s", j.GetObjectives().GetFinishWithin().AsDuration())
	line("retention", j.GetRetention() != nil, "%s", j.GetRetention().AsDuration())
	line("on dead letter", j.GetOnDeadLetter() != "", "%s", j.GetOnDeadLetter())
	return rows
}
