package main_test

import (
	"crypto/tls"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/freeport"
)

// secured is a server with mTLS as processes see it.
type secured struct {
	*process
	t          *testing.T
	dir        string
	grpc, http string
}

// makeCerts makes certificates by the command line.
func makeCerts(t *testing.T, dir string, commands ...string) {
	t.Helper()
	for _, command := range commands {
		args := append(strings.Fields("tls "+command), "--dir", dir)
		if strings.HasPrefix(command, "init") {
			args = []string{"tls", "init", dir}
		}
		if out, code := run(t, "", args...); code != 0 {
			t.Fatalf("carillon %v: exit %d, %s", args, code, out)
		}
	}
}

func startSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{t: t, dir: filepath.Join(t.TempDir(), "tls"), grpc: freeport.For(t), http: freeport.For(t)}
	makeCerts(t, s.dir, "init", "node n1", "worker w1", "worker w2", "client ann")
	file := write(t, "carillon.yaml", "node: n1\nstore: sqlite:"+filepath.Join(t.TempDir(), "c.db")+"\nlisten: "+s.grpc+"\nhttp: "+s.http+
		"\ntls:\n  cert: "+s.file("node-n1.crt")+"\n  key: "+s.file("node-n1.key")+"\n  client_ca: "+s.file("ca.crt")+"\n  require_client_cert: true\n")
	cmd := exec.Command(binary, "server")
	cmd.Env = append(os.Environ(), "CARILLON_CONFIG="+file)
	out := &logBuffer{}
	cmd.Stdout = out
	s.process = launch(t, cmd)
	eventually(t, 20*time.Second, "it is up", func() bool { return strings.Contains(out.String(), "https://"+s.http) })
	return s
}

func (s *secured) file(name string) string { return filepath.Join(s.dir, name) }

// as are the flags of somebody with a certificate, or of nobody.
func (s *secured) as(name string) []string {
	flags := []string{"--address", s.grpc, "--tls-ca", s.file("ca.crt")}
	if name != "" {
		flags = append(flags, "--tls-cert", s.file(name+".crt"), "--tls-key", s.file(name+".key"))
	}
	return flags
}

// With certificates a worker and the command line do their work; without, or with those of
// another authority, nobody gets in.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	worker := exec.Command(binary, append([]string{"worker", "run", "--exec", "hello=" + program(t, "true")}, s.as("worker-w1")...)...)
	launch(t, worker)
	eventually(t, 20*time.Second, "the worker is there", func() bool {
		out, code := run(t, "", append(strings.Fields("job create j --handler hello --now -o json"), s.as("client-ann")...)...)
		return code == 0 || strings.Contains(out, "JOB_EXISTS")
	})
	eventually(t, 20*time.Second, "its slot succeeded", func() bool {
		out, _ := run(t, "", append(strings.Fields("slot list"), s.as("client-ann")...)...)
		return strings.Contains(out, "SUCCEEDED")
	})
	// The same by the environment.
	cmd := exec.Command(binary, "job", "list")
	cmd.Env = append(os.Environ(), "CARILLON_ADDRESS="+s.grpc, "CARILLON_TLS_CA="+s.file("ca.crt"), "CARILLON_TLS_CERT="+s.file("client-ann.crt"), "CARILLON_TLS_KEY="+s.file("client-ann.key"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("by the environment: %v, %s", err, out)
	}
	theirs := filepath.Join(t.TempDir(), "theirs")
	makeCerts(t, theirs, "init", "client eve")
	for what, args := range map[string][]string{
		"no certificate":      s.as(""),
		"plain text":          {"--address", s.grpc},
		"another authority's": {"--address", s.grpc, "--tls-ca", s.file("ca.crt"), "--tls-cert", filepath.Join(theirs, "client-eve.crt"), "--tls-key", filepath.Join(theirs, "client-eve.key")},
		"trusts another one":  append(s.as("client-ann"), "--tls-ca", filepath.Join(theirs, "ca.crt")),
		"dials another name":  append(s.as("client-ann"), "--tls-name", "n2.internal"),
	} {
		if out, code := run(t, "", append([]string{"job", "list"}, args...)...); code != 1 {
			t.Errorf("%s: exit %d, %s", what, code, out)
		}
	}
	// A worker can't be another one than its certificate says.
	impostor := launch(t, exec.Command(binary, append([]string{"worker", "run", "--id", "w1", "--exec", "hello=" + program(t, "true")}, s.as("worker-w2")...)...))
	eventually(t, 20*time.Second, "the impostor is told", func() bool { return strings.Contains(impostor.logs.String(), `for the worker \"w2\", not for \"w1\"`) })
}

