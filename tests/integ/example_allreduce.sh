#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# example_allreduce.sh EXAMPLE - the example, as two ranks and alone.
set -eu
secret=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
out=$(mktemp)
trap 'rm -f "$out" "$out.1"' EXIT

rank() {
    DTP_JOB="example-$$" DTP_RANK=$1 DTP_WORLD_SIZE=2 DTP_SECRET=$secret DTP_TIMEOUT_MS=20000 "$example"
}
example=$1
rank 1 >"$out.1" 2>&1 &
rank 0 >"$out"
wait $!
cat "$out.1" >>"$out"
for r in 0 1; do
    grep -q "^rank $r of 2: sum of ranks is 1$" "$out" && grep -q "^rank $r of 2: average of sums is 1$" "$out" ||
        { echo "wrong:"; cat "$out"; exit 1; }
done
env -u DTP_RANK "$example" | grep -q "^rank 0 of 1: sum of ranks is 0$"
