package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

var peopleTests = map[string]func(*testing.T, *world){
	// Whatever the filter and the size of a page, a list holds what the filter lets
	// through of all there is, in order, each once.
	"every filter of slots, page by page": func(t *testing.T, w *world) {
		all := w.mixed(rand.New(rand.NewPCG(1, 2)))
		for name, f := range slotFilters(w.at) {
			want := ""
			for i := range all {
				if all[i].Job.Namespace == "default" && f.Match(&all[i]) {
					want += fmt.Sprintf("%d %s\n", all[i].Job.Shard, keysOf(all[i:i+1]))
				}
			}
			if want == "" {
				t.Errorf("%s: the test has no slot for it", name)
			}
			for _, limit := range []int{1, 3, 50} {
				if got := w.listSlots(f, limit); got != want {
					t.Errorf("%s, %d at a time: %s", name, limit, cmp.Diff(want, got))
				}
			}
		}
	},
	"every filter of jobs, page by page": func(t *testing.T, w *world) {
		w.mixed(rand.New(rand.NewPCG(1, 2)))
		for name, f := range map[string]store.JobFilter{
			"none": {}, "handler": {Handler: "g"}, "label": {Labels: map[string]string{"team": "b"}},
			"two labels": {Labels: map[string]string{"team": "a", "tier": "1"}}, "kind": {Kinds: []job.Kind{job.KindOnce, job.KindImmediate}},
		} {
			var want []string
			for id := range shard.ID(shards) {
				for _, j := range w.audit(id).Jobs {
					if j.Namespace == "default" && f.Match(&j) {
						want = append(want, j.Name)
					}
				}
			}
			slices.Sort(want)
			for _, limit := range []int{1, 4, 100} {
				var got []string
				for p := (store.JobsPage{Namespace: "default", Filter: f, Limit: limit}); ; {
					page, next, err := w.Jobs(w.ctx, p)
					w.ok(err)
					for _, j := range page {
						got = append(got, j.Name)
					}
					if p.After = next; next == (store.JobCursor{}) {
						break
					}
				}
				if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
					t.Errorf("%s, %d at a time: %s", name, limit, diff)
				}
			}
		}
	},
	"slots are counted by state": func(t *testing.T, w *world) {
		all := w.mixed(rand.New(rand.NewPCG(1, 2)))
		since := w.at + 10*job.Second
		since -= since % (10 * job.Second)
		want := map[job.State]int64{}
		for i := range all {
			if all[i].Job.Namespace == "default" && all[i].Slot.Key.FireTime >= since {
				want[all[i].Slot.State]++
			}
		}
		dead := w.recurring(1, "long dead")
		old, waits := finished(claimed(w.slot(&dead, w.at-job.Second), 1), job.Dead), w.slot(&dead, w.at-2*job.Second)
		w.create(dead)
		w.insert(1, old, waits)
		w.commit(1, store.ShardBatch{DeadPuts: []store.DeadLetter{{Key: old.Key, Namespace: "default", Handler: "h"}},
			BacklogPuts: []store.BacklogRow{waitingRow(waits, true, w.at)}})
		want[job.Dead]++
		want[job.Ready]++
		got, err := w.CountSlots(w.ctx, "default", since-5*job.Second)
		w.ok(err)
		if diff := cmp.Diff(store.SlotCounts{ByState: want, Since: since}, got); diff != "" {
			t.Error(diff)
		}
	},
	"a count looks at a bounded number of slots, and says from when on": func(t *testing.T, w *world) {
		j := w.recurring(1, "j")
		w.create(j)
		var slots []job.Slot
		for i := range job.Instant(6000) {
			slots = append(slots, w.slot(&j, w.at+i*job.Second/10))
		}
		for chunk := range slices.Chunk(slots, 2000) {
			w.insert(1, chunk...)
		}
		got, err := w.CountSlots(w.ctx, "default", w.at)
		w.ok(err)
		last := slots[len(slots)-1].Key.FireTime
		exact := int64(0)
		for i := range slots {
			if slots[i].Key.FireTime >= got.Since {
				exact++
			}
		}
		if got.Since <= w.at || got.Since >= last || got.ByState[job.Ready] != exact {
			t.Errorf("counted %v since %s; %d are there", got.ByState, got.Since, exact)
		}
	},
	"dead letters by their cause": func(t *testing.T, w *world) {
		for id := range shard.ID(shards) {
			j := w.recurring(id, "j")
			w.create(j)
			for i := range 5 {
				s := finished(claimed(w.slot(&j, w.at+job.Instant(i)), 1), job.Dead)
				d := store.DeadLetter{Key: s.Key, Namespace: "default", Handler: "h", At: s.Key.FireTime, ErrorCode: "c", Fingerprint: fmt.Sprint("f", i%2), Sample: fmt.Sprint("sample ", i)}
				if id == 3 {
					d.Handler = "g"
				}
				w.commit(id, store.ShardBatch{Slots: []job.Slot{s}, DeadPuts: []store.DeadLetter{d}})
			}
		}
		got, err := w.DeadLetterGroups(w.ctx, "default", 3)
		w.ok(err)
		want := []store.DeadLetterGroup{
			{Handler: "h", Fingerprint: "f0", ErrorCode: "c", Sample: "sample 4", Count: 9, First: w.at, Latest: w.at + 4},
			{Handler: "h", Fingerprint: "f1", ErrorCode: "c", Sample: "sample 3", Count: 6, First: w.at + 1, Latest: w.at + 3},
			{Handler: "g", Fingerprint: "f0", ErrorCode: "c", Sample: "sample 4", Count: 3, First: w.at, Latest: w.at + 4},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		p, n := store.DeadLettersPage{Namespace: "default", Filter: store.DeadLetterFilter{Handler: "h", Fingerprint: "f0"}, Limit: 2}, 0
		for {
			page, next, err := w.DeadLetters(w.ctx, p)
			w.ok(err)
			for _, d := range page {
				if d.Handler != "h" || d.Fingerprint != "f0" {
					t.Errorf("listed %+v", d)
				}
				n++
			}
			if p.After = next; next == (store.DeadCursor{}) {
				break
			}
		}
		if n != 9 {
			t.Errorf("listed %d letters of the first group, want 9", n)
		}
	},
	"an audit shows all that is stored": func(t *testing.T, w *world) {
		a := w.audit(1)
		if a.Owner != "a" || a.Rev != 1 || a.Epoch != w.owned[1].Proof.Epoch || len(a.TakeOvers) != 1 || a.TakeOvers[0].Epoch != a.Epoch || a.TakeOvers[0].At == 0 {
			t.Errorf("%+v", a)
		}
		j := w.recurring(1, "j")
		j.Policies = job.Policies{StartDeadline: time.Minute, Overlap: job.Overlap{Mode: job.OverlapAllow, MaxRunning: 3}, OnDeadLetter: "page"}
		w.create(j)
		s := finished(claimed(w.slot(&j, w.at), 7), job.Dead)
		s.RequestedAt, s.Breaches, s.Params = w.at+4, job.BreachStart|job.BreachFinish, []byte(`{"a":1}`)
		s.Notes = job.Notes{Checkpoint: []byte{0, 255}, Done: 3, Total: 4, Note: "n", Log: "a line\n"}.Encode()
		waits := w.slot(&j, w.at+1)
		want := store.Audit{
			Shard: 1, Owner: a.Owner, Epoch: a.Epoch, Gen: a.Gen, Rev: a.Rev, Watermark: w.at, OpenFrom: w.at, RetainedFrom: w.at - 1, TakeOvers: a.TakeOvers,
			Jobs: []job.Job{j}, Slots: []job.Slot{s, waits},
			Attempts:    []store.SlotAttempt{{Key: s.Key, Attempt: job.Attempt{Number: 1, Worker: "w", Late: "late"}}},
			Backlog:     []store.BacklogRow{waitingRow(waits, true, w.at+5)},
			DeadLetters: []store.DeadLetter{{Key: s.Key, Namespace: "default", Handler: "h", At: w.at}},
			Gaps: []store.Gap{{Key: store.GapKey{To: w.at + 9}, From: w.at, Cursor: job.SlotKey{FireTime: w.at + 1, UID: j.UID}, MadeAt: w.at,
				Options: store.GapOptions{RequestedAt: w.at, Rate: 7}}},
			Skips:  []store.Skip{{UID: j.UID, From: w.at + 3, To: w.at + 7, Count: 5, Code: "why", MadeAt: w.at}},
			Events: []store.Event{{Seq: 1, At: w.at, Kind: store.EventDeadLetter, Job: j.UID, Fire: w.at, Detail: "d"}},
		}
		w.commit(1, store.ShardBatch{Watermark: want.Watermark, OpenFrom: want.OpenFrom, RetainedFrom: want.RetainedFrom, Slots: want.Slots, Attempts: want.Attempts,
			BacklogPuts: want.Backlog, DeadPuts: want.DeadLetters, GapPuts: want.Gaps, Skips: want.Skips, Events: want.Events})
		want.Gaps[0].Options.CatchUp = map[string]job.CatchUp{j.UID.String(): {Mode: job.CatchUpLatest}}
		w.commit(1, store.ShardBatch{GapChanges: []store.GapChange{{Key: want.Gaps[0].Key, Options: want.Gaps[0].Options}}})
		waiting := w.recurring(1, "waits")
		_, _, err := w.Submit(w.ctx, []job.Job{waiting})
		w.ok(err)
		want.Inbox = []job.UID{waiting.UID}
		want.Backlog[0].Trigger, want.Backlog[0].ReadyAt = 0, 0 // they aren't stored
		got := w.audit(1)
		got.Jobs = got.Jobs[:1]
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	},
}

