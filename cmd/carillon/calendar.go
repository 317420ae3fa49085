package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/carillon-scheduler/carillon/controlplane/calendarfile"
	"github.com/carillon-scheduler/carillon/controlplane/jobspec"
	"github.com/carillon-scheduler/carillon/job/schedule"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
)

func newCalendar(c *client) *cobra.Command {
	return newGroup("calendar", "Keep the days on which jobs don't run", newCalendarPut(c), newCalendarGet(c), newCalendarList(c), newCalendarDelete(c))
}

// calendarName completes what a user typed to a calendar's resource name.
func (c *client) calendarName(s string) string {
	if strings.HasPrefix(s, "namespaces/") {
		return s
	}
	return c.parent() + "/calendars/" + s
}

func newCalendarPut(c *client) *cobra.Command {
	var items, files []string
	var description string
	var expect int32
	var dryRun bool
	cmd := &cobra.Command{
		Use: "put NAME [--item ITEM]... [--file FILE]...", Short: "Store a calendar, or its next version",
		Long: `Store a calendar, or its next version. Jobs that exist keep the version that they have.

An item is a weekday (SAT), a day of every year (12-25), a date (2026-12-24), a range of
dates of which both are included (2026-12-24/2027-01-01), or a range of instants of which
the last isn't (2026-12-24T18:00:00Z/2026-12-25T06:00:00Z). All are UTC.`,
		Example: `  carillon calendar put weekend --item SAT --item SUN
  carillon calendar put holidays --file holidays.ics --file company.csv --description 'Days off'`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &carillonv1.PutCalendarRequest{Name: c.calendarName(args[0]), Items: items, Description: description, ValidateOnly: dryRun}
			if cmd.Flags().Changed("expect") {
				req.ExpectedVersion = &expect
			}
			for _, name := range files {
				if err := addFile(cmd, req, name); err != nil {
					return err
				}
			}
			return c.oneCalendar(cmd, func(ctx context.Context, s carillonv1.CalendarServiceClient) (*carillonv1.Calendar, error) {
				resp, err := s.PutCalendar(ctx, req)
				return resp.GetCalendar(), err
			})
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&items, "item", nil, "what the calendar excludes; may be repeated")
	flags.StringArrayVarP(&files, "file", "f", nil, "a file, as .ics, .csv or lines of items; may be repeated, one of each kind")
	flags.StringVar(&description, "description", "", "what the calendar is for")
	flags.Int32Var(&expect, "expect", 0, "fail unless this is the newest version; 0: there must be none")
	flags.BoolVar(&dryRun, "dry-run", false, "check and show, but store nothing")
	return cmd
}

// addFile adds what a file holds to a put.
func addFile(cmd *cobra.Command, req *carillonv1.PutCalendarRequest, name string) error {
	data, err := readFile(cmd, name)
	if err != nil {
		return err
	}
	into := map[string]*string{".ics": &req.Ics, ".csv": &req.Csv}[strings.ToLower(filepath.Ext(name))]
	if into == nil {
		items, err := calendarfile.FromLines(string(data))
		if err != nil {
			return invalidInput("--file %s %w", name, err)
		}
		req.Items = append(req.Items, items...)
		return nil
	}
	if *into != "" {
		return invalidInput("--file %s: give one file of each kind", name)
	}
	*into = string(data)
	return nil
}

func newCalendarGet(c *client) *cobra.Command {
	var version int32
	cmd := &cobra.Command{
		Use: "get NAME[@VERSION]", Short: "Read a calendar", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if name, number, ok := strings.Cut(args[0], "@"); ok {
				n, err := strconv.ParseInt(number, 10, 32)
				if err != nil {
					return invalidInput("the version must be a number, is %q", number)
				}
				args[0], version = name, int32(n)
			}
			return c.oneCalendar(cmd, func(ctx context.Context, s carillonv1.CalendarServiceClient) (*carillonv1.Calendar, error) {
				resp, err := s.GetCalendar(ctx, &carillonv1.GetCalendarRequest{Name: c.calendarName(args[0]), Version: version})
				return resp.GetCalendar(), err
			})
		},
	}
	cmd.Flags().Int32Var(&version, "version", 0, "the version (default: the newest)")
	return cmd
}

func newCalendarList(c *client) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use: "list", Short: "List calendars by name", Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
				calendars, err := allPages(limit, func(token string, size int32) ([]*carillonv1.Calendar, string, error) {
					resp, err := carillonv1.NewCalendarServiceClient(conn).ListCalendars(ctx, &carillonv1.ListCalendarsRequest{Parent: c.parent(), PageSize: size, PageToken: token})
					return resp.GetCalendars(), resp.GetNextPageToken(), err
				})
				if err != nil {
					return err
				}
				if c.output == "json" {
					return printJSONList(cmd.OutOrStdout(), calendars)
				}
				rows := make([][]string, len(calendars))
				for i, one := range calendars {
					rows[i] = []string{lastPart(one.GetName()), fmt.Sprint(one.GetVersion()), strings.Join(one.GetItems(), " "), one.GetDescription()}
				}
				return table(cmd.OutOrStdout(), "NAME VERSION ITEMS DESCRIPTION", rows)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "how many at most; 0: all")
	return cmd
}

