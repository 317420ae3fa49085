package workersdktest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/carillon-scheduler/carillon/controlplane/chaos"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	worker "github.com/carillon-scheduler/carillon/workersdk"
	"github.com/carillon-scheduler/carillon/workersdk/workersdktest"
)

func cronJob(handler, expr string) *carillonv1.Job {
	return &carillonv1.Job{Handler: handler, Schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: expr}}}
}

// A day of schedules, with real handlers.
func TestADay(t *testing.T) {
	workersdktest.Simulate(t, func(t *testing.T, s *workersdktest.Server) {
		var mu sync.Mutex // two of them fire at 02:00
		var fired []time.Time
		s.Worker(func(w *worker.Worker) {
			worker.Handle(w, "report", func(_ context.Context, task *worker.Task[any]) error {
				if late := task.Lateness(); late < 0 || late > 2*time.Second {
					t.Errorf("it started %s late", late)
				}
				mu.Lock()
				defer mu.Unlock()
				fired = append(fired, task.FireTime())
				return nil
			})
		})
		s.Create("hourly", cronJob("report", "0 * * * *"))
		s.Create("nightly", cronJob("report", "0 2 * * *"))
		s.Advance(24 * time.Hour)
		if len(fired) != 25 {
			t.Errorf("fired %d times: %v", len(fired), fired)
		}
		for i, slot := range s.History("hourly") {
			if slot.GetState() != carillonv1.SlotState_SLOT_STATE_SUCCEEDED || slot.GetFireTime().AsTime() != time.Date(2000, 1, 1, i+1, 0, 0, 0, time.UTC) {
				t.Errorf("slot %d is %v", i, slot)
			}
		}
	})
}

// A handler that counts without a key is found out, and one with a key isn't.
func TestDeliverTwice(t *testing.T) {
	workersdktest.Simulate(t, func(t *testing.T, s *workersdktest.Server) {
		counted, keyed := 0, map[string]int{}
		s.Worker(func(w *worker.Worker) {
			worker.Handle(w, "count", func(_ context.Context, task *worker.Task[any]) error {
				counted++
				keyed[task.Key()]++
				return nil
			})
		})
		s.Create("hourly", cronJob("count", "0 * * * *"))
		s.Advance(5*time.Hour + time.Minute)
		if counted != 10 || len(keyed) != 5 {
			t.Errorf("counted %d, with %d keys", counted, len(keyed))
		}
		for _, slot := range s.History("hourly") {
			if slot.GetAttempt() != 2 || slot.GetFailures() != 0 || slot.GetState() != carillonv1.SlotState_SLOT_STATE_SUCCEEDED {
				t.Errorf("a slot is %v", slot)
			}
		}
		if r := s.Report(); len(r) != 1 || r[0].Doubled != 5 || r[0].Attempts != 10 || r[0].Failed != 0 {
			t.Errorf("reported %+v", r)
		}
	}, workersdktest.DeliverTwice())
}

// A handler that fails the second time is named.
func TestTheReport(t *testing.T) {
	workersdktest.Simulate(t, func(t *testing.T, s *workersdktest.Server) {
		s.Worker(func(w *worker.Worker) {
			worker.Handle(w, "insert", func(_ context.Context, task *worker.Task[any]) error {
				if task.Attempt() > 1 {
					return worker.Permanent(errors.New("the row is there already"))
				}
				return nil
			})
		})
		s.Create("once", &carillonv1.Job{Handler: "insert", Schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}}})
		s.Advance(time.Minute)
		if r := s.Report(); len(r) != 1 || r[0].Failed != 1 {
			t.Errorf("reported %+v", r)
		}
	}, workersdktest.DeliverTwice())
}

