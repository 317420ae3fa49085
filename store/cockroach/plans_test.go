package cockroach_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/cockroach"
)

var placeholder = regexp.MustCompile(`\$(\d+)`)

// arrayParam is an array among the parameters, of as many values as a full batch has.
var arrayParam = regexp.MustCompile(`\$(\d+)::(\w+)\[\]`)

var arrays = map[string]string{
	"INT2": manyOf("1"), "INT4": manyOf("1"), "INT8": manyOf("1"), "TEXT": manyOf("x"), "BOOL": manyOf("t"), "BYTEA": manyOf(`"\\x01"`),
}

func manyOf(value string) string {
	return "'{" + strings.TrimSuffix(strings.Repeat(value+",", 1000), ",") + "}'"
}

// explain returns the plan of a statement for arrays of a thousand values. Other values
// are unknown.
func explain(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	params := 0
	for _, m := range placeholder.FindAllStringSubmatch(sql, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		params = max(params, n)
	}
	values := make([]string, params)
	for i := range values {
		values[i] = "NULL"
	}
	for _, m := range arrayParam.FindAllStringSubmatch(sql, -1) {
		n, _ := strconv.Atoi(m[1]) // it is a number, see the loop above
		values[n-1] = arrays[m[2]]
	}
	call := "probe"
	if params > 0 {
		call += "(" + strings.Join(values, ", ") + ")"
	}
	exec(t, conn, "PREPARE probe AS "+sql)
	defer exec(t, conn, "DEALLOCATE probe")
	rows, err := conn.Query(t.Context(), "EXPLAIN (COSTS OFF) EXECUTE "+call)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return strings.Join(lines, "\n")
}

