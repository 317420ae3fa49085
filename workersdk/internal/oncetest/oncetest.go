// Package oncetest says what a correct guard is: one suite for every database and driver.
package oncetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltext"
	"github.com/carillon-scheduler/carillon/workersdk/once"
)

// Database is an empty database, with transactions of the driver that is tested.
type Database[T any] struct {
	Dialect  once.Dialect
	New      func(...once.Option) (*once.Guard[T], error)
	Wrap     func(T) once.Tx
	Begin    func(ctx context.Context) (T, error)
	Commit   func(ctx context.Context, tx T) error
	Rollback func(ctx context.Context, tx T) error
	// Waiting counts the transactions that wait for another one, or returns what was
	// asked for if nobody can know.
	Waiting func(ctx context.Context, asked int) (int, error)
}

// Attempt is one attempt of a slot.
type Attempt struct {
	Number int64
	Slot   string // the job's uid and the fire time; empty is one of its own
}

// Job implements once.Attempt.
func (a Attempt) Job() string { return "namespaces/default/jobs/nightly" }

// FireTime implements once.Attempt.
func (a Attempt) FireTime() time.Time { return time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC) }

// Fence implements once.Attempt.
func (a Attempt) Fence() int64 { return a.Number }

// Key implements once.Attempt.
func (a Attempt) Key(parts ...any) string {
	slot := a.Slot
	if slot == "" {
		slot = "0190f0e1-0000-7000-8000-000000000001/20261130T020000.000000Z"
	}
	for _, p := range parts {
		slot += fmt.Sprint("/", p)
	}
	return slot
}

// Run tests a guard on databases that open makes.
func Run[T any](t *testing.T, open func(t *testing.T) Database[T]) {
	for name, test := range map[string]func(*suite[T]){
		"repeats are skipped, older attempts refused": repeats[T],
		"a rollback leaves nothing":                   rollback[T],
		"a failed effect isn't done":                  failure[T],
		"a panic isn't done":                          panics[T],
		"the older attempt first":                     olderFirst[T],
		"the older attempt first, rolled back":        olderRolledBack[T],
		"the newer attempt first":                     newerFirst[T],
		"the newer attempt first, rolled back":        newerRolledBack[T],
		"a claim refuses older attempts":              claims[T],
		"many attempts at a time":                     crowd[T],
		"parts":                                       parts[T],
		"an effect within itself":                     nested[T],
		"keys":                                        keys[T],
		"prune":                                       prune[T],
		"create a table":                              create[T],
		"what the row tells":                          row[T],
	} {
		t.Run(name, func(t *testing.T) { test(start(t, open(t), once.DefaultTable)) })
	}
}

// suite is one test's database, guard, and table of effects.
type suite[T any] struct {
	*testing.T
	Database[T]
	guard *once.Guard[T]
}

func start[T any](t *testing.T, db Database[T], table string) *suite[T] {
	guard, err := db.New(once.Table(table))
	s := &suite[T]{t, db, guard}
	s.must(err)
	s.must(s.tx(func(tx T) error { return guard.CreateTable(t.Context(), tx) }))
	s.must(s.tx(func(tx T) error {
		_, err := db.Wrap(tx).Exec(t.Context(), "CREATE TABLE effects (attempt BIGINT NOT NULL)")
		return err
	}))
	return s
}

func (s *suite[T]) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// tx runs a transaction; the error decides how it ends.
func (s *suite[T]) tx(do func(tx T) error) error {
	tx, err := s.Begin(s.Context())
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, s.Rollback(s.Context(), tx))
	}
	return s.Commit(s.Context(), tx)
}

// effect makes the effect of an attempt.
func (s *suite[T]) effect(a Attempt) func(context.Context, T) error {
	return func(ctx context.Context, tx T) error {
		_, err := s.Wrap(tx).Exec(ctx, fmt.Sprintf("INSERT INTO effects VALUES (%d)", a.Number))
		return err
	}
}

// do is a whole attempt.
func (s *suite[T]) do(a Attempt, parts ...any) (ran bool, err error) {
	err = s.tx(func(tx T) (err error) {
		ran, err = s.guard.Do(s.Context(), tx, a, s.effect(a), parts...)
		return err
	})
	return ran, err
}

