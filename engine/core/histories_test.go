package core

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	"github.com/carillon-scheduler/carillon/store"
)

// TestRandomHistories lets random things happen to a shard, its workers and its
// database, crashes before and after a commit among them, then heals everything
// and checks that nothing was lost, doubled or left behind. The model checks the
// invariants at every commit. A failing seed replays exactly.
func TestRandomHistories(t *testing.T) {
	seeds := uint64(300)
	if n, err := strconv.ParseUint(os.Getenv("CARILLON_HISTORY_SEEDS"), 10, 64); err == nil {
		seeds = n
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { runHistory(t, seed) })
	}
}

// history is a rig with random hands.
type history struct {
	*rig
	rnd     *rand.Rand
	holding map[string][]Assign // by worker
	workers map[string]WorkerKey
	old     []Assign // ended or lost: whatever comes of them must be refused or repeated
	starts  int
	names   int
	healed  job.Instant
}

func runHistory(t *testing.T, seed uint64) {
	h := &history{rig: newRig(t), rnd: seeded(seed), holding: map[string][]Assign{}, workers: map[string]WorkerKey{}}
	h.cfg.Random = h.rnd.Float64
	h.eager = func() bool { return h.rnd.IntN(4) == 0 }
	h.cfg.ReadyLimit = 5 + h.rnd.IntN(20)
	h.cfg.LineLimit = 2 + h.rnd.IntN(5)
	h.cfg.GapChunk = 1 + h.rnd.IntN(20)
	switch h.rnd.IntN(3) {
	case 0: // a shard of a busy node
		h.room = func() int { return 1 + h.rnd.IntN(8) }
	case 1: // a chunk of a gap just has room
		h.room = func() int { return h.cfg.GapChunk + h.rnd.IntN(2*h.cfg.LineLimit) }
	}
	h.cfg.PageLimit = 2 + h.rnd.IntN(10)
	h.cfg.OnceWindow = time.Duration(1+h.rnd.IntN(60)) * time.Second
	if h.rnd.IntN(2) == 0 {
		h.cfg.Retention = time.Duration(5+h.rnd.IntN(60)) * time.Second
		h.cfg.DeadRetention = time.Duration(5+h.rnd.IntN(120)) * time.Second
		h.cfg.NameRetention = time.Duration(1+h.rnd.IntN(60)) * time.Second
		h.cfg.PassEvery, h.cfg.FullPassEvery = time.Duration(1+h.rnd.IntN(5))*time.Second, time.Duration(1+h.rnd.IntN(15))*time.Second
	}
	h.cfg.OpenFromLag, h.cfg.OpenFromEvery = 10*time.Second, time.Second
	h.restart()
	for range 150 {
		h.act()
		h.receive()
	}
	h.heal()
}

func (h *history) act() {
	switch n := h.rnd.IntN(100); {
	case n < 25:
		h.sleep(time.Duration(h.rnd.IntN(3000)) * time.Millisecond)
	case n < 37:
		h.createOne()
	case n < 40:
		h.deleteOne()
	case n < 45:
		h.triggerOne()
	case n < 48:
		h.cancelOne()
	case n < 58:
		h.joinOne()
	case n < 62:
		h.loseOne()
	case n < 85:
		h.finishOne()
	case n < 90:
		h.repeatOne()
	case n < 93 && !h.hold:
		h.hold = true
	case n < 97:
		h.release()
	default:
		h.crash()
	}
}

// receive hands what was sent to the workers that are there.
func (h *history) receive() {
	for all := takeAll[Assign](h.rig); len(all) > 0; all = takeAll[Assign](h.rig) { // what can't be delivered is assigned anew
		for _, a := range all {
			key, ok := h.workers[a.Worker.ID]
			if !ok || key != a.Worker {
				h.step(Undeliverable{Worker: a.Worker, Token: a.Token})
				h.old = append(h.old, a)
				continue
			}
			h.holding[key.ID] = append(h.holding[key.ID], a)
		}
	}
	for _, stop := range takeAll[Stop](h.rig) {
		h.drop(stop.Worker, stop.Token)
	}
	h.said = nil
}

