package model

import (
	"bytes"
	"cmp"
	"strings"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store"
)

// The keys by which rows are found, and their orders: those of the primary keys and the
// indexes of the SQL adapters. An instant with a uid is a job.SlotKey, whatever it is of.
type (
	slotOfJob struct { // the slots of one job, by fire time
		uid  job.UID
		fire job.Instant
	}
	attemptKey struct {
		slot   job.SlotKey
		number int32
	}
	backlogSlot struct { // the rows of the backlog, by job and slot
		slot slotOfJob
		row  store.BacklogKey
	}
	backlogCheck struct { // those that are to be checked
		at  job.Instant
		row store.BacklogKey
	}
	requestKey struct{ namespace, id string }
	requestAge struct {
		at job.Instant
		requestKey
	}
	eventKey struct {
		epoch shard.Epoch
		seq   int64
	}
	eventAge struct {
		at job.Instant
		eventKey
	}
	skipKey struct {
		uid job.UID
		to  job.Instant
	}
	skipAge struct {
		at job.Instant
		skipKey
	}
	nameKey struct{ namespace, name string }
	jobKey  struct { // the jobs of all shards, by name
		nameKey
		uid   job.UID
		shard shard.ID
	}
	calendarKey struct {
		nameKey
		version int64
	}
)

func compareUIDs(a, b job.UID) int { return bytes.Compare(a[:], b[:]) }

func compareSlotKeys(a, b job.SlotKey) int {
	if a.FireTime != b.FireTime {
		return cmp.Compare(a.FireTime, b.FireTime)
	}
	return compareUIDs(a.UID, b.UID)
}

func compareSlotsOfJobs(a, b slotOfJob) int {
	return cmp.Or(compareUIDs(a.uid, b.uid), cmp.Compare(a.fire, b.fire))
}

func compareAttempts(a, b attemptKey) int {
	return cmp.Or(compareSlotKeys(a.slot, b.slot), cmp.Compare(a.number, b.number))
}

func compareBacklog(a, b store.BacklogKey) int {
	if a.Waiting != b.Waiting {
		if b.Waiting {
			return -1
		}
		return 1
	}
	return cmp.Or(strings.Compare(a.Handler, b.Handler), cmp.Compare(a.Priority, b.Priority), strings.Compare(a.Fairness, b.Fairness),
		cmp.Compare(a.Rank, b.Rank), compareSlotKeys(a.Slot, b.Slot))
}

func compareBacklogSlots(a, b backlogSlot) int {
	return cmp.Or(compareSlotsOfJobs(a.slot, b.slot), compareBacklog(a.row, b.row))
}

func compareChecks(a, b backlogCheck) int {
	return cmp.Or(cmp.Compare(a.at, b.at), compareBacklog(a.row, b.row))
}

func compareGaps(a, b store.GapKey) int {
	return cmp.Or(cmp.Compare(a.To, b.To), compareUIDs(a.UID, b.UID))
}

func compareRequestAges(a, b requestAge) int {
	return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.namespace, b.namespace), strings.Compare(a.id, b.id))
}

func compareEvents(a, b eventKey) int {
	return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.seq, b.seq))
}

func compareEventAges(a, b eventAge) int {
	return cmp.Or(cmp.Compare(a.at, b.at), compareEvents(a.eventKey, b.eventKey))
}

func compareSkips(a, b skipKey) int {
	return cmp.Or(compareUIDs(a.uid, b.uid), cmp.Compare(a.to, b.to))
}

func compareSkipAges(a, b skipAge) int {
	return cmp.Or(cmp.Compare(a.at, b.at), compareSkips(a.skipKey, b.skipKey))
}

func compareNames(a, b nameKey) int {
	return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
}

func compareJobs(a, b jobKey) int {
	return cmp.Or(compareNames(a.nameKey, b.nameKey), compareUIDs(a.uid, b.uid), cmp.Compare(a.shard, b.shard))
}

func compareCalendars(a, b calendarKey) int {
	return cmp.Or(compareNames(a.nameKey, b.nameKey), cmp.Compare(a.version, b.version))
}

// following is the least name of its namespace that comes after n.
func (n nameKey) following() nameKey { return nameKey{n.namespace, n.name + "\x00"} }
