# Carillon. `make help` lists what there is.

GO      ?= go
BIN     := bin
TOOLS   := .bin
# Packages with concurrency of their own: tested with the race detector.
RACE    := ./engine ./controlplane/... ./coordinator/... ./internal/certs/... ./store/... ./workersdk/...

SHELL       := /bin/bash
.SHELLFLAGS := -o pipefail -c

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the binaries into bin/.
	$(GO) build -trimpath -o $(BIN)/carillon ./cmd/carillon
	$(GO) build -trimpath -o $(BIN)/demo ./loadtest/demo
	$(GO) build -trimpath -o $(BIN)/cluster ./loadtest/cluster
	$(GO) build -trimpath -o $(BIN)/failover ./loadtest/failover

.PHONY: demo
demo: build ## Run jobs, kill the server, watch it make up for what was missed (DEMO_SECONDS=20).
	$(BIN)/demo --carillon $(BIN)/carillon

.PHONY: cluster
cluster: build ## Run three nodes, etcd, PostgreSQL and workers, to be played with, until Ctrl-C (CLUSTER_SECONDS=).
	store/cockroach/pgtest/install.sh
	CLUSTER_SECONDS=$(CLUSTER_SECONDS) $(BIN)/cluster --carillon $(BIN)/carillon

.PHONY: test
test: ## Run all tests; those of concurrent packages with the race detector. Installs PostgreSQL and MariaDB if they are missing.
	store/cockroach/pgtest/install.sh
	workersdk/internal/mysqltest/install.sh
	$(GO) build -o $(BIN)/testgate ./internal/testgate
	$(GO) test -json -timeout 10m $$($(GO) list ./... | grep -v -F -x -f <($(GO) list $(RACE))) | $(BIN)/testgate
	$(GO) test -json -timeout 10m -race -parallel 8 $(RACE) | $(BIN)/testgate
	cd loadtest/k6 && $(GO) test -json -timeout 10m -race . | ../../$(BIN)/testgate
	cd loadtest/wheelbench && $(GO) test -json -timeout 10m . | ../../$(BIN)/testgate

.PHONY: check
check: $(TOOLS)/stamp ## Check what tests don't: fresh generated files, lint, format, vet, breaking changes.
	$(TOOLS)/buf lint
	$(TOOLS)/buf breaking proto --against proto/released.binpb
	@$(MAKE) --no-print-directory generate
	git diff --exit-code -- proto docs/api
	@test -z "$$(git status --porcelain -- proto docs/api)" || { git status --short -- proto docs/api; echo "generated files are not committed"; exit 1; }
	@test -z "$$(gofmt -l $$(git ls-files '*.go' | grep -v '\.pb\.'))" || { gofmt -l $$(git ls-files '*.go' | grep -v '\.pb\.'); echo "not formatted: run gofmt -w"; exit 1; }
	@big=$$(git ls-files -z | xargs -0 sh -c 'find "$$@" -size +1024k' sh); test -z "$$big" || { echo "$$big"; echo "files above 1 MiB don't belong here"; exit 1; }
	$(GO) vet ./...
	$(TOOLS)/staticcheck ./...
	$(GO) mod verify
	$(GO) mod tidy -diff
	cd store/cockroach/parsecheck && $(GO) vet . && $(GO) test . && $(GO) mod tidy -diff
	cd loadtest/ghz/tool && $(GO) mod tidy -diff
	cd loadtest/k6 && $(GO) vet . && ../../$(TOOLS)/staticcheck . && $(GO) mod tidy -diff
	cd loadtest/wheelbench && $(GO) vet . && ../../$(TOOLS)/staticcheck . && $(GO) mod tidy -diff

.PHONY: generate
generate: $(TOOLS)/stamp ## Generate the Go code and the OpenAPI file of the API.
	$(TOOLS)/buf generate

.PHONY: bench
bench: ## Run the benchmarks of the hot rooms.
	$(GO) test -run '^$$' -bench . -benchmem ./engine/wheel ./job/schedule ./engine/core ./controlplane ./store/...

.PHONY: bench-rebuild
bench-rebuild: build ## Load a million recurring jobs into a node that starts, on PostgreSQL and on SQLite.
	$(BIN)/carillon bench recurring --idle-jobs 1000000 --duration 5s
	$(BIN)/carillon bench recurring --idle-jobs 1000000 --duration 5s --store sqlite

.PHONY: bench-wheel
bench-wheel: ## Compare the timing wheel with a heap, a B-tree and the runtime's timers (COUNTS=10000,1000000,10000000).
	cd loadtest/wheelbench && $(GO) run . -counts $(COUNTS)
COUNTS ?= 10000,1000000,10000000

.PHONY: bench-store
bench-store: ## Measure the fire path and the tables that were not chosen, with 20 million slots (STORE_FLAGS=).
	$(GO) run ./loadtest/storebench $(STORE_FLAGS)

.PHONY: baseline
baseline: build ## Measure what docs/performance.md shows, in about 40 min; the table is bin/baseline/table.md.
	loadtest/baseline.sh $(BIN)

