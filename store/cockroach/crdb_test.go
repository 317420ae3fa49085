package cockroach_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/cockroach"
	"github.com/carillon-scheduler/carillon/store/cockroach/pgtest"
	"github.com/carillon-scheduler/carillon/store/storetest"
)

// What CockroachDB does and PostgreSQL doesn't, done by a proxy: a transaction that
// must be run again at any statement and at its end, a commit of which nobody knows
// what became of it, reads that wait for writers.

// proxied opens a database behind a proxy, with a shard that is taken.
func proxied(t *testing.T) (*pgtest.Proxy, *cockroach.DB, store.Owned) {
	t.Helper()
	p := newProxy(t)
	db := open(t, cockroach.Config{URL: behind(p, database(t, template))})
	if _, err := db.InitShards(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	owned, err := db.TakeOver(t.Context(), store.Claim{Node: "a", Rev: 1})
	if err != nil {
		t.Fatal(err)
	}
	return p, db, owned
}

// everything is a batch with a row of each kind, on what prepare left.
func everything(owned store.Owned) (prepare, rows store.ShardBatch) {
	at := owned.Watermark + job.Second
	old, more := everyMinute(1), everyMinute(2)
	first := job.Slot{Key: job.SlotKey{FireTime: at, UID: old.UID}, Trigger: job.TriggerSchedule, State: job.Ready, CreatedAt: at}
	running := first
	running.State, running.Attempt, running.Worker = job.Running, 1, "w"
	second := job.Slot{Key: job.SlotKey{FireTime: at, UID: more.UID}, Trigger: job.TriggerSchedule, State: job.Dead, Attempt: 1, CreatedAt: at, FinishedAt: at}
	manual := job.Slot{Key: job.SlotKey{FireTime: at + 1, UID: old.UID}, Trigger: job.TriggerManual, State: job.Ready, CreatedAt: at}
	gap := store.Gap{Key: store.GapKey{To: at}, From: at - 5, Cursor: job.SlotKey{FireTime: at - 5}}
	prepare = store.ShardBatch{Proof: owned.Proof, Creates: []store.Create{{Job: old}}, Slots: []job.Slot{first}, GapPuts: []store.Gap{gap}}
	rows = store.ShardBatch{Proof: owned.Proof, Watermark: at,
		Creates: []store.Create{{Job: more, Slots: []job.Slot{second}}}, Updates: []store.SlotUpdate{{Slot: running, FromState: job.Ready}},
		Requests: []store.Request{{Namespace: "d", RequestID: "r", Key: manual.Key}}, Slots: []job.Slot{manual},
		Attempts: []store.SlotAttempt{{Key: first.Key, Attempt: job.Attempt{Number: 1}}}, Lates: []store.LateResult{{Key: first.Key, Attempt: 1, Text: "late"}},
		BacklogPuts: []store.BacklogRow{{Key: store.BacklogKey{Waiting: true, Handler: "h", Rank: at, Slot: manual.Key}, ReadyAt: at, Trigger: job.TriggerManual}},
		DeadPuts:    []store.DeadLetter{{Key: second.Key, Namespace: "d", Handler: "h"}},
		GapMoves:    []store.GapMove{{Key: gap.Key, From: gap.Cursor, To: job.SlotKey{FireTime: at - 2}}},
		GapChanges:  []store.GapChange{{Key: gap.Key, Options: store.GapOptions{Rate: 1}}},
		Skips:       []store.Skip{{UID: old.UID, From: at - 4, To: at - 4, Count: 1}},
		Ends:        []store.JobEnd{{UID: old.UID, EndedAt: at}}, Events: []store.Event{{Seq: 1, At: at, Kind: store.EventDeadLetter}},
		SlotPrunes: []store.SlotPrune{{Key: job.SlotKey{FireTime: 1}, State: job.Succeeded}}, Old: store.Old{EventsBefore: 1, RequestsBefore: 1, SkipsBefore: 1}}
	return prepare, rows
}

// written asserts that the batch of everything is there, once.
func written(t *testing.T, db *cockroach.DB, rows store.ShardBatch) {
	t.Helper()
	a, err := db.Audit(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Jobs) != 2 || a.Jobs[0].EndedAt == 0 || len(a.Slots) != 3 || len(a.Attempts) != 1 || a.Attempts[0].Attempt.Late != "late" ||
		len(a.Backlog) != 1 || len(a.DeadLetters) != 1 || len(a.Events) != 1 || a.Gaps[0].Cursor != rows.GapMoves[0].To || a.Watermark != rows.Watermark {
		t.Errorf("%d jobs, %d slots, attempts %+v, %d in the backlog, %d dead letters, %d events, gaps %+v, watermark %s",
			len(a.Jobs), len(a.Slots), a.Attempts, len(a.Backlog), len(a.DeadLetters), len(a.Events), a.Gaps, a.Watermark)
	}
}

func wantClean(t *testing.T, out store.Outcome) {
	t.Helper()
	if o := out.Shards[0]; len(o.Creates)+len(o.Slots)+len(o.Requests)+len(o.Gaps) > 0 {
		t.Errorf("the batch met something: %+v", o)
	}
}

// A transaction that must be run again is, at whichever statement that is said, and
// takes effect once.
func TestRunAgainAtAnyStatement(t *testing.T) {
	statements := 0
	for n := 1; n == 1 || n <= statements; n++ {
		t.Run(fmt.Sprint("statement ", n), func(t *testing.T) {
			p, db, owned := proxied(t)
			prepare, rows := everything(owned)
			if _, err := db.Commit(t.Context(), batch(prepare)); err != nil {
				t.Fatal(err)
			}
			raised := false
			p.Judge(func(s pgtest.Statement) pgtest.Verdict {
				if s.Commits() {
					statements = s.N
				}
				if s.N != n || raised {
					return pgtest.Verdict{}
				}
				raised = true
				return pgtest.Verdict{SQLState: "40001"}
			})
			out, err := db.Commit(t.Context(), batch(rows))
			if err != nil || !raised {
				t.Fatalf("commit: %v, raised %v", err, raised)
			}
			p.Judge(nil)
			wantClean(t, out)
			written(t, db, rows)
		})
	}
	if statements < 15 {
		t.Errorf("the batch had %d statements only", statements)
	}
}

// R3: a commit of which nobody knows what became of it, committed or not. Sending the
// batch again settles it.
func TestACommitWhoseOutcomeIsUnknown(t *testing.T) {
	for name, verdict := range map[string]pgtest.Verdict{
		"ambiguous, committed":     {SQLState: "40003", Done: true},
		"ambiguous, rolled back":   {SQLState: "40003"},
		"lost reply, committed":    {Cut: true, Done: true},
		"lost reply, rolled back":  {Cut: true},
		"lost server, committed":   {SQLState: "08006", Done: true},
		"lost server, rolled back": {SQLState: "08006"},
		"cancelled, committed":     {SQLState: "57014", Done: true},
	} {
		t.Run(name, func(t *testing.T) {
			p, db, owned := proxied(t)
			prepare, rows := everything(owned)
			if _, err := db.Commit(t.Context(), batch(prepare)); err != nil {
				t.Fatal(err)
			}
			p.Judge(func(s pgtest.Statement) pgtest.Verdict {
				if s.Commits() {
					return verdict
				}
				return pgtest.Verdict{}
			})
			if _, err := db.Commit(t.Context(), batch(rows)); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("commit: %v", err)
			}
			p.Judge(nil)
			out, err := db.Commit(t.Context(), batch(rows))
			if err != nil {
				t.Fatal(err)
			}
			wantClean(t, out)
			written(t, db, rows)
		})
	}
}

