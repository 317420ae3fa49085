// Package once lets a handler change the user's own SQL database exactly once for each
// slot, however often the handler runs: the effect, and a row that says that it was made,
// commit in one transaction.
//
//	guard, err := once.New(once.PostgreSQL)
//	…
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	ran, err := guard.Do(ctx, tx, t, func(ctx context.Context, tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, `UPDATE accounts SET …`)
//		return err
//	})
//	…
//	err = tx.Commit()
//
// t is the handler's task. Package oncepgx has the same for transactions of pgx. Make the
// table once, with [Guard.CreateTable] or with what [Guard.Schema] returns.
//
// # The row
//
// Do first takes the row of its effect, whose key is the task's Key: the same on every
// attempt of a slot, and another one for each part. That locks it, so that attempts which
// run at the same time take turns, and raises its fence to the attempt's. Then:
//
//	the row                     Do
//	has a higher fence          fails with ErrFenced: a newer attempt has the slot
//	says that it was done       runs nothing and reports success
//	is new, or was only claimed runs the effect, and marks the row as done
//
// If the transaction is rolled back, nothing of this has happened. If the effect fails,
// the row isn't marked, even should the transaction be committed.
//
// [Guard.Claim] raises the fence alone, in a transaction of its own. From then on every
// older attempt is refused, also one that was frozen and wakes while the newer one still
// works on its effect. Without it the older one may come first: its effect then counts,
// and the newer attempt skips. Either way the effect is made once.
//
// # What fails, and what happens then
//
//	failure                            what follows
//	the handler dies before COMMIT     nothing happened; the next attempt runs the effect
//	it dies after COMMIT               the next attempt skips the effect
//	COMMIT's answer is lost            the next attempt finds out: return the error
//	two attempts at the same time      one waits for the other's end, then decides
//	a serialization failure, a         nothing was done; roll back, and run the transaction
//	deadlock, a lock that takes        again or return the error
//	too long, SQLITE_BUSY
//	the row was pruned too early       the effect is made again: see Prune
//
// # Isolation
//
// Call Do first in its transaction. Any isolation level is right, since the row is
// written before the effect; but under REPEATABLE READ (MySQL's default) and SERIALIZABLE
// the transaction's reads show the time of its first one, and if that lies before Do, the
// effect may see an old state, or the database may refuse with a serialization failure. On
// SQLite let transactions begin with the lock that they will need (BEGIN IMMEDIATE, for
// many drivers _txlock=immediate), and set a busy timeout.
package once