// wants an attempt to run, or not.
func (s *suite[T]) wants(ran bool, a Attempt, parts ...any) {
	s.Helper()
	if got, err := s.do(a, parts...); err != nil || got != ran {
		s.Fatalf("attempt %d: ran %v, %v; want %v", a.Number, got, err, ran)
	}
}

// refuses an attempt.
func (s *suite[T]) refuses(a Attempt) {
	s.Helper()
	if ran, err := s.do(a); !errors.Is(err, once.ErrFenced) || ran {
		s.Fatalf("attempt %d: ran %v, %v; want %v", a.Number, ran, err, once.ErrFenced)
	}
}

// query reads one number.
func (s *suite[T]) query(query string) (n int64) {
	s.Helper()
	s.must(s.tx(func(tx T) error { return s.Wrap(tx).QueryRow(s.Context(), query, nil, &n) }))
	return n
}

// effects are how many there are, and of whom the only one is.
func (s *suite[T]) effects(count int64, by Attempt) {
	s.Helper()
	n, of := s.query("SELECT count(*) FROM effects"), s.query("SELECT coalesce(max(attempt), 0) FROM effects")
	if n != count || of != by.Number {
		s.Fatalf("%d effects, of attempt %d; want %d, of attempt %d", n, of, count, by.Number)
	}
}

func (s *suite[T]) rows(count int64) {
	s.Helper()
	if n := s.query("SELECT count(*) FROM carillon_once"); n != count {
		s.Fatalf("%d rows of effects, want %d", n, count)
	}
}

var nobody, first, second, third = Attempt{}, Attempt{Number: 1}, Attempt{Number: 2}, Attempt{Number: 3}

func repeats[T any](s *suite[T]) {
	s.wants(true, second)
	s.wants(false, second)
	s.wants(false, third)
	s.refuses(first)
	s.refuses(second) // the third has shown itself
	s.wants(false, third)
	s.effects(1, second)
}

func rollback[T any](s *suite[T]) {
	away := errors.New("the user thinks better of it")
	err := s.tx(func(tx T) error {
		if ran, err := s.guard.Do(s.Context(), tx, second, s.effect(second)); !ran || err != nil {
			s.Errorf("ran %v, %v", ran, err)
		}
		return away
	})
	if !errors.Is(err, away) {
		s.Fatal(err)
	}
	s.rows(0)
	s.effects(0, nobody)
	s.wants(true, first)
	s.effects(1, first)
}

func failure[T any](s *suite[T]) {
	broken := errors.New("broken")
	s.must(s.tx(func(tx T) error {
		ran, err := s.guard.Do(s.Context(), tx, first, func(context.Context, T) error { return broken })
		if ran || !errors.Is(err, broken) {
			s.Errorf("ran %v, %v", ran, err)
		}
		return nil // and commits
	}))
	s.wants(true, first)
	s.effects(1, first)
}

func panics[T any](s *suite[T]) {
	s.must(s.tx(func(tx T) error {
		defer func() {
			if recover() == nil {
				s.Error("the panic was kept")
			}
		}()
		_, err := s.guard.Do(s.Context(), tx, first, func(context.Context, T) error { panic("oh") })
		return err
	}))
	s.wants(true, second)
	s.effects(1, second)
}

// race lets one attempt run its effect, and another one come before it ends: with a
// commit, or not. It returns what became of the other one.
func (s *suite[T]) race(holder, rival Attempt, commit bool) (ran bool, err error) {
	s.Helper()
	tx, err := s.Begin(s.Context())
	s.must(err)
	if held, err := s.guard.Do(s.Context(), tx, holder, s.effect(holder)); !held || err != nil {
		s.Fatalf("attempt %d: ran %v, %v", holder.Number, held, err)
	}
	var rivals sync.WaitGroup
	rivals.Go(func() { ran, err = s.do(rival) })
	s.blocked(1)
	end := s.Rollback
	if commit {
		end = s.Commit
	}
	s.must(end(s.Context(), tx))
	rivals.Wait()
	return ran, err
}

