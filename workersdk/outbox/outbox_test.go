package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/workersdk/internal/sqltest"
)

// A job exists if and only if the user's transaction committed.
func TestTheTransactionDecides(t *testing.T) {
	each(t, func(f *fixture) {
		own := request("own")
		own.RequestId = "mine"
		f.must(f.tx(func(tx *sql.Tx) error { return f.box.Add(f.Context(), tx, request("a"), request("b"), own) }))
		regret := errors.New("regret")
		err := f.tx(func(tx *sql.Tx) error {
			f.must(f.box.Add(f.Context(), tx, request("c")))
			return regret
		})
		if !errors.Is(err, regret) {
			f.Fatal(err)
		}
		f.holds(3, 0)
		f.flush(f.relay(), 3)
		f.holds(0, 0)
		made := map[string]*carillonv1.CreateJobRequest{}
		for id, req := range f.node.jobs {
			if id == "" || id != req.GetRequestId() {
				f.Errorf("request id %q", id)
			}
			made[req.GetJobId()] = req
		}
		for _, id := range []string{"a", "b", "own"} {
			want := request(id)
			want.RequestId = made[id].GetRequestId()
			if !proto.Equal(made[id], want) {
				f.Errorf("%v was created, want %v", made[id], want)
			}
		}
		if len(made) != 3 || f.node.jobs["mine"] == nil || own.GetRequestId() != "mine" {
			f.Errorf("created: %v", made)
		}
	})
}

// A request that is used twice isn't changed by its first use: it makes two jobs.
func TestARequestIsNotChanged(t *testing.T) {
	each(t, func(f *fixture) {
		req := request("")
		f.must(f.tx(func(tx *sql.Tx) error { return f.box.Add(f.Context(), tx, req, req) }))
		f.flush(f.relay(), 2)
		if req.GetRequestId() != "" || len(f.node.jobs) != 2 {
			f.Errorf("%v; %d jobs", req, len(f.node.jobs))
		}
	})
}

// What no node would take fails before the transaction commits, and names the fields.
func TestWhatIsWrongIsSaidAtOnce(t *testing.T) {
	cron := func(text string) *carillonv1.Schedule {
		return &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: text}}
	}
	for field, spoil := range map[string]func(*carillonv1.CreateJobRequest){
		"parent":              func(r *carillonv1.CreateJobRequest) { r.Parent = "default" },
		"job_id":              func(r *carillonv1.CreateJobRequest) { r.JobId = "-bad" },
		"request_id":          func(r *carillonv1.CreateJobRequest) { r.RequestId = "two words" },
		"validate_only":       func(r *carillonv1.CreateJobRequest) { r.ValidateOnly = true },
		"job":                 func(r *carillonv1.CreateJobRequest) { r.Job = nil },
		"job.handler":         func(r *carillonv1.CreateJobRequest) { r.Job.Handler = "" },
		"job.params":          func(r *carillonv1.CreateJobRequest) { r.Job.Params.Text = "{" },
		"job.schedule":        func(r *carillonv1.CreateJobRequest) { r.Job.Schedule = cron("0 0 30 2 *") },
		"job.schedule.cron":   func(r *carillonv1.CreateJobRequest) { r.Job.Schedule = cron("99 * * * *") },
		"job.attempt_timeout": func(r *carillonv1.CreateJobRequest) { r.Job.AttemptTimeout = durationpb.New(-time.Second) },
		"job.schedule.spread": func(r *carillonv1.CreateJobRequest) { r.Job.Schedule.Spread = durationpb.New(time.Second) },
		"job.schedule.end_time": func(r *carillonv1.CreateJobRequest) {
			r.Job.Schedule = cron("@daily")
			r.Job.Schedule.EndTime = timestamppb.New(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))
		},
	} {
		req := request("fine")
		if err := check(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		spoil(req)
		var invalid *InvalidError
		err := new(Box[*sql.Tx]).Add(t.Context(), nil, request("fine"), req) // nothing is sent
		if !errors.As(err, &invalid) || invalid.Fields[0].Field != field && !(field == "job.schedule" && strings.HasPrefix(invalid.Fields[0].Field, field)) {
			t.Errorf("%s: %v", field, err)
		}
	}
	req := &carillonv1.CreateJobRequest{Job: &carillonv1.Job{}}
	if err := check(t.Context(), req); err == nil || !strings.HasSuffix(err.Error(), "(and 2 more)") {
		t.Error(err)
	}
}

