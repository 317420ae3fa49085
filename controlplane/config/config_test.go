package config_test

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/controlplane/config"
	"github.com/carillon-scheduler/carillon/internal/certs/authority"
)

// load loads what a file, an environment ("A=x B=y") and a command line say.
func load(t *testing.T, file, env, args string) (*config.Loaded, error) {
	t.Helper()
	vars := map[string]string{}
	for _, pair := range strings.Fields(env) {
		name, value, _ := strings.Cut(pair, "=")
		vars[name] = value
	}
	if file != "" {
		vars[config.FileEnv] = filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(vars[config.FileEnv], []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f := config.AddFlags(set)
	if err := set.Parse(strings.Fields(args)); err != nil {
		t.Fatal(err)
	}
	return f.Load(func(name string) string { return vars[name] })
}

const store = "store: sqlite:/tmp/x.db\n"

func TestDefaults(t *testing.T) {
	t.Parallel()
	l, err := load(t, store, "", "")
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const day = 24 * time.Hour
	want := config.Server{Node: host, Store: config.Store{File: "/tmp/x.db", Public: "sqlite:/tmp/x.db"}, SessionTTL: 5 * time.Second,
		Listen: "127.0.0.1:7070", HTTP: "127.0.0.1:7080", Capacity: 100, Shards: 64, Retention: 7 * day, DeadRetention: 30 * day, EventRetention: 30 * day,
		StreamMaxAge: time.Hour, DrainTimeout: 5 * time.Second}
	if got := fmt.Sprintf("%+v", l.Server); got != fmt.Sprintf("%+v", want) {
		t.Errorf("%s\nwant %+v", got, want)
	}
}

// values are, for each setting, three values that are right, and how they are shown.
var values = map[string][3]string{
	"node":                    {"a", "b", "c"},
	"store":                   {"sqlite:a", "sqlite:b", "sqlite:c"},
	"migrate":                 {"true", "false", "true"},
	"shards":                  {"1", "2", "3"},
	"listen":                  {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"},
	"http":                    {"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"},
	"advertise":               {"a:1", "b:1", "c:1"},
	"insecure_listen":         {"true", "false", "true"},
	"tls.cert":                {"{cert}", "{cert}", "{cert}"},
	"tls.key":                 {"{key}", "{key}", "{key}"},
	"tls.client_ca":           {"{ca}", "{ca}", "{ca}"},
	"tls.require_client_cert": {"true", "false", "true"},
	"etcd":                    {"http://a:1", "https://b:1", "https://c:1,https://d:1"},
	"etcd_user":               {"a", "b", "c"},
	"etcd_password_file":      {"{secret}", "{secret}", "{secret}"},
	"etcd_tls.ca":             {"{ca}", "{ca}", "{ca}"},
	"etcd_tls.cert":           {"{cert}", "{cert}", "{cert}"},
	"etcd_tls.key":            {"{key}", "{key}", "{key}"},
	"session_ttl":             {"2s", "3s", "60s"},
	"owner_gen":               {"0", "1", "9223372036854775807"},
	"capacity":                {"1", "2", "10000"},
	"retention":               {"24h", "25h", "1000h"},
	"dead_retention":          {"24h", "25h", "1000h"},
	"event_retention":         {"24h", "25h", "1000h"},
	"stream_max_age":          {"1s", "2s", "3s"},
	"drain_timeout":           {"0s", "1s", "10m"},
	"log_level":               {"debug", "warn", "error"},
	"pprof":                   {"true", "false", "true"},
}

// needs is what a setting can't be without, beside a store.
var needs = map[string]string{
	"tls.cert": "tls.key", "tls.key": "tls.cert", "tls.client_ca": "tls.cert tls.key", "tls.require_client_cert": "tls.cert tls.key tls.client_ca",
	"etcd": "pg", "etcd_user": "etcd pg etcd_password_file", "etcd_password_file": "etcd pg etcd_user",
	"etcd_tls.ca": "etcd pg", "etcd_tls.cert": "etcd pg etcd_tls.key", "etcd_tls.key": "etcd pg etcd_tls.cert",
}

// Each setting comes from each source, and the later source goes before.
func TestSourcesOfEverySetting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := authority.Init(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("s3cr3t"), 0o600); err != nil {
		t.Fatal(err)
	}
	fill := strings.NewReplacer("{cert}", filepath.Join(dir, "ca.crt"), "{key}", filepath.Join(dir, "ca.key"), "{ca}", filepath.Join(dir, "ca.crt"), "{secret}", secret)
	rest := maps.Clone(values)
	for _, k := range config.Keys() {
		three, there := rest[k.Name]
		if !there {
			t.Errorf("the test has no values for %s", k.Name)
			continue
		}
		delete(rest, k.Name)
		for i := range three {
			three[i] = fill.Replace(three[i])
		}
		base := store
		if k.Name == "store" {
			base = ""
		}
		for _, need := range strings.Fields(needs[k.Name]) {
			switch need {
			case "pg":
				base = strings.Replace(base, store, "store: postgres://h/db\n", 1)
			case "etcd":
				base += "etcd: [https://e:1]\n"
			default:
				base += need + ": " + fill.Replace(values[need][0]) + "\n"
			}
		}
		flag, inFile := "--"+k.Flags[0]+"=", k.Name+": "+three[0]+"\n"
		if group, name, nested := strings.Cut(k.Name, "."); nested && !strings.Contains(base, group) {
			inFile = group + ":\n  " + name + ": " + three[0] + "\n"
		}
		for _, c := range []struct{ file, env, args, value, source string }{
			{base, k.Env + "=" + three[1], "", three[1], k.Env},
			{base, "", flag + three[2], three[2], "--" + k.Flags[0]},
			{base + inFile, "", "", three[0], "c.yaml:"},
			{base + inFile, k.Env + "=" + three[1], "", three[1], k.Env},
			{base + inFile, k.Env + "=" + three[1], flag + three[2], three[2], "--" + k.Flags[0]},
			{base + inFile, "", flag + three[2], three[2], "--" + k.Flags[0]},
		} {
			l, err := load(t, c.file, c.env, c.args)
			if err != nil {
				t.Errorf("%s: %q %q %q: %v", k.Name, c.file, c.env, c.args, err)
				continue
			}
			var out strings.Builder
			if err := l.WriteYAML(&out); err != nil {
				t.Fatal(err)
			}
			line := lineOf(out.String(), k.Name)
			if value := strings.TrimSuffix(strings.Replace(c.value, "60s", "1m", 1), "\n"); !strings.Contains(line, strings.Split(value, ",")[0]) || !strings.Contains(line, c.source) {
				t.Errorf("%s is shown as %q, want %q from %s", k.Name, line, c.value, c.source)
			}
			if strings.Contains(out.String(), "s3cr3t") {
				t.Errorf("a secret is shown: %s", &out)
			}
		}
	}
	for name := range rest {
		t.Errorf("%s is no setting", name)
	}
}

// lineOf returns what YAML says of a setting; of a list, its first value, too.
func lineOf(text, name string) string {
	group, key, nested := strings.Cut(name, ".")
	if !nested {
		group, key = "", name
	}
	in := ""
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, " ") {
			in = ""
			if strings.HasSuffix(line, ":") {
				in = strings.TrimSuffix(line, ":")
			}
		}
		if strings.HasPrefix(strings.TrimSpace(line), key+":") && (in == group || in == key) {
			if i+1 < len(lines) && strings.Contains(lines[i+1], "- ") {
				line += lines[i+1]
			}
			return line
		}
	}
	return ""
}

