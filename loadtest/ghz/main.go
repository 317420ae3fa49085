// Command ghz lets the load generator ghz loose on a Carillon of its own.
//
// The scenarios are the JSON files beside it, in ghz's own format: ghz takes them by
// itself, against any server. Here a server and a worker are started, jobs and slots
// are made that can be read, and ghz plays one scenario after the other for
// GHZ_SECONDS each. The exit code is 0 only if every scenario made calls, each of
// them was answered with OK, and all processes ended cleanly.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/carillon-scheduler/carillon/loadtest/process"
	"github.com/carillon-scheduler/carillon/loadtest/sandbox"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

const (
	defaultSeconds = 3
	maxSeconds     = 3600
	endTimeout     = 60 * time.Second // for ghz to start, to await its last answers, and to write
	seedTimeout    = 30 * time.Second
	maxText        = 500 // bytes of ghz's error that are shown: it repeats it for every call

	parent   = "namespaces/default"
	jobs     = 5  // that are read: read-0 to read-4; the scenarios count on them
	slotsPer = 10 // of each of these jobs
)

// scenarios are the files that are played, in this order: what is created first makes
// the reads that follow heavier.
var scenarios = []string{"create-job.json", "batch-create-jobs.json", "list-slots.json", "get-job.json"}

// settings are where things are, and for how long each scenario is played.
type settings struct {
	carillon, ghz, scenarios string
	each                     time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ghz:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var s settings
	flags := flag.NewFlagSet("ghz", flag.ContinueOnError)
	flags.StringVar(&s.carillon, "carillon", "bin/carillon", "the binary that is loaded")
	flags.StringVar(&s.ghz, "ghz", ".bin/ghz", "the load generator")
	flags.StringVar(&s.scenarios, "scenarios", "loadtest/ghz", "the folder of the scenarios")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if s.each, err = forEach(os.Getenv("GHZ_SECONDS")); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "carillon-ghz-")
	if err != nil {
		return err
	}
	err = s.play(ctx, dir, out)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w\ndata and logs are kept in %s", err, dir)
	}
	return errors.Join(err, os.RemoveAll(dir))
}

// forEach reads GHZ_SECONDS: for how long each scenario is played.
func forEach(value string) (time.Duration, error) {
	if value == "" {
		return defaultSeconds * time.Second, nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > maxSeconds {
		return 0, fmt.Errorf("GHZ_SECONDS must be 1 to %d, is %q", maxSeconds, value)
	}
	return time.Duration(n) * time.Second, nil
}

// play starts all, plays all, and leaves nothing running.
func (s settings) play(ctx context.Context, dir string, out io.Writer) error {
	box, err := sandbox.Start(ctx, s.carillon, dir)
	if err != nil {
		return err
	}
	reports, err := s.playAll(ctx, box, dir)
	printTable(out, reports)
	return errors.Join(err, box.Stop())
}

func (s settings) playAll(ctx context.Context, box *sandbox.Sandbox, dir string) ([]report, error) {
	if err := seed(ctx, box); err != nil {
		return nil, fmt.Errorf("make what is read: %w", err)
	}
	var reports []report
	var errs []error
	for _, file := range scenarios {
		result := filepath.Join(dir, "result-"+file)
		if err := s.call(ctx, filepath.Join(s.scenarios, file), box.GRPC, result); err != nil {
			return reports, errors.Join(append(errs, fmt.Errorf("play %s: %w", file, err))...)
		}
		r, err := readReport(result)
		if err != nil {
			return reports, errors.Join(append(errs, err)...)
		}
		reports, errs = append(reports, r), append(errs, r.verdict())
	}
	return reports, errors.Join(errs...)
}

// call has ghz play a scenario. It waits for the answers to the last calls: a call that
// is cut off at the end would count as failed.
func (s settings) call(ctx context.Context, scenario, address, result string) error {
	log, err := os.Create(result + ".log")
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(s.ghz, "--config", scenario, "--duration", s.each.String(), "--duration-stop", "wait",
		"--format", "json", "--output", result, address)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := process.Start("load generator", cmd)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.each+endTimeout, fmt.Errorf("ghz didn't end within %s of its time", endTimeout))
	defer cancel()
	select {
	case <-p.Ended():
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), p.Kill())
	}
	if ending := p.Ending(); ending != "exit status 0" {
		text, err := os.ReadFile(log.Name())
		return errors.Join(fmt.Errorf("ghz ended with %s: %s", ending, text[:min(len(text), maxText)]), err)
	}
	return nil
}

// seed makes the jobs and slots that are read.
func seed(ctx context.Context, box *sandbox.Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, seedTimeout)
	defer cancel()
	client := carillonv1.NewJobServiceClient(box.Conn)
	for i := range jobs {
		created, err := client.CreateJob(ctx, &carillonv1.CreateJobRequest{
			Parent: parent, JobId: "read-" + strconv.Itoa(i), RequestId: "read-" + strconv.Itoa(i),
			Job: &carillonv1.Job{Handler: sandbox.Handler, Schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_Interval{
				Interval: &carillonv1.IntervalSchedule{Every: durationpb.New(time.Hour)}}}},
		})
		if err != nil {
			return err
		}
		for range slotsPer {
			if _, err := client.RunJob(ctx, &carillonv1.RunJobRequest{Name: created.GetJob().GetName()}); err != nil {
				return err
			}
		}
	}
	return nil
}
