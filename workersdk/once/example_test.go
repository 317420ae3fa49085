package once_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	_ "modernc.org/sqlite"

	"github.com/carillon-scheduler/carillon/workersdk/once"
)

// bank is a database of the user's.
type bank struct {
	db    *sql.DB
	guard *once.Guard[*sql.Tx]
}

// payInterest is what a handler does; t is its task. It says whether this attempt did it.
func (b *bank) payInterest(ctx context.Context, t once.Attempt) (ran bool, err error) {
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	ran, err = b.guard.Do(ctx, tx, t, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE accounts SET balance = balance + balance / 100`)
		return err
	})
	if err != nil {
		return false, err
	}
	return ran, tx.Commit()
}

// A handler that pays interest runs three times for one slot: its first worker froze, the
// second one paid but died before it could tell, and the third one looks after it. Then
// the first one wakes.
func Example() {
	ctx := context.Background()
	b, err := openBank(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer b.db.Close()
	for _, attempt := range []attemptOf{2, 3, 1} {
		ran, err := b.payInterest(ctx, attempt)
		fmt.Printf("attempt %d: paid %v, refused %v\n", attempt, ran, errors.Is(err, once.ErrFenced))
	}
	var balance int
	if err := b.db.QueryRowContext(ctx, `SELECT balance FROM accounts`).Scan(&balance); err != nil {
		log.Fatal(err)
	}
	fmt.Println("balance", balance)
	// Output:
	// attempt 2: paid true, refused false
	// attempt 3: paid false, refused false
	// attempt 1: paid false, refused true
	// balance 101
}

// Claim refuses older attempts before a newer one is done.
func ExampleGuard_Claim() {
	ctx := context.Background()
	b, err := openBank(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer b.db.Close()
	tx, err := b.db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	done, err := b.guard.Claim(ctx, tx, attemptOf(2))
	if err := errors.Join(err, tx.Commit()); err != nil {
		log.Fatal(err)
	}
	fmt.Println("done before:", done)
	// … a long computation; meanwhile the first attempt wakes:
	_, err = b.payInterest(ctx, attemptOf(1))
	fmt.Println("refused:", errors.Is(err, once.ErrFenced))
	ran, err := b.payInterest(ctx, attemptOf(2))
	fmt.Println("paid:", ran, err)
	// Output:
	// done before: false
	// refused: true
	// paid: true <nil>
}

func openBank(ctx context.Context) (*bank, error) {
	db, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // a database in memory belongs to its connection
	guard, err := once.New(once.SQLite)
	if err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	if err := guard.CreateTable(ctx, tx); err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, `CREATE TABLE accounts AS SELECT 100 AS balance`); err != nil {
		return nil, err
	}
	return &bank{db, guard}, tx.Commit()
}

// attemptOf stands for the task of a handler, which is a *workersdk.Task.
type attemptOf int64

func (a attemptOf) Job() string         { return "namespaces/default/jobs/interest" }
func (a attemptOf) FireTime() time.Time { return time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC) }
func (a attemptOf) Fence() int64        { return int64(a) }
func (a attemptOf) Key(...any) string {
	return "0190f0e1-5a3b-7c1d-9a55-000000000001/20261130T020000.000000Z"
}
