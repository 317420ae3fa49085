// Package carillon_test holds the law of imports: the tree is the architecture,
// and imports go down only.
package carillon_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/carillon-scheduler/carillon/"

// law says for each package which packages of this module its code may import,
// tests apart, and which modules of others. "std" alone means: none of others.
var law = map[string]struct {
	ours   []string
	others []string
}{
	// Leaves: what things are.
	"internal/intern": {},
	// Ports for programs that a test or a small site starts.
	"internal/freeport": {},
	// Certificates in files, for all who connect or listen; and what makes them for tests and small sites.
	"internal/certs":           {others: []string{"google.golang.org/grpc"}},
	"internal/certs/authority": {ours: []string{"internal/certs"}},
	"job/schedule":             {ours: []string{"internal/intern"}},
	"shard":                    {},
	"job":                      {ours: []string{"job/schedule", "shard"}},

	// Contracts, and the adapters that keep them.
	"store":           {ours: []string{"job", "shard"}},
	"store/storetest": {ours: []string{"store", "job", "job/schedule", "shard"}, others: []string{"github.com/google/go-cmp"}},
	"store/storekit":  {ours: []string{"store", "job", "shard"}},
	"store/sqlite":    {ours: []string{"store", "store/storekit", "job", "shard"}, others: []string{"modernc.org/sqlite"}},
	"store/cockroach": {ours: []string{"store", "store/storekit", "job", "shard"}, others: []string{"github.com/jackc/pgx/v5",
		"github.com/cockroachdb/cockroach-go/v2", "github.com/pressly/goose/v3"}},
	"store/cockroach/pgtest":      {others: []string{"github.com/jackc/pgx/v5"}},
	"store/storefault":            {ours: []string{"store", "job", "shard"}},
	"coordinator":                 {ours: []string{"shard"}},
	"coordinator/solo":            {ours: []string{"coordinator", "shard"}},
	"coordinator/etcd":            {ours: []string{"coordinator", "shard"}, others: []string{"go.etcd.io/etcd/api/v3", "go.etcd.io/etcd/client/v3", "go.uber.org/zap"}},
	"coordinator/coordinatortest": {ours: []string{"coordinator", "shard"}},
	"coordinator/etcd/etcdtest":   {ours: []string{"coordinator/etcd", "internal/freeport"}, others: []string{"go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/server/v3"}},
	"coordinator/etcdserver":      {others: []string{"go.etcd.io/etcd/client/pkg/v3", "go.etcd.io/etcd/server/v3"}},

	// The heart.
	"engine/wheel": {},
	"engine/core":  {ours: []string{"engine/wheel", "internal/intern", "store", "job", "job/schedule", "shard"}},
	"engine/clock": {ours: []string{"job"}},
	"engine":       {ours: []string{"engine/clock", "engine/core", "store", "coordinator", "job", "shard"}, others: []string{"golang.org/x/sync"}},

	// What listens.
	"proto/carillon/v1": {others: []string{"google.golang.org/protobuf", "google.golang.org/grpc", "google.golang.org/genproto/googleapis",
		"github.com/grpc-ecosystem/grpc-gateway/v2"}},
	"controlplane/jsonmap":      {ours: []string{"proto/carillon/v1"}, others: []string{"google.golang.org/protobuf", "github.com/grpc-ecosystem/grpc-gateway/v2"}},
	"controlplane/calendarfile": {ours: []string{"job/schedule"}, others: []string{"github.com/arran4/golang-ical", "github.com/teambition/rrule-go"}},
	"controlplane/jobspec":      {ours: []string{"proto/carillon/v1", "job", "job/schedule"}, others: []string{"google.golang.org/protobuf"}},
	"controlplane/chaos":        {ours: []string{"proto/carillon/v1"}, others: []string{"google.golang.org/grpc"}},
	"controlplane/config":       {ours: []string{"internal/certs", "job", "shard"}, others: []string{"github.com/spf13/pflag", "go.yaml.in/yaml/v3"}},
	"controlplane/jobfile":      {ours: []string{"controlplane/jsonmap", "job", "proto/carillon/v1"}, others: []string{"go.yaml.in/yaml/v3"}},
	"controlplane": {
		ours: []string{"controlplane/calendarfile", "controlplane/jobspec", "controlplane/jsonmap", "internal/certs", "proto/carillon/v1", "coordinator", "engine", "engine/clock", "engine/core", "store", "job", "job/schedule", "shard"},
		others: []string{"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis", "golang.org/x/sync",
			"github.com/grpc-ecosystem/grpc-gateway/v2", "github.com/prometheus/client_golang", "github.com/google/uuid"},
	},

	// What users embed: the generated code, and the leaf that reads certificates.
	"workersdk": {ours: []string{"internal/certs", "proto/carillon/v1"}, others: []string{"google.golang.org/grpc", "google.golang.org/protobuf",
		"github.com/cenkalti/backoff/v5", "github.com/google/uuid"}},

	"workersdk/aesgcm":  {},
	"workersdk/tracing": {ours: []string{"workersdk"}, others: []string{"go.opentelemetry.io/otel"}},

	// The test kit runs a whole server.
	"workersdk/workersdktest": {ours: []string{"controlplane", "controlplane/chaos", "controlplane/jobfile", "controlplane/jobspec", "coordinator/solo", "engine",
		"job", "job/schedule", "proto/carillon/v1", "store/sqlite", "workersdk"}, others: []string{"google.golang.org/grpc", "google.golang.org/protobuf"}},

	// Effects and jobs in the user's own transactions. Drivers are named by what adapts them, and by test kits.
	"workersdk/once":         {ours: []string{"workersdk/internal/sqltext"}},
	"workersdk/once/oncepgx": {ours: []string{"workersdk/internal/pgxtx", "workersdk/once"}, others: []string{"github.com/jackc/pgx/v5"}},
	// What a node would refuse in any case is refused before the user commits: by the node's own checks, which are pure.
	"workersdk/outbox": {ours: []string{"controlplane/jobspec", "job", "proto/carillon/v1", "workersdk/internal/sqltext"},
		others: []string{"google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc",
			"github.com/cenkalti/backoff/v5", "golang.org/x/sync"}},
	"workersdk/outbox/outboxpgx":   {ours: []string{"workersdk/internal/pgxtx", "workersdk/outbox"}, others: []string{"github.com/jackc/pgx/v5"}},
	"workersdk/internal/sqltext":   {},
	"workersdk/internal/pgxtx":     {ours: []string{"workersdk/internal/sqltext"}, others: []string{"github.com/jackc/pgx/v5"}},
	"workersdk/internal/oncetest":  {ours: []string{"workersdk/internal/sqltext", "workersdk/once"}},
	"workersdk/internal/mysqltest": {others: []string{"github.com/go-sql-driver/mysql"}},
	"workersdk/internal/sqltest": {ours: []string{"store/cockroach/pgtest", "workersdk/internal/mysqltest", "workersdk/internal/sqltext"},
		others: []string{"github.com/jackc/pgx/v5", "go.uber.org/goleak", "modernc.org/sqlite"}},

	// Handlers that need no code. What a result may be is for the server's own check to say, which is pure.
	"workersdk/httprun": {ours: []string{"job", "workersdk"}, others: []string{"golang.org/x/net/http/httpguts"}},
	"workersdk/execrun": {ours: []string{"job", "workersdk"}, others: []string{"golang.org/x/sys/unix"}},

	// Programs: only they name adapters.
	"cmd/carillon": {
		ours: []string{"loadtest/bench", "loadtest/capacity", "loadtest/workload", "internal/again", "controlplane", "controlplane/calendarfile", "controlplane/chaos", "controlplane/config", "controlplane/jobfile", "controlplane/jobspec", "controlplane/jsonmap", "coordinator", "coordinator/etcd", "coordinator/etcdserver", "coordinator/solo", "engine", "engine/clock", "internal/certs", "internal/certs/authority", "job", "job/schedule", "proto/carillon/v1", "shard", "store", "store/cockroach", "store/sqlite",
			"workersdk", "workersdk/execrun", "workersdk/httprun"},
		others: []string{"github.com/spf13/cobra", "github.com/spf13/pflag", "google.golang.org/grpc", "google.golang.org/protobuf", "google.golang.org/genproto/googleapis/rpc"},
	},
	"loadtest/capacity": {},
	"loadtest/process":  {},
	"loadtest/workload": {ours: []string{"loadtest/checker", "store", "job", "workersdk"}, others: []string{"golang.org/x/sync"}},
	"loadtest/bench": {ours: []string{"internal/freeport", "loadtest/checker", "loadtest/process", "loadtest/workload", "store", "store/cockroach/pgtest", "job", "shard", "proto/carillon/v1"},
		others: []string{"google.golang.org/grpc", "google.golang.org/protobuf", "github.com/HdrHistogram/hdrhistogram-go",
			"github.com/jackc/pgx/v5", "golang.org/x/sync"}},
	// A whole cluster as processes, what breaks it, and what shows it.
	"loadtest/site": {ours: []string{"internal/again", "internal/freeport", "loadtest/process", "proto/carillon/v1", "store/cockroach/pgtest"},
		others: []string{"go.etcd.io/etcd/client/v3", "go.uber.org/zap", "golang.org/x/sync", "golang.org/x/sys/unix", "google.golang.org/grpc"}},
	"loadtest/cluster": {ours: []string{"loadtest/site", "workersdk"}},
	"loadtest/failover": {ours: []string{"job", "loadtest/checker", "loadtest/process", "loadtest/site", "loadtest/workload", "proto/carillon/v1", "shard", "store", "store/cockroach", "store/cockroach/pgtest"},
		others: []string{"github.com/HdrHistogram/hdrhistogram-go", "github.com/jackc/pgx/v5", "golang.org/x/sync", "google.golang.org/grpc", "google.golang.org/protobuf"}},
	"loadtest/storebench": {ours: []string{"loadtest/process", "store", "store/cockroach", "store/cockroach/pgtest", "store/sqlite", "job", "shard"},
		others: []string{"github.com/jackc/pgx/v5", "golang.org/x/sync"}},
	"loadtest/sandbox":  {ours: []string{"loadtest/process", "proto/carillon/v1"}, others: []string{"google.golang.org/grpc"}},
	"loadtest/ghz":      {ours: []string{"loadtest/process", "loadtest/sandbox", "proto/carillon/v1"}, others: []string{"google.golang.org/protobuf"}},
	"loadtest/demo":     {ours: []string{"internal/freeport", "loadtest/process", "proto/carillon/v1", "workersdk"}, others: []string{"google.golang.org/grpc", "google.golang.org/protobuf"}},
	"loadtest/checker":  {ours: []string{"store", "job", "shard"}},
	"internal/testgate": {},
	// The database of a simulation.
	// A cluster in simulated time: what is real runs as it is, and what isn't is a model.
	"loadtest/sim": {ours: []string{"controlplane", "coordinator/etcd", "engine", "engine/clock", "engine/core", "internal/again", "job", "loadtest/checker", "loadtest/sim/dice", "loadtest/sim/model", "loadtest/sim/simetcd", "loadtest/sim/simnet",
		"proto/carillon/v1", "shard", "store", "workersdk"}, others: []string{"go.etcd.io/etcd/client/v3", "google.golang.org/grpc", "google.golang.org/protobuf", "github.com/anishathalye/porcupine"}},
	"loadtest/sim/dice":    {},
	"loadtest/sim/replay":  {},
	"loadtest/sim/guards":  {},
	"loadtest/sim/simnet":  {ours: []string{"loadtest/sim/dice"}},
	"loadtest/sim/simetcd": {ours: []string{"loadtest/sim/dice", "loadtest/sim/simnet"}, others: []string{"go.etcd.io/etcd/api/v3", "go.etcd.io/etcd/client/v3", "google.golang.org/grpc"}},
	"loadtest/sim/model":   {ours: []string{"store", "store/storekit", "job", "shard"}},
	// How callers treat a cluster in which shards move.
	"internal/again": {ours: []string{"proto/carillon/v1"}, others: []string{"github.com/google/uuid", "google.golang.org/grpc", "google.golang.org/genproto/googleapis/rpc"}},
}