func exec(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// scan is a node of a plan that reads a table that grows.
var scan = regexp.MustCompile(`Scan.* on (jobs|slots|attempts|backlog|dead_letters|events|requests|inbox)\b`)

// walks returns the node of a plan that reads such a table from end to end: without an
// index, or by an index but without a bound.
func walks(plan string) string {
	nodes := strings.Split(plan, "->")
	for _, node := range nodes {
		first, rest, _ := strings.Cut(node, "\n")
		if scan.MatchString(first) && (strings.Contains(first, "Seq Scan") || !strings.Contains(rest, "Index Cond")) {
			return first
		}
	}
	return ""
}

// forPeople are statements whose plan may follow the statistics: nothing waits for
// them.
var forPeople = map[string]bool{"countBacklog": true, "countDead": true, "countSlots": true, "groupDead": true, "listDead": true}

// eitherWay look up slots and what hangs on them, whichever first.
var eitherWay = map[string]bool{"pruneAttempts": true, "pruneDead": true}

// growing are the tables that hold more than a few rows for each shard.
var growing = []string{"slots", "jobs", "attempts", "backlog", "dead_letters", "events", "requests", "inbox"}

// Every statement finds its rows by an index, whatever the statistics say: those of
// empty tables that have filled up since, those that are true, those of full tables that
// were emptied, and those of tables that were vacuumed while only a late row was left,
// and that have filled up again. And none of them changes any plan.
func TestNoPlanWalksATableWhateverTheStatisticsSay(t *testing.T) {
	db, url, owned := fresh(t)
	conn := connect(t, url)
	for _, s := range cockroach.SessionStatements() {
		exec(t, conn, s)
	}
	statements := cockroach.Statements()
	plans := map[string]string{}
	check := func(when, mode string) {
		t.Helper()
		exec(t, conn, "SET plan_cache_mode = "+mode)
		for _, name := range slices.Sorted(maps.Keys(statements)) {
			if mode == customPlan && (!arrayParam.MatchString(statements[name]) || name == "lockFence") {
				continue // its parameters are NULL here, for which it returns nothing, or fails as it should
			}
			plan := explain(t, conn, statements[name])
			if node := walks(plan); node != "" {
				t.Errorf("%s, %s, %s: %s\n%s", when, mode, name, node, plan)
			}
			if before, ok := plans[mode+name]; ok && before != plan && !forPeople[name] && !eitherWay[name] {
				t.Errorf("%s, %s, the plan of %s changed:\n%s\nbefore:\n%s", when, mode, name, plan, before)
			}
			plans[mode+name] = plan
		}
	}
	checkBoth := func(when string) {
		t.Helper()
		check(when, genericPlan)
		check(when, customPlan)
	}
	exec(t, conn, "ALTER SYSTEM SET autovacuum = off")
	exec(t, conn, "SELECT pg_reload_conf()")
	defer func() {
		exec(t, conn, "ALTER SYSTEM RESET autovacuum")
		exec(t, conn, "SELECT pg_reload_conf()")
	}()
	exec(t, conn, "ANALYZE")
	refill := func() {
		fill(t, db, owned)
		alone(t, url, "INSERT INTO inbox SELECT shard, uid FROM jobs ON CONFLICT DO NOTHING")
	}
	refill()
	checkBoth("filled, with the statistics of empty tables")
	exec(t, conn, "ANALYZE")
	checkBoth("filled")
	for _, table := range growing {
		alone(t, url, "DELETE FROM "+table+" WHERE ctid <> (SELECT max(ctid) FROM "+table+")")
	}
	checkBoth("emptied, with the statistics of full tables")
	for _, table := range growing {
		exec(t, conn, "VACUUM ANALYZE "+table)
	}
	alone(t, url, "DELETE FROM slots", "DELETE FROM jobs")
	refill()
	if err := db.Close(); err != nil { // the server hears what was changed
		t.Fatal(err)
	}
	tableWrites(t, url)
	if _, err := open(t, cockroach.Config{URL: url}).Commit(t.Context(), batch(store.ShardBatch{Proof: owned.Proof})); err != nil {
		t.Fatal(err) // and what is thought of the tables is mended
	}
	checkBoth("filled again, with the statistics of tables that were all but empty")
}

// alone runs statements on a connection of their own, and waits for its end: only then the
// server has counted what they changed.
func alone(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn := connect(t, url)
	for _, sql := range statements {
		exec(t, conn, sql)
	}
	pid := conn.PgConn().PID()
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	watcher := connect(t, url)
	for there := 1; there > 0; {
		if err := watcher.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE pid = $1`, pid).Scan(&there); err != nil {
			t.Fatal(err)
		}
	}
}

const (
	genericPlan = "force_generic_plan"
	customPlan  = "force_custom_plan"
)

// A plan that was made while a table was empty is not used when it has filled up:
// PostgreSQL would keep it until the table is analysed again, and every commit would
// read the whole table meanwhile.
func TestAPlanMadeForAnEmptyTableIsNotKept(t *testing.T) {
	db, url, owned := fresh(t)
	conn := connect(t, url)
	exec(t, conn, "ANALYZE") // what is known of the tables: they are empty
	key := job.SlotKey{FireTime: 1, UID: job.UID{1}}
	update := store.SlotUpdate{Slot: job.Slot{Key: key, State: job.Dead, Attempt: 1}, FromState: job.Running, FromAttempt: 1}
	idle := batch(store.ShardBatch{Proof: owned.Proof, Updates: []store.SlotUpdate{update}, BacklogDels: []store.BacklogKey{{Handler: "h", Slot: key}},
		DeadPuts: []store.DeadLetter{{Key: key}}, DeadDels: []job.SlotKey{key}, Lates: []store.LateResult{{Key: key, Attempt: 1}},
		Ends: []store.JobEnd{{UID: key.UID, EndedAt: 1}}, SlotPrunes: []store.SlotPrune{{Key: key, State: job.Dead}}, InboxDels: []job.UID{key.UID}})
	for range 40 { // on each of the connections, until the server would keep the plan
		if _, err := db.Commit(t.Context(), idle); err != nil {
			t.Fatal(err)
		}
	}
	filler := open(t, cockroach.Config{URL: url})
	fill(t, filler, owned)
	exec(t, conn, "INSERT INTO inbox SELECT shard, uid FROM jobs")
	if err := filler.Close(); err != nil {
		t.Fatal(err)
	}
	before := rowsRead(t, url, db)
	const commits = 5
	for range commits {
		if _, err := db.Commit(t.Context(), idle); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for table, n := range rowsRead(t, url) {
		if n -= before[table]; n > 20*commits {
			t.Errorf("%d commits of one row of a kind read %d rows of %s", commits, n, table)
		}
	}
}

// rowsRead reads how many rows of each table were looked at.
func rowsRead(t *testing.T, url string, open ...*cockroach.DB) map[string]int64 {
	t.Helper()
	read := map[string]int64{}
	for table, w := range tableWrites(t, url, open...) {
		read[table] = w.read
	}
	return read
}

// fill stores some ten thousand rows of each kind.
func fill(t *testing.T, db *cockroach.DB, owned store.Owned) {
	t.Helper()
	for n := range 20 {
		rows := store.ShardBatch{Proof: owned.Proof}
		for i := range 500 {
			j := everyMinute(0)
			j.UID, j.Name = job.UID{1, byte(n), byte(i >> 8), byte(i)}, fmt.Sprint("n", n*500+i)
			switch i % 4 {
			case 0:
				j.Schedule = job.Schedule{Kind: job.KindOnce, At: owned.Watermark + job.Instant(i)}
			case 1:
				j.EndedAt = owned.Watermark + job.Instant(i)
			}
			s := job.Slot{Key: job.SlotKey{FireTime: owned.Watermark + job.Instant(i*20+n), UID: j.UID}, Trigger: job.Trigger(1 + i%4), State: job.State(1 + i%8), Attempt: 2}
			rows.Creates = append(rows.Creates, store.Create{Job: j})
			rows.Slots = append(rows.Slots, s)
			rows.Attempts = append(rows.Attempts, store.SlotAttempt{Key: s.Key, Attempt: job.Attempt{Number: 1}})
			rows.Events = append(rows.Events, store.Event{Seq: int64(n*500 + i), At: s.Key.FireTime, Kind: store.EventLateResult})
			rows.Requests = append(rows.Requests, store.Request{Namespace: "d", RequestID: j.Name, Key: s.Key})
			rows.DeadPuts = append(rows.DeadPuts, store.DeadLetter{Key: s.Key, Namespace: "d", Handler: "h"})
			rows.BacklogPuts = append(rows.BacklogPuts, store.BacklogRow{Key: store.BacklogKey{Waiting: s.State == job.Ready, Handler: "h", Slot: s.Key}, Trigger: s.Trigger})
		}
		if _, err := db.Commit(t.Context(), batch(rows)); err != nil {
			t.Fatal(err)
		}
	}
}

// Two row writes for an execution, and the second one changes no indexed column, so
// that it needs no new entry in an index (HOT): half of each page is left for it.
func TestAnExecutionWritesTwoRows(t *testing.T) {
	setup, url, owned := fresh(t)
	j := everyMinute(1)
	if _, err := setup.Commit(t.Context(), batch(store.ShardBatch{Proof: owned.Proof, Creates: []store.Create{{Job: j}}})); err != nil {
		t.Fatal(err)
	}
	if err := setup.Close(); err != nil {
		t.Fatal(err)
	}
	before := tableWrites(t, url)
	db := open(t, cockroach.Config{URL: url})
	const executions, size = 6000, 60
	commits := 0
	var running []job.Slot
	r := rand.New(rand.NewPCG(1, 1))
	for made := 0; made < executions || len(running) > 0; {
		rows := store.ShardBatch{Proof: owned.Proof}
		for range min(size, len(running)) {
			if made < executions && len(running) < 5*size {
				break // attempts take some time
			}
			i := r.IntN(len(running))
			s := running[i]
			running = slices.Delete(running, i, i+1)
			s.State, s.StartedAt, s.FinishedAt, s.Outcome, s.Result = job.Succeeded, 3, 4, job.OutcomeSucceeded, []byte(`{"rows":1234567}`)
			rows.Updates = append(rows.Updates, store.SlotUpdate{Slot: s, FromState: job.Running, FromAttempt: 1})
		}
		for i := 0; i < size && made < executions; i++ {
			made++
			s := job.Slot{Key: job.SlotKey{FireTime: owned.Watermark + job.Instant(made)*job.Second, UID: j.UID}, Trigger: job.TriggerSchedule, State: job.Running,
				Attempt: 1, Epoch: owned.Proof.Epoch, Worker: "worker-1", Incarnation: "0123456789abcdef", CreatedAt: 1, ClaimedAt: 1, Deadline: 2}
			running = append(running, s)
			rows.Slots = append(rows.Slots, s)
		}
		out, err := db.Commit(t.Context(), batch(rows))
		if err != nil || len(out.Shards[0].Slots) > 0 {
			t.Fatalf("%+v, %v", out, err)
		}
		commits++
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for table, w := range tableWrites(t, url) {
		w.inserts, w.updates, w.hot = w.inserts-before[table].inserts, w.updates-before[table].updates, w.hot-before[table].hot
		if table == "slots" {
			t.Logf("%d executions in %d commits: %d rows inserted, %d updated, %.0f %% of them in their page", executions, commits, w.inserts, w.updates, 100*float64(w.hot)/float64(w.updates))
			if w.inserts != executions || w.updates != executions || w.hot < executions*9/10 {
				t.Errorf("slots: %+v", w)
			}
		} else if w.inserts+w.updates > 0 {
			t.Errorf("%d executions wrote to %s: %+v", executions, table, w)
		}
	}
	wantNoIndexOnState(t, url)
}

// wantNoIndexOnState asserts that no index of slots, nor the condition of one, holds
// a column that an execution changes.
func wantNoIndexOnState(t *testing.T, url string) {
	t.Helper()
	rows, err := connect(t, url).Query(t.Context(), `SELECT pg_get_indexdef(indexrelid) FROM pg_index WHERE indrelid = 'slots'::regclass`)
	if err != nil {
		t.Fatal(err)
	}
	indexes, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(indexes) < 2 {
		t.Fatalf("indexes %v, %v", indexes, err)
	}
	for _, index := range indexes {
		for _, column := range []string{"state", "attempt", "failures", "epoch", "worker", "claimed_at", "started_at", "finished_at", "not_before", "deadline", "outcome"} {
			if strings.Contains(index, column) {
				t.Errorf("%s holds %s", index, column)
			}
		}
	}
}

type writes struct{ inserts, updates, hot, read int64 }

// tableWrites reads how much was written to each table, once all connections have told
// what they did: those that are gone have, those of open must do nothing meanwhile.
func tableWrites(t *testing.T, url string, open ...*cockroach.DB) map[string]writes {
	t.Helper()
	conn := connect(t, url)
	for others := 1; others > 0 && len(open) == 0; {
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
			AND application_name = 'carillon'`).Scan(&others); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := conn.Query(t.Context(), `SELECT relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables`)
	if err != nil {
		t.Fatal(err)
	}
	now := map[string]writes{}
	for rows.Next() {
		var table string
		var w writes
		if err := rows.Scan(&table, &w.inserts, &w.updates, &w.hot, &w.read); err != nil {
			t.Fatal(err)
		}
		now[table] = w
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return now
}
