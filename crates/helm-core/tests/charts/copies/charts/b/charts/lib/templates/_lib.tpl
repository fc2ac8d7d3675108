{{/* The same text in two charts. */}}
text of {{ .Template.Name }}
{{ define "lib.name" -}}
{{- if .Values.fail }}{{ fail "asked to" }}{{ end -}}
{{ .Chart.Name }} in {{ .Template.Name }}
{{- end }}
{{ define "lib.outer" -}}
{{ include "lib.name" . | upper }}
{{- end }}