// R3 for a take-over: asking again answers the same epoch.
func TestATakeOverWhoseReplyIsLost(t *testing.T) {
	for name, verdict := range map[string]pgtest.Verdict{"committed": {Cut: true, Done: true}, "rolled back": {Cut: true}} {
		t.Run(name, func(t *testing.T) {
			p, db, owned := proxied(t)
			cut := false
			p.Judge(func(s pgtest.Statement) pgtest.Verdict {
				if s.Commits() && !cut {
					cut = true
					return verdict
				}
				return pgtest.Verdict{}
			})
			claim := store.Claim{Node: "b", Rev: 2}
			if _, err := db.TakeOver(t.Context(), claim); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("take over: %v", err)
			}
			for range 2 {
				if o, err := db.TakeOver(t.Context(), claim); err != nil || o.Proof.Epoch != owned.Proof.Epoch+1 {
					t.Errorf("%+v, %v after epoch %d", o, err, owned.Proof.Epoch)
				}
			}
		})
	}
}

// The whole contract holds while the database asks for every fifth statement's
// transaction again, and for every fifth commit's.
func TestStoreInAStorm(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		p := newProxy(t)
		db := open(t, cockroach.Config{URL: behind(p, database(t, template)), Isolation: "serializable"})
		r := rand.New(rand.NewPCG(7, 7))
		p.Judge(func(s pgtest.Statement) pgtest.Verdict {
			odds := 0.05
			if s.Commits() {
				odds = 0.2
			}
			if s.N != 1 && r.Float64() < odds { // begin never is
				return pgtest.Verdict{SQLState: "40001"}
			}
			return pgtest.Verdict{}
		})
		return db
	})
}

