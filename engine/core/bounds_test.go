package core

import (
	"slices"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// A job that is created while its part of the window is being read, and that the read didn't
// see, is in memory; one beyond the read's end comes with the next one. Both fire in time.
func TestACreateWhileTheWindowIsRead(t *testing.T) {
	r := newRig(t)
	r.join("w", 10)
	r.deaf = func(x Read) bool { return x.Kind == ReadOnce }
	r.sleep(r.cfg.OnceWindow/2 + 2*time.Second)
	if len(r.unheard) != 1 {
		t.Fatalf("the window isn't read: %+v", r.unheard)
	}
	answer := r.answer(r.unheard[0]) // before anything is created
	var jobs []job.Job
	for _, ahead := range []time.Duration{time.Second, r.cfg.OnceWindow - time.Second, r.cfg.OnceWindow + time.Minute} {
		jobs = append(jobs, r.create(r.newJob("j"+ahead.String(), job.Schedule{Kind: job.KindOnce, At: job.AtSecond(r.now.Seconds()).Add(ahead)})))
	}
	r.deaf = nil
	r.s.Step(r.now, answer)
	r.pump()
	for range int(r.cfg.OnceWindow/time.Second) + 90 {
		r.sleep(time.Second)
		for _, a := range r.assigned() {
			if late := r.now.Sub(a.Token.Key.FireTime); late > time.Second {
				t.Errorf("%s is %s late", a.Work.Name, late)
			}
			r.finish(a, job.OutcomeSucceeded)
		}
	}
	for _, j := range jobs {
		if got := r.of(j); len(got) != 1 {
			t.Errorf("%s: %q", j.Name, got)
		}
	}
}

// The database doesn't answer the read of the window for a quarter of an hour. What is in
// memory fires; the watermark doesn't pass what isn't known; when the answer is there, what was
// missed fires, and nothing twice.
func TestAWindowThatIsNotReadForLong(t *testing.T) {
	r := newRig(t)
	r.join("w", 1000)
	r.sleep(r.cfg.OnceWindow/2 - 10*time.Second)
	every := job.Schedule{Kind: job.KindCron, Cron: "0 * * * * *"}
	live := r.createWith("live", every, job.Policies{})
	far := r.create(r.newJob("far", job.Schedule{Kind: job.KindOnce, At: job.AtSecond(r.now.Seconds()).Add(r.cfg.OnceWindow - time.Minute)}))
	r.s.Abandon()
	r.restart() // so that no job is in memory that was only just created
	r.sleep(10 * time.Second)
	stuck := r.cfg.OnceWindow
	limit := r.s.onceLimit()
	r.deaf = func(x Read) bool { return x.Kind == ReadOnce }
	for end := r.now.Add(stuck + 16*time.Minute); r.now < end; {
		r.sleep(10 * time.Second)
		r.serveAll()
		if r.watermark > limit && r.s.onceLimit() == limit {
			t.Fatalf("the watermark %s passed %s, up to where the jobs are known", r.watermark, limit)
		}
	}
	if n := len(r.of(live)); n < 28 {
		t.Errorf("the recurring job fired %d times", n)
	}
	r.deaf = nil
	for _, x := range r.unheard {
		r.s.Step(r.now, r.answer(x))
	}
	r.unheard = nil
	r.pump()
	r.sleep(5 * time.Second)
	r.serveAll()
	if got := r.of(far); len(got) != 1 || r.watermark < r.now.Add(-10*time.Second) {
		t.Errorf("%q, watermark %s, now %s", got, r.watermark, r.now)
	}
}

// ledger is a backlog of one handler that knows no more of its rows than their keys.
type ledger struct {
	rows []ledgerRow // in the order of their keys, since they come in it
	jobs map[job.UID]job.Job
}

type ledgerRow struct {
	key  job.SlotKey
	gone bool
}

func (l *ledger) write(b store.ShardBatch) {
	for _, k := range b.BacklogDels {
		if at, found := l.find(k.Slot); found {
			l.rows[at].gone = true
		}
	}
	for _, p := range b.BacklogPuts {
		if at, found := l.find(p.Key.Slot); found {
			l.rows[at].gone = false
		} else {
			l.rows = slices.Insert(l.rows, at, ledgerRow{key: p.Key.Slot})
		}
	}
}

func (l *ledger) find(key job.SlotKey) (int, bool) {
	return slices.BinarySearchFunc(l.rows, key, func(r ledgerRow, k job.SlotKey) int { return compareKeys(r.key, k) })
}

func (l *ledger) read(q Read) Event {
	at := 0
	if q.From.Slot != (job.SlotKey{}) {
		at, _ = l.find(q.From.Slot)
		at++
	}
	e := WaitingLoaded{Read: q}
	for ; at < len(l.rows) && len(e.Slots) < q.Limit; at++ {
		if key := l.rows[at].key; !l.rows[at].gone {
			slot := job.Slot{Key: key, Trigger: job.TriggerSchedule, State: job.Ready, CreatedAt: key.FireTime}
			e.Slots = append(e.Slots, store.BacklogSlot{Row: store.BacklogRow{Key: store.BacklogKey{Waiting: true, Handler: "h", Rank: key.FireTime, Slot: key}, WakeAt: key.FireTime},
				SlotOf: store.SlotOf{Slot: slot, Job: l.jobs[key.UID]}})
		}
	}
	return e
}

// A million slots become due while no worker serves their handler: little of them is in
// memory. Then workers come, and all run, in order.
func TestAMillionSlotsWithoutWorkers(t *testing.T) {
	const jobs, seconds = 1000, 1000
	r := newRig(t)
	l := &ledger{jobs: map[job.UID]job.Job{}}
	var loaded store.Loaded
	for n := range jobs {
		j := r.newJob("j", everySecond)
		j.UID, j.EffectiveFrom = job.UID{0: byte(n >> 8), 1: byte(n), 15: 1}, r.now
		l.jobs[j.UID] = j
		loaded.Recurring = append(loaded.Recurring, j)
	}
	s := New(r.cfg, store.Owned{Proof: shard.Proof{Shard: 3, Epoch: 9}, Watermark: r.now, OpenFrom: r.now}, loaded, r.workers, r.now)
	most, done, last := 0, 0, job.Instant(0)
	turn := func() {
		for {
			s.Step(r.now, Tick{})
			for s.Dispatch("h") {
			}
			b := s.Ready(r.now, store.MaxBatchRows)
			if b != nil {
				l.write(b.Rows)
				s.Step(r.now, Committed{})
			}
			reads := s.Reads()
			for _, q := range reads {
				if q.Kind == ReadWaiting {
					s.Step(r.now, l.read(q))
				} else {
					s.Step(r.now, (&model{}).answer(q))
				}
			}
			most = max(most, len(s.slots))
			messages := s.Messages()
			for _, m := range messages {
				a, assigned := m.(Assign)
				if !assigned {
					continue
				}
				if done++; a.Token.Key.FireTime < last {
					t.Fatalf("%s ran after %s", a.Token.Key.FireTime, last)
				}
				last = a.Token.Key.FireTime
				s.Step(r.now, Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeSucceeded, StartedAt: r.now})
				r.workers.AddCredit(r.workers.Get("w"), 1)
			}
			if b == nil && len(reads) == 0 && len(messages) == 0 {
				return
			}
		}
	}
	turn()
	for range seconds {
		r.now = r.now.Add(time.Second)
		turn()
	}
	waiting := s.Stats()
	if most > r.cfg.ReadyLimit+2*jobs || waiting.Backlog < jobs*seconds-most-jobs {
		t.Errorf("%d slots were in memory; %+v", most, waiting)
	}
	r.workers.Join(WorkerKey{"w", "1"}, []string{"h"}, 1000, 1000, r.now.Add(time.Hour))
	turn() // time stands still: nothing else becomes due
	if done != jobs*seconds || len(s.slots) != 0 {
		t.Errorf("%d ran, %d are in memory: %+v", done, len(s.slots), s.Stats())
	}
	t.Logf("%d waited, at most %d slots were in memory", waiting.Backlog+waiting.Ready, most)
}