// Workers that are killed in the middle: every slot succeeds all the same, once.
func TestKillMidway(t *testing.T) {
	for seed := range uint64(3) {
		workersdktest.Simulate(t, func(t *testing.T, s *workersdktest.Server) {
			var begun, cut atomic.Int32 // a worker that was killed may still be at work
			s.Worker(func(w *worker.Worker) {
				worker.Handle(w, "slow", func(ctx context.Context, task *worker.Task[any]) error {
					begun.Add(1)
					select {
					case <-time.After(5 * time.Second):
						return nil
					case <-ctx.Done():
						cut.Add(1)
						return context.Cause(ctx)
					}
				})
			})
			s.Create("often", &carillonv1.Job{Handler: "slow", AttemptTimeout: durationpb.New(time.Minute),
				Schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: "* * * * *"}}})
			s.Advance(30*time.Minute + 50*time.Second)
			slots := s.History("often")
			killed := 0
			for _, slot := range slots {
				if slot.GetState() != carillonv1.SlotState_SLOT_STATE_SUCCEEDED {
					t.Errorf("a slot is %v", slot)
				}
				if slot.GetAttempt() > 1 {
					killed++
				}
			}
			if len(slots) != 30 || killed < 4 || killed > 20 || begun.Load() != int32(30+killed) || cut.Load() == 0 {
				t.Errorf("seed %d: %d slots, %d took more than one attempt, %d runs, %d were cut off", seed, len(slots), killed, begun.Load(), cut.Load())
			}
		}, workersdktest.KillMidway(seed))
	}
}

// A deploy costs no attempt.
func TestADeploy(t *testing.T) {
	workersdktest.Simulate(t, func(t *testing.T, s *workersdktest.Server) {
		register := func(w *worker.Worker) {
			worker.Handle(w, "slow", func(ctx context.Context, _ *worker.Task[any]) error {
				select {
				case <-time.After(time.Minute):
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
		}
		old := s.Worker(register, worker.ID("old"))
		s.Create("j", &carillonv1.Job{Handler: "slow", Schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}}})
		s.Advance(time.Second)
		old.Stop()
		s.Worker(register, worker.ID("new"))
		s.Advance(2 * time.Minute)
		slot := s.History("j")[0]
		if slot.GetState() != carillonv1.SlotState_SLOT_STATE_SUCCEEDED || slot.GetFailures() != 0 || slot.GetWorker() != "new" {
			t.Errorf("the slot is %v", slot)
		}
	})
}

// Chaos of one seed is the same each time, loses nothing, and lets nothing succeed twice.
func TestChaosIsReplayable(t *testing.T) {
	var reports [][]chaos.Count
	for range 2 {
		workersdktest.Simulate(t, func(t *testing.T, s *workersdktest.Server) {
			var late atomic.Int32
			s.Worker(func(w *worker.Worker) {
				worker.Handle(w, "h", func(ctx context.Context, _ *worker.Task[any]) error {
					select {
					case <-time.After(20 * time.Second):
						return nil
					case <-ctx.Done():
						late.Add(1)
						return context.Cause(ctx)
					}
				})
			})
			j := cronJob("h", "* * * * *")
			j.Schedule.MaxOccurrences = 39
			s.Create("often", j)
			for range 40 {
				s.Advance(time.Minute + time.Second/2)
				for _, slot := range s.History("often") {
					if m := slot.GetFireTime().AsTime().Minute(); m%4 == 0 && slot.GetState() == carillonv1.SlotState_SLOT_STATE_RUNNING {
						if _, err := s.Slots.CancelSlot(t.Context(), &carillonv1.CancelSlotRequest{Name: slot.GetName()}); err != nil {
							t.Error(err)
						}
					}
				}
			}
			s.Advance(2 * time.Minute)
			for _, slot := range s.History("often") {
				cancelled := slot.GetFireTime().AsTime().Minute()%4 == 0
				if state := slot.GetState(); cancelled != (state == carillonv1.SlotState_SLOT_STATE_CANCELLED) || !cancelled && state != carillonv1.SlotState_SLOT_STATE_SUCCEEDED {
					t.Errorf("a slot is %v", slot)
				}
			}
			r := s.Report()
			if len(r) != 1 || r[0].Doubled == 0 || r[0].LostAnswers == 0 || r[0].LateCancels == 0 || late.Load() == 0 {
				t.Errorf("reported %+v, %d were cut off", r, late.Load())
			}
			reports = append(reports, r)
		}, workersdktest.Chaos(7))
	}
	if !slices.Equal(reports[0], reports[1]) {
		t.Errorf("%+v and %+v", reports[0], reports[1])
	}
}
