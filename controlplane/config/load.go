package config

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/internal/certs"
)

// FileEnv names the file, if no flag does.
const FileEnv = "CARILLON_CONFIG"

// Problem is what is wrong with one setting.
type Problem struct {
	Key    string // empty: the file as a whole
	Source string // where the value came from
	Text   string
}

// Error tells it.
func (p Problem) Error() string {
	if p.Key == "" {
		return fmt.Sprintf("%s: %s", p.Source, p.Text)
	}
	return fmt.Sprintf("%s (%s): %s", p.Key, p.Source, p.Text)
}

// Problems are all that is wrong.
type Problems []Problem

// Error tells all of it, one in a line.
func (p Problems) Error() string {
	if len(p) == 1 {
		return p[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d settings are wrong:", len(p))
	for _, one := range p {
		b.WriteString("\n  " + one.Error())
	}
	return b.String()
}

// Loaded is a configuration, and where each of its values came from.
type Loaded struct {
	Server
	sources map[string]string // by name; none: not set
}

// word is a value on its way, with its source.
type word struct{ text, source string }

const byDefault = "default"

// Load puts the sources together. The error is of type Problems, and tells all that is wrong.
func (f *Flags) Load(env func(string) string) (*Loaded, error) {
	words := map[string]word{}
	for _, k := range keys {
		words[k.Name] = word{k.Default, byDefault}
	}
	var problems Problems
	if f.whole {
		problems = f.fromFile(words, env)
		for _, k := range keys {
			if value := env(k.Env); value != "" {
				words[k.Name] = word{value, k.Env}
			}
		}
	}
	for name, v := range f.values {
		if v.flag != "" {
			words[name] = word{v.text, "--" + v.flag}
		}
	}
	l := &Loaded{sources: map[string]string{}}
	for _, k := range keys {
		w := words[k.Name]
		if w.text == "" {
			if w.source != byDefault {
				problems = append(problems, Problem{k.Name, w.source, "is empty"})
			}
			continue
		}
		l.sources[k.Name] = w.source
		if err := k.set(&l.Server, w.text, strings.HasPrefix(w.source, "--")); err != nil {
			problems = append(problems, Problem{k.Name, w.source, err.Error()})
		}
	}
	c := checker{Loaded: l, flags: f, problems: problems}
	c.all()
	if len(c.problems) > 0 {
		return nil, c.problems
	}
	return l, nil
}

// fromFile adds what the file says, if there is one.
func (f *Flags) fromFile(words map[string]word, env func(string) string) Problems {
	name := f.file
	if name == "" {
		name = env(FileEnv)
	}
	if name == "" {
		return nil
	}
	data, err := readFile(name)
	if err != nil {
		return Problems{{Source: name, Text: err.Error()}}
	}
	return parse(data, name, words)
}

func readFile(name string) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxBytes+1))
}

// checker finds what doesn't fit together. A setting that is wrong by itself is left alone.
type checker struct {
	*Loaded
	flags    *Flags
	problems Problems
}

func (c *checker) all() {
	c.listeners()
	if !c.flags.whole {
		return
	}
	if c.Node == "" && !c.wrong("node") {
		c.nameNode()
	}
	if c.sources["store"] == "" {
		c.add("store", fmt.Sprintf("is required: postgres://…, sqlite:PATH, or @FILE that holds one of them; set %s, or give --store", EnvName("store")))
	}
	c.tls()
	c.etcd()
}

// add notes a problem of a setting.
func (c *checker) add(name, text string) {
	source := c.sources[name]
	if source == "" {
		source = "not set"
	}
	c.problems = append(c.problems, Problem{name, source, text})
}

func (c *checker) wrong(name string) bool {
	for _, p := range c.problems {
		if p.Key == name {
			return true
		}
	}
	return false
}

func (c *checker) nameNode() {
	host, err := os.Hostname()
	if err == nil {
		for _, k := range keys {
			if k.Name == "node" {
				err = k.set(&c.Server, host, false)
			}
		}
	}
	if err != nil {
		c.add("node", fmt.Sprintf("the machine's name can't be it: %v", err))
		return
	}
	c.sources["node"] = byDefault + ": the machine's name"
}

// listeners checks that nobody is let in from elsewhere by mistake.
func (c *checker) listeners() {
	for _, name := range []string{"listen", "http"} {
		address := c.Listen
		if name == "http" {
			address = c.HTTP
		}
		if address == "" {
			continue // it is wrong
		}
		addr, err := net.ResolveTCPAddr("tcp", address)
		switch {
		case err != nil:
			c.add(name, err.Error())
		case addr.IP.IsLoopback() || c.InsecureListen || c.Closed():
		case c.flags.whole:
			c.add(name, fmt.Sprintf("must be a loopback address, is %s, unless tls.cert and tls.require_client_cert keep strangers out (insecure_listen lets them in all the same)", address))
		default:
			c.add(name, fmt.Sprintf("must be a loopback address, is %s", address))
		}
	}
}

func (c *checker) tls() {
	c.together("tls.cert", c.TLS.Cert, "tls.key", c.TLS.Key)
	if c.TLS.CA != "" && c.TLS.Cert == "" {
		c.add("tls.client_ca", "needs tls.cert")
	}
	if c.RequireClientCert && c.TLS.CA == "" {
		c.add("tls.require_client_cert", "needs tls.client_ca")
	}
	c.files("tls.cert", certs.Files{Cert: c.TLS.Cert, Key: c.TLS.Key})
	c.files("tls.client_ca", certs.Files{CA: c.TLS.CA})
}