func newCalendarDelete(c *client) *cobra.Command {
	return &cobra.Command{
		Use: "delete NAME", Short: "Delete a calendar: new jobs can't name it", Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.oneCalendar(cmd, func(ctx context.Context, s carillonv1.CalendarServiceClient) (*carillonv1.Calendar, error) {
				resp, err := s.DeleteCalendar(ctx, &carillonv1.DeleteCalendarRequest{Name: c.calendarName(args[0])})
				return resp.GetCalendar(), err
			})
		},
	}
}

// oneCalendar does something with a calendar and prints it.
func (c *client) oneCalendar(cmd *cobra.Command, do func(context.Context, carillonv1.CalendarServiceClient) (*carillonv1.Calendar, error)) error {
	return c.call(cmd.Context(), func(ctx context.Context, conn *grpc.ClientConn) error {
		one, err := do(ctx, carillonv1.NewCalendarServiceClient(conn))
		if err != nil {
			return err
		}
		return c.printCalendar(cmd.OutOrStdout(), one)
	})
}

func (c *client) printCalendar(w io.Writer, one *carillonv1.Calendar) error {
	if c.output == "json" {
		return printJSON(w, one)
	}
	rows := [][]string{{"name", one.GetName()}, {"version", fmt.Sprint(one.GetVersion())}, {"created", timeCell(one.GetCreateTime())},
		{"description", one.GetDescription()}, {"items", strings.Join(one.GetItems(), " ")}}
	if one.GetDeleted() {
		rows = append(rows, []string{"deleted", "yes"})
	}
	for _, warning := range one.GetWarnings() {
		rows = append(rows, []string{"warning", warning})
	}
	return fields(w, rows)
}

// calendars are those that a preview may name: given as files, each NAME=FILE, or on the
// server.
type calendars struct {
	client *client
	items  map[string][]string // by name, of those that were given
	used   map[string]bool
	made   map[string]*schedule.Calendar // by name and version
}

// readCalendars reads the files that were given. What an import warns of goes to warn.
func (c *client) readCalendars(ctx context.Context, given []string, warn io.Writer) (*calendars, error) {
	all := &calendars{client: c, items: map[string][]string{}, used: map[string]bool{}, made: map[string]*schedule.Calendar{}}
	for _, g := range given {
		name, file, ok := strings.Cut(g, "=")
		if !ok || name == "" || file == "" || all.items[name] != nil {
			return nil, invalidInput("--calendar must be NAME=FILE, each name once, is %q", g)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, invalidInput("--calendar %s: %w", g, err)
		}
		items, warnings, err := calendarfile.Read(ctx, file, string(data), time.Now())
		if err == nil {
			_, err = schedule.NewCalendar(name, 1, items)
		}
		if err != nil {
			return nil, invalidInput("--calendar %s: %w", g, err)
		}
		all.items[name] = items
		for _, w := range warnings {
			fmt.Fprintf(warn, "warning: %s: %s\n", file, w)
		}
	}
	return all, nil
}

// find implements jobspec.Calendars. A calendar that was given is any version of it.
func (a *calendars) find(ctx context.Context, namespace, name string, version int64) (c *schedule.Calendar, err error) {
	key := fmt.Sprint(name, "@", version)
	if c := a.made[key]; c != nil {
		return c, nil
	}
	if items := a.items[name]; items != nil {
		a.used[name] = true
		c, err = schedule.NewCalendar(name, max(version, 1), items)
	} else {
		c, err = a.client.fetchCalendar(ctx, namespace, name, version)
	}
	if err == nil {
		a.made[key] = c
	}
	return c, err
}

// unused names the calendars that were given and that no schedule named.
func (a *calendars) unused(warn io.Writer) {
	for _, name := range slices.Sorted(maps.Keys(a.items)) {
		if !a.used[name] {
			fmt.Fprintf(warn, "warning: no schedule names the calendar %s\n", name)
		}
	}
}

func (c *client) fetchCalendar(ctx context.Context, namespace, name string, version int64) (made *schedule.Calendar, err error) {
	err = c.call(ctx, func(ctx context.Context, conn *grpc.ClientConn) error {
		req := &carillonv1.GetCalendarRequest{Name: "namespaces/" + namespace + "/calendars/" + name, Version: int32(version)}
		resp, err := carillonv1.NewCalendarServiceClient(conn).GetCalendar(ctx, req)
		if status.Code(err) == codes.NotFound {
			return jobspec.ErrNoCalendar
		}
		if err != nil {
			return fmt.Errorf("the calendar %s is not given by --calendar, and can't be read from the server: %s", name, status.Convert(err).Message())
		}
		if resp.GetCalendar().GetDeleted() {
			return jobspec.ErrNoCalendar
		}
		made, err = schedule.NewCalendar(name, int64(resp.GetCalendar().GetVersion()), resp.GetCalendar().GetItems())
		return err
	})
	return made, err
}
