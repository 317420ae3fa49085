package workersdk

import (
	"fmt"
	"slices"
	"time"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

const (
	// seekAfter is how long no node is there before the seeds are tried again: longer than the
	// back-off of the links, which find a node that restarts by themselves.
	seekAfter = 2500 * time.Millisecond
	// maxNodes bounds how many nodes a worker connects to.
	maxNodes = 256
)

// The worker has a link to each node of the cluster. The first one is found at the seeds, the
// addresses that Dial was given, and tells of the others:
//
//	a node joins        a link is opened
//	it drains           its link stays as long as its stream, or our attempts there, and gets no credit
//	it leaves           the same, but the worker ends the stream itself, once nothing is left there
//	no node is there    the seeds are tried, beside the members' own addresses
//
// A seed may be a load balancer, which leads to any node: the welcome names it, and there is one link
// for each name.

// open adds a link and starts its connector.
func (l *loop) open(node, address string, targets ...string) *link {
	k := &link{node: node, address: address, member: true}
	k.reach(targets...)
	l.links = append(l.links, k)
	l.startConnector(k)
	return k
}

// remove ends a link. What its node vouched for keeps its lease as it is.
func (l *loop) remove(k *link, reason error) {
	for _, s := range []*session{k.session, k.next} {
		if s != nil {
			s.close(reason)
		}
	}
	k.cancel()
	l.links = slices.DeleteFunc(l.links, func(o *link) bool { return o == k })
}

func (l *loop) has(k *link) bool { return slices.Contains(l.links, k) }

func (l *loop) linkOf(node string) *link {
	for _, k := range l.links {
		if k.node == node {
			return k
		}
	}
	return nil
}

// seek tries the seeds again once no node has been there for a while.
func (l *loop) seek(now time.Time) {
	byAddress := 0
	for _, k := range l.links {
		if k.session.up() {
			l.seenAt = now
			return
		}
		if k.address != "" {
			byAddress++
		}
	}
	if byAddress == len(l.links) && now.Sub(l.seenAt) >= seekAfter && l.phase < closing {
		l.open("", "", l.w.targets...)
	}
}

// named takes the name of the node that welcomes a stream. It returns false if the stream is
// one too many, or leads astray: then it is dropped.
func (l *loop) named(s *session, node string) bool {
	k := s.link
	if k.address != "" {
		if k.node != node {
			s.close(errOtherNode)
		}
		return k.node == node
	}
	if o := l.linkOf(node); o != nil && o != k {
		if o.session.up() {
			l.remove(k, errRedundant)
			return false
		}
		k.address, k.member, k.draining = o.address, o.member, o.draining // it was found another way
		if o.address != "" {
			k.reach(o.address)
		}
		l.inherit(k, o)
		l.remove(o, errRedundant)
	}
	k.node = node
	for _, o := range slices.Clone(l.links) {
		if o != k && o.node == "" {
			l.remove(o, errRedundant)
		}
	}
	return true
}

// follow takes a list of the cluster's nodes.
func (l *loop) follow(m *carillonv1.Membership) {
	members, asOf := m.GetMembers(), [2]int64{m.GetGeneration(), m.GetRevision()}
	if len(members) == 0 || slices.Compare(asOf[:], l.membersAsOf[:]) < 0 {
		return // another node knows more
	}
	l.membersAsOf = asOf
	if len(members) > maxNodes {
		l.log.Warn("the cluster has more nodes than a worker connects to", "nodes", len(members), "most", maxNodes)
		members = members[:maxNodes]
	}
	for _, k := range l.links {
		k.member = k.node == "" // one that is still being found
	}
	for _, m := range members {
		k := l.linkOf(m.GetNode())
		switch {
		case m.GetNode() == "" || k == nil && (m.GetDraining() || m.GetAddress() == ""):
			continue
		case m.GetAddress() == "": // it can't be reached but as it was
		case k == nil:
			k = l.open(m.GetNode(), m.GetAddress(), m.GetAddress())
		case k.address != m.GetAddress():
			k.address = m.GetAddress()
			k.reach(k.address)
		}
		k.member, k.draining = true, m.GetDraining()
	}
	l.tidy()
}

// tidy ends the links that are of no use any more.
func (l *loop) tidy() {
	for _, k := range slices.Clone(l.links) {
		switch s := k.session; {
		case !k.member && s == nil, k.draining && s == nil && k.running == 0:
			l.remove(k, errNotNeeded)
		case !k.member && s.up() && k.running == 0 && (!s.reclaims || s.inHand() == 0) && !l.owes(k):
			l.remove(k, errNotNeeded)
		}
	}
}

// owes reports whether results wait that a node is to acknowledge.
func (l *loop) owes(k *link) bool {
	for key := range l.results.waiting {
		if l.owners[key.shard].link == k {
			return true
		}
	}
	return false
}

// refused takes a node's refusal of the hello itself. While other nodes take the worker it may be
// that one node's affair, such as its version; else nothing is left to try.
func (l *loop) refused(err error) {
	for _, k := range l.links {
		if k.session.up() {
			return
		}
	}
	if l.failure == nil {
		l.failure = fmt.Errorf("the node refuses the worker: %w", err)
		l.abort()
	}
}

// sawCluster takes the id of the cluster that a node belongs to. Epochs of another cluster mean
// nothing: those of one that was made anew begin anew. What the worker holds is then asked about.
func (l *loop) sawCluster(s *session, id string) {
	switch {
	case id == "" && len(l.attempts)+len(l.results.waiting) == 0 && l.alone(s):
		clear(l.owners) // the node doesn't say, and nothing depends on them
	case id != "" && l.cluster != "" && id != l.cluster:
		l.log.Warn("this is another cluster than before", "was", l.cluster, "is", id)
		clear(l.owners)
		l.membersAsOf = [2]int64{}
		for _, a := range l.attempts {
			if a.voucher != s {
				a.unvouch()
			}
		}
	}
	if id != "" {
		l.cluster = id
	}
}

// alone reports whether no other node is there.
func (l *loop) alone(s *session) bool {
	for _, k := range l.links {
		if k != s.link && k.session.up() {
			return false
		}
	}
	return true
}
