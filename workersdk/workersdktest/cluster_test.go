package workersdktest_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/carillon-scheduler/carillon/controlplane"
	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/coordinator/solo"
	"github.com/carillon-scheduler/carillon/engine"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/shard"
	"github.com/carillon-scheduler/carillon/store/sqlite"
	worker "github.com/carillon-scheduler/carillon/workersdk"
)

// cluster is two whole nodes on one database, in one bubble, whose shards go where the test says.
// Each begins with one of two.
type cluster struct {
	t      *testing.T
	nodes  map[string]*clusterNode
	rev    int64
	stop   func() // the worker
	serial int

	mu       sync.Mutex // guards what follows
	draining map[string]bool
	changed  chan struct{}
	runs     map[string]int // by slot and attempt
	running  int
	most     int // of running
	ended    int // by their contexts
}

// clusterNode is one node, and the coordinator that it listens to.
type clusterNode struct {
	*solo.Coordinator // for what nobody asks here
	cluster           *cluster
	name              string
	grpc              *bufconn.Listener
	changes           chan coordinator.Change
	released          chan shard.ID
	jobs              carillonv1.JobServiceClient
	slots             carillonv1.SlotServiceClient
	stop              func()
}

var _ coordinator.Cluster = (*clusterNode)(nil)

func (n *clusterNode) Run(ctx context.Context, changes chan<- coordinator.Change) error {
	for {
		select {
		case c := <-n.changes:
			changes <- c
		case <-ctx.Done():
			return nil
		}
	}
}

func (n *clusterNode) Released(id shard.ID, _ int64) {
	select {
	case n.released <- id:
	default: // nobody waits for it
	}
}

func (c *cluster) take(to string, id shard.ID) { c.change(to, id, coordinator.Take) }

// giveUp has a node hand a shard over, and waits until it has.
func (c *cluster) giveUp(from string, id shard.ID) {
	released := c.nodes[from].released
	for len(released) > 0 {
		<-released // of what another node took
	}
	c.change(from, id, coordinator.GiveUp)
	<-released
}

func (c *cluster) change(node string, id shard.ID, kind coordinator.Kind) {
	c.rev++
	c.nodes[node].changes <- coordinator.Change{Shard: id, Kind: kind, Rev: c.rev}
	synctest.Wait()
}

// Holder implements coordinator.Directory: jobs go through the inbox, wherever their shard is.
func (*clusterNode) Holder(shard.ID) (coordinator.Member, bool) { return coordinator.Member{}, false }

// Status implements coordinator.Directory.
func (*clusterNode) Status() coordinator.Status { return coordinator.Status{Kind: "scripted"} }

// Members implements coordinator.Directory.
func (n *clusterNode) Members() (all []coordinator.Member) {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range []string{"a", "b"} {
		all = append(all, coordinator.Member{Node: name, Address: "passthrough:///" + name, Draining: c.draining[name]})
	}
	return all
}

// Changed implements coordinator.Directory.
func (n *clusterNode) Changed() <-chan struct{} {
	n.cluster.mu.Lock()
	defer n.cluster.mu.Unlock()
	return n.cluster.changed
}

func (c *cluster) drain(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining[node] = true
	close(c.changed)
	c.changed = make(chan struct{})
}

// inCluster runs a test with two nodes and a worker, whose handler takes a minute.
func inCluster(t *testing.T, capacity int, test func(t *testing.T, c *cluster)) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "carillon.db")
	synctest.Test(t, func(t *testing.T) {
		c := &cluster{t: t, nodes: map[string]*clusterNode{}, draining: map[string]bool{}, changed: make(chan struct{}), runs: map[string]int{}}
		db, err := sqlite.Open(t.Context(), path, sqlite.Volatile())
		c.must(err)
		_, err = db.InitShards(t.Context(), 2)
		c.must(err)
		for _, name := range []string{"a", "b"} {
			c.start(db, name)
		}
		c.take("a", 0)
		c.take("b", 1)
		c.work(capacity)
		t.Cleanup(func() {
			c.stop()
			for _, n := range c.nodes {
				n.stop()
			}
			c.must(db.Close())
		})
		time.Sleep(time.Second)
		test(t, c)
	})
}

