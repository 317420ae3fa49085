// Package jobspec reads what a request, or a file, says a job is: with every default,
// and with all that is wrong with it, field by field. It needs no server, so that what
// a server would say can be said without one.
package jobspec

// Reasons of violations, stable for programs.
const (
	ReasonInvalidField    = "INVALID_FIELD"
	ReasonInvalidSchedule = "INVALID_SCHEDULE"
	ReasonCalendarUnknown = "CALENDAR_NOT_FOUND"
)

// Violations collects what is wrong with a request, field by field.
type Violations struct{ Fields []Violation }

// Violation is one thing that is wrong.
type Violation struct {
	Field       string // its path, such as job.schedule.cron
	Reason      string
	Description string // what it must be
}

// Error returns the field and what it must be.
func (v Violation) Error() string { return v.Field + ": " + v.Description }

// Add notes that a field is wrong. The description says what it must be.
func (v *Violations) Add(field, reason, description string) {
	v.Fields = append(v.Fields, Violation{field, reason, description})
}

// Check notes err under a field, if there is one, and reports whether there is none.
func (v *Violations) Check(field string, err error) bool {
	if err != nil {
		v.Add(field, ReasonInvalidField, err.Error())
	}
	return err == nil
}