// The whole contract holds where reads wait for writers: nothing that writes waits
// for a read of its own. And every statement that is sent meanwhile is one of those
// that are checked.
func TestStoreWhereReadsWaitForWriters(t *testing.T) {
	sent := map[string]bool{}
	storetest.Run(t, func(t *testing.T) store.Store {
		p := newProxy(t)
		db := open(t, cockroach.Config{URL: behind(p, database(t, template))})
		p.BlockReads(true)
		p.Judge(func(s pgtest.Statement) pgtest.Verdict {
			sent[s.SQL] = true
			return pgtest.Verdict{}
		})
		return db
	})
	listed := map[string]bool{"commit": true, "rollback": true, "": true, cockroach.DoubtfulTables(): true}
	for name, sql := range cockroach.Statements() {
		listed[sql] = true
		if !sent[sql] {
			t.Errorf("%s was never sent: %s", name, sql)
		}
	}
	for sql := range sent {
		if !listed[sql] && !strings.HasPrefix(sql, "begin") {
			t.Errorf("not one of Statements: %s", sql)
		}
	}
}

// A take-over's load waits for the commit of a slow predecessor, and sees it.
func TestALoadSeesASlowPredecessor(t *testing.T) {
	r := newRivals(t, "read committed")
	r.proxy.BlockReads(true)
	thaw := r.freeze(pgtest.Statement.Commits)
	committed := make(chan error, 1)
	time.AfterFunc(50*time.Millisecond, func() { committed <- thaw() })
	o := r.takeOver() // queues behind it
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	l, err := r.new.Load(t.Context(), o.Proof, nil)
	if err != nil || len(l.Recurring) != 1 || o.Watermark == r.owned.Watermark {
		t.Errorf("loaded %d jobs, watermark %s, %v", len(l.Recurring), o.Watermark, err)
	}
}

// A COMMIT that is on its way with its batch must not get past a fence that failed:
// the transaction has ended in the database.
func TestAPipelinedCommitDoesNotPassALostFence(t *testing.T) {
	db, url, owned := fresh(t)
	if _, err := db.TakeOver(t.Context(), store.Claim{Node: "b", Rev: 2}); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, url)
	var all pgx.Batch
	all.Queue(`BEGIN`)
	all.Queue(cockroach.Statements()["lockFence"], []int32{0}, []int64{int64(owned.Proof.Epoch)}, 1)
	all.Queue(`INSERT INTO inbox (shard, uid) VALUES (0, '\x01')`)
	all.Queue(`COMMIT`)
	if err := conn.SendBatch(t.Context(), &all).Close(); err == nil {
		t.Error("the batch succeeded")
	}
	_ = conn.Close(context.Background())
	if a, err := db.Audit(t.Context(), 0); err != nil || len(a.Inbox) != 0 {
		t.Errorf("inbox %v, %v", a.Inbox, err)
	}
}

// Connections that are cut again and again lose nothing that was acknowledged.
func TestConnectionsCutUnderLoad(t *testing.T) {
	p, db, owned := proxied(t)
	var cuts sync.WaitGroup
	stop := make(chan struct{})
	cuts.Go(func() {
		for {
			select {
			case <-time.After(20 * time.Millisecond):
				p.CutAll()
			case <-stop:
				return
			}
		}
	})
	const all = 20
	acknowledged := 0
	for n := byte(1); n <= all; {
		_, err := db.Commit(t.Context(), batch(store.ShardBatch{Proof: owned.Proof, Creates: []store.Create{{Job: everyMinute(n)}}}))
		if err == nil {
			acknowledged++
			n++
		} else if !errors.Is(err, store.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	close(stop)
	cuts.Wait()
	for {
		a, err := db.Audit(t.Context(), 0)
		if err == nil {
			if len(a.Jobs) != all || acknowledged != all {
				t.Errorf("%d jobs of %d", len(a.Jobs), acknowledged)
			}
			return
		}
	}
}
