#!/bin/sh
# Installs the C library that link.sh made, its header, pkg-config file and manual pages; or removes them again.
#
# Usage: crates/hugetlb/install.sh install|uninstall LIBRARIES PREFIX
# DESTDIR is put before PREFIX, for packages; without it, the loader's cache is renewed.

set -eu

usage() {
    printf 'usage: %s install|uninstall LIBRARIES PREFIX\n' "$0" >&2
    exit 2
}

[ $# -eq 3 ] || usage
HERE=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
FROM=$2
PREFIX=$3
TO=${DESTDIR:-}$PREFIX

# Functions that share a page: the page, and who else is described there.
ALIASES="get_huge_pages:free_huge_pages
get_hugepage_region:free_hugepage_region
gethugepagesize:gethugepagesizes
gethugepagesize:getpagesizes
hugetlbfs_find_path:hugetlbfs_find_path_for_size
hugetlbfs_find_path:hugetlbfs_test_path
hugetlbfs_unlinked_fd:hugetlbfs_unlinked_fd_for_size"

renew_cache() {
    [ -n "${DESTDIR:-}" ] || [ "$(id -u)" -ne 0 ] || ldconfig
}

put() {
    install -D -m "$1" "$2" "$TO/$3"
}

install_all() {
    put 0755 "$FROM/libhugetlbfs.so.0" lib/libhugetlbfs.so.0
    put 0644 "$FROM/libhugetlbfs.a" lib/libhugetlbfs.a
    ln -sfn libhugetlbfs.so.0 "$TO/lib/libhugetlbfs.so"
    put 0644 "$HERE/include/hugetlbfs.h" include/hugetlbfs.h
    mkdir -p "$TO/lib/pkgconfig"
    sed "s|@PREFIX@|$PREFIX|" "$HERE/libhugetlbfs.pc.in" >"$TO/lib/pkgconfig/libhugetlbfs.pc"
    chmod 0644 "$TO/lib/pkgconfig/libhugetlbfs.pc"
    for page in "$HERE"/man/*.[37]; do
        put 0644 "$page" "share/man/man${page##*.}/${page##*/}"
    done
    for alias in $ALIASES; do
        ln -sfn "${alias%%:*}.3" "$TO/share/man/man3/${alias##*:}.3"
    done
}

uninstall_all() {
    for file in libhugetlbfs.so.0 libhugetlbfs.so libhugetlbfs.a pkgconfig/libhugetlbfs.pc; do
        rm -f "$TO/lib/$file"
    done
    rm -f "$TO/include/hugetlbfs.h"
    for page in "$HERE"/man/*.[37]; do
        rm -f "$TO/share/man/man${page##*.}/${page##*/}"
    done
    for alias in $ALIASES; do
        rm -f "$TO/share/man/man3/${alias##*:}.3"
    done
}

case $1 in
    install) install_all ;;
    uninstall) uninstall_all ;;
    *) usage ;;
esac
renew_cache