func TestImportsGoDown(t *testing.T) {
	seen := map[string]bool{}
	for file, imports := range sources(t) {
		dir := path.Dir(file)
		rule, listed := law[dir]
		if !listed {
			t.Errorf("package %s is not in the law of imports: say what it may import", dir)
			continue
		}
		seen[dir] = true
		for _, imported := range imports {
			if ours, ok := strings.CutPrefix(imported, module); ok {
				if !slices.Contains(rule.ours, ours) {
					t.Errorf("%s imports %s, which %s may not", file, ours, dir)
				}
			} else if strings.Contains(strings.Split(imported, "/")[0], ".") && !under(imported, rule.others) {
				t.Errorf("%s imports %s, which %s may not", file, imported, dir)
			}
		}
	}
	for dir := range law {
		if !seen[dir] {
			t.Errorf("the law of imports lists %s, which is not there", dir)
		}
	}
}

func under(imported string, modules []string) bool {
	return slices.ContainsFunc(modules, func(m string) bool {
		return imported == m || strings.HasPrefix(imported, m+"/")
	})
}

// sources lists the imports of every Go file but tests.
func sources(t *testing.T) map[string][]string {
	files := map[string][]string{}
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(name, ".") && name != "." || name == "tools" || name == "bin") {
			return fs.SkipDir
		}
		if _, err := os.Stat(filepath.Join(name, "go.mod")); d.IsDir() && name != "." && err == nil {
			return fs.SkipDir // a module of its own
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		imports := []string{}
		for _, i := range f.Imports {
			imported, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			imports = append(imports, imported)
		}
		files[filepath.ToSlash(name)] = imports
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
