// Package storekit holds what the adapters of package store share: which columns a
// job and a slot have and how they are read, how a job's schedule and policies are
// written as text, and how the pages of several shards become one.
package storekit

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// EncodeJob writes the structured parts of a job as text.
func EncodeJob(j *job.Job) (schedule, retry string, err error) {
	s, err := json.Marshal(j.Schedule)
	if err != nil {
		return "", "", err
	}
	r, err := json.Marshal(j.Retry)
	return string(s), string(r), err
}

// DecodeJob reads what EncodeJob wrote. A text that can't be read doesn't fail the
// reading of all other jobs: it quarantines this one, in memory, with the reason.
func DecodeJob(j *job.Job, schedule, retry string) {
	if err := json.Unmarshal([]byte(schedule), &j.Schedule); err != nil && j.Quarantine == "" {
		j.Quarantine = fmt.Sprintf("its stored schedule can't be read: %v", err)
	}
	if err := json.Unmarshal([]byte(retry), &j.Retry); err != nil && j.Quarantine == "" {
		j.Quarantine = fmt.Sprintf("its stored retry policy can't be read: %v", err)
	}
}

// ScanBudget bounds the rows that one call of Slots looks at in each shard.
const ScanBudget = 2000

// Bound turns a place in the order of Slots into an exclusive upper bound of the
// keys of one shard.
func Bound(id shard.ID, c store.SlotCursor) (job.Instant, []byte) {
	switch {
	case c == (store.SlotCursor{}):
		return math.MaxInt64, []byte{} // also beyond what the API can carry
	case id == c.Shard:
		return c.Key.FireTime, c.Key.UID[:]
	case id < c.Shard:
		return c.Key.FireTime + 1, []byte{} // its rows of that instant come later
	}
	return c.Key.FireTime, []byte{}
}

// CursorOf is the place of a slot in the order of Slots.
func CursorOf(s store.SlotOf) store.SlotCursor {
	return store.SlotCursor{Key: s.Slot.Key, Shard: s.Job.Shard}
}

// Newer orders the places of Slots: later fire times first, then larger shards,
// then larger uids.
func Newer(a, b store.SlotCursor) bool {
	if a.Key.FireTime != b.Key.FireTime {
		return a.Key.FireTime > b.Key.FireTime
	}
	if a.Shard != b.Shard {
		return a.Shard > b.Shard
	}
	return b.Key.UID.Less(a.Key.UID)
}

// Pager gathers the newest slots of each shard into one page.
type Pager struct {
	Page    store.SlotsPage
	all     []store.SlotOf
	horizon store.SlotCursor // the newest place at which some shard stopped looking
}

// Collector takes the rows of one shard, newest first.
type Collector struct {
	pager         *Pager
	looked, found int
}

// Shard begins the rows of a shard.
func (p *Pager) Shard() *Collector { return &Collector{pager: p} }

// Add takes a row, and reports whether the shard should give more.
func (c *Collector) Add(s store.SlotOf) bool {
	p := c.pager
	c.looked++
	if s.Job.Namespace == p.Page.Namespace && (len(p.Page.States) == 0 || slices.Contains(p.Page.States, s.Slot.State)) {
		c.found++
		p.all = append(p.all, s)
	}
	if c.found <= p.Page.Limit && c.looked < ScanBudget {
		return true
	}
	if cut := CursorOf(s); p.horizon == (store.SlotCursor{}) || Newer(cut, p.horizon) {
		p.horizon = cut
	}
	return false
}

// Finish returns the page and where the next one begins; zero at the end. What
// lies beyond the horizon is left to the next page, so that nothing is skipped.
func (p *Pager) Finish() ([]store.SlotOf, store.SlotCursor) {
	all := p.all
	slices.SortFunc(all, func(a, b store.SlotOf) int {
		if Newer(CursorOf(a), CursorOf(b)) {
			return -1
		}
		return 1
	})
	if p.horizon != (store.SlotCursor{}) {
		all = slices.DeleteFunc(all, func(s store.SlotOf) bool { return Newer(p.horizon, CursorOf(s)) })
	}
	if len(all) > p.Page.Limit {
		return all[:p.Page.Limit], CursorOf(all[p.Page.Limit-1])
	}
	return all, p.horizon
}
