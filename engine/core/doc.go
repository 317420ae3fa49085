// Package core is the state machine of one shard: which slots exist, who may run
// them, what follows from a result. It does no I/O. It has no lock, clock,
// goroutine or connection; time comes in with every step, rows go out in batches,
// and messages go out only once the rows that they speak of are durable. The same
// code therefore runs under the real node, in a test that feeds it events, and in
// a simulation.
//
// # How it is driven
//
//	Step(now, event)   what is due up to now fires first, then the event applies
//	Ready(now, room)   the rows to write, and the messages that follow them
//	event Committed    what became of the last batch; only then Ready answers again
//	Reads()            what is to be read from the database, answered by events
//	NextWake()         when to step next, if nothing else happens
//
// At most one batch is under way. It is committed, after any repeats, or the
// shard is thrown away and loaded anew: nothing is ever rolled back in memory. A
// slot that changes several times between two batches is written once, from what
// the database holds to what it should hold.
//
// # States of a slot
//
//	READY ──claim──▶ RUNNING ──success──▶ SUCCEEDED
//	  ▲                 │ failure · timeout · lost lease · handed back
//	  └──(not before)───┤ budget left
//	                    └ exhausted or permanent ─▶ DEAD
//	READY, RUNNING ──▶ CANCELLED, EXPIRED
//	READY ──▶ SKIPPED
//
// # Who can be waited for
//
// Every slot that is not final has something that ends its wait. A READY slot stands in
// its handler's queue or in its job's line, or has a timer for its not-before instant, or
// lies in the backlog; a RUNNING slot has a timer for its timeout, and its worker has a
// lease. Whenever a slot is written, armed checks that: a shard that made a slot for which
// nobody waits is loaded anew, before that reaches the database.
//
// # What bounds the memory
//
// Recurring jobs; jobs of one fire time within the next window; RUNNING slots; and
// a fixed number of READY slots per handler. Everything else waits in the
// database, in the order in which it is to come back.
package core
