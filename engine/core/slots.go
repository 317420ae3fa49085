package core

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
)

// enqueue gives a READY slot its way on: a claim now, a place in the queue, a
// timer, or the backlog.
func (s *Shard) enqueue(slot *slotState) {
	if slot.row.State != job.Ready || slot.queued {
		return
	}
	q := s.queue(slot.job.spec.handler)
	p := q.tierOf(slot)
	sleeps := wakeAt(&slot.row) > s.now
	switch limited := slot.limited(); {
	case slot.job.aside:
		return // waits until the job is looked at
	case limited && !slot.placed && (!sleeps || slot.job.spec.policies.Overlap.Mode != job.OverlapAllow):
		s.standInLine(slot)
	case limited: // a lane keeps few of them in memory
		s.wait(q, slot, sleeps)
	case sleeps && p.asleep >= s.cfg.ReadyLimit, !sleeps && p.counts >= s.cfg.ReadyLimit, !slot.stored && p.due(s.now):
		s.displace(slot)
	default:
		s.wait(q, slot, sleeps)
	}
}

// wait lets a slot wait in memory: for its not-before, or for a worker.
func (s *Shard) wait(q *queue, slot *slotState, sleeps bool) {
	switch {
	case sleeps:
		q.sleep(slot)
		slot.timer = s.wheel.Add(wakeAt(&slot.row).Milliseconds(), timer{timerReady, slot.ref})
	case q.peek() != nil || !s.claim(slot):
		q.push(slot)
	}
}

// Dispatch claims the first waiting slot of a handler for a worker with credit.
func (s *Shard) Dispatch(handler string) bool {
	q := s.queues[handler]
	if q == nil || !s.Live() {
		return false
	}
	slot := q.peek()
	return slot != nil && s.claim(slot)
}

// claim makes a READY slot a worker's. The worker hears of it once the claim is
// durable.
func (s *Shard) claim(slot *slotState) bool {
	if s.leaving {
		return false
	}
	worker := s.workers.take(slot.job.spec.handler)
	if worker == nil {
		return false
	}
	row := &slot.row
	s.setState(slot, job.Running)
	row.Attempt++
	row.Epoch, row.Worker, row.Incarnation = s.proof.Epoch, worker.Key.ID, worker.Key.Incarnation
	row.ClaimedAt, row.StartedAt, row.FinishedAt = s.now, 0, 0
	row.Deadline = min(s.now.Add(slot.job.spec.timeout), slot.job.spec.policies.TotalEnd(row))
	slot.started, slot.until = 0, 0
	slot.beginNotes()
	slot.unsent, slot.attested = true, true
	s.startRunning(slot, worker.Key)
	slot.messages = append(slot.messages, s.assign(slot, row.Deadline))
	s.markDirty(slot)
	return true
}

// assign hands a slot's attempt to its worker; it may run until then.
func (s *Shard) assign(slot *slotState, until job.Instant) Assign {
	return Assign{Worker: workerOf(&slot.row), Token: s.token(slot), Work: slot.work(until.Sub(s.now)), Trigger: slot.row.Trigger, Failures: slot.row.Failures,
		Checkpoint: job.DecodeNotes(slot.row.Notes).Checkpoint}
}

func (s *Shard) token(slot *slotState) Token {
	return Token{Shard: s.proof.Shard, Key: slot.row.Key, Attempt: slot.row.Attempt, Epoch: slot.row.Epoch}
}

// setState is the one door through which a slot changes its state. A change that
// the states' table doesn't know is a fault of this program: it must not reach
// the database, and the shard is loaded anew.
func (s *Shard) setState(slot *slotState, next job.State) {
	from := slot.row.State
	if !from.CanBecome(next) {
		s.fault = fmt.Errorf("slot %s of job %s can't go from %v to %v", slot.row.Key.FireTime, slot.row.Key.UID, from, next)
		return
	}
	s.queue(slot.job.spec.handler).leave(slot)
	s.leaveLine(slot)
	s.wheel.Cancel(slot.timer)
	slot.timer = 0
	slot.row.State = next
	s.armCheck(slot)
	if next != job.Running {
		s.stopRunning(slot)
	}
}

