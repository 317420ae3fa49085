package workersdk

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// FuzzWorker has a node say anything, in any order: messages of random parts about a few
// attempts, and random bytes. Whatever it says, the worker runs no attempt twice, holds no more
// than its capacity, and stops when it is told to.
func FuzzWorker(f *testing.F) {
	f.Add([]byte{0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	f.Add([]byte{1, 1, 1, 7, 7, 9, 1, 3, 200, 4, 4, 1, 1, 1, 255, 255})
	f.Add([]byte("\x0d\x08\x01\x12\x04\x12\x02\x08\x01"))
	f.Add([]byte{14, 7, 0, 0, 1, 50, 12, 20, 15, 9, 16, 3, 14, 2, 1, 0, 1, 50, 13, 0, 12, 90})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 256 {
			data = data[:256]
		}
		synctest.Test(t, func(t *testing.T) { fuzzWorker(t, startNode(t), data) })
	})
}

const fuzzCapacity = 3

func fuzzWorker(t *testing.T, n *node, data []byte) {
	n.capable("checkpoints")
	var mu sync.Mutex
	running, runs := 0, map[string]int{}
	w := n.dial(Capacity(fuzzCapacity), ShutdownGrace(time.Second))
	Handle(w, "h", func(ctx context.Context, task *Task[any]) error {
		mu.Lock()
		running++
		k := task.attempt.key
		runs[fmt.Sprint(k)]++
		if running > fuzzCapacity || runs[fmt.Sprint(k)] > 1 {
			t.Errorf("%d handlers run, %v for the time %d", running, k, runs[fmt.Sprint(k)])
		}
		mu.Unlock()
		task.Progress(1, 2, "")
		_ = task.SetCheckpoint([]byte("c"))
		select {
		case <-time.After(time.Duration(k.attempt) * 3 * time.Second):
		case <-ctx.Done():
		}
		mu.Lock()
		defer mu.Unlock()
		running--
		return context.Cause(ctx)
	}, Concurrency(2))
	r := n.run(w)
	for len(data) > 0 {
		s := n.stream()
		if m := anyMessage(&data); m != nil {
			s.send(m)
		} else {
			s.close(errGone)
		}
		synctest.Wait()
	}
	pass(time.Minute)
	if took := r.end(); took > 10*time.Second {
		t.Errorf("the stop took %s", took)
	}
}

func take(data *[]byte) byte {
	if len(*data) == 0 {
		return 0
	}
	b := (*data)[0]
	*data = (*data)[1:]
	return b
}

// anyMessage makes a message of what comes next in data, or lets time pass; nil means that the
// stream breaks.
func anyMessage(data *[]byte) *carillonv1.ConnectResponse {
	m := &carillonv1.ConnectResponse{}
	token := func() *carillonv1.AttemptToken {
		b := take(data)
		k := testToken(int(b % 5))
		k.Attempt, k.Epoch = int32(b/5%3)+1, int64(b/15%3)+6
		return k
	}
	switch kind := take(data); kind % 18 {
	case 0, 1, 2:
		a := job(0, "h", "")
		a.Token = token()
		a.Timeout = durationpb.New(time.Duration(take(data)) * 100 * time.Millisecond)
		m.Assignments = append(m.Assignments, a)
	case 3:
		m.HeartbeatAck = &carillonv1.HeartbeatAck{Sequence: int64(int8(take(data)))}
	case 4:
		m.Attestations = []*carillonv1.Attestation{{Token: token(), Verdict: carillonv1.AttestationVerdict(take(data) % 5), Epoch: int64(take(data) % 10)}}
	case 5:
		m.ResultAcks = []*carillonv1.ResultAck{{Token: token(), Verdict: carillonv1.ResultVerdict(take(data) % 4), Epoch: int64(take(data) % 10)}}
	case 6:
		m.Cancellations = []*carillonv1.Cancellation{{Token: token(), Reason: carillonv1.CancellationReason(take(data) % 5), Epoch: int64(take(data) % 10)}}
	case 7:
		m.Ownerships = []*carillonv1.Ownership{{Shard: int32(take(data) % 5), Epoch: int64(take(data) % 10)}}
	case 8:
		m.ProgressAcks = []*carillonv1.ProgressAck{{Token: token(), Sequence: int64(int8(take(data)))}}
	case 9:
		m.Reconnect = true
	case 10:
		m.Draining = true
	case 11:
		m.Welcome = &carillonv1.Welcome{Lease: durationpb.New(time.Duration(int8(take(data))) * time.Second), HeartbeatInterval: durationpb.New(time.Duration(int8(take(data))) * time.Second)}
	case 12:
		pass(time.Duration(take(data)) * 100 * time.Millisecond)
	case 13:
		b := take(data)
		m.Membership = &carillonv1.Membership{}
		for i := range 3 { // all of them lead to this node, whatever their names are
			if b>>i&1 != 0 {
				m.Membership.Members = append(m.Membership.Members, &carillonv1.Membership_Node{
					Node: fmt.Sprint("n", i), Address: fmt.Sprint("passthrough:///", b>>3&1), Draining: b>>(4+i)&1 != 0,
				})
			}
		}
	case 14:
		m.Reclaimed = proto.Int32(int32(int8(take(data))))
	case 15:
		m.Wanted = proto.Int32(int32(int8(take(data))) * 1000)
	case 16:
		m.HeartbeatAck = &carillonv1.HeartbeatAck{Sequence: int64(take(data) % 8), Lease: durationpb.New(time.Duration(int8(take(data))) * time.Second / 8)}
	default:
		size := int(take(data))
		raw := (*data)[:min(size, len(*data))]
		*data = (*data)[len(raw):]
		if size == 0 {
			return nil
		}
		if proto.Unmarshal(raw, m) != nil {
			proto.Reset(m)
		}
	}
	return m
}