.PHONY: profile
profile: build ## Show where the time of a scenario goes (SCENARIO="steady --rate 5000").
	rm -rf $(BIN)/profile
	$(BIN)/carillon bench $(SCENARIO) --profiles $(BIN)/profile
	$(GO) tool pprof -top -nodecount 30 $(BIN)/profile/node.pprof
	$(GO) tool pprof -top -nodecount 15 $(BIN)/profile/worker.pprof
	@cat $(BIN)/profile/statements.txt 2>/dev/null || true
SCENARIO ?= steady --rate 5000

.PHONY: fuzz
fuzz: ## Run each fuzz target for a minute (FUZZTIME=60s).
	$(GO) test -run '^$$' -fuzz FuzzParseCron -fuzztime $(FUZZTIME) ./job/schedule
	$(GO) test -run '^$$' -fuzz FuzzNewCalendar -fuzztime $(FUZZTIME) -fuzzminimizetime 20x ./job/schedule
	$(GO) test -run '^$$' -fuzz FuzzWheel -fuzztime $(FUZZTIME) -fuzzminimizetime 20x ./engine/wheel
	$(GO) test -run '^$$' -fuzz FuzzFiles -fuzztime $(FUZZTIME) -fuzzminimizetime 20x ./controlplane/calendarfile
	$(GO) test -run '^$$' -fuzz FuzzTheFile -fuzztime $(FUZZTIME) -fuzzminimizetime 20x ./controlplane/config
	$(GO) test -run '^$$' -fuzz FuzzMarshaler -fuzztime $(FUZZTIME) ./controlplane/jsonmap
FUZZTIME ?= 60s

.PHONY: ghz
ghz: build $(TOOLS)/ghz ## Load a Carillon of its own by ghz, and fail unless every call was answered (GHZ_SECONDS=3).
	$(GO) build -trimpath -o $(BIN)/ghz-scenarios ./loadtest/ghz
	GHZ_SECONDS=$(GHZ_SECONDS) $(BIN)/ghz-scenarios --carillon $(BIN)/carillon --ghz $(TOOLS)/ghz
GHZ_SECONDS ?= 3

.PHONY: histories
histories: ## Test a shard against many random histories (SEEDS=10000).
	CARILLON_HISTORY_SEEDS=$(SEEDS) $(GO) test -run TestRandomHistories -timeout 60m ./engine/core
SEEDS ?= 10000

.PHONY: faults
faults: ## Treat a server's database badly, for longer than make test does (FAULT_SECONDS=60).
	CARILLON_FAULT_SECONDS=$(FAULT_SECONDS) $(GO) test -count 1 -timeout 20m -run 'TestADatabaseThatIsTreatedBadly|TestAFullDisk' -v ./cmd/carillon
FAULT_SECONDS ?= 60

.PHONY: failover
failover: build ## Break clusters under load, for about an hour; goes on where it ended (FAILOVER_FLAGS="--rounds kill").
	store/cockroach/pgtest/install.sh
	status=0; $(BIN)/failover --carillon $(BIN)/carillon --results $(BIN)/failover.jsonl $(FAILOVER_FLAGS) || status=$$?; \
	$(BIN)/failover --results $(BIN)/failover.jsonl table; exit $$status

.PHONY: sim
sim: $(BIN)/sim ## Play a cluster's disasters in simulated time, seed by seed (SEED=1 RUNS=1000 SIM_FLAGS="-sim.coverage").
	$(BIN)/sim -sim.seed $(SEED) -sim.runs $(RUNS) $(SIM_FLAGS)
SEED ?= 1
RUNS ?= 1000

.PHONY: sim-long
sim-long: $(BIN)/sim ## Play 100,000 seeds; goes on where it ended (LONG_RUNS=100000). bin/sim-long.jsonl has the results.
	$(BIN)/sim -sim.runs $(LONG_RUNS) -sim.results $(BIN)/sim-long.jsonl -sim.coverage $(SIM_FLAGS)
LONG_RUNS ?= 100000

.PHONY: sim-guards
sim-guards: ## Take out one guard after the other, and see that a seed of the simulation fails.
	$(GO) test -tags guards -timeout 60m -v ./loadtest/sim/guards

# A simulation is a test's binary in which the runtime leaves nothing to chance. It is always built: the go
# command knows best whether anything has changed.
.PHONY: $(BIN)/sim
$(BIN)/sim:
	$(GO) run ./loadtest/sim/replay $(TOOLS)/replay
	$(GO) test -c -tags replay -overlay $(TOOLS)/replay/overlay.json -o $@ ./loadtest/sim

.PHONY: clean
clean: ## Remove what was built.
	rm -rf $(BIN) $(TOOLS)

# The tools are pinned in a module of their own; compiling them takes some
# minutes the first time.
$(TOOLS)/stamp: tools/go.mod tools/go.sum
	cd tools && $(GO) build -o ../$(TOOLS)/ tool
	touch $@

# ghz is pinned apart from the tools, which are wanted more often.
$(TOOLS)/ghz: loadtest/ghz/tool/go.mod loadtest/ghz/tool/go.sum
	cd loadtest/ghz/tool && $(GO) build -o ../../../$(TOOLS)/ghz github.com/bojand/ghz/cmd/ghz
	touch $@
