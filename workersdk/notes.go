package workersdk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// Bounds of the contract, and the rhythm in which notes are told.
const (
	maxCheckpointBytes = 64 << 10
	maxLogBytes        = 16 << 10
	// notesEvery is the least time between two reports of an attempt; the node stores no
	// more either.
	notesEvery = time.Second
	// notesAgain is after which time a report that wasn't acknowledged is sent again.
	notesAgain = 3 * time.Second
)

// ErrNoCheckpoints says that the node is too old to store checkpoints.
var ErrNoCheckpoints = errors.New("the node stores no checkpoints")

// notes is what a handler says of itself while it runs. Its versions count its changes; the
// node is told the newest.
type notes struct {
	mu         sync.Mutex // guards what follows
	version    int64
	progress   *carillonv1.Progress
	checkpoint versioned
	log        versioned // the newest whole lines
	stored     int64     // the newest version that the node has stored
	changed    chan struct{}

	// The loop's.
	sent   int64
	sentAt time.Time
}

// versioned is a part that is told only until it is stored. What was told is never written
// over: a sender may still read it.
type versioned struct {
	data []byte
	at   int64 // the version that brought it; 0: nothing was set
}

// newer returns the part if a version is older than it.
func (v versioned) newer(than int64) []byte {
	if v.at > than {
		return v.data
	}
	return nil
}

// change takes something new.
func (n *notes) change(set func(*notes)) (version int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.version++
	set(n)
	return n.version
}

// acknowledged notes how much the node has stored.
func (n *notes) acknowledged(version int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stored = max(n.stored, version)
	if n.changed != nil {
		close(n.changed)
		n.changed = nil
	}
}

// await waits until the node has stored a version.
func (n *notes) await(ctx context.Context, version int64) error {
	for {
		n.mu.Lock()
		stored := n.stored >= version
		if !stored && n.changed == nil {
			n.changed = make(chan struct{})
		}
		changed := n.changed
		n.mu.Unlock()
		if stored {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// report returns what the node is to be told now; nil if that is nothing.
func (n *notes) report(now time.Time, acknowledges bool) *carillonv1.ProgressReport {
	n.mu.Lock()
	defer n.mu.Unlock()
	pause := notesEvery
	if n.sent == n.version {
		pause = notesAgain
	}
	if n.version == 0 || n.sent == n.version && (n.stored >= n.version || !acknowledges) || now.Sub(n.sentAt) < pause {
		return nil
	}
	n.sent, n.sentAt = n.version, now
	r := &carillonv1.ProgressReport{Progress: n.progress}
	if acknowledges {
		r.Sequence, r.Checkpoint, r.Log = n.version, n.checkpoint.newer(n.stored), n.log.newer(n.stored)
	}
	return r
}

// last adds to a result what the node may not have stored.
func (n *notes) last(r *carillonv1.AttemptResult) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.Log, r.Checkpoint = n.log.newer(n.stored), n.checkpoint.newer(n.stored)
}

// Write takes a line of the log; what is older than the newest 16 KiB goes.
func (n *notes) Write(line []byte) (int, error) {
	n.change(func(n *notes) {
		log := append(bytes.Clone(n.log.data), line...)
		if over := len(log) - maxLogBytes; over > 0 {
			log = log[over:]
			if end := bytes.IndexByte(log, '\n'); end >= 0 && end < len(log)-1 {
				log = log[end+1:]
			}
		}
		n.log = versioned{log, n.version}
	})
	return len(line), nil
}

// logger returns a logger that writes to the worker's log and to the notes.
func (n *notes) logger(worker *slog.Logger) *slog.Logger {
	return slog.New(slog.NewMultiHandler(worker.Handler(), slog.NewTextHandler(n, nil)))
}

// setCheckpoint takes a checkpoint and returns its version.
func (a *attempt) setCheckpoint(data []byte) (version int64, err error) {
	if !a.storesNotes() {
		return 0, ErrNoCheckpoints
	}
	if data, err = a.encodeCheckpoint(data); err != nil {
		return 0, err
	}
	if len(data) > maxCheckpointBytes {
		return 0, fmt.Errorf("the checkpoint has %d bytes, more than %d", len(data), maxCheckpointBytes)
	}
	return a.notes.change(func(n *notes) { n.checkpoint = versioned{data, n.version} }), nil
}

// Checkpoint returns what the attempts of the slot before this one left as their newest
// stored checkpoint; nil if they left none. It must not be changed.
func (t TaskInfo) Checkpoint() []byte { return t.attempt.checkpoint }

// SetCheckpoint makes data, at most 64 KiB, what the next attempt of the slot gets back, if
// there is one. It doesn't wait: the newest is sent, about once a second, and with the
// attempt's result. It fails with [ErrNoCheckpoints] if the node is too old.
func (t TaskInfo) SetCheckpoint(data []byte) error {
	_, err := t.attempt.setCheckpoint(data)
	return err
}

// SaveCheckpoint is SetCheckpoint, and returns once data, or a newer checkpoint, is stored:
// from then on it outlives this worker and the node. At most about one a second is stored.
// It returns the cause of ctx's end if that comes first.
func (t TaskInfo) SaveCheckpoint(ctx context.Context, data []byte) error {
	version, err := t.attempt.setCheckpoint(data)
	if err != nil {
		return err
	}
	return t.attempt.notes.await(ctx, version)
}