func (c *checker) etcd() {
	c.together("etcd_user", c.EtcdUser, "etcd_password_file", c.EtcdPasswordFile)
	c.together("etcd_tls.cert", c.EtcdTLS.Cert, "etcd_tls.key", c.EtcdTLS.Key)
	c.files("etcd_tls.cert", certs.Files{Cert: c.EtcdTLS.Cert, Key: c.EtcdTLS.Key})
	c.files("etcd_tls.ca", certs.Files{CA: c.EtcdTLS.CA})
	if c.EtcdPasswordFile != "" {
		if text, err := os.ReadFile(c.EtcdPasswordFile); err != nil {
			c.add("etcd_password_file", err.Error())
		} else if strings.TrimSpace(string(text)) == "" {
			c.add("etcd_password_file", c.EtcdPasswordFile+" is empty")
		}
	}
	if len(c.Etcd) == 0 {
		c.needEtcd()
		return
	}
	for _, endpoint := range c.Etcd {
		if c.EtcdTLS != (certs.Files{}) && !strings.HasPrefix(endpoint, "https://") {
			c.add("etcd", fmt.Sprintf("with etcd_tls endpoints must be https://HOST:PORT; one is %q", endpoint))
			break
		}
	}
	if c.TLS.Cert != "" && c.TLS.CA == "" {
		c.add("tls.client_ca", "is required with etcd and tls.cert: nodes hold each other to it")
	}
	if c.SessionTTL%time.Second != 0 && !c.wrong("session_ttl") {
		c.add("session_ttl", fmt.Sprintf("must be whole seconds with etcd, is %s", c.SessionTTL))
	}
	if host, _, err := net.SplitHostPort(c.Listen); err == nil && everywhere(host) && c.Advertise == "" && !c.wrong("advertise") {
		c.add("advertise", fmt.Sprintf("is required with etcd, since listen is %s: the HOST:PORT at which other nodes reach this one", c.Listen))
	}
	if c.Store.File != "" {
		c.add("store", "must be PostgreSQL or CockroachDB with etcd: nodes can't share a SQLite file")
	}
}

// needEtcd refuses what would be in vain: somebody forgot the endpoints.
func (c *checker) needEtcd() {
	for _, name := range []string{"etcd_user", "etcd_password_file", "etcd_tls.ca", "etcd_tls.cert"} {
		if c.sources[name] != "" && !c.wrong("etcd") {
			c.add(name, "needs etcd")
		}
	}
}

func (c *checker) together(first, a, second, b string) {
	switch {
	case a != "" && b == "":
		c.add(first, "needs "+second)
	case a == "" && b != "":
		c.add(second, "needs "+first)
	}
}

// files checks that certificates can be used.
func (c *checker) files(name string, f certs.Files) {
	if f == (certs.Files{}) || (f.Cert == "") != (f.Key == "") {
		return
	}
	if _, err := certs.Open(f, slog.New(slog.DiscardHandler)); err != nil {
		c.add(name, err.Error())
	}
}

// Flags are settings on a command line.
type Flags struct {
	whole  bool // all of them, also from the file and the environment
	file   string
	values map[string]*value
}

// value is what was said on the command line.
type value struct {
	key  *key
	text string
	flag string // by which it was said; empty: it wasn't
}

// AddFlags adds all settings to a command, and --config.
func AddFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{whole: true, values: map[string]*value{}}
	set.StringVar(&f.file, "config", "", "a file with settings, in YAML ("+FileEnv+")")
	for i := range keys {
		f.add(set, &keys[i])
	}
	return f
}

// AddSome adds some settings to a command, which has no others, from nowhere else.
func AddSome(set *pflag.FlagSet, names ...string) *Flags {
	f := &Flags{values: map[string]*value{}}
	for i := range keys {
		for _, name := range names {
			if keys[i].Name == name {
				f.add(set, &keys[i])
			}
		}
	}
	return f
}

func (f *Flags) add(set *pflag.FlagSet, k *key) {
	v := &value{key: k}
	f.values[k.Name] = v
	for i, name := range k.Flags {
		about := strings.ReplaceAll(k.About, "`", "")
		if i > 0 {
			about = "the same as --" + k.Flags[0]
		}
		flag := set.VarPF(&flagValue{v, name}, name, "", about)
		if k.kind == boolean {
			flag.NoOptDefVal = "true"
		}
	}
}

// flagValue is one flag of a setting.
type flagValue struct {
	*value
	name string
}

// String implements pflag.Value; the default is shown before anything is set.
func (v *flagValue) String() string {
	if v.value == nil {
		return ""
	}
	if v.flag == "" {
		return v.key.Default
	}
	return v.text
}

// Type implements pflag.Value.
func (v *flagValue) Type() string { return string(v.key.kind) }

// Set implements pflag.Value. Whether a value makes sense is told with all others, by Load.
func (v *flagValue) Set(text string) error {
	if v.key.kind == list && v.flag != "" {
		text = v.text + "," + text
	}
	v.text, v.flag = text, v.name
	return nil
}
