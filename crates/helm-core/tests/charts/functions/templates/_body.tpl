{{- define "body" }}
tpl: {{ tpl .Values.t . | quote }}
nested: {{ tpl "{{ include \"greet\" (dict \"name\" (tpl .Values.t .)) }}" . }}
rec: {{ include "rec" 5 | quote }}
glob: {{ range $p, $f := .Files.Glob "files/**.txt" }}{{ $p }}={{ $f | toString | trim }};{{ end }}
lines: {{ .Files.Lines "files/a.txt" | toJson }}
config: {{ (.Files.Glob "files/*").AsConfig | nindent 2 }}
secrets: {{ (.Files.Glob "files/*.json").AsSecrets | nindent 2 }}
get: {{ .Files.Get "files/none" | quote }} {{ .Files.Get "files/x.bak" | quote }}
bytes: {{ .Files.GetBytes "files/b.json" | toString | fromJson | toYaml | nindent 2 }}
caps: {{ .Capabilities.KubeVersion.Version }} {{ .Capabilities.KubeVersion.Major }} {{ .Capabilities.KubeVersion }} {{ .Capabilities.APIVersions.Has "apps/v1" }} {{ .Capabilities.APIVersions.Has "apps/v1/Deployment" }}
chart: {{ toYaml .Chart | nindent 2 }}
release: {{ toYaml .Release | nindent 2 }}
template: {{ .Template | toJson }}
nums: {{ .Values.n }} {{ .Values.f }} {{ .Values.big }} {{ .Values.oct }} {{ .Values.yes }} {{ .Values.date }} {{ int .Values.n }} {{ .Values.n | toJson }} {{ printf "%v %d %T" .Values.n (int64 .Values.n) .Values.n }}
yaml: {{ toYaml .Values.m | nindent 2 }}
pretty: {{ toYamlPretty .Values.m | nindent 2 }}
toml: |
{{ toToml .Values.m | indent 2 }}
block: {{ toYaml .Values.s | indent 2 }}
sorted: {{ .Values.l | sortAlpha | toJson }} {{ min 3 1 2 }} {{ until 4 | toJson }} {{ list 1 "a" nil | toJson }}
merge: {{ $d := dict "a" 1 }}{{ $_ := merge $d (dict "a" 2 "b" (dict "c" 3)) }}{{ toJson $d }} {{ toJson (mergeOverwrite $d (dict "a" 9 "b" (dict "d" 4))) }}
semver: {{ semverCompare "^1.2.0 || >=3" "1.9.3" }} {{ (semver "1.2.3-rc.1+b").Prerelease }}
date: {{ date "2006-01-02T15:04:05Z07:00" (toDate "2006-01-02" "2021-03-04") }} {{ dateModify "-36h" (toDate "2006-01-02" "2021-03-04") | date "Mon Jan _2" }}
hash: {{ sha256sum "x" }} {{ adler32sum "x" }} {{ derivePassword 1 "long" "p" "u" "s" }} {{ "x" | b64enc | b32enc }}
regex: {{ regexReplaceAll "(a+)(b*)" "xaabbyab" "${2}-$1" }} {{ regexFindAll "[a-z]\\d" "a1b2c3" 2 | toJson }} {{ regexSplit "," "a,b,,c" -1 | toJson }}
str: {{ "Hello World" | snakecase }} {{ "hello_world" | camelcase }} {{ wrap 5 "hello big world" | quote }} {{ abbrev 8 "hello world" }} {{ "x" | repeat 3 }} {{ nospace " a b " }} {{ trunc -3 "abcdef" }} {{ title "a b" }} {{ substr 1 3 "abcdef" }}
urls: {{ urlParse "http://u:p@h:80/p?q=1#f" | toJson }} {{ urlJoin (dict "scheme" "https" "host" "h" "path" "/p") }}
path: {{ base "/a/b.c" }} {{ ext "x.tar.gz" }} {{ clean "/a/../b" }} {{ osBase "/x/y" }}
logic: {{ ternary "y" "n" (empty (list)) }} {{ coalesce nil "" 0 "z" }} {{ default "d" "" }} {{ and 1 0 "x" }} {{ or "" "y" }} {{ not "" }} {{ eq 1 2 1 }} {{ kindOf 1.0 }} {{ typeOf (list) }}
dig: {{ dig "a" "c" "none" .Values.m | toJson }} {{ pluck "b" .Values.m (dict "b" 2) | toJson }} {{ omit .Values.m "a" | toJson }} {{ pick .Values.m "b" | toJson }}
lookup: {{ lookup "v1" "Secret" "ns" "n" | toJson }} {{ (lookup "v1" "Pod" "" "").items | toJson }}
dns: "{{ getHostByName "localhost" }}"
quotes: {{ quote 1 nil "a\"b" }} {{ squote "it's" }} {{ cat 1 "b" nil }} {{ "a,b" | splitList "," | join "-" }} {{ (split "." "a.b.c")._1 }}
fromyaml: {{ fromYaml "a: [1, 0x10, 1_000, 0o17, 017, 1e3, .inf, ~, yes, 2001-01-01]" | toJson }}
fromarray: {{ fromYamlArray "- 1\n- a: b" | toJson }} {{ fromJsonArray "[1, {\"a\": null}]" | toJson }}
{{- end }}
