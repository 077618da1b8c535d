#!/bin/bash
# Judges what package.sh has made, and the chart: lintian, systemd-analyze, helm and kubeconform. `./dev package` starts it. What is not
# here, and cannot be had as a module of Go, is said and left out.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/target/package-tools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PATH=$PATH:$tools
say() { printf '==> %s\n' "$*"; }
die() { printf 'deploy/lint.sh: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

package() {
	say lintian
	lintian --allow-root --fail-on error,warning target/package/*.deb
}

confinement() { sed '1,/^# From here on/d; /^\[Install\]/,$d' "$1"; }
units() {
	say 'units: the same confinement, and exposure of 3.0 at most'
	diff <(confinement deploy/tidegate.service) <(confinement deploy/tidegate-uplink@.service) || die 'the units differ'
	# Where systemd-analyze finds the program and the manual.
	mkdir -p "$work/root/etc/systemd/system"
	cp deploy/*.service "$work/root/etc/systemd/system/"
	for unit in tidegate.service tidegate-uplink@eth0.service; do
		systemd-analyze security --offline=yes --no-pager --root="$work/root" --threshold=30 $unit | tail -n 1
	done
}

# TOOL MODULE
get() {
	have "$1" || ! have go || { say "get $1"; GOBIN=$tools go install "$2" 2>/dev/null; } || :
	have "$1" || { say "skipped: no $1 here, and none as a module of Go"; return 1; }
}

# The kinds of the chart, as this version of Kubernetes defines them, and no field besides.
schemas() {
	[ ! -e "$tools/daemonset-apps-v1.json" ] || return 0
	have jq && have go || return 1
	local swagger
	swagger=$(cd "$work" && go mod download -json k8s.io/kubernetes@v1.34.0 | jq -r .Dir)/api/openapi-spec/swagger.json
	for kind in daemonset-apps-v1:io.k8s.api.apps.v1.DaemonSet configmap-v1:io.k8s.api.core.v1.ConfigMap; do
		jq --arg kind "${kind#*:}" '{"$ref": "#/definitions/\($kind)", definitions: (.definitions
			| map_values(if .properties and (has("additionalProperties") | not) then .additionalProperties = false else . end)
			| walk(if type == "object" and .format? == "int-or-string" then del(.type) else . end))}' "$swagger" >"$work/schema"
		mv "$work/schema" "$tools/${kind%%:*}.json"
	done
}

render() { helm template tidegate deploy/helm --values "$@"; }
refuses() { # VALUE: in one line
	if render "$work/values.yaml" --set "$1" >"$work/said" 2>&1; then die "the chart takes $1"; fi
	[ "$(grep -c '^- at\|^Error: execution error' "$work/said")" = 1 ] || die "$1 is not refused in one line: $(cat "$work/said")"
}
chart() {
	local version
	version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
	[ "$(grep -cx "\(appV\|v\)ersion: $version" deploy/helm/Chart.yaml)" = 2 ] || die "deploy/helm/Chart.yaml is not of version $version"
	mkdir -p "$tools"
	get helm helm.sh/helm/v3/cmd/helm@v3.22.0 || return 0
	say 'helm lint'
	helm lint --quiet --strict deploy/helm
	# Each value that is not the default's.
	cat >"$work/values.yaml" <<-'YAML'
		listeners:
		  - listen: 0.0.0.0:80
		  - { listen: "[::]:443", policy: abort+rst-syn, reserved: { slots: 8, sources: [10.0.0.0/24, "fd00::1"] }, exempt: [10.0.0.9], server: web, dryRun: true }
		interfaces: [lo]
		metrics: { address: 127.0.0.1, port: 9000 }
		podAnnotations: { prometheus.io/scrape: "true" }
		imagePullSecrets: [{ name: mine }]
		tolerations: [{ operator: Exists }]
		affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [{ matchExpressions: [{ key: edge, operator: Exists }] }] } } }
	YAML
	for value in attach=nic metrics.port=99999 'listeners[0].listen=web:80' 'listeners[0].listen=0.0.0.0:0' listners=1 refusalsPerS=-1 hostPID=maybe \
		'listeners[0].listen=300.0.0.1:80' 'listeners[1].listen=0.0.0.0:80' 'listeners[0].policy=abrot' 'listeners[1].exempt[0]=10.0.0.9/33' \
		metrics.port=80 metrics.address=256.0.0.1 seccompProfile.type=Localhost; do
		refuses "$value"
	done
	if [ "$(id -u)" -eq 0 ]; then
		render "$work/values.yaml" --show-only templates/configmap.yaml | sed -n 's/^    //p' | sed '/^app.kubernetes.io/d; /^helm.sh/d' >"$work/guard.toml"
		target/package/tidegate guard --check --config "$work/guard.toml" >"$work/said" 2>&1 ||
			die "$(cat "$work/said"); the guard does not take $(cat "$work/guard.toml")"
	fi
	get kubeconform github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0 || return 0
	schemas || { say "skipped: kubeconform's schemas need jq and go"; return 0; }
	say kubeconform
	for values in deploy/helm/values.yaml "$work/values.yaml"; do
		render "$values" | kubeconform -strict -summary -schema-location "$tools/{{.ResourceKind}}{{.KindSuffix}}.json"
	done
}

package
units
chart
