//! Error messages of failed templates: Helm's wording, then the line with a caret and the chain of
//! includes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use helm_core::Rendered;
use helm_core::chart::{Chart, File, LoadError};
use helm_core::engine::{CompiledChart, OpenError, ReleaseInfo, RenderError, RenderInput};
use helm_core::values::{self, Values};

fn metadata(name: &str) -> String {
    format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n")
}

/// Loads the chart `web` with other files.
fn chart(files: &[(&str, &str)]) -> Result<Chart, LoadError> {
    let own = [File::new("Chart.yaml", metadata("web"))];
    let files = files.iter().map(|(path, text)| File::new(*path, *text));
    Chart::from_files(own.into_iter().chain(files))
}

/// Renders a chart with values of the user.
fn rendered(chart: &CompiledChart, user: &str) -> Result<Rendered, RenderError> {
    let values = values::read(user.as_bytes()).unwrap();
    let values = chart.coalesce(values).unwrap();
    let info = ReleaseInfo::new("demo", "default");
    chart.render(&RenderInput::new(info, &values))
}

fn failure(files: &[(&str, &str)]) -> String {
    let below = metadata("db");
    let files = [&[("charts/db/Chart.yaml", below.as_str())][..], files].concat();
    let compiled = CompiledChart::compile(&chart(&files).unwrap());
    let error = compiled
        .and_then(|compiled| rendered(&compiled, ""))
        .unwrap_err();
    shown(&error)
}

fn shown(error: &RenderError) -> String {
    format!("{error}\n\n{}", error.excerpt())
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let errors = std::iter::successors(Some(error), |error| error.source());
    let messages: Vec<String> = errors.map(ToString::to_string).collect();
    messages.join(": ")
}

#[test]
fn parse_error_names_the_line() {
    let error = failure(&[("templates/a.yaml", "a: 1\nb: {{ if }}\n")]);
    insta::assert_snapshot!(error);
}

#[test]
fn parse_error_of_a_dependency_fails_the_renders_it_takes_part_in() {
    let dependency = "dependencies:\n- {name: db, version: 1.0.0, condition: db.enabled}\n";
    let chart = chart(&[
        ("Chart.yaml", &format!("{}{dependency}", metadata("web"))),
        ("templates/a.yaml", "a: 1\n"),
        ("charts/db/Chart.yaml", &metadata("db")),
        ("charts/db/templates/b.yaml", "a: 1\nb: {{ if }}\n"),
    ]);
    let compiled = CompiledChart::compile(&chart.unwrap()).unwrap();
    let without = rendered(&compiled, "db: {enabled: false}\n").unwrap();
    assert_eq!(without.documents().count(), 1);
    let error = rendered(&compiled, "db: {enabled: true}\n").unwrap_err();
    let place = "web/charts/db/templates/b.yaml:2";
    assert!(error.to_string().contains(place), "{error}");
}

#[test]
fn failure_in_a_helper_shows_the_chain_of_includes() {
    let helpers = "{{ define \"name\" -}}\n{{ .Values.image.tag }}\n{{- end }}\n\
        {{ define \"outer\" }}{{ include \"name\" . | upper }}{{ end }}\n";
    let template = "kind: Pod\nname: {{ include \"outer\" . }}\n";
    let error = failure(&[
        ("templates/_h.tpl", helpers),
        ("templates/a.yaml", template),
    ]);
    insta::assert_snapshot!(error);
}

#[test]
fn failure_in_tpl_names_both_locations() {
    let error = failure(&[
        ("values.yaml", "text: 'x {{ .Values.missing.key }}'\n"),
        ("templates/a.yaml", "name: {{ tpl .Values.text . }}\n"),
    ]);
    insta::assert_snapshot!(error);
}

#[test]
fn required_error_has_the_authors_message() {
    let text = "name: x\npassword: {{ required \"db.password is needed\" .Values.password }}\n";
    let error = failure(&[("charts/db/templates/a.yaml", text)]);
    insta::assert_snapshot!(error);
}

#[test]
fn wrong_arguments_are_named_with_their_types() {
    let template =
        "{{- range $i := until .Values.replicas }}\n{{ end }}\n{{ upper .Values.replicas }}\n";
    let error = failure(&[
        ("values.yaml", "replicas: 3\n"),
        ("templates/a.yaml", template),
    ]);
    insta::assert_snapshot!(error);
}

