package core

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// EscalationLabel is the label of the jobs that are made for dead letters.
const EscalationLabel = "carillon/on-dead-letter"

// DeadSlot is what the handler that a job names in on_dead_letter gets as its parameters.
// The names of the fields are those of the API.
type DeadSlot struct {
	Slot         string          `json:"slot"`
	Job          string          `json:"job"`
	JobUID       string          `json:"job_uid"`
	FireTime     string          `json:"fire_time"`
	Handler      string          `json:"handler"`
	Attempt      int32           `json:"attempt"`
	Failures     int32           `json:"failures"`
	Outcome      string          `json:"outcome"`
	ErrorCode    string          `json:"error_code"`
	ErrorMessage string          `json:"error_message"`
	Params       json.RawMessage `json:"params,omitempty"` // of the job; left out if they make the document too long
}

// escalate adds an immediate job to a batch that tells the handler which a job names of its
// slot, which becomes a dead letter with the same batch. That job names no such handler
// itself, so that its own death calls nobody.
func (s *Shard) escalate(b *Batch, slot *slotState) {
	dead := slot.job
	j := job.Job{UID: escalationUID(&slot.row), Shard: s.proof.Shard, Namespace: dead.spec.namespace, Handler: dead.spec.policies.OnDeadLetter,
		Schedule: job.Schedule{Kind: job.KindImmediate}, Retry: job.DefaultRetryPolicy, Timeout: job.DefaultTimeout, CreatedAt: s.now,
		Labels: map[string]string{EscalationLabel: "true"}}
	j.Name = s.nameHere(j.Namespace, "dead-"+hex.EncodeToString(j.UID[:6]))
	j.Params = describeDead(&slot.row, dead)
	j.RequestHash = j.Hash()
	s.writeCreate(b, &createState{row: j, quiet: true, fires: s.unique()})
	s.note(store.EventEscalated, slot.row.Key.UID, slot.row.Key.FireTime, "the handler "+j.Handler+" is called by "+j.ResourceName())
}

// escalationUID is the uid of the job that tells of a slot's death: that of an attempt has
// one, however often it is written.
func escalationUID(s *job.Slot) (uid job.UID) {
	var key [28]byte
	copy(key[:], s.Key.UID[:])
	binary.BigEndian.PutUint64(key[16:], uint64(s.Key.FireTime))
	binary.BigEndian.PutUint32(key[24:], uint32(s.Attempt))
	sum := sha256.Sum256(key[:])
	copy(uid[:], sum[:])
	uid[6], uid[8] = uid[6]&0x0f|0x80, uid[8]&0x3f|0x80 // a UUID of version 8
	return uid
}

// nameHere returns a job's name that begins so and belongs into this shard.
func (s *Shard) nameHere(namespace, prefix string) string {
	for n := 0; ; n++ {
		name := fmt.Sprint(prefix, "-", n)
		if shard.Of(namespace, name, s.cfg.Shards) == s.proof.Shard {
			return name
		}
	}
}

func describeDead(row *job.Slot, j *jobState) []byte {
	name := job.Job{Namespace: j.spec.namespace, Name: j.name}
	d := DeadSlot{Slot: name.SlotName(row.Key.FireTime), Job: name.ResourceName(), JobUID: j.uid.String(), FireTime: row.Key.FireTime.String(),
		Handler: j.spec.handler, Attempt: row.Attempt, Failures: row.Failures, Outcome: row.Outcome.String(),
		ErrorCode: row.ErrorCode, ErrorMessage: row.ErrorText, Params: json.RawMessage(j.params)}
	if len(row.Params) > 0 {
		d.Params = row.Params
	}
	for range 2 {
		text, err := json.Marshal(d)
		if err == nil && job.CheckDocument(text) == nil {
			return text
		}
		d.Params = nil
	}
	return nil // an error's text is short: this isn't reached
}
