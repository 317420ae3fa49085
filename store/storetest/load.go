package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

func cancelled(w *world) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	return ctx, cancel
}

// waitingRow is the backlog's row of a slot.
func waitingRow(s job.Slot, waiting bool, wakeAt job.Instant) store.BacklogRow {
	readyAt := s.CreatedAt
	if s.NotBefore != 0 {
		readyAt = s.NotBefore
	}
	return store.BacklogRow{Key: store.BacklogKey{Waiting: waiting, Handler: "h", Rank: readyAt, Slot: s.Key}, ReadyAt: readyAt, WakeAt: wakeAt, Trigger: s.Trigger}
}

var loadTests = map[string]func(*testing.T, *world){
	"recurring jobs that live": func(t *testing.T, w *world) {
		live, ended, once, elsewhere := w.recurring(1, "live"), w.recurring(1, "ended"), w.once(1, "once", w.at), w.recurring(2, "elsewhere")
		w.create(live, ended, once, elsewhere)
		w.commit(1, store.ShardBatch{Ends: []store.JobEnd{{UID: ended.UID, EndedAt: w.at}}, Watermark: w.at + 1})
		if got := namesOf(w.load(1).Recurring); got != "live " {
			t.Errorf("loaded %s", got)
		}
	},
	"jobs into the rows of others": func(t *testing.T, w *world) {
		rich, plain := w.recurring(1, "rich"), w.recurring(1, "plain")
		rich.Policies = job.Policies{StartDeadline: time.Minute, OnDeadLetter: "page", Retention: time.Hour}
		rich.Retry = job.RetryPolicy{MaxAttempts: 3, InitialBackoff: time.Second, MaxBackoff: time.Minute, Factor: 2, NonRetryable: "bad,worse"}
		plain.Params = nil
		w.create(rich, plain)
		want := []job.Job{rich, plain}
		for i := range want { // what an owner doesn't need
			want[i].Labels, want[i].RequestID, want[i].RequestHash, want[i].CreatedAt = nil, "", "", 0
		}
		for _, room := range [][]job.Job{nil, {{Name: "old", Quarantine: "old", EndedAt: 1, Params: []byte("1"), Labels: map[string]string{"a": "b"}}}, make([]job.Job, 9)} {
			l, err := w.Load(w.ctx, w.owned[1].Proof, room)
			w.ok(err)
			got := slices.SortedFunc(slices.Values(l.Recurring), func(a, b job.Job) int { return strings.Compare(b.Name, a.Name) })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("loaded (-want +got):\n%s", diff)
			}
			if len(room) >= len(want) && &room[0] != &l.Recurring[0] {
				t.Error("the room was not used")
			}
		}
	},
	"jobs that ended behind a gap's cursor still count": func(t *testing.T, w *world) {
		before, after := w.recurring(1, "before"), w.recurring(1, "after")
		w.create(before, after)
		w.commit(1, store.ShardBatch{
			Ends:      []store.JobEnd{{UID: before.UID, EndedAt: w.at - 1}, {UID: after.UID, EndedAt: w.at + 1}},
			GapPuts:   []store.Gap{{Key: store.GapKey{To: w.at + 9}, From: w.at, Cursor: job.SlotKey{FireTime: w.at}}},
			Watermark: w.at + 9,
		})
		if got := namesOf(w.load(1).Recurring); got != "after " {
			t.Errorf("loaded %s", got)
		}
	},
	"jobs that ended behind the watermark still count": func(t *testing.T, w *world) {
		before, after := w.recurring(1, "before"), w.recurring(1, "after")
		w.create(before, after)
		w.commit(1, store.ShardBatch{
			Ends:      []store.JobEnd{{UID: before.UID, EndedAt: w.at - 1}, {UID: after.UID, EndedAt: w.at + 1}},
			Watermark: w.at,
		})
		if got := namesOf(w.load(1).Recurring); got != "after " {
			t.Errorf("loaded %s", got)
		}
	},
	"open slots from open-from on": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		old, ready, running := w.slot(&j, w.at-job.Second), w.slot(&j, w.at), claimed(w.slot(&j, w.at+1), 1)
		done := finished(claimed(w.slot(&j, w.at+2), 1), job.Succeeded)
		w.insert(1, old, ready, running, done)
		w.commit(1, store.ShardBatch{OpenFrom: w.at})
		if got, want := keysOf(w.load(1).Open), fmt.Sprintf("j@%d j@%d ", w.at, w.at+1); got != want {
			t.Errorf("loaded %s, want %s", got, want)
		}
	},
	"the backlog's claimed slots are loaded, the waiting ones counted": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		running, waits := claimed(w.slot(&j, w.at), 1), w.slot(&j, w.at+1)
		w.insert(1, running, waits)
		w.commit(1, store.ShardBatch{BacklogPuts: []store.BacklogRow{waitingRow(running, false, w.at), waitingRow(waits, true, w.at+7)}})
		l := w.load(1)
		if got, want := keysOf(l.Claimed), fmt.Sprintf("j@%d ", w.at); got != want {
			t.Errorf("claimed %s, want %s", got, want)
		}
		if len(l.Backlog) != 1 || l.Backlog[0] != (store.BacklogCount{Handler: "h", Rows: 1, WakeAt: w.at + 7}) {
			t.Errorf("counts %+v", l.Backlog)
		}
		for _, s := range l.Open {
			if s.Slot.Key == waits.Key {
				t.Error("a waiting slot of the backlog was loaded")
			}
		}
	},
	"the backlog is read in its order, page by page": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		var want []job.SlotKey
		for i := range job.Instant(5) {
			s := w.slot(&j, w.at+i)
			s.NotBefore = w.at + 10 - i
			w.insert(1, s)
			w.commit(1, store.ShardBatch{BacklogPuts: []store.BacklogRow{waitingRow(s, true, s.NotBefore)}})
			want = append([]job.SlotKey{s.Key}, want...)
		}
		q := store.BacklogQuery{Handler: "h", Limit: 2}
		var got []job.SlotKey
		for {
			page, err := w.Waiting(w.ctx, w.owned[1].Proof, q)
			w.ok(err)
			for _, s := range page {
				got = append(got, s.Slot.Key)
				q.After = s.Row.Key
			}
			if len(page) < 2 {
				break
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
		w.commit(1, store.ShardBatch{BacklogDels: []store.BacklogKey{q.After}})
		all, err := w.Waiting(w.ctx, w.owned[1].Proof, store.BacklogQuery{UID: j.UID, Limit: 10})
		if err != nil || len(all) != 4 {
			t.Errorf("%d slots of the job, %v; want 4", len(all), err)
		}
	},
	"slots with a fairness key are counted, and read, apart": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		plain, one, two := w.slot(&j, w.at), w.slot(&j, w.at+1), w.slot(&j, w.at+2)
		w.insert(1, plain, one, two)
		rows := []store.BacklogRow{waitingRow(plain, true, w.at), waitingRow(one, true, w.at), waitingRow(two, true, w.at)}
		for i := range rows[1:] {
			rows[1+i].Key.Fairness, rows[1+i].Key.Rank = "f", 100-job.Instant(i) // an order of its own
		}
		w.commit(1, store.ShardBatch{BacklogPuts: rows})
		counts := ""
		for _, c := range w.load(1).Backlog {
			counts += fmt.Sprintf("%q:%d ", c.Fairness, c.Rows)
		}
		if counts != `"":1 "f":2 ` {
			t.Errorf("counts %s", counts)
		}
		for fairness, want := range map[string][]job.SlotKey{"": {plain.Key}, "f": {two.Key, one.Key}} {
			slots, err := w.Waiting(w.ctx, w.owned[1].Proof, store.BacklogQuery{Handler: "h", Fairness: fairness, Limit: 9})
			w.ok(err)
			var got []job.SlotKey
			for _, s := range slots {
				got = append(got, s.Slot.Key)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("fairness %q: read %v, want %v", fairness, got, want)
			}
		}
	},
	"slots that are to be checked, the earliest first": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		var rows []store.BacklogRow
		for i := range job.Instant(4) {
			s := w.slot(&j, w.at+i)
			w.insert(1, s)
			row := waitingRow(s, true, w.at)
			if i > 0 {
				row.CheckAt = w.at + 10 - i
			}
			rows = append(rows, row)
		}
		if l := w.load(1); l.CheckAt != 0 {
			t.Errorf("none is to be checked: %s", l.CheckAt)
		}
		w.commit(1, store.ShardBatch{BacklogPuts: rows})
		if l := w.load(1); l.CheckAt != w.at+7 {
			t.Errorf("the first is to be checked at %s, want %s", l.CheckAt, w.at+7)
		}
		slots, err := w.Waiting(w.ctx, w.owned[1].Proof, store.BacklogQuery{Checks: true, Limit: 2})
		w.ok(err)
		if len(slots) != 2 || slots[0].Row.CheckAt != w.at+7 || slots[1].Row.CheckAt != w.at+8 || slots[0].Slot.Key != rows[3].Key.Slot {
			t.Errorf("read %+v", slots)
		}
	},
	"skips are read by job, and stand as they were written first": func(t *testing.T, w *world) {
		a, b := w.recurring(1, "a"), w.recurring(1, "b")
		w.create(a, b)
		skip := func(j job.Job, from, to job.Instant) store.Skip {
			return store.Skip{UID: j.UID, From: w.at + from, To: w.at + to, Count: int64(to - from), Code: "c", MadeAt: w.at}
		}
		first, second, third := skip(a, 1, 5), skip(a, 6, 9), skip(b, 1, 5)
		w.commit(1, store.ShardBatch{Skips: []store.Skip{second, first, third}})
		w.commit(1, store.ShardBatch{Skips: []store.Skip{skip(a, 3, 5)}})
		for from, want := range map[job.Instant][]store.Skip{0: {first, second}, w.at + 5: {first, second}, w.at + 6: {second}, w.at + 10: nil} {
			got, err := w.Skips(w.ctx, 1, a.UID, from, 9)
			w.ok(err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("from %s: %s", from, diff)
			}
		}
	},
	"jobs of one fire time in order, page by page": func(t *testing.T, w *world) {
		late, first, second, past := w.once(1, "late", w.at+9), w.once(1, "first", w.at+1), w.once(1, "second", w.at+1), w.once(1, "past", w.at)
		beyond, ended, owed := w.once(1, "beyond", w.at+99), w.once(1, "ended", w.at+2), w.once(1, "owed", w.at+2)
		w.create(late, first, second, past, beyond, ended, owed)
		w.commit(1, store.ShardBatch{Ends: []store.JobEnd{{UID: ended.UID, EndedAt: w.at + 1}, {UID: owed.UID, EndedAt: w.at + 2}}})
		after, got := job.SlotKey{FireTime: w.at, UID: past.UID}, ""
		for {
			jobs, err := w.OnceJobs(w.ctx, w.owned[1].Proof, after, w.at+10, 1)
			w.ok(err)
			if len(jobs) == 0 {
				break
			}
			got += namesOf(jobs)
			after = job.SlotKey{FireTime: jobs[0].Schedule.At, UID: jobs[0].UID}
		}
		if got != "first second owed late " {
			t.Errorf("read %s", got)
		}
	},
	"one slot with its job": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		s := w.slot(&j, w.at)
		w.insert(1, s)
		got, err := w.SlotOf(w.ctx, w.owned[1].Proof, s.Key)
		if err != nil || got.Job.Name != "j" || got.Slot.Key != s.Key {
			t.Errorf("read %+v, %v", got, err)
		}
		if _, err := w.SlotOf(w.ctx, w.owned[1].Proof, job.SlotKey{FireTime: 1}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a missing slot: %v", err)
		}
	},
}