#[test]
fn document_that_is_not_an_object_names_its_file() {
    let error = failure(&[("templates/a.yaml", "kind: Pod\na: b: c\n")]);
    insta::assert_snapshot!(error);
}

#[test]
fn errors_in_the_files_of_a_chart_name_file_line_and_column() {
    let (good, below) = (metadata("web"), metadata("db"));
    let deep = format!("{below}dependencies:\n- name: a\n  tags: {{b: c}}\n");
    let web = "Chart.yaml";
    let keywords = "Chart.yaml:4:11: keywords: invalid type";
    let tags = "charts/db/Chart.yaml:6:9: dependencies.0.tags: invalid type";
    let version = "is invalid, at Chart.yaml:3:10";
    for (path, text, place, line) in [
        (
            "values.yaml",
            "a: 1\nb: c: d\n",
            "values.yaml:2:5",
            "  2 | b: c: d",
        ),
        (
            "charts/db/values.yaml",
            "a: [1, 2\n",
            "charts/db/values.yaml:2:1",
            "",
        ),
        (
            web,
            &format!("{good}keywords: x\n"),
            keywords,
            "  4 | keywords: x",
        ),
        ("charts/db/Chart.yaml", &deep, tags, "  6 |   tags: {b: c}"),
        (
            web,
            &good.replace("1.0.0", "one"),
            version,
            "  3 | version: one",
        ),
        (
            web,
            &format!("{good}a: \t- b: [\n"),
            "Chart.yaml:4:5",
            "  4 | a: ",
        ),
    ] {
        let texts = [
            ("Chart.yaml", good.as_str()),
            ("charts/db/Chart.yaml", &below),
            (path, text),
        ];
        // The last file of a name replaces the earlier ones here.
        let last = texts
            .iter()
            .enumerate()
            .filter(|(at, (name, _))| texts.iter().skip(at + 1).all(|(later, _)| later != name));
        let files = last.map(|(_, (name, text))| File::new(*name, *text));
        let error = Chart::from_files(files).unwrap_err();
        let message = with_causes(&error);
        assert!(message.contains(place), "{place} is not in {message}");
        let excerpt = error.excerpt();
        assert!(excerpt.starts_with(line), "{message}\n{excerpt}");
        assert_eq!(line.is_empty(), excerpt.is_empty(), "{message}");
    }
}

#[test]
fn the_first_error_in_the_order_of_helm_is_reported() {
    // Helm reads a chart's values, then what is wrong in its own files, then its subcharts one by one.
    let below = "error unpacking subchart a in web";
    for (files, expected) in [
        (
            &[("values.yaml", "a: ["), ("charts/a/Chart.yaml", "name: a")][..],
            "cannot load values.yaml",
        ),
        (
            &[
                ("charts/a/Chart.yaml", &metadata("a")),
                ("charts/a/values.yaml", "a: ["),
                ("charts/b/Chart.yaml", "name: b"),
            ],
            &format!("{below}: cannot load values.yaml"),
        ),
        (
            &[
                ("charts/a/Chart.yaml", "name: a"),
                ("charts/b/Chart.yaml", &metadata("b")),
                ("charts/b/values.yaml", "a: ["),
            ],
            &format!("{below}: validation"),
        ),
        (
            &[("values.yaml", "a: ["), ("Chart.lock", "a: [")],
            "cannot load values.yaml",
        ),
    ] {
        let text = with_causes(&chart(files).unwrap_err());
        assert!(text.starts_with(expected), "{text}, not {expected}");
    }
}

#[test]
fn values_that_cannot_be_read_are_reported_before_templates() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("templates")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("Chart.yaml", &metadata("web"));
    write("templates/a.yaml", "{{ if }}");
    // Large enough to be parsed by another thread.
    write("templates/b.yaml", &"{{ .Values.a }}\n".repeat(4_000));
    write("values.yaml", "a: [");
    let error = CompiledChart::load(folder.path()).unwrap_err();
    assert!(matches!(error, OpenError::Load(_)), "{error}");
    write("values.yaml", "a: 1");
    let error = CompiledChart::load(folder.path()).unwrap_err();
    assert!(matches!(error, OpenError::Compile(_)), "{error}");
    let message = error.to_string();
    assert!(message.contains("web/templates/a.yaml:1"), "{message}");
    write("templates/a.yaml", "");
    let compiled = CompiledChart::load(folder.path()).unwrap();
    assert_eq!(compiled.chart().name(), "web");
}

