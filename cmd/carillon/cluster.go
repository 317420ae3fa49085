package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

// newClusterGroup builds the commands about nodes and shards.
func newClusterGroup(c *client) *cobra.Command {
	return newGroup("cluster", "See and move the shards of a cluster",
		newClusterStatus(c), newClusterMembers(c), newClusterShards(c), newClusterTransfer(c), newClusterDrain(c))
}

func newClusterStatus(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show how the cluster is, as the node that answers sees it", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				resp, err := carillonv1.NewClusterServiceClient(conn).GetCluster(ctx, &carillonv1.GetClusterRequest{})
				if err != nil {
					return err
				}
				if c.output == "json" {
					return printJSON(cmd.OutOrStdout(), resp.GetCluster())
				}
				return printCluster(cmd, resp.GetCluster())
			})
		},
	}
}

func printCluster(cmd *cobra.Command, m *carillonv1.Cluster) error {
	co := m.GetCoordination()
	coordination := co.GetKind()
	if co.GetKind() != "solo" {
		state := "doesn't answer"
		if co.GetConnected() {
			state = "answers"
		}
		coordination = fmt.Sprintf("%s %s since %s, owner_gen %d, revision %d", co.GetKind(), state, timeCell(co.GetSinceTime()), co.GetGeneration(), co.GetRevision())
		if !co.GetMember() {
			coordination += "; this node takes no part"
		}
	}
	out := cmd.OutOrStdout()
	rows := [][]string{{"cluster", m.GetId()}, {"node", m.GetNode()}, {"coordination", coordination},
		{"shards", fmt.Sprintf("%d, %d of them held by nobody", m.GetShardCount(), m.GetUnheldCount())}}
	for _, p := range m.GetProblems() {
		rows = append(rows, []string{"problem", p})
	}
	if err := fields(out, rows); err != nil {
		return err
	}
	fmt.Fprintln(out)
	return table(out, membersHeader, memberRows(m.GetMembers()))
}

const membersHeader = "NODE STATE SHARDS CAPACITY ADDRESS UP COMMIT SKEW VERSION"

func memberRows(members []*carillonv1.Member) (rows [][]string) {
	for _, m := range members {
		rows = append(rows, []string{lastPart(m.GetName()), short(m.GetState().String(), "MEMBER_STATE_"), strconv.Itoa(int(m.GetShardCount())),
			strconv.Itoa(int(m.GetCapacity())), m.GetAddress(), time.Since(m.GetStartTime().AsTime()).Round(time.Second).String(),
			durationCell(m.GetCommitLatency()), durationCell(m.GetClockSkew()), m.GetVersion()})
	}
	return rows
}

func durationCell(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return d.AsDuration().Round(100 * time.Microsecond).String()
}

func newClusterMembers(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "members", Short: "List the nodes that take part", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				resp, err := carillonv1.NewClusterServiceClient(conn).ListMembers(ctx, &carillonv1.ListMembersRequest{})
				if err != nil {
					return err
				}
				if c.output == "json" {
					return printJSONList(cmd.OutOrStdout(), resp.GetMembers())
				}
				return table(cmd.OutOrStdout(), membersHeader, memberRows(resp.GetMembers()))
			})
		},
	}
}

func newClusterShards(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "shards", Short: "List the shards: who holds each, and who owns it by the database's word", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				resp, err := carillonv1.NewClusterServiceClient(conn).ListShards(ctx, &carillonv1.ListShardsRequest{})
				if err != nil {
					return err
				}
				if c.output == "json" {
					return printJSONList(cmd.OutOrStdout(), resp.GetShards())
				}
				if p := resp.GetProblem(); p != "" {
					fmt.Fprintln(cmd.ErrOrStderr(), "warning:", p)
				}
				var rows [][]string
				for _, s := range resp.GetShards() {
					rows = append(rows, []string{lastPart(s.GetName()), s.GetHolder(), s.GetOwner(), strconv.FormatInt(s.GetEpoch(), 10),
						fmt.Sprintf("%d.%d", s.GetGeneration(), s.GetRevision()), timeCell(s.GetWatermarkTime()), shardNote(s)})
				}
				return table(cmd.OutOrStdout(), "SHARD HOLDER OWNER EPOCH CLAIM WATERMARK NOTE", rows)
			})
		},
	}
}

// shardNote says what isn't as it should be, or stay.
func shardNote(s *carillonv1.Shard) string {
	var notes []string
	if s.GetPinned() {
		notes = append(notes, "transferred")
	}
	if s.GetWanted() != "" && s.GetWanted() != s.GetHolder() {
		notes = append(notes, "moves to "+s.GetWanted())
	}
	if s.GetOwner() != "" && s.GetHolder() != "" && s.GetOwner() != s.GetHolder() {
		notes = append(notes, "is being taken over")
	}
	return strings.Join(notes, ", ")
}

func newClusterTransfer(c *client) *cobra.Command {
	undo := false
	cmd := &cobra.Command{
		Use: "transfer SHARD [NODE]", Short: "Have a node hold a shard, for as long as it takes part",
		Example: "  carillon cluster transfer 12 node-b\n  carillon cluster transfer 12 --undo",
		Args:    atMost(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || undo != (len(args) == 1) {
				return invalidInput("give a shard and a node, or a shard and --undo")
			}
			req := &carillonv1.TransferShardRequest{Name: "shards/" + args[0]}
			if !undo {
				req.Node = args[1]
			}
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				if _, err := carillonv1.NewClusterServiceClient(conn).TransferShard(ctx, req); err != nil {
					return err
				}
				if undo {
					fmt.Fprintf(cmd.OutOrStdout(), "shard %s goes where it should by the nodes' capacities\n", args[0])
				} else {
					fmt.Fprintf(cmd.OutOrStdout(), "shard %s goes to %s, and stays there; --undo ends that\n", args[0], args[1])
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "let the shard go where it should by the nodes' capacities")
	return cmd
}

func newClusterDrain(c *client) *cobra.Command {
	undo := false
	cmd := &cobra.Command{
		Use: "drain NODE", Short: "Have a node hand all its shards over, and hold none", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				_, err := carillonv1.NewClusterServiceClient(conn).DrainMember(ctx, &carillonv1.DrainMemberRequest{Name: "members/" + args[0], Undo: undo})
				if err != nil {
					return err
				}
				if undo {
					fmt.Fprintf(cmd.OutOrStdout(), "%s holds shards again\n", args[0])
				} else {
					fmt.Fprintf(cmd.OutOrStdout(), "%s hands its shards over; --undo lets it hold some again\n", args[0])
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "let the node hold shards again")
	return cmd
}
