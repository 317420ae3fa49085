package workersdk

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
