{{ define "lib.over" }}
over: parent
{{ end }}