// What is wrong names the setting and the source, and the nearest name.
func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ file, env, args, says string }{
		{"", "", "", "store (not set): is required"},
		{store + "node: A b", "", "", `node (c.yaml:2): must be`},
		{store, "CARILLON_NODE=-", "", "node (CARILLON_NODE): must be"},
		{store, "", "--node=A_", "node (--node): must be"},
		{"store: mysql://u:s3cr3t@h/db", "", "", "store (c.yaml:1): must begin with"},
		{"", "CARILLON_STORE=postgres://u:s3cr3t@h:x/db", "", "store (CARILLON_STORE): the URL can't be read"},
		{"", "CARILLON_STORE=@/nowhere", "", "store (CARILLON_STORE): open /nowhere"},
		{"", "", "--store=postgres://u:s3cr3t@h/db", "store (--store): must not hold a password"},
		{"", "", "--store=", "store (--store): is empty"},
		{store + "migrate: yes", "", "", `migrate (c.yaml:2): must be true or false, is "yes"`},
		{store, "", "--migrate=1", `migrate (--migrate): must be true or false, is "1"`},
		{store, "", "--shards=0", `shards (--shards): must be 1 to `},
		{store + "listen: here", "", "", `listen (c.yaml:2): must be HOST:PORT, is "here"`},
		{store, "", "--grpc=0.0.0.0:0", `listen (--grpc): must be a loopback address`},
		{store, "CARILLON_HTTP=:0", "", `http (CARILLON_HTTP): must be a loopback address`},
		{store, "CARILLON_HTTP=:99999", "", `http (CARILLON_HTTP): must be HOST:PORT`},
		{store, "", "--advertise=0.0.0.0:7070", `advertise (--advertise): must be the HOST:PORT of one machine`},
		{store, "", "--advertise=h:0", `advertise (--advertise): must be the HOST:PORT of one machine`},
		{store, "", "--advertise=h", `advertise (--advertise): must be HOST:PORT`},
		{store + "insecure_listen: 1", "", "", `insecure_listen (c.yaml:2): must be true or false`},
		{store + "tls: {cert: x}", "", "", `tls.cert (c.yaml:2): needs tls.key`},
		{store + "tls: {key: x}", "", "", `tls.key (c.yaml:2): needs tls.cert`},
		{store + "tls:\n  cert: /nowhere\n  key: /nowhere", "", "", `tls.cert (c.yaml:3): stat /nowhere`},
		{store, "CARILLON_TLS_CLIENT_CA=/nowhere", "", `tls.client_ca (CARILLON_TLS_CLIENT_CA): needs tls.cert`},
		{store, "CARILLON_TLS_CLIENT_CA=/nowhere", "", `tls.client_ca (CARILLON_TLS_CLIENT_CA): stat /nowhere`},
		{store, "", "--tls-require-client-cert", `tls.require_client_cert (--tls-require-client-cert): needs tls.client_ca`},
		{store, "", "--etcd=http://a:1", `store (c.yaml:1): must be PostgreSQL or CockroachDB with etcd`},
		{store, "", "--etcd=http://u:s3cr3t@a:1", `etcd (--etcd): must not name a user`},
		{store, "", "--etcd=ftp://a:1", `etcd (--etcd): must be http://HOST:PORT`},
		{store, "", "--etcd=a:1 --etcd=b", `one is "b"`},
		{store, "CARILLON_ETCD=a:1,b:2/x", "", `etcd (CARILLON_ETCD): must be http://HOST:PORT`},
		{store + "etcd: []", "", "", `etcd (c.yaml:2): must be a list of values`},
		{store + "etcd: {a: b}", "", "", `etcd (c.yaml:2): must be a list of values`},
		{"store: postgres://h/d\netcd: a:1\nlisten: :7070\ninsecure_listen: true", "", "", "advertise (not set): is required with etcd, since listen is :7070"},
		{"store: postgres://h/d\netcd: a:1\netcd_tls: {ca: /nowhere}", "", "", `etcd (c.yaml:2): with etcd_tls endpoints must be https`},
		{"store: postgres://h/d\netcd: https://a:1\netcd_tls: {ca: /nowhere}", "", "", `etcd_tls.ca (c.yaml:3): stat /nowhere`},
		{"store: postgres://h/d\netcd: https://a:1\netcd_tls: {cert: /nowhere, key: /nowhere}", "", "", `etcd_tls.cert (c.yaml:3): stat /nowhere`},
		{"store: postgres://h/d\netcd: https://a:1\netcd_tls: {key: /nowhere}", "", "", `etcd_tls.key (c.yaml:3): needs etcd_tls.cert`},
		{store + "etcd_user: u", "", "", `etcd_user (c.yaml:2): needs etcd_password_file`},
		{store + "etcd_user: u", "CARILLON_ETCD_PASSWORD_FILE=/nowhere", "", `etcd_password_file (CARILLON_ETCD_PASSWORD_FILE): open /nowhere`},
		{store + "etcd_user: u", "CARILLON_ETCD_PASSWORD_FILE=/dev/null", "", `/dev/null is empty`},
		{store + "etcd_user: u", "CARILLON_ETCD_PASSWORD_FILE=/nowhere", "", `etcd_user (c.yaml:2): needs etcd`},
		{"store: postgres://h/d\netcd: a:1\nsession_ttl: 2500ms", "", "", `session_ttl (c.yaml:3): must be whole seconds with etcd, is 2.5s`},
		{"store: postgres://h/d\netcd: a:1\ntls: {cert: /nowhere, key: /nowhere}", "", "", `tls.client_ca (not set): is required with etcd and tls.cert`},
		{store, "CARILLON_SESSION_TTL=1s", "", `session_ttl (CARILLON_SESSION_TTL): must be 2s to 1m, is "1s"`},
		{store, "CARILLON_SESSION_TTL=5", "", `session_ttl (CARILLON_SESSION_TTL): must be a duration such as 5s, is "5"`},
		{store + "owner_gen: -1", "", "", `owner_gen (c.yaml:2): must be a whole number`},
		{store + "capacity: 0", "", "", `capacity (c.yaml:2): must be 1 to 10000, is "0"`},
		{store + "capacity: 10001", "", "", `capacity (c.yaml:2): must be 1 to 10000`},
		{store, "", "--retention=1h", `retention (--retention): must be at least 24h, is "1h"`},
		{store, "", "--dead-retention=23h59m", `dead_retention (--dead-retention): must be at least 24h`},
		{store, "", "--event-retention=x", `event_retention (--event-retention): must be a duration`},
		{store, "", "--stream-max-age=1ms", `stream_max_age (--stream-max-age): must be at least 1s`},
		{store, "", "--drain-timeout=-1s", `drain_timeout (--drain-timeout): must be 0s to 10m`},
		{store, "", "--log-level=loud", `log_level (--log-level): must be debug, info, warn or error, is "loud"`},
		{store + "pprof: maybe", "", "", `pprof (c.yaml:2): must be true or false`},

		{store + "shard: 4", "", "", `c.yaml:2: "shard" is no setting; did you mean shards?`},
		{store + "log-levle: info", "", "", `c.yaml:2: "log-levle" is no setting; did you mean log_level?`},
		{store + "client_ca: x", "", "", `"client_ca" is no setting; did you mean tls.client_ca?`},
		{store + "tls:\n  client_cert: x", "", "", `c.yaml:3: "tls.client_cert" is no setting`},
		{store + "tls:\n  clientca: x", "", "", `c.yaml:3: "tls.clientca" is no setting; did you mean tls.client_ca?`},
		{store + "something: 4", "", "", `c.yaml:2: "something" is no setting`},
		{store + "x: &a [*a]", "", "", `"x" is no setting`},
		{store + "node: &a b", "", "", `node (c.yaml:2): must be written out`},
		{store + "node: a\nnode: b", "", "", `node (c.yaml:3): is there already, in line 2`},
		{store + "tls: {cert: x}\ntls.cert: y", "", "", `tls.cert (c.yaml:3): is there already, in line 2`},
		{store + "node: [a]", "", "", `node (c.yaml:2): must be one value`},
		{store + "node:", "", "", `node (c.yaml:2): has no value`},
		{store + "node: ~", "", "", `node (c.yaml:2): has no value`},
		{store + "tls: x", "", "", `tls (c.yaml:2): must be a mapping`},
		{store + "? [a]\n: b", "", "", `c.yaml:2: a setting's name must be plain text`},
		{"- a", "", "", `c.yaml:1: must be a mapping`},
		{store + "---\nnode: a", "", "", `c.yaml: must hold one document`},
		{store + "node: [", "", "", `c.yaml: is no YAML: line`},
		{"#" + strings.Repeat("x", 1<<20), "", "", `c.yaml: must be at most`},
		{"", "", "--config=/nowhere", "/nowhere: open /nowhere"},
	} {
		_, err := load(t, c.file, c.env, c.args)
		if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), filepathOf(err.Error()), ""), c.says) {
			t.Errorf("%.60q %q %q: %v\nwant %s", c.file, c.env, c.args, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("a password is shown: %v", err)
		}
	}
}

