{{ define "x" }}
x
{{ end }}