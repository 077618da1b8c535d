#!/bin/sh
# Runs in the guest, with the package beside it: installs it, guards an nginx, reloads, upgrades, purges, and compares what is left.
# Each step is one line. It ends with `status: 0`, or at the first thing that is not so.
set -eu
cd "$(dirname "$0")"
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
passed() { printf '%4d s  %s\n' "$(($(date +%s) - started))" "$*"; }
die() {
	echo "FAILED: $*"
	systemctl status --no-pager -n 20 'tidegate*' || :
	echo 'status: 1'
	exit 1
}
trap '[ $? -eq 0 ] || echo "status: 1"' EXIT
expect() { what=$1; shift; "$@" || die "$what: $*"; passed "$what"; }
refute() { what=$1; shift; ! "$@" || die "$what: $*"; passed "$what"; }
log() { journalctl -q -o cat -u tidegate --since "@$since"; }
wait_for() { # WHAT COMMAND: for a minute
	what=$1
	shift
	for _ in $(seq 120); do
		if "$@" >/dev/null 2>&1; then passed "$what"; return; fi
		sleep 0.5
	done
	die "$what: $*"
}
has() { log | grep -q "$1"; }

# What a package may leave: nothing but logs, and what apt and dpkg keep of every package that was ever there.
snapshot() {
	find / /run -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /root -o -path /tmp -o -path /var/tmp -o -path /var/log \
		-o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /run/systemd -o -path /run/udev -o -path /run/log \
		-o -path /run/nginx.pid -o -path /var/lib/systemd/random-seed -o -path /var/lib/nginx \) -prune -o \
		-type d -printf '%M %u:%g %p\n' -o -printf '%M %u:%g %s %T@ %p %l\n' | grep -v ' /run/private$' | sort # systemd's, once it had a DynamicUser
	find /etc/systemd /var/lib/systemd/deb-systemd-helper-* 2>/dev/null | sort
	bpftool prog list | sed -n 's/^[0-9]*: \([^ ]*\)  name \([^ ]*\) .*/program \1 \2/p' | sort | uniq -c | grep -v ' sd_' || :
	bpftool link list | sed -n 's/^[0-9]*: /link /p' | sort | uniq -c
	bpftool net list
	tc qdisc show
	getent passwd
	getent group
	systemctl list-unit-files --no-legend 'tidegate*' || :
}

started=$(date +%s) since=$started
ip netns add crowd
ip link add veth-crowd netns crowd type veth peer name veth-host
ip address add 192.0.2.1/24 dev veth-host
ip link set veth-host up
ip -n crowd address add 192.0.2.2/24 dev veth-crowd
ip -n crowd link set veth-crowd up
ip route add 198.51.100.0/24 via 192.0.2.2
udevadm settle
snapshot >before.txt
passed 'a bare Debian'

# As docs/operate.md begins. The server comes after the guard.
install_start=$(date +%s)
apt-get install -y -q ./tidegate_*.deb >apt.log 2>&1 || die "install: $(tail -n 5 apt.log)"
passed 'installed'
refute 'not started by that' systemctl is-active -q tidegate
refute 'nor enabled' systemctl is-enabled -q tidegate
expect 'its manual is there' test -e /usr/share/man/man1/tidegate-guard.1.gz
expect 'its completions are there' test -e /usr/share/bash-completion/completions/tidegate
since=$(date +%s)
expect 'started, and so attached' systemctl enable -q --now tidegate
wait_for 'it says so' has '"event":"attached"'
echo "from the package to a guard: $(($(date +%s) - install_start)) s"
systemctl start nginx

pid=$(systemctl show -p MainPID --value tidegate)
expect 'it has three capabilities' grep -q '^CapEff:.000000c000001000$' "/proc/$pid/status"
expect 'it has a filter of system calls' grep -q '^Seccomp:.2$' "/proc/$pid/status"
refute 'it is not root' grep -q '^Uid:.0' "/proc/$pid/status"

# What nginx can answer, then twice as many.
load() {
	ip netns exec crowd tidegate load http://192.0.2.1/aaaaaaaaaaaaaa-c --clients 198.51.100.0/24 --interface veth-crowd --timeout 5s --json "$@" |
		tail -n 1
}
of_summary() { # KEY
	sed "s/.*\"$1\":\([0-9]*\).*/\1/"
}
capacity=$(load --users 8 --duration 10s | of_summary goodput_per_s)
passed "nginx can answer $capacity/s"
twice() { # HOW
	load --rate $((2 * capacity)) --duration 20s >load.json
	passed "of $((2 * capacity))/s it answered $(of_summary goodput_per_s <load.json)/s, in $(of_summary 'response_ms":{"count":[0-9]*,"mean' <load.json) ms in the mean, $1"
}
twice 'with the guard'
sleep 11
# Each ten seconds a line.
last_of() { log | grep '"sample"' | grep "$1" | tail -n 1 | grep -- "$2"; }
refused=$(last_of '"0.0.0.0:80"' '"reset"' | sed 's/.*"syns":{[^}]*"reset":\([0-9]*\).*/\1/')
is_counted() { last_of '"\[::\]:80"' '"answered":[1-9]' >/dev/null; }
expect "a crowd is refused ($refused times)" test "$refused" -gt 100
refute 'it sees who holds the listeners' has 'cannot be seen from here'
# Nobody came by IPv6.
expect 'both have the count of their one server' is_counted
systemctl stop tidegate
twice 'without it'
systemctl start tidegate
pid=$(systemctl show -p MainPID --value tidegate)

echo 'listner = 1' >>/etc/tidegate/guard.toml
refute 'a reload of a file with a mistake fails' systemctl reload tidegate
expect 'and the guard goes on' test "$pid" = "$(systemctl show -p MainPID --value tidegate)"
sed -i -e '/^listner/d' -e 's/^listen = .*/&\ndry_run = true/' /etc/tidegate/guard.toml
expect 'a reload' systemctl reload tidegate
wait_for 'it has read the file again' has 'read /etc/tidegate/guard.toml again'
expect 'by the same process' test "$pid" = "$(systemctl show -p MainPID --value tidegate)"

echo 'OPTIONS=--rate 5mbit' >/etc/tidegate/uplink-veth-host
uplink=$(systemd-escape --template=tidegate-uplink@.service veth-host)
expect 'an uplink is started' systemctl enable -q --now "$uplink"
uplinks() { tc qdisc show dev veth-host | grep -q htb; }
wait_for 'it is at the interface' uplinks
is_confined() { systemd-analyze security --no-pager --threshold=30 "$1" >security.log; } # in tenths
for unit in tidegate.service "$uplink"; do
	expect 'exposure is 3.0 at most' is_confined "$unit"
	tail -n 1 security.log
done

since=$(date +%s)
apt-get install -y -q --reinstall ./tidegate_*.deb >>apt.log 2>&1 || die "reinstall: $(tail -n 5 apt.log)"
wait_for 'an upgrade starts it anew' has '"event":"attached"'
expect 'with the file as it was edited' grep -q '^dry_run' /etc/tidegate/guard.toml

apt-get purge -y -q tidegate >>apt.log 2>&1 || die "purge: $(tail -n 5 apt.log)"
passed purged
refute 'no guard is left' pgrep -x tidegate
udevadm settle
snapshot >after.txt
diff before.txt after.txt || die 'something is not as it was before'
passed 'all is as it was before'
echo 'status: 0'
