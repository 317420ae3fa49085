package controlplane_test

import (
	"database/sql"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

func TestHealthReflectionAndMetrics(t *testing.T) {
	s := newServer(t)
	s.create(job("j", "h", scheduleNow()))
	health, err := grpc_health_v1.NewHealthClient(s.conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil || health.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", health, err)
	}
	stream, err := grpc_reflection_v1.NewServerReflectionClient(s.conn).ServerReflectionInfo(t.Context())
	must(t, err)
	must(t, stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}}))
	services, err := stream.Recv()
	must(t, err)
	if list := services.GetListServicesResponse().String(); !strings.Contains(list, "carillon.v1.JobService") || !strings.Contains(list, "carillon.v1.WorkerService") {
		t.Errorf("services: %s", list)
	}
	s.eventually("the slot is counted", func() bool {
		_, metrics := s.get("/metrics")
		for _, want := range []string{`carillon_slots_made_total{handler="h",trigger="immediate"} 1`, "carillon_slots_ready 1", "carillon_shards_owned 8",
			"carillon_commit_seconds_count", "carillon_commit_statements_total", "carillon_lag_seconds", `carillon_rpcs_total{code="OK",method="/carillon.v1.JobService/CreateJob"} 1`} {
			if !strings.Contains(metrics, want) {
				return false
			}
		}
		return true
	})
	if code, _ := s.get("/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("profiles are served, unasked: %d", code)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, answer := s.get(path); code != http.StatusOK {
			t.Errorf("%s: %d %s", path, code, answer)
		}
	}
}

// B151: rows outside of the times that the API can carry break no answer.
func TestRowsOutsideOfTheTimeRange(t *testing.T) {
	path := filepath.Join(t.TempDir(), "carillon.db")
	s := start(t, path)
	s.create(job("j", "h", scheduleNow()))
	must(t, s.stop())
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)") // what the server closed may still be written back
	must(t, err)
	for _, micros := range []int64{-62_167_305_600_000_000, 253_402_300_800_000_000, 1 << 62} {
		_, err = db.ExecContext(t.Context(), `INSERT INTO slots SELECT shard, ?, uid, trigger, 3, 1, 0, 1, 'w', 'i', ?, ?, ?, ?, 0, 0, 1, '', '', X'', 0, 0, X'', X'' FROM slots LIMIT 1`,
			micros, micros, micros, micros, micros)
		must(t, err)
	}
	must(t, db.Close())
	s = start(t, path)
	code, answer := s.get("/v1/" + ns + "/jobs/-/slots")
	if code != http.StatusOK || strings.Count(answer, `"name"`) != 4 || strings.Count(answer, `"fireTime":null`) != 3 {
		t.Errorf("%d %s", code, answer)
	}
	resp, err := s.slots.ListSlots(t.Context(), &carillonv1.ListSlotsRequest{Parent: ns + "/jobs/j"})
	if err != nil || len(resp.GetSlots()) == 0 {
		t.Errorf("over gRPC: %v, %v", resp, err)
	}
}

// B37: an interval stays on its grid, whatever the run time and the restarts.
func TestAnIntervalStaysOnItsGrid(t *testing.T) {
	path := filepath.Join(t.TempDir(), "carillon.db")
	s := start(t, path)
	code, answer := s.post(create+"&job_id=grid", body(`"schedule":{"interval":{"every":"2s","anchor":"2026-01-01T00:00:01Z"}}`))
	if code != http.StatusOK || !strings.Contains(answer, `"anchor":"2026-01-01T00:00:01Z"`) {
		t.Fatalf("%d %s", code, answer)
	}
	s.eventually("it fired twice", func() bool { return s.fired("grid") >= 2 })
	must(t, s.stop())
	s = start(t, path)
	before := s.fired("grid")
	s.eventually("it fires on", func() bool { return s.fired("grid") >= before+2 })
	resp, err := s.slots.ListSlots(t.Context(), &carillonv1.ListSlotsRequest{Parent: ns + "/jobs/grid"})
	must(t, err)
	for i, slot := range resp.GetSlots() {
		if at := slot.GetFireTime().AsTime(); at.Second()%2 != 1 || i > 0 && resp.GetSlots()[i-1].GetFireTime().AsTime().Sub(at) != 2*time.Second {
			t.Errorf("slot %d at %s", i, at)
		}
	}
}

// The epoch is an anchor like any other, not the absence of one.
func TestTheEpochIsAnAnchor(t *testing.T) {
	s := newServer(t)
	got := s.create(job("grid", "h", &carillonv1.Schedule{Kind: &carillonv1.Schedule_Interval{Interval: &carillonv1.IntervalSchedule{
		Every: durationpb.New(time.Hour), Anchor: timestamppb.New(time.Unix(0, 0))}}}))
	if a := got.GetSchedule().GetInterval().GetAnchor(); a == nil || a.AsTime().Unix() != 0 {
		t.Errorf("the anchor 1970-01-01T00:00:00Z became %v", a)
	}
	if next := got.GetNextFireTime().AsTime(); !next.Equal(next.Truncate(time.Hour)) {
		t.Errorf("the next fire time %s is not on the grid", next)
	}
}

// fired returns how many slots a job has.
func (s *server) fired(id string) int {
	s.t.Helper()
	resp, err := s.slots.ListSlots(s.t.Context(), &carillonv1.ListSlotsRequest{Parent: ns + "/jobs/" + id, PageSize: 1000})
	must(s.t, err)
	return len(resp.GetSlots())
}
