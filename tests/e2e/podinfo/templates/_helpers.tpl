{{- define "podinfo.name" -}}
{{- if contains "podinfo" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-podinfo{{ end }}
{{- end }}
{{- define "podinfo.labels" -}}
helm.sh/chart: podinfo-{{ .Chart.Version }}
app.kubernetes.io/name: {{ include "podinfo.name" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