func (c *cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) start(db *sqlite.DB, name string) {
	n := &clusterNode{Coordinator: solo.New(name, 2, 1), cluster: c, name: name, grpc: bufconn.Listen(1 << 20), changes: make(chan coordinator.Change), released: make(chan shard.ID, 10)}
	metrics := controlplane.NewMetrics()
	cfg := engine.DefaultConfig(name, 2)
	cfg.Log, cfg.Observer = slog.New(slog.NewTextHandler(io.Discard, nil)), metrics
	srv := controlplane.New(controlplane.Config{NodeID: name, Shards: 2, Node: engine.New(cfg, db, n), Core: cfg.Core, Store: db, Metrics: metrics,
		Log: cfg.Log, GRPC: n.grpc, HTTP: bufconn.Listen(1 << 20), ClusterID: "c-1", Cluster: n})
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- srv.Run(ctx) }()
	conn, err := grpc.NewClient("passthrough:///"+name, grpc.WithTransportCredentials(insecure.NewCredentials()), c.dialer())
	c.must(err)
	n.jobs, n.slots = carillonv1.NewJobServiceClient(conn), carillonv1.NewSlotServiceClient(conn)
	n.stop = sync.OnceFunc(func() {
		cancel()
		c.must(<-end)
		c.must(conn.Close())
	})
	c.nodes[name] = n
}

func (c *cluster) dialer() grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		return c.nodes[address].grpc.DialContext(ctx)
	})
}

func (c *cluster) work(capacity int) {
	w, err := worker.Dial(c.t.Context(), "passthrough:///a", worker.ID("w"), worker.Capacity(capacity), worker.Logger(slog.New(slog.DiscardHandler)),
		worker.DialOptions(c.dialer()))
	c.must(err)
	worker.Handle(w, "h", c.handle)
	ctx, cancel := context.WithCancel(context.Background())
	end := make(chan error, 1)
	go func() { end <- w.Run(ctx) }()
	c.stop = func() {
		cancel()
		c.must(<-end)
	}
}

func (c *cluster) handle(ctx context.Context, task *worker.Task[any]) error {
	c.mu.Lock()
	c.runs[fmt.Sprint(task.Slot(), " ", task.Attempt())]++
	c.running++
	c.most = max(c.most, c.running)
	c.mu.Unlock()
	var err error
	select {
	case <-time.After(time.Minute):
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	if err != nil {
		c.ended++
	}
	return err
}

// create makes n slots that are due now, of one shard, and returns their jobs' names.
func (c *cluster) create(of shard.ID, n int) (names []string) {
	for len(names) < n {
		c.serial++
		name := fmt.Sprint("j-", of, "-", c.serial)
		if shard.Of("default", name, 2) != of {
			continue
		}
		names = append(names, name)
		_, err := c.nodes["b"].jobs.CreateJob(c.t.Context(), &carillonv1.CreateJobRequest{Parent: "namespaces/default", JobId: name,
			Job: &carillonv1.Job{Handler: "h", AttemptTimeout: durationpb.New(time.Hour),
				Schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}}}})
		c.must(err)
	}
	return names
}

func (c *cluster) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (c *cluster) atWork() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running
}

