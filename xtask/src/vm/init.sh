#!/bin/sh
# The first program of the guest: prepares the system, runs /command, reports its exit code and
# switches the machine off.
# Ports: ttyS0 is the kernel's console (and ours), ttyS1 takes the program's output, ttyS2 the
# report.

export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/root TERM=dumb

attach() { # TYPE PLACE
	mkdir -p "$2"
	mount -t "$1" "$1" "$2"
}

attach proc /proc
attach sysfs /sys
attach devtmpfs /dev
attach devpts /dev/pts
attach tmpfs /dev/shm
attach tmpfs /tmp
attach tmpfs /run
attach cgroup2 /sys/fs/cgroup
attach bpf /sys/fs/bpf
attach debugfs /sys/kernel/debug
attach tracefs /sys/kernel/tracing
attach securityfs /sys/kernel/security
chmod 1777 /tmp /dev/shm
for controller in $(cat /sys/fs/cgroup/cgroup.controllers); do
	echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control
done
ip link set lo up
hostname guest

# The program writes into a pipe, not to a terminal, so that it prints what it prints into a file.
exec 5>/dev/ttyS1
stty -F /dev/ttyS1 raw -echo 115200
mkfifo /run/output
cat /run/output >&5 &
copier=$!
cd /root
sh /command </dev/null >/run/output 2>&1 5>&-
code=$?

# What the program left running would keep the pipe open.
for directory in /proc/[0-9]*; do
	process=${directory#/proc/}
	[ "$process" = 1 ] || [ "$process" = "$copier" ] || kill -9 "$process" 2>/dev/null
done
wait "$copier"
# Setting a terminal's mode waits until its output is sent.
stty -F /dev/ttyS1 raw
echo "exit $code" >/dev/ttyS2
stty -F /dev/ttyS2 raw
poweroff -f
