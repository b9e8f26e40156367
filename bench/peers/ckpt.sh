#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# ckpt.sh - `bench/peers.sh ckpt`: saves and loads of libdtp beside torch.distributed.checkpoint, safetensors,
# torch.save and zipnn, in turns, in one run.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
root=$(dirname "$(dirname "$here")")
build=${DTP_BUILD:-$root/build}
work=$build/peers
dir=/dev/shm size=1G rounds=3 turns=2 limit=300 json= only=

usage() {
    cat <<'TEXT'
usage: bench/peers.sh ckpt [OPTIONS]

Runs dtp-bench ckpt and every peer that is found, in turns: saves and loads with 4 and 8 ranks and loads by half
of them, cut the other way, beside torch.distributed.checkpoint; saves and loads with 2 ranks beside safetensors
and torch.save; the codec beside zipnn on one core. Prints rates and how many times faster libdtp is. Peers come
from a python that has them (.venv, or TORCH_PYTHON).

options:
  --dir DIR     where files go (default /dev/shm)
  -s SIZE       bytes of a state, K M G are 1024s (default 1G)
  -r N          rounds of each call that count (default 3)
  --turns N     calls of each; of all the median counts (default 2)
  -t S          seconds after which a peer's call is cut off (default 300)
  --only LIST   comma-separated peers: dcp,safetensors,torch,zipnn
  --json FILE   where the figures go as JSON Lines (default build/peers/ckpt.jsonl)
  -h, --help    this text
TEXT
}
say() { printf 'peers: %s\n' "$*" >&2; }
die() { printf 'peers: %s\n' "$*" >&2; exit 2; }

while [ $# -gt 0 ]; do
    case $1 in
        -h | --help) usage; exit 0 ;;
        --dir | -s | -r | --turns | -t | --only | --json) [ $# -gt 1 ] || die "$1 needs a value" ;;
        *) die "'$1' is no option (bench/peers.sh ckpt --help)" ;;
    esac
    case $1 in
        --dir) dir=$2 ;;
        -s) size=$2 ;;
        -r) rounds=$2 ;;
        --turns) turns=$2 ;;
        -t) limit=$2 ;;
        --only) only=$2 ;;
        --json) json=$2 ;;
    esac
    shift 2
done
case $size in
    *K) bytes=$((${size%K} << 10)) ;; *M) bytes=$((${size%M} << 20)) ;; *G) bytes=$((${size%G} << 30)) ;; *) bytes=$size ;;
esac
[ -x "$build/bench/dtp-bench" ] || die "$build/bench/dtp-bench is missing: ./dev build first"
[ -d "$dir" ] || die "$dir is no folder"
mkdir -p "$work"
json=${json:-$work/ckpt.jsonl}

declare -A python_of            # peer -> python that has it
find_python() {                 # peer, what it imports
    local py
    [ -z "$only" ] || [[ ",$only," == *",$1,"* ]] || return 0
    for py in ${TORCH_PYTHON:-} "$root/.venv/bin/python" python3; do
        if "$py" -c "import $2" >/dev/null 2>&1; then
            python_of[$1]=$py
            return 0
        fi
    done
    say "$1: no python has it (./dev setup --with torch; pip install $1; or TORCH_PYTHON=...)"
}
find_python dcp torch.distributed.checkpoint
find_python safetensors torch,safetensors.torch
find_python torch torch
find_python zipnn torch,zipnn,numpy

lines=$work/lines.jsonl
: >"$lines"
ours() { "$build/bench/dtp-bench" ckpt "$@" --format json >>"$lines"; }
peer() {                        # peer, script and arguments
    local name=$1
    shift
    [ -n "${python_of[$name]:-}" ] || return 0
    if ! timeout -k 5 "$limit" "${python_of[$name]}" "$here/$1" "${@:2}" >>"$lines" 2>"$work/$name.err" </dev/null; then
        say "$name: cut off or failed (see $work/$name.err)"
    fi
}
beside() {                      # op, ranks, ranks that load, peers
    local op=$1 ranks=$2 to=$3 name
    say "$op, $ranks ranks: libdtp ${*:4}"
    ours "$op" --dir "$dir" --ranks "$ranks" --to "$to" --size "$size" --rounds "$rounds"
    for name in "${@:4}"; do
        peer "$name" torch_ckpt.py "$op" "$name" "$dir" "$ranks" "$to" "$bytes" "$rounds"
    done
}
for ((turn = 1; turn <= turns; turn++)); do
    say "turn $turn of $turns"
    for op in save load; do
        beside $op 4 4 dcp
        beside $op 8 8 dcp
        beside $op 2 2 safetensors torch
    done
    beside reshard 4 2 dcp
    beside reshard 8 4 dcp
    for type in bf16 f32 adam-m adam-v; do
        ours codec --type $type --size 64M --rounds "$rounds"
        peer zipnn zipnn_codec.py $type $((64 << 20)) "$rounds"
    done
done
python3 "$here/report_ckpt.py" --json "$json" <"$lines"
say "figures: $json"
