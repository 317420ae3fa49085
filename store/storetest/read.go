package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

var readTests = map[string]func(*testing.T, *world){
	"what isn't there": func(t *testing.T, w *world) {
		_, err1 := w.Job(w.ctx, 1, "default", "none")
		_, err2 := w.JobByUID(w.ctx, "default", w.uid())
		_, err3 := w.JobByRequest(w.ctx, 1, "default", "none")
		_, err4 := w.Handler(w.ctx, "none")
		for i, err := range []error{err1, err2, err3, err4} {
			if !errors.Is(err, store.ErrNotFound) {
				t.Errorf("%d: %v, want ErrNotFound", i, err)
			}
		}
	},
	"a job by its uid, in its namespace only": func(t *testing.T, w *world) {
		j := w.recurring(3, "j")
		w.create(j)
		if got, err := w.JobByUID(w.ctx, "default", j.UID); err != nil || got.Name != "j" {
			t.Errorf("read %v, %v", got.Name, err)
		}
		if _, err := w.JobByUID(w.ctx, "other", j.UID); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("another namespace read it: %v", err)
		}
	},
	"a job by its request": func(t *testing.T, w *world) {
		j := w.recurring(3, "j")
		j.RequestID = "r"
		w.create(j)
		if got, err := w.JobByRequest(w.ctx, 3, "default", "r"); err != nil || got.UID != j.UID {
			t.Errorf("read %v, %v", got.UID, err)
		}
	},
	"jobs by name, page by page": func(t *testing.T, w *world) {
		ended := w.recurring(1, "b")
		w.create(ended)
		w.commit(1, store.ShardBatch{Ends: []store.JobEnd{{UID: ended.UID, EndedAt: w.at}}})
		other := w.recurring(0, "x")
		other.Namespace = "other"
		w.create(w.recurring(3, "c"), w.recurring(1, "b"), w.recurring(2, "a"), other)
		for showEnded, want := range map[bool]string{false: "a b c ", true: "a b b c "} {
			p, got := store.JobsPage{Namespace: "default", ShowEnded: showEnded, Limit: 1}, ""
			for {
				jobs, next, err := w.Jobs(w.ctx, p)
				w.ok(err)
				got += namesOf(jobs)
				if next == (store.JobCursor{}) {
					break
				}
				p.After = next
			}
			if got != want {
				t.Errorf("show ended %v: listed %s, want %s", showEnded, got, want)
			}
		}
	},
	// Rows with equal times must be neither skipped nor repeated at a page's border.
	"slots of equal fire times, page by page": func(t *testing.T, w *world) {
		want := map[string]bool{}
		for id := range shard.ID(shards) {
			for i := range 25 {
				j := w.recurring(id, fmt.Sprintf("j-%d-%d", id, i))
				w.create(j)
				s := w.slot(&j, w.at+job.Instant(i%2))
				w.insert(id, s)
				want[j.Name] = true
			}
		}
		p, got, last := store.SlotsPage{Namespace: "default", Limit: 7}, map[string]bool{}, job.MaxInstant
		for {
			slots, next, err := w.Slots(w.ctx, p)
			w.ok(err)
			for _, s := range slots {
				if got[s.Job.Name] {
					t.Fatalf("slot of %s was listed twice", s.Job.Name)
				}
				if s.Slot.Key.FireTime > last {
					t.Fatal("not newest first")
				}
				got[s.Job.Name], last = true, s.Slot.Key.FireTime
			}
			if next == (store.SlotCursor{}) {
				break
			}
			p.Before = next
		}
		if len(got) != len(want) {
			t.Errorf("listed %d slots, want %d", len(got), len(want))
		}
	},
	"slots by namespace and state": func(t *testing.T, w *world) {
		mine, other := w.recurring(1, "mine"), w.recurring(1, "other")
		other.Namespace = "other"
		w.create(mine, other)
		w.insert(1, w.slot(&mine, w.at), claimed(w.slot(&mine, w.at+1), 1), w.slot(&other, w.at+2))
		for _, c := range []struct {
			states []job.State
			want   string
		}{
			{nil, fmt.Sprintf("mine@%d mine@%d ", w.at+1, w.at)},
			{[]job.State{job.Running}, fmt.Sprintf("mine@%d ", w.at+1)},
			{[]job.State{job.Dead, job.Ready}, fmt.Sprintf("mine@%d ", w.at)},
		} {
			slots, next, err := w.Slots(w.ctx, store.SlotsPage{Namespace: "default", Filter: store.SlotFilter{States: c.states}, Limit: 10})
			w.ok(err)
			if keysOf(slots) != c.want || next != (store.SlotCursor{}) {
				t.Errorf("states %v: %s, next %v; want %s", c.states, keysOf(slots), next, c.want)
			}
		}
	},
	"slots that no schedule asked for": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		for i, trigger := range []job.Trigger{job.TriggerSchedule, job.TriggerManual, job.TriggerImmediate, job.TriggerBackfill, job.TriggerManual} {
			s := w.slot(&j, w.at+job.Instant(i))
			s.Trigger = trigger
			w.insert(1, s)
		}
		got, err := w.UnscheduledSlots(w.ctx, 1, j.UID, w.at+4, 10)
		w.ok(err)
		if len(got) != 2 || got[0].Key.FireTime != w.at+2 || got[1].Key.FireTime != w.at+1 {
			t.Errorf("read %+v", got)
		}
	},
	"keys before a place, newest first": func(t *testing.T, w *world) {
		a, b := w.recurring(1, "a"), w.recurring(1, "b")
		w.create(a, b)
		w.insert(1, w.slot(&a, w.at), w.slot(&b, w.at), w.slot(&a, w.at+1), w.slot(&a, w.at+2))
		var got []job.SlotKey
		for before := (job.SlotKey{FireTime: w.at + 2}); ; {
			page, err := w.KeysBefore(w.ctx, 1, before, 2)
			w.ok(err)
			if got = append(got, page...); len(page) < 2 {
				break
			}
			before = page[1]
		}
		want := []job.SlotKey{{FireTime: w.at + 1, UID: a.UID}, {FireTime: w.at, UID: b.UID}, {FireTime: w.at, UID: a.UID}}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
	},
	"many slots by key": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		var keys []job.SlotKey
		var slots []job.Slot
		for i := range job.Instant(1200) {
			s := w.slot(&j, w.at+i)
			keys = append(keys, s.Key)
			if i%2 == 0 {
				slots = append(slots, s)
			}
		}
		w.insert(1, slots...)
		got, err := w.SlotsByKey(w.ctx, 1, keys)
		w.ok(err)
		if len(got) != len(slots) {
			t.Errorf("read %d slots, want %d", len(got), len(slots))
		}
	},
	"the catalog": func(t *testing.T, w *world) {
		w.ok(w.RegisterHandlers(w.ctx, []string{"b", "a"}, w.at))
		w.ok(w.RegisterHandlers(w.ctx, []string{"b", "c"}, w.at+9))
		w.ok(w.RegisterHandlers(w.ctx, []string{"b"}, w.at+5))
		h, err := w.Handler(w.ctx, "b")
		if err != nil || h != (store.Handler{Name: "b", CreatedAt: w.at, LastSeenAt: w.at + 9}) {
			t.Errorf("read %+v, %v", h, err)
		}
		page, err := w.Handlers(w.ctx, "a", 1)
		if err != nil || len(page) != 1 || page[0].Name != "b" {
			t.Errorf("listed %+v, %v", page, err)
		}
	},
	"events, newest first": func(t *testing.T, w *world) {
		want := store.Event{Seq: 2, At: w.at, Kind: store.EventDeadLetter, Job: w.uid(), Fire: w.at, Detail: "d"}
		w.commit(1, store.ShardBatch{Events: []store.Event{{Seq: 1, At: w.at, Kind: store.EventShardTaken}, want}})
		got, err := w.Events(w.ctx, 1, 1)
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("read %+v, %v", got, err)
		}
	},
}
