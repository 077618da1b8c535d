#!/bin/bash
# guest.sh DEB [SUITE]: installs a package in a bare Debian that qemu boots with its own systemd, and tries it (test.sh). Gives the
# guest's output, and its status.
#
# The processor is emulated in software, never KVM. The guest's disk is made with mmdebstrap once a week, in target/package-guest.
# Needs root, mmdebstrap, qemu-system-x86 and e2fsprogs.
set -euo pipefail
deb=$(readlink -f "$1") suite=${2:-bookworm}
here=$(dirname "$(readlink -f "$0")")
cache=$here/../../target/package-guest
: "${TIMEOUT_S:=1800}"
# shellcheck disable=SC1091 # it is checked by itself
. "$here/../kernels/mirror.sh"

make_disk() {
	local root=$work/root units=$work/root/etc/systemd/system
	mmdebstrap --quiet --variant=minbase --include=systemd-sysv,udev,linux-image-cloud-amd64,initramfs-tools,nginx-light,iproute2,bpftool,procps \
		"$suite" "$root" "$(mirror)"
	cat >"$units/package-test.service" <<-'UNIT'
		[Unit]
		Description=What boot asks this guest to do
		[Service]
		ExecStart=/bin/sh -c 'mkdir -p /root/test && tar -C /root/test -xf /dev/vdb && sh /root/test/test.sh; sync; systemctl poweroff --force --force'
		StandardOutput=file:/dev/ttyS1
		StandardError=file:/dev/ttyS1
		[Install]
		WantedBy=multi-user.target
	UNIT
	# Every request costs nginx a search that goes back 2^14 times, so that a crowd that this guest can send is too much for it.
	cat >"$root/etc/nginx/sites-available/default" <<-'NGINX'
		server {
			listen 80 default_server;
			listen [::]:80 default_server;
			location / {
				if ($uri ~ "^/(a+)+c") { return 404; }
				return 200 "served\n";
			}
		}
	NGINX
	sed -i 's/^worker_processes .*/worker_processes 1;/' "$root/etc/nginx/nginx.conf"
	rm "$units/multi-user.target.wants/nginx.service"
	ln -s ../package-test.service "$units/multi-user.target.wants/"
	echo '/dev/vda / ext4 defaults 0 1' >"$root/etc/fstab"
	echo guest >"$root/etc/hostname"
	# Nothing that changes files beside the package.
	for timer in apt-daily apt-daily-upgrade dpkg-db-backup fstrim e2scrub_all systemd-tmpfiles-clean; do
		ln -sf /dev/null "$units/$timer.timer"
	done
	cp "$root"/boot/vmlinuz-* "$work/vmlinuz"
	cp "$root"/boot/initrd.img-* "$work/initrd"
	truncate -s 2G "$work/disk"
	mke2fs -q -t ext4 -d "$root" "$work/disk"
	rm -rf "$root"
	mkdir -p "$cache/$suite"
	mv "$work"/{vmlinuz,initrd,disk} "$cache/$suite/"
}

mkdir -p "$cache"
cache=$(readlink -f "$cache")
work=$(mktemp -d -p "$cache")
trap 'rm -rf "$work"' EXIT
if [ -z "$(find "$cache/$suite/disk" -mtime -7 -newer "$0" 2>/dev/null)" ]; then make_disk; fi

tar -C "$(dirname "$deb")" -cf "$work/payload" "$(basename "$deb")"
tar -C "$here" -rf "$work/payload" test.sh
status=0
# See tests/kernels/boot.sh for the processor and the one thread.
timeout --foreground -k 5 "$TIMEOUT_S" qemu-system-x86_64 -M q35 -accel tcg,thread=single -cpu max,-cx16 -smp 2 -m 1024 \
	-nodefaults -no-user-config -display none -no-reboot -kernel "$cache/$suite/vmlinuz" -initrd "$cache/$suite/initrd" \
	-append 'root=/dev/vda rw console=ttyS0 loglevel=4 systemd.show_status=0 mitigations=off tsc=reliable no_timer_check random.trust_cpu=on net.ifnames=0' \
	-serial file:"$work/console" -serial file:"$work/output" \
	-drive if=virtio,format=raw,file="$cache/$suite/disk",snapshot=on \
	-drive if=virtio,format=raw,file="$work/payload",read-only=on || status=$?
tr -d '\r' <"$work/output" | tee "$work/said"
grep -q '^status: 0$' "$work/said" && exit 0
echo "guest.sh: the guest did not end well (qemu: $status); the last it said:" >&2
tail -n 25 "$work/console" >&2
exit 1
