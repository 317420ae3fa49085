package controlplane_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

func utc(text string) *timestamppb.Timestamp {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return timestamppb.New(t)
}

// times writes timestamps in one line.
func times(all []*timestamppb.Timestamp) string {
	var parts []string
	for _, t := range all {
		parts = append(parts, t.AsTime().Format(time.RFC3339))
	}
	return strings.Join(parts, " ")
}

func (s *server) preview(req *carillonv1.PreviewScheduleRequest) *carillonv1.PreviewScheduleResponse {
	s.t.Helper()
	resp, err := s.jobs.PreviewSchedule(s.t.Context(), req)
	must(s.t, err)
	return resp
}

func TestPreview(t *testing.T) {
	s := newServer(t)
	code, answer := s.post("/v1/schedules:preview", `{"schedule":{"cron":"*/5 14 * * *"},"from":"2024-09-13T14:15:00Z"}`)
	if compact := strings.ReplaceAll(answer, ", ", ","); code != http.StatusOK || !strings.Contains(answer, "UTC") ||
		!strings.Contains(compact, `["2024-09-13T14:20:00Z","2024-09-13T14:25:00Z","2024-09-13T14:30:00Z"]`) {
		t.Errorf("B173: %d %s", code, answer)
	}
	for body, field := range map[string]string{
		`{"schedule":{"cron":"0 0 30 2 *"}}`: "schedule.cron",
		`{}`:                                 "schedule",
		`{"schedule":{"cron":"* * * * *"},"count":-1}`:                                                                                   "count",
		`{"schedule":{"cron":"* * * * *"},"count":100000}`:                                                                               "count",
		`{"schedule":{"cron":"* * * * *"},"job":"x"}`:                                                                                    "job",
		`{"schedule":{"cron":"* * * * *"},"from":"2026-01-02T00:00:00Z","until":"2026-01-01T00:00:00Z"}`:                                 "until",
		`{"schedule":{"cron":"* * * * *"},"from":"2026-01-02T00:00:00Z","until":"2126-01-04T00:00:00Z"}`:                                 "until",
		`{"schedule":{"cron":"* * * * *","startTime":"2026-01-02T00:00:00.5Z"}}`:                                                         "schedule.start_time",
		`{"schedule":{"cron":"* * * * *","startTime":"1970-01-01T00:00:00Z"}}`:                                                           "schedule.start_time",
		`{"schedule":{"cron":"* * * * *","endTime":"1969-01-01T00:00:00Z"}}`:                                                             "schedule.end_time",
		`{"schedule":{"cron":"* * * * *","startTime":"2027-01-02T00:00:00Z","endTime":"2027-01-01T00:00:00Z"}}`:                          "schedule.end_time",
		`{"schedule":{"cron":"* * * * *","endTime":"2001-01-01T00:00:00Z"}}`:                                                             "schedule.end_time",
		`{"schedule":{"cron":"0 0 1 1 *","startTime":"2027-01-02T00:00:00Z","endTime":"2027-12-31T23:59:59Z"}}`:                          "schedule",
		`{"schedule":{"cron":"* * * * *","maxOccurrences":-1}}`:                                                                          "schedule.max_occurrences",
		`{"schedule":{"cron":"* * * * *","maxOccurrences":2147483648}}`:                                                                  "schedule.maxOccurrences",
		`{"schedule":{"cron":"* * * * *","spread":"1s"}}`:                                                                                "schedule.spread",
		`{"schedule":{"cron":"* * * * *","spread":"2.5s"}}`:                                                                              "schedule.spread",
		`{"schedule":{"cron":"* * * * *","spread":"-60s"}}`:                                                                              "schedule.spread",
		`{"schedule":{"cron":"* * * * *","spread":"2678401s"}}`:                                                                          "schedule.spread",
		`{"schedule":{"cron":"* * * * *","calendars":["nowhere"]}}`:                                                                      "schedule.calendars[0]",
		`{"schedule":{"cron":"* * * * *","calendars":["a","b@x"]}}`:                                                                      "schedule.calendars[1]",
		`{"schedule":{"cron":"* * * * *","calendars":["a","a@2"]}}`:                                                                      "schedule.calendars[1]",
		`{"schedule":{"cron":"* * * * *","calendars":["a","b","c","d","e","f"]}}`:                                                        "schedule.calendars",
		`{"schedule":{"cron":"* * * * *","timeZone":"Europe/Berlin"}}`:                                                                   "schedule.time_zone",
		`{"schedule":{"immediate":{},"spread":"5s"}}`:                                                                                    "schedule.spread",
		`{"schedule":{"runAt":"2027-01-02T00:00:00Z","maxOccurrences":"1"}}`:                                                             "schedule.max_occurrences",
		`{"schedule":{"runAt":"2027-01-02T00:00:00Z","calendars":["a"]}}`:                                                                "schedule.calendars",
		`{"schedule":{"interval":{"every":"60s"},"startTime":"2027-01-02T00:00:00Z","endTime":"2027-01-02T00:00:00Z","timeZone":"CET"}}`: "schedule.time_zone",
	} {
		code, answer := s.post("/v1/schedules:preview", body)
		if _, got := parseFailure(t, answer).reason(); code != http.StatusBadRequest || got != field {
			t.Errorf("%s: %d, field %s, want %s", body, code, got, field)
		}
	}
}