// armed reports whether something ends the wait of a slot. A slot of a job that was set aside
// waits for a person, who is told of it.
func (s *Shard) armed(slot *slotState) bool {
	switch slot.row.State {
	case job.Ready:
		return slot.queued || slot.lined || slot.displaced || slot.asleep && s.wheel.Armed(slot.timer) || slot.job.aside
	case job.Running:
		return slot.unsent || s.wheel.Armed(slot.timer)
	}
	return true
}

func (s *Shard) startRunning(slot *slotState, key WorkerKey) {
	set := s.running[key]
	if set == nil {
		set = map[*slotState]struct{}{}
		s.running[key] = set
	}
	set[slot] = struct{}{}
}

func (s *Shard) stopRunning(slot *slotState) {
	key := workerOf(&slot.row)
	if set := s.running[key]; set != nil {
		delete(set, slot)
		if len(set) == 0 {
			delete(s.running, key)
		}
	}
}

func workerOf(row *job.Slot) WorkerKey { return WorkerKey{row.Worker, row.Incarnation} }

// ending is what an attempt came to.
type ending struct {
	outcome    job.Outcome
	code, text string
	result     []byte
	startedAt  job.Instant
	permanent  bool
	retryAfter time.Duration // zero: by the policy
}

// end ends the running attempt of a slot, and decides what follows.
func (s *Shard) end(slot *slotState, e ending) {
	row := &slot.row
	if e.startedAt == 0 {
		e.startedAt = slot.started
	}
	if e.startedAt != 0 {
		row.StartedAt = e.startedAt
		if row.Attempt == 1 {
			s.observe(slot, Observation{Kind: AttemptStarted, Trigger: row.Trigger, Lateness: e.startedAt.Sub(row.Key.FireTime)})
		}
	}
	s.observe(slot, Observation{Kind: AttemptEnded, Outcome: e.outcome})
	s.noteMissed(slot, row.StartedAt)
	row.Outcome, row.ErrorCode, row.ErrorText = e.outcome, e.code, e.text
	if e.outcome.CountsAsFailure() {
		row.Failures++
	}
	row.FinishedAt = s.now
	switch {
	case e.outcome == job.OutcomeSucceeded:
		row.Result = e.result
		s.finish(slot, job.Succeeded)
	case slot.doomed:
		row.ErrorCode, row.ErrorText = job.CodeReplaced, "a newer slot took its place"
		s.finish(slot, job.Cancelled)
	case e.outcome == job.OutcomeCancelled, slot.job.endedAt != 0 && !e.outcome.CountsAsFailure():
		s.finish(slot, job.Cancelled)
	case e.outcome != job.OutcomeFailed && s.now >= slot.job.spec.policies.TotalEnd(row):
		s.expireSlot(slot)
	case e.outcome.CountsAsFailure() && (e.permanent || row.Failures >= slot.job.spec.retry.MaxAttempts):
		s.die(slot)
	case slot.job.endedAt != 0:
		s.finish(slot, job.Cancelled) // its job was deleted: it isn't tried again
	case !e.outcome.CountsAsFailure():
		s.retry(slot, s.now)
	default:
		s.retryAfterFailure(slot, e)
	}
}

// retryAfterFailure makes a slot READY again after the policy's delay, unless the policy
// doesn't allow that.
func (s *Shard) retryAfterFailure(slot *slotState, e ending) {
	policy, row := &slot.job.spec.retry, &slot.row
	delay := e.retryAfter
	if delay <= 0 {
		delay = policy.Delay(row.Failures, s.cfg.Random())
	}
	switch at := s.now.Add(delay); {
	case !policy.Allows(e.code, max(row.CreatedAt, row.RequestedAt), at):
		s.die(slot)
	case at >= slot.job.spec.policies.TotalEnd(row):
		s.expireSlot(slot) // it couldn't be tried again in time
	default:
		s.retry(slot, at)
	}
}

