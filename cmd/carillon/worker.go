package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/job"
	worker "github.com/carillon-scheduler/carillon/workersdk"
	"github.com/carillon-scheduler/carillon/workersdk/execrun"
	"github.com/carillon-scheduler/carillon/workersdk/httprun"
)

func newWorker(c *client) *cobra.Command {
	return newGroup("worker", "Run a worker that needs no code", newWorkerRun(c))
}

// workerFlags are the flags of `worker run`.
type workerFlags struct {
	id, logLevel string
	capacity     int
	grace        time.Duration
	concurrency  []string // NAME=N

	http                   bool
	allowHosts, allowRange []string
	proxy                  string

	programs, args, env []string // NAME=PATH, NAME=ARG, NAME
}

func newWorkerRun(c *client) *cobra.Command {
	var f workerFlags
	cmd := &cobra.Command{
		Use: "run", Short: "Serve HTTP requests and programs as handlers", Args: exactly(0),
		Example: "  carillon worker run --http --allow-host hooks.example.com\n  carillon worker run --exec report=/opt/report.sh --exec-env DATABASE_URL",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), c, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.register(cmd.Flags())
	return cmd
}

func (f *workerFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.id, "id", "", "stable id of this worker (default: the one that its certificate names, or the machine's name and a random suffix)")
	flags.IntVar(&f.capacity, "capacity", 64, "attempts that it holds at the same time")
	flags.StringArrayVar(&f.concurrency, "concurrency", nil, "NAME=N: attempts of a handler that run at the same time; may be repeated")
	flags.DurationVar(&f.grace, "grace", 5*time.Second, "how long running attempts go on after SIGTERM")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.BoolVar(&f.http, "http", false, "serve http.request")
	flags.StringArrayVar(&f.allowHosts, "allow-host", nil, "a host to which requests may go: HOST, *.HOST or *, each also with :PORT or :*; may be repeated")
	flags.StringArrayVar(&f.allowRange, "allow-private", nil, "addresses that may be dialled although they aren't public, such as 10.1.0.0/16; may be repeated")
	flags.StringVar(&f.proxy, "http-proxy", "", "send all requests through this proxy, which must refuse addresses that aren't public")
	flags.StringArrayVar(&f.programs, "exec", nil, "NAME=PATH: serve a program as the handler NAME; may be repeated")
	flags.StringArrayVar(&f.args, "exec-arg", nil, "NAME=ARG: one more argument of that program; may be repeated")
	flags.StringArrayVar(&f.env, "exec-env", nil, "a variable of this environment that programs get; may be repeated")
}

// run serves what the flags ask for until ctx ends.
func (f *workerFlags) run(ctx context.Context, c *client, out, logs io.Writer) error {
	log, err := newLogger(f.logLevel, logs)
	if err != nil {
		return err
	}
	s, err := f.served()
	if err != nil {
		return err
	}
	transport, err := c.workerTLS()
	if err != nil {
		return err
	}
	options := []worker.Option{worker.Capacity(f.capacity), worker.ShutdownGrace(f.grace), worker.Logger(log), transport}
	if f.id != "" {
		options = append(options, worker.ID(f.id))
	}
	w, err := worker.Dial(ctx, c.address, options...)
	if err != nil {
		return exitError{exitInvalid, err}
	}
	s.register(w)
	if s.sender != nil {
		defer s.sender.Close()
	}
	fmt.Fprintf(out, "carillon worker serves %s\n", strings.Join(s.names(), ", "))
	return w.Run(ctx)
}

// served is what a worker serves.
type served struct {
	sender   *httprun.Sender // nil: nothing by HTTP
	programs map[string]*execrun.Program
	limits   map[string]int // of handlers that have one
}

