#!/bin/busybox sh
# shellcheck shell=sh disable=SC2016 # busybox has a shell of its kind; what is quoted is for the last one
# The first process of the guest: the host's root below, what is written above it in memory; then boot.sh's command there.
b=/bin/busybox
die() { echo "init: $*"; $b poweroff -f; }

$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev 2>/dev/null
for module in /modules/*; do
	[ ! -e "$module" ] || $b insmod "$module" || die "cannot load ${module##*/}"
done
$b mount -t virtiofs -o ro root /lower || die 'no root'
$b mount -t tmpfs -o size=60% above /above
$b mkdir /above/upper /above/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/above/upper,workdir=/above/work root /root || die 'no overlay'

cd /root || die 'no root'
$b mkdir -p proc sys dev tmp run out
$b mount -t proc proc proc
$b mount -t sysfs sys sys
$b mount -t devtmpfs dev dev
$b mkdir -p dev/pts dev/shm
$b mount -t devpts pts dev/pts
$b mount -t tmpfs shm dev/shm
$b mount -t tmpfs run run
$b mount -t virtiofs out out || die 'no out'
$b mount -t bpf bpf sys/fs/bpf
$b mount -t cgroup2 cgroup sys/fs/cgroup
$b mount -t securityfs security sys/kernel/security
$b mount -t debugfs debug sys/kernel/debug
$b mount -t tracefs tracing sys/kernel/tracing
read -r version modules <out/.boot
[ -d "lib/modules/$version" ] || { $b mkdir -p lib/modules && $b ln -s "$modules" "lib/modules/$version"; }
$b cp /bin/busybox run/busybox
for seen in proc sys dev; do $b umount -l /$seen; done

# The first process itself has to be in the new root, or the kernel finds no /sbin/modprobe.
exec $b switch_root /root /run/busybox sh -c '
	export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
	ip link set lo up
	/bin/sh /out/.command </dev/null >/dev/ttyS1 2>&1
	echo $? >/out/.status
	/run/busybox sync
	/run/busybox poweroff -f'
