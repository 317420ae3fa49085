package controlplane_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

const closed = ns + "/calendars/closed"

func (s *server) put(req *carillonv1.PutCalendarRequest) *carillonv1.Calendar {
	s.t.Helper()
	resp, err := s.calendars.PutCalendar(s.t.Context(), req)
	must(s.t, err)
	return resp.GetCalendar()
}

func TestCalendarsHaveVersions(t *testing.T) {
	s := newServer(t)
	first := s.put(&carillonv1.PutCalendarRequest{Name: closed, Items: []string{"sun", "SAT", "2026-12-25", "2026-12-24"}, Description: "d"})
	if got := strings.Join(first.GetItems(), " "); first.GetVersion() != 1 || got != "SUN SAT 2026-12-24/2026-12-25" || first.GetCreateTime() == nil {
		t.Errorf("the first version: %v", first)
	}
	same := s.put(&carillonv1.PutCalendarRequest{Name: closed, Items: []string{"2026-12-24/2026-12-25", "SAT", "SUN"}, Description: "d"})
	if same.GetVersion() != 1 {
		t.Errorf("a put of the same made version %d", same.GetVersion())
	}
	dry := s.put(&carillonv1.PutCalendarRequest{Name: closed, Items: []string{"MON"}, ValidateOnly: true})
	second := s.put(&carillonv1.PutCalendarRequest{Name: closed, Items: []string{"01-01"}, ExpectedVersion: new(int32(1))})
	if dry.GetVersion() != 2 || second.GetVersion() != 2 || second.GetItems()[0] != "01-01" {
		t.Errorf("dry %v, second %v", dry, second)
	}
	_, err := s.calendars.PutCalendar(t.Context(), &carillonv1.PutCalendarRequest{Name: closed, Items: []string{"TUE"}, ExpectedVersion: new(int32(1))})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "expected_version") {
		t.Errorf("a put over another version: %v", err)
	}
	old, err := s.calendars.GetCalendar(t.Context(), &carillonv1.GetCalendarRequest{Name: closed, Version: 1})
	must(t, err)
	if old.GetCalendar().GetDescription() != "d" {
		t.Errorf("the old version: %v", old)
	}
	gone, err := s.calendars.DeleteCalendar(t.Context(), &carillonv1.DeleteCalendarRequest{Name: closed})
	must(t, err)
	if !gone.GetCalendar().GetDeleted() || gone.GetCalendar().GetVersion() != 3 {
		t.Errorf("deleted: %v", gone)
	}
	for _, call := range []func() error{
		func() error {
			_, err := s.calendars.GetCalendar(t.Context(), &carillonv1.GetCalendarRequest{Name: closed})
			return err
		},
		func() error {
			_, err := s.calendars.DeleteCalendar(t.Context(), &carillonv1.DeleteCalendarRequest{Name: closed})
			return err
		},
	} {
		if err := call(); status.Code(err) != codes.NotFound {
			t.Errorf("of a deleted calendar: %v", err)
		}
	}
	if again := s.put(&carillonv1.PutCalendarRequest{Name: closed, Items: []string{"01-01"}, ExpectedVersion: new(int32)}); again.GetVersion() != 4 {
		t.Errorf("after the delete: %v", again)
	}
}

// Whoever puts at the same time gets a version of their own, in some order.
func TestPutsAtTheSameTime(t *testing.T) {
	s := newServer(t)
	days := []string{"MON", "TUE", "WED", "THU"}
	versions := make([]int32, len(days))
	var wg sync.WaitGroup
	for i, day := range days {
		wg.Go(func() {
			resp, err := s.calendars.PutCalendar(t.Context(), &carillonv1.PutCalendarRequest{Name: closed, Items: []string{day}})
			if err == nil {
				versions[i] = resp.GetCalendar().GetVersion()
			}
		})
	}
	wg.Wait()
	slices.Sort(versions)
	if !slices.Equal(versions, []int32{1, 2, 3, 4}) {
		t.Errorf("versions %v", versions)
	}
}

