package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/loadtest/checker"
	"github.com/carillon-scheduler/carillon/loadtest/workload"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store/cockroach"
)

const (
	// catchUpTimeout is how long what was missed may take, once all is well again.
	catchUpTimeout = 2 * time.Minute
	lookEvery      = 200 * time.Millisecond
	// lastWatermark is longer than a shard needs to say that it is done.
	lastWatermark = 1500 * time.Millisecond
	auditTimeout  = 10 * time.Minute
)

// finish lets the work come to its end, and reads what came of it.
func (s *stage) finish(ctx context.Context) (*verdict, error) {
	if err := s.quiet(ctx, "what was missed is made up for", 2*time.Second); err != nil {
		s.wrongf("%v", err)
	}
	if err := s.load.end(ctx); err != nil {
		return nil, err
	}
	if err := s.quiet(ctx, "all that was due has ended", 0); err != nil {
		s.wrongf("%v", err)
	}
	select {
	case <-time.After(lastWatermark):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	stopped := job.At(time.Now())
	v := &verdict{stage: s}
	for i, w := range s.site.Workers {
		if _, err := w.Stop(); err != nil {
			return nil, err
		}
		noted, err := workload.ReadNotes(notesFile(s.site.Dir(), i))
		if err != nil {
			return nil, err
		}
		v.runs = append(v.runs, noted...)
	}
	return v, v.read(ctx, stopped)
}

// quiet waits until nothing is open that was due some time ago.
func (s *stage) quiet(ctx context.Context, what string, ago time.Duration) (err error) {
	conn, err := pgx.Connect(ctx, s.site.Database.Local)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	late := time.NewTimer(catchUpTimeout)
	defer late.Stop()
	again := time.NewTicker(lookEvery)
	defer again.Stop()
	for {
		var open, gaps, inbox int
		err := conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM slots WHERE state IN ($1, $2) AND fire_time < $3), (SELECT count(*) FROM gaps), (SELECT count(*) FROM inbox)`,
			int16(job.Ready), int16(job.Running), int64(job.At(time.Now().Add(-ago)))).Scan(&open, &gaps, &inbox)
		if err != nil || open+gaps+inbox == 0 {
			return err
		}
		select {
		case <-again.C:
		case <-late.C:
			return fmt.Errorf("it never came within %s that %s: %d slots, %d gaps and %d rows of the inbox are open", catchUpTimeout, what, open, gaps, inbox)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// read reads all that is stored, and lets the checker judge it.
func (v *verdict) read(ctx context.Context, stopped job.Instant) (err error) {
	db, err := cockroach.Open(ctx, cockroach.Config{URL: v.site.Database.Local, StatementTimeout: auditTimeout})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if v.shards, err = checker.Read(ctx, db, shardCount); err != nil {
		return err
	}
	v.jobs = workload.JobsOf(v.shards)
	// One machine, one clock.
	h := checker.History{Shards: v.shards, Now: stopped, Quiet: true, Young: time.Second, ClockError: time.Millisecond, Effects: workload.Effects(v.jobs, v.runs)}
	h.Ledger.Acked = v.load.acked
	for _, one := range checker.Check(h) {
		v.violations = append(v.violations, one.String())
	}
	v.homes = map[int64]shard.ID{}
	for i := range v.shards {
		for _, j := range v.shards[i].Jobs {
			v.homes[v.jobs.Numbers[j.UID]] = v.shards[i].Shard
		}
	}
	return nil
}
