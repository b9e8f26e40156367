#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# netns.sh - one group over two network namespaces with a veth pair between them: 2+2 and 3+1 ranks,
# control over tcp, over ucx and as it is chosen, data over ucx; the lane must be TCP over the pair.
#
# Collectives over both layouts give the bits of one machine.
#
#   netns.sh RANK_MAIN MODULE_DIR RANK_COLL
set -u
rank_main=$1 modules=$2 rank_coll=$3 program=$1
a=dtp-a-$$ b=dtp-b-$$
dir=$(mktemp -d)
pids=

skip() { echo "skipped: $1"; exit 77; }
fail() { echo "FAILED: $1"; tail -n +1 "$dir"/*; exit 1; }
cleanup() {
    for p in $pids; do kill -9 "$p" 2>/dev/null; done
    ip netns del $a 2>/dev/null
    ip netns del $b 2>/dev/null
    rm -rf "$dir"
}

[ "$(id -u)" = 0 ] || skip "network namespaces need root here"
command -v ip >/dev/null || skip "ip (iproute2) is not installed"
[ -e "$modules/net-ucx.so" ] || skip "UCX is not built in"
trap cleanup EXIT
ip netns add $a 2>"$dir/why" && ip netns add $b 2>>"$dir/why" || skip "no network namespaces: $(tail -1 "$dir/why")"
ip link add dtpva netns $a type veth peer name dtpvb netns $b 2>"$dir/why" || skip "no veth pairs: $(tail -1 "$dir/why")"
ip -n $a addr add 10.77.1.1/24 dev dtpva && ip -n $b addr add 10.77.1.2/24 dev dtpvb || exit 1
for ns in $a $b; do ip -n $ns link set lo up; done
ip -n $a link set dtpva up && ip -n $b link set dtpvb up || exit 1
for i in $(seq 100); do
    ip -n $a link show dtpva | grep -q "state UP" && ip -n $b link show dtpvb | grep -q "state UP" && break
    sleep 0.02
done
secret=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')

# start NAMESPACE RANK LOCAL_RANK LOCAL_SIZE MODE: a rank of 4.
start() {
    ip netns exec "$1" env DTP_JOB="$job" DTP_RANK="$2" DTP_WORLD_SIZE=4 DTP_LOCAL_RANK="$3" \
        DTP_LOCAL_SIZE="$4" DTP_ROOT=10.77.1.1:7400 DTP_SECRET="$secret" DTP_TIMEOUT_MS=20000 \
        DTP_NET="$net" UCX_HANDLE_ERRORS=none UCX_MEM_EVENTS=n \
        "$program" "$modules" "$5" >"$dir/$job.$2" 2>&1 &
    pids="$pids $!"
    last=$!
}

# group FIRST MODE: the first FIRST ranks in one namespace, the others in the other.
group() {
    pids=
    for r in 0 1 2 3; do
        if [ $r -lt "$1" ]; then start $a $r $r "$1" "$2"; else start $b $r $((r - $1)) $((4 - $1)) "$2"; fi
    done
}

n=0
for net in tcp ucx auto; do
    for first in 2 3; do
        n=$((n + 1)) job=netns-$$-$n
        group $first calls
        for p in $pids; do wait "$p" || fail "$net, $first + $((4 - first)): a rank failed"; done
        for r in 0 1 2 3; do
            grep -q "^rank $r: ok" "$dir/$job.$r" || fail "rank $r did not finish"
            grep -q "node . of 2$" "$dir/$job.$r" || fail "rank $r does not see two nodes"
            grep "^lane from" "$dir/$job.$r" | grep -q "is tcp/dtpv" || fail "rank $r: the lane is not tcp over the pair"
        done
        if [ $net = ucx ]; then
            [ "$(cat "$dir/$job".* | grep -c "control goes over UCX.*tcp/dtpv")" = 4 ] || fail "control did not go over UCX"
        else
            # By itself it stays away from a UCX that strangers can end, where there is no RDMA.
            grep -q "control goes over UCX" "$dir/$job".* && fail "$net: control went over UCX"
        fi
        echo "ok: $net, $first + $((4 - first)): $(grep -h '^lane from' "$dir/$job.1")"
    done
    # Who closes first serves the other machine for a little while.
    n=$((n + 1)) job=netns-$$-$n
    group 2 late
    for p in $pids; do wait "$p" || fail "$net: a rank did not find the last words"; done
    # A rank of the other machine dies: its name and node reach all.
    n=$((n + 1)) job=netns-$$-$n
    group 2 wait
    victim=$last
    for r in 0 1 2 3; do
        for i in $(seq 200); do grep -q "^rank $r of" "$dir/$job.$r" && break; sleep 0.05; done
    done
    kill -9 "$victim"
    for p in $pids; do [ "$p" = "$victim" ] || wait "$p" || fail "$net: a survivor failed"; done
    wait "$victim" 2>/dev/null
    for r in 0 1 2; do
        grep -q "^verdict: rank 3 of 4 (node .*) died" "$dir/$job.$r" || fail "rank $r does not name rank 3"
    done
    echo "ok: $net: $(grep -h '^verdict' "$dir/$job.0")"
done
# The same collectives on one machine, on 2 + 2, 3 + 1 and 1 + 3, control over TCP and UCX: every checksum
# is the same.
program=$rank_coll
for layout in 4:tcp 2:tcp 3:tcp 1:tcp 2:ucx 3:ucx; do
    first=${layout%:*} net=${layout#*:}
    n=$((n + 1)) job=netns-$$-$n
    group $first coll
    for p in $pids; do wait "$p" || fail "collectives, $first + $((4 - first)): a rank failed"; done
    for r in 0 1 2 3; do
        grep -q "^rank $r: ok" "$dir/$job.$r" || fail "rank $r did not finish its collectives"
        [ $first = 4 ] && one=$job
        grep "^bits" "$dir/$one.$r" >"$dir/want"
        grep "^bits" "$dir/$job.$r" | cmp -s - "$dir/want" ||
            fail "rank $r, $first + $((4 - first)): other bits than on one machine"
    done
    echo "ok: $net: collectives, $first + $((4 - first)): $(grep -c ^bits "$dir/want") results, $(grep -h ^mismatch "$dir/$job.0")"
done
echo "netns: ok"
