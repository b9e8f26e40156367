#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh - what `./dev demo` shows: a machine, a training job that loses a rank and goes on, a verified
# checkpoint and a measured allreduce. Everything is built; the last line is `demo: ok`.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
dtp=$PWD/build/tools/dtp
work=$(mktemp -d /tmp/dtp-demo-XXXXXX)
run_dir=$work/run ckpt=$work/ckpt out=$work/out
job=

finish() {
    [ -z "$job" ] || { kill "$job" && wait "$job"; } 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

step() { printf '\n--- %s\n' "$*"; }
fail() { printf 'demo: failed: %s\n' "$*" >&2; exit 1; }
said() { grep -qF -- "$1" "$out"; }

# Waits until the job has printed a text; a job that ends before has failed.
await() {
    until said "$1"; do
        kill -0 "$job" 2>/dev/null || fail "the job ended before it said '$1'"
        sleep 0.02
    done
}

step "dtp topo"
"$dtp" topo

step "dtp run -n 4 --max-restarts 3 --min-ranks 2 --ckpt $ckpt -- python docs/examples/train_digits.py 300 0.01"
: >"$out"
PYTHONPATH=$PWD/build/bindings/python "$dtp" run -n 4 --max-restarts 3 --min-ranks 2 --ckpt "$ckpt" --run-dir "$run_dir" \
    --name digits -- .venv/bin/python docs/examples/train_digits.py 300 0.01 > >(tee -a "$out") 2>&1 &
job=$!
await "step 130 "
pid=$("$dtp" ps --pids --run-dir "$run_dir" digits | awk '$1 == 2 { print $2 }')
[ -n "$pid" ] || fail "dtp ps names no process for rank 2"
printf -- '--- kill -9 %s (rank 2)\n' "$pid"
kill -9 "$pid"
rc=0
wait "$job" || rc=$?
job=
[ $rc = 0 ] || fail "dtp run ended with $rc"
for _ in $(seq 100); do said "test accuracy" && break; sleep 0.1; done      # the last lines pass through tee
said "rank 2 of 4 killed by signal 9 (attempt 0)" || fail "the dead rank was not named"
said "attempt 1 starts with 3 ranks" || fail "the second attempt was not told"
accuracy=$(sed -n 's/.*test accuracy \([0-9.]*\).*/\1/p' "$out")
awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.95) }' || fail "test accuracy '$accuracy' is below 0.95"

step "dtp ckpt verify $ckpt"
"$dtp" ckpt ls "$ckpt" | tail -n 3
"$dtp" ckpt verify "$ckpt"

step "dtp-bench allreduce -n 4 -b 1K -e 64M"
build/bench/dtp-bench allreduce -n 4 -b 1K -e 64M

printf '\ndemo: ok\n'
