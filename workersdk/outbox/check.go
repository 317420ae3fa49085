package outbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/controlplane/jobspec"
	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// InvalidError says that no node would create a job.
type InvalidError struct {
	// Fields are all that are wrong, the first one first.
	Fields []FieldError
}

// FieldError is what is wrong with one field of a request.
type FieldError struct {
	Field       string // its path, such as job.schedule.cron
	Description string // what it must be
}

// Error names the first field, and says how many more are wrong.
func (e *InvalidError) Error() string {
	text := e.Fields[0].Field + ": " + e.Fields[0].Description
	if n := len(e.Fields) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

// check refuses what a node would refuse whatever it knows.
func check(ctx context.Context, req *carillonv1.CreateJobRequest) error {
	var v jobspec.Violations
	v.Check("parent", checkParent(req.GetParent()))
	if req.GetJobId() != "" {
		v.Check("job_id", job.CheckJobName(req.GetJobId()))
	}
	if req.GetRequestId() != "" {
		v.Check("request_id", job.CheckRequestID(req.GetRequestId()))
	}
	if req.GetValidateOnly() {
		v.Add("validate_only", jobspec.ReasonInvalidField, "has no answer from an outbox")
	}
	j := jobspec.Job(&v, "job", req.GetJob())
	if len(v.Fields) == 0 && j.Schedule.Calendars == "" {
		checkFires(ctx, &v, req, j)
	}
	if len(v.Fields) == 0 {
		return nil
	}
	e := &InvalidError{}
	for _, f := range v.Fields {
		e.Fields = append(e.Fields, FieldError{f.Field, f.Description})
	}
	return e
}

// checkFires refuses a schedule that never fires. What depends on calendars only a node
// can tell.
func checkFires(ctx context.Context, v *jobspec.Violations, req *carillonv1.CreateJobRequest, j job.Job) {
	const field = "job.schedule"
	now := job.At(time.Now())
	j.Namespace, j.Name = strings.TrimPrefix(req.GetParent(), "namespaces/"), req.GetJobId()
	if err := jobspec.Decide(ctx, v, field, req.GetJob().GetSchedule(), &j, now, now, nil); err != nil {
		v.Check(field, err)
	}
	jobspec.CheckFires(v, field, j.Schedule, now)
}

func checkParent(parent string) error {
	namespace, ok := strings.CutPrefix(parent, "namespaces/")
	if !ok || strings.Contains(namespace, "/") {
		return errors.New("must be namespaces/{namespace}")
	}
	if err := job.CheckName(namespace); err != nil {
		return fmt.Errorf("the namespace %w", err)
	}
	return nil
}
