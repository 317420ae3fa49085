package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/shard"
)

// Key is a setting as it is documented.
type Key struct {
	Name    string // in a file
	Env     string
	Flags   []string // the first one follows from the name; others are older
	Default string
	About   string
}

// Keys lists all settings.
func Keys() (list []Key) {
	for _, k := range keys {
		list = append(list, k.Key)
	}
	return list
}

// EnvName is the variable of a setting.
func EnvName(name string) string {
	return "CARILLON_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
}

// flagName is the flag of a setting.
func flagName(name string) string {
	return strings.NewReplacer(".", "-", "_", "-").Replace(name)
}

// kind is what the values of a setting look like.
type kind string

const (
	text     kind = "string"
	list     kind = "strings" // separated by commas, or a sequence in YAML
	number   kind = "int"
	duration kind = "duration"
	boolean  kind = "bool"
)

// key is a setting with its way into a Server, and back.
type key struct {
	Key
	kind kind
	// set reads a value that isn't empty. Its error says what the value must be.
	set func(c *Server, value string, onCommandLine bool) error
	// show is the value as it may be shown; empty: there is none.
	show func(c *Server) string
}

const (
	day = 24 * time.Hour
	// minRetention is as long as requests are remembered: what they made must be there.
	minRetention = day
)

// keys are all settings, in the order in which they are listed.
var keys = named(
	str("node", "", "name of this node; default: the machine's", func(c *Server) *string { return &c.Node }, job.CheckName),
	key{Key: Key{Name: "store", About: "the database: `postgres://…`, `sqlite:PATH`, or `@FILE` that holds one of them; no password on the command line"}, kind: text,
		set: func(c *Server, value string, onCommandLine bool) (err error) {
			c.Store, err = ParseStore(value, onCommandLine)
			return err
		},
		show: func(c *Server) string { return c.Store.Public }},
	toggle("migrate", "bring the schema up to date before anything else", func(c *Server) *bool { return &c.Migrate }),
	integer("shards", shard.DefaultCount, 1, shard.MaxCount, "number of shards of a new cluster; an old one keeps its own", func(c *Server) *int { return &c.Shards }),

	str("listen", "127.0.0.1:7070", "address of gRPC; port 0 takes a free one", func(c *Server) *string { return &c.Listen }, checkAddress, "grpc"),
	str("http", "127.0.0.1:7080", "address of REST and metrics; port 0 takes a free one", func(c *Server) *string { return &c.HTTP }, checkAddress),
	str("advertise", "", "where other nodes reach gRPC; default: `listen`, unless that is all addresses of the machine", func(c *Server) *string { return &c.Advertise }, checkAdvertise),
	toggle("insecure_listen", "listen beyond loopback although not everybody must show a certificate", func(c *Server) *bool { return &c.InsecureListen }),

	str("tls.cert", "", "certificate of this node, for both listeners and for calls to other nodes", func(c *Server) *string { return &c.TLS.Cert }, anything),
	str("tls.key", "", "its key", func(c *Server) *string { return &c.TLS.Key }, anything),
	str("tls.client_ca", "", "authorities whose clients and nodes are trusted", func(c *Server) *string { return &c.TLS.CA }, anything),
	toggle("tls.require_client_cert", "refuse clients without a certificate", func(c *Server) *bool { return &c.RequireClientCert }),

	key{Key: Key{Name: "etcd", About: "endpoints of etcd, through which nodes share the work; none: this node works alone"}, kind: list,
		set: setEndpoints, show: func(c *Server) string { return strings.Join(c.Etcd, ",") }},
	str("etcd_user", "", "user in etcd", func(c *Server) *string { return &c.EtcdUser }, anything),
	str("etcd_password_file", "", "file that holds the user's password", func(c *Server) *string { return &c.EtcdPasswordFile }, anything),
	str("etcd_tls.ca", "", "authorities that etcd's certificates are held to; default: the system's", func(c *Server) *string { return &c.EtcdTLS.CA }, anything),
	str("etcd_tls.cert", "", "certificate that is shown to etcd", func(c *Server) *string { return &c.EtcdTLS.Cert }, anything),
	str("etcd_tls.key", "", "its key", func(c *Server) *string { return &c.EtcdTLS.Key }, anything),
	period("session_ttl", 5*time.Second, 2*time.Second, time.Minute, "after which silence others take this node's shards", func(c *Server) *time.Duration { return &c.SessionTTL }),
	key{Key: Key{Name: "owner_gen", Default: "0", About: "generation of the cluster, at least 0: raise it when etcd was made anew"}, kind: number,
		set: func(c *Server, value string, _ bool) error {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n < 0 {
				return fmt.Errorf("must be a whole number of at least 0, is %q", value)
			}
			c.OwnerGen = n
			return nil
		},
		show: func(c *Server) string { return strconv.FormatInt(c.OwnerGen, 10) }},
	integer("capacity", 100, 1, 10_000, "weight of this node: one of 200 gets twice the shards of one of 100", func(c *Server) *int { return &c.Capacity }),

	period("retention", 7*day, minRetention, 0, "how long slots that ended are kept", func(c *Server) *time.Duration { return &c.Retention }),
	period("dead_retention", 30*day, minRetention, 0, "how long dead letters are kept", func(c *Server) *time.Duration { return &c.DeadRetention }),
	period("event_retention", 30*day, minRetention, 0, "how long events are kept", func(c *Server) *time.Duration { return &c.EventRetention }),

	period("stream_max_age", time.Hour, time.Second, 0, "after which time a worker is asked to open a new stream", func(c *Server) *time.Duration { return &c.StreamMaxAge }),
	period("drain_timeout", 5*time.Second, 0, 10*time.Minute, "how long running attempts go on when the node stops", func(c *Server) *time.Duration { return &c.DrainTimeout }),

	key{Key: Key{Name: "log_level", Default: "info", About: "`debug`, `info`, `warn` or `error`"}, kind: text,
		set: func(c *Server, value string, _ bool) error {
			if c.LogLevel.UnmarshalText([]byte(value)) != nil {
				c.LogLevel = slog.LevelInfo
				return fmt.Errorf("must be debug, info, warn or error, is %q", value)
			}
			return nil
		},
		show: func(c *Server) string { return strings.ToLower(c.LogLevel.String()) }},
	toggle("pprof", "serve profiles of this process beside the metrics, under `/debug/pprof/`", func(c *Server) *bool { return &c.Profiles }),
)

