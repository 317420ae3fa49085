// Package etcd is the coordinator of many nodes. What they agree on lives in etcd, under
// /carillon/{cluster}/:
//
//	members/{node}    who takes part: address, capacity, health           leased
//	shards/{shard}    who holds a shard                                   leased
//	releasing         who releases its shards because it is unfit         leased
//	pins/{shard}      who should hold it, whatever would be fair          until it is undone
//	drains/{node}     who should hold nothing                             until it is undone
//
// Each node has one lease. Its end takes its keys away, and so tells everybody that its shards
// are free.
//
// # Who holds a shard
//
// Every node follows all keys by a watch and reckons from them who should hold which shard
// (coordinator.Assign). A shard that nobody holds is taken by the one node that should: it
// creates the key, if it isn't there. The create revision orders rivals in the database. A
// node that holds what another one should, is told to give it up, and deletes the key once the
// database knows of it.
//
// A node acts on what the watch shows, and on nothing else: also its own key is won only when
// it is seen, with its revision. So an answer that was lost, or a key that is gone again, needs
// no case of its own.
//
// # When etcd is away
//
// Nothing moves, and everybody goes on with what they hold. A node that lost its lease takes part
// again as soon as it can, and first wins the keys of the shards that it owns; the others
// wait for one TTL before they take what the database says is somebody else's.
package etcd

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/shard"
)

// Ownership is what the database says of a shard.
type Ownership struct {
	Shard    shard.ID
	Node     string // empty: nobody owns it
	Gen, Rev int64
}

// Config configures a coordinator.
type Config struct {
	Cluster  string // its id: clusters that share an etcd don't meet
	Node     string
	Address  string // of this node's gRPC, for others
	Version  string
	Capacity int // of this node, in relation to others
	Shards   int // of the cluster
	// Gen is raised by an operator when etcd was made anew: its revisions begin anew, too.
	Gen int64
	// TTL is for how long a node that isn't heard keeps its shards; whole seconds, 2 at least.
	TTL time.Duration
	// Owners reads what the database says of all shards.
	Owners func(ctx context.Context) ([]Ownership, error)
	Log    *slog.Logger
}

// Coordinator takes part in the coordination of one cluster.
type Coordinator struct {
	cfg         Config
	how         ClientConfig
	client      *clientv3.Client // made by the first session: with a password that takes an etcd that answers; written under mu
	incarnation string           // tells this process from others of its name
	started     time.Time

	kick chan struct{} // something below has changed

	mu       sync.Mutex // guards what follows
	released []ending
	health   told
	leaving  bool
	heard    time.Time // when the newest answered keep-alive was sent
	holds    bool      // all keys of what this node owns are its own, under its lease
	idle     bool      // this node owns nothing, and so can't have lost it
	proven   time.Time // when the newest answered keep-alive was sent while that was so
	contact  time.Time // since when keep-alives have been answered one after the other
	seen     int64     // the newest revision
	session  bool
	problem  string
	since    time.Time // of the newest change between answered and not
	answered bool
	view     view
	changed  chan struct{}
}

var _ coordinator.Cluster = (*Coordinator)(nil)

// Times and bounds.
const (
	callTimeout = 2 * time.Second
	// tickEvery is how often a node publishes its health, and looks around.
	tickEvery = time.Second
	// maxMoves bounds the shards that a node has under way to others at a time, and
	// moveTimeout for how long one counts that nobody has taken.
	maxMoves    = 4
	moveTimeout = 2 * time.Second
	retryEvery  = 500 * time.Millisecond
)

// New returns a coordinator that Run will start. It needs no etcd yet.
func New(how ClientConfig, cfg Config) *Coordinator {
	now := time.Now()
	return &Coordinator{
		cfg: cfg, how: how, incarnation: rand.Text(), started: now, since: now,
		kick: make(chan struct{}, 1), changed: make(chan struct{}), view: newView(cfg.Shards), idle: true,
		problem: notAnswering,
	}
}

