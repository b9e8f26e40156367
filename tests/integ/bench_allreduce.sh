#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench_allreduce.sh DTP_BENCH - smoke test: runs, verifies, says it in both formats, refuses nonsense.
set -eu
bench=$1
fail() { echo "bench_allreduce: $*" >&2; exit 1; }

out=$("$bench" allreduce -n 2 -b 8 -e 256K -f 64 -i 3)
echo "$out" | grep -q '^# Out of bounds values : 0 OK$' || fail "no summary in: $out"
echo "$out" | grep -q '^# Avg bus bandwidth' || fail "no bandwidth in: $out"
[ "$(echo "$out" | grep -vc '^#')" = 3 ] || fail "not three rows in: $out"

for type in f64 f16 bf16 i64 i32 u8; do
    for op in sum avg prod; do
        out=$("$bench" allreduce -n 3 -b 4K -e 4K -d $type -o $op -i 1 --in-place --format json)
        echo "$out" | grep -q '"wrong":0,' || fail "$type $op: $out"
    done
done
out=$("$bench" allreduce -n 1 -b 1K -e 1K -i 1 --format json)
echo "$out" | grep -q '"ranks":1,.*"busbw_gb_per_s":0.00000,"wrong":0' || fail "alone: $out"

"$bench" allreduce --help | grep -q -- '--min-bytes' || fail "no help"
for bad in "-d c64" "-o mean" "-b 0" "-e 1" "-n 0" "-f 1" "--format xml" "--what" "word"; do
    rc=0
    "$bench" allreduce $bad >/dev/null 2>&1 || rc=$?
    [ $rc = 2 ] || fail "'$bad' gave exit code $rc"
done

says() {        # ARGUMENTS, TEXT: the line names what is wrong
    out=$("$bench" allreduce $1 2>&1 >/dev/null) || true
    [ "$out" = "dtp-bench allreduce: $2 (dtp-bench allreduce --help)" ] || fail "'$1' says: $out"
}
says "-n 0" "--ranks: '0' is not possible"
says "--op mean" "--op: 'mean' is not possible"
says "-n" "option -n needs a value"
says "-xn 2" "unknown option -x"

for args in "--help" "--version" "allreduce --help" "allreduce -n 2 -b 8 -e 8 -i 1"; do
    rc=0
    out=$("$bench" $args 2>&1 >/dev/full) || rc=$?
    [ "$rc $out" = "1 dtp-bench: cannot write the output: No space left on device" ] || fail "a full disk, '$args': $rc $out"
done