// A certificate that was replaced is shown to new connections, and the process goes on.
func TestACertificateThatIsReplaced(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	serial := func() string {
		pair, err := tls.LoadX509KeyPair(s.file("client-ann.crt"), s.file("client-ann.key"))
		if err != nil {
			t.Fatal(err)
		}
		var serials []string
		for _, address := range []string{s.grpc, s.http} {
			conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair}})
			if err != nil {
				t.Fatal(err)
			}
			serials = append(serials, conn.ConnectionState().PeerCertificates[0].SerialNumber.String())
			conn.Close()
		}
		return strings.Join(serials, " ")
	}
	first := strings.Fields(serial())
	makeCerts(t, s.dir, "node n1")
	eventually(t, 20*time.Second, "both listeners show the new one", func() bool {
		now := strings.Fields(serial())
		return now[0] != first[0] && now[1] == now[0]
	})
	if out, code := run(t, "", append([]string{"job", "list"}, s.as("client-ann")...)...); code != 0 {
		t.Errorf("exit %d, %s", code, out)
	}
	if err := os.WriteFile(s.file("node-n1.crt"), []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "a broken one is told", func() bool {
		serial()
		return strings.Contains(s.logs.String(), "can't be used")
	})
	if out, code := run(t, "", append([]string{"job", "list"}, s.as("client-ann")...)...); code != 0 {
		t.Errorf("with a broken file: exit %d, %s", code, out)
	}
	if err := s.kill(syscall.SIGTERM); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
}

func TestTheTLSCommands(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tls")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"tls node n1 --dir " + dir, 1, "tls init"},
		{"tls init", 2, "usage"},
		{"tls init " + dir, 0, "ca.key"},
		{"tls init " + dir, 1, "already"},
		{"tls node n1 --host a.internal --host 10.0.0.1 --dir " + dir, 0, "carillon://node/n1"},
		{"tls node n/1 --dir " + dir, 2, "NAME"},
		{"tls node n1 --host a/b --dir " + dir, 2, "--host"},
		{"tls worker w:1 --dir " + dir, 0, "carillon://worker/w:1"},
		{"tls worker w/1 --dir " + dir, 2, "ID"},
		{"tls client ann --days 1 --dir " + dir, 0, "nobody"},
		{"tls client ann --days 0 --dir " + dir, 2, "--days"},
		{"server --tls-ca x", 2, "--tls-client-ca"},
		{"job list --tls maybe", 2, "--tls must be on or off"},
		{"job list --tls off --tls-name x", 2, "--tls-name"},
		{"job list --tls-cert x", 2, "--tls-cert and CARILLON_TLS_KEY need each other"},
		{"job list --tls-ca /nowhere", 2, "/nowhere"},
		{"worker run --exec a=sh --tls-ca /nowhere", 2, "/nowhere"},
	} {
		if out, code := run(t, "", strings.Fields(c.args)...); code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("carillon %s: exit %d, want %d with %q: %s", c.args, code, c.code, c.says, out)
		}
	}
}

func TestTheConfigCommands(t *testing.T) {
	t.Parallel()
	file := write(t, "carillon.yaml", "store: sqlite:/tmp/x.db\ncapacity: 7\n")
	wrong := write(t, "wrong.yaml", "store: sqlite:/tmp/x.db\ncapacty: 7\nshards: 0\n")
	for _, c := range []struct {
		args string
		code int
		says []string
	}{
		{"config check --config " + file, 0, []string{"ok\n"}},
		{"config print --config " + file + " --node n1", 0, []string{"node: n1 # --node\n", "capacity: 7 # " + file + ":2\n"}},
		{"config check --config " + wrong, 2, []string{wrong + `:2: "capacty" is no setting; did you mean capacity?`, "shards (" + wrong + ":3): must be 1 to"}},
		{"server --config " + wrong, 2, []string{"capacty", "shards"}},
		{"config print", 2, []string{"store (not set)"}},
		{"config check x", 2, []string{"usage"}},
		{"config check --capacty 7", 2, []string{"unknown flag"}},
	} {
		out, code := run(t, "", strings.Fields(c.args)...)
		for _, says := range c.says {
			if code != c.code || !strings.Contains(out, says) {
				t.Errorf("carillon %s: exit %d, want %d with %q: %s", c.args, code, c.code, says, out)
			}
		}
	}
}