// filepathOf is the folder of the file in an error.
func filepathOf(text string) string {
	i := strings.Index(text, os.TempDir())
	if k := strings.Index(text, "c.yaml"); i >= 0 && k > i {
		return text[i:k]
	}
	return "\x00"
}

// All that is wrong is told at once.
func TestAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := load(t, "shard: 4\ncapacity: 0\n", "CARILLON_SESSION_TTL=1s", "--listen 0.0.0.0:1 --log-level loud")
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, says := range []string{"6 settings are wrong:\n", `"shard" is no setting`, "capacity (", "session_ttl (CARILLON_SESSION_TTL)", "listen (--listen)", "log_level (--log-level)", "store (not set)"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("it lacks %q: %v", says, err)
		}
	}
}

// Whoever must show a certificate may come from anywhere.
func TestListeningBeyondLoopback(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := authority.Init(dir, time.Now()); err != nil {
		t.Fatal(err)
	}
	tls := fmt.Sprintf("listen: 0.0.0.0:0\ntls: {cert: %[1]s/ca.crt, key: %[1]s/ca.key, client_ca: %[1]s/ca.crt", dir)
	for more, ok := range map[string]bool{"listen: 0.0.0.0:0": false, "listen: 0.0.0.0:0\ninsecure_listen: true": true, tls + "}": false, tls + ", require_client_cert: true}": true} {
		if _, err := load(t, store+more, "", ""); (err == nil) != ok {
			t.Errorf("%s: %v", more, err)
		}
	}
}

