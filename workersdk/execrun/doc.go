// Package execrun runs a program for each attempt: a handler in any language, without an
// SDK. `carillon worker run --exec name=PATH` serves it; a worker of your own does by
//
//	report, err := execrun.New("/opt/report.sh")
//	…
//	worker.Handle(w, "report", report.Handle)
//
// It needs a Unix.
//
// # What a program gets
//
// The slot's parameters stand on its standard input, as they were written. It has a new,
// empty working directory, which is removed afterwards, and an environment of its own: PATH,
// HOME, LANG, LC_ALL, TZ, TMPDIR, SSL_CERT_FILE and SSL_CERT_DIR of the worker, what
// [PassEnv] names, and
//
//	CARILLON_JOB, CARILLON_SLOT     resource names
//	CARILLON_KEY                    an idempotency key, the same on every attempt of the slot
//	CARILLON_FENCE                  a number that only grows
//	CARILLON_ATTEMPT                the number of the attempt, from 1
//	CARILLON_MAX_ATTEMPTS           the retry budget
//	CARILLON_FIRE_TIME              the scheduled fire time, RFC 3339, UTC
//	CARILLON_DEADLINE               when the attempt's timeout is over, likewise; not set: it has none
//	CARILLON_TRIGGER                schedule, immediate, manual or backfill
//	CARILLON_LATENESS_SECONDS       how late it started
//	CARILLON_CHECKPOINT             a file with what an earlier attempt left; there is none if none did.
//	                                What the program writes there, 64 KiB at most, is kept for the next
//	                                attempt, about once a second while it runs, and at its end. Write
//	                                another file and rename it, so that it is never half there
//	CARILLON_RESULT                 a file that isn't there: one JSON document of 256 KiB at most, written
//	                                there, becomes the slot's result
//
// # What becomes of its end
//
//	the program                    outcome     code
//	exits with 0                   SUCCEEDED   "bad_result" and FAILED if its result is none
//	exits with 65 (EX_DATAERR)     FAILED      "exit_65", permanent
//	exits with 75 (EX_TEMPFAIL)    FAILED      "exit_75": the next attempt by the job's policy
//	exits with N                   FAILED      "exit_N", likewise
//	is killed by a signal          FAILED      "signal_KILL", likewise
//	can't be started               FAILED      "exec_failed", likewise
//	was told to stop               as package workersdk says, also if it then exits with 0
//
// The last 16 KiB of what it writes to standard output and standard error are kept: as the
// slot's log, about once a second, and in the text of a failure.
//
// # How it ends
//
// A program and what it starts form a process group. When the attempt's context ends, the
// group gets SIGTERM, and half a second later SIGKILL: a handler must return within a second.
// A job that needs longer to clean up looks at CARILLON_DEADLINE. When the program itself has
// ended, what is left of its group may finish its output for a second, then it is killed. Only
// what leaves the group, as setsid does, lives on.
//
// # What fails, and what happens then
//
//	failure                           what follows
//	a grandchild ignores SIGTERM      it is killed with the group
//	a grandchild keeps the output     is waited for a second at most
//	open
//	the worker is killed              the group is killed at once; its directory stays
//	output without end                the worker keeps 16 KiB of it; what comes too fast is counted
//	output that isn't UTF-8           what isn't becomes U+FFFD
//
// # Inside
//
// The leader of each group is not the program but a guard, a shell that waits for the end of
// its standard input. Its other end is the worker's alone, so that it ends with the worker
// however that dies, and the guard kills its own group. While the guard isn't reaped, the
// group's number is nobody else's: no signal goes astray. Linux's parent-death signal would reach
// the program alone and not its children, and would be sent when a thread of the worker ends.
package execrun
