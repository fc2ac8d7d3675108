{{- define "image" }}{{ .Values.image.name }}:{{ .Values.image.tag }}{{ end }}
{{- define "file" }}{{ .Template.Name }}{{ end }}
{{- define "root" }}{{ toJson (omit . "Capabilities" "Chart" "Files" "Release" "Subcharts") }}{{ end }}
{{- define "count" }}{{ $_ := set .Values "counter" (printf "%sx" .Values.counter) }}{{ end }}
{{- define "push" }}{{ $_ := set .acc "list" (append .acc.list .item) }}{{ end }}
{{- define "labels" -}}
{{- $labels := dict "app" .context.Chart.Name }}
{{- range .values }}{{ $labels = merge $labels . }}{{ end }}
{{- toJson $labels }}
{{- end }}
{{- define "deep" }}{{ if gt (int .n) 0 }}{{ include "deep" (dict "n" (sub .n 1)) }}{{ else }}{{ .n }}{{ end }}{{ end }}
{{- define "overridden" }}of the chart{{ end }}
