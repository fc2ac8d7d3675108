//! The hostile inputs.

use std::fmt::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use helm_core::chart::{Chart, File, Limits};
use helm_core::engine::{CompiledChart, ReleaseInfo, RenderInput};
use helm_core::values::{Values, set_json};

/// A hostile input.
pub(crate) struct Input {
    /// The test that it belongs to.
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    /// Returns what the program says.
    pub(crate) run: fn() -> Result<String, String>,
    /// Parts of the message: the place and the limit.
    pub(crate) wanted: &'static [&'static str],
    /// The memory that it may take, in MiB.
    pub(crate) memory: u64,
}

/// The default limit of a render.
const MEMORY: u64 = 256;

/// Renders a chart with this template.
fn render(template: &str) -> Result<String, String> {
    render_with(template, [])
}

/// Renders a chart with this template and other files.
fn render_with(template: &str, files: impl IntoIterator<Item = File>) -> Result<String, String> {
    let own = [
        File::new("Chart.yaml", "{apiVersion: v2, name: c, version: 0.1.0}"),
        File::new("templates/a.yaml", template),
    ];
    let chart = Chart::from_files(own.into_iter().chain(files));
    let compiled = CompiledChart::compile(&chart.map_err(|e| e.to_string())?);
    let compiled = compiled.map_err(|e| e.to_string())?;
    let values = compiled.coalesce(Values::new());
    let values = values.map_err(|e| e.to_string())?;
    let rendered = compiled.render(&RenderInput::new(ReleaseInfo::new("r", "ns"), &values));
    let rendered = rendered.map_err(|e| e.to_string())?;
    Ok(rendered.manifest().to_owned())
}

/// Calls `run` if no thread can be started.
fn without_threads(run: fn() -> Result<String, String>) -> Result<String, String> {
    match std::thread::Builder::new().spawn(|| ()) {
        Ok(_) => Err("threads can be started".to_owned()),
        Err(_) => run(),
    }
}

/// A value that unfolds to 2^40 values, in `$a`; a second one in `$b`.
const UNFOLDS: &str = "{{$a:=dict `k` 1}}{{$b:=dict `k` 1}}{{range until 40}}\
    {{$a = dict `l` $a `r` $a}}{{$b = dict `l` $b `r` $b}}{{end}}";

fn unfold(text: &str) -> Result<String, String> {
    render(&format!("{UNFOLDS}{text}"))
}

/// Makes an input that uses `$a` and `$b`.
macro_rules! unfolding {
    ($name:literal, $text:literal) => {
        Input {
            group: "unfolding",
            name: $name,
            run: || unfold($text),
            wanted: &["c/templates/a.yaml:1:", "(limit `"],
            memory: MEMORY,
        }
    };
}

/// Makes an input that is a template, whose error names the place and a limit.
macro_rules! template {
    ($group:literal, $name:literal, $text:expr) => {
        Input {
            group: $group,
            name: $name,
            run: || render($text),
            wanted: &["c/templates/a.yaml:1:", "(limit `"],
            memory: MEMORY,
        }
    };
}

/// Makes an input with its own function.
macro_rules! input {
    ($group:literal, $name:literal, $wanted:expr, $run:expr) => {
        Input {
            group: $group,
            name: $name,
            run: $run,
            wanted: $wanted,
            memory: MEMORY,
        }
    };
}

