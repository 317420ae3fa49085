package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

var retentionTests = map[string]func(*testing.T, *world){
	// A dead letter was redriven when its slot was just deleted: its last attempt stayed, of no slot.
	"an attempt of a slot that is gone": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		gone := claimed(w.slot(&j, w.at), w.owned[1].Proof.Epoch)
		w.commit(1, store.ShardBatch{
			Updates:  []store.SlotUpdate{{Slot: gone, FromState: job.Dead, FromAttempt: 1}},
			Attempts: []store.SlotAttempt{{Key: gone.Key, Attempt: job.Attempt{Number: 1, Worker: "w", Outcome: job.OutcomeFailed}}},
		})
		if tries := w.audit(1).Attempts; len(tries) > 0 {
			t.Errorf("there are attempts of a slot that isn't: %+v", tries)
		}
	},
	"old slots are read in order, page by page": func(t *testing.T, w *world) {
		a, b := w.recurring(1, "a"), w.recurring(1, "b")
		b.Policies.Retention = time.Hour
		w.create(a, b)
		done, dead := finished(claimed(w.slot(&a, w.at), 1), job.Succeeded), finished(claimed(w.slot(&b, w.at), 1), job.Dead)
		open, young := w.slot(&a, w.at+1), w.slot(&a, w.at+2)
		w.insert(1, young, open, dead, done)
		var want, got []store.PruneSlot
		for _, s := range []job.Slot{done, dead, open} {
			want = append(want, store.PruneSlot{SlotPrune: store.SlotPrune{Key: s.Key, State: s.State, Attempt: s.Attempt}, FinishedAt: s.FinishedAt})
		}
		want[1].Retention = time.Hour
		for q := (store.PruneQuery{Until: w.at + 2, Limit: 2}); ; {
			page, err := w.OldSlots(w.ctx, w.owned[1].Proof, q)
			w.ok(err)
			got = append(got, page...)
			if len(page) < q.Limit {
				break
			}
			q.After = page[len(page)-1].Key
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	},
	"a slot goes with its attempts and its dead letter, if it stands as it was read": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		dead, changed, open := finished(claimed(w.slot(&j, w.at), 1), job.Dead), finished(claimed(w.slot(&j, w.at+1), 1), job.Dead), w.slot(&j, w.at+2)
		var rows store.ShardBatch
		for _, s := range []job.Slot{dead, changed, open} {
			rows.Slots = append(rows.Slots, s)
			rows.Attempts = append(rows.Attempts, store.SlotAttempt{Key: s.Key, Attempt: job.Attempt{Number: 1}})
		}
		for _, s := range []job.Slot{dead, changed} {
			rows.DeadPuts = append(rows.DeadPuts, store.DeadLetter{Key: s.Key, Namespace: "default", Handler: "h"})
		}
		w.commit(1, rows)
		prune := func(s job.Slot) store.SlotPrune {
			return store.SlotPrune{Key: s.Key, State: s.State, Attempt: s.Attempt}
		}
		redriven := changed
		redriven.State = job.Ready
		w.commit(1, store.ShardBatch{Updates: []store.SlotUpdate{{Slot: redriven, FromState: job.Dead, FromAttempt: 1}}})
		for range 2 { // sent again
			w.commit(1, store.ShardBatch{RetainedFrom: w.at + 9, SlotPrunes: []store.SlotPrune{prune(dead), prune(changed), prune(open)}})
		}
		a := w.audit(1)
		left := ""
		for _, s := range a.Slots {
			left += fmt.Sprint(int64(s.Key.FireTime-w.at), " ")
		}
		if left != "1 2 " || len(a.Attempts) != 2 || len(a.DeadLetters) != 1 || a.DeadLetters[0].Key != changed.Key || a.RetainedFrom != w.at+9 {
			t.Errorf("left slots %s, attempts %+v, letters %+v, retained from %s", left, a.Attempts, a.DeadLetters, a.RetainedFrom)
		}
		if at, err := w.RetainedFrom(w.ctx, 1); err != nil || at != w.at+9 {
			t.Errorf("retained from %v, %v", at, err)
		}
		w.commit(1, store.ShardBatch{RetainedFrom: w.at + 5})
		if o := w.takeOver(1, "b", 0, 2); o.RetainedFrom != w.at+9 {
			t.Errorf("the line fell to %s", o.RetainedFrom)
		}
	},
	"jobs that ended, in the order of their ends": func(t *testing.T, w *world) {
		live, late, first, second := w.recurring(1, "live"), w.recurring(1, "late"), w.recurring(1, "first"), w.recurring(1, "second")
		w.create(live, late, first, second)
		ends := []store.JobEnd{{UID: late.UID, EndedAt: w.at + 9}, {UID: first.UID, EndedAt: w.at + 1}, {UID: second.UID, EndedAt: w.at + 1}}
		w.commit(1, store.ShardBatch{Ends: ends})
		var got []store.EndedJob
		for q := (store.EndedQuery{Before: w.at + 9, Limit: 1}); ; {
			page, err := w.EndedJobs(w.ctx, w.owned[1].Proof, q)
			w.ok(err)
			got = append(got, page...)
			if len(page) < q.Limit {
				break
			}
			q.AfterTime, q.AfterUID = page[0].At, page[0].UID
		}
		if diff := cmp.Diff([]store.EndedJob{{UID: first.UID, At: w.at + 1}, {UID: second.UID, At: w.at + 1}}, got); diff != "" {
			t.Error(diff)
		}
	},
	"an ended job goes, one that lives or waits in the inbox stays": func(t *testing.T, w *world) {
		live, ended, waits := w.recurring(1, "live"), w.recurring(1, "ended"), w.recurring(1, "waits")
		w.create(live, ended)
		_, _, err := w.Submit(w.ctx, []job.Job{waits})
		w.ok(err)
		w.commit(1, store.ShardBatch{Ends: []store.JobEnd{{UID: ended.UID, EndedAt: w.at}, {UID: waits.UID, EndedAt: w.at}}})
		w.commit(1, store.ShardBatch{JobPrunes: []job.UID{live.UID, ended.UID, waits.UID}})
		for _, j := range []job.Job{live, waits} {
			if _, err := w.JobByUID(w.ctx, "default", j.UID); err != nil {
				t.Errorf("%s: %v", j.Name, err)
			}
		}
		if _, err := w.JobByUID(w.ctx, "default", ended.UID); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the ended job: %v", err)
		}
	},
	"jobs that are done": func(t *testing.T, w *world) {
		single := func(name string, at job.Instant, state job.State) {
			j := w.once(1, name, at)
			s := finished(claimed(w.slot(&j, at), 1), state)
			if at == 0 { // immediate
				j.Schedule = job.Schedule{Kind: job.KindImmediate}
				s.Key.FireTime, s.Trigger = w.at+7, job.TriggerImmediate
			}
			w.create(j)
			if state != job.StateNone {
				w.insert(1, s)
			}
		}
		single("done", w.at+1, job.Succeeded)
		single("cancelled", w.at+2, job.Cancelled)
		single("now", 0, job.Succeeded)
		single("fails now", 0, job.Dead)
		single("runs now", 0, job.Running)
		single("dead", w.at+1, job.Dead)
		single("runs", w.at+1, job.Running)
		single("later", w.at+50, job.StateNone)
		single("set aside", w.at+1, job.Succeeded)
		aside, err := w.Job(w.ctx, 1, "default", "set aside")
		w.ok(err)
		w.commit(1, store.ShardBatch{Quarantines: []store.JobQuarantine{{UID: aside.UID, Reason: "test"}}})
		late := w.once(1, "finished late", w.at+1)
		s := finished(claimed(w.slot(&late, w.at+1), 1), job.Succeeded)
		s.FinishedAt = w.at + 40
		w.create(late)
		w.insert(1, s)
		again := w.once(1, "run again", w.at+1)
		manual := w.slot(&again, w.at+5)
		manual.Trigger = job.TriggerManual
		w.create(again, w.recurring(1, "recurring"))
		w.insert(1, finished(claimed(w.slot(&again, w.at+1), 1), job.Succeeded), manual)
		_, _, err = w.Submit(w.ctx, []job.Job{w.once(1, "waits", w.at)})
		w.ok(err)
		ended := w.once(1, "deleted", w.at+1)
		ended.EndedAt = w.at + 3
		w.create(ended)
		got := ""
		for q := (store.EndedQuery{Before: w.at + 40, Limit: 1}); ; {
			page, err := w.DoneJobs(w.ctx, w.owned[1].Proof, q)
			w.ok(err)
			for _, d := range page {
				j, err := w.JobByUID(w.ctx, "default", d.UID)
				w.ok(err)
				if q.AfterTime, q.AfterUID = d.At, d.UID; d.Done {
					got += fmt.Sprintf("%s@%d ", j.Name, d.At-w.at)
				}
			}
			if len(page) < q.Limit {
				break
			}
		}
		if want := "now@0 done@1 cancelled@2 "; got != want {
			t.Errorf("read %s, want %s", got, want)
		}
	},
	"a recurring job is spent once nothing of it is dead, or new": func(t *testing.T, w *world) {
		last, before := w.at+10, w.at+100
		for what, c := range map[string]struct {
			rows func(j *job.Job) store.ShardBatch
			want bool
		}{
			"no slot": {func(*job.Job) store.ShardBatch { return store.ShardBatch{} }, true},
			"finished": {func(j *job.Job) store.ShardBatch {
				return store.ShardBatch{Slots: []job.Slot{finished(claimed(w.slot(j, last), 1), job.Succeeded)}}
			}, true},
			"the last one runs": {func(j *job.Job) store.ShardBatch {
				return store.ShardBatch{Slots: []job.Slot{claimed(w.slot(j, last), 1)}}
			}, false},
			"the last one finished lately": {func(j *job.Job) store.ShardBatch {
				s := finished(claimed(w.slot(j, last), 1), job.Succeeded)
				s.FinishedAt = before
				return store.ShardBatch{Slots: []job.Slot{s}}
			}, false},
			"a run by hand finished lately": {func(j *job.Job) store.ShardBatch {
				s := finished(claimed(w.slot(j, last+1), 1), job.Succeeded)
				s.Trigger, s.FinishedAt = job.TriggerManual, before+1
				return store.ShardBatch{Slots: []job.Slot{s}}
			}, false},
			"a run by hand finished long ago": {func(j *job.Job) store.ShardBatch {
				s := finished(claimed(w.slot(j, last+1), 1), job.Succeeded)
				s.Trigger = job.TriggerManual
				return store.ShardBatch{Slots: []job.Slot{s}}
			}, true},
			"one is dead": {func(j *job.Job) store.ShardBatch {
				s := finished(claimed(w.slot(j, w.at+4), 1), job.Dead)
				s.Outcome, s.Result = job.OutcomeFailed, nil
				return store.ShardBatch{Slots: []job.Slot{s}, DeadPuts: []store.DeadLetter{{Key: s.Key, Namespace: "default", Handler: "h", At: s.FinishedAt}}}
			}, false},
		} {
			j := w.recurring(1, what)
			w.create(j)
			w.commit(1, c.rows(&j))
			done, err := w.SpentJob(w.ctx, w.owned[1].Proof, j.UID, last, before)
			w.ok(err)
			if done != c.want {
				t.Errorf("%s: spent %v", what, done)
			}
		}
		if _, err := w.SpentJob(w.ctx, shard.Proof{Shard: 1, Epoch: 7}, w.uid(), last, before); !errors.As(err, new(*store.FencedError)) {
			t.Errorf("under a stale proof: %v", err)
		}
	},
	"old requests, events and skips go, a bounded number at once": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		const many = store.MaxOldRows + 10
		var rows store.ShardBatch
		for i := range job.Instant(many) {
			rows.Events = append(rows.Events, store.Event{Seq: int64(i) + 1, At: w.at + i, Kind: store.EventLateResult})
			rows.Skips = append(rows.Skips, store.Skip{UID: j.UID, From: w.at + i, To: w.at + i, Count: 1, MadeAt: w.at + i})
			rows.Requests = append(rows.Requests, store.Request{Namespace: "default", RequestID: fmt.Sprint("r", int64(i)), Key: job.SlotKey{FireTime: w.at + i, UID: j.UID}})
		}
		w.commit(1, rows)
		prune := func() int {
			w.commit(1, store.ShardBatch{Old: store.Old{EventsBefore: w.at + many - 2, RequestsBefore: w.at + many - 1, SkipsBefore: w.at + many - 2}})
			a := w.audit(1)
			if len(a.Skips) != len(a.Events) {
				t.Errorf("%d skips are left, and %d events", len(a.Skips), len(a.Events))
			}
			return len(a.Events)
		}
		oldest := func(want job.Instant) {
			old, err := w.Oldest(w.ctx, w.owned[1].Proof, store.Old{RequestsFrom: w.at, EventsFrom: w.at, SkipsFrom: w.at})
			if w.ok(err); old != (store.Old{RequestsFrom: want, EventsFrom: want, SkipsFrom: want}) {
				t.Errorf("the oldest are %+v, want all at %s", old, want)
			}
		}
		oldest(w.at)
		if left := prune(); left != many-store.MaxOldRows {
			t.Errorf("%d events are left after one batch", left)
		}
		oldest(w.at + store.MaxOldRows)
		if old, err := w.Oldest(w.ctx, w.owned[2].Proof, store.Old{}); err != nil || old != (store.Old{}) {
			t.Errorf("the oldest of an empty shard are %+v, %v", old, err)
		}
		if left := prune(); left != 2 {
			t.Errorf("%d events are left after two", left)
		}
		made := 0
		for i := range job.Instant(many) { // a request that is remembered answers with its first effect
			key := job.SlotKey{FireTime: w.at + many + i, UID: j.UID}
			out := w.commit(1, store.ShardBatch{Requests: []store.Request{{Namespace: "default", RequestID: fmt.Sprint("r", int64(i)), Key: key}}})
			if len(out.Requests) == 0 {
				made++
			}
		}
		if made != many-1 {
			t.Errorf("%d of %d requests were forgotten, want all but the newest", made, many)
		}
	},
}