// check wants every job to have one slot, whose first attempt succeeded, and nothing to have run
// twice or been ended.
func (c *cluster) check(names []string) {
	c.t.Helper()
	for _, name := range names {
		resp, err := c.nodes["b"].slots.ListSlots(c.t.Context(), &carillonv1.ListSlotsRequest{Parent: "namespaces/default/jobs/" + name})
		c.must(err)
		if s := resp.GetSlots(); len(s) != 1 || s[0].GetState() != carillonv1.SlotState_SLOT_STATE_SUCCEEDED || s[0].GetAttempt() != 1 {
			c.t.Errorf("job %s has %v", name, s)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, n := range c.runs {
		if n != 1 {
			c.t.Errorf("%s ran %d times", key, n)
		}
	}
	if c.ended != 0 || len(c.runs) != len(names) {
		c.t.Errorf("%d attempts of %d jobs ran, %d were ended", len(c.runs), len(names), c.ended)
	}
}

// A shard may move while its attempts run: as planned, without a word of the old owner, or since the
// old owner ends. They go on, and succeed once.
func TestAttemptsSurviveTheMoveOfTheirShard(t *testing.T) {
	for what, move := range map[string]func(c *cluster){
		"planned": func(c *cluster) {
			c.giveUp("a", 0)
			c.take("b", 0)
		},
		"taken": func(c *cluster) {
			c.take("b", 0)
		},
		"there and back": func(c *cluster) {
			for range 3 {
				for _, way := range [][2]string{{"a", "b"}, {"b", "a"}} {
					c.giveUp(way[0], 0)
					c.pass(3 * time.Second)
					c.take(way[1], 0)
					c.pass(5 * time.Second)
				}
			}
		},
		"the node ends": func(c *cluster) {
			c.nodes["a"].stop()
			c.take("b", 0)
		},
	} {
		t.Run(what, func(t *testing.T) {
			inCluster(t, 10, func(t *testing.T, c *cluster) {
				names := append(c.create(0, 4), c.create(1, 4)...)
				if c.pass(5 * time.Second); c.atWork() != 8 {
					t.Fatalf("%d run", c.atWork())
				}
				move(c)
				c.pass(2 * time.Minute)
				// Work goes on there, with all of the capacity.
				names = append(names, c.create(0, 5)...)
				if c.pass(2 * time.Second); c.atWork() != 5 {
					t.Errorf("%d of 5 run", c.atWork())
				}
				c.pass(2 * time.Minute)
				c.check(names)
			})
		})
	}
}

// However often shards move, no credit is lost on the way, and none is there twice.
func TestShardsThatMoveAllTheTime(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			const capacity = 6
			inCluster(t, capacity, func(t *testing.T, c *cluster) {
				r := rand.New(rand.NewPCG(seed, 25))
				names := append(c.create(0, 15), c.create(1, 15)...)
				owners := [2]string{"a", "b"}
				for range 60 {
					c.pass(time.Duration(1+r.IntN(10_000)) * time.Millisecond)
					id := shard.ID(r.IntN(2))
					to := map[string]string{"a": "b", "b": "a"}[owners[id]]
					if r.IntN(3) > 0 {
						c.giveUp(owners[id], id)
						c.pass(time.Duration(r.IntN(2000)) * time.Millisecond)
					}
					c.take(to, id)
					owners[id] = to
				}
				c.pass(10 * time.Minute)
				for id := range shard.ID(2) {
					names = append(names, c.create(id, capacity)...)
					if c.pass(2 * time.Second); c.atWork() != capacity {
						t.Errorf("%d of %d run at the owner of shard %d", c.atWork(), capacity, id)
					}
					c.pass(2 * time.Minute)
				}
				c.check(names)
				if c.most > capacity {
					t.Errorf("%d ran at the same time", c.most)
				}
			})
		})
	}
}

// The whole capacity goes to the node that has work, and then a half to each.
func TestCreditMovesBetweenNodes(t *testing.T) {
	inCluster(t, 10, func(t *testing.T, c *cluster) {
		names := c.create(0, 30)
		if c.pass(time.Second); c.atWork() != 10 {
			t.Errorf("%d of 10 run after a second", c.atWork())
		}
		names = append(names, c.create(1, 30)...)
		c.pass(70 * time.Second)
		ofB := 0
		c.mu.Lock()
		for key := range c.runs {
			if strings.Contains(key, "/jobs/j-1-") {
				ofB++
			}
		}
		c.mu.Unlock()
		if ofB < 4 || ofB > 6 {
			t.Errorf("%d of the second ten are the second node's", ofB)
		}
		c.pass(10 * time.Minute)
		c.check(names)
	})
}

// A node that drains gives its credit back, and what runs there goes on.
func TestANodeThatDrains(t *testing.T) {
	inCluster(t, 10, func(t *testing.T, c *cluster) {
		names := c.create(0, 3)
		c.pass(time.Second)
		c.drain("a")
		c.pass(time.Second)
		names = append(names, c.create(1, 7)...)
		if c.pass(2 * time.Second); c.atWork() != 10 {
			t.Errorf("%d run", c.atWork())
		}
		c.pass(2 * time.Minute)
		c.check(names)
	})
}
