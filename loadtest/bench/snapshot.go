package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/loadtest/process"
)

// snapshot is what everything has used so far.
type snapshot struct {
	programs map[string]process.Usage // by name
	metrics  map[string]float64       // of the node, without labels
	wal      *wal                     // nil where it isn't known
}

// wal is what PostgreSQL knows of its writes, in all.
type wal struct {
	bytes   int64
	updates int64
	hot     int64 // updates that changed no index
}

// snapshot reads it all. Where there is no /proc, no program is known.
func (r *rig) snapshot(ctx context.Context) (s snapshot, err error) {
	s.programs = map[string]process.Usage{}
	pids := map[string]int{"node": r.node.PID(), "worker": r.worker.PID()}
	if r.pg != nil {
		pids["postgres"] = r.pg.PID()
	}
	for name, pid := range pids {
		if u, ok := process.UsageOf(pid); ok {
			s.programs[name] = u
		}
	}
	if s.metrics, err = r.metrics(ctx); err != nil {
		return s, err
	}
	if r.pg != nil {
		s.wal, err = r.readWAL(ctx)
	}
	return s, err
}

// metrics reads the node's metrics and adds up those that differ in labels only.
func (r *rig) metrics(ctx context.Context) (map[string]float64, error) {
	resp, err := r.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return readMetrics(resp.Body)
}

func readMetrics(text io.Reader) (map[string]float64, error) {
	sums := map[string]float64{}
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		name, _, _ := strings.Cut(line, " ")
		name, _, _ = strings.Cut(name, "{")
		if strings.HasPrefix(line, "#") || name == "" {
			continue
		}
		v, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		sums[name] += v
	}
	return sums, lines.Err()
}

func (r *rig) readWAL(ctx context.Context) (*wal, error) {
	w := &wal{}
	return w, r.onDatabase(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::INT8, coalesce(sum(n_tup_upd), 0)::INT8, coalesce(sum(n_tup_hot_upd), 0)::INT8
			FROM pg_stat_user_tables`).Scan(&w.bytes, &w.updates, &w.hot)
	})
}

// statementSettings let the server count what each statement costs, for profiles.
var statementSettings = []string{"shared_preload_libraries=pg_stat_statements", "pg_stat_statements.track_planning=on"}

// resetStatements forgets what statements cost until now.
func (r *rig) resetStatements(ctx context.Context) error {
	return r.onDatabase(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`)
		if err == nil {
			_, err = conn.Exec(ctx, `SELECT pg_stat_statements_reset()`)
		}
		return err
	})
}

// saveStatements writes what each statement cost to a file, the dearest first.
func (r *rig) saveStatements(ctx context.Context, file string) error {
	return r.onDatabase(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `SELECT calls, rows, total_exec_time, total_plan_time, wal_bytes::INT8, query FROM pg_stat_statements s
			JOIN pg_database d ON d.oid = s.dbid AND d.datname = current_database() ORDER BY total_exec_time + total_plan_time DESC LIMIT 20`)
		if err != nil {
			return err
		}
		defer rows.Close()
		var out strings.Builder
		fmt.Fprintf(&out, "%8s %9s %10s %10s %12s  %s\n", "calls", "rows", "run, ms", "plan, ms", "WAL, bytes", "statement")
		for rows.Next() {
			var calls, n, walBytes int64
			var exec, plan float64
			var query string
			if err := rows.Scan(&calls, &n, &exec, &plan, &walBytes, &query); err != nil {
				return err
			}
			query = strings.Join(strings.Fields(query), " ")
			fmt.Fprintf(&out, "%8d %9d %10.0f %10.0f %12d  %s\n", calls, n, exec, plan, walBytes, query[:min(len(query), 90)])
		}
		return errors.Join(rows.Err(), os.WriteFile(file, []byte(out.String()), 0o644))
	})
}

func (r *rig) onDatabase(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, r.address)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(ctx))
}