// finish makes a slot final.
func (s *Shard) finish(slot *slotState, state job.State) {
	s.setState(slot, state)
	slot.row.FinishedAt = s.now
	slot.row.NotBefore, slot.row.Deadline = 0, 0
	slot.endNotes()
	if state == job.Succeeded || state == job.Dead {
		s.noteMissed(slot, slot.row.StartedAt)
	}
	s.observe(slot, Observation{Kind: SlotFinished, State: state})
	s.markDirty(slot)
	if slot.limited() && !slot.placed {
		s.noteLeft(slot)
	}
	s.freePlace(slot)
}

// die makes a slot a dead letter.
func (s *Shard) die(slot *slotState) {
	s.finish(slot, job.Dead)
	s.note(store.EventDeadLetter, slot.row.Key.UID, slot.row.Key.FireTime, slot.row.ErrorText)
}

// retry makes a slot READY again, to be tried from an instant on.
func (s *Shard) retry(slot *slotState, at job.Instant) {
	row := &slot.row
	s.setState(slot, job.Ready)
	slot.ended = append(slot.ended, row.NewestAttempt())
	row.FinishedAt, row.Deadline, row.NotBefore = 0, 0, at
	s.markDirty(slot)
	if !s.check(slot) {
		return
	}
	if s.sleepsFreely(slot) || s.overtaken(slot) {
		s.freePlace(slot) // others run meanwhile
	}
	s.enqueue(slot)
}

// timeOut ends an attempt whose worker said nothing of its deadline.
func (s *Shard) timeOut(slot *slotState) {
	if slot.row.State != job.Running {
		return
	}
	s.stop(slot, StopTimedOut)
	s.end(slot, ending{outcome: job.OutcomeTimedOut, code: "timeout",
		text: fmt.Sprintf("the attempt ran longer than %s and its worker did not end it", slot.job.spec.timeout)})
}

// unattested takes back an attempt that nobody vouched for after a take-over.
func (s *Shard) unattested(slot *slotState) {
	if slot.row.State == job.Running && !slot.attested {
		s.lose(slot, job.OutcomeUnclaimed, "no worker vouched for the attempt after the shard changed its owner")
	}
}

// lose takes an attempt from its worker.
func (s *Shard) lose(slot *slotState, outcome job.Outcome, why string) {
	s.note(store.EventAttemptLost, slot.row.Key.UID, slot.row.Key.FireTime,
		fmt.Sprintf("attempt %d of worker %s: %s", slot.row.Attempt, slot.row.Worker, why))
	s.end(slot, ending{outcome: outcome, code: "lease_lost", text: why})
}

// stop tells a slot's worker, after the slot's next write, to stop.
func (s *Shard) stop(slot *slotState, reason StopReason) {
	slot.messages = append(slot.messages, Stop{Worker: workerOf(&slot.row), Token: s.token(slot), Reason: reason})
}

// WorkerLost says that a worker holds nothing any more but what is listed: its lease ran
// out, or its process died.
type WorkerLost struct {
	Worker WorkerKey
	Holds  map[job.SlotKey]int32 // the attempts that it still holds
}

func (e WorkerLost) apply(s *Shard) {
	s.lostStops(e.Worker)
	for _, slot := range s.missing(e.Worker, e.Holds) {
		s.lose(slot, job.OutcomeLeaseLost, "the worker's lease ended")
	}
}

// AttemptLost says that the lease of one attempt ran out.
type AttemptLost struct {
	Worker WorkerKey
	Token  Token
}

func (e AttemptLost) apply(s *Shard) {
	if slot := s.slots[e.Token.Key]; slot != nil && s.holds(slot, e.Worker, e.Token) {
		s.lose(slot, job.OutcomeLeaseLost, "the attempt's lease ended")
	}
}

// missing lists the attempts that a worker was told of and doesn't hold.
func (s *Shard) missing(worker WorkerKey, holds map[job.SlotKey]int32) (slots []*slotState) {
	for _, slot := range inOrder(maps.Keys(s.running[worker])) {
		if attempt, holds := holds[slot.row.Key]; !slot.unsent && (!holds || attempt != slot.row.Attempt) {
			slots = append(slots, slot)
		}
	}
	return slots
}

