{{- define "greet" -}}hello {{ .name | default "nobody" }}{{- end -}}
{{- define "rec" -}}{{- if gt (int .) 0 -}}{{ . }},{{ include "rec" (sub (int .) 1) }}{{- end -}}{{- end -}}