func TestPreviewOfWhatFiresOnce(t *testing.T) {
	s := newServer(t)
	now := s.preview(&carillonv1.PreviewScheduleRequest{Schedule: scheduleNow()})
	if len(now.GetFireTimes()) != 0 || now.GetDescription() != "once, as soon as it is stored" {
		t.Errorf("immediate: %v", now)
	}
	at := &carillonv1.Schedule{Kind: &carillonv1.Schedule_RunAt{RunAt: utc("2027-03-01T12:00:00Z")}}
	once := s.preview(&carillonv1.PreviewScheduleRequest{Schedule: at, From: utc("2027-02-01T00:00:00Z"), Until: utc("2027-03-01T12:00:00Z")})
	if times(once.GetFireTimes()) != "2027-03-01T12:00:00Z" || once.GetOccurrenceCount() != 1 {
		t.Errorf("once: %v", once)
	}
	if past := s.preview(&carillonv1.PreviewScheduleRequest{Schedule: at, From: utc("2027-03-01T12:00:00Z")}); len(past.GetFireTimes()) != 0 {
		t.Errorf("once, from its own time on: %v", past)
	}
}

// A century is searched from the start of a schedule on, however far away that lies.
func TestAStartCenturiesAway(t *testing.T) {
	s := newServer(t)
	const first = "2500-01-01T12:00:00Z"
	spec := &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: "0 12 * * *"}, StartTime: utc("2500-01-01T00:00:00Z"), MaxOccurrences: 2}
	resp := s.preview(&carillonv1.PreviewScheduleRequest{Schedule: spec})
	if got := times(resp.GetFireTimes()); got != first+" 2500-01-02T12:00:00Z" {
		t.Errorf("the preview fires at %s", got)
	}
	made := s.create(job("far", "h", spec))
	if got := times([]*timestamppb.Timestamp{made.GetNextFireTime()}); got != first || strings.Contains(fmt.Sprint(made.GetWarnings()), "calendars") {
		t.Errorf("the job fires next at %s, with warnings %q", got, made.GetWarnings())
	}
}

// All that a schedule may add, together: the preview shows it in the order in which it
// works.
func TestPreviewOfAWholePlan(t *testing.T) {
	s := newServer(t)
	_, err := s.calendars.PutCalendar(t.Context(), &carillonv1.PutCalendarRequest{Name: ns + "/calendars/closed", Items: []string{"SAT", "sun", "12-25", "2026-12-24"}})
	must(t, err)
	req := &carillonv1.PreviewScheduleRequest{
		Schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: "0 12 * * *"}, StartTime: utc("2026-12-22T00:00:00Z"), EndTime: utc("2026-12-31T23:59:59Z"),
			MaxOccurrences: 4, Spread: durationpb.New(10 * time.Minute), Calendars: []string{"closed"}},
		From: utc("2026-12-01T00:00:00Z"), Until: utc("2027-01-31T00:00:00Z"), Count: 10, Job: ns + "/jobs/report",
	}
	resp := s.preview(req)
	later := resp.GetFireTimes()[0].AsTime().Sub(utc("2026-12-22T12:00:00Z").AsTime())
	if later < 0 || later >= 10*time.Minute {
		t.Fatalf("it was moved by %v", later)
	}
	var want []*timestamppb.Timestamp
	for _, day := range []string{"22", "23", "28", "29"} {
		want = append(want, timestamppb.New(utc("2026-12-"+day+"T12:00:00Z").AsTime().Add(later)))
	}
	if times(resp.GetFireTimes()) != times(want) || resp.GetOccurrenceCount() != 4 || resp.GetSkippedCount() != 4 {
		t.Errorf("fires at %s, want %s; %d and %d skipped", times(resp.GetFireTimes()), times(want), resp.GetOccurrenceCount(), resp.GetSkippedCount())
	}
	var skipped []string
	for _, o := range resp.GetSkipped() {
		skipped = append(skipped, o.GetFireTime().AsTime().Format("02 ")+o.GetCalendar())
	}
	if got := strings.Join(skipped, ", "); got != "24 closed@1, 25 closed@1, 26 closed@1, 27 closed@1" {
		t.Errorf("skipped: %s", got)
	}
	for _, part := range []string{"at 12:00 UTC every day", "later (of a spread of 10 minutes)", "from 2026-12-22", "4 times at most", "except what is in closed@1"} {
		if !strings.Contains(resp.GetDescription(), part) {
			t.Errorf("the description lacks %q: %s", part, resp.GetDescription())
		}
	}
	again := s.preview(req)
	if times(again.GetFireTimes()) != times(resp.GetFireTimes()) {
		t.Error("the same job is moved by another time")
	}
	req.Job = ""
	if plain := s.preview(req); times(plain.GetFireTimes()[:1]) != "2026-12-22T12:00:00Z" {
		t.Errorf("without a job: %s", times(plain.GetFireTimes()))
	}
}

