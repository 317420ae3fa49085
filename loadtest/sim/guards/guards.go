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

// Guards are those without which a seed fails. What a worker's own check of epochs, the wait after a
// take-over, the owner's epoch in each load, the order of window and inbox, and the order of
// retention keep away, no run shows yet: their absence costs a second execution or a wait that the verdict allows, or needs
// reads of the past, which the model of the database doesn't have.
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
		Name: "fence on completion", What: "a result of an attempt that is another's by now is taken",
		File: "engine/core/slots.go",
		Old:  "return row.State == job.Running && row.Attempt == t.Attempt && row.Epoch == t.Epoch && workerOf(row) == worker",
		New:  "return row.State == job.Running",
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
		New:  "if refused || conflict && false {",
	},
	{
		Name: "refill order", What: "a job that is created while the window is read is in neither",
		File: "engine/core/fire.go",
		Old:  "return at <= max(w.to.FireTime, w.issued)",
		New:  "return at <= w.to.FireTime",
	},
}