func (f *workerFlags) served() (s served, err error) {
	if s.programs, err = f.handlers(); err != nil {
		return s, err
	}
	if s.sender, err = f.sender(); err != nil {
		return s, err
	}
	if s.limits, err = f.limitsOf(s.names()); err != nil {
		return s, err
	}
	if len(s.names()) == 0 {
		return s, invalidInput("a worker needs --http, or --exec NAME=PATH, to serve something")
	}
	return s, nil
}

func (s *served) names() []string {
	names := slices.Sorted(maps.Keys(s.programs))
	if s.sender != nil {
		names = append(names, httprun.Name)
	}
	return names
}

func (s *served) register(w *worker.Worker) {
	limit := func(name string) (options []worker.HandlerOption) {
		if n := s.limits[name]; n > 0 {
			options = append(options, worker.Concurrency(n))
		}
		return options
	}
	for name, p := range s.programs {
		worker.Handle(w, name, p.Handle, limit(name)...)
	}
	if s.sender != nil {
		worker.Handle(w, httprun.Name, s.sender.Handle, limit(httprun.Name)...)
	}
}

// limitsOf reads --concurrency of handlers.
func (f *workerFlags) limitsOf(handlers []string) (map[string]int, error) {
	limits := map[string]int{}
	for _, s := range f.concurrency {
		name, text, _ := strings.Cut(s, "=")
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || !slices.Contains(handlers, name) {
			return nil, invalidInput("--concurrency must be NAME=N, with the NAME of a handler of this worker and N of at least 1, is %q", s)
		}
		limits[name] = n
	}
	return limits, nil
}

// sender makes what serves http.request; nil without --http.
func (f *workerFlags) sender() (*httprun.Sender, error) {
	if !f.http {
		if len(f.allowHosts) > 0 || len(f.allowRange) > 0 || f.proxy != "" {
			return nil, invalidInput("--allow-host, --allow-private and --http-proxy need --http")
		}
		return nil, nil
	}
	if len(f.allowHosts) == 0 {
		return nil, invalidInput("--http needs --allow-host: name the hosts to which requests may go, or '*' for every public one")
	}
	options := []httprun.Option{httprun.AllowHosts(f.allowHosts...), httprun.AllowPrivate(f.allowRange...)}
	if f.proxy != "" {
		options = append(options, httprun.Proxy(f.proxy))
	}
	sender, err := httprun.New(options...)
	if err != nil {
		return nil, invalidInput("--http: %w", err)
	}
	return sender, nil
}

// handlers makes the programs of --exec, by name.
func (f *workerFlags) handlers() (map[string]*execrun.Program, error) {
	paths, err := f.paths()
	if err != nil {
		return nil, err
	}
	args := map[string][]string{}
	for _, s := range f.args {
		name, arg, found := strings.Cut(s, "=")
		if !found || paths[name] == "" {
			return nil, invalidInput("--exec-arg must be NAME=ARG with the NAME of an --exec, is %q", s)
		}
		args[name] = append(args[name], arg)
	}
	if len(f.env) > 0 && len(paths) == 0 {
		return nil, invalidInput("--exec-env needs --exec")
	}
	programs := map[string]*execrun.Program{}
	for name, path := range paths {
		p, err := execrun.New(path, execrun.Args(args[name]...), execrun.PassEnv(f.env...))
		if err != nil {
			return nil, invalidInput("--exec %s=%s: %w", name, path, err)
		}
		programs[name] = p
	}
	return programs, nil
}

// paths reads --exec.
func (f *workerFlags) paths() (map[string]string, error) {
	paths := map[string]string{}
	for _, s := range f.programs {
		name, path, _ := strings.Cut(s, "=")
		if err := job.CheckName(name); err != nil {
			return nil, invalidInput("--exec must be NAME=PATH, is %q: the name %w", s, err)
		}
		switch {
		case path == "":
			return nil, invalidInput("--exec must be NAME=PATH, is %q: the path is empty", s)
		case paths[name] != "", f.http && name == httprun.Name:
			return nil, invalidInput("--exec %q: the handler %s is given twice", s, name)
		}
		paths[name] = path
	}
	return paths, nil
}