// drop takes an attempt from a worker, which gets its credit back.
func (h *history) drop(worker WorkerKey, token Token) bool {
	for i, a := range h.holding[worker.ID] {
		if a.Token == token && a.Worker == worker {
			h.holding[worker.ID] = append(h.holding[worker.ID][:i], h.holding[worker.ID][i+1:]...)
			h.old = append(h.old, a)
			if w := h.rig.workers.Get(worker.ID); w != nil && w.Key == worker {
				h.rig.workers.AddCredit(w, 1)
			}
			return true
		}
	}
	return false
}

// planned returns a schedule with all that one may have, close enough to happen.
func (h *history) planned() job.Schedule {
	now := job.AtSecond(h.now.Seconds())
	seconds := func(most int) time.Duration { return time.Duration(h.rnd.IntN(most)) * time.Second }
	s := everySecond
	s.Spread, s.Offset = 10*time.Second, seconds(10)
	s.Start = now.Add(seconds(20))
	s.End = s.Start.Add(seconds(60))
	s.MaxOccurrences = int32(h.rnd.IntN(10)) // 0: without
	off := s.Start.Add(seconds(10)).Time()
	made, err := schedule.NewCalendar("off", 1, []string{off.Format(time.RFC3339) + "/" + off.Add(time.Second+seconds(20)).Format(time.RFC3339)})
	if err != nil {
		h.t.Fatal(err)
	}
	s.Calendars = schedule.Exclude([]*schedule.Calendar{made}).String()
	return s
}

func (h *history) createOne() {
	h.names++
	schedules := []job.Schedule{everySecond, {Kind: job.KindCron, Cron: "*/7 * * * * *"}, {Kind: job.KindImmediate},
		{Kind: job.KindOnce, At: job.AtSecond(h.now.Seconds() + int64(h.rnd.IntN(120)) - 20)}, h.planned()}
	j := h.newJob(fmt.Sprintf("j%d", h.rnd.IntN(h.names)), schedules[h.rnd.IntN(len(schedules))])
	j.UID[1] = byte(h.names >> 8)
	j.UID[15] = byte(h.names)
	j.Retry.MaxAttempts = int32(1 + h.rnd.IntN(4))
	j.Policies = h.somePolicies()
	if h.rnd.IntN(4) == 0 {
		j.RequestID = fmt.Sprintf("r%d", h.rnd.IntN(h.names))
	}
	if h.rnd.IntN(5) == 0 && !h.nameTaken(j) {
		j.EffectiveFrom, j.CreatedAt = h.now, h.now
		h.jobs[j.UID], h.inbox[j.UID] = j, true
		h.step(InboxHint{})
		return
	}
	h.step(Create{Tag: 1, Job: j})
}

// somePolicies returns policies of which a few say something, close enough to happen.
func (h *history) somePolicies() (p job.Policies) {
	one := func() bool { return h.rnd.IntN(4) == 0 }
	seconds := func(most int) time.Duration { return time.Duration(1+h.rnd.IntN(most)) * time.Second }
	if one() {
		p.StartDeadline = seconds(30)
	}
	if one() {
		p.TotalDeadline = p.StartDeadline + seconds(60)
	}
	if one() {
		p.CatchUp = []job.CatchUp{{Mode: job.CatchUpLatest}, {Mode: job.CatchUpNone}, {MaxCount: int32(1 + h.rnd.IntN(5))}, {MaxAge: seconds(20)}}[h.rnd.IntN(4)]
	}
	if h.rnd.IntN(2) == 0 {
		p.Overlap = []job.Overlap{{MaxRunning: int32(1 + h.rnd.IntN(3))}, {Mode: job.OverlapQueue}, {Mode: job.OverlapSkip}, {Mode: job.OverlapReplace}}[h.rnd.IntN(4)]
	}
	if one() {
		p.Priority = int32(h.rnd.IntN(5) - 2)
	}
	if one() {
		p.StartWithin, p.FinishWithin = seconds(5), seconds(30)
	}
	if one() {
		p.OnDeadLetter = "h"
	}
	return p
}

