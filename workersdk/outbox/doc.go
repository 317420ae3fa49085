// Package outbox creates jobs inside the user's own database transaction: the job exists
// if and only if that transaction committed, and once.
//
//	box, err := outbox.New(outbox.PostgreSQL)
//	…
//	tx, err := db.BeginTx(ctx, nil)
//	…                                    // the order that the mail is about
//	err = box.Add(ctx, tx, &carillonv1.CreateJobRequest{
//		Parent: "namespaces/default",
//		Job:    &carillonv1.Job{Handler: "mail", Schedule: …},
//	})
//	err = tx.Commit()
//
// Add writes a row. A relay, which may run in any program that reaches both the database
// and a node, creates the job and deletes the row:
//
//	relay := box.Relay(db, carillonv1.NewJobServiceClient(conn))
//	go relay.Run(ctx)
//
// Package outboxpgx has Add for transactions of pgx. Make the table once, with
// [Box.CreateTable] or with what [Box.Schema] returns.
//
// # A row's way
//
//	WAITING ──claim──▶ LEASED ──created──▶ deleted
//	   ▲                 │ refused for good ──▶ FAILED ──Retry──▶ WAITING · ──Discard──▶ deleted
//	   └──(due_at)───────┘ not answered, or not yet possible
//
// A claim moves due_at a minute ahead, in a short transaction; the call to the node is made
// outside of any. So a relay that dies holds no lock, and others take its rows a minute
// later. A failed row has no due_at.
//
// # Invariants
//
//   - A row carries its request id from Add on, and every call for it is the same request.
//     So a create that is repeated answers from the job that the first one made.
//   - A row is deleted only after its create was answered with OK, or by Discard.
//   - No cursor: what is due is looked for among all rows, since transactions don't commit
//     in the order of their ids.
//   - A row that can't be created holds up no other one: it goes behind them, with a
//     growing delay of up to a minute, or is FAILED.
//
// # What fails, and what happens then
//
//	failure                           what follows
//	the user's transaction is rolled  there is no row, and no job
//	back
//	the relay dies before the create  the row is claimed again after a minute
//	it dies after the create          the same; the create is answered from the job, which is
//	                                  not made again
//	the answer is lost                the same, after the row's delay
//	no node can be reached            the relay pauses, up to 30 s; rows wait
//	the database can't be reached     the relay pauses, up to 30 s
//	the node refuses the job for good the row is FAILED, with the error, and logged
//	the handler or a calendar is not  the row waits, with the error
//	there yet
//
// # The bound
//
// Once holds for as long as the cluster remembers the request id: as long as the job is
// there, and after its end as long as the cluster keeps ended jobs (--retention, 7 days
// unless it is told otherwise, and never less than a day). A job would be made twice only
// if a relay created it and could not delete the row, and no relay came back to that row
// until that time had passed since the job ended; or if rows that were deleted come back,
// by a restored backup that is older than that.
package outbox
