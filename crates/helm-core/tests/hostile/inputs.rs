//! The hostile inputs.

use std::fmt::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use helm_core::chart::{Chart, File, Limits};
use helm_core::engine::{CompiledChart, ReleaseInfo, RenderInput};
use helm_core::values::{SetError, Values, set, set_json};

type Outcome = Result<String, String>;

/// A hostile input.
pub(crate) struct Input {
    /// The test that it belongs to.
    pub(crate) group: &'static str,
    pub(crate) name: String,
    /// Parts of the message: the place and the limit.
    pub(crate) wanted: Vec<String>,
    /// Returns what the program says.
    pub(crate) run: Box<dyn Fn() -> Outcome + Send>,
}

impl Input {
    fn new(
        group: &'static str,
        name: &str,
        wanted: &[&str],
        run: impl Fn() -> Outcome + Send + 'static,
    ) -> Self {
        Self {
            group,
            name: name.to_owned(),
            wanted: wanted.iter().map(|part| (*part).to_owned()).collect(),
            run: Box::new(run),
        }
    }

    fn template(group: &'static str, name: &str, wanted: &[&str], template: String) -> Self {
        Self::new(group, name, wanted, move || render(&template))
    }
}

/// Renders a chart with this template.
fn render(template: &str) -> Outcome {
    render_with(template, [])
}

