# `make help` lists the targets. Everything but `help` and `lint` begins with scripts/setup.sh, which installs what is
# missing (apt-get, as root or through sudo) and does nothing when all is there.
#
# Not as root, the build and the tools run as you; only what manages other processes' memory is started through sudo:
# the demo itself, and the tests' programs (by cargo's own means, a runner).

CARGO ?= cargo
PREFIX ?= /usr/local
DEMO_FLAGS ?=
TEST_FLAGS ?=
NUMA_FLAGS ?=

ROOT_SHELL := $(shell id -u)
SUDO := $(if $(filter 0,$(ROOT_SHELL)),,sudo)
# What setup.sh put there: a name for Redis' server, a static busybox.
export PATH := $(CURDIR)/target/tools:$(PATH)

TEST_TARGET := CARGO_TARGET_$(shell uname -m | tr a-z A-Z)_UNKNOWN_LINUX_GNU_RUNNER
TEST_RUNNER := $(if $(SUDO),env $(TEST_TARGET)="sudo --preserve-env env PATH=$(PATH)",)

# Rights are asked for only where the place needs them.
INSTALL_SUDO = $(if $(wildcard $(DESTDIR)$(PREFIX)/.),$(if $(shell test -w "$(DESTDIR)$(PREFIX)" || echo no),$(SUDO)))
UNINSTALL_SUDO = $(if $(shell test -w "$(DESTDIR)$(PREFIX)/bin" || echo no),$(SUDO))

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-host test-guests test-long numa-table lint bless install uninstall clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: ## Redis under never, always, mega and ingens, in one table (DEMO_FLAGS=... for more)
	@scripts/setup.sh demo
	$(CARGO) build --release --locked
	$(if $(SUDO),sudo env PATH="$(PATH)") ./target/release/hugepilot demo redis $(DEMO_FLAGS)

test: test-host test-guests ## All tests: on this kernel, then on others in guests

test-host: ## The tests on this kernel
	@scripts/setup.sh test
	$(CARGO) build --workspace --locked
	$(TEST_RUNNER) $(CARGO) test --workspace --locked --no-fail-fast $(TEST_FLAGS)

test-guests: ## The tests on Debian's other kernels, in QEMU
	@scripts/setup.sh test
	$(CARGO) xtask test-guests

test-long: ## An hour of abuse (collapses, splits, forks, locks, deaths), then the NUMA table
	@scripts/setup.sh test
	HUGEPILOT_ABUSE_SECONDS=3600 $(TEST_RUNNER) $(CARGO) test --locked --package hugepilot-linux --test abuse -- --nocapture
	$(MAKE) numa-table

numa-table: ## What page sizes and placement do on several nodes, in one table; hours, goes on where it was stopped
	@scripts/setup.sh test
	$(CARGO) xtask numa-table $(NUMA_FLAGS)

lint: ## rustfmt and clippy, which Debian's packages of Rust do not all have
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- --deny warnings

bless: ## Write the generated tables of docs/ anew
	HUGEPILOT_BLESS=1 $(CARGO) test --locked --package hugepilot-house --package hugepilot-linux --test house --test support

install: ## Build and install the program and the C library under PREFIX (/usr/local)
	@scripts/setup.sh build
	$(CARGO) build --release --locked
	crates/hugetlb/link.sh target/c-library
	$(INSTALL_SUDO) install -D -m 0755 target/release/hugepilot "$(DESTDIR)$(PREFIX)/bin/hugepilot"
	$(INSTALL_SUDO) env DESTDIR="$(DESTDIR)" crates/hugetlb/install.sh install target/c-library "$(PREFIX)"

uninstall: ## Remove them again
	$(UNINSTALL_SUDO) rm -f "$(DESTDIR)$(PREFIX)/bin/hugepilot"
	$(UNINSTALL_SUDO) env DESTDIR="$(DESTDIR)" crates/hugetlb/install.sh uninstall target/c-library "$(PREFIX)"

clean: ## Remove what was built; downloaded kernels stay
	$(CARGO) clean
