#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# munged.sh - runs test_munge with a munged of its own, in a folder of its own. Skipped where there is none.
set -eu
exe=$1 pid=
munged=$(command -v munged || echo /usr/sbin/munged)
[ -x "$munged" ] || { echo "skipped: munged is not installed"; exit 77; }
dir=$(mktemp -d /tmp/dtp-munged.XXXXXX)
trap 'kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null || true; rm -rf "$dir"' EXIT
chmod 755 "$dir"
mkdir -m 755 "$dir/run"
dd if=/dev/urandom of="$dir/key" bs=1024 count=1 2>/dev/null
chmod 400 "$dir/key"
# --force: a folder below /tmp is not the root's alone.
"$munged" --force --foreground --key-file="$dir/key" --socket="$dir/run/socket" --pid-file="$dir/run/pid" \
    --seed-file="$dir/seed" --log-file="$dir/log" --num-threads=2 2>"$dir/err" &
pid=$!
for _ in $(seq 100); do
    [ -S "$dir/run/socket" ] && break
    kill -0 "$pid" 2>/dev/null || { cat "$dir/err" "$dir/log" 2>/dev/null; echo "skipped: munged does not start here"; exit 77; }
    sleep 0.05
done
"$exe" "$dir/run/socket"
