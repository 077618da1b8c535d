#!/bin/sh
# Makes the packages in target/package: a static program, .deb, .rpm and an OCI image. `./dev package` installs what it needs and
# starts it. Times in them are the commit's, so that the same program gives the same files.
set -eu
cd "$(dirname "$0")/.."
out=$PWD/target/package
host=$(rustc -vV | sed -n 's/^host: //p')
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
commit=$(git describe --always --dirty)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
umask 022

# The linker takes a library from the first folder that has it, and here that is an archive. Archives of libelf may need zstd.
build() {
	mkdir -p "$out/archives"
	for library in elf z zstd; do
		archive=$(cc -print-file-name=lib$library.a)
		[ ! -e "$archive" ] || ln -sf "$(readlink -f "$archive")" "$out/archives/"
	done
	RUSTFLAGS="-C target-feature=+crt-static $(pkg-config --static --libs-only-l libelf | grep -o -- -lzstd | sed 's/^/-C link-arg=/')" \
		LIBBPF_SYS_LIBRARY_PATH=$out/archives TIDEGATE_COMMIT=$commit \
		cargo build --release --package cli --target "$host"
}

# All that goes into a package, as the debian/ folder and the spec file want it.
stage() {
	rm -rf "$staged"
	mkdir -p "$staged/man" "$staged/completions" "$staged/examples"
	strip -o "$staged/tidegate" "target/$host/release/tidegate"
	"$staged/tidegate" man "$staged/man" >/dev/null
	"$staged/tidegate" completions bash >"$staged/completions/tidegate"
	"$staged/tidegate" completions zsh >"$staged/completions/_tidegate"
	"$staged/tidegate" completions fish >"$staged/completions/tidegate.fish"
	cp deploy/guard.toml deploy/*.service README.md CHANGELOG.md LICENSE LICENSE-GPL-2.0 "$staged"
	cp -r docs "$staged"
	cp -r deploy/grafana deploy/prometheus deploy/helm "$staged/examples"
}

deb() {
	cp -r deploy/debian "$staged/debian"
	cp deploy/tidegate.service "$staged/debian/tidegate.service"
	cp deploy/tidegate-uplink@.service "$staged/debian/tidegate.tidegate-uplink@.service"
	maintainer=$(git log -1 --format='%an <%ae>')
	sed -i "s/@MAINTAINER@/$maintainer/" "$staged/debian/control"
	printf 'tidegate (%s-1) stable; urgency=medium\n\n  * Commit %s; CHANGELOG.md has the changes.\n\n -- %s  %s\n' \
		"$version" "$commit" "$maintainer" "$(git log -1 --format=%cd --date=rfc)" >"$staged/debian/changelog"
	(cd "$staged" && debian/rules binary)
	mv "$out"/work/*.deb "$out/"
}

rpm() {
	rpmbuild -bb --quiet --define "version $version" --define "staged $staged" --define "_topdir $out/work/rpm" \
		--define "_rpmdir $out" --define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
		--define '_buildhost localhost' --define 'use_source_date_epoch_as_buildtime 1' \
		--define 'clamp_mtime_to_source_date_epoch 1' deploy/tidegate.spec
}

# An image of one layer with one file; https://specs.opencontainers.org/image-spec has the words.
image() {
	layout=$out/work/image
	case $(uname -m) in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) arch=$(uname -m) ;; esac
	created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)
	mkdir -p "$layout/blobs/sha256" "$out/work/layer/usr/bin"
	cp "$staged/tidegate" "$out/work/layer/usr/bin/"
	plain_tar "$out/work/layer" usr >"$out/work/layer.tar"
	layer=$(digest "$out/work/layer.tar")
	gzip -n -9 <"$out/work/layer.tar" >"$out/work/layer.tar.gz"
	cat >"$out/work/config.json" <<-JSON
		{"created": "$created", "architecture": "$arch", "os": "linux",
		 "config": {"Entrypoint": ["/usr/bin/tidegate"], "Env": ["PATH=/usr/bin"], "Labels": {
		  "org.opencontainers.image.title": "tidegate", "org.opencontainers.image.version": "$version",
		  "org.opencontainers.image.revision": "$commit", "org.opencontainers.image.licenses": "Apache-2.0 AND (GPL-2.0-only OR Apache-2.0)"}},
		 "rootfs": {"type": "layers", "diff_ids": ["sha256:$layer"]}, "history": [{"created": "$created"}]}
	JSON
	cat >"$out/work/manifest.json" <<-JSON
		{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		 "config": $(blob "$out/work/config.json" application/vnd.oci.image.config.v1+json),
		 "layers": [$(blob "$out/work/layer.tar.gz" application/vnd.oci.image.layer.v1.tar+gzip)]}
	JSON
	cat >"$layout/index.json" <<-JSON
		{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [
		 $(blob "$out/work/manifest.json" application/vnd.oci.image.manifest.v1+json \
			", \"platform\": {\"architecture\": \"$arch\", \"os\": \"linux\"}, \"annotations\": {\"org.opencontainers.image.ref.name\": \"$version\"}")]}
	JSON
	printf '{"imageLayoutVersion": "1.0.0"}' >"$layout/oci-layout"
	plain_tar "$layout" blobs index.json oci-layout >"$out/tidegate-$version-$arch.oci.tar"
}
blob() { # FILE TYPE [MORE]: puts it into the layout, and gives its descriptor
	cp "$1" "$layout/blobs/sha256/$(digest "$1")"
	printf '{"mediaType": "%s", "digest": "sha256:%s", "size": %s%s}' "$2" "$(digest "$1")" "$(stat -c %s "$1")" "${3-}"
}
digest() { sha256sum "$1" | cut -d ' ' -f 1; }
plain_tar() { # FOLDER NAMES: the same bytes each time
	folder=$1
	shift
	tar -C "$folder" --format=ustar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$@"
}

mkdir -p "$out"
rm -rf "$out/work" "$out"/*.deb "$out"/*.rpm "$out"/*.oci.tar
staged=$out/work/tidegate
build
stage
deb
rpm
image
cp "$staged/tidegate" "$out/tidegate"
rm -rf "$out/work"
ls -l "$out"/tidegate*