// mixed stores jobs and slots of all kinds, and returns them newest first.
func (w *world) mixed(r *rand.Rand) []store.SlotOf {
	w.t.Helper()
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	var all []store.SlotOf
	taken := map[job.SlotKey]bool{}
	for n := range 24 {
		j := w.recurring(shard.ID(r.IntN(shards)), fmt.Sprintf("job-%02d", n))
		if n%4 == 0 {
			j = w.once(j.Shard, j.Name, w.at)
		}
		j.Handler, j.Namespace = pick("h", "g"), pick("default", "default", "other")
		j.Labels = map[string]string{"team": pick("a", "b"), "tier": pick("1", "2")}
		w.create(j)
		for range 12 {
			s := w.slot(&j, w.at+job.Instant(r.IntN(8))*4*job.Second)
			s.Trigger = job.Trigger(1 + r.IntN(4))
			if state := job.State(1 + r.IntN(8)); state > job.Ready {
				s = claimed(s, 1)
				s.State = state
				s.StartedAt = s.Key.FireTime.Add(time.Duration(r.IntN(5)) * time.Second)
			}
			if s.State > job.Running {
				s.FinishedAt, s.Outcome = s.StartedAt+1, job.Outcome(1+r.IntN(7))
				s.ErrorCode, s.ErrorText = pick("io", "net"), pick("Disk FULL", "50% off_by_one", "ключ")
			}
			if taken[s.Key] {
				continue
			}
			taken[s.Key] = true
			w.insert(j.Shard, s)
			all = append(all, store.SlotOf{Slot: s, Job: j})
		}
	}
	slices.SortFunc(all, func(a, b store.SlotOf) int {
		if a.Slot.Key.FireTime != b.Slot.Key.FireTime {
			return int(b.Slot.Key.FireTime - a.Slot.Key.FireTime)
		}
		if a.Job.Shard != b.Job.Shard {
			return int(b.Job.Shard) - int(a.Job.Shard)
		}
		return slices.Compare(b.Job.UID[:], a.Job.UID[:])
	})
	return all
}