// SendAgain sends a worker what it should hold and doesn't list, since it was lost on the
// way or is still on it, and returns how many attempts these are. What a worker gets twice
// it passes over.
func (s *Shard) SendAgain(worker WorkerKey, holds map[job.SlotKey]int32) int {
	missing := s.missing(worker, holds)
	for _, slot := range missing {
		s.attested(slot)
		s.outbox = append(s.outbox, s.assign(slot, max(slot.row.Deadline, slot.until)))
	}
	return len(missing)
}

// Attest asks whether a worker's attempt is still its own, and renews it if so.
func (s *Shard) Attest(worker WorkerKey, t Token) bool {
	slot := s.slots[t.Key]
	if slot == nil || !s.holds(slot, worker, t) {
		return false
	}
	s.attested(slot)
	return true
}

// attested notes that somebody vouches for an attempt.
func (s *Shard) attested(slot *slotState) {
	slot.attested = true
	s.wheel.Cancel(slot.timer)
	s.armTimeout(slot)
}

// holds reports whether the token is the whole token of the slot's live attempt.
func (s *Shard) holds(slot *slotState, worker WorkerKey, t Token) bool {
	row := &slot.row
	return row.State == job.Running && row.Attempt == t.Attempt && row.Epoch == t.Epoch && workerOf(row) == worker
}

// Started says that a handler's first line ran.
type Started struct {
	Worker WorkerKey
	Token  Token
	At     job.Instant
}

func (e Started) apply(s *Shard) {
	if slot := s.slots[e.Token.Key]; slot != nil && s.holds(slot, e.Worker, e.Token) {
		slot.started = e.At
		s.noteMissed(slot, e.At)
		s.armCheck(slot)
	}
}

// Result says what an attempt came to, in its worker's words.
type Result struct {
	Worker     WorkerKey
	Token      Token
	Outcome    job.Outcome
	StartedAt  job.Instant
	Document   []byte
	Code       string
	Text       []byte
	Permanent  bool
	RetryAfter time.Duration
	Checkpoint []byte  // nil: the newest of its reports stays
	Log        *string // nil: that of its newest report stays
}

func (e Result) apply(s *Shard) {
	s.stopped(e.Worker, e.Token)
	slot := s.slots[e.Token.Key]
	switch {
	case slot == nil, (!slot.stored || slot.inserting) && e.Token.Epoch != s.proof.Epoch:
		s.holdResult(e) // the database knows: the owner before may have made the slot, and seen its end
	case s.holds(slot, e.Worker, e.Token):
		s.accept(slot, e)
	case endedBy(&slot.row, e), slot.previous != nil && *slot.previous == accepted{e.Worker, e.Token, e.Outcome}:
		// Its own result again, since the answer was lost or is still to come: it is
		// answered after the write that may be under way. The slot may have been claimed
		// again meanwhile.
		slot.previous = &accepted{e.Worker, e.Token, e.Outcome}
		slot.messages = append(slot.messages, Ack{Worker: e.Worker, Token: e.Token, Accepted: true})
		s.markDirty(slot)
	case s.acceptsLate(&slot.row, e):
		s.acceptLate(slot, e)
	default:
		s.refuse(e, slot.row.State)
	}
}

// endedBy reports whether a row records this very result.
func endedBy(row *job.Slot, e Result) bool {
	return row.State != job.Running && row.Outcome == e.Outcome && row.Attempt == e.Token.Attempt &&
		row.Epoch == e.Token.Epoch && workerOf(row) == e.Worker
}

// accept ends the live attempt as its worker says.
func (s *Shard) accept(slot *slotState, e Result) {
	slot.messages = append(slot.messages, Ack{Worker: e.Worker, Token: e.Token, Accepted: true})
	slot.noteEnd(e)
	s.end(slot, s.endingOf(slot, e))
	if !slot.row.State.Final() {
		slot.previous = &accepted{e.Worker, e.Token, e.Outcome}
	}
}