// Run implements coordinator.Coordinator: session after session. It returns no error: without
// etcd the node goes on with what it owns.
func (c *Coordinator) Run(ctx context.Context, changes chan<- coordinator.Change) error {
	n := &node{Coordinator: c, changes: changes, held: map[shard.ID]int64{}, going: map[shard.ID]departure{}, given: map[shard.ID]time.Time{},
		letting: map[shard.ID]int64{}, unheld: map[shard.ID]time.Time{}, notBefore: map[shard.ID]time.Time{}, ownersRead: make(chan []Ownership, 1), soon: time.NewTimer(0)}
	defer n.soon.Stop()
	defer c.disconnect()
	for {
		err := n.takePart(ctx)
		if ctx.Err() != nil {
			return nil
		}
		c.outOfSession(err)
		select {
		case <-time.After(retryEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// connect makes the client, unless that is done.
func (c *Coordinator) connect() error {
	if c.client != nil {
		return nil
	}
	client, err := Dial(c.how)
	if err != nil {
		c.unheard(err)
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client = client
	return nil
}

func (c *Coordinator) disconnect() {
	if c.client == nil {
		return
	}
	if err := c.client.Close(); err != nil {
		c.cfg.Log.Debug("the connection to etcd was not closed as it should", "error", err)
	}
}

// connected returns the client, for those beside Run.
func (c *Coordinator) connected() (*clientv3.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		return nil, unavailable("connect", errors.New("it was never reached"))
	}
	return c.client, nil
}

// ending is what Released was told.
type ending struct {
	id  shard.ID
	rev int64
}

// told is what Report was told.
type told struct {
	coordinator.Health
	reported bool
}

// Released implements coordinator.Coordinator.
func (c *Coordinator) Released(id shard.ID, rev int64) {
	c.note(func() { c.released = append(c.released, ending{id, rev}) })
}

// Report implements coordinator.Coordinator.
func (c *Coordinator) Report(h coordinator.Health) { c.note(func() { c.health = told{h, true} }) }

// Leave implements coordinator.Coordinator. A node that can't reach etcd, or that is the last one, has
// nobody to hand its shards to.
func (c *Coordinator) Leave() (moving bool) {
	if c.leave() {
		c.wake()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.view.members {
		moving = moving || m.Node != c.cfg.Node && !m.Draining && !m.Unfit
	}
	return moving && c.session && c.answered
}

// leave notes that the node ends; false: that was noted before.
func (c *Coordinator) leave() (first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first, c.leaving = !c.leaving, true
	return first
}

// Proven implements coordinator.Coordinator.
func (c *Coordinator) Proven() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle {
		return time.Now()
	}
	return c.proven
}

// prove notes whether all keys of what this node owns are its own, and whether it owns nothing.
// Keys that are seen under the lease show what its newest keep-alive has kept.
func (c *Coordinator) prove(holds, idle bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if holds && !c.holds || c.idle && !idle {
		c.proven = later(c.proven, c.heard)
	}
	c.holds, c.idle = holds, idle
}

// note changes what others than the node's goroutine may set, and wakes that.
func (c *Coordinator) note(set func()) {
	c.mu.Lock()
	set()
	c.mu.Unlock()
	c.wake()
}

func (c *Coordinator) wake() {
	select {
	case c.kick <- struct{}{}:
	default: // it is awake
	}
}

// keepAlive renews the lease until it is lost.
func (c *Coordinator) keepAlive(ctx context.Context, lease clientv3.LeaseID, lost chan<- error) {
	for {
		sent := time.Now()
		callCtx, cancel := context.WithTimeout(ctx, min(callTimeout, c.cfg.TTL/2))
		resp, err := c.client.KeepAliveOnce(callCtx, lease)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			lost <- errLeaseLost
			return
		case err != nil:
			c.unheard(err)
		default:
			c.hear(sent, resp.Revision)
		}
		select {
		case <-time.After(c.cfg.TTL/5 - time.Since(sent)):
		case <-ctx.Done():
			return
		}
	}
}

var errLeaseLost = errors.New("etcd has ended this node's lease")

// hear notes an answer of etcd.
func (c *Coordinator) hear(sent time.Time, rev int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sent.Sub(c.heard) > c.cfg.TTL/2 {
		c.contact = sent
	}
	c.heard = sent
	if c.holds {
		c.proven = sent
	}
	if c.problem == notAnswering {
		c.problem = ""
	}
	if !c.answered {
		c.answered, c.since = true, time.Now()
		c.cfg.Log.Info("etcd answers", "rev", rev)
	}
	c.seen = max(c.seen, rev)
}

// unheard notes that etcd didn't answer.
func (c *Coordinator) unheard(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answered {
		c.answered, c.since = false, time.Now()
		c.cfg.Log.Warn(notAnswering, "error", err)
	}
	if c.problem == "" {
		c.problem = notAnswering
	}
}

// inSession notes that this node takes part.
func (c *Coordinator) inSession(problem string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, c.problem = true, problem
}

// outOfSession notes that it no longer does.
func (c *Coordinator) outOfSession(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text := err.Error(); c.session || c.problem != text {
		c.cfg.Log.Warn("this node takes no part in the coordination", "error", err)
		c.problem = text
	}
	c.session, c.holds = false, false
}

// contactSince returns since when etcd has been answering.
func (c *Coordinator) contactSince() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.heard) > c.cfg.TTL/2 {
		return time.Now() // it doesn't
	}
	return c.contact
}

// taken is what others have told since the last call.
func (c *Coordinator) taken() (released []ending, health told, leaving bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	released, c.released = c.released, nil
	return released, c.health, c.leaving
}

// notAnswering is the problem of a node that goes on by itself.
const notAnswering = "etcd doesn't answer: no shard moves until it does"

// call bounds one call of etcd.
func call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callTimeout)
}

func unavailable(what string, err error) error {
	return fmt.Errorf("etcd: %s: %w: %w", what, coordinator.ErrUnavailable, err)
}

// ClientConfig says how etcd is reached.
type ClientConfig struct {
	Endpoints          []string // host:port, or URLs
	Username, Password string
	TLS                *tls.Config // nil: in plain text
	// Client makes the client instead; nil: the rest of the configuration does.
	Client func() (*clientv3.Client, error)
}

// Dial makes a client. With a user it asks for a token at once, and fails if etcd doesn't answer.
func Dial(cfg ClientConfig) (*clientv3.Client, error) {
	if cfg.Client != nil {
		return cfg.Client()
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: cfg.Endpoints, Username: cfg.Username, Password: cfg.Password, TLS: cfg.TLS,
		DialTimeout: callTimeout, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second, PermitWithoutStream: true,
		Logger: zap.NewNop(), // what matters is told by the calls' errors
	})
	if err != nil {
		return nil, fmt.Errorf("etcd: connect to %s: %w", strings.Join(cfg.Endpoints, ", "), err)
	}
	return client, nil
}
