#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench_topo.sh DTP_BENCH - smoke test: ranks share a discovery, in both formats.
set -eu
bench=$1
fail() { echo "bench_topo: $*" >&2; exit 1; }

"$bench" topo -n 4 --rounds 1 | grep -q '^all ranks share one discovery' || fail "no row"
out=$("$bench" topo -n 3 --rounds 2 --format json)
echo "$out" | grep -q '"bench":"topo","ranks":3,"rounds":2,"one_ms":[0-9].*"ratio":[0-9]' || fail "json: $out"
for bad in "-n 0" "--rounds x" "--format xml" "--what" "word" "-n"; do
    rc=0
    "$bench" topo $bad >/dev/null 2>&1 || rc=$?
    [ $rc = 2 ] || fail "'$bad' gave exit code $rc"
done
