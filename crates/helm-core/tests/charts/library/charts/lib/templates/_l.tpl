{{ define "lib.map" -}}
name: {{ .name }}
v: {{ .top.Values | toJson }}
{{- end }}{{ define "lib.over" }}
over: lib
{{ end }}