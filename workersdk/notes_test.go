package workersdk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// reports lists the progress reports that came.
func (s *nodeStream) reports() (out []*carillonv1.ProgressReport) {
	for _, m := range s.messages() {
		out = append(out, m.GetProgress()...)
	}
	return out
}

// A checkpoint is saved once the node says that it is stored; until then it is sent again, and
// nothing of it after.
func TestSaveCheckpoint(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.capable("checkpoints")
		w := n.dial()
		var got []byte
		var saved time.Time
		more := make(chan struct{})
		Handle(w, "h", func(ctx context.Context, task *Task[any]) error {
			got = task.Checkpoint()
			if err := task.SaveCheckpoint(ctx, []byte("page 7")); err != nil {
				return err
			}
			saved = time.Now()
			task.Logger().Info("half of it", "rows", 5)
			task.Progress(5, 10, "half")
			<-more
			return task.SetCheckpoint([]byte("page 8"))
		})
		n.run(w)
		s := n.stream()
		a := job(1, "h", "")
		a.Checkpoint = []byte("page 3")
		s.assign(a)
		pass(4 * time.Second)
		rs := s.reports()
		if len(rs) != 2 || string(rs[1].GetCheckpoint()) != "page 7" || rs[1].GetSequence() != rs[0].GetSequence() || !saved.IsZero() {
			t.Fatalf("reported %v; saved at %v", rs, saved)
		}
		s.send(&carillonv1.ConnectResponse{ProgressAcks: []*carillonv1.ProgressAck{{Token: testToken(1), Sequence: rs[1].GetSequence()}}})
		pass(2 * time.Second)
		if saved.IsZero() || string(got) != "page 3" {
			t.Fatalf("saved at %v; the attempts before left %q", saved, got)
		}
		rs = s.reports()
		if r := rs[len(rs)-1]; r.Checkpoint != nil || r.GetProgress().GetDone() != 5 || !strings.Contains(string(r.GetLog()), `msg="half of it" rows=5`) {
			t.Errorf("reported %v", r)
		}
		close(more)
		if r := s.onlyResult(); string(r.GetCheckpoint()) != "page 8" || !strings.Contains(string(r.GetLog()), "half of it") {
			t.Errorf("the result leaves %v", r)
		}
	})
}

func TestCheckpointsThatAreRefused(t *testing.T) {
	for capability, want := range map[string]string{"": ErrNoCheckpoints.Error(), "checkpoints": "more than 65536"} {
		bubble(t, func(t *testing.T, n *node) {
			n.capable(capability)
			w := n.dial()
			Handle(w, "h", func(_ context.Context, task *Task[any]) error {
				task.Progress(1, 2, "")
				size := 1
				if capability != "" {
					size = maxCheckpointBytes + 1
				}
				return task.SetCheckpoint(make([]byte, size))
			})
			n.run(w)
			s := n.stream()
			s.assign(job(1, "h", ""))
			if r := s.onlyResult(); !strings.Contains(string(r.GetErrorMessage()), want) || r.Checkpoint != nil {
				t.Errorf("%q: %v", capability, r)
			}
		})
	}
}

// A checkpoint that is never stored holds its handler up only until the attempt ends.
func TestAnUnsavedCheckpointEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.capable("checkpoints")
		w := n.dial()
		Handle(w, "h", func(ctx context.Context, task *Task[any]) error {
			err := task.SaveCheckpoint(ctx, []byte("x"))
			if !errors.Is(err, ErrTimeout) {
				t.Errorf("ended by %v", err)
			}
			return err
		})
		n.run(w)
		s := n.stream()
		s.assign(within(job(1, "h", ""), 10*time.Second))
		pass(11 * time.Second)
		r := s.onlyResult()
		want(t, r, timedOut, "timeout")
		if string(r.GetCheckpoint()) != "x" {
			t.Errorf("the result leaves %v", r)
		}
		if n := len(s.reports()); n < 3 || n > 5 {
			t.Errorf("it was reported %d times in 10 s", n)
		}
	})
}

// The newest lines are kept, whole ones.
func TestTheLogIsBounded(t *testing.T) {
	var n notes
	for i := range 10_000 {
		fmt.Fprintf(&n, "line %d\n", i)
	}
	log := string(n.log.data)
	if len(log) > maxLogBytes || len(log) < maxLogBytes-20 || !strings.HasSuffix(log, "line 9999\n") || !strings.HasPrefix(log, "line ") {
		t.Errorf("%d bytes: %.20q … %q", len(log), log, log[len(log)-20:])
	}
	fmt.Fprint(&n, strings.Repeat("x", 3*maxLogBytes))
	if got := len(n.log.data); got != maxLogBytes {
		t.Errorf("a line without an end takes %d bytes", got)
	}
}