pub(crate) static INPUTS: &[Input] = &[
    unfolding!("toYaml", "{{toYaml $a}}"),
    unfolding!("toYamlPretty", "{{toYamlPretty $a}}"),
    unfolding!("toToml", "{{toToml $a}}"),
    unfolding!("toJson", "{{toJson $a}}"),
    unfolding!("toPrettyJson", "{{toPrettyJson $a}}"),
    unfolding!("toRawJson", "{{toRawJson $a}}"),
    unfolding!("deepEqual", "{{deepEqual $a $b}}"),
    unfolding!("has", "{{has $a (list $b)}}"),
    unfolding!("uniq", "{{uniq (list $a $b)}}"),
    unfolding!("without", "{{without (list $a) $b}}"),
    unfolding!("eq of lists in dig", "{{dig `l` `r` `` $a}}"),
    unfolding!("merge", "{{merge $a $b}}"),
    unfolding!("mergeOverwrite", "{{mergeOverwrite $a $b | len}}"),
    unfolding!("mustMerge", "{{mustMerge (dict) $a $b | len}}"),
    unfolding!("deepCopy", "{{$c := deepCopy $a}}"),
    unfolding!("mustDeepCopy", "{{$c := mustDeepCopy $a}}"),
    unfolding!("print", "{{print $a}}"),
    unfolding!("println", "{{println $a}}"),
    unfolding!("printf", "{{printf `%v %#v` $a $a}}"),
    unfolding!("action", "{{$a}}"),
    unfolding!("cat", "{{cat $a $a}}"),
    unfolding!("quote", "{{quote $a}}"),
    unfolding!("squote", "{{squote $a}}"),
    unfolding!("html", "{{html $a}}"),
    unfolding!("js", "{{js $a}}"),
    unfolding!("urlquery", "{{urlquery $a}}"),
    unfolding!("toString", "{{toString $a}}"),
    unfolding!("join", "{{join `,` (list $a $a)}}"),
    unfolding!("toStrings", "{{toStrings (list $a $a) | len}}"),
    unfolding!("sortAlpha", "{{sortAlpha (list $a $a) | len}}"),
    unfolding!("dict key", "{{dict $a 1 | len}}"),
    unfolding!(
        "genSignedCert",
        "{{genSelfSignedCert `a` (list $a) (list $a) 1}}"
    ),
    unfolding!(
        "error text",
        "{{range $a.k}}{{end}}{{range $i, $x := print $a}}{{end}}"
    ),
    template!(
        "unfolding",
        "splitList",
        "{{$s := repeat 100000000 `a,`}}{{splitList `,` $s | len}}"
    ),
    template!(
        "unfolding",
        "split",
        "{{$s := repeat 50000000 `a,`}}{{split `,` $s | len}}"
    ),
    template!(
        "unfolding",
        "lists in a variable",
        "{{$l := list}}{{range until 100}}{{$l = append $l (until 9000000)}}{{end}}"
    ),
    template!(
        "unfolding",
        "dictionaries in a chain",
        "{{$l := dict}}{{range until 9000000}}{{$l = dict `a` $l}}{{end}}"
    ),
    template!(
        "unfolding",
        "times in a chain",
        "{{$l := list}}{{range until 9000000}}{{$l = list $l now}}{{end}}"
    ),
    // === Nesting ===
    input!(
        "nesting",
        "includes that call toYaml",
        &["c/templates/a.yaml:1:", "): 18002\n"],
        || { includes("{{toYaml $.v | len}}") }
    ),
    input!(
        "nesting",
        "includes that call toJson",
        &["c/templates/a.yaml:1:", "): 18005\n"],
        || { includes("{{toJson $.v | len}}") }
    ),
    input!(
        "nesting",
        "includes that call toToml",
        &["c/templates/a.yaml:1:", "): 18010\n"],
        || { includes("{{toToml (dict `a` $.v) | len}}") }
    ),
    input!(
        "nesting",
        "includes that call print",
        &["c/templates/a.yaml:1:", "): 18006\n"],
        || { includes("{{print $.v | len}}") }
    ),
    input!(
        "nesting",
        "includes that call deepCopy",
        &["c/templates/a.yaml:1:", "): 1\n"],
        || { includes("{{deepCopy $.v | len}}") }
    ),
    input!(
        "nesting",
        "includes that call fromYaml",
        &["c/templates/a.yaml:1:", "): 1\n"],
        || { includes("{{fromYaml (print (repeat 9000 `{a: `) (repeat 9000 `}`)) | len}}") }
    ),
    input!(
        "nesting",
        "includes that call fromYaml of block maps",
        &["c/templates/a.yaml:2:", "): 1\n"],
        || {
            includes(
                "{{$t := ``}}{{range until 500}}{{$t = print $t (repeat . ` `) `a:\n`}}{{end}}{{fromYaml $t | len}}",
            )
        }
    ),
    input!(
        "nesting",
        "includes that call fromYamlArray",
        &["c/templates/a.yaml:1:", "): 1\n"],
        || { includes("{{fromYamlArray (print (repeat 9000 `[`) (repeat 9000 `]`)) | len}}") }
    ),
    input!(
        "nesting",
        "includes that call fromJson",
        &["c/templates/a.yaml:1:", "): 1\n"],
        || { includes("{{fromJson (print (repeat 9000 `{\"a\":`) `1` (repeat 9000 `}`)) | len}}") }
    ),
    input!(
        "nesting",
        "includes that call fromToml",
        &["c/templates/a.yaml:1:", "): 1\n"],
        || { includes("{{fromToml (print `a = ` (repeat 9000 `[`) (repeat 9000 `]`)) | len}}") }
    ),
    input!(
        "nesting",
        "includes that print a map that contains itself",
        &["c/templates/a.yaml:1:", "(limit `nesting`)"],
        || { includes("{{$m := dict}}{{$m = set $m `a` $m}}{{toYaml $m | len}}{{print $m}}") }
    ),
    input!(
        "nesting",
        "endless includes in many control structures",
        &["c/templates/a.yaml:1:", "(limit `memory`)"],
        || {
            let (open, close) = ("{{if 1}}".repeat(9_900), "{{end}}".repeat(9_900));
            render(&format!(
                "{{{{define `t`}}}}{open}{{{{include `t` .}}}}{close}{{{{end}}}}{{{{include `t` .}}}}"
            ))
        }
    ),
    input!(
        "nesting",
        "endless includes in a long chain",
        &["c/templates/a.yaml:1:", "(limit `memory`)"],
        || {
            let chain = "{{else if 0}}".repeat(9_900);
            render(&format!(
                "{{{{define `t`}}}}{{{{if 0}}}}{chain}{{{{else}}}}{{{{include `t` .}}}}{{{{end}}}}{{{{end}}}}{{{{include `t` .}}}}"
            ))
        }
    ),
    input!(
        "nesting",
        "endless includes in many parentheses",
        &["c/templates/a.yaml:1:", "(limit `memory`)"],
        || {
            let (open, close) = ("(".repeat(9_900), ")".repeat(9_900));
            render(&format!(
                "{{{{define `t`}}}}{{{{{open}include `t` .{close}}}}}{{{{end}}}}{{{{include `t` .}}}}"
            ))
        }
    ),
    input!(
        "nesting",
        "includes that call regexMatch",
        &["c/templates/a.yaml:1:"],
        || { includes("{{regexMatch (print (repeat 900 `(`) (repeat 900 `)`)) `x`}}") }
    ),
    input!(
        "nesting",
        "includes that call tpl",
        &["c/templates/a.yaml:1:"],
        || { includes("{{tpl (print `{{` (repeat 9000 `(`) 1 (repeat 9000 `)`) `}}`) . | len}}") }
    ),
    input!("nesting", "fromYaml of many brackets", &["ok"], || {
        let rendered = render(
            "{{$x := fromYaml (repeat 9000 `[`)}}{{$x = fromYaml (repeat 100000 `[`)}}\
             {{$x = fromYaml (repeat 100000 `- `)}}{{$x = fromYaml (repeat 100000 `? `)}}a: ok",
        )?;
        Ok(rendered)
    }),
    input!(
        "nesting",
        "a document with many brackets",
        &["c/templates/a.yaml"],
        || { render("a: {{repeat 500 `[`}}{{repeat 500 `]`}}\nb: {{repeat 100000 `[`}}") }
    ),
    input!(
        "nesting",
        "values file with many brackets",
        &["values.yaml"],
        || {
            let text = format!("a: {}{}", "[".repeat(100_000), "]".repeat(100_000));
            let chart = Chart::from_files([
                File::new("Chart.yaml", "{apiVersion: v2, name: c, version: 0.1.0}"),
                File::new("values.yaml", text),
            ]);
            chart.map(|_| String::new()).map_err(|e| e.to_string())
        }
    ),
    // === YAML ===
    input!(
        "yaml",
        "merges nine-fold and twelve deep",
        &["excessive aliasing"],
        || {
            render(&format!(
                "a: {{{{ fromYaml `{}` | toString | trunc 99 | quote }}}}",
                merges(9, 12)
            ))
        }
    ),
    input!(
        "yaml",
        "merges in a document",
        &["c/templates/a.yaml", "excessive aliasing"],
        || { render(&merges(9, 12)) }
    ),
    input!(
        "yaml",
        "aliases in a document",
        &["c/templates/a.yaml", "excessive aliasing"],
        || { render(&aliases(9, 12)) }
    ),
    input!(
        "yaml",
        "aliases as complex keys",
        &["c/templates/a.yaml", "invalid map key"],
        || { render(&format!("{}\n? *l11\n: 1\n", aliases(9, 12))) }
    ),
    input!(
        "yaml",
        "large complex key",
        &["c/templates/a.yaml", "invalid map key"],
        || { render("? {{ toJson (until 100000) }}\n: 1\n") }
    ),
    input!(
        "yaml",
        "nested anchors around large content",
        &["c/templates/a.yaml"],
        || {
            let mut text = String::from("{{ $big := toJson (until 100000) }}a: ");
            for level in 0..400 {
                let _ = write!(text, "&a{level} [");
            }
            text.push_str("{{ $big }}");
            text.push_str(&"]".repeat(400));
            render(&text)
        }
    ),
    template!(
        "yaml",
        "fromYaml of a long list",
        "{{$x := fromYamlArray (print `[` (repeat 60000000 `a,`) `]`)}}"
    ),
    template!(
        "yaml",
        "fromYaml of a long list with an anchor",
        "{{$x := fromYamlArray (print `[&a b,` (repeat 60000000 `a,`) `]`)}}"
    ),
    template!(
        "yaml",
        "fromJson of a long list",
        "{{$x := fromJsonArray (print `[` (repeat 60000000 `1,`) `1]`)}}"
    ),
    template!(
        "yaml",
        "fromToml of deep tables",
        "{{$x := fromToml (print `a = ` (repeat 19000 `{a = `) 1 (repeat 19000 `}`))}}"
    ),
    template!(
        "yaml",
        "fromToml of a long table name",
        "{{$x := fromToml (print `[` (repeat 100000 `a.`) `a]`)}}"
    ),
    template!(
        "yaml",
        "fromToml of a long key",
        "{{$x := fromToml (print (repeat 100000 `a.`) `a = 1`)}}"
    ),
    template!(
        "yaml",
        "fromToml of a long list",
        "{{$x := fromToml (print `a = [` (repeat 60000000 `1,`) `1]`)}}"
    ),
    // === Regular expressions ===
    template!(
        "regex",
        "search that starts over at every byte",
        "{{$x := regexReplaceAll `x.*y|x` (repeat 5000000 `x`) ``}}"
    ),
    template!(
        "regex",
        "empty matches in a long text",
        "{{$x := regexFindAll `` (repeat 134217728 `x`) -1}}"
    ),
    template!(
        "regex",
        "split of a long text",
        "{{$x := regexSplit `` (repeat 134217728 `x`) -1}}"
    ),
    template!(
        "regex",
        "replacement of a long text",
        "{{$x := regexReplaceAll `` (repeat 100000000 `x`) `yyyyyyyyyyyyyyyyyyyy`}}"
    ),
    template!(
        "regex",
        "failing patterns in a loop",
        "{{range until 1000000}}{{$x := regexMatch (print (repeat 900 `(a{1,30})`) . `(`) `x`}}{{end}}"
    ),
    template!(
        "regex",
        "large patterns in a loop",
        "{{range until 1000000}}{{$x := regexMatch (print `(\\\\pL{1,30}){1,20}` .) `x`}}{{end}}"
    ),
    template!(
        "regex",
        "huge classes in a loop",
        "{{range until 1000000}}{{$x := regexMatch (print `[` (repeat 20000 `\\\\pL\\\\pN`) . `]`) `x`}}{{end}}"
    ),
    template!(
        "regex",
        "case-insensitive classes in a loop",
        "{{range until 1000000}}{{$x := regexMatch (print `(?i)` (repeat 900 `[\\\\pL\\\\pN]`) .) `x`}}{{end}}"
    ),
    // === Texts ===
    template!(
        "text",
        "a long text written many times",
        "{{$s:=repeat 134217728 `x`}}{{$s}}{{$s}}{{$s}}{{$s}}{{$s}}{{$s}}"
    ),
    template!(
        "text",
        "print of a long text many times",
        "{{$s:=repeat 134217728 `x`}}{{$x := print $s $s $s $s $s $s $s $s $s $s}}"
    ),
    template!(
        "text",
        "print of a long text in a loop",
        "{{$s:=repeat 130000000 `x`}}{{$l := list}}{{range until 200}}{{$l = append $l (print $s)}}{{end}}"
    ),
    template!(
        "text",
        "toJson of a long text many times",
        "{{$s:=repeat 100000 `<`}}{{$l := list}}{{range until 1000}}{{$l = append $l $s}}{{end}}{{toJson $l}}"
    ),
    template!(
        "text",
        "toYaml of a long text many times",
        "{{$s:=repeat 1000000 `\\u0007`}}{{$l := list}}{{range until 1000}}{{$l = append $l $s}}{{end}}{{toYaml $l}}"
    ),
    template!(
        "text",
        "texts of one variable",
        "{{$l := list}}{{range until 10000000}}{{$l = list $l (repeat 1000 `x`)}}{{end}}"
    ),
    template!(
        "text",
        "derivePassword in a loop",
        "{{range until 100000}}{{derivePassword 1 `long` `a` `b` `c`}}{{end}}"
    ),
    template!(
        "text",
        "bcrypt in a loop",
        "{{range until 100000}}{{bcrypt `a`}}{{end}}"
    ),
    template!(
        "text",
        "indent of many lines",
        "{{$x := indent 100 (repeat 60000000 `\n`)}}"
    ),
    template!(
        "text",
        "printf with wide arguments",
        "{{range until 1000000}}{{printf `%999999d%999999d%999999d` 1 2 3}}{{end}}"
    ),
    template!(
        "text",
        "functions of a long text",
        "{{$s := repeat 120000000 `é`}}{{$x := list (upper $s) (lower $s) (title $s) (b64enc $s) (quote $s) (swapcase $s) (camelcase $s)}}"
    ),
    template!(
        "text",
        "wrapped text",
        "{{$x := wrapWith 1 `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx` (repeat 30000000 `a `)}}"
    ),
    template!(
        "text",
        "replaced text",
        "{{$x := replace `a` (repeat 1000 `b`) (repeat 1000000 `a`)}}"
    ),
    template!(
        "text",
        "tpl of a long text",
        "{{$x := tpl (repeat 10000000 `{{1}}`) .}}"
    ),
    template!(
        "text",
        "tpl of many texts",
        "{{range until 1000000}}{{$x := tpl (print (repeat 6000 `{{if 1}}{{end}}`) .) $}}{{end}}"
    ),
    // === Threads ===
    input!(
        "threads",
        "an RSA key",
        &["a: -----BEGIN RSA PRIVATE KEY-----"],
        || without_threads(|| render("a: {{ genPrivateKey `rsa` | trunc 31 }}"))
    ),
    input!(
        "threads",
        "a certificate",
        &["a: -----BEGIN CERTIFICATE-----"],
        || without_threads(|| render("a: {{ (genCA `a` 1).Cert | trunc 27 }}"))
    ),
    input!(
        "threads",
        "templates that are parsed on several threads",
        &["a: ok"],
        || {
            without_threads(|| {
                let comments = "{{/* x */}}".repeat(10_000);
                let other = |name| File::new(name, comments.as_str());
                render_with(
                    "a: ok",
                    [other("templates/_b.tpl"), other("templates/_c.tpl")],
                )
            })
        }
    ),
    // === Charts ===
    input!(
        "chart",
        "allOf of two references sixty deep",
        &["values don't meet", "c:"],
        || { with_schema(&doubling(60), "a: 1") }
    ),
    input!("chart", "costly pattern", &["values don't meet"], || {
        let schema = r#"{"properties": {"a": {"pattern": "((\\pL{1,100}){1,100}){1,10}"}}}"#;
        with_schema(schema, "a: x")
    }),
    input!("chart", "unfolding anyOf", &["values don't meet"], || {
        let schema = doubling(60).replace("allOf", "anyOf");
        with_schema(&schema.replace("object", "string"), "a: 1")
    }),
    input!(
        "chart",
        "many divisors and large numbers",
        &["is not a multiple of", "more errors"],
        || { divided(400, 480) }
    ),
    input!(
        "chart",
        "many errors",
        &["but got number", "more errors"],
        || {
            let wrong = vec![r#"{"type": "string"}"#; 1_300].join(", ");
            let schema =
                format!(r#"{{"properties": {{"a": {{"items": {{"anyOf": [{wrong}]}}}}}}}}"#);
            with_schema(&schema, &format!("a: {:?}", [1; 1_300]))
        }
    ),
    input!(
        "chart",
        "too many divisors and numbers",
        &["the schema has 400 multipleOf for 501 numbers"],
        || { divided(400, 501) }
    ),
    input!(
        "chart",
        "schema that contains itself",
        &["values don't meet"],
        || { with_schema(r##"{"allOf": [{"$ref": "#"}, {"$ref": "#"}]}"##, "a: 1") }
    ),
    input!("chart", "deep schema", &["values"], || {
        let schema = format!("{}true{}", r#"{"not": "#.repeat(5_000), "}".repeat(5_000));
        with_schema(&schema, "a: 1")
    }),
    input!(
        "chart",
        "nested archives",
        &["the chart archive unpacks to more than"],
        || {
            let mut inner = archive(&[
                ("d/Chart.yaml", chart_yaml("d")),
                ("d/big", vec![0; 90 << 20]),
            ]);
            for level in 0..3 {
                let name = format!("e{level}");
                let files: Vec<_> = (0..4)
                    .map(|copy| (format!("{name}/charts/d{copy}.tgz"), inner.clone()))
                    .chain([(format!("{name}/Chart.yaml"), chart_yaml(&name))])
                    .collect();
                let files: Vec<_> = files.iter().map(|(n, d)| (n.as_str(), d.clone())).collect();
                inner = archive(&files);
            }
            let chart = Chart::from_archive(&inner, &Limits::default());
            chart.map(|_| String::new()).map_err(|e| chain(&e))
        }
    ),
    input!("chart", "--set with many indexes", &["a"], || {
        set(&format!("a{}=1", "[0]".repeat(100_000)))
    }),
    input!("chart", "--set with many names", &["a"], || {
        set(&format!("a{}=1", ".a".repeat(100_000)))
    }),
    input!("chart", "--set with many braces", &["a"], || {
        set(&format!(
            "a={}1{}",
            "{".repeat(100_000),
            "}".repeat(100_000)
        ))
    }),
    input!("chart", "--set of a high index", &["a"], || set(
        "a[65536]=1,b[999999999]=1"
    )),
    input!("chart", "--set-json with many brackets", &["a"], || {
        let text = format!("a={}{}", "[".repeat(100_000), "]".repeat(100_000));
        let set = set_json(&text, &mut Values::new());
        set.map(|()| String::new()).map_err(|e| e.to_string())
    }),
];

/// Renders 900 nested includes; the innermost executes `text` with a value 9,000 deep in `.v`.
fn includes(text: &str) -> Result<String, String> {
    render(&format!(
        "{{{{define `t`}}}}{{{{if .n}}}}{{{{include `t` (dict `n` (sub .n 1) `v` .v)}}}}\
         {{{{else}}}}{text}{{{{end}}}}{{{{end}}}}\
         {{{{$v := dict `a` 1}}}}{{{{range until 8999}}}}{{{{$v = list $v}}}}{{{{end}}}}\
         {{{{range $n := untilStep 0 900 60}}}}{{{{include `t` (dict `n` $n `v` $v)}}}}{{{{end}}}}\
         {{{{fail (include `t` (dict `n` 900 `v` $v))}}}}"
    ))
}

/// A document in which each of `deep` maps merges the previous one `fold` times.
fn merges(fold: usize, deep: usize) -> String {
    let mut text = String::from("l0: &l0 {a: 1}\n");
    for level in 1..deep {
        let before = format!("*l{}, ", level - 1).repeat(fold);
        let _ = writeln!(
            text,
            "l{level}: &l{level} {{<<: [{}]}}",
            before.trim_end_matches(", ")
        );
    }
    text
}

/// A document in which each of `deep` lists contains the previous one `fold` times.
fn aliases(fold: usize, deep: usize) -> String {
    let mut text = String::from("l0: &l0 [a]\n");
    for level in 1..deep {
        let before = format!("*l{}, ", level - 1).repeat(fold);
        let _ = writeln!(
            text,
            "l{level}: &l{level} [{}]",
            before.trim_end_matches(", ")
        );
    }
    text
}

/// A schema in which each of `deep` definitions refers twice to the next.
fn doubling(deep: usize) -> String {
    let mut text = String::from(r##"{"allOf": [{"$ref": "#/definitions/d0"}], "definitions": {"##);
    for level in 0..deep {
        let next = format!(r##"{{"$ref": "#/definitions/d{}"}}"##, level + 1);
        let _ = write!(text, r#""d{level}": {{"allOf": [{next}, {next}]}}, "#);
    }
    let _ = write!(text, r#""d{deep}": {{"type": "object"}}}}}}"#);
    text
}

fn with_schema(schema: &str, values: &str) -> Result<String, String> {
    let chart = Chart::from_files([
        File::new("Chart.yaml", "{apiVersion: v2, name: c, version: 0.1.0}"),
        File::new("values.yaml", values),
        File::new("values.schema.json", schema),
    ]);
    let compiled = CompiledChart::compile(&chart.map_err(|e| e.to_string())?);
    let compiled = compiled.map_err(|e| e.to_string())?;
    let values = compiled.coalesce(Values::new());
    values.map(|_| String::new()).map_err(|e| e.to_string())
}

/// Checks large numbers by a schema with divisors for which floats are wrong.
fn divided(divisors: u64, numbers: u64) -> Result<String, String> {
    let first = (1 << 53) - 1;
    let rules = (0..divisors).map(|index| format!(r#"{{"multipleOf": {}}}"#, first - 2 * index));
    let rules = rules.collect::<Vec<_>>().join(", ");
    let items = (1..=numbers).map(|number| format!("{number}e300"));
    let items = items.collect::<Vec<_>>().join(", ");
    let schema = format!(r#"{{"properties": {{"a": {{"items": {{"anyOf": [{rules}]}}}}}}}}"#);
    with_schema(&schema, &format!("a: [{items}]"))
}

/// Returns the messages of an error and of its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let messages: Vec<_> = causes.map(ToString::to_string).collect();
    messages.join(": ")
}

/// Applies a `--set` flag.
fn set(flag: &str) -> Result<String, String> {
    let set = helm_core::values::set(flag, &mut Values::new());
    set.map(|()| String::new()).map_err(|e| e.to_string())
}

fn chart_yaml(name: &str) -> Vec<u8> {
    format!("{{apiVersion: v2, name: {name}, version: 0.1.0}}").into_bytes()
}

/// Returns a compressed archive.
fn archive(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    for (name, data) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        archive
            .append_data(&mut header, name, data.as_slice())
            .unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap()
}