func (h *history) nameTaken(j job.Job) bool {
	for _, o := range h.jobs {
		if o.Name == j.Name && o.EndedAt == 0 || o.RequestID != "" && o.RequestID == j.RequestID {
			return true
		}
	}
	return false
}

// anyJob picks a stored job that its shard knows, in a stable order.
func (h *history) anyJob() (job.Job, bool) {
	for range 10 {
		n := 1 + h.rnd.IntN(max(h.names, 1))
		if j, ok := h.jobs[job.UID{0: 1, 1: byte(n >> 8), 15: byte(n)}]; ok && !h.inbox[j.UID] {
			return j, true
		}
	}
	return job.Job{}, false
}

func (h *history) deleteOne() {
	if j, ok := h.anyJob(); ok {
		h.step(Delete{Tag: 2, Job: j})
	}
}

func (h *history) triggerOne() {
	switch h.rnd.IntN(8) {
	case 0:
		h.askForGaps()
		return
	case 1:
		h.redriveOne()
		return
	}
	if j, ok := h.anyJob(); ok {
		h.step(Trigger{Tag: 3, Job: j, RequestID: fmt.Sprintf("t%d", h.rnd.IntN(20)), Hash: j.Name})
	}
}

// askForGaps asks for a backfill, cancels one, or changes what a gap makes up for.
func (h *history) askForGaps() {
	j, ok := h.anyJob()
	gaps := h.s.Gaps()
	switch {
	case !ok:
	case len(gaps) > 0 && h.rnd.IntN(3) == 0:
		h.step(CancelBackfill{Tag: 5, Key: gaps[h.rnd.IntN(len(gaps))].Key, Reason: "test"})
	case len(gaps) > 0 && h.rnd.IntN(2) == 0:
		h.step(ChangeCatchUp{Tag: 6, Key: gaps[h.rnd.IntN(len(gaps))].Key, UID: j.UID, CatchUp: h.somePolicies().CatchUp, Reason: "test"})
	default:
		from := h.now.Add(-time.Duration(h.rnd.IntN(90)) * time.Second)
		h.step(Backfill{Tag: 7, Job: j, From: from, Until: from.Add(time.Duration(h.rnd.IntN(60)) * time.Second), Rate: int32(h.rnd.IntN(4)), Reason: "test"})
	}
}

// redriveOne redrives, or discards, a dead letter.
func (h *history) redriveOne() {
	dead := slices.SortedFunc(maps.Keys(h.dead), compareKeys)
	if len(dead) == 0 {
		return
	}
	found := store.SlotOf{Slot: h.slots[dead[0]], Job: h.jobs[dead[0].UID]}
	if h.rnd.IntN(3) == 0 {
		h.step(DiscardSlot{Tag: 8, Found: found, Reason: "test"})
	} else {
		h.step(RedriveSlot{Tag: 8, Found: found, Reason: "test"})
	}
}

func (h *history) cancelOne() {
	for id := range 3 {
		if held := h.holding[fmt.Sprintf("w%d", id)]; len(held) > 0 {
			key := held[0].Token.Key
			h.step(CancelSlot{Tag: 4, Found: store.SlotOf{Slot: h.slots[key], Job: h.jobs[key.UID]}, Reason: "test"})
			return
		}
	}
}

func (h *history) joinOne() {
	h.starts++
	id := fmt.Sprintf("w%d", h.rnd.IntN(3))
	if old, ok := h.workers[id]; ok {
		h.lose(old)
	}
	key := WorkerKey{ID: id, Incarnation: fmt.Sprint(h.starts)}
	h.workers[id] = key
	capacity := 1 + h.rnd.IntN(5)
	h.rig.workers.Join(key, []string{"h"}, capacity, capacity, h.now.Add(h.cfg.Lease))
	h.pump()
}

