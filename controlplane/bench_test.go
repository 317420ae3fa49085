package controlplane

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/carillon-scheduler/carillon/engine/core"
	"github.com/carillon-scheduler/carillon/job"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// echoService has the real stream of a worker, and a benchmark in place of the node.
type echoService struct {
	carillonv1.UnsafeWorkerServiceServer
	workerService
	connected chan *workerStream
	reported  chan int // results of a message
}

// Connect sends what the benchmark delivers, and reads what the worker reports.
func (s echoService) Connect(stream carillonv1.WorkerService_ConnectServer) error {
	w := newWorkerStream(core.WorkerKey{ID: "w", Incarnation: "1"})
	go func() {
		for {
			req, err := stream.Recv()
			if err != nil {
				w.Close(err)
				return
			}
			if report, err := s.report(req, w.key); err == nil {
				s.reported <- len(report.Events)
			}
		}
	}()
	s.connected <- w
	return w.serve(stream.Context(), stream, time.Hour)
}

// BenchmarkStream measures an assignment's way to a worker and its result's way back, over
// loopback, both ends in this process: what a stream costs, without shard and database.
func BenchmarkStream(b *testing.B) {
	for _, size := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(size, " in a message"), func(b *testing.B) {
			s := echoService{workerService: workerService{Server: &Server{shards: 64}}, connected: make(chan *workerStream, 1), reported: make(chan int, 64)}
			to := serveEcho(b, s)
			messages := make([]core.Message, size)
			for i := range messages {
				messages[i] = core.Assign{Token: core.Token{Shard: 1, Key: job.SlotKey{FireTime: job.AtSecond(1_800_000_000), UID: job.UID{1, byte(i)}}, Attempt: 1, Epoch: 7},
					Work: core.Work{Namespace: "default", Name: fmt.Sprint("job-", i), Handler: "invoices.send", Params: `{"tenant":"acme","n":12345}`, Timeout: time.Minute}}
			}
			b.ReportAllocs()
			items := 0
			for b.Loop() {
				if !to.Deliver(messages) {
					b.Fatal("the stream was cut off")
				}
				for back := 0; back < size; {
					back += <-s.reported
				}
				items += size
			}
			b.ReportMetric(float64(items)/b.Elapsed().Seconds(), "executions/s")
		})
	}
}

// serveEcho connects a worker that answers each assignment at once.
func serveEcho(b *testing.B, s echoService) *workerStream {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	g := grpc.NewServer()
	carillonv1.RegisterWorkerServiceServer(g, s)
	served := make(chan error, 1)
	go func() { served <- g.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	stream, err := carillonv1.NewWorkerServiceClient(conn).Connect(ctx)
	if err != nil {
		b.Fatal(err)
	}
	answering := make(chan error, 1)
	go func() { answering <- answerAll(stream) }()
	b.Cleanup(func() {
		cancel()
		<-answering
		conn.Close()
		g.Stop()
		<-served
	})
	return <-s.connected
}

func answerAll(stream carillonv1.WorkerService_ConnectClient) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		var req carillonv1.ConnectRequest
		for _, a := range m.GetAssignments() {
			req.Results = append(req.Results, &carillonv1.AttemptResult{Token: a.GetToken(), Outcome: carillonv1.AttemptOutcome_ATTEMPT_OUTCOME_SUCCEEDED})
		}
		if err := stream.Send(&req); err != nil {
			return err
		}
	}
}