#[test]
fn of_files_with_the_same_name_the_last_one_counts() {
    let template = "v: {{ .Values.a }} {{ .Chart.Version }} {{ .Files.Get \"f\" }}\n";
    let chart = chart(&[
        ("Chart.yaml", "version: 2.0.0\n"),
        ("values.yaml", "a: 1\n"),
        ("values.yaml", "a: 2\n"),
        ("templates/a.yaml", "v: first\n"),
        ("templates/a.yaml", template),
        ("f", "one"),
        ("f", "two"),
        ("crds/c.yaml", "c: 1\n"),
        ("crds/c.yaml", "c: 2\n"),
    ])
    .unwrap();
    let repeated: Vec<&str> = chart.repeated_files().iter().map(AsRef::as_ref).collect();
    let names = "Chart.yaml values.yaml templates/a.yaml f crds/c.yaml";
    assert_eq!(repeated.join(" "), names);
    let rendered = rendered(&CompiledChart::compile(&chart).unwrap(), "").unwrap();
    let manifest = "---\n# Source: web/templates/a.yaml\nv: 2 2.0.0 two\n\n";
    assert_eq!(rendered.manifest(), manifest);
    let crds = rendered.crds().iter().map(|crd| crd.file().data());
    let crds: Vec<_> = crds.collect();
    assert_eq!(crds, [b"c: 1\n", b"c: 2\n"]);
}

/// Renders a template with secret values and returns the errors without and with these.
fn hidden_and_shown(template: &str) -> (String, String) {
    let values = "password: hunter2\ntext: \"line\\nsecret {{ .nope.hunter2 }} hunter2\"\nbroken: \"hunter2 {{ hunter2 }}\"\n";
    let chart = chart(&[("values.yaml", values), ("templates/a.yaml", template)]).unwrap();
    let compiled = CompiledChart::compile(&chart).unwrap();
    let values = compiled.coalesce(Values::new()).unwrap();
    let mut input = RenderInput::new(ReleaseInfo::new("demo", "default"), &values);
    let hidden = shown(&compiled.render(&input).unwrap_err());
    input.values_in_errors = true;
    (hidden, shown(&compiled.render(&input).unwrap_err()))
}

#[test]
fn errors_do_not_show_the_contents_of_values_unless_asked_to() {
    let cases = r#"
{{ tpl .Values.broken . }}
    error calling tpl: cannot parse template a string of 21 bytes: template: gotpl:1: function a string of 7 bytes not defined
{{ range .Values.password }}{{ end }}
    range can't iterate over a value of type string
{{ semverCompare .Values.password "1.0.0" }}
    improper constraint: a string of 7 bytes
{{ mustRegexMatch (print "(" .Values.password) "" }}
    error calling mustRegexMatch: error parsing regexp: missing closing ): a string of 8 bytes
{{ mustToDate "2006" .Values.password }}
    parsing time a string of 7 bytes as a string of 4 bytes: cannot parse a string of 7 bytes as a string of 4 bytes
{{ genSelfSignedCert "a" (list .Values.password) nil 1 }}
    error parsing ip: a string of 7 bytes
"#;
    let lines: Vec<&str> = cases.trim().lines().map(str::trim).collect();
    for case in lines.chunks(2) {
        let (template, message) = (case[0], case[1]);
        let (hidden, shown) = hidden_and_shown(template);
        assert!(hidden.contains(message), "{hidden}");
        assert!(!hidden.contains("hunter2"), "{hidden}");
        assert!(shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn failure_within_the_text_of_tpl_names_its_place_and_length() {
    let (hidden, shown) = hidden_and_shown("{{ tpl .Values.text . }}");
    let place = "gotpl:2:15\n  executing \"gotpl\" at <a string of 39 bytes>:";
    assert!(hidden.contains(place), "{hidden}");
    assert!(!hidden.contains("secret"), "{hidden}");
    let line = "2 | secret {{ .nope.hunter2 }} hunter2";
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn message_of_the_charts_author_is_shown_as_it_is() {
    let (hidden, _) = hidden_and_shown("{{ fail \"set \\\"a\\\" or `b`\" }}");
    assert!(hidden.contains("set \"a\" or `b`"), "{hidden}");
}
