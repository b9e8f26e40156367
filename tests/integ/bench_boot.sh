#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench_boot.sh DTP_BENCH - smoke test: gangs of one and of several nodes stand, in both formats; few descriptors.
set -eu
bench=$1
fail() { echo "bench_boot: $*" >&2; exit 1; }

out=$("$bench" boot -n 8 -r 2)
[ "$(echo "$out" | grep -vc '^#')" = 2 ] || fail "not two rows in: $out"
for args in "-n 2" "-n 7 --nodes 3" "-n 12 --nodes 12"; do
    out=$("$bench" boot $args --format json)
    echo "$out" | grep -q '"bench":"boot",.*"simulated":false,"total_ms":[0-9]' || fail "'$args': $out"
    fds=$(echo "$out" | sed 's/.*"max_fds":\([0-9]*\).*/\1/')
    [ "$fds" -ge 4 ] && [ "$fds" -le 8 ] || fail "'$args': a rank has $fds descriptors"
done

out=$("$bench" boot -n 64 --format json)
fds=$(echo "$out" | sed 's/.*"agent_fds":\([0-9]*\).*/\1/')
[ "$fds" -ge 128 ] && [ "$fds" -le $((4 * 64 + 16)) ] || fail "a launcher of 64 ranks has $fds descriptors"

out=$("$bench" boot --simulate 256 --radix 4 --seed 3 --format json)
echo "$out" | grep -q '"ranks":256,"nodes":32,"radix":4,"simulated":true,' || fail "simulated: $out"
echo "$out" | grep -q '"max_fds":13,"agent_fds":13,' || fail "not 8 ranks, 4 children and a parent: $out"
[ "$("$bench" boot --simulate 96 --missing 2 --timeout 1000 --format json 2>&1 >/dev/null)" = \
    "dtp-bench boot: ranks 0, 48 of 96 (nodes n0, n6) never joined" ] || fail "missing ranks are not named"

out=$("$bench" boot -n 16 --nodes 4 --radix 2 --lose 25 --format json)
echo "$out" | grep -q '"lost":4,"reform_ms":[0-9]' || fail "not re-formed: $out"

"$bench" boot --help | grep -q -- '--nodes' || fail "no help"
for bad in "-n 1" "-n 2 --nodes 3" "--radix 0" "--latency-us x" "--simulate 8 --missing 8" \
           "-n 8 --missing 1" "-n 8 --ppn 4" "--gbps 1" "--radix 33" "--simulate 8 --lose 25" \
           "-r 0" "--format xml" "--what" "word"; do
    rc=0
    "$bench" boot $bad >/dev/null 2>&1 || rc=$?
    [ $rc = 2 ] || fail "'$bad' gave exit code $rc"
done