func TestCalendarsOverREST(t *testing.T) {
	s := newServer(t)
	path := "/v1/" + closed
	code, answer := s.do(http.MethodPut, path, `{"items":["SAT"],"csv":"day,name\n2026-12-25,Christmas\n","ics":"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nUID:1\r\nSUMMARY:New Year\r\nDTSTART;VALUE=DATE:20270101\r\nRRULE:FREQ=YEARLY\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"}`)
	if code != http.StatusOK || !strings.Contains(strings.ReplaceAll(answer, ", ", ","), `["SAT","01-01","2026-12-25"]`) {
		t.Fatalf("put: %d %s", code, answer)
	}
	if code, answer := s.get("/v1/" + ns + "/calendars"); code != http.StatusOK || !strings.Contains(answer, closed) {
		t.Errorf("list: %d %s", code, answer)
	}
	if code, answer := s.get(path + "?version=1"); code != http.StatusOK || !strings.Contains(answer, "SAT") {
		t.Errorf("get: %d %s", code, answer)
	}
	for body, field := range map[string]string{
		`{"items":["SAT","2026-13-01"]}`: "items[1]",
		`{}`:                             "items",
		`{"items":["MON","TUE","WED","THU","FRI","SAT","SUN"]}`:              "items",
		`{"csv":"2026-12-24\nx1\n"}`:                                         "csv",
		`{"ics":"hello"}`:                                                    "ics",
		`{"items":["SAT"],"expectedVersion":-1}`:                             "expected_version",
		`{"items":["SAT"],"description":"` + strings.Repeat("x", 257) + `"}`: "description",
	} {
		code, answer := s.do(http.MethodPut, path, body)
		if _, got := parseFailure(t, answer).reason(); code != http.StatusBadRequest || got != field {
			t.Errorf("%s: %d, field %s, want %s: %s", body, code, got, field, answer)
		}
	}
	if code, answer := s.do(http.MethodDelete, path, ""); code != http.StatusOK || !strings.Contains(answer, `"deleted":true`) {
		t.Errorf("delete: %d %s", code, answer)
	}
	if code, _ := s.get(path); code != http.StatusNotFound {
		t.Errorf("get after the delete: %d", code)
	}
	if code, _ := s.do(http.MethodPut, "/v1/"+ns+"/calendars/a%20b", `{"items":["SAT"]}`); code != http.StatusBadRequest {
		t.Errorf("a bad name: %d", code)
	}
}

// An occurrence that a calendar excludes is recorded as skipped, with the calendar's
// name, in the history, by explain, and in the counts. The job keeps its version.
func TestExcludedOccurrencesAreSkipped(t *testing.T) {
	s := newServer(t)
	today := strings.ToUpper(time.Now().UTC().Weekday().String()[:3])
	tomorrow := strings.ToUpper(time.Now().UTC().Add(24 * time.Hour).Weekday().String()[:3]) // the test may run at midnight
	s.put(&carillonv1.PutCalendarRequest{Name: closed, Items: []string{today, tomorrow}})
	schedule := scheduleCron("* * * * * *")
	schedule.Calendars = []string{"closed"}
	j := s.create(job("quiet", "h", schedule))
	s.put(&carillonv1.PutCalendarRequest{Name: closed, Items: []string{"02-29"}})
	slot := s.becomes(j.GetName(), carillonv1.SlotState_SLOT_STATE_SKIPPED)
	if slot.GetErrorCode() != "excluded" || !strings.Contains(slot.GetErrorMessage(), "closed@1") || slot.GetFinishTime() == nil || slot.GetTrigger() != carillonv1.SlotTrigger_SLOT_TRIGGER_SCHEDULE {
		t.Errorf("the slot: %v", slot)
	}
	if code, text := s.reason(slot.GetName()); code != carillonv1.ReasonCode_REASON_CODE_EXCLUDED_BY_CALENDAR || !strings.Contains(text, "closed@1") {
		t.Errorf("explained as %v, %s", code, text)
	}
	got, err := s.jobs.GetJob(t.Context(), &carillonv1.GetJobRequest{Name: j.GetName()})
	must(t, err)
	if names := got.GetJob().GetSchedule().GetCalendars(); len(names) != 1 || names[0] != "closed@1" || !strings.Contains(got.GetJob().GetScheduleDescription(), "closed@1") {
		t.Errorf("the job: %v", got)
	}
	if next := got.GetJob().GetNextFireTime().AsTime(); time.Until(next) < time.Hour {
		t.Errorf("it fires next at %v", next)
	}
	// What a user asks for runs on any day.
	run, err := s.jobs.RunJob(t.Context(), &carillonv1.RunJobRequest{Name: j.GetName()})
	must(t, err)
	if run.GetSlot().GetState() != carillonv1.SlotState_SLOT_STATE_READY {
		t.Errorf("a run by hand: %v", run)
	}
}

