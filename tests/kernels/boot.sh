#!/bin/bash
# boot.sh KERNEL OUT COMMAND: boots the unpacked kernel in folder KERNEL (see get.sh) in qemu, runs the shell command there as
# root, gives its output and exits with its status; 124 if it took too long, 125 if the guest ended without one.
#
# The guest sees this machine's files. What it writes is gone afterwards, but for /out, which is OUT here. The processor is
# emulated in software, never KVM: it works wherever this does, 2 to 60 times slower.
#
# CPUS, MEMORY_MIB and TIMEOUT_S change the guest. With CLOCK=instructions its clock goes by what it executes, a ns each, and jumps
# while it is idle: it is as fast as a machine then, whatever this one does, and times measured there mean something. Needs qemu-system-x86, virtiofsd (Debian 12 has it in qemu-system-common),
# busybox-static, cpio, kmod and xz-utils.
set -euo pipefail
kernel=$(readlink -f "$1") out=$(readlink -f "$2") command=$3
: "${CPUS:=2}" "${MEMORY_MIB:=1536}" "${TIMEOUT_S:=7200}" "${CLOCK:=real}"
clock=()
[ "$CLOCK" != instructions ] || clock=(-icount 'shift=0,sleep=off')
# In one thread: with more, 6.12 met a jump of its own that another processor was rewriting, and panicked.
accel=tcg,thread=single
here=$(dirname "$(readlink -f "$0")")

vmlinuz=$(find "$kernel" -name 'vmlinuz*' -type f | head -n 1)
modules=$(find "$kernel" -path '*/lib/modules/*' -prune -type d | head -n 1)
version=${modules##*/}
# Without cx16 up to 6: the emulation of cmpxchg16b in qemu 7.2 broke the allocator of 6.12 in 10 of 12 boots. 7.2 makes no
# socket storage on a processor without it.
case $version in 6.*) cpu=max,-cx16 ;; *) cpu=max ;; esac
initramfs=$kernel/initramfs.gz

# Cloud kernels have these as modules; busybox wants them uncompressed and in order.
add_modules() {
	local base=${modules%/lib/modules/*} number=10 file name
	[ -s "$modules/modules.dep" ] || depmod -b "$base" "$version"
	for wanted in virtio_pci virtiofs overlay; do
		# "builtin NAME" or "insmod PATH", dependencies first
		{ modprobe -d "$base" -S "$version" --show-depends $wanted 2>/dev/null || :; } | sed -n 's/^insmod \([^ ]*\).*/\1/p'
	done | awk '!seen[$0]++' | while read -r file; do
		name=$number-$(basename "$file" .xz)
		case $file in *.xz) xz -dc "$file" ;; *) cat "$file" ;; esac >"$1/$name"
		number=$((number + 1))
	done
}
make_initramfs() {
	local root=$work/initramfs
	mkdir -p "$root"/{bin,dev,proc,sys,lower,above,root,modules}
	cp /bin/busybox "$root/bin/busybox"
	cp "$here/init.sh" "$root/init"
	add_modules "$root/modules"
	(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs.gz"
	mv "$work/initramfs.gz" "$initramfs"
}

pids=()
work=$(mktemp -d)
# shellcheck disable=SC2317 # it is reached
clean() {
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || :; done
	wait
	rm -rf "$work"
}
trap clean EXIT
trap 'exit 143' TERM INT HUP

# Serves a folder to the guest.
virtiofsd=$(PATH=$PATH:/usr/libexec:/usr/lib/qemu command -v virtiofsd) ||
	{ echo 'boot.sh: no virtiofsd here; install what Debian calls virtiofsd or qemu-system-common' >&2; exit 1; }
serve() { # NAME FOLDER CACHE
	"$virtiofsd" --socket-path="$work/$1.sock" -o source="$2" -o cache="$3" -o sandbox=chroot --thread-pool-size=1 &
	pids+=($!)
} 2>>"$work/virtiofsd.log"
serve_root() { # read-only, and without what else is mounted, in a mount namespace of its own
	mkdir "$work/root"
	# shellcheck disable=SC2016 # for the inner shell
	unshare --mount sh -c 'mount --make-rprivate / && mount --bind / "$0/root" && mount -o remount,ro,bind "$0/root" &&
		exec "$1" --socket-path="$0/root.sock" -o source="$0/root" -o cache=always -o sandbox=chroot --thread-pool-size=1' \
		"$work" "$virtiofsd" &
	pids+=($!)
} 2>>"$work/virtiofsd.log"

if [ ! -s "$initramfs" ] || [ "$here/init.sh" -nt "$initramfs" ] || [ "$0" -nt "$initramfs" ]; then make_initramfs; fi
rm -f "$out/.status"
printf '%s\n' "cd '$PWD'; $command" >"$out/.command"
echo "$version $modules" >"$out/.boot"
serve_root
serve out "$out" none
for _ in $(seq 100); do
	if [ -S "$work/root.sock" ] && [ -S "$work/out.sock" ]; then break; fi
	sleep 0.05
done

mkfifo "$work/output"
cat "$work/output" &
reader=$!
pids+=("$reader") # if this is ended before qemu is: it would read for ever
exec 3>"$work/output" # so that the reader does not wait for ever if qemu does not start
timeout --foreground -k 5 "$TIMEOUT_S" qemu-system-x86_64 -M q35 -accel $accel "${clock[@]}" -cpu $cpu -smp "$CPUS" -m "$MEMORY_MIB" \
	-nodefaults -no-user-config -display none -no-reboot -kernel "$vmlinuz" -initrd "$initramfs" \
	-append 'console=ttyS0 loglevel=4 panic=-1 mitigations=off tsc=reliable no_timer_check random.trust_cpu=on net.ifnames=0' \
	-serial file:"$out/console.log" -serial file:"$work/output" \
	-object memory-backend-memfd,id=memory,size="${MEMORY_MIB}M",share=on -machine memory-backend=memory \
	-chardev socket,id=root,path="$work/root.sock" -device vhost-user-fs-pci,chardev=root,tag=root \
	-chardev socket,id=out,path="$work/out.sock" -device vhost-user-fs-pci,chardev=out,tag=out 3>&- &
qemu=$!
pids+=("$qemu")
status=0
wait "$qemu" || status=$?
exec 3>&-
wait $reader
if [ -s "$out/.status" ]; then exit "$(cat "$out/.status")"; fi
echo "boot.sh: $version ended without a status (qemu: $status); the last it said:" >&2
tail -n 25 "$out/console.log" "$work/virtiofsd.log" >&2
[ $status -ne 124 ] || exit 124
exit 125