// Calendars are known to nodes alone: what depends on them is not judged here.
func TestCalendarsAreNotJudged(t *testing.T) {
	req := request("a")
	req.Job.Schedule = &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: "@daily"}, Calendars: []string{"closed"}}
	if err := check(t.Context(), req); err != nil {
		t.Error(err)
	}
}

// A relay that dies with rows in its hands, before or after their creates, leaves them to
// others, and nothing is made twice.
func TestARelayDies(t *testing.T) {
	each(t, func(f *fixture) {
		f.add("sent", "sent-too")
		dying := f.relay()
		rows, err := dying.claim(f.Context())
		f.must(err)
		dying.send(f.Context(), rows) // and never settles
		f.add("claimed")
		rows, err = dying.claim(f.Context())
		f.must(err)
		if len(rows) != 1 {
			f.Fatalf("%d rows were claimed; those that are leased are another's", len(rows))
		}
		f.flush(f.relay(), 0) // they are leased
		f.makeDue()
		f.flush(f.relay(), 3)
		f.holds(0, 0)
		if len(f.node.jobs) != 3 || f.node.called("sent") != 2 || f.node.called("claimed") != 1 {
			f.Errorf("%d jobs, calls: %v", len(f.node.jobs), f.node.calls)
		}
	})
}

// A relay that comes late, after its lease, changes nothing of what its successor noted.
func TestARelayComesLate(t *testing.T) {
	each(t, func(f *fixture) {
		f.add("slow", "slower")
		slow := f.relay()
		rows, err := slow.claim(f.Context())
		f.must(err)
		f.makeDue()
		f.node.refuses("slow", refusal(codes.InvalidArgument, "INVALID_FIELD"))
		f.flush(f.relay(), 1)
		f.holds(0, 1)
		_, err = slow.settle(f.Context(), rows) // it has no answers
		f.must(err)
		f.holds(0, 1)
		f.flush(f.relay(), 0)
	})
}

// A job that is refused for good holds up no other one. Its row tells why, and can be tried
// again or given up.
func TestARefusedJobHoldsUpNobody(t *testing.T) {
	each(t, func(f *fixture) {
		f.add("bad", "taken", "odd", "fine", "also-fine")
		_, err := f.db.ExecContext(f.Context(), "UPDATE carillon_outbox SET request = request_id WHERE job LIKE '%/odd'")
		if f.box.dialect == PostgreSQL {
			_, err = f.db.ExecContext(f.Context(), `UPDATE carillon_outbox SET request = '\xff' WHERE job LIKE '%/odd'`)
		}
		f.must(err)
		f.node.refuses("bad", refusal(codes.InvalidArgument, "INVALID_FIELD"))
		f.node.refuses("taken", refusal(codes.AlreadyExists, "JOB_EXISTS"))
		r := f.relay(Batch(1))
		f.flush(r, 2)
		f.holds(0, 3)
		f.makeDue()
		f.flush(r, 0)

		page, err := r.Failed(f.Context(), 0, 2)
		f.must(err)
		rest, err := r.Failed(f.Context(), page[1].ID, 1000)
		f.must(err)
		list := append(page, rest...)
		if len(page) != 2 || len(list) != 3 || list[2].Request != nil || !strings.Contains(list[2].Error, "read the row") {
			f.Fatalf("failed: %+v", list)
		}
		for i, id := range []string{"bad", "taken"} {
			row := list[i]
			if row.Request.GetJobId() != id || row.Attempts != 1 || !strings.Contains(row.Error, "because of ") || f.node.called(id) != 1 || time.Since(row.Time).Abs() > time.Hour {
				f.Errorf("%+v", row)
			}
		}

		f.node.refuses("taken", nil)
		for what, c := range map[string]struct {
			do   func(context.Context, ...int64) (int64, error)
			ids  []int64
			want int64
		}{
			"retry":           {r.Retry, []int64{list[1].ID, list[2].ID + 1000}, 1},
			"retry nothing":   {r.Retry, nil, 0},
			"discard":         {r.Discard, []int64{list[0].ID, list[2].ID}, 2},
			"discard nothing": {r.Discard, nil, 0},
		} {
			if n, err := c.do(f.Context(), c.ids...); err != nil || n != c.want {
				f.Errorf("%s: %d, %v", what, n, err)
			}
		}
		f.holds(1, 0)
		f.flush(r, 1)
		f.holds(0, 0)
	})
}

