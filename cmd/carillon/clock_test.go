package main_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// A day of schedules with the handlers of another process, in seconds; and a report of what
// befell them.
func TestASimulatedDayWithChaos(t *testing.T) {
	t.Parallel()
	d := startNode(t, "", []string{"dev", "--clock=sim", "--from=2027-01-01T00:00:00Z", "--chaos=7"})
	d.startWorker("w")
	eventually(t, 10*time.Second, "the worker is there", func() bool {
		_, err := d.handlers.GetHandler(t.Context(), &carillonv1.GetHandlerRequest{Name: "handlers/echo"})
		return err == nil
	})
	hourly := d.create("hourly", "echo", `{}`, &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: "0 * * * *"}})
	if at := hourly.GetEffectiveFrom().AsTime(); at.Year() != 2027 {
		t.Errorf("the job counts from %s", at)
	}
	if out, code := run(t, d.grpc, "dev", "advance", "24h"); code != 0 || strings.TrimSpace(out) != "2027-01-02T00:00:00Z" {
		t.Fatalf("exit %d: %s", code, out)
	}
	slots := d.all(hourly.GetName())
	if len(slots) != 24 {
		t.Errorf("%d slots in a day", len(slots))
	}
	twice := 0
	for _, s := range slots {
		if s.GetState() != carillonv1.SlotState_SLOT_STATE_SUCCEEDED || s.GetLateness().AsDuration() > time.Minute || s.GetFailures() != 0 {
			t.Errorf("a slot is %v", s)
		}
		if s.GetAttempt() == 2 {
			twice++
		}
	}
	if twice == 0 || twice == 24 {
		t.Errorf("%d of 24 were delivered twice", twice)
	}
	if out, code := run(t, d.grpc, "dev", "advance", "2026-01-01T00:00:00Z"); code != 2 || !strings.Contains(out, "has passed") {
		t.Errorf("exit %d: %s", code, out)
	}
	if err := d.kill(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if out := d.out.String(); !strings.Contains(out, "chaos with seed 7") || !strings.Contains(out, "\necho") {
		t.Errorf("it ended with %s", out)
	}
}

func TestClocksThatAreRefused(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--clock must be real or sim": {"dev", "--clock=fast"},
		"--from is for":               {"dev", "--from=2027-01-01T00:00:00Z"},
		"is no time":                  {"dev", "--clock=sim", "--from=tomorrow"},
		"--stream-max-age":            {"dev", "--stream-max-age=1ms"},
	} {
		if out, code := run(t, "", args...); code != 2 || !strings.Contains(out, want) {
			t.Errorf("%v: exit %d, %s", args, code, out)
		}
	}
	d := startDev(t)
	if out, code := run(t, d.grpc, "dev", "advance", "1h"); code != 1 || !strings.Contains(out, "real time") {
		t.Errorf("exit %d: %s", code, out)
	}
}
