#!/bin/sh
# Calls of two libraries in turn, in one run: ours, and the libhugetlbfs.so.0 in another directory.
#
# Usage: crates/hugetlb/bench/compare.sh OURS THEIRS        (two directories; a pool of 2 free huge pages)

set -eu

[ $# -eq 2 ] || {
    printf 'usage: %s OURS THEIRS\n' "$0" >&2
    exit 2
}

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
ROUNDS=5
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
"${CC:-cc}" -O2 -I "$HERE/../include" -o "$scratch/calls" "$HERE/calls.c" -L "$1" -lhugetlbfs

for mappings in 0 1000; do
    printf 'median ns per call, with %s other mappings\n' "$mappings"
    round=0
    while [ "$round" -lt "$ROUNDS" ]; do
        printf '  theirs  '
        LD_LIBRARY_PATH=$2 "$scratch/calls" "$mappings"
        printf '  ours    '
        LD_LIBRARY_PATH=$1 "$scratch/calls" "$mappings"
        round=$((round + 1))
    done
done
