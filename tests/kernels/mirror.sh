# shellcheck shell=sh
# For other scripts: mirror() gives the Debian archive of the machine's apt sources, in both of apt's formats; updates and security are
# other archives. TIDEGATE_DEBIAN_MIRROR goes before them.
mirror() {
	[ -z "${TIDEGATE_DEBIAN_MIRROR-}" ] || { echo "$TIDEGATE_DEBIAN_MIRROR"; return; }
	cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
		sed -n -e 's/^URIs: *\([^ ]*\).*/\1/p' -e 's/^deb  *\(\[[^]]*\] *\)\{0,1\}\([^ ]*\).*/\2/p' |
		grep '/debian/\{0,1\}$' | head -n 1
}