// A job is moved by what its preview says.
func TestTheSpreadOfAJobIsThatOfItsPreview(t *testing.T) {
	s := newServer(t)
	schedule := &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: "0 12 * * *"}, Spread: durationpb.New(time.Hour)}
	offsets := map[time.Duration]bool{}
	for i := range 20 {
		name := fmt.Sprint("spread-", i)
		j := s.create(job(name, "h", schedule))
		shown := s.preview(&carillonv1.PreviewScheduleRequest{Schedule: schedule, Job: j.GetName(), Count: 1})
		if times(shown.GetFireTimes()) != times([]*timestamppb.Timestamp{j.GetNextFireTime()}) {
			t.Errorf("%s fires at %v, its preview says %v", name, j.GetNextFireTime().AsTime(), times(shown.GetFireTimes()))
		}
		offsets[j.GetSchedule().GetSpreadOffset().AsDuration()] = true
	}
	if len(offsets) < 15 {
		t.Errorf("20 jobs share %d places", len(offsets))
	}
}

func TestBatchPreview(t *testing.T) {
	s := newServer(t)
	req := &carillonv1.BatchPreviewSchedulesRequest{Requests: []*carillonv1.PreviewScheduleRequest{
		{Schedule: scheduleCron("0 0 29 2 *"), From: utc("2026-01-01T00:00:00Z"), Count: 1}, {Schedule: scheduleCron("0 24 * * *")}, {},
	}}
	resp, err := s.jobs.BatchPreviewSchedules(t.Context(), req)
	must(t, err)
	all := resp.GetPreviews()
	if len(all) != 3 || times(all[0].GetPreview().GetFireTimes()) != "2028-02-29T00:00:00Z" {
		t.Fatalf("%v", all)
	}
	if msg := all[1].GetError().GetMessage(); !strings.Contains(msg, "hour") || !strings.Contains(msg, "0-23") {
		t.Errorf("the error of the second: %s", msg)
	}
	if msg := all[2].GetError().GetMessage(); !strings.Contains(msg, "schedule") {
		t.Errorf("the error of the third: %s", msg)
	}
	for _, bad := range []*carillonv1.BatchPreviewSchedulesRequest{{}, {Requests: make([]*carillonv1.PreviewScheduleRequest, 1001)}} {
		for i := range bad.GetRequests() {
			bad.Requests[i] = &carillonv1.PreviewScheduleRequest{}
		}
		if _, err := s.jobs.BatchPreviewSchedules(t.Context(), bad); err == nil || !strings.Contains(err.Error(), "requests") {
			t.Errorf("%d requests: %v", len(bad.GetRequests()), err)
		}
	}
	big := &carillonv1.PreviewScheduleRequest{Schedule: scheduleCron("* * * * *"), Count: 1000}
	req.Requests = nil
	for range 101 {
		req.Requests = append(req.Requests, big)
	}
	if _, err := s.jobs.BatchPreviewSchedules(t.Context(), req); err == nil || !strings.Contains(err.Error(), "101000") {
		t.Errorf("101,000 fire times: %v", err)
	}
}
