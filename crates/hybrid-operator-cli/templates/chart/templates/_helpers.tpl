{{/* The name of the chart. */}}
{{- define "<CHARTNAME>.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/*
The name of the chart's objects: that of the release, with the name of the chart unless the release
has it already. Some names are limited to 63 characters.
*/}}
{{- define "<CHARTNAME>.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- $full := .Values.fullnameOverride -}}
{{- if not $full -}}
{{- $full = contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- end -}}
{{- $full | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* The name and version of the chart, as a label. */}}
{{- define "<CHARTNAME>.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Labels of all objects. */}}
{{- define "<CHARTNAME>.labels" -}}
helm.sh/chart: {{ include "<CHARTNAME>.chart" . }}
{{ include "<CHARTNAME>.selectorLabels" . }}
{{- with .Chart.AppVersion }}
app.kubernetes.io/version: {{ quote . }}
{{- end }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Labels that select the Pods; they cannot be changed later. */}}
{{- define "<CHARTNAME>.selectorLabels" -}}
app.kubernetes.io/name: {{ include "<CHARTNAME>.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* The name of the ServiceAccount. */}}
{{- define "<CHARTNAME>.serviceAccountName" -}}
{{- $default := .Values.serviceAccount.create | ternary (include "<CHARTNAME>.fullname" .) "default" -}}
{{- .Values.serviceAccount.name | default $default }}
{{- end }}
