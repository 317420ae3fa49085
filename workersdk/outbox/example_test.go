package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"google.golang.org/grpc"
	_ "modernc.org/sqlite"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/workersdk/outbox"
)

// shop is a database of the user's.
type shop struct {
	db  *sql.DB
	box *outbox.Box[*sql.Tx]
}

// order writes an order, and the job that mails about it, in one transaction.
func (s *shop) order(ctx context.Context, item string, paid bool) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?)`, item); err != nil {
		return err
	}
	err = s.box.Add(ctx, tx, &carillonv1.CreateJobRequest{Parent: "namespaces/default", JobId: "mail-" + item, Job: &carillonv1.Job{
		Handler:  "mail",
		Params:   &carillonv1.Json{Text: fmt.Sprintf(`{"item": %q}`, item)},
		Schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_Immediate{Immediate: &carillonv1.ImmediateSchedule{}}},
	}})
	if err != nil || !paid {
		return err // and the transaction is rolled back
	}
	return tx.Commit()
}

// Of two orders one is rolled back: there is a job for the other one.
func Example() {
	ctx := context.Background()
	s, err := openShop(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer s.db.Close()
	for item, paid := range map[string]bool{"bell": true, "rope": false} {
		if err := s.order(ctx, item, paid); err != nil {
			log.Fatal(err)
		}
	}
	relay := s.box.Relay(s.db, printer{}) // carillonv1.NewJobServiceClient(conn)
	created, err := relay.Flush(ctx)      // a program that stays calls relay.Run(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("created", created)
	// Output:
	// mail-bell: {"item": "bell"}
	// created 1
}

// A job that no node would take is refused before the transaction commits.
func ExampleBox_Add() {
	ctx := context.Background()
	s, err := openShop(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer s.db.Close()
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	err = s.box.Add(ctx, tx, &carillonv1.CreateJobRequest{Parent: "namespaces/default", Job: &carillonv1.Job{
		Handler: "mail", Schedule: &carillonv1.Schedule{Kind: &carillonv1.Schedule_Cron{Cron: "99 * * * *"}},
	}})
	fmt.Println(err)
	// Output:
	// add a job to the outbox: job.schedule.cron: schedule "99 * * * *": minute "99": 99 is out of range; allowed: 0-59
}

func openShop(ctx context.Context) (*shop, error) {
	db, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // a database in memory belongs to its connection
	box, err := outbox.New(outbox.SQLite)
	if err != nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	if err := box.CreateTable(ctx, tx); err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, `CREATE TABLE orders (item TEXT)`); err != nil {
		return nil, err
	}
	return &shop{db, box}, tx.Commit()
}

// printer stands for a node.
type printer struct{}

func (printer) CreateJob(_ context.Context, req *carillonv1.CreateJobRequest, _ ...grpc.CallOption) (*carillonv1.CreateJobResponse, error) {
	fmt.Printf("%s: %s\n", req.GetJobId(), req.GetJob().GetParams().GetText())
	return &carillonv1.CreateJobResponse{Job: req.GetJob()}, nil
}