// A repeat of a create is answered from the first one, whatever became of the calendar
// and of the end since.
func TestARepeatAfterTheCalendarIsGone(t *testing.T) {
	s := newServer(t)
	s.put(&carillonv1.PutCalendarRequest{Name: closed, Items: []string{"SAT"}})
	schedule := scheduleCron("0 0 * * *")
	schedule.Calendars = []string{"closed"}
	req := job("once-made", "h", schedule)
	req.RequestId = "r1"
	first := s.create(req)
	_, err := s.calendars.DeleteCalendar(t.Context(), &carillonv1.DeleteCalendarRequest{Name: closed})
	must(t, err)
	if again := s.create(req); again.GetUid() != first.GetUid() {
		t.Errorf("the repeat made %v", again)
	}
	batch, err := s.jobs.BatchCreateJobs(t.Context(), &carillonv1.BatchCreateJobsRequest{Parent: ns, Requests: []*carillonv1.CreateJobRequest{req}})
	must(t, err)
	if again := batch.GetJobs()[0]; again.GetUid() != first.GetUid() || !again.GetCreateTime().AsTime().Equal(first.GetCreateTime().AsTime()) {
		t.Errorf("the repeat in a batch made %v", batch)
	}
	fresh := job("beside", "h", scheduleNow())
	batch, err = s.jobs.BatchCreateJobs(t.Context(), &carillonv1.BatchCreateJobsRequest{Parent: ns, Requests: []*carillonv1.CreateJobRequest{fresh, req}})
	must(t, err)
	if jobs := batch.GetJobs(); len(jobs) != 2 || jobs[0].GetName() != ns+"/jobs/beside" || jobs[1].GetUid() != first.GetUid() {
		t.Errorf("a batch with a repeat made %v", batch)
	}
	req.RequestId = "r2"
	req.JobId = "other"
	if _, err := s.jobs.CreateJob(t.Context(), req); err == nil || !strings.Contains(err.Error(), "calendars[0]") {
		t.Errorf("a new job with a deleted calendar: %v", err)
	}
}

// A job of which a calendar excludes all that is to come still has occurrences, which are
// recorded: it isn't completed. And however many runs it is to have, nobody counts long.
func TestAJobThatIsExcludedFromSomeTimeOn(t *testing.T) {
	s := newServer(t)
	s.put(&carillonv1.PutCalendarRequest{Name: closed, Items: []string{"SAT", "SUN", time.Now().UTC().AddDate(0, 0, 10).Format(time.DateOnly) + "/9999-12-31"}})
	schedule := scheduleCron("0 0 * * *")
	schedule.Calendars, schedule.MaxOccurrences = []string{"closed"}, 1<<31-1
	j := s.create(job("some-days", "h", schedule))
	if j.GetState() != carillonv1.JobState_JOB_STATE_ACTIVE || j.GetNextFireTime() == nil {
		t.Errorf("%v", j)
	}
	s.put(&carillonv1.PutCalendarRequest{Name: ns + "/calendars/rest", Items: []string{"2026-01-01/9999-12-31"}})
	schedule.Calendars = []string{"rest"}
	if _, err := s.jobs.CreateJob(t.Context(), job("no-day", "h", schedule)); err == nil || !strings.Contains(err.Error(), "calendars: exclude every occurrence up to") {
		t.Errorf("a job that never runs: %v", err)
	}
}

// A job with an end is completed once it has fired for the last time.
func TestAJobWithANumberOfOccurrences(t *testing.T) {
	s := newServer(t)
	schedule := scheduleCron("* * * * * *")
	schedule.MaxOccurrences = 2
	j := s.create(job("twice", "h", schedule))
	s.eventually("it is completed", func() bool {
		got, err := s.jobs.GetJob(t.Context(), &carillonv1.GetJobRequest{Name: j.GetName()})
		must(t, err)
		return got.GetJob().GetState() == carillonv1.JobState_JOB_STATE_COMPLETED
	})
	s.eventually("it has two slots", func() bool {
		slots, err := s.slots.ListSlots(t.Context(), &carillonv1.ListSlotsRequest{Parent: j.GetName()})
		must(t, err)
		return len(slots.GetSlots()) == 2
	})
}
