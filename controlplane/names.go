package controlplane

import (
	"errors"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
)

// jobRef is a job's resource name: by name, or by uid.
type jobRef struct {
	namespace string
	name      string
	uid       job.UID
}

var (
	errParentName  = errors.New("must be namespaces/{namespace}")
	errJobName     = errors.New("must be namespaces/{namespace}/jobs/{job}")
	errSlotName    = errors.New("must be namespaces/{namespace}/jobs/{job}/slots/{fire time}")
	errHandlerName = errors.New("must be handlers/{handler}")

	errCalendarName = errors.New("must be namespaces/{namespace}/calendars/{calendar}")
)

// parseParent reads namespaces/{namespace}.
func parseParent(s string) (string, error) {
	ns, ok := strings.CutPrefix(s, "namespaces/")
	if !ok || strings.Contains(ns, "/") {
		return "", errParentName
	}
	if err := job.CheckName(ns); err != nil {
		return "", errors.New("the namespace " + err.Error())
	}
	return ns, nil
}

// parseJob reads namespaces/{namespace}/jobs/{job or uid}.
func parseJob(s string) (jobRef, error) {
	parts := strings.Split(s, "/")
	if len(parts) != 4 || parts[2] != "jobs" {
		return jobRef{}, errJobName
	}
	ns, err := parseParent(parts[0] + "/" + parts[1])
	if err != nil {
		return jobRef{}, err
	}
	ref := jobRef{namespace: ns}
	if uid, err := job.ParseUID(parts[3]); err == nil {
		ref.uid = uid
		return ref, nil
	}
	if err := job.CheckJobName(parts[3]); err != nil {
		return jobRef{}, errors.New("the job's name " + err.Error())
	}
	ref.name = parts[3]
	return ref, nil
}

// slotRef is a slot's resource name. fire is zero for "-".
type slotRef struct {
	job  jobRef
	fire job.Instant
}

// parseSlot reads namespaces/{namespace}/jobs/{job or uid}/slots/{fire time}.
func parseSlot(s string) (slotRef, error) {
	parent, id, ok := strings.Cut(s, "/slots/")
	if !ok || strings.Contains(id, "/") {
		return slotRef{}, errSlotName
	}
	ref, err := parseJob(parent)
	if err != nil {
		return slotRef{}, err
	}
	if id == "-" {
		return slotRef{job: ref}, nil
	}
	fire, err := job.ParseInstantID(id)
	return slotRef{job: ref, fire: fire}, err
}

// parseCalendar reads namespaces/{namespace}/calendars/{calendar}.
func parseCalendar(s string) (namespace, name string, err error) {
	parts := strings.Split(s, "/")
	if len(parts) != 4 || parts[2] != "calendars" {
		return "", "", errCalendarName
	}
	if namespace, err = parseParent(parts[0] + "/" + parts[1]); err != nil {
		return "", "", err
	}
	if err := job.CheckName(parts[3]); err != nil {
		return "", "", errors.New("the calendar's name " + err.Error())
	}
	return namespace, parts[3], nil
}

// parseHandler reads handlers/{handler}.
func parseHandler(s string) (string, error) {
	name, ok := strings.CutPrefix(s, "handlers/")
	if !ok {
		return "", errHandlerName
	}
	return name, job.CheckName(name)
}
