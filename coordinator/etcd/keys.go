package etcd

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-scheduler/carillon/coordinator"
	"github.com/carillon-scheduler/carillon/shard"
)

// Keys of a cluster.
func (c *Config) prefix() string               { return "/carillon/" + c.Cluster + "/" }
func (c *Config) memberKey(node string) string { return c.prefix() + "members/" + node }
func (c *Config) shardKey(id shard.ID) string  { return fmt.Sprintf("%sshards/%04d", c.prefix(), id) }
func (c *Config) pinKey(id shard.ID) string    { return fmt.Sprintf("%spins/%04d", c.prefix(), id) }
func (c *Config) drainKey(node string) string  { return c.prefix() + "drains/" + node }
func (c *Config) releasingKey() string         { return c.prefix() + "releasing" }
func (c *Config) parts(key string) (kind, name string) {
	kind, name, _ = strings.Cut(strings.TrimPrefix(key, c.prefix()), "/")
	return kind, name
}

// member is what a node says of itself.
type member struct {
	Address     string    `json:"address"`
	Version     string    `json:"version"`
	Capacity    int       `json:"capacity"`
	Started     time.Time `json:"started"`
	Incarnation string    `json:"incarnation"`
	Draining    bool      `json:"draining,omitempty"`
	Unfit       bool      `json:"unfit,omitempty"`
	Gen         int64     `json:"gen,omitempty"` // of its claims
	// Commits counts the published commits that show a database in good health: each began
	// after the one before, and took a second at most.
	Commits     int64 `json:"commits"`
	TookMicros  int64 `json:"took_us"`
	SkewMicros  int64 `json:"skew_us"`
	SkewUnknown bool  `json:"skew_unknown,omitempty"` // the database doesn't answer this node

	shown [2]int64 // revisions of the last two publications of a commit, as far as they were seen
}

// holding is the value of a shard's key.
type holding struct {
	Node        string `json:"node"`
	Incarnation string `json:"incarnation"`
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // of these types: it can't be
	}
	return string(b)
}

// holder is who holds a shard.
type holder struct {
	holding
	rev   int64 // of the key's creation; zero: nobody
	lease int64
}

// facts are what the keys say, as of one revision.
type facts struct {
	rev       int64
	members   map[string]member
	holders   []holder // by shard
	pins      []string // by shard
	drains    map[string]bool
	releasing string
	structure int // counts the changes that may change who should hold what
}

func newFacts(shards int) *facts {
	return &facts{members: map[string]member{}, holders: make([]holder, shards), pins: make([]string, shards), drains: map[string]bool{}}
}

// take takes one key's event. What isn't understood is passed over: a newer program may
// have written it.
func (f *facts) take(cfg *Config, e *clientv3.Event) {
	kind, name := cfg.parts(string(e.Kv.Key))
	gone := e.Type == clientv3.EventTypeDelete
	switch kind {
	case "members":
		f.takeMember(name, e, gone)
	case "drains":
		f.drains[name] = !gone
		f.structure++
	case "releasing":
		f.releasing = ""
		if !gone {
			f.releasing = string(e.Kv.Value)
		}
	case "shards", "pins":
		id, err := strconv.Atoi(name)
		if err != nil || id < 0 || id >= len(f.holders) {
			return
		}
		f.structure++
		if kind == "pins" {
			f.pins[id] = ""
			if !gone {
				f.pins[id] = string(e.Kv.Value)
			}
			return
		}
		f.holders[id] = holder{}
		if h := (holder{rev: e.Kv.CreateRevision, lease: e.Kv.Lease}); !gone && json.Unmarshal(e.Kv.Value, &h.holding) == nil {
			f.holders[id] = h
		}
	}
}

func (f *facts) takeMember(name string, e *clientv3.Event, gone bool) {
	before, was := f.members[name]
	var m member
	if gone || json.Unmarshal(e.Kv.Value, &m) != nil {
		delete(f.members, name)
		f.structure++
		return
	}
	if m.shown = before.shown; !was || m.Commits != before.Commits {
		m.shown = [2]int64{before.shown[1], e.Kv.ModRevision}
	}
	f.members[name] = m
	if !was || before.Draining != m.Draining || before.Unfit != m.Unfit || before.Capacity != m.Capacity || before.Address != m.Address {
		f.structure++
	}
}

// list returns the members as others see them, by name.
func (f *facts) list() []coordinator.Member {
	shards := map[string]int{}
	for i := range f.holders {
		shards[f.holders[i].Node]++
	}
	out := make([]coordinator.Member, 0, len(f.members))
	for name, m := range f.members {
		out = append(out, coordinator.Member{
			Node: name, Address: m.Address, Version: m.Version, Capacity: m.Capacity, Started: m.Started,
			Draining: m.Draining || f.drains[name], Unfit: m.Unfit, Skew: time.Duration(m.SkewMicros) * time.Microsecond,
			Commit: time.Duration(m.TookMicros) * time.Microsecond, Shards: shards[name],
		})
	}
	slices.SortFunc(out, func(a, b coordinator.Member) int { return strings.Compare(a.Node, b.Node) })
	return out
}

// assign reckons who should hold each shard.
func (f *facts) assign() []string {
	names := make([]string, len(f.holders))
	for i := range f.holders {
		names[i] = f.holders[i].Node
	}
	return coordinator.Assign(f.list(), names, f.pins)
}
