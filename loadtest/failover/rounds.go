package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/carillon-scheduler/carillon/loadtest/site"
)

// options say how rounds are run.
type options struct {
	carillon string // the binary
	rate     int    // starts in a second
	dir      string // for logs of rounds that fail; empty: a temporary one
	log      io.Writer
	ttl      time.Duration
	// brief rounds wait as short as they can, for CI.
	brief bool
}

const (
	defaultRate = 2000
	defaultTTL  = 5 * time.Second
	shardCount  = 64
)

// round is something that is done to a cluster.
type round struct {
	name  string
	about string
	times int // that `make failover` runs it
	// shape changes what the cluster is made of: three members of etcd, three nodes, two workers.
	shape func(*site.Config)
	// play does it; what it waits for is named as phases.
	play func(context.Context, *stage) error
	// judge says what this round allows, beyond what must hold for all.
	judge func(*verdict)
}

// errNotHere says that a round can't be run on this machine.
var errNotHere = errors.New("this machine can't do it")

// rounds are all there are, in the order in which they are run.
var rounds = []round{
	{name: "kill", about: "a node is killed with SIGKILL, and comes back", times: 20, play: killNode, judge: judgeKill},
	{name: "freeze", about: "a node is stopped by SIGSTOP for three TTLs", times: 3, play: freezeNode, judge: judgeFreeze},
	{name: "restart", about: "all nodes are restarted by SIGTERM, one after the other", times: 3, play: restartNodes, judge: judgeRestart},
	{name: "etcd-one", about: "one of three members of etcd is killed, and comes back", times: 2, play: killMember, judge: judgeMember},
	{name: "etcd-quorum", about: "two of three members of etcd are killed, and come back", times: 2, play: killQuorum, judge: judgeQuorum},
	{name: "etcd-wiped", about: "etcd loses all its data; owner_gen is raised on node after node", times: 2, play: wipeEtcd, judge: judgeWiped},
	{name: "database-away", about: "the database stands still", times: 2, play: freezeDatabase, judge: judgeDatabaseAway},
	{name: "cut-etcd", about: "a node and etcd are cut from each other", times: 2, shape: networked, play: cut(toEtcd, bothWays), judge: judgeCutEtcd},
	{name: "cut-etcd-answers", about: "a node hears nothing of etcd; etcd hears the node", times: 1, shape: networked, play: cut(toEtcd, answers), judge: judgeCutEtcdAnswers},
	{name: "cut-etcd-requests", about: "etcd hears nothing of a node; the node hears etcd", times: 1, shape: networked, play: cut(toEtcd, requests), judge: judgeCutEtcd},
	{name: "cut-database", about: "a node and the database are cut from each other", times: 2, shape: networked, play: cut(toDatabase, bothWays), judge: judgeCutDatabase},
	{name: "cut-database-answers", about: "a node hears nothing of the database; that hears the node", times: 1, shape: networked, play: cut(toDatabase, answers), judge: judgeCutDatabase},
	{name: "cut-database-requests", about: "the database hears nothing of a node; the node hears it", times: 1, shape: networked, play: cut(toDatabase, requests), judge: judgeCutDatabase},
	{name: "cut-worker", about: "a node and a worker are cut from each other", times: 2, shape: networked, play: cut(toWorker, bothWays), judge: judgeCutWorker},
	{name: "cut-worker-answers", about: "a node hears nothing of a worker; that hears the node", times: 1, shape: networked, play: cut(toWorker, answers), judge: judgeCutWorker},
	{name: "cut-worker-requests", about: "a worker hears nothing of a node; the node hears it", times: 1, shape: networked, play: cut(toWorker, requests), judge: judgeCutWorker},
	{name: "cut-node", about: "two nodes are cut from each other", times: 2, shape: networked, play: cut(toNode, bothWays), judge: judgeCutNode},
	{name: "resize", about: "one node becomes three, and one again", times: 3, shape: startWithOne, play: resize, judge: judgeResize},
	{name: "curve-1", about: "one node at a rate that it may not reach", times: 1, shape: nodes(1), play: reach, judge: judgeCurve},
	{name: "curve-2", about: "two nodes at that rate", times: 1, shape: nodes(2), play: reach, judge: judgeCurve},
	{name: "curve-3", about: "three nodes at that rate", times: 1, shape: nodes(3), play: reach, judge: judgeCurve},
	{name: "curve-5", about: "five nodes at that rate", times: 1, shape: nodes(5), play: reach, judge: judgeCurve},
}

func networked(c *site.Config)    { c.Network = true }
func startWithOne(c *site.Config) { c.Start = 1 }
func nodes(n int) func(*site.Config) {
	return func(c *site.Config) { c.Nodes = n }
}
