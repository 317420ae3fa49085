package storetest

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

var commitTests = map[string]func(*testing.T, *world){
	"a job is read back as it was written": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		j.RequestID, j.Labels = "r1", map[string]string{"team": "a", "empty": ""}
		w.create(j)
		got, err := w.Job(w.ctx, 1, "default", "j")
		w.ok(err)
		if diff := cmp.Diff(j, got); diff != "" {
			t.Error(diff)
		}
	},
	"a slot is read back as it was written": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		s := finished(claimed(w.slot(&j, w.at), 7), job.Succeeded)
		s.Failures, s.StartedAt, s.NotBefore, s.ErrorCode, s.ErrorText = 2, w.at+9, w.at+8, "code", "text \"with\" ünïcode"
		w.insert(1, s)
		if diff := cmp.Diff(s, w.read(1, s.Key)); diff != "" {
			t.Error(diff)
		}
	},
	"a commit tells how many statements it took": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		s := w.slot(&j, w.at)
		statements := func() int {
			out, err := w.Commit(w.ctx, store.Batch{Shards: []store.ShardBatch{{Proof: w.owned[1].Proof, Slots: []job.Slot{s}}}})
			w.ok(err)
			return out.Statements
		}
		// The fence and the insert; the second one meets the slot, and reads it.
		if first, second := statements(), statements(); first != 2 || second != 3 {
			t.Errorf("%d statements, and %d when the slot stands, want 2 and 3", first, second)
		}
	},
	"a create with a slot writes both or none": func(t *testing.T, w *world) {
		first, second := w.recurring(1, "j"), w.recurring(1, "j")
		s1, s2 := w.slot(&first, w.at), w.slot(&second, w.at)
		w.commit(1, store.ShardBatch{Creates: []store.Create{{Job: first, Slots: []job.Slot{s1}}}})
		out := w.commit(1, store.ShardBatch{Creates: []store.Create{{Job: second, Slots: []job.Slot{s2}}}})
		if got := out.Creates[second.UID]; got.UID != first.UID {
			t.Errorf("conflict with %v, want %v", got.UID, first.UID)
		}
		if w.read(1, s1.Key).State != job.Ready || w.read(1, s2.Key).State != job.StateNone {
			t.Error("the slot of the refused job was written, or the other was not")
		}
	},
	"a create that meets its request id names that job": func(t *testing.T, w *world) {
		made, named := w.recurring(1, "made"), w.recurring(1, "named")
		made.RequestID = "r"
		w.create(made, named)
		again := w.recurring(1, "named")
		again.RequestID = "r"
		out := w.commit(1, store.ShardBatch{Creates: []store.Create{{Job: again}}})
		if got := out.Creates[again.UID]; got.UID != made.UID {
			t.Errorf("conflict with %s, want the job of the request", got.Name)
		}
	},
	"a name is free again once its job ended": func(t *testing.T, w *world) {
		old := w.recurring(1, "j")
		w.create(old)
		w.commit(1, store.ShardBatch{Ends: []store.JobEnd{{UID: old.UID, EndedAt: w.at + 5}}})
		next := w.recurring(1, "j")
		w.create(next)
		got, err := w.Job(w.ctx, 1, "default", "j")
		w.ok(err)
		uids, err := w.JobUIDs(w.ctx, 1, "default", "j")
		w.ok(err)
		if got.UID != next.UID || len(uids) != 2 || uids[0] != next.UID || uids[1] != old.UID {
			t.Errorf("job %v, uids %v; want %v, then %v", got.UID, uids, next.UID, old.UID)
		}
	},
	"an ended job keeps its first end": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		for _, at := range []job.Instant{w.at + 5, w.at + 9} {
			w.commit(1, store.ShardBatch{Ends: []store.JobEnd{{UID: j.UID, EndedAt: at, ByItself: at == w.at+5}}})
		}
		got, err := w.JobByUID(w.ctx, "default", j.UID)
		w.ok(err)
		if got.EndedAt != w.at+5 || !got.EndedByItself {
			t.Errorf("ended at %v, by itself %v; want %v", got.EndedAt, got.EndedByItself, w.at+5)
		}
	},
	"a whole batch may be sent again": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		s, moved := w.slot(&j, w.at), w.slot(&j, w.at+job.Second)
		w.insert(1, moved)
		gap := store.Gap{Key: store.GapKey{To: w.at + 9}, From: w.at, Cursor: job.SlotKey{FireTime: w.at}, MadeAt: w.at}
		w.commit(1, store.ShardBatch{GapPuts: []store.Gap{gap}})
		other := w.recurring(1, "other")
		rows := store.ShardBatch{
			Creates:  []store.Create{{Job: other, Slots: []job.Slot{w.slot(&other, w.at)}}},
			Requests: []store.Request{{Namespace: "default", RequestID: "run", Hash: "h", Key: s.Key}},
			Slots:    []job.Slot{s},
			Updates:  []store.SlotUpdate{{Slot: claimed(moved, 1), FromState: job.Ready}},
			Attempts: []store.SlotAttempt{{Key: s.Key, Attempt: job.Attempt{Number: 1}}},
			GapMoves: []store.GapMove{{Key: gap.Key, From: gap.Cursor, To: s.Key}},
			Events:   []store.Event{{Seq: 1, At: w.at, Kind: store.EventDeadLetter}},
		}
		for range 2 {
			out := w.commit(1, rows)
			if len(out.Creates)+len(out.Slots)+len(out.Requests)+len(out.Gaps) > 0 {
				t.Errorf("the batch met itself: %+v", out)
			}
		}
		if events, err := w.Events(w.ctx, 1, 10); err != nil || len(events) != 1 {
			t.Errorf("events %v, %v; want one", events, err)
		}
	},
	"an inserted slot that exists is reported as it stands": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		s := w.slot(&j, w.at)
		done := finished(claimed(s, 1), job.Succeeded)
		w.insert(1, done)
		out := w.commit(1, store.ShardBatch{Slots: []job.Slot{s}})
		if got := out.Slots[s.Key]; got.State != job.Succeeded {
			t.Errorf("stands as %v, want SUCCEEDED", got.State)
		}
		if got := w.read(1, s.Key); got.State != job.Succeeded {
			t.Errorf("the slot became %v", got.State)
		}
	},
	// A live slot whose writer was lost, and the same occurrence made up for: both are
	// READY, and only one of them is stored.
	"another idea of a slot that exists is reported as it stands": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		s := w.slot(&j, w.at)
		w.insert(1, s)
		made, later := s, s
		made.Trigger = job.TriggerBackfill
		later.CreatedAt++
		for _, other := range []job.Slot{made, later} {
			out := w.commit(1, store.ShardBatch{Slots: []job.Slot{other}})
			if got := out.Slots[s.Key]; got.Trigger != s.Trigger || got.CreatedAt != s.CreatedAt {
				t.Errorf("%+v met %+v", other, got)
			}
		}
	},
	"a slot changes only from what the writer names": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		s := w.slot(&j, w.at)
		w.insert(1, s)
		running := claimed(s, 1)
		w.commit(1, store.ShardBatch{Updates: []store.SlotUpdate{{Slot: running, FromState: job.Ready}}})
		for _, from := range []store.SlotUpdate{{FromState: job.Ready}, {FromState: job.Running, FromAttempt: 2}, {FromState: job.Dead, FromAttempt: 1}} {
			from.Slot = finished(running, job.Dead)
			out := w.commit(1, store.ShardBatch{Updates: []store.SlotUpdate{from}})
			if got := out.Slots[s.Key]; got.State != job.Running || got.Attempt != 1 {
				t.Errorf("from %v/%d: stands as %v, want RUNNING", from.FromState, from.FromAttempt, got.State)
			}
		}
		missing := finished(claimed(w.slot(&j, w.at+job.Second), 1), job.Succeeded)
		out := w.commit(1, store.ShardBatch{Updates: []store.SlotUpdate{{Slot: missing, FromState: job.Running, FromAttempt: 1}}})
		if got, ok := out.Slots[missing.Key]; !ok || got.State != job.StateNone {
			t.Errorf("an update of a missing slot reports %v, %v", got, ok)
		}
	},
	"a request keeps its first effect": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		first, second := w.slot(&j, w.at+1), w.slot(&j, w.at+2)
		request := func(s job.Slot) store.ShardBatch {
			return store.ShardBatch{Slots: []job.Slot{s}, Requests: []store.Request{{Namespace: "default", RequestID: "run", Hash: "h", Key: s.Key}}}
		}
		w.commit(1, request(first))
		out := w.commit(1, request(second))
		if got := out.Requests["default/run"]; got.Key != first.Key || got.Hash != "h" {
			t.Errorf("earlier request %+v, want the first slot", got)
		}
		if w.read(1, second.Key).State != job.StateNone {
			t.Error("the slot of the repeated request was made")
		}
	},
	"of two equal requests in one batch the first wins": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		first, second := w.slot(&j, w.at+1), w.slot(&j, w.at+2)
		request := func(s job.Slot) store.Request {
			return store.Request{Namespace: "default", RequestID: "run", Hash: "h", Key: s.Key}
		}
		out := w.commit(1, store.ShardBatch{Slots: []job.Slot{first, second}, Requests: []store.Request{request(first), request(second)}})
		if got := out.Requests["default/run"]; got.Key != first.Key {
			t.Errorf("earlier request %+v, want the first slot", got)
		}
		if w.read(1, first.Key).State != job.Ready || w.read(1, second.Key).State != job.StateNone {
			t.Error("the first slot was not made, or the second was")
		}
	},
	"a gap moves from its cursor only": func(t *testing.T, w *world) {
		gap := store.Gap{Key: store.GapKey{To: w.at + 9}, From: w.at, Cursor: job.SlotKey{FireTime: w.at}, MadeAt: w.at}
		to := job.SlotKey{FireTime: w.at + 4, UID: w.uid()}
		w.commit(1, store.ShardBatch{GapPuts: []store.Gap{gap}})
		w.commit(1, store.ShardBatch{GapMoves: []store.GapMove{{Key: gap.Key, From: gap.Cursor, To: to}}})
		out := w.commit(1, store.ShardBatch{GapMoves: []store.GapMove{{Key: gap.Key, From: gap.Cursor, To: job.SlotKey{FireTime: w.at + 8}}}})
		if len(out.Gaps) != 1 || out.Gaps[0] != gap.Key {
			t.Errorf("a move from elsewhere reports %v", out.Gaps)
		}
		if gaps, err := w.GapsOf(w.ctx, 1); err != nil || len(gaps) != 1 || gaps[0].Cursor != to {
			t.Errorf("gaps %+v, %v; want the cursor at %v", gaps, err, to)
		}
		for range 2 { // closing twice is a resend
			out = w.commit(1, store.ShardBatch{GapMoves: []store.GapMove{{Key: gap.Key, From: to, To: to, Closed: true}}})
			if len(out.Gaps) > 0 {
				t.Errorf("closing reports %v", out.Gaps)
			}
		}
		if gaps, err := w.GapsOf(w.ctx, 1); err != nil || len(gaps) != 0 {
			t.Errorf("gaps %+v, %v; want none", gaps, err)
		}
	},
	"attempts and late results": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		s := w.slot(&j, w.at)
		w.insert(1, s)
		want := []job.Attempt{
			{Number: 1, Worker: "w", Epoch: 3, ClaimedAt: 1, StartedAt: 2, EndedAt: 4, Outcome: job.OutcomeLeaseLost, ErrorCode: "c", ErrorText: "t"},
			{Number: 2, Worker: "v", Epoch: 3, ClaimedAt: 5, EndedAt: 6, Outcome: job.OutcomeFailed},
		}
		w.commit(1, store.ShardBatch{Attempts: []store.SlotAttempt{{Key: s.Key, Attempt: want[1]}, {Key: s.Key, Attempt: want[0]}}})
		w.commit(1, store.ShardBatch{Lates: []store.LateResult{{Key: s.Key, Attempt: 1, Text: "SUCCEEDED"}}})
		want[0].Late = "SUCCEEDED"
		got, err := w.Attempts(w.ctx, 1, s.Key)
		w.ok(err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	},
	"dead letters come and go": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		s := finished(claimed(w.slot(&j, w.at), 1), job.Dead)
		key := s.Key
		w.insert(1, s)
		letter := store.DeadLetter{Key: key, Namespace: "default", Handler: "h", At: w.at, ErrorCode: "c", Fingerprint: "f", Sample: "s"}
		w.commit(1, store.ShardBatch{DeadPuts: []store.DeadLetter{letter}})
		if got := w.deadLetters(); len(got) != 1 || got[0] != (store.DeadLetterOf{Shard: 1, DeadLetter: letter}) {
			t.Errorf("dead letters %+v", got)
		}
		w.commit(1, store.ShardBatch{DeadDels: []job.SlotKey{key}})
		if got := w.deadLetters(); len(got) != 0 {
			t.Errorf("dead letters %+v; want none", got)
		}
	},
	"what hangs on a slot that isn't written isn't written": func(t *testing.T, w *world) {
		first, second := w.recurring(1, "j"), w.recurring(1, "j")
		w.create(first)
		done := finished(claimed(w.slot(&first, w.at), 1), job.Succeeded)
		w.insert(1, done)
		waits, later, other := w.slot(&first, w.at+1), w.slot(&first, w.at+1), w.slot(&first, w.at+1)
		later.CreatedAt++ // other ideas of the same slot
		other.Trigger = job.TriggerBackfill
		w.insert(1, waits)
		refused, exists := w.slot(&second, w.at), w.slot(&first, w.at)
		w.commit(1, store.ShardBatch{
			Creates:     []store.Create{{Job: second, Slots: []job.Slot{refused}}},
			Slots:       []job.Slot{exists, later, other},
			BacklogPuts: []store.BacklogRow{waitingRow(refused, true, w.at), waitingRow(exists, true, w.at), waitingRow(exists, false, w.at), waitingRow(later, true, w.at), waitingRow(other, true, w.at)},
			DeadPuts:    []store.DeadLetter{{Key: refused.Key, Namespace: "default", Handler: "h"}, {Key: exists.Key, Namespace: "default", Handler: "h"}},
		})
		if l := w.load(1); len(l.Backlog)+len(l.Claimed) > 0 {
			t.Errorf("in the backlog: %+v, %+v", l.Backlog, l.Claimed)
		}
		if letters := w.deadLetters(); len(letters) > 0 {
			t.Errorf("dead letters %+v", letters)
		}
	},
	"a row that can't be stored names its job, and nothing is written": func(t *testing.T, w *world) {
		good, poison := w.recurring(1, "good"), w.recurring(2, "poison")
		poison.Params = make([]byte, 8<<20)
		batch := store.Batch{Now: w.at, Shards: []store.ShardBatch{
			{Proof: w.owned[1].Proof, Creates: []store.Create{{Job: good}}},
			{Proof: w.owned[2].Proof, Creates: []store.Create{{Job: poison}}},
		}}
		_, err := w.Commit(w.ctx, batch)
		var refused *store.RefusedError
		if !errors.As(err, &refused) || refused.Shard != 2 || refused.UID != poison.UID {
			t.Fatalf("error %v, want a RefusedError of the poison job", err)
		}
		if _, err := w.Job(w.ctx, 1, "default", "good"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a part of the batch was written: %v", err)
		}
		batch.Shards[1] = batch.Shards[1].Without(poison.UID)
		_, err = w.Commit(w.ctx, batch)
		w.ok(err)
		_, err = w.Job(w.ctx, 1, "default", "good")
		w.ok(err)
	},
	"a cancelled call leaves the store usable": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		ctx, cancel := cancelled(w)
		defer cancel()
		if _, err := w.Commit(ctx, store.Batch{Shards: []store.ShardBatch{{Proof: w.owned[1].Proof, Creates: []store.Create{{Job: j}}}}}); err == nil {
			t.Error("a commit under a cancelled context succeeded")
		}
		w.create(w.recurring(1, "next"))
	},
}