// blocked waits until transactions wait for a lock.
func (s *suite[T]) blocked(n int) {
	s.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(20 * time.Second); ; {
		waiting, err := s.Waiting(s.Context(), n)
		s.must(err)
		if waiting >= n {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			s.Fatalf("%d transactions wait, want %d", waiting, n)
		}
	}
}

func olderFirst[T any](s *suite[T]) {
	if ran, err := s.race(first, second, true); ran || err != nil {
		s.Fatalf("ran %v, %v; want it skipped", ran, err)
	}
	s.effects(1, first)
	s.refuses(first) // the second has shown itself
}

func olderRolledBack[T any](s *suite[T]) {
	if ran, err := s.race(first, second, false); !ran || err != nil {
		s.Fatalf("ran %v, %v; want it to run", ran, err)
	}
	s.effects(1, second)
}

func newerFirst[T any](s *suite[T]) {
	if ran, err := s.race(second, first, true); ran || !errors.Is(err, once.ErrFenced) {
		s.Fatalf("ran %v, %v; want %v", ran, err, once.ErrFenced)
	}
	s.effects(1, second)
}

func newerRolledBack[T any](s *suite[T]) {
	if ran, err := s.race(second, first, false); !ran || err != nil {
		s.Fatalf("ran %v, %v; want it to run", ran, err)
	}
	s.effects(1, first)
	s.wants(false, second)
}

// claim is a claim in a transaction of its own.
func (s *suite[T]) claim(a Attempt) (done bool, err error) {
	err = s.tx(func(tx T) (err error) {
		done, err = s.guard.Claim(s.Context(), tx, a)
		return err
	})
	return done, err
}

func claims[T any](s *suite[T]) {
	for range 2 {
		if done, err := s.claim(second); done || err != nil {
			s.Fatalf("done %v, %v", done, err)
		}
	}
	s.refuses(first)
	if _, err := s.claim(first); !errors.Is(err, once.ErrFenced) {
		s.Fatalf("%v, want %v", err, once.ErrFenced)
	}
	s.effects(0, nobody)
	s.wants(true, second)
	if done, err := s.claim(third); !done || err != nil {
		s.Fatalf("done %v, %v; want it done", done, err)
	}
	s.effects(1, second)
}

// crowd lets attempts come all at once. A database may refuse one for a deadlock; it comes
// again, as the next attempt of a handler would.
func crowd[T any](s *suite[T]) {
	const attempts, tries = 8, 50
	var all sync.WaitGroup
	for n := range attempts {
		all.Go(func() {
			a := Attempt{Number: int64(n + 1)}
			for range tries {
				_, err := s.do(a)
				if err == nil || errors.Is(err, once.ErrFenced) {
					return
				}
			}
			s.Errorf("attempt %d never got an answer", a.Number)
		})
	}
	all.Wait()
	if n := s.query("SELECT count(*) FROM effects"); n != 1 {
		s.Fatalf("%d effects", n)
	}
	s.rows(1)
}

func parts[T any](s *suite[T]) {
	s.wants(true, first, "a")
	s.wants(true, first, "b")
	s.wants(true, first, "A")
	s.wants(false, second, "a")
	s.wants(true, Attempt{Number: 1, Slot: "another"}, "a")
	s.rows(4)
}

