// Package store is the contract of durable state: what an adapter keeps, under which
// proof, and what every other package may rely on.
//
// # Invariants
//
//   - Fence. Every write to a shard's rows is made in a transaction that has seen
//     the shard's row with the writer's epoch, and that a take-over can't
//     overtake. A batch with a stale proof writes nothing at all and fails with
//     a *FencedError that names the shards.
//   - One slot. (shard, fire time, job uid) is unique. Inserting a slot that
//     exists changes nothing and reports the row as it stands.
//   - Compare and set. A slot changes only from the state and attempt that the
//     writer names. Repeating a batch is therefore safe, also when nobody knows
//     whether it was committed the first time; and once the repeat is committed, the
//     first send is refused should it still come.
//   - W. For every job without an inbox row, each occurrence in (effective from,
//     watermark] has a slot or a skip record, or lies in a gap. The transaction
//     that adopts a job from the inbox keeps this true for it.
//   - The watermark of a shard never falls.
//   - Every slot that is not final is found by scanning the slots from the
//     shard's open-from instant, or in the backlog.
//   - What was due before a shard's retained-from instant may have been deleted. That
//     instant never falls, and never passes the cursor of an open gap.
//   - An acknowledged write survives a crash of the process and of the machine.
//
// # Failure table
//
//	what fails                   what the caller sees    what has been written
//	a stale epoch                *FencedError            nothing
//	one row can't be stored      *RefusedError           nothing
//	the database is unreachable  ErrUnavailable          nothing, or everything
//	a row stood in the way       no error; in Outcome    everything else
//
// After ErrUnavailable a batch is sent again until the answer is known, or the
// shards in it are loaded anew under a new epoch.
package store