var inboxTests = map[string]func(*testing.T, *world){
	"jobs wait in the inbox and aren't loaded": func(t *testing.T, w *world) {
		a, b, once := w.recurring(1, "a"), w.recurring(2, "b"), w.once(1, "once", w.at)
		jobs := []job.Job{a, b, once}
		jobs[0].CreatedAt, jobs[0].EffectiveFrom = 0, 0
		existing, stored, err := w.Submit(w.ctx, jobs)
		w.ok(err)
		if got, err := w.JobByUID(w.ctx, "default", a.UID); err != nil || jobs[0].EffectiveFrom == 0 || got.EffectiveFrom != jobs[0].EffectiveFrom || got.CreatedAt != jobs[0].CreatedAt {
			t.Errorf("stored %+v, %v; answered %+v", got, err, jobs[0])
		}
		if !stored || existing[0] != nil || existing[1] != nil {
			t.Fatalf("stored %v, existing %v", stored, existing)
		}
		ids, err := w.InboxShards(w.ctx)
		w.ok(err)
		if fmt.Sprint(ids) != fmt.Sprint([]shard.ID{1, 2}) {
			t.Errorf("shards with an inbox: %v", ids)
		}
		if got := namesOf(w.load(1).Recurring); got != "" {
			t.Errorf("loaded %s from the inbox", got)
		}
		if jobs, err := w.OnceJobs(w.ctx, w.owned[1].Proof, job.SlotKey{}, w.at, 10); err != nil || len(jobs) > 0 {
			t.Errorf("read %v, %v from the inbox", namesOf(jobs), err)
		}
		drained, err := w.Drain(w.ctx, w.owned[1].Proof, 10)
		w.ok(err)
		if len(drained) != 2 || drained[0].EffectiveFrom == 0 {
			t.Errorf("drained %+v", drained)
		}
		w.commit(1, store.ShardBatch{InboxDels: []job.UID{a.UID, once.UID}})
		if got := namesOf(w.load(1).Recurring); got != "a " {
			t.Errorf("loaded %s, want a", got)
		}
	},
	"all or none": func(t *testing.T, w *world) {
		taken := w.recurring(1, "taken")
		w.create(taken)
		existing, stored, err := w.Submit(w.ctx, []job.Job{w.recurring(1, "free"), w.recurring(1, "taken")})
		w.ok(err)
		if stored || existing[0] != nil || existing[1] == nil || existing[1].UID != taken.UID {
			t.Errorf("stored %v, existing %v", stored, existing)
		}
		if _, err := w.Job(w.ctx, 1, "default", "free"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("a part was stored: %v", err)
		}
	},
	"a repeat meets itself": func(t *testing.T, w *world) {
		first := w.recurring(1, "j")
		first.RequestID = "r"
		_, _, err := w.Submit(w.ctx, []job.Job{first})
		w.ok(err)
		again := first
		again.UID = w.uid()
		existing, stored, err := w.Submit(w.ctx, []job.Job{again, w.recurring(1, "new")})
		w.ok(err)
		if !stored || existing[0] == nil || existing[0].UID != first.UID || existing[1] != nil {
			t.Errorf("stored %v, existing %v", stored, existing)
		}
		again.RequestHash = "another"
		if _, stored, err := w.Submit(w.ctx, []job.Job{again}); err != nil || stored {
			t.Errorf("another body under the same request id: stored %v, %v", stored, err)
		}
	},
}
