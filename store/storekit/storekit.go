// Package storekit holds what the adapters of package store share: which columns a
// job and a slot have and how they are read, how a job's schedule and policies are
// written as text, and how the pages of several shards become one.
package storekit

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/carillon-scheduler/carillon/job"
)

// EncodeJob writes the structured parts of a job as text.
func EncodeJob(j *job.Job) (schedule, retry, labels string, err error) {
	s, err1 := json.Marshal(j.Schedule)
	r, err2 := json.Marshal(j.Retry)
	l, err3 := json.Marshal(j.Labels)
	if len(j.Labels) == 0 {
		l = []byte("{}")
	}
	return string(s), string(r), string(l), errors.Join(err1, err2, err3)
}

// DecodeJob reads what EncodeJob wrote. A text that can't be read doesn't fail the
// reading of all other jobs: it quarantines this one, in memory, with the reason.
func DecodeJob(j *job.Job, schedule, retry, labels string) {
	if err := json.Unmarshal([]byte(schedule), &j.Schedule); err != nil && j.Quarantine == "" {
		j.Quarantine = fmt.Sprintf("its stored schedule can't be read: %v", err)
	}
	if err := json.Unmarshal([]byte(retry), &j.Retry); err != nil && j.Quarantine == "" {
		j.Quarantine = fmt.Sprintf("its stored retry policy can't be read: %v", err)
	}
	if labels == "{}" {
		return
	}
	if err := json.Unmarshal([]byte(labels), &j.Labels); err != nil && j.Quarantine == "" {
		j.Quarantine = fmt.Sprintf("its stored labels can't be read: %v", err)
	}
}
