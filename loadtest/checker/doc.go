// Package checker says what is wrong with a history: with what a store holds after
// a test, beside what is known from elsewhere.
//
// A test runs a cluster, breaks it, heals it, and lets it come to rest. Then it
// reads all shards (Read), adds which creates were acknowledged (Ledger) and what
// handlers did (Effect), and asks Check. Traffic, faults and verdict stay apart, so
// that every test has the same judge.
//
// The judge shares no code with the accused: which occurrences a job has is found by
// a second reader of schedules, which walks days with package time.
//
// # Invariants
//
//	I1   what is due has its slot: an immediate job has one at any time; once all is
//	     quiet, every occurrence up to now has one
//	I2   a slot has its job, which fires then, and was neither made, claimed nor
//	     started before its fire time
//	I3   a slot has at most one success
//	I4   a slot's row agrees with itself, and its attempts, dead letter and row of the
//	     backlog with it
//	I5   attempts are 1 to n; failures count those that failed, and are at most
//	     max_attempts
//	I6   an attempt is claimed after the one before it ended
//	I7   an attempt is claimed under the epoch of its time, and epochs never fall
//	I8   epochs, and the claims that raised them, only grow; the shard holds the newest
//	I9   every open slot from before open-from is in the backlog; once all is quiet,
//	     nothing is overdue, and gaps, inbox and backlog are empty
//	I10  an acknowledged job is there and a refused one isn't; a name has one live job,
//	     a uid one job; a job lies in the shard of its name
//	I11  what a handler did belongs to a recorded attempt, which began once
//	I12  no handler began before its fire time or its claim
//	I13  a success is one complete run; a second complete run follows only an attempt
//	     that was taken from its worker
//	I14  a final slot has an end, and no row of the backlog
//	I15  the watermark passes no hole: every occurrence up to it has a slot, lies in a
//	     gap, or in a range that was left out
//	I16  an occurrence that a calendar of its job excludes is skipped, and no other one
//	     is for that reason
//	I17  a range that was left out is one of a job that leaves out some, begins and ends
//	     at an occurrence, counts them right, and holds no slot
//	I18  no more attempts of a job run at a time than its overlap policy allows
//
// I15 holds at every instant, also in the middle of a fault, and I1 takes over where
// the watermark ends, so that a missing slot breaks one of the two.
//
// # What is not held against a history
//
// Occurrences from before retained-from, whose slots may have been deleted. Jobs with
// a row in the inbox, which nobody has taken over yet, and jobs that were set aside:
// they owe nothing. What happened within Young of Now. Two clocks may differ by
// ClockError; times that one owner wrote are compared exactly.
//
// # What it can't know
//
// A history in which nothing happened has no violation. That there were take-overs,
// lost leases and gaps, each test must see for itself.
package checker
