package sim

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// How many seeds a batch must have, before it must have seen what is common, and what is rare.
const (
	enoughSeeds = 200
	manySeeds   = 1000
)

// must is what happens in every batch that is large enough, in order. A job that is set aside ("rows: jobs set
// aside") isn't here: neverReasons says why.
var must = []string{
	"a backfill cancelled",
	"a message of a later version",
	"a number of occurrences",
	"a result is sent twice",
	"a row stood in the way",
	"an assignment comes twice",
	"an open gap found",
	"attempt FAILED",
	"attempt LEASE_LOST",
	"attempt RELEASED",
	"attempt SUCCEEDED",
	"attempt TIMED_OUT",
	"attempt UNCLAIMED",
	"calendar",
	"call answered AlreadyExists",
	"call answered DeadlineExceeded",
	"call answered FailedPrecondition",
	"call answered InvalidArgument",
	"call answered NotFound",
	"call answered OK",
	"call answered Unavailable",
	"cancel confirmed",
	"catch-up CATCH_UP_MODE_ALL",
	"catch-up CATCH_UP_MODE_LATEST",
	"catch-up CATCH_UP_MODE_NONE",
	"database late",
	"database lost after",
	"database lost before",
	"database refused",
	"database stalled",
	"database stalled and rolled back",
	"deadlines",
	"fault a lost lease",
	"fault a slow database",
	"fault a slow link",
	"fault a wrong clock",
	"fault an unreliable database",
	"fault cut a node from a worker",
	"fault cut a node from all",
	"fault cut a node from clients",
	"fault cut a node from etcd",
	"fault cut a node from the database",
	"fault cut node and client",
	"fault cut node and database",
	"fault cut node and etcd",
	"fault cut node and node",
	"fault cut node and worker",
	"fault cut two nodes",
	"fault etcd away",
	"fault etcd forgets its history",
	"fault etcd wiped",
	"fault freeze a node",
	"fault freeze a worker",
	"fault kill a node",
	"fault kill a worker",
	"fault kill all nodes",
	"fault no workers",
	"fault stop a node",
	"fault stop a worker",
	"fault the database away",
	"fault the database's clock is wrong",
	"fault upgrade all nodes",
	"fence lost",
	"handler fails",
	"handler fails and names a delay",
	"handler fails for good",
	"handler panics",
	"handler slow",
	"handler stalled",
	"handler stuck",
	"handler unserved",
	"job by the inbox",
	"job of nobody.serves",
	"job of rough",
	"job of usual",
	"made by backfill",
	"made by hand",
	"made by schedule",
	"made immediately",
	"objective missed",
	"objectives",
	"on dead letter",
	"overlap OVERLAP_MODE_ALLOW",
	"overlap OVERLAP_MODE_QUEUE",
	"overlap OVERLAP_MODE_REPLACE",
	"overlap OVERLAP_MODE_SKIP",
	"reason REASON_CODE_CANCELLED",
	"reason REASON_CODE_DEAD_LETTERED",
	"reason REASON_CODE_DISCARDED",
	"reason REASON_CODE_ESCALATED",
	"reason REASON_CODE_EXCLUDED_BY_CALENDAR",
	"reason REASON_CODE_EXPIRED",
	"reason REASON_CODE_JOB_ENDED",
	"reason REASON_CODE_LEASE_HELD",
	"reason REASON_CODE_NOT_DUE",
	"reason REASON_CODE_NOT_SCHEDULED",
	"reason REASON_CODE_NO_WORKER_FOR_HANDLER",
	"reason REASON_CODE_OVERLAP",
	"reason REASON_CODE_RETRY_BACKOFF",
	"reason REASON_CODE_SHARD_UNOWNED",
	"reason REASON_CODE_SKIPPED_BY_POLICY",
	"reason REASON_CODE_STORE_UNAVAILABLE",
	"reason REASON_CODE_SUCCEEDED",
	"reason REASON_CODE_WORKERS_FULL",
	"result refused",
	"rows: dead letters",
	"rows: dead letters taken back",
	"rows: gaps changed",
	"rows: gaps made",
	"rows: gaps moved",
	"rows: jobs drained",
	"rows: jobs ended",
	"rows: jobs pruned",
	"rows: late results",
	"rows: ranges left out",
	"rows: requests",
	"rows: rows of the backlog",
	"rows: slots pruned",
	"run too long",
	"schedule Cron",
	"schedule Immediate",
	"schedule Interval",
	"schedule RunAt",
	"shard given up",
	"slot CANCELLED",
	"slot DEAD",
	"slot DISCARDED",
	"slot EXPIRED",
	"slot SKIPPED",
	"slot SUCCEEDED",
	"spread",
	"start and end",
	"transition +CANCELLED",
	"transition +EXPIRED",
	"transition +READY",
	"transition +RUNNING",
	"transition +SKIPPED",
	"transition →CANCELLED",
	"transition →DEAD",
	"transition →DISCARDED",
	"transition →EXPIRED",
	"transition →READY",
	"transition →RUNNING",
	"transition →SUCCEEDED",
	"worker's lease expired",
}

// rare is what happens in fewer than one of ten seeds.
var rare = []string{
	"cancel ignored",
	"catch-up of a gap changed",
	"reason REASON_CODE_BACKFILL_PENDING",
	"transition →SKIPPED",
}

// neverReasons are those that no explanation gives in a simulation, and why.
var neverReasons = map[string]string{
	"REASON_CODE_UNSPECIFIED":     "it is never given",
	"REASON_CODE_JOB_QUARANTINED": "a job is set aside if its row can't be used, and no row is ever spoiled here",
}

// unhit lists what must have happened in so many seeds and hasn't.
func unhit(coverage map[string]int, seeds int) (missing []string) {
	var all []string
	if seeds >= enoughSeeds {
		all = append(all, must...)
	}
	if seeds >= manySeeds {
		all = append(all, rare...)
	}
	for _, what := range all {
		if coverage[what] == 0 {
			missing = append(missing, what)
		}
	}
	return missing
}

// printCoverage prints what happened, and how often.
func printCoverage(out io.Writer, coverage map[string]int) {
	for _, what := range slices.Sorted(maps.Keys(coverage)) {
		fmt.Fprintf(out, "%10d  %s\n", coverage[what], what)
	}
}
