package workersdk

import (
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
)

const defaultLease = 10 * time.Second

// setLease takes a welcome's terms. What it doesn't say, or says beyond reason, is
// replaced: a worker without heartbeats or without a lease is of no use.
func (l *loop) setLease(lease, interval time.Duration) {
	if lease <= 0 {
		lease = defaultLease
	}
	if interval <= 0 || interval > lease/3 {
		interval = lease / 4
	}
	l.lease, l.interval = lease, max(interval, minTick)
}

// beatEvery is the pause between two heartbeats. A worker that holds nothing has no lease to
// lose: it only says that it lives, which may take longer.
func (l *loop) beatEvery() time.Duration {
	if len(l.attempts)+len(l.results.waiting) > 0 {
		return l.interval
	}
	return l.idleBeat()
}

func (l *loop) idleBeat() time.Duration { return max(l.interval, min(l.interval*8/5, l.lease*2/5)) }

// pace sets the pause between two looks at the clock: longer for a worker without work.
func (l *loop) pace() {
	pause := min(max(l.lease/100, minTick), maxTick)
	if idle := len(l.attempts)+len(l.results.waiting) == 0; idle && l.phase == serving {
		pause = max(pause, min(l.interval/8, idleTick))
	}
	if l.lease > 0 && pause != l.paced {
		l.paced = pause
		l.ticker.Reset(pause)
	}
}

// elapsed is the time since t by the monotonic or by the wall clock, the larger: the
// monotonic one stands still while a machine sleeps, the wall clock may be set.
func elapsed(t, now time.Time) time.Duration {
	return max(now.Sub(t), now.Round(0).Sub(t.Round(0)))
}

// lease is a right that lasts for a time from a moment at which the worker said that it lives.
type lease struct {
	from  time.Time
	lasts time.Duration
}

// renew lets it last longer; never less long, since what was granted holds.
func (l *lease) renew(from time.Time, lasts time.Duration) {
	if from.Add(lasts).After(l.from.Add(l.lasts)) {
		*l = lease{from, lasts}
	}
}

// over reports whether it ends soon: a tenth before its end the worker stops, lest another one
// begins the same work.
func (l lease) over(now time.Time) bool { return elapsed(l.from, now) >= l.lasts-l.lasts/10 }

// shorter is how long a lease lasts: the usual time, or less where the node says so.
func (l *loop) shorter(granted *durationpb.Duration) time.Duration {
	if granted == nil {
		return l.lease
	}
	return min(max(0, granted.AsDuration()), l.lease)
}

// A node vouches for an attempt by assigning or attesting it, on a stream: from then on the
// heartbeats of that stream renew its lease, and no others. Once the stream is over, or another node
// owns the shard, the lease stays what it was until a node vouches again.

// leased returns the lease of an attempt.
func (a *attempt) leased() lease {
	if a.voucher != nil {
		return a.voucher.lease
	}
	return a.lease
}

// unvouch keeps an attempt's lease as it is.
func (a *attempt) unvouch() { a.lease, a.voucher = a.leased(), nil }

// checkLeases ends what a node may give to another worker soon. The worker goes on
// vouching for it: its handler still runs, and the node decides.
func (l *loop) checkLeases(now time.Time) {
	lost := 0
	for _, a := range l.attempts {
		if a.leaseLost || !a.held() || !a.leased().over(now) {
			continue
		}
		a.leaseLost = true
		lost++
		l.stop(a, ErrLeaseLost, unjudged)
	}
	if lost > 0 {
		l.log.Warn("the lease ended; handlers were cancelled", "attempts", lost)
	}
}

// ask has a node asked about an attempt.
func (s *session) ask(a *attempt, now time.Time) {
	a.askedAt = now
	s.asking = append(s.asking, a.key)
}

// askAgain asks about what nobody vouches for: the owner, or all nodes while it isn't known. Once
// per interval: a node that can't tell yet does so when it can.
func (l *loop) askAgain(now time.Time) {
	for _, a := range l.attempts {
		if a.voucher.up() || !a.held() || a.leaseLost || now.Sub(a.askedAt) < l.interval {
			continue
		}
		for _, k := range l.links {
			if k.session.up() && l.concerns(k, a.key.shard) {
				k.session.ask(a, now)
			}
		}
	}
}