func slotFilters(at job.Instant) map[string]store.SlotFilter {
	return map[string]store.SlotFilter{
		"none":      {},
		"states":    {States: []job.State{job.Dead, job.Ready}},
		"triggers":  {Triggers: []job.Trigger{job.TriggerManual}},
		"outcomes":  {Outcomes: []job.Outcome{job.OutcomeTimedOut, job.OutcomeFailed}},
		"from":      {From: at + 8*job.Second},
		"until":     {Until: at + 8*job.Second},
		"range":     {From: at + 4*job.Second, Until: at + 16*job.Second},
		"lateness":  {MinLateness: 3 * time.Second},
		"error":     {ErrorText: "disk f"},
		"wildcards": {ErrorText: "% OFF_"},
		"cyrillic":  {ErrorText: "КЛЮЧ"},
		"handler":   {Job: store.JobFilter{Handler: "g"}},
		"label":     {Job: store.JobFilter{Labels: map[string]string{"team": "a"}}},
		"much": {Job: store.JobFilter{Labels: map[string]string{"tier": "2"}}, States: []job.State{job.Succeeded, job.Dead, job.Cancelled, job.Expired},
			MinLateness: time.Second, Until: at + 29*job.Second},
	}
}

func (w *world) listSlots(f store.SlotFilter, limit int) string {
	w.t.Helper()
	got := ""
	for p := (store.SlotsPage{Namespace: "default", Filter: f, Limit: limit}); ; {
		page, next, err := w.Slots(w.ctx, p)
		w.ok(err)
		for i := range page {
			got += fmt.Sprintf("%d %s\n", page[i].Job.Shard, keysOf(page[i:i+1]))
		}
		if p.Before = next; next == (store.SlotCursor{}) {
			return got
		}
	}
}