func (h *history) loseOne() {
	for id := range 3 {
		if key, ok := h.workers[fmt.Sprintf("w%d", id)]; ok {
			h.lose(key)
			return
		}
	}
}

func (h *history) lose(key WorkerKey) {
	h.old = append(h.old, h.holding[key.ID]...)
	delete(h.holding, key.ID)
	delete(h.workers, key.ID)
	h.rig.workers.Remove(key.ID)
	h.step(WorkerLost{Worker: key})
}

func (h *history) finishOne() {
	for id := range 3 {
		held := h.holding[fmt.Sprintf("w%d", id)]
		if len(held) == 0 {
			continue
		}
		a := held[h.rnd.IntN(len(held))]
		outcomes := []job.Outcome{job.OutcomeSucceeded, job.OutcomeSucceeded, job.OutcomeFailed, job.OutcomeReleased, job.OutcomeTimedOut}
		h.report(a, outcomes[h.rnd.IntN(len(outcomes))])
		return
	}
}

func (h *history) report(a Assign, outcome job.Outcome) {
	h.step(Result{Worker: a.Worker, Token: a.Token, Outcome: outcome, Permanent: h.rnd.IntN(10) == 0})
	h.drop(a.Worker, a.Token)
	h.pump()
}

// repeatOne sends a result again, or one of an attempt that was lost.
func (h *history) repeatOne() {
	if len(h.old) > 0 {
		a := h.old[h.rnd.IntN(len(h.old))]
		h.step(Result{Worker: a.Worker, Token: a.Token, Outcome: job.OutcomeSucceeded})
	}
}

// leave has the shard given up as planned, whatever is under way.
func (h *history) leave() {
	h.release()
	h.step(Leave{})
	if !h.s.Left() {
		h.t.Fatal("the shard doesn't leave")
	}
}

// crash throws the shard away, with the batch under way committed or not, and
// loads it anew after some time. The workers come back with what they hold.
func (h *history) crash() {
	if h.rnd.IntN(3) == 0 {
		h.leave()
	} else if b := h.held; b != nil && h.rnd.IntN(2) == 0 {
		h.commit(b.Rows) // its reply is lost
	}
	h.hold = false
	h.s.Abandon()
	h.now = h.now.Add(time.Duration(h.rnd.IntN(20_000)) * time.Millisecond)
	h.restart()
	for _, id := range slices.Sorted(maps.Keys(h.workers)) {
		key := h.workers[id]
		w := h.rig.workers.Get(id)
		holds := map[job.SlotKey]int32{}
		var kept []Assign
		for _, a := range h.holding[id] {
			holds[a.Token.Key] = a.Token.Attempt
		}
		credit := max(w.Capacity-len(h.holding[id])-h.s.SendAgain(key, holds), 0)
		h.rig.workers.Join(key, []string{"h"}, w.Capacity, credit, h.now.Add(h.cfg.Lease))
		for _, a := range h.holding[id] {
			if h.s.Attest(key, a.Token) {
				kept = append(kept, a)
			} else {
				h.old = append(h.old, a)
				h.rig.workers.AddCredit(h.rig.workers.Get(id), 1)
			}
		}
		h.holding[id] = kept
		h.pump()
	}
}

// heal ends all faults, lets all work succeed, and checks what is left.
func (h *history) heal() {
	h.healed = h.now
	h.release()
	h.receive()
	for range 3 {
		h.loseOne()
	}
	h.workers = map[string]WorkerKey{"w0": {ID: "w0", Incarnation: "last"}}
	h.rig.workers.Join(h.workers["w0"], []string{"h"}, 50, 50, h.now.Add(h.cfg.Lease))
	for _, uid := range slices.SortedFunc(maps.Keys(h.jobs), func(a, b job.UID) int { return slices.Compare(a[:], b[:]) }) {
		if j := h.jobs[uid]; j.EndedAt == 0 && j.Schedule.Kind.Recurring() && !h.inbox[uid] {
			h.step(Delete{Tag: 9, Job: j})
		}
	}
	for range 3000 {
		h.sleep(250 * time.Millisecond)
		h.receive()
		for len(h.holding["w0"]) > 0 {
			h.report(h.holding["w0"][0], job.OutcomeSucceeded)
			h.receive()
		}
		if h.settled() {
			break
		}
	}
	h.checkEnd()
}

