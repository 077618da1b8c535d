{{- define "tidegate.name" -}}
{{- $long := printf "%s-%s" .Release.Name .Chart.Name -}}
{{- ternary .Release.Name $long (contains .Chart.Name .Release.Name) | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "tidegate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tidegate.labels" -}}
{{ include "tidegate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- /* The guard's file; JSON's texts, numbers and lists are TOML's, too. */ -}}
{{- define "tidegate.config" -}}
{{- with .Values.interfaces }}interfaces = {{ toJson . }}
{{ end -}}
attach = {{ toJson .Values.attach }}
refusals_per_s = {{ int64 .Values.refusalsPerS }}
{{- $known := dict }}
{{- range .Values.listeners }}
{{- if hasKey $known .listen }}{{ fail (printf "listeners: %s is there twice" .listen) }}{{ end }}
{{- $_ := set $known .listen true }}
{{- if hasSuffix (printf ":%v" $.Values.metrics.port) .listen }}{{ fail (printf "metrics.port: %s is guarded, so something else listens there" .listen) }}{{ end }}

[[listener]]
listen = {{ toJson .listen }}
{{- with .policy }}
policy = {{ toJson . }}
{{- end }}
{{- with .reserved }}
reserved = { slots = {{ int64 .slots }}, sources = {{ toJson .sources }} }
{{- end }}
{{- with .exempt }}
exempt = {{ toJson . }}
{{- end }}
{{- with .server }}
server = {{ toJson . }}
{{- end }}
{{- if .dryRun }}
dry_run = true
{{- end }}
{{- end }}
{{- end }}
