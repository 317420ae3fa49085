package core

import (
	"time"
)

// Config holds the bounds and times of a shard.
type Config struct {
	// Shards is how many shards the cluster has.
	Shards int
	// Lease is how long a worker may be silent; HeartbeatEvery is what it is told.
	Lease          time.Duration
	HeartbeatEvery time.Duration
	// LeaseMargin is added before anything is taken from a worker that may not
	// have heard of a take-over.
	LeaseMargin time.Duration
	// TimeoutGrace is how long after an attempt's deadline its own worker may still
	// report it, before the shard ends it.
	TimeoutGrace time.Duration
	// WatermarkEvery is how often the watermark is stored: a proof of life, too.
	WatermarkEvery time.Duration
	// OpenFromLag is how far the scan for open slots may reach back; what is older
	// is listed in the backlog. OpenFromEvery is how often that place moves.
	OpenFromLag   time.Duration
	OpenFromEvery time.Duration
	// OnceWindow and OnceLimit bound the jobs of one fire time that are in memory.
	OnceWindow time.Duration
	OnceLimit  int
	// ReadyLimit bounds the READY slots in memory per handler and priority. The
	// rest waits in the backlog.
	ReadyLimit int
	// LineLimit bounds the slots in memory that wait for another one of their job.
	LineLimit int
	// PendingLimit bounds the slots that wait to be written. Beyond it the shard
	// fires nothing until the database has caught up.
	PendingLimit int
	// GapChunk bounds how many slots of a gap are made for one batch, so that live
	// work never waits behind more than that.
	GapChunk int
	// PageLimit bounds one read.
	PageLimit int
	// Retention is how long a final slot, and a job that ended, is kept; DeadRetention a
	// dead letter; EventRetention an event.
	Retention, DeadRetention, EventRetention time.Duration
	// NameRetention is how long a job that ended by itself keeps its name, and how long
	// at least a request is remembered.
	NameRetention time.Duration
	// PassEvery is how often the shard looks for what need not be kept any longer, and
	// FullPassEvery how often it begins at the oldest slot.
	PassEvery, FullPassEvery time.Duration
	// CancelGrace is how long a worker has to say that it stopped an attempt whose slot was
	// cancelled, before that is recorded.
	CancelGrace time.Duration
	// StalledAfter is how long a slot may wait for a worker before that is told.
	StalledAfter time.Duration
	// UnservedAhead is how long before its fire time a job is looked at whose handler no
	// worker serves.
	UnservedAhead time.Duration
	// Random returns a number in [0, 1), for the jitter of retries.
	Random func() float64
}

// DefaultConfig returns the values that the documentation names.
func DefaultConfig(random func() float64) Config {
	return Config{
		Lease:          10 * time.Second,
		HeartbeatEvery: 2500 * time.Millisecond,
		LeaseMargin:    time.Second,
		TimeoutGrace:   2 * time.Second,
		WatermarkEvery: time.Second,
		OpenFromLag:    5 * time.Minute,
		OpenFromEvery:  30 * time.Second,
		OnceWindow:     15 * time.Minute,
		OnceLimit:      100_000,
		ReadyLimit:     5_000,
		LineLimit:      64,
		PendingLimit:   20_000,
		GapChunk:       500,
		PageLimit:      1_000,
		Retention:      7 * 24 * time.Hour,
		DeadRetention:  30 * 24 * time.Hour,
		EventRetention: 30 * 24 * time.Hour,
		NameRetention:  24 * time.Hour,
		PassEvery:      time.Minute,
		FullPassEvery:  time.Hour,
		CancelGrace:    10 * time.Second,
		StalledAfter:   5 * time.Minute,
		UnservedAhead:  10 * time.Minute,
		Random:         random,
	}
}
