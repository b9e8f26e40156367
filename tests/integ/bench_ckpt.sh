#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench_ckpt.sh DTP_BENCH - smoke test: small states come back, in both formats, and nothing is left behind.
set -eu
bench=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "bench_ckpt: $*" >&2; exit 1; }

"$bench" ckpt save --dir "$dir" --size 1M --rounds 1 | grep -q '^ *save  *2  *1048576 ' || fail "no row of save"
out=$("$bench" ckpt load --dir "$dir" --size 3M --tensor 1M --ranks 3 --rounds 2 --codec planes --format json)
echo "$out" | grep -q '"bench":"ckpt","op":"load","ranks":3,.*"gb_per_s":[0-9].*"cache":"cold"' || fail "json: $out"
out=$("$bench" ckpt reshard --dir "$dir" --size 2M --ranks 4 --to 3 --type adam-m --rounds 1 --warm --no-sync --format json)
echo "$out" | grep -q '"op":"reshard","ranks":3,"saved_by":4,.*"read_ratio":[0-9]' || fail "json: $out"
out=$("$bench" ckpt stall --dir "$dir" --size 2M --tensor 1M --rounds 3 --format json)
echo "$out" | grep -q '"op":"stall","ranks":2,.*"stall_ms":[0-9].*"collectives":[1-9]' || fail "json: $out"
"$bench" ckpt codec --size 1M --rounds 1 --type bf16 | grep -q '^ *planes  *bf16 ' || fail "no row of codec"
[ -z "$(ls -A "$dir")" ] || fail "left behind: $(ls -A "$dir")"
for bad in "" "dance" "save --ranks 0" "save --type all" "load --format xml" "save word" "codec --codec lzma"; do
    rc=0
    # shellcheck disable=SC2086
    "$bench" ckpt $bad >/dev/null 2>&1 || rc=$?
    [ $rc = 2 ] || fail "'$bad' gave exit code $rc"
done
rc=0
said=$("$bench" ckpt save --dir "$dir/none" 2>&1 >/dev/null) || rc=$?
echo "$said" | grep -q "^dtp-bench ckpt: cannot make folder $dir/none/.*: No such file" || fail "said $said"
[ $rc = 1 ] || fail "a folder that is not there gave exit code $rc"
