package workersdk

import "time"

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

// leaseOf returns from when an attempt's lease counts.
func (l *loop) leaseOf(a *attempt) time.Time {
	if a.unsure {
		return a.leaseFrom
	}
	return l.leaseFrom
}

// checkLeases ends what the node may give to another worker soon. The worker goes on
// vouching for it: its handler still runs, and the node decides.
func (l *loop) checkLeases(now time.Time) {
	if l.lease == 0 {
		return
	}
	lost := 0
	for _, a := range l.attempts {
		if a.leaseLost || !a.held() || elapsed(l.leaseOf(a), now) < l.lease-l.lease/10 {
			continue
		}
		a.leaseLost = true
		lost++
		l.stop(a, ErrLeaseLost, unjudged)
	}
	if lost > 0 {
		l.log.Warn("the lease ended; handlers were cancelled", "attempts", lost, "connected", l.session != nil)
	}
}

// freezeLeases notes how long each attempt's lease lasts if the node that is asked
// now can't vouch for it.
func (l *loop) freezeLeases() {
	for _, a := range l.attempts {
		a.leaseFrom = l.leaseOf(a)
	}
}

// unsure reports whether the node couldn't vouch for something that runs.
func (l *loop) unsure() bool {
	for _, a := range l.attempts {
		if a.unsure && a.held() && !a.leaseLost {
			return true
		}
	}
	return false
}
