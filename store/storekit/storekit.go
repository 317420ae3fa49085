// Package storekit holds what the adapters of package store share: which columns a
// job and a slot have and how they are read, how a job's schedule and policies are
// written as text, and how the pages of several shards become one.
package storekit

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"

	"github.com/carillon-scheduler/carillon/job"
)

// NewClusterID returns the stored form of a new cluster's id, positive and random.
func NewClusterID() int64 { return rand.Int64() | 1<<62 }

// ClusterID returns the public form of a cluster's id.
func ClusterID(stored int64) string { return strconv.FormatInt(stored, 36) }

// JobTexts are the structured parts of a job as they are stored.
type JobTexts struct{ Schedule, Retry, Labels, Policies string }

// EncodeJob writes the structured parts of a job as text.
func EncodeJob(j *job.Job) (JobTexts, error) {
	s, err1 := json.Marshal(j.Schedule)
	r, err2 := json.Marshal(j.Retry)
	l, err3 := json.Marshal(j.Labels)
	if len(j.Labels) == 0 {
		l = []byte("{}")
	}
	p, err4 := json.Marshal(j.Policies)
	return JobTexts{string(s), string(r), string(l), string(p)}, errors.Join(err1, err2, err3, err4)
}

// DecodeJob reads what EncodeJob wrote. A text that can't be read doesn't fail the
// reading of all other jobs: it quarantines this one, in memory, with the reason.
func DecodeJob(j *job.Job, t JobTexts) {
	var err error
	if j.Schedule, err = schedules.decode(t.Schedule); err != nil && j.Quarantine == "" {
		j.Quarantine = fmt.Sprintf("its stored schedule can't be read: %v", err)
	}
	if j.Retry, err = retries.decode(t.Retry); err != nil && j.Quarantine == "" {
		j.Quarantine = fmt.Sprintf("its stored retry policy can't be read: %v", err)
	}
	if j.Policies, err = policies.decode(t.Policies); err != nil && j.Quarantine == "" {
		j.Quarantine = fmt.Sprintf("its stored policies can't be read: %v", err)
	}
	if t.Labels == "{}" {
		return
	}
	if err := json.Unmarshal([]byte(t.Labels), &j.Labels); err != nil && j.Quarantine == "" {
		j.Quarantine = fmt.Sprintf("its stored labels can't be read: %v", err)
	}
}

// texts remembers what the latest texts of a kind say: a shard's jobs have few
// different schedules and fewer policies, and reading JSON is most of what loading a job
// costs.
type texts[V any] struct {
	mu     sync.RWMutex
	values map[string]V
}

// What is remembered is bounded. Beyond it all is forgotten, and learnt anew. A long text
// holds calendars, which jobs share by themselves.
const (
	maxTexts     = 4096
	maxTextBytes = 256
)

var (
	schedules texts[job.Schedule]
	retries   texts[job.RetryPolicy]
	policies  texts[job.Policies]
)

func (t *texts[V]) decode(text string) (V, error) {
	t.mu.RLock()
	v, known := t.values[text]
	t.mu.RUnlock()
	if known {
		return v, nil
	}
	return t.learn(text)
}

// learn is apart from decode, which else would put a value on the heap each time.
func (t *texts[V]) learn(text string) (v V, err error) {
	if err := json.Unmarshal([]byte(text), &v); err != nil || len(text) > maxTextBytes {
		return v, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.values == nil || len(t.values) >= maxTexts {
		t.values = make(map[string]V)
	}
	t.values[text] = v
	return v, nil
}