// Only failed rows can be given up or tried again: others may be in a relay's hands.
func TestRowsThatWaitAreLeftAlone(t *testing.T) {
	each(t, func(f *fixture) {
		f.add("a")
		r := f.relay()
		rows, err := r.claim(f.Context())
		f.must(err)
		for _, do := range []func(context.Context, ...int64) (int64, error){r.Retry, r.Discard} {
			if n, err := do(f.Context(), rows[0].id); n != 0 || err != nil {
				f.Errorf("%d, %v", n, err)
			}
		}
		f.flush(r, 0) // it is still leased
		f.holds(1, 0)
		if _, err := r.Discard(f.Context(), make([]int64, maxFailed+1)...); err == nil {
			f.Error("there is no bound")
		}
	})
}

// What may still come right is tried again, later each time, behind the others.
func TestWhatMayComeRightWaits(t *testing.T) {
	for reason, code := range map[string]codes.Code{
		reasonHandlerUnknown: codes.InvalidArgument, reasonCalendarUnknown: codes.InvalidArgument,
		"STORE_UNAVAILABLE": codes.Unavailable, "": codes.PermissionDenied, "LOST": codes.DeadlineExceeded, "INTERNAL": codes.Internal,
	} {
		t.Run(code.String()+" "+reason, func(t *testing.T) {
			f := newFixture(t, SQLite, sqltest.Open(t, SQLite))
			f.add("early", "fine")
			f.node.refuses("early", refusal(code, reason))
			r := f.relay(Batch(1))
			if _, err := r.pass(t.Context()); err != nil {
				t.Fatal(err)
			}
			f.flush(r, 1)
			f.holds(1, 0)
			var text string
			f.must(f.db.QueryRowContext(t.Context(), "SELECT error FROM carillon_outbox").Scan(&text))
			if !strings.Contains(text, "because of "+reason) {
				t.Errorf("the row says %q", text)
			}
			f.makeDue()
			f.node.refuses("early", nil)
			f.flush(r, 1)
			f.holds(0, 0)
		})
	}
}

func TestDelays(t *testing.T) {
	for attempts, most := range map[int64]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second, 7: maxDelay, 1 << 40: maxDelay} {
		for range 100 {
			if d := delayAfter(attempts); d < most/2 || d >= most {
				t.Fatalf("after %d attempts: %s, want %s to %s", attempts, d, most/2, most)
			}
		}
	}
}

func TestALongErrorIsCut(t *testing.T) {
	a := answer{failed, errors.New(strings.Repeat("ä\x00", maxErrorBytes))}
	if text := a.text(); len(text) > maxErrorBytes || strings.ContainsRune(text, 0) || !strings.HasPrefix(text, "ää") {
		t.Errorf("%d bytes", len(text))
	}
}