// named gives settings the names that follow from theirs.
func named(list ...key) []key {
	for i := range list {
		k := &list[i]
		k.Env, k.Flags = EnvName(k.Name), append([]string{flagName(k.Name)}, k.Flags...)
	}
	return list
}

func str(name, otherwise, about string, field func(*Server) *string, check func(string) error, olderFlags ...string) key {
	return key{Key: Key{Name: name, Default: otherwise, About: about, Flags: olderFlags}, kind: text,
		set: func(c *Server, value string, _ bool) error {
			if err := check(value); err != nil {
				return fmt.Errorf("%w, is %q", err, value)
			}
			*field(c) = value
			return nil
		},
		show: func(c *Server) string { return *field(c) }}
}

func anything(string) error { return nil }

func toggle(name, about string, field func(*Server) *bool) key {
	return key{Key: Key{Name: name, Default: "false", About: about}, kind: boolean,
		set: func(c *Server, value string, _ bool) error {
			if value != "true" && value != "false" {
				return fmt.Errorf("must be true or false, is %q", value)
			}
			*field(c) = value == "true"
			return nil
		},
		show: func(c *Server) string { return strconv.FormatBool(*field(c)) }}
}

func integer(name string, otherwise, low, high int, about string, field func(*Server) *int) key {
	return key{Key: Key{Name: name, Default: strconv.Itoa(otherwise), About: fmt.Sprintf("%s; %d to %d", about, low, high)}, kind: number,
		set: func(c *Server, value string, _ bool) error {
			n, err := strconv.Atoi(value)
			if err != nil || n < low || n > high {
				return fmt.Errorf("must be %d to %d, is %q", low, high, value)
			}
			*field(c) = n
			return nil
		},
		show: func(c *Server) string { return strconv.Itoa(*field(c)) }}
}

// period is a duration; high of 0 is no bound.
func period(name string, otherwise, low, high time.Duration, about string, field func(*Server) *time.Duration) key {
	bounds := "at least " + brief(low)
	if high > 0 {
		bounds = brief(low) + " to " + brief(high)
	}
	return key{Key: Key{Name: name, Default: brief(otherwise), About: about + "; " + bounds}, kind: duration,
		set: func(c *Server, value string, _ bool) error {
			d, err := time.ParseDuration(value)
			if err != nil {
				return fmt.Errorf("must be a duration such as %s, is %q", brief(otherwise), value)
			}
			if d < low || high > 0 && d > high {
				return fmt.Errorf("must be %s, is %q", bounds, value)
			}
			*field(c) = d
			return nil
		},
		show: func(c *Server) string { return brief(*field(c)) }}
}

// brief writes a duration without the parts that are zero.
func brief(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

var errAddress = errors.New("must be HOST:PORT")

func checkAddress(s string) error {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return errAddress
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return errAddress
	}
	return nil
}

func checkAdvertise(s string) error {
	if err := checkAddress(s); err != nil {
		return err
	}
	if host, port, _ := net.SplitHostPort(s); everywhere(host) || strings.Trim(port, "0") == "" {
		return errors.New("must be the HOST:PORT of one machine")
	}
	return nil
}

// everywhere reports whether a host stands for all addresses of the machine.
func everywhere(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// setEndpoints reads endpoints; whoever writes a password into one sees it nowhere.
func setEndpoints(c *Server, value string, _ bool) error {
	c.Etcd = nil
	for one := range strings.SplitSeq(value, ",") {
		one = strings.TrimSpace(one)
		if strings.Contains(one, "@") {
			return errors.New("must not name a user: that is etcd_user, with etcd_password_file")
		}
		u, err := url.Parse(one)
		if !strings.Contains(one, "://") {
			u, err = &url.URL{Scheme: "http", Host: one}, nil
		}
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || checkAdvertise(u.Host) != nil || cmp.Or(u.Path, u.RawQuery, u.Fragment) != "" {
			return fmt.Errorf("must be http://HOST:PORT, https://HOST:PORT or HOST:PORT, separated by commas; one is %q", one)
		}
		c.Etcd = append(c.Etcd, one)
	}
	return nil
}
