// Package workersdk runs handlers for Carillon, the distributed job scheduler.
//
// A program dials a node, registers its handlers and runs until its context ends:
//
//	w, err := worker.Dial(ctx, "carillon:7070", worker.Capacity(64))
//	…
//	worker.Handle(w, "billing.invoices", invoices, worker.Concurrency(8))
//	err = w.Run(ctx)
//
// (import worker "github.com/carillon-scheduler/carillon/workersdk"). A handler is a
// function func(ctx context.Context, t *worker.Task[Args]) error.
//
// # What a handler may rely on
//
// At most one attempt of a slot commits its success, but a handler may run twice:
// its worker may be cut off or frozen while another one takes over. Guard effects
// in other systems with [Task.Key], which is the same on every attempt of the slot,
// and with [Task.Fence], which only grows. Package once does that for the user's own SQL
// database; package outbox creates jobs in the user's own transactions.
//
// Packages httprun and execrun have handlers that are ready: HTTP requests, and programs.
//
// The handler's context ends when it must stop, and [context.Cause] says why:
//
//	ErrTimeout    the attempt's timeout passed; it has a second to return
//	ErrCancelled  a user or a policy cancelled the slot
//	ErrLeaseLost  the attempt is no longer this worker's, or may not be
//	ErrShutdown   the worker stops and its grace is over
//
// # What becomes of a handler's return
//
//	handler                          outcome     code
//	returns nil                      SUCCEEDED
//	returns an error                 FAILED      "error", or what Coded says
//	  wrapped by Permanent           FAILED      straight to the dead letters
//	  wrapped by RetryAfter          FAILED      the next attempt after that delay
//	panics, calls runtime.Goexit     FAILED      "panic", with its stack
//	can't be given its params        FAILED      "bad_params", permanent
//	its codec can't decode them      FAILED      "codec"
//	returns after ErrTimeout         TIMED_OUT   "timeout"
//	ignores ErrTimeout for 1 s       TIMED_OUT   "stuck", with its stack
//	error after ErrCancelled         CANCELLED   "cancelled"
//	error after ErrShutdown          RELEASED    "shutdown"; no failure is counted
//	error after ErrLeaseLost         RELEASED    "lease_lost"; or nothing, if the node has already taken it back
//	never began, and shutdown or
//	a lost lease came first          RELEASED
//	isn't registered                 FAILED      "unknown_handler"
//
// A handler that returns nil has done its work, whatever happened meanwhile: but
// for a timeout, that is what the node is told, and the node decides.
//
// # In a cluster
//
// Dial takes the addresses of any nodes, or a name that leads to them. The first node that
// answers tells of the others, and the worker keeps a stream to each, with its own heartbeats:
//
//   - An attempt belongs to the node that owns its shard, which is whoever shows the highest
//     epoch. Only the stream on which that node has vouched for it renews its lease. When the shard
//     moves, the attempt goes on under the lease that it had, and the new owner is asked.
//   - Results, first lines and progress go to the owner. While none is known results wait, and are
//     offered to all nodes after half a lease.
//   - The capacity is one for all nodes, shared out by what they can use, and moved as that changes:
//     see Capacity.
//
// # What fails, and what happens then
//
//	failure                                what the worker does
//	the stream breaks                      connects again for ever, with back-off; handlers go on; the
//	                                       hello presents what it holds and what was not acknowledged
//	a heartbeat unanswered for an interval drops the stream and its connection, connects again
//	the stream is an hour old              opens the next one, and leaves it once that is welcomed
//	an assignment comes twice              runs it once
//	a node speaks of a shard that another  passes over what it says, and asks the new owner about what
//	one owns by now                        it holds; hands back what such a node assigns ("old_epoch")
//	the lease ends (less a tenth of it)    ends the contexts with ErrLeaseLost, before the node gives the
//	                                       attempts away; results are kept for the next stream
//	the machine slept                      the same: the lease is measured by the monotonic and by the wall
//	                                       clock, and the larger counts
//	a result isn't acknowledged            sends it again after half a lease; no new work while more than
//	                                       10,000 results or 64 MiB wait
//	no node vouches for an attempt yet     the attempt goes on under its old lease; the worker asks the
//	                                       owner, or all nodes, once a heartbeat interval
//	a node can't be reached                uses the others; what that node had goes on until its lease ends
//	a node drains, or leaves the cluster   takes its credit back; the stream lasts as long as its attempts
//	no node can be reached                 tries the addresses that Dial was given, too
//	another cluster answers                forgets all epochs, and asks about what it holds
//	the hello is refused as invalid        Run ends the handlers and returns the error, unless other
//	                                       nodes take the worker
//	a handler never returns                its place of the capacity stays taken; it is logged once
//
// # Shutdown
//
// When Run's context ends, the worker takes no more work and hands back what has
// not begun. Running handlers have the grace (5 s) undisturbed; then their contexts
// end with ErrShutdown and they have one second more; what is still unfinished is
// handed back. Run waits up to two seconds for the node's acknowledgements and
// returns nil. Heartbeats go on until then.
//
// # Inside
//
// One goroutine, the loop, owns all state. For each node there is a link, whose connector
// goroutine opens one stream after the other and receives; each stream has a sender; each running
// attempt has its handler's goroutine. They talk to the loop by events, and the loop waits for
// none of them: it gives the sender one message at a time, made of all that has
// come together meanwhile. Only a handler that ignores its context outlives Run.
package workersdk