// Relays that work at the same time share the rows: none is sent twice.
func TestRelaysShareTheRows(t *testing.T) {
	each(t, func(f *fixture) {
		const jobs, relays = 300, 3
		var ids []string
		for n := range jobs {
			ids = append(ids, fmt.Sprint("job-", n))
		}
		f.add(ids...)
		var all sync.WaitGroup
		for range relays {
			all.Go(func() {
				if _, err := f.relay(Batch(7)).Flush(f.Context()); err != nil {
					f.Error(err)
				}
			})
		}
		all.Wait()
		f.flush(f.relay(), 0)
		f.holds(0, 0)
		for _, id := range ids {
			if n := f.node.called(id); n != 1 {
				f.Errorf("%s was sent %d times", id, n)
			}
		}
	})
}

// A transaction that commits after a later one keeps its rows: they are found when they can
// be seen, and hold up nobody meanwhile. SQLite has one such transaction at a time.
func TestTransactionsCommitOutOfOrder(t *testing.T) {
	for _, d := range []Dialect{PostgreSQL, MySQL} {
		t.Run(d.String(), func(t *testing.T) {
			f := newFixture(t, d, sqltest.Open(t, d))
			slow, err := f.db.BeginTx(t.Context(), nil)
			f.must(err)
			f.must(f.box.Add(t.Context(), slow, request("early")))
			f.add("late")
			f.flush(f.relay(), 1)
			f.must(slow.Commit())
			f.flush(f.relay(), 1)
			f.holds(0, 0)
		})
	}
}

// While a relay calls, others can write to the outbox.
func TestARelayHoldsNoLockWhileItCalls(t *testing.T) {
	each(t, func(f *fixture) {
		f.add("a", "b")
		var once sync.Once
		f.node.calling = func(context.Context) error {
			once.Do(func() { f.add("c") })
			return nil
		}
		f.flush(f.relay(), 3)
	})
}

func TestClaimsAreBounded(t *testing.T) {
	each(t, func(f *fixture) {
		f.add("a", "b", "c")
		rows, err := f.relay(Batch(2)).claim(f.Context())
		f.must(err)
		if len(rows) != 2 || rows[0].id >= rows[1].id {
			f.Errorf("%v", rows)
		}
	})
	for asked, given := range map[int]int{-1: 1, 0: 1, 7: 7, 1000: 1000, 1001: 1000} {
		r := &Relay{}
		if Batch(asked)(r); r.batch != given {
			t.Errorf("a batch of %d became %d", asked, r.batch)
		}
	}
}

func TestStats(t *testing.T) {
	each(t, func(f *fixture) {
		f.holds(0, 0)
		f.add("a", "b")
		past := strings.ReplaceAll(f.box.dialect.After(), "?", "-90000")
		_, err := f.db.ExecContext(f.Context(), "UPDATE carillon_outbox SET added_at = "+past+" WHERE job LIKE '%/a'")
		f.must(err)
		s, err := f.relay().Stats(f.Context())
		f.must(err)
		if s.Waiting != 2 || s.Oldest < 90*time.Second || s.Oldest > 10*time.Minute {
			f.Errorf("%+v", s)
		}
	})
}

func TestTables(t *testing.T) {
	if _, err := New(PostgreSQL, Table("No")); err == nil {
		t.Error("a table may be called No")
	}
	each(t, func(f *fixture) {
		box, err := New(f.box.dialect, Table("order"))
		f.must(err)
		for range 2 {
			f.must(f.tx(func(tx *sql.Tx) error { return box.CreateTable(f.Context(), tx) }))
		}
		for statement := range strings.SplitSeq(strings.TrimSpace(box.Schema()), ";\n") {
			_, err := f.db.ExecContext(f.Context(), strings.TrimSuffix(statement, ";"))
			f.must(err)
		}
		f.box = box
		f.add("a")
		f.flush(f.relay(), 1)
	})
}
