package workersdk

// current reports whether a node may still speak for a shard: no higher epoch of it was seen.
// A node that shows a higher one is asked about all that the worker holds of the shard. Nodes
// that tell no epoch are taken at their word.
func (l *loop) current(shard int32, epoch int64) bool {
	seen, known := l.epochs[shard]
	switch {
	case epoch == 0 || epoch == seen:
		return true
	case epoch < seen:
		l.log.Warn("a message of a node that no longer owns the shard was passed over", "shard", shard, "epoch", epoch, "newest", seen)
		return false
	}
	l.epochs[shard] = epoch
	if known {
		for k, a := range l.attempts {
			if k.shard == shard && a.held() {
				l.asking = append(l.asking, k)
			}
		}
	}
	return true
}

// maxRecent is how many attempts are remembered after their end, so that an assignment which
// comes twice isn't run twice: more than come while one is on its way.
const maxRecent = 4096

// recent holds the newest attempts that ended.
type recent struct {
	keys  map[key]struct{}
	order []key // a ring, once it is full
	next  int
}

func (r *recent) holds(k key) bool {
	_, holds := r.keys[k]
	return holds
}

func (r *recent) add(k key) {
	if r.keys == nil {
		r.keys = map[key]struct{}{}
	}
	if r.holds(k) {
		return
	}
	r.keys[k] = struct{}{}
	if len(r.order) < maxRecent {
		r.order = append(r.order, k)
		return
	}
	delete(r.keys, r.order[r.next])
	r.order[r.next] = k
	r.next = (r.next + 1) % maxRecent
}
