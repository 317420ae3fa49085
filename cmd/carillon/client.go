package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/carillon-scheduler/carillon/controlplane/jsonmap"
	"github.com/carillon-scheduler/carillon/internal/again"
)

// client is what the commands of the API share: where and how to call, and how to print.
type client struct {
	address   string
	tls       map[string]*string // by the variable that a flag stands for
	namespace string
	output    string
}

const (
	callTimeout     = 15 * time.Second
	maxMessageBytes = 16 << 20
)

// call runs fn with a connection and a deadline.
func (c *client) call(ctx context.Context, fn func(ctx context.Context, conn *grpc.ClientConn) error) error {
	return c.follow(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return fn(ctx, conn)
	})
}

// follow runs fn with a connection, for as long as it takes.
func (c *client) follow(ctx context.Context, fn func(ctx context.Context, conn *grpc.ClientConn) error) error {
	creds, err := c.credentials()
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(c.address, grpc.WithTransportCredentials(creds), grpc.WithUnaryInterceptor(again.Calls(sayWaiting)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)))
	if err != nil {
		return invalidInput("--address %q: %w", c.address, err)
	}
	defer conn.Close() // nothing is written on it any more
	return fn(ctx, conn)
}

// sayWaiting tells who typed a command why there is no answer yet.
func sayWaiting(why string) { fmt.Fprintln(os.Stderr, "waiting:", why) }

func (c *client) parent() string { return "namespaces/" + c.namespace }

// jobName completes what a user typed to a job's resource name.
func (c *client) jobName(s string) string {
	if strings.HasPrefix(s, "namespaces/") {
		return s
	}
	return c.parent() + "/jobs/" + s
}

// slotName completes JOB/FIRE_TIME to a slot's resource name. A fire time may be
// written as RFC 3339, too.
func (c *client) slotName(s string) string {
	if strings.HasPrefix(s, "namespaces/") {
		return s
	}
	name, at, ok := strings.Cut(s, "/")
	if !ok {
		return c.jobName(name) + "/slots/-"
	}
	return c.jobName(name) + "/slots/" + instantID(at)
}

// printJSON prints one message.
func printJSON(w io.Writer, m proto.Message) error {
	b, err := jsonmap.New(true).Marshal(m)
	if err != nil {
		return err
	}
	return writeJSON(w, b)
}

// printJSONList prints messages as one array.
func printJSONList[T proto.Message](w io.Writer, list []T) error {
	parts := make([]string, len(list))
	for i, m := range list {
		b, err := jsonmap.New(true).Marshal(m)
		if err != nil {
			return err
		}
		parts[i] = string(b)
	}
	return writeJSON(w, []byte("["+strings.Join(parts, ",\n ")+"]"))
}

func writeJSON(w io.Writer, b []byte) error {
	if !json.Valid(b) {
		return fmt.Errorf("the answer can't be written as JSON")
	}
	_, err := fmt.Fprintf(w, "%s\n", b)
	return err
}

// table prints rows under a header.
func table(w io.Writer, header string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(header, " ", "\t"))
	for _, row := range rows {
		for i, cell := range row {
			row[i] = oneLine(cell)
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// wideTable prints rows under a header, with cells of any length.
func wideTable(w io.Writer, header string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.ReplaceAll(header, " ", "\t"))
	for _, row := range rows {
		for i, cell := range row {
			row[i] = clean(cell)
		}
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// fields prints the fields of one thing, each whole.
func fields(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(t, "%s\t%s\n", row[0], clean(row[1]))
	}
	return t.Flush()
}

const maxCell = 80

// oneLine makes any text a cell: no control characters, bounded.
func oneLine(s string) string {
	s = clean(s)
	if r := []rune(s); len(r) > maxCell {
		s = string(r[:maxCell-1]) + "…"
	}
	return s
}

// clean takes the control characters out of a text, and shows that one is empty.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if s == "" {
		return "-"
	}
	return s
}

func timeCell(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().UTC().Format(time.RFC3339Nano)
}

// short takes the prefix of an enum's names away; what is unspecified is empty.
func short(name, prefix string) string {
	if name = strings.TrimPrefix(name, prefix); name != "UNSPECIFIED" {
		return name
	}
	return ""
}

// lastPart is the last part of a resource name.
func lastPart(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