// What is printed is a file that says the same.
func TestPrintedSettingsAreAFile(t *testing.T) {
	t.Parallel()
	l, err := load(t, "store: 'sqlite:a # b'\ncapacity: 7\nretention: 36h30m\nadvertise: '[::1]:7070'", "CARILLON_ETCD_USER=", "--node=n1 --pprof")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := l.WriteYAML(&out); err != nil {
		t.Fatal(err)
	}
	again, err := load(t, out.String(), "", "")
	if err != nil {
		t.Fatalf("%v in\n%s", err, &out)
	}
	if a, b := fmt.Sprintf("%+v", l.Server), fmt.Sprintf("%+v", again.Server); a != b {
		t.Errorf("%s\n%s\n%s", &out, a, b)
	}
	for _, line := range []string{"node: n1 # --node\n", "pprof: true # --pprof\n", "shards: 64 # default\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("it lacks %q:\n%s", line, &out)
		}
	}
	l, err = load(t, "", "CARILLON_STORE=postgres://u:s3cr3t@h/db?password=s3cr3t", "")
	if err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := l.WriteYAML(&out); err != nil || strings.Contains(out.String(), "s3cr3t") || !strings.Contains(out.String(), "postgres://h/db") {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestAdvertiseFor(t *testing.T) {
	t.Parallel()
	taken := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4242}
	for _, c := range []struct{ listen, advertise, want string }{
		{"127.0.0.1:0", "", "127.0.0.1:4242"}, {"localhost:4242", "", "localhost:4242"}, {":0", "n1:7070", "n1:7070"},
	} {
		if got := (&config.Server{Listen: c.listen, Advertise: c.advertise}).AdvertiseFor(taken); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// A command with some settings has no others, from nowhere else.
func TestSomeSettings(t *testing.T) {
	t.Parallel()
	set := pflag.NewFlagSet("test", pflag.ContinueOnError)
	f := config.AddSome(set, "listen", "log_level")
	if set.Lookup("store") != nil || set.Lookup("grpc") == nil || set.Lookup("config") != nil {
		t.Error("other flags")
	}
	if err := set.Parse([]string{"--grpc", "127.0.0.1:1"}); err != nil {
		t.Fatal(err)
	}
	l, err := f.Load(func(string) string { t.Error("the environment is read"); return "" })
	if err != nil || l.Listen != "127.0.0.1:1" || l.HTTP != "127.0.0.1:7080" {
		t.Errorf("%+v, %v", l, err)
	}
}

func FuzzTheFile(f *testing.F) {
	for _, seed := range []string{store, "tls: {cert: a}\netcd: [a:1, b:2]", "a: &x [*x]", "---\n---", "? [a]: b", "shards: 1\nshards: 2", "<<: {a: b}", "\xff", "node: !!binary aGk=", "etcd: [[a]]", "tls: {tls: {tls: x}}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "@") || strings.Contains(text, "/") {
			return // it may name files, and hosts
		}
		l, err := load(t, text+" ", "CARILLON_STORE=sqlite:x", "--listen=127.0.0.1:1 --http=127.0.0.1:1")
		if err != nil {
			if err.Error() == "" {
				t.Error("an error says nothing")
			}
			return
		}
		var out strings.Builder
		if err := l.WriteYAML(&out); err != nil {
			t.Fatal(err)
		}
		again, err := load(t, out.String(), "", "")
		l.Advertise = l.AdvertiseFor(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}) // what is printed is what holds
		if err != nil || fmt.Sprintf("%+v", again.Server) != fmt.Sprintf("%+v", l.Server) {
			t.Errorf("%q prints as %q: %v", text, &out, err)
		}
	})
}