// endingOf makes a worker's words storable: whatever they are, the end of the
// attempt is recorded.
func (s *Shard) endingOf(slot *slotState, e Result) ending {
	out := ending{
		outcome: e.Outcome, startedAt: e.StartedAt, permanent: e.Permanent, retryAfter: min(e.RetryAfter, job.MaxDuration),
		code: job.CleanText([]byte(e.Code), job.MaxNameLength), text: job.CleanText(e.Text, job.MaxErrorBytes),
		result: e.Document,
	}
	if out.outcome == job.OutcomeCancelled {
		// The slot wasn't cancelled, or the token would be stale: the worker gave up.
		out.outcome = job.OutcomeReleased
	}
	if out.outcome != job.OutcomeSucceeded || len(e.Document) == 0 {
		return out
	}
	if err := job.CheckDocument(e.Document); err != nil {
		out.result = nil
		out.text = "the handler succeeded; its result was left out, since it " + err.Error()
		s.note(store.EventDocumentChanged, slot.row.Key.UID, slot.row.Key.FireTime, out.text)
	}
	return out
}

// acceptsLate reports whether a success may be taken although the lease was lost:
// nobody has claimed the slot since, so the work need not be done again.
func (s *Shard) acceptsLate(row *job.Slot, e Result) bool {
	lost := row.Outcome == job.OutcomeLeaseLost || row.Outcome == job.OutcomeUnclaimed
	waits := row.State == job.Ready || row.State == job.Dead
	return waits && lost && e.Outcome == job.OutcomeSucceeded &&
		row.Attempt == e.Token.Attempt && row.Epoch == e.Token.Epoch && workerOf(row) == e.Worker
}

func (s *Shard) acceptLate(slot *slotState, e Result) {
	end := s.endingOf(slot, e)
	slot.noteEnd(e)
	row := &slot.row
	if row.Outcome.CountsAsFailure() {
		row.Failures-- // it was none after all
	}
	row.Outcome, row.ErrorCode, row.ErrorText, row.Result = end.outcome, end.code, end.text, end.result
	if end.startedAt != 0 {
		row.StartedAt = end.startedAt
	}
	slot.messages = append(slot.messages, Ack{Worker: e.Worker, Token: e.Token, Accepted: true})
	s.observe(slot, Observation{Kind: AttemptEnded, Outcome: end.outcome})
	s.finish(slot, job.Succeeded)
}

// refuse answers a result whose attempt is no longer its worker's, and records
// it.
func (s *Shard) refuse(e Result, state job.State) {
	if e.Outcome == job.OutcomeCancelled {
		// The worker confirms that it stopped: there is nothing to refuse.
		s.outbox = append(s.outbox, Ack{Worker: e.Worker, Token: e.Token, Accepted: true})
		return
	}
	why := fmt.Sprintf("attempt %d is no longer the worker's; the slot is %v", e.Token.Attempt, state)
	if state == job.StateNone {
		why = "there is no such slot, or it was too old to be kept"
	}
	late := e.Outcome.String()
	if len(e.Text) > 0 {
		late += ": " + job.CleanText(e.Text, job.MaxErrorBytes)
	}
	s.pending.rows.Lates = append(s.pending.rows.Lates, store.LateResult{Key: e.Token.Key, Attempt: e.Token.Attempt, Text: late})
	s.note(store.EventLateResult, e.Token.Key.UID, e.Token.Key.FireTime,
		fmt.Sprintf("attempt %d of worker %s reported %s", e.Token.Attempt, e.Worker.ID, late))
	s.pending.messages = append(s.pending.messages,
		Ack{Worker: e.Worker, Token: e.Token, Why: why},
		Observation{Kind: ResultRefused, Outcome: e.Outcome})
}

// resolveResult decides about a result whose slot was not in memory, now that the
// database's row is known.
func (s *Shard) resolveResult(e Result, found *store.SlotOf) {
	if s.slots[e.Token.Key] != nil {
		e.apply(s) // it came to memory meanwhile
		return
	}
	if found == nil {
		s.refuse(e, job.StateNone)
		return
	}
	row := &found.Slot
	switch {
	case endedBy(row, e):
		// Its own result, sent again because the answer was lost.
		s.outbox = append(s.outbox, Ack{Worker: e.Worker, Token: e.Token, Accepted: true})
	case s.acceptsLate(row, e):
		slot := s.adopt(*row, &found.Job, true)
		if slot != nil && s.acceptsLate(&slot.row, e) {
			s.acceptLate(slot, e)
		} else { // it is cancelled: its job ended
			s.refuse(e, job.Cancelled)
		}
	default:
		s.refuse(e, row.State)
	}
}

