package outbox

import (
	"context"
	"database/sql"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltest"
)

// run starts a relay; the function that it returns ends it.
func (f *fixture) run(r *Relay) (stop func()) {
	ctx, cancel := context.WithCancel(f.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() {
		f.Helper()
		cancel()
		f.must(<-ended)
	}
}

// A relay that is woken doesn't wait for its interval.
func TestWake(t *testing.T) {
	each(t, func(f *fixture) {
		called := make(chan struct{}, 10)
		f.node.calling = func(context.Context) error { called <- struct{}{}; return nil }
		r := f.relay(Interval(time.Hour))
		defer f.run(r)()
		for range 3 {
			f.add("")
			r.Wake()
			r.Wake() // it never blocks
			<-called
		}
	})
}

// When a relay is stopped in the middle of a call, the row is due at once for others, and
// is not blamed.
func TestStopInTheMiddleOfACall(t *testing.T) {
	each(t, func(f *fixture) {
		f.add("a")
		called := make(chan struct{})
		f.node.calling = func(ctx context.Context) error {
			close(called)
			<-ctx.Done()
			return ctx.Err()
		}
		stop := f.run(f.relay())
		<-called
		stop()
		var blame sql.NullString
		f.must(f.db.QueryRowContext(f.Context(), "SELECT error FROM carillon_outbox").Scan(&blame))
		if blame.Valid {
			f.Errorf("the row says %q", blame.String)
		}
		f.node.calling = nil
		f.flush(f.relay(), 1)
	})
}

// A relay goes on when its database fails for a while.
func TestTheDatabaseFails(t *testing.T) {
	each(t, func(f *fixture) {
		_, err := f.db.ExecContext(f.Context(), "ALTER TABLE carillon_outbox RENAME TO away")
		f.must(err)
		if _, err := f.relay().Flush(f.Context()); err == nil {
			f.Error("a flush without a table succeeded")
		}
		called := make(chan struct{}, 1)
		f.node.calling = func(context.Context) error { called <- struct{}{}; return nil }
		defer f.run(f.relay(Interval(minInterval)))()
		_, err = f.db.ExecContext(f.Context(), "ALTER TABLE away RENAME TO carillon_outbox")
		f.must(err)
		f.add("a")
		<-called
	})
}

// While no node answers, a relay pauses, whatever is due and however often it is woken; and
// it goes on when there is one. In virtual time, in which the database's clock stands: the
// rows are made due by hand.
func TestNoNodeAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, SQLite, sqltest.Open(t, SQLite))
		away := refusal(codes.Unavailable, "SHARD_UNOWNED")
		f.node.refuses("a", away)
		f.node.refuses("b", away)
		f.add("a", "b")
		r := f.relay(Batch(1))
		stop := f.run(r)
		begin := time.Now()
		for time.Since(begin) < time.Hour {
			f.makeDue()
			r.Wake()
			time.Sleep(time.Second)
		}
		passes := f.node.called("a") + f.node.called("b")
		if least, most := int(time.Hour/maxPause/2), int(4*time.Hour/maxPause); passes < least || passes > most {
			t.Errorf("in an hour there were %d passes, want %d to %d", passes, least, most)
		}
		f.node.refuses("a", nil)
		f.node.refuses("b", nil)
		f.makeDue()
		time.Sleep(2 * maxPause)
		stop()
		f.holds(0, 0)
	})
}

// A relay that idles looks once in an interval.
func TestInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, SQLite, sqltest.Open(t, SQLite))
		stop := f.run(f.relay(Interval(time.Minute)))
		time.Sleep(time.Second)
		f.add("a")
		time.Sleep(58 * time.Second)
		if n := f.node.called("a"); n != 0 {
			t.Errorf("it was asked for %d times before its time", n)
		}
		time.Sleep(2 * time.Second)
		if n := f.node.called("a"); n != 1 {
			t.Errorf("it was asked for %d times", n)
		}
		stop()
	})
	r := &Relay{}
	if Interval(0)(r); r.interval != minInterval {
		t.Errorf("an interval of nothing became %s", r.interval)
	}
}
