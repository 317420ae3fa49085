// Package guards shows that the simulation would notice if the system were wrong: each guard that
// the guarantees rest on is taken out, alone, and some seed must then fail.
//
// A guard is taken out of a copy of its file, which the build uses instead of it; the shipped code has
// no switch for that. A change names the text that it replaces, and is refused if that text isn't
// there once: then the guard has moved, and its change must follow.
package guards

// Guard is something without which a guarantee doesn't hold.
type Guard struct {
	Name string
	What string // it keeps from happening
	File string // from the module's root
	Old  string // the guard
	New  string // what is left without it
}

// Guards are all of them.
var Guards = []Guard{
	{
		Name: "epoch fence", What: "an owner that was frozen, or cut off, writes after the next one",
		File: "loadtest/sim/model/commit.go",
		Old:  "stale := s == nil || s.epoch != p.Epoch",
		New:  "stale := s == nil",
	},
	{
		Name: "repeat fence", What: "a commit that comes after its repeat undoes what was written since",
		File: "loadtest/sim/model/commit.go",
		Old:  "overtaken := s != nil && s.try > b.Try",
		New:  "overtaken := false",
	},
	{
		Name: "own epoch of a load", What: "a load reads a shard that another owner has taken since",
		File: "loadtest/sim/model/load.go",
		Old:  "if s == nil || s.epoch != p.Epoch {",
		New:  "if s == nil {",
	},
	{
		Name: "fence on completion", What: "a result of an attempt that is another's by now is taken",
		File: "engine/core/slots.go",
		Old:  "return row.State == job.Running && row.Attempt == t.Attempt && row.Epoch == t.Epoch && workerOf(row) == worker",
		New:  "return row.State == job.Running",
	},
	{
		Name: "epoch at the worker", What: "a worker believes an owner that has lost the shard",
		File: "workersdk/owners.go",
		Old:  "case epoch < o.epoch:",
		New:  "case epoch < 0:",
	},
	{
		Name: "wait after a take-over", What: "an attempt is taken from a worker that had no time to vouch for it",
		File: "engine/core/slots.go",
		Old:  "until := s.now.Add(s.cfg.Lease + s.cfg.LeaseMargin)",
		New:  "until := s.now",
	},
	{
		Name: "adoption", What: "what a job owes that came by the inbox isn't made",
		File: "engine/core/api.go",
		Old:  "case at <= s.firedTo:\n\t\ts.owe(j, job.SlotKey{FireTime: at, UID: j.uid}, job.TriggerSchedule)",
		New:  "case at <= s.firedTo:",
	},
	{
		Name: "gap before live", What: "what was due while nobody owned the shard isn't made",
		File: "engine/core/gaps.go",
		Old:  "if s.firedTo > watermark {",
		New:  "if s.firedTo > watermark && s.opened {",
	},
	{
		Name: "outcome of each row", What: "an owner believes that a row was written in whose way another one stood",
		File: "engine/core/batch.go",
		Old:  "if refused || conflict {",
		New:  "if refused {",
	},
	{
		Name: "refill order", What: "a job that is created while the window is read is in neither",
		File: "engine/core/fire.go",
		Old:  "return at <= max(w.to.FireTime, w.issued)",
		New:  "return at <= w.to.FireTime",
	},
	{
		Name: "window while adopting", What: "a job that is adopted while the window is read is in neither",
		File: "engine/core/reads.go",
		Old:  "if !s.reads.once && s.wantsOnce() && len(s.pending.adopted) == 0 {",
		New:  "if !s.reads.once && s.wantsOnce() {",
	},
	{
		Name: "retention order", What: "slots are deleted that a gap makes again",
		File: "engine/core/retain.go",
		Old:  "at = min(at, g.Cursor.FireTime)",
		New:  "_ = g",
	},
}