/// Renders a chart with this template and other files.
fn render_with(template: &str, files: impl IntoIterator<Item = File>) -> Outcome {
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
fn without_threads(run: fn() -> Outcome) -> Outcome {
    match std::thread::Builder::new().spawn(|| ()) {
        Ok(_) => Err("threads can be started".to_owned()),
        Err(_) => run(),
    }
}

/// A value that unfolds to 2^40 values, in `$a`; a second one in `$b`.
const UNFOLDS: &str = "{{$a:=dict `k` 1}}{{$b:=dict `k` 1}}{{range until 40}}\
    {{$a = dict `l` $a `r` $a}}{{$b = dict `l` $b `r` $b}}{{end}}";

/// Templates that use `$a` and `$b` of [`UNFOLDS`], each behind its name.
const UNFOLDING: &str = r"
toYaml: {{toYaml $a}}
toYamlPretty: {{toYamlPretty $a}}
toToml: {{toToml $a}}
toJson: {{toJson $a}}
toPrettyJson: {{toPrettyJson $a}}
toRawJson: {{toRawJson $a}}
deepEqual: {{deepEqual $a $b}}
has: {{has $a (list $b)}}
uniq: {{uniq (list $a $b)}}
without: {{without (list $a) $b}}
eq of lists in dig: {{dig `l` `r` `` $a}}
merge: {{merge $a $b}}
mergeOverwrite: {{mergeOverwrite $a $b | len}}
mustMerge: {{mustMerge (dict) $a $b | len}}
deepCopy: {{$c := deepCopy $a}}
mustDeepCopy: {{$c := mustDeepCopy $a}}
print: {{print $a}}
println: {{println $a}}
printf: {{printf `%v %#v` $a $a}}
action: {{$a}}
cat: {{cat $a $a}}
quote: {{quote $a}}
squote: {{squote $a}}
html: {{html $a}}
js: {{js $a}}
urlquery: {{urlquery $a}}
toString: {{toString $a}}
join: {{join `,` (list $a $a)}}
toStrings: {{toStrings (list $a $a) | len}}
sortAlpha: {{sortAlpha (list $a $a) | len}}
dict key: {{dict $a 1 | len}}
genSignedCert: {{genSelfSignedCert `a` (list $a) (list $a) 1}}
error text: {{range $a.k}}{{end}}{{range $i, $x := print $a}}{{end}}
";

/// Templates that collect values, each behind its name.
const COLLECTING: &str = r"
splitList: {{$s := repeat 100000000 `a,`}}{{splitList `,` $s | len}}
split: {{$s := repeat 50000000 `a,`}}{{split `,` $s | len}}
lists in a variable: {{$l := list}}{{range until 100}}{{$l = append $l (until 9000000)}}{{end}}
dictionaries in a chain: {{$l := dict}}{{range until 9000000}}{{$l = dict `a` $l}}{{end}}
times in a chain: {{$l := list}}{{range until 9000000}}{{$l = list $l now}}{{end}}
";

/// Templates that read long texts, each behind its name.
const READING: &str = r"
fromYaml of a long list: {{$x := fromYamlArray (print `[` (repeat 60000000 `a,`) `]`)}}
fromYaml of a long list with an anchor: {{$x := fromYamlArray (print `[&a b,` (repeat 60000000 `a,`) `]`)}}
fromJson of a long list: {{$x := fromJsonArray (print `[` (repeat 60000000 `1,`) `1]`)}}
fromToml of deep tables: {{$x := fromToml (print `a = ` (repeat 19000 `{a = `) 1 (repeat 19000 `}`))}}
fromToml of a long table name: {{$x := fromToml (print `[` (repeat 100000 `a.`) `a]`)}}
fromToml of a long key: {{$x := fromToml (print (repeat 100000 `a.`) `a = 1`)}}
fromToml of a long list: {{$x := fromToml (print `a = [` (repeat 60000000 `1,`) `1]`)}}
";

/// Templates with costly regular expressions, each behind its name.
const PATTERNS: &str = r"
search that starts over at every byte: {{$x := regexReplaceAll `x.*y|x` (repeat 5000000 `x`) ``}}
empty matches in a long text: {{$x := regexFindAll `` (repeat 134217728 `x`) -1}}
split of a long text: {{$x := regexSplit `` (repeat 134217728 `x`) -1}}
replacement of a long text: {{$x := regexReplaceAll `` (repeat 100000000 `x`) `yyyyyyyyyyyyyyyyyyyy`}}
failing patterns in a loop: {{range until 1000000}}{{$x := regexMatch (print (repeat 900 `(a{1,30})`) . `(`) `x`}}{{end}}
large patterns in a loop: {{range until 1000000}}{{$x := regexMatch (print `(\\pL{1,30}){1,20}` .) `x`}}{{end}}
huge classes in a loop: {{range until 1000000}}{{$x := regexMatch (print `[` (repeat 20000 `\\pL\\pN`) . `]`) `x`}}{{end}}
case-insensitive classes in a loop: {{range until 1000000}}{{$x := regexMatch (print `(?i)` (repeat 900 `[\\pL\\pN]`) .) `x`}}{{end}}
";

/// Templates with long texts and slow functions, each behind its name.
const TEXTS: &str = r#"
a long text written many times: {{$s:=repeat 134217728 `x`}}{{$s}}{{$s}}{{$s}}{{$s}}{{$s}}{{$s}}
print of a long text many times: {{$s:=repeat 134217728 `x`}}{{$x := print $s $s $s $s $s $s $s $s $s $s}}
print of a long text in a loop: {{$s:=repeat 130000000 `x`}}{{$l := list}}{{range until 200}}{{$l = append $l (print $s)}}{{end}}
toJson of a long text many times: {{$s:=repeat 100000 `<`}}{{$l := list}}{{range until 1000}}{{$l = append $l $s}}{{end}}{{toJson $l}}
toYaml of a long text many times: {{$s:=repeat 1000000 `\u0007`}}{{$l := list}}{{range until 1000}}{{$l = append $l $s}}{{end}}{{toYaml $l}}
texts of one variable: {{$l := list}}{{range until 10000000}}{{$l = list $l (repeat 1000 `x`)}}{{end}}
derivePassword in a loop: {{range until 100000}}{{derivePassword 1 `long` `a` `b` `c`}}{{end}}
bcrypt in a loop: {{range until 100000}}{{bcrypt `a`}}{{end}}
indent of many lines: {{$x := indent 100 (repeat 60000000 "\n")}}
printf with wide arguments: {{range until 1000000}}{{printf `%999999d%999999d%999999d` 1 2 3}}{{end}}
functions of a long text: {{$s := repeat 120000000 `é`}}{{$x := list (upper $s) (lower $s) (title $s) (b64enc $s) (quote $s) (swapcase $s) (camelcase $s)}}
wrapped text: {{$x := wrapWith 1 `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx` (repeat 30000000 `a `)}}
replaced text: {{$x := replace `a` (repeat 1000 `b`) (repeat 1000000 `a`)}}
tpl of a long text: {{$x := tpl (repeat 10000000 `{{1}}`) .}}
tpl of many texts: {{range until 1000000}}{{$x := tpl (print (repeat 6000 `{{if 1}}{{end}}`) .) $}}{{end}}
"#;

/// The place of an error in the first line of the template.
const PLACE: &str = "c/templates/a.yaml:1:";

pub(crate) fn inputs() -> Vec<Input> {
    let groups = [limited(), nesting(), yaml(), threads(), charts(), flags()];
    groups.into_iter().flatten().collect()
}

/// Templates whose errors name the place and a limit.
fn limited() -> Vec<Input> {
    let tables = [
        ("unfolding", UNFOLDS, UNFOLDING),
        ("unfolding", "", COLLECTING),
        ("yaml", "", READING),
        ("regex", "", PATTERNS),
        ("text", "", TEXTS),
    ];
    let inputs = tables.into_iter().flat_map(|(group, before, table)| {
        table.trim().lines().map(move |line| {
            let (name, template) = line.split_once(": ").unwrap();
            let template = format!("{before}{template}");
            Input::template(group, name, &[PLACE, "(limit `"], template)
        })
    });
    inputs.collect()
}

/// Text that the innermost of many includes executes, behind the function and the number that it ends with.
const INNERMOST: &str = r#"
toYaml: 18002: {{toYaml $.v | len}}
toJson: 18005: {{toJson $.v | len}}
toToml: 18010: {{toToml (dict `a` $.v) | len}}
print: 18006: {{print $.v | len}}
deepCopy: 1: {{deepCopy $.v | len}}
fromYaml: 1: {{fromYaml (print (repeat 9000 `{a: `) (repeat 9000 `}`)) | len}}
fromYamlArray: 1: {{fromYamlArray (print (repeat 9000 `[`) (repeat 9000 `]`)) | len}}
fromJson: 1: {{fromJson (print (repeat 9000 `{"a":`) `1` (repeat 9000 `}`)) | len}}
fromToml: 1: {{fromToml (print `a = ` (repeat 9000 `[`) (repeat 9000 `]`)) | len}}
"#;

fn nesting() -> Vec<Input> {
    let template =
        |name: &str, wanted: &[&str], text| Input::template("nesting", name, wanted, text);
    let mut inputs: Vec<_> = INNERMOST
        .trim()
        .lines()
        .map(|line| {
            let (function, rest) = line.split_once(": ").unwrap();
            let (number, text) = rest.split_once(": ").unwrap();
            let name = format!("includes that call {function}");
            template(&name, &[PLACE, &format!("): {number}\n")], includes(text))
        })
        .collect();
    let maps = "{{$t := ``}}{{range until 500}}{{$t = print $t (repeat . ` `) `a:\n`}}{{end}}\
                      {{fromYaml $t | len}}";
    let in_itself = "{{$m := dict}}{{$m = set $m `a` $m}}{{toYaml $m | len}}{{print $m}}";
    let expression = "{{regexMatch (print (repeat 900 `(`) (repeat 900 `)`)) `x`}}";
    let tpl = "{{tpl (print `{{` (repeat 9000 `(`) 1 (repeat 9000 `)`) `}}`) . | len}}";
    let (second, limit) = ("c/templates/a.yaml:2:", "(limit `nesting`)");
    for (what, place, wanted, text) in [
        ("call fromYaml of block maps", second, "): 1\n", maps),
        ("print a map that contains itself", PLACE, limit, in_itself),
        ("call regexMatch", PLACE, "", expression),
        ("call tpl", PLACE, "", tpl),
    ] {
        let name = format!("includes that {what}");
        inputs.push(template(&name, &[place, wanted], includes(text)));
    }
    let include = "{{include `t` .}}";
    let (open, close) = ("{{if 1}}".repeat(9_900), "{{end}}".repeat(9_900));
    let chain = format!("{{{{if 0}}}}{}{{{{else}}}}", "{{else if 0}}".repeat(9_900));
    let (left, right) = ("(".repeat(9_900), ")".repeat(9_900));
    for (place, body) in [
        ("many control structures", format!("{open}{include}{close}")),
        ("a long chain", format!("{chain}{include}{{{{end}}}}")),
        (
            "many parentheses",
            format!("{{{{{left}include `t` .{right}}}}}"),
        ),
    ] {
        let name = format!("endless includes in {place}");
        let text = format!("{{{{define `t`}}}}{body}{{{{end}}}}{include}");
        inputs.push(template(&name, &[PLACE, "(limit `memory`)"], text));
    }
    let from_yaml = "{{$x := fromYaml (repeat 9000 `[`)}}{{$x = fromYaml (repeat 100000 `[`)}}\
        {{$x = fromYaml (repeat 100000 `- `)}}{{$x = fromYaml (repeat 100000 `? `)}}a: ok";
    let (document, file) = (
        "a: {{repeat 500 `[`}}{{repeat 500 `]`}}\nb: {{repeat 100000 `[`}}",
        "c/templates/a.yaml",
    );
    for (what, wanted, text) in [
        ("fromYaml of many brackets", "ok", from_yaml),
        ("a document with many brackets", file, document),
    ] {
        inputs.push(template(what, &[wanted], text.to_owned()));
    }
    let values_file = "values file with many brackets";
    inputs.push(Input::new("nesting", values_file, &["values.yaml"], || {
        let text = format!("a: {}{}", "[".repeat(100_000), "]".repeat(100_000));
        let chart = Chart::from_files([
            File::new("Chart.yaml", "{apiVersion: v2, name: c, version: 0.1.0}"),
            File::new("values.yaml", text),
        ]);
        chart.map(|_| String::new()).map_err(|e| e.to_string())
    }));
    inputs
}

fn yaml() -> Vec<Input> {
    let file = "c/templates/a.yaml";
    let (aliasing, key) = ("excessive aliasing", "invalid map key");
    let (merges, aliases) = (merges(9, 12), aliases(9, 12));
    let read = format!("a: {{{{ fromYaml `{merges}` | toString | trunc 99 | quote }}}}");
    let complex_keys = format!("{aliases}\n? *l11\n: 1\n");
    let large_key = "? {{ toJson (until 100000) }}\n: 1\n".to_owned();
    let mut anchors = String::from("{{ $big := toJson (until 100000) }}a: ");
    for level in 0..400 {
        let _ = write!(anchors, "&a{level} [");
    }
    anchors.push_str("{{ $big }}");
    anchors.push_str(&"]".repeat(400));
    let documents = [
        ("merges nine-fold and twelve deep", "", aliasing, read),
        ("merges in a document", file, aliasing, merges),
        ("aliases in a document", file, aliasing, aliases),
        ("aliases as complex keys", file, key, complex_keys),
        ("large complex key", file, key, large_key),
        ("nested anchors around large content", file, "", anchors),
    ];
    let inputs = documents
        .map(|(name, place, wanted, text)| Input::template("yaml", name, &[place, wanted], text));
    inputs.into()
}

fn threads() -> Vec<Input> {
    let threads = |name: &str, wanted: &str, run: fn() -> Outcome| {
        Input::new("threads", name, &[wanted], move || without_threads(run))
    };
    let parsed = "templates that are parsed on several threads";
    vec![
        threads("an RSA key", "a: -----BEGIN RSA PRIVATE KEY-----", || {
            render("a: {{ genPrivateKey `rsa` | trunc 31 }}")
        }),
        threads("a certificate", "a: -----BEGIN CERTIFICATE-----", || {
            render("a: {{ (genCA `a` 1).Cert | trunc 27 }}")
        }),
        threads(parsed, "a: ok", || {
            let comments = "{{/* x */}}".repeat(10_000);
            let other = |name| File::new(name, comments.as_str());
            render_with("a: ok", ["templates/_b.tpl", "templates/_c.tpl"].map(other))
        }),
    ]
}

fn charts() -> Vec<Input> {
    let chart =
        |name: &str, wanted: &[&str], run: fn() -> Outcome| Input::new("chart", name, wanted, run);
    let unmet = "values don't meet";
    let errors = ["is not a multiple of", "more errors"];
    let too_many = ["the schema has 400 multipleOf for 501 numbers"];
    let unpacks = ["the chart archive unpacks to more than"];
    vec![
        chart("allOf of two references sixty deep", &[unmet, "c:"], || {
            with_schema(&doubling(60), "a: 1")
        }),
        chart("costly pattern", &[unmet], || {
            let schema = r#"{"properties": {"a": {"pattern": "((\\pL{1,100}){1,100}){1,10}"}}}"#;
            with_schema(schema, "a: x")
        }),
        chart("unfolding anyOf", &[unmet], || {
            let schema = doubling(60).replace("allOf", "anyOf");
            with_schema(&schema.replace("object", "string"), "a: 1")
        }),
        chart("many divisors and large numbers", &errors, || {
            divided(400, 480)
        }),
        chart("many errors", &["but got number", "more errors"], || {
            let wrong = vec![r#"{"type": "string"}"#; 1_300].join(", ");
            with_schema(&any_of(&wrong), &format!("a: {:?}", [1; 1_300]))
        }),
        chart("too many divisors and numbers", &too_many, || {
            divided(400, 501)
        }),
        chart("schema that contains itself", &[unmet], || {
            with_schema(r##"{"allOf": [{"$ref": "#"}, {"$ref": "#"}]}"##, "a: 1")
        }),
        chart("deep schema", &["values"], || {
            let schema = format!("{}true{}", r#"{"not": "#.repeat(5_000), "}".repeat(5_000));
            with_schema(&schema, "a: 1")
        }),
        chart("nested archives", &unpacks, nested_archives),
    ]
}

fn nested_archives() -> Outcome {
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

type Set = fn(&str, &mut Values) -> Result<(), SetError>;

fn flags() -> Vec<Input> {
    let (indexes, names) = ("[0]".repeat(100_000), ".a".repeat(100_000));
    let (open, close) = ("{".repeat(100_000), "}".repeat(100_000));
    let brackets = format!("a={}{}", "[".repeat(100_000), "]".repeat(100_000));
    let high = "a[65536]=1,b[999999999]=1".to_owned();
    let flags: [(_, Set, _); 5] = [
        ("--set with many indexes", set, format!("a{indexes}=1")),
        ("--set with many names", set, format!("a{names}=1")),
        ("--set with many braces", set, format!("a={open}1{close}")),
        ("--set of a high index", set, high),
        ("--set-json with many brackets", set_json, brackets),
    ];
    let inputs = flags.map(|(name, set, flag)| {
        Input::new("chart", name, &["a"], move || {
            let set = set(&flag, &mut Values::new());
            set.map(|()| String::new()).map_err(|e| e.to_string())
        })
    });
    inputs.into()
}

/// A template with 900 nested includes; the innermost executes `text` with a value 9,000 deep in `.v`.
fn includes(text: &str) -> String {
    format!(
        "{{{{define `t`}}}}{{{{if .n}}}}{{{{include `t` (dict `n` (sub .n 1) `v` .v)}}}}\
         {{{{else}}}}{text}{{{{end}}}}{{{{end}}}}\
         {{{{$v := dict `a` 1}}}}{{{{range until 8999}}}}{{{{$v = list $v}}}}{{{{end}}}}\
         {{{{range $n := untilStep 0 900 60}}}}{{{{include `t` (dict `n` $n `v` $v)}}}}{{{{end}}}}\
         {{{{fail (include `t` (dict `n` 900 `v` $v))}}}}"
    )
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

fn with_schema(schema: &str, values: &str) -> Outcome {
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

/// A schema for the items of `a`, each of which must meet one of the rules.
fn any_of(rules: &str) -> String {
    format!(r#"{{"properties": {{"a": {{"items": {{"anyOf": [{rules}]}}}}}}}}"#)
}

/// Checks large numbers by a schema with divisors for which floats are wrong.
fn divided(divisors: u64, numbers: u64) -> Outcome {
    let first = (1 << 53) - 1;
    let rules = (0..divisors).map(|index| format!(r#"{{"multipleOf": {}}}"#, first - 2 * index));
    let rules = rules.collect::<Vec<_>>().join(", ");
    let items = (1..=numbers).map(|number| format!("{number}e300"));
    let items = items.collect::<Vec<_>>().join(", ");
    with_schema(&any_of(&rules), &format!("a: [{items}]"))
}

/// Returns the messages of an error and of its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let messages: Vec<_> = causes.map(ToString::to_string).collect();
    messages.join(": ")
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