func nested[T any](s *suite[T]) {
	err := s.tx(func(tx T) error {
		_, err := s.guard.Do(s.Context(), tx, first, func(ctx context.Context, tx T) error {
			_, err := s.guard.Do(ctx, tx, first, s.effect(first))
			return err
		})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "parts of their own") {
		s.Fatalf("%v", err)
	}
	s.effects(0, nobody)
}

func keys[T any](s *suite[T]) {
	for _, bad := range []string{"with blank", "ümlaut", "nul\x00", strings.Repeat("x", 513)} {
		if ran, err := s.do(Attempt{Number: 1, Slot: bad}); ran || err == nil {
			s.Errorf("%q: ran %v, %v", bad, ran, err)
		}
	}
	s.wants(true, Attempt{Number: 1, Slot: strings.Repeat("x", 512)})
	s.wants(true, Attempt{Number: 1, Slot: strings.Repeat("x", 511)})
	s.effects(2, first)
}

// exec changes the table by hand.
func (s *suite[T]) exec(query string) {
	s.Helper()
	s.must(s.tx(func(tx T) error {
		_, err := s.Wrap(tx).Exec(s.Context(), query)
		return err
	}))
}

func prune[T any](s *suite[T]) {
	const old, bound = 1005, 1000
	s.must(s.tx(func(tx T) error {
		for n := range old + 1 {
			if _, err := s.guard.Claim(s.Context(), tx, Attempt{Number: 1, Slot: fmt.Sprint("slot-", n)}); err != nil {
				return err
			}
		}
		return nil
	}))
	past := strings.ReplaceAll(s.Dialect.After(), "?", fmt.Sprint(-(once.DefaultKeep + time.Hour).Milliseconds()))
	s.exec("UPDATE carillon_once SET claimed_at = " + past + " WHERE effect_key <> 'slot-5'")
	pruned := func(keep time.Duration) (more bool, err error) {
		err = s.tx(func(tx T) (err error) { more, err = s.guard.Prune(s.Context(), tx, keep); return err })
		return more, err
	}
	for _, keep := range []time.Duration{-time.Hour, time.Hour, once.MinKeep - 1} {
		if _, err := pruned(keep); err == nil {
			s.Errorf("rows of %s were pruned", keep)
		}
	}
	if more, err := pruned(once.DefaultKeep + 2*time.Hour); more || err != nil {
		s.Fatalf("more %v, %v", more, err)
	}
	s.rows(old + 1)
	if more, err := pruned(0); !more || err != nil {
		s.Fatalf("more %v, %v", more, err)
	}
	s.rows(old + 1 - bound)
	if more, err := pruned(once.DefaultKeep); more || err != nil {
		s.Fatalf("more %v, %v", more, err)
	}
	s.rows(1)
	if n := s.query("SELECT count(*) FROM carillon_once WHERE effect_key = 'slot-5'"); n != 1 {
		s.Fatal("the young row went")
	}
}

// create makes tables at the same time, and one with a word of SQL for its name.
func create[T any](s *suite[T]) {
	for _, bad := range []string{"", "Once", "a.b", `a"; DROP TABLE effects; --`} {
		if _, err := s.New(once.Table(bad)); err == nil {
			s.Errorf("a table may be called %q", bad)
		}
	}
	guard, err := s.New(once.Table("order"))
	s.must(err)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := s.tx(func(tx T) error { return guard.CreateTable(s.Context(), tx) }); err != nil {
				s.Error(err)
			}
		})
	}
	all.Wait()
	s.guard = guard
	s.wants(true, second)
	s.wants(false, second)
	s.refuses(first)
	for statement := range strings.SplitSeq(strings.TrimSpace(guard.Schema()), ";\n") {
		s.exec(strings.TrimSuffix(statement, ";"))
	}
}

// row reads what people see.
func row[T any](s *suite[T]) {
	claimed := s.query("SELECT " + s.Dialect.Millis(s.Dialect.Now()))
	s.wants(true, second)
	var job string
	var fire, fence, at, done int64
	millis := s.Dialect.Millis
	s.must(s.tx(func(tx T) error {
		return s.Wrap(tx).QueryRow(s.Context(), fmt.Sprintf("SELECT job, %s, fence, %s, %s FROM carillon_once WHERE effect_key = '%s'",
			millis("fire_time"), millis("claimed_at"), millis("done_at"), second.Key()), nil, &job, &fire, &fence, &at, &done)
	}))
	if job != second.Job() || fire != second.FireTime().UnixMilli() || fence != 2 {
		s.Errorf("%s, due at %d, fence %d", job, fire, fence)
	}
	if late := at - claimed; late < 0 || late > time.Minute.Milliseconds() || done < at || done > at+time.Minute.Milliseconds() {
		s.Errorf("claimed %d ms after it was asked for, done %d ms later", late, done-at)
	}
}

var _ once.Tx = sqltext.Tx(nil)
