package workersdk

import (
	"cmp"
	"slices"
	"time"
)

// A worker's capacity is in three places: the attempts that it holds, the credit that nodes
// have in hand, and what is free. Together they are never more, so credit moves in two steps: one
// node gives it back, then another one gets it.
//
// The split is fair and follows work. What a node can use is what runs for its shards and what waits
// there (wanted); the capacity is shared out so that no node gets more than it can use while
// another one has less than it could (max-min); what nobody can use is spread evenly, since the
// next slot may come anywhere, and would otherwise wait for the credit to move.

// credit is what a node has in hand, on one stream.
type credit struct {
	reclaims bool // the node gives credit back
	granted  int  // what it has; less than none, if it sent again what an earlier stream had paid for
	give     int  // of that: still to be sent
	taking   int  // asked back, and not answered
	take     int  // of that: still to be sent
	wanted   int  // slots that wait there for more

	shortAt time.Time // when less came back than was asked for
}

// reclaimPause is after which time a node is asked again that gave back less than it was asked for:
// the rest is used by claims that are being written, and asking would make them no faster.
const reclaimPause = 100 * time.Millisecond

// mayReclaim reports whether the node may be asked now.
func (c *credit) mayReclaim(now time.Time) bool {
	return c.reclaims && c.taking == 0 && now.Sub(c.shortAt) >= reclaimPause
}

// inHand is how many assignments may come at any moment.
func (c *credit) inHand() int { return max(0, c.granted) }

// grant gives the node so much more; with it what it owes.
func (c *credit) grant(n int) {
	n += max(0, -c.granted)
	c.granted += n
	c.give += n
}

// used notes that an assignment came. It may be one more than was granted: the node counts it, too.
func (c *credit) used() { c.granted-- }

// reclaim asks for some of it back.
func (c *credit) reclaim(n int) { c.taking, c.take = n, n }

// returned takes the node's answer.
func (c *credit) returned(n int, now time.Time) {
	n = min(max(n, 0), c.taking)
	if n < c.taking {
		c.shortAt = now
	}
	c.granted -= n
	c.taking = 0
}

// claim is what a node has of the capacity, and should have.
type claim struct {
	link                  *link
	running, hand, demand int
	target                int
}

func (c *claim) deficit() int { return max(0, c.target-c.running-c.hand) }

// surplus is what it could give back.
func (c *claim) surplus() int { return min(c.hand, max(0, c.running+c.hand-c.target)) }

// below reports whether others are to give something back for it. Spare credit only has to be
// about right: else every attempt that begins or ends would move some.
func (c *claim) below() bool {
	return c.deficit() > 0 && (c.link.session.wanted > 0 || 2*c.hand < c.target-c.running)
}

// claims splits the capacity over the nodes that may get credit, and over one whose hello is
// being written (nil: none), which has nothing in hand. Free is what nobody has.
func (l *loop) claims(joins *link) (nodes []claim, free int) {
	free = l.w.cfg.capacity - len(l.attempts)
	room := free // what is there for these nodes
	for _, k := range l.links {
		hand, useful := 0, k.member && !k.draining
		if k != joins {
			hand, useful = k.inHand(), k.useful()
		}
		free -= hand
		if !useful {
			room -= hand
			continue
		}
		room += k.running
		c := claim{link: k, running: k.running, hand: hand, demand: k.running}
		if k != joins {
			c.demand += k.session.wanted
		}
		nodes = append(nodes, c)
	}
	split(max(0, room), nodes)
	return nodes, max(0, free)
}

// inHand is the credit of a link's streams: the node counts only that of the newest one, but which
// one that is isn't known while both are open.
func (k *link) inHand() (n int) {
	for _, s := range []*session{k.session, k.next} {
		if s != nil && !s.dropped {
			n = max(n, s.inHand())
		}
	}
	return n
}

// split sets the targets, which are room together.
func split(room int, nodes []claim) {
	if len(nodes) == 0 {
		return
	}
	open := make([]*claim, len(nodes))
	for i := range nodes {
		open[i] = &nodes[i]
	}
	// What doesn't divide goes to those that have most already, and else to whom nothing was
	// given for the longest time: the first keeps it from wandering, the second from staying.
	slices.SortStableFunc(open, func(a, b *claim) int {
		return cmp.Or(cmp.Compare(b.running+b.hand, a.running+a.hand), cmp.Compare(a.link.givenAt, b.link.givenAt))
	})
	for len(open) > 0 {
		each := room / len(open)
		before := len(open)
		open = slices.DeleteFunc(open, func(c *claim) bool {
			if c.demand > each {
				return false
			}
			c.target = c.demand
			room -= c.demand
			return true
		})
		if len(open) == before {
			spread(room, open)
			return
		}
	}
	for i := range nodes {
		open = append(open, &nodes[i])
	}
	slices.SortStableFunc(open, func(a, b *claim) int {
		return cmp.Or(cmp.Compare(b.hand, a.hand), cmp.Compare(a.link.givenAt, b.link.givenAt))
	})
	spread(room, open)
}

// spread adds to all targets the same, and one more to the first ones.
func spread(room int, nodes []*claim) {
	each, rest := room/len(nodes), room%len(nodes)
	for i, c := range nodes {
		c.target += each
		if i < rest {
			c.target++
		}
	}
}

// balance gives what is free to the nodes that have less than their share, and has others give
// back what is missing.
func (l *loop) balance() {
	if l.phase != serving || l.results.full() {
		return
	}
	nodes, free := l.claims(nil)
	slices.SortStableFunc(nodes, func(a, b claim) int {
		return cmp.Or(-compareBool(a.link.session.wanted > 0, b.link.session.wanted > 0), cmp.Compare(b.deficit(), a.deficit()),
			cmp.Compare(a.link.givenAt, b.link.givenAt))
	})
	now, missing := time.Now(), 0
	for i := range nodes {
		c := &nodes[i]
		if c.link.next != nil {
			continue // its next stream's hello says it
		}
		if n := min(free, c.deficit()); n > 0 {
			free -= n
			c.hand += n
			c.link.session.grant(n)
			l.gifts++
			c.link.givenAt = l.gifts
		}
		if c.below() {
			missing += c.deficit()
		}
	}
	l.takeBack(nodes, missing, now)
}

// takeBack asks for credit that is missing elsewhere, and for all that a node has in hand that is
// to get none.
func (l *loop) takeBack(nodes []claim, missing int, now time.Time) {
	for _, k := range l.links {
		if k.session == nil {
			continue
		}
		missing -= k.session.taking
		if s := k.session; s.up() && !k.useful() && k.next == nil && s.mayReclaim(now) && s.inHand() > 0 {
			missing -= s.inHand()
			s.reclaim(s.inHand())
		}
	}
	slices.SortStableFunc(nodes, func(a, b claim) int { return cmp.Compare(b.surplus(), a.surplus()) })
	for i := range nodes {
		s := nodes[i].link.session
		n := min(missing, nodes[i].surplus())
		if n > 0 && s.mayReclaim(now) && nodes[i].link.next == nil {
			missing -= n
			s.reclaim(n)
		}
	}
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// helloCredit is how much a hello gives, which replaces what the node had.
func (l *loop) helloCredit(k *link, listed int) int {
	if l.phase != serving || l.results.full() {
		return 0
	}
	nodes, free := l.claims(k)
	for i := range nodes {
		if nodes[i].link == k {
			return max(0, min(free, nodes[i].deficit(), l.w.cfg.capacity-listed))
		}
	}
	return 0
}
