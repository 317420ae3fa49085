// Package storetest defines what a correct store is. Each adapter's test is one
// call of Run.
package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// shards is the number of shards of every store under test.
const shards = 4

// Run checks the store that open makes: a new, empty one at each call, closed by
// the test's cleanup.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	for _, group := range []struct {
		name  string
		tests map[string]func(*testing.T, *world)
	}{
		{"Ownership", ownershipTests}, {"Commit", commitTests}, {"Load", loadTests}, {"Inbox", inboxTests}, {"Read", readTests}, {"People", peopleTests}, {"Calendars", calendarTests}, {"Retention", retentionTests}, {"Race", raceTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for name, test := range group.tests {
				t.Run(name, func(t *testing.T) { test(t, newWorld(t, open(t))) })
			}
		})
	}
}

// world is a store under test with some owners.
type world struct {
	store.Store
	t      *testing.T
	ctx    context.Context
	owned  [shards]store.Owned
	lastID byte
	at     job.Instant // an instant well after the shards' first watermark
}

func newWorld(t *testing.T, st store.Store) *world {
	w := &world{Store: st, t: t, ctx: t.Context(), at: job.AtSecond(time.Now().Unix() + 3600)}
	n, err := st.InitShards(w.ctx, shards)
	w.ok(err)
	if n != shards {
		t.Fatalf("InitShards made %d shards, want %d", n, shards)
	}
	for id := range shard.ID(shards) {
		w.owned[id] = w.takeOver(id, "a", 0, 1)
	}
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) takeOver(id shard.ID, node string, gen, rev int64) store.Owned {
	w.t.Helper()
	o, err := w.TakeOver(w.ctx, store.Claim{Shard: id, Node: node, Gen: gen, Rev: rev})
	w.ok(err)
	return o
}

func (w *world) reload(id shard.ID) store.Owned {
	w.t.Helper()
	o, err := w.Reload(w.ctx, w.owned[id].Proof)
	w.ok(err)
	return o
}

// uid returns a new uid; later ones are larger.
func (w *world) uid() job.UID {
	w.lastID++
	return job.UID{0: 1, 15: w.lastID}
}

// recurring returns a job that fires every second.
func (w *world) recurring(id shard.ID, name string) job.Job {
	return job.Job{
		UID: w.uid(), Shard: id, Namespace: "default", Name: name, Handler: "h", Params: []byte(`{"a":  1}`),
		Schedule: job.Schedule{Kind: job.KindCron, Cron: "* * * * * *", Dialect: schedule.DialectVersion},
		Retry:    job.DefaultRetryPolicy, Timeout: time.Minute, CreatedAt: w.at, EffectiveFrom: w.at, RequestHash: "hash of " + name,
	}
}

func (w *world) once(id shard.ID, name string, at job.Instant) job.Job {
	j := w.recurring(id, name)
	j.Schedule = job.Schedule{Kind: job.KindOnce, At: at}
	return j
}

// slot returns a READY slot of a job.
func (w *world) slot(j *job.Job, fire job.Instant) job.Slot {
	return job.Slot{Key: job.SlotKey{FireTime: fire, UID: j.UID}, Trigger: job.TriggerSchedule, State: job.Ready, CreatedAt: w.at}
}

// claimed returns s as a worker's.
func claimed(s job.Slot, epoch shard.Epoch) job.Slot {
	s.State, s.Epoch, s.Worker, s.Incarnation = job.Running, epoch, "w", "i"
	s.Attempt++
	s.ClaimedAt, s.Deadline = s.CreatedAt+1, s.CreatedAt+2
	return s
}

func finished(s job.Slot, state job.State) job.Slot {
	s.State, s.FinishedAt, s.Outcome, s.Result = state, s.CreatedAt+3, job.OutcomeSucceeded, []byte(`{"big": 9007199254740993}`)
	return s
}

// commit writes rows of one shard.
func (w *world) commit(id shard.ID, rows store.ShardBatch) store.ShardOutcome {
	w.t.Helper()
	rows.Proof = w.owned[id].Proof
	out, err := w.Commit(w.ctx, store.Batch{Now: w.at, Shards: []store.ShardBatch{rows}})
	w.ok(err)
	return out.Shards[0]
}

// create stores jobs without slots.
func (w *world) create(jobs ...job.Job) {
	w.t.Helper()
	for _, j := range jobs {
		if out := w.commit(j.Shard, store.ShardBatch{Creates: []store.Create{{Job: j}}}); len(out.Creates) > 0 {
			w.t.Fatalf("job %s was not created: %v", j.Name, out.Creates)
		}
	}
}

// insert stores slots.
func (w *world) insert(id shard.ID, slots ...job.Slot) {
	w.t.Helper()
	if out := w.commit(id, store.ShardBatch{Slots: slots}); len(out.Slots) > 0 {
		w.t.Fatalf("slots were not inserted: %v", out.Slots)
	}
}

// read returns a slot's row, or one of StateNone.
func (w *world) read(id shard.ID, key job.SlotKey) job.Slot {
	w.t.Helper()
	slots, err := w.SlotsByKey(w.ctx, id, []job.SlotKey{key})
	w.ok(err)
	if len(slots) == 0 {
		return job.Slot{Key: key}
	}
	return slots[0]
}

// deadLetters lists those of the default namespace.
func (w *world) deadLetters() []store.DeadLetterOf {
	w.t.Helper()
	letters, next, err := w.DeadLetters(w.ctx, store.DeadLettersPage{Namespace: "default", Limit: 1000})
	w.ok(err)
	if next != (store.DeadCursor{}) {
		w.t.Fatalf("there are more than %d dead letters", len(letters))
	}
	return letters
}

// audit returns all that is stored of a shard.
func (w *world) audit(id shard.ID) store.Audit {
	w.t.Helper()
	a, err := w.Audit(w.ctx, id)
	w.ok(err)
	return a
}

func (w *world) load(id shard.ID) store.Loaded {
	w.t.Helper()
	l, err := w.Load(w.ctx, w.owned[id].Proof, nil)
	w.ok(err)
	return l
}

func keysOf(slots []store.SlotOf) string {
	out := ""
	for _, s := range slots {
		out += fmt.Sprintf("%s@%d ", s.Job.Name, s.Slot.Key.FireTime)
	}
	return out
}

func namesOf(jobs []job.Job) string {
	out := ""
	for _, j := range jobs {
		out += j.Name + " "
	}
	return out
}
