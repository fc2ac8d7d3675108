{{/* Labels that select the Pods of a component. Call it with (list . "backend"). */}}
{{- define "visitors.selector" -}}
app.kubernetes.io/name: visitors
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Name and labels of the objects of a component. */}}
{{- define "visitors.metadata" -}}
name: {{ (index . 0).Release.Name }}-{{ index . 1 }}
labels:
  {{- include "visitors.selector" . | nindent 2 }}
{{- end }}

{{/* Service of a component. Call it with (list . "backend" 8000). */}}
{{- define "visitors.service" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "visitors.metadata" . | nindent 2 }}
spec:
  selector:
    {{- include "visitors.selector" . | nindent 4 }}
  ports:
    - port: {{ index . 2 }}
      targetPort: {{ index . 2 }}
{{- end }}

{{/* A variable with the password of the database. Call it with (list . "MYSQL_PASSWORD"). */}}
{{- define "visitors.password" -}}
- name: {{ index . 1 }}
  valueFrom:
    secretKeyRef:
      name: {{ (index . 0).Release.Name }}-mysql
      key: password
{{- end }}
