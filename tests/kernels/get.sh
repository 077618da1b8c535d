#!/bin/sh
# get.sh SUITE DIR: sees to it that DIR/VERSION holds the newest cloud kernel of a Debian suite, unpacked, and prints that
# path. Nothing is installed. What DIR has of an earlier run is not fetched again; without a network the newest there is taken.
set -eu
suite=$1 dir=$2
lists_max_age_min=1440
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# shellcheck disable=SC1091 # it is checked by itself
. "$(dirname "$0")/mirror.sh"

say() { printf 'get.sh: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# An apt of its own: other lists than the system's, and none of its caches.
apt() {
	command=$1
	shift
	"$command" -qq -o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::Lists="$dir/lists" \
		-o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
		-o Acquire::Languages=none -o APT::Sandbox::User=root "$@"
}
update() {
	if [ "$(find "$dir/lists/fresh" -mmin -$lists_max_age_min 2>/dev/null)" ]; then return; fi
	url=$(mirror)
	[ "$url" ] || die "no Debian archive in the apt sources; name one in TIDEGATE_DEBIAN_MIRROR"
	echo "deb [arch=amd64 signed-by=$keyring] $url $suite main" >"$dir/sources.list"
	apt apt-get update >&2 && : >"$dir/lists/fresh"
}
newest() { # by what the package for "the newest one" depends on
	apt apt-cache show linux-image-cloud-amd64 2>/dev/null | grep -o 'linux-image-[0-9][^ ,]*' | sort -V | tail -n 1
}
fetch() ( # the .debs go as soon as they are unpacked; unpacked elsewhere first: a broken run leaves no half of a kernel
	version=$1
	packages=linux-image-$version
	if apt apt-cache show "linux-binary-$version" >/dev/null 2>&1; then # since 7.x in three parts
		packages="linux-binary-$version linux-modules-$version linux-base-$version"
	fi
	rm -rf "$dir/unpacked"
	mkdir -p "$dir/deb"
	cd "$dir/deb"
	for package in $packages; do
		apt apt-get download "$package" >&2
		dpkg -x "$package"_*.deb "$dir/unpacked"
	done
	rm -f ./*.deb
	mv "$dir/unpacked" "$dir/$version"
)

mkdir -p "$dir/lists/partial"
dir=$(readlink -f "$dir")
if update; then
	image=$(newest)
	[ "$image" ] || die "$suite has no linux-image-cloud-amd64"
	version=${image#linux-image-}
	[ -d "$dir/$version" ] || { say "download $suite's $version"; fetch "$version"; }
else
	version=$(find "$dir" -maxdepth 1 -name '[0-9]*' -printf '%f\n' | sort -V | tail -n 1)
	[ "$version" ] || die "cannot fetch $suite's package list, and no kernel of it is here yet"
	say "cannot fetch $suite's package list; $version is here"
fi
echo "$dir/$version"
