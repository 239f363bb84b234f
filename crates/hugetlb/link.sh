#!/bin/sh
# Builds the C library and puts libhugetlbfs.so.0, libhugetlbfs.so and libhugetlbfs.a into a directory.
#
# Usage: crates/hugetlb/link.sh DIRECTORY
#
# Cargo makes an archive of everything. Of that one object is made that holds what the interface needs and nothing else,
# and in which only the interface is global: it is the static library, and the shared one is linked from it, with the
# soname and the symbol versions of libhugetlbfs. (Cargo's own shared libraries cannot have symbol versions.)

set -eu

[ $# -eq 1 ] || {
    printf 'usage: %s DIRECTORY\n' "$0" >&2
    exit 2
}

HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
ROOT=$(CDPATH='' cd -- "$HERE/../.." && pwd)
mkdir -p "$1"
OUT=$(CDPATH='' cd -- "$1" && pwd)
MAP=$HERE/libhugetlbfs.map
CC=${CC:-cc}
PROFILE=hugetlb

cd "$ROOT"
# Absolute paths of this machine do not belong into a library.
"${CARGO:-cargo}" rustc --quiet --locked --package hugepilot-hugetlb --lib --profile "$PROFILE" --crate-type staticlib -- \
    --remap-path-prefix "$ROOT=."
ARCHIVE=${CARGO_TARGET_DIR:-$ROOT/target}/$PROFILE/libhugetlbfs.a

# The interface: the names in the map, and shmget, which has no version.
api="shmget $(sed -n 's/^ *\([a-z_]*\);$/\1/p' "$MAP")"
roots=HUGEPILOT_HUGETLB_START
keep=
for symbol in $api; do
    roots="$roots $symbol"
    keep="$keep --keep-global-symbol=$symbol"
done
undefined=
for symbol in $roots; do
    undefined="$undefined -Wl,--undefined=$symbol"
done

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM

# shellcheck disable=SC2086
"$CC" -nostdlib -r -Wl,--gc-sections $undefined -o "$scratch/all.o" "$ARCHIVE"
# shellcheck disable=SC2086
objcopy $keep --strip-debug "$scratch/all.o" "$scratch/hugetlbfs.o"
"$CC" -shared -o "$scratch/libhugetlbfs.so.0" "$scratch/hugetlbfs.o" \
    -Wl,-soname,libhugetlbfs.so.0 -Wl,--version-script="$MAP" \
    -Wl,--no-undefined -Wl,-z,now -Wl,-z,relro -Wl,-z,noexecstack -Wl,--build-id
ar rcD "$scratch/libhugetlbfs.a" "$scratch/hugetlbfs.o"

# Whole or not at all: somebody may be running on the old one.
mv -f "$scratch/libhugetlbfs.so.0" "$scratch/libhugetlbfs.a" "$OUT/"
ln -sfn libhugetlbfs.so.0 "$OUT/libhugetlbfs.so"