func (h *history) settled() bool {
	for _, s := range h.slots {
		if s.State.Open() {
			return false
		}
	}
	return len(h.gaps) == 0 && len(h.inbox) == 0 && !h.s.HasPending() && h.now > h.healed.Add(3*time.Minute)
}

func (h *history) checkEnd() {
	if !h.settled() {
		for k := range h.backlog {
			h.t.Logf("waits in the backlog: %+v of %+v; memory %+v", k, h.slots[k.Slot], h.s.slots[k.Slot])
		}
		for handler, q := range h.s.queues {
			h.t.Logf("queue %s: %+v", handler, q)
		}
		for uid, l := range h.s.lanes {
			h.t.Logf("lane %s: %+v", uid, l)
		}
		h.t.Fatalf("not settled: %s, gaps %v, inbox %d, backlog %d", h.states(), h.gaps, len(h.inbox), len(h.backlog))
	}
	for uid, j := range h.jobs {
		for _, at := range expected(h.t, j, h.now.Add(-time.Second)) {
			key := job.SlotKey{FireTime: at, UID: uid}
			if _, ok := h.slots[key]; !ok && !h.pruned[key] && !h.skipped(key) {
				h.t.Errorf("%s has no slot at %v", j.Name, at)
			}
		}
		if j.Schedule.Kind == job.KindImmediate && h.slotsOf(uid) == 0 {
			h.t.Errorf("the immediate job %s has no slot", j.Name)
		}
	}
	for key, s := range h.slots {
		h.checkAttempts(key, s)
	}
	if n := len(h.s.slots); n > 0 {
		h.t.Errorf("%d slots are left in memory", n)
		for key, slot := range h.s.slots {
			h.t.Logf("%v: %+v, stored %+v", key, *slot, h.slots[key])
		}
	}
	for k := range h.backlog {
		h.t.Errorf("left in the backlog: %+v of slot %+v", k, h.slots[k.Slot])
	}
	if w := h.rig.workers.Get("w0"); w.credit != w.Capacity {
		h.t.Errorf("the idle worker has credit %d of %d", w.credit, w.Capacity)
	}
}

func (h *history) slotsOf(uid job.UID) (n int) {
	for _, keys := range []iter.Seq[job.SlotKey]{maps.Keys(h.slots), maps.Keys(h.pruned)} {
		for key := range keys {
			if key.UID == uid {
				n++
			}
		}
	}
	return n
}

// checkAttempts asserts that attempts are numbered without gaps and that the
// budget was kept.
func (h *history) checkAttempts(key job.SlotKey, s job.Slot) {
	seen := map[int32]bool{}
	for _, a := range h.attempts[key] {
		seen[a.Number] = true
	}
	for n := int32(1); n < s.Attempt; n++ {
		if !seen[n] {
			h.t.Errorf("slot %v of %d attempts has no record of attempt %d", key, s.Attempt, n)
		}
	}
	p := h.jobs[key.UID].Policies
	if late := s.FinishedAt > s.Start().Add(p.FinishWithin); p.FinishWithin > 0 && !s.Redriven() && s.State == job.Succeeded && late != (s.Breaches&job.BreachFinish != 0) {
		h.t.Errorf("slot %v ended at %v, breaches %d of %+v", key, s.FinishedAt, s.Breaches, p)
	}
	if limit := h.jobs[key.UID].Retry.MaxAttempts; s.Failures > limit {
		h.t.Errorf("slot %v failed %d times of %d", key, s.Failures, limit)
	}
}
