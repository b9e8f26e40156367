#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# example_checkpoint.sh EXAMPLE - the example alone, as two ranks, and alone again: each goes on with what
# the one before saved.
set -eu
secret=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
example=$1

rank() {
    DTP_JOB="example-$$" DTP_RANK=$1 DTP_WORLD_SIZE=2 DTP_SECRET=$secret DTP_TIMEOUT_MS=20000 "$example" "$dir/ckpts"
}
expect() {
    [ "$1" = "$2" ] || { echo "said '$1' instead of '$2'"; exit 1; }
}
expect "$(env -u DTP_RANK "$example" "$dir/ckpts")" "rank 0 of 1: step 1, weight 1"
rank 1 >"$dir/out" 2>&1 &
expect "$(rank 0)" "rank 0 of 2: step 2, weight 2"
wait $!
expect "$(cat "$dir/out")" "rank 1 of 2: step 2, weight 2"
expect "$(env -u DTP_RANK "$example" "$dir/ckpts")" "rank 0 of 1: step 3, weight 3"
! env -u DTP_RANK "$example" /dev/null/ckpts 2>"$dir/out" || { echo "saved into no folder"; exit 1; }
grep -q "^checkpoint: .*/dev/null/ckpts: Not a directory$" "$dir/out" || { cat "$dir/out"; exit 1; }