// adopt takes a slot of the database into memory as it stands. inBacklog says
// that it has, or may have, a row in the backlog: deleting one that isn't there is
// harmless.
func (s *Shard) adopt(row job.Slot, j *job.Job, inBacklog bool) *slotState {
	if slot := s.slots[row.Key]; slot != nil {
		return slot
	}
	state, err := s.addJob(j)
	if err != nil {
		s.quarantine(j.UID, "its stored schedule can't be used: "+err.Error())
		return nil
	}
	return s.take(row, state, inBacklog)
}

// take is adopt for a job that is in memory.
func (s *Shard) take(row job.Slot, state *jobState, inBacklog bool) *slotState {
	slot := s.track(s.inOurTime(row), state)
	if slot.row.NotBefore != row.NotBefore || slot.row.Deadline != row.Deadline {
		slot.touched = true
		s.markDirty(slot)
	}
	slot.stored, slot.storedState, slot.storedAttempt = true, row.State, row.Attempt
	if inBacklog {
		key := backlogRow(&row, state.spec).Key
		slot.backlog = &key
	}
	switch row.State {
	case job.Ready:
		if state.endedAt != 0 {
			s.cancel(slot, "its job ended")
		} else if s.check(slot) {
			s.enqueue(slot)
		}
	case job.Running:
		s.check(slot)
		if slot.limited() {
			slot.placed = true
			s.laneOf(slot).placed[slot] = struct{}{}
		}
		s.startRunning(slot, workerOf(&row))
		until := s.now.Add(s.cfg.Lease + s.cfg.LeaseMargin)
		slot.timer = s.wheel.Add(until.Milliseconds(), timer{timerAttest, slot.ref})
	}
	return slot
}

// inOurTime moves what a row says of the time ahead, if the one who wrote it was ahead of
// this clock: else a back-off or a timeout would last until the old time.
func (s *Shard) inOurTime(row job.Slot) job.Slot {
	ahead := row.ClaimedAt - s.now
	if !row.State.Open() || ahead <= 0 {
		return row
	}
	if row.NotBefore > 0 {
		row.NotBefore -= ahead
	}
	if row.Deadline > 0 {
		row.Deadline -= ahead
	}
	return row
}

// cancel ends a slot that is not final.
func (s *Shard) cancel(slot *slotState, why string) { s.cancelAs(slot, job.CodeCancelled, why) }

func (s *Shard) cancelAs(slot *slotState, code, why string) {
	row := &slot.row
	if row.State == job.Running {
		if !s.takeBack(slot) {
			s.awaitStop(slot)
			s.stop(slot, StopCancelled)
		}
		row.Outcome = job.OutcomeCancelled
	}
	row.ErrorCode, row.ErrorText = code, why
	s.finish(slot, job.Cancelled)
}

// takeBack drops an assignment that isn't in a batch yet, and reports whether there was one:
// its worker need not hear of it.
func (s *Shard) takeBack(slot *slotState) (taken bool) {
	slot.messages = slices.DeleteFunc(slot.messages, func(m Message) bool {
		_, assigned := m.(Assign)
		if assigned {
			s.unsend([]Message{m})
			slot.unsent, taken = false, true
		}
		return assigned
	})
	return taken
}

// inOrder returns slots by key: what a shard does never depends on the order of a
// map, so that a history can be replayed.
func inOrder(slots iter.Seq[*slotState]) []*slotState {
	return slices.SortedFunc(slots, func(a, b *slotState) int { return compareKeys(a.row.Key, b.row.Key) })
}

// sortedKeys returns keys in their order.
func sortedKeys(keys iter.Seq[job.SlotKey]) []job.SlotKey {
	return slices.SortedFunc(keys, compareKeys)
}

func compareKeys(a, b job.SlotKey) int {
	return cmp.Or(cmp.Compare(a.FireTime, b.FireTime), bytes.Compare(a.UID[:], b.UID[:]))
}
