#!/usr/bin/env bash
# Measures what docs/performance.md shows: each scenario some times on each store, and
# writes the results beside the table of their medians. Leave the machine alone meanwhile.
set -euo pipefail

bin=$1
out=$bin/baseline
runs=${RUNS:-3}
duration=${DURATION:-15s}
stores=${STORES:-sqlite postgres}

mkdir -p "$out"
number=10
measure() {
  for store in $stores; do
    file=$out/$number-$store.json
    number=$((number + 1))
    # A scenario that has no result leaves a gap in the table, and the others go on.
    "$bin/carillon" bench "$@" --store "$store" --runs "$runs" --duration "$duration" --json "$file" || echo "no result: $* on $store" >&2
  done
}

rm -f "$out"/*.json
for rate in 1000 2000 5000 10000; do
  measure steady --rate "$rate"
done
measure burst --burst 10000
measure burst --burst 50000 --rate 2000 --warmup 8s
measure immediate
measure immediate --via rest
measure create
measure create --via batch
measure create --via stream

"$bin/carillon" bench table "$out"/*.json | tee "$out/table.md"
