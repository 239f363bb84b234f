#!/bin/sh
# Installs what `make demo` and `make test` need on Debian 12 or 13, and nothing that is there already.
#
# Usage: scripts/setup.sh build|demo|test
#
# What is missing is found out first, by looking for the programs themselves; when all is there, nothing is touched
# and no privileges are asked for. Packages come by apt-get, without recommended ones, and none that is installed is
# ever removed for one of them (--no-remove).
#
# Redis: the package redis-server would start a service and enable it for every boot to come. Its program, however,
# lies in redis-tools, where it is called redis-check-rdb and is the server when started under the server's name. So
# redis-tools is installed, and target/tools/redis-server points there. An installed Redis is used as it is; its
# service is left alone.
#
# busybox: guests need a static one. The package busybox-static would replace an installed busybox, so it is unpacked
# into target/tools instead.

set -eu

RUST_MIN_MAJOR=1
RUST_MIN_MINOR=85 # rust-version in Cargo.toml; what Debian 13 has.

ROOT=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
TOOLS=$ROOT/target/tools

fail() {
    printf 'setup: %s\n' "$1" >&2
    exit 1
}

say() {
    printf 'setup: %s\n' "$1" >&2
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# Is this `rustc --version` or `cargo --version` new enough?
new_enough() {
    version=$("$1" --version 2>/dev/null | awk 'NR == 1 { print $2 }')
    major=${version%%.*}
    rest=${version#*.}
    minor=${rest%%.*}
    case $major.$minor in
        *[!0-9.]* | .* | *.) return 1 ;;
    esac
    [ "$major" -gt "$RUST_MIN_MAJOR" ] ||
        { [ "$major" -eq "$RUST_MIN_MAJOR" ] && [ "$minor" -ge "$RUST_MIN_MINOR" ]; }
}

have_rust() {
    new_enough "${CARGO:-cargo}" && new_enough "${RUSTC:-rustc}"
}

# binutils beyond the linker make the C library and look into it; gcc brings them.
have_linker() {
    have cc && have objcopy && [ -e "$(cc -print-file-name=crt1.o)" ]
}

# Guests run static binaries, which need the static C library.
have_static_libc() {
    have_linker && [ -e "$(cc -print-file-name=libc.a)" ]
}

have_certificates() {
    [ -n "${SSL_CERT_FILE:-}${CARGO_HTTP_CAINFO:-}" ] || [ -e /etc/ssl/certs/ca-certificates.crt ]
}

# --- What is missing. ---

wanted=         # Packages to install.
unpack_busybox= # The package to unpack, if a static busybox is missing.

want() {
    case "$wanted " in
        *" $1 "*) ;;
        *) wanted="$wanted $1" ;;
    esac
}

rust_packages() {
    release=$(. /etc/os-release 2>/dev/null && printf '%s %s' "${ID:-}" "${VERSION_ID:-}")
    case $release in
        # Debian 12's own rustc is 1.63; a newer one is kept there, under another name, for browsers.
        'debian 12') printf 'rustc-web cargo-web' ;;
        *) printf 'rustc cargo' ;;
    esac
}

want_build() {
    have_rust || for package in $(rust_packages); do want "$package"; done
    have_linker || { want gcc; want libc6-dev; want binutils; }
    have_certificates || want ca-certificates
    have make || want make
}

want_demo() {
    want_build
    have redis-server || have redis-check-rdb || want redis-tools
    have redis-benchmark && have redis-cli || want redis-tools
}

want_test() {
    want_demo
    have_static_libc || want libc6-dev
    have qemu-system-x86_64 || want qemu-system-x86
    have_static_busybox || unpack_busybox=busybox-static
}

have_static_busybox() {
    [ -e "$TOOLS/busybox" ] ||
        dpkg-query -W -f '${db:Status-Status}' busybox-static 2>/dev/null | grep -qx installed
}

# --- Installing. ---

may_install() {
    [ "$(id -u)" -eq 0 ] || have sudo
}

apt_get() {
    set -- env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"
    [ "$(id -u)" -eq 0 ] || set -- sudo "$@"
    "$@"
}

# Runs a command quietly; when it fails, shows what it printed, then says why that may be.
or_fail() {
    why=$1
    shift
    "$@" >"$scratch/log" 2>&1 || {
        cat "$scratch/log" >&2
        fail "$why"
    }
}

update_lists() {
    have apt-get || fail "there is no apt-get here; please install by other means:$wanted $unpack_busybox"
    if ! may_install; then
        [ -z "$wanted" ] || fail "only root can install what is missing:$wanted
setup: run this as root, or install sudo, or run as root: apt-get install$wanted"
        return
    fi
    say "reading the package lists"
    or_fail "apt-get update failed; is the network there?" apt_get update
}

install_wanted() {
    for package in $wanted; do
        say "installing $package"
    done
    # shellcheck disable=SC2086
    or_fail "apt-get could not install:$wanted
setup: if it says that packages would be removed, an older one is in the way; if it could not fetch, the network is" \
        apt_get install --yes --no-install-recommends --no-remove $wanted
}

# Needs no privileges.
unpack_static_busybox() {
    say "unpacking busybox-static into target/tools"
    mkdir -p "$TOOLS"
    (
        cd "$scratch"
        or_fail "apt-get could not fetch busybox-static; is the network there?" apt-get -qq download busybox-static
        dpkg-deb --extract busybox-static_*.deb unpacked
    ) || exit 1
    find "$scratch/unpacked" -path '*/bin/busybox' -type f -exec cp {} "$TOOLS/busybox" \;
    [ -x "$TOOLS/busybox" ] || fail "the package busybox-static has no bin/busybox"
}

check_rust() {
    have_rust || fail "cargo and rustc must be $RUST_MIN_MAJOR.$RUST_MIN_MINOR or newer; found \
$("${CARGO:-cargo}" --version 2>&1 | head -n 1), $("${RUSTC:-rustc}" --version 2>&1 | head -n 1)
setup: an older one stands first in PATH; update it (rustup update) or set CARGO and RUSTC"
}

link_redis() {
    if ! have redis-server; then
        mkdir -p "$TOOLS"
        ln -sfn "$(command -v redis-check-rdb)" "$TOOLS/redis-server"
    fi
}

case ${1:-} in
    build) want_build ;;
    demo) want_demo ;;
    test) want_test ;;
    *)
        printf 'usage: %s build|demo|test\n' "$0" >&2
        exit 2
        ;;
esac

if [ -n "$wanted$unpack_busybox" ]; then
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 1' HUP INT TERM
    update_lists
    [ -z "$wanted" ] || install_wanted
    [ -z "$unpack_busybox" ] || unpack_static_busybox
fi
check_rust
case $1 in
    demo | test) link_redis ;;
esac
