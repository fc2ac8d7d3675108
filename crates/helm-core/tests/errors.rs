//! Error messages of failed templates: Helm's wording, then the line with a caret and the chain of
//! includes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use helm_core::chart::{Chart, File};
use helm_core::engine::{CompiledChart, OpenError, ReleaseInfo, RenderError, RenderInput};
use helm_core::values::{self, Values};

fn failure(files: &[(&str, &str)]) -> String {
    let metadata = |name| format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    let own = [
        File::new("Chart.yaml", metadata("web")),
        File::new("charts/db/Chart.yaml", metadata("db")),
    ];
    let files = files.iter().map(|(path, text)| File::new(*path, *text));
    let chart = Chart::from_files(own.into_iter().chain(files)).unwrap();
    let error = match CompiledChart::compile(&chart) {
        Err(error) => error,
        Ok(compiled) => {
            let values = compiled.coalesce(Values::new()).unwrap();
            let input = RenderInput::new(ReleaseInfo::new("demo", "default"), &values);
            compiled.render(&input).unwrap_err()
        }
    };
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
    let chart = Chart::from_files([
        File::new(
            "Chart.yaml",
            "apiVersion: v2\nname: web\nversion: 1.0.0\ndependencies:\n- {name: db, version: 1.0.0, condition: db.enabled}\n",
        ),
        File::new("templates/a.yaml", "a: 1\n"),
        File::new(
            "charts/db/Chart.yaml",
            "apiVersion: v2\nname: db\nversion: 1.0.0\n",
        ),
        File::new("charts/db/templates/b.yaml", "a: 1\nb: {{ if }}\n"),
    ]);
    let compiled = CompiledChart::compile(&chart.unwrap()).unwrap();
    for (enabled, place) in [
        (false, None),
        (true, Some("web/charts/db/templates/b.yaml:2")),
    ] {
        let user = format!("db: {{enabled: {enabled}}}\n");
        let values = compiled
            .coalesce(values::read(user.as_bytes()).unwrap())
            .unwrap();
        let result = compiled.render(&RenderInput::new(
            ReleaseInfo::new("demo", "default"),
            &values,
        ));
        match place {
            Some(place) => assert!(result.unwrap_err().to_string().contains(place)),
            None => assert_eq!(result.unwrap().documents().count(), 1),
        }
    }
}

#[test]
fn failure_in_a_helper_shows_the_chain_of_includes() {
    let error = failure(&[
        (
            "templates/_h.tpl",
            "{{ define \"name\" -}}\n{{ .Values.image.tag }}\n{{- end }}\n{{ define \"outer\" }}{{ include \"name\" . | upper }}{{ end }}\n",
        ),
        (
            "templates/a.yaml",
            "kind: Pod\nname: {{ include \"outer\" . }}\n",
        ),
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
    let error = failure(&[(
        "charts/db/templates/a.yaml",
        "name: x\npassword: {{ required \"db.password is needed\" .Values.password }}\n",
    )]);
    insta::assert_snapshot!(error);
}

#[test]
fn wrong_arguments_are_named_with_their_types() {
    let error = failure(&[
        ("values.yaml", "replicas: 3\n"),
        (
            "templates/a.yaml",
            "{{- range $i := until .Values.replicas }}\n{{ end }}\n{{ upper .Values.replicas }}\n",
        ),
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
    let good = "apiVersion: v2\nname: web\nversion: 1.0.0\n";
    let below = "apiVersion: v2\nname: db\nversion: 1.0.0\n";
    for (path, text, place, line) in [
        (
            "values.yaml",
            "a: 1\nb: c: d\n".to_owned(),
            "values.yaml:2:5",
            "  2 | b: c: d",
        ),
        (
            "charts/db/values.yaml",
            "a: [1, 2\n".to_owned(),
            "charts/db/values.yaml:2:1",
            "",
        ),
        (
            "Chart.yaml",
            format!("{good}keywords: x\n"),
            "Chart.yaml:4:11: keywords: invalid type",
            "  4 | keywords: x",
        ),
        (
            "charts/db/Chart.yaml",
            format!("{below}dependencies:\n- name: a\n  tags: {{b: c}}\n"),
            "charts/db/Chart.yaml:6:9: dependencies.0.tags: invalid type",
            "  6 |   tags: {b: c}",
        ),
        (
            "Chart.yaml",
            good.replace("1.0.0", "one"),
            "is invalid, at Chart.yaml:3:10",
            "  3 | version: one",
        ),
        (
            "Chart.yaml",
            format!("{good}a: \t- b: [\n"),
            "Chart.yaml:4:5",
            "  4 | a: ",
        ),
    ] {
        let texts = [
            ("Chart.yaml", good),
            ("charts/db/Chart.yaml", below),
            (path, &text),
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
        assert!(
            error.excerpt().starts_with(line),
            "{message}\n{}",
            error.excerpt()
        );
        assert_eq!(line.is_empty(), error.excerpt().is_empty(), "{message}");
    }
}

#[test]
fn the_first_error_in_the_order_of_helm_is_reported() {
    let chart = |name| format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    // Helm reads a chart's values, then what is wrong in its own files, then its subcharts one by one.
    let cases: &[(&[(&str, &str)], &str)] = &[
        (
            &[("values.yaml", "a: ["), ("charts/a/Chart.yaml", "name: a")],
            "cannot load values.yaml",
        ),
        (
            &[
                ("charts/a/Chart.yaml", &chart("a")),
                ("charts/a/values.yaml", "a: ["),
                ("charts/b/Chart.yaml", "name: b"),
            ],
            "error unpacking subchart a in web: cannot load values.yaml",
        ),
        (
            &[
                ("charts/a/Chart.yaml", "name: a"),
                ("charts/b/Chart.yaml", &chart("b")),
                ("charts/b/values.yaml", "a: ["),
            ],
            "error unpacking subchart a in web: validation",
        ),
        (
            &[("values.yaml", "a: ["), ("Chart.lock", "a: [")],
            "cannot load values.yaml",
        ),
    ];
    for (files, expected) in cases {
        let own = [File::new("Chart.yaml", chart("web"))];
        let files = files.iter().map(|(path, text)| File::new(*path, *text));
        let error = Chart::from_files(own.into_iter().chain(files)).unwrap_err();
        let text = with_causes(&error);
        assert!(text.starts_with(expected), "{text}, not {expected}");
    }
}

#[test]
fn values_that_cannot_be_read_are_reported_before_templates() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("templates")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n");
    write("templates/a.yaml", "{{ if }}");
    // Large enough to be parsed by another thread.
    write("templates/b.yaml", &"{{ .Values.a }}\n".repeat(4_000));
    write("values.yaml", "a: [");
    let error = CompiledChart::load(folder.path()).unwrap_err();
    assert!(matches!(error, OpenError::Load(_)), "{error}");
    write("values.yaml", "a: 1");
    let error = CompiledChart::load(folder.path()).unwrap_err();
    assert!(matches!(error, OpenError::Compile(_)), "{error}");
    assert!(
        error.to_string().contains("web/templates/a.yaml:1"),
        "{error}"
    );
    write("templates/a.yaml", "");
    assert_eq!(
        CompiledChart::load(folder.path()).unwrap().chart().name(),
        "web"
    );
}

#[test]
fn of_files_with_the_same_name_the_last_one_counts() {
    let metadata = "apiVersion: v2\nname: web\nversion: 1.0.0\n";
    let chart = Chart::from_files([
        File::new("Chart.yaml", metadata),
        File::new("Chart.yaml", "version: 2.0.0\n"),
        File::new("values.yaml", "a: 1\n"),
        File::new("values.yaml", "a: 2\n"),
        File::new("templates/a.yaml", "v: first\n"),
        File::new(
            "templates/a.yaml",
            "v: {{ .Values.a }} {{ .Chart.Version }} {{ .Files.Get \"f\" }}\n",
        ),
        File::new("f", "one"),
        File::new("f", "two"),
        File::new("crds/c.yaml", "c: 1\n"),
        File::new("crds/c.yaml", "c: 2\n"),
    ])
    .unwrap();
    let repeated: Vec<&str> = chart.repeated_files().iter().map(AsRef::as_ref).collect();
    assert_eq!(
        repeated,
        [
            "Chart.yaml",
            "values.yaml",
            "templates/a.yaml",
            "f",
            "crds/c.yaml"
        ]
    );
    let compiled = CompiledChart::compile(&chart).unwrap();
    let values = compiled.coalesce(Values::new()).unwrap();
    let input = RenderInput::new(ReleaseInfo::new("demo", "default"), &values);
    let rendered = compiled.render(&input).unwrap();
    assert_eq!(
        rendered.manifest(),
        "---\n# Source: web/templates/a.yaml\nv: 2 2.0.0 two\n\n"
    );
    let crds: Vec<_> = rendered
        .crds()
        .iter()
        .map(|crd| crd.file().data())
        .collect();
    assert_eq!(crds, [b"c: 1\n", b"c: 2\n"]);
}

/// Renders a template with secret values and returns the errors without and with these.
fn hidden_and_shown(template: &str) -> (String, String) {
    let values = "password: hunter2\ntext: \"line\\nsecret {{ .nope.hunter2 }} hunter2\"\nbroken: \"hunter2 {{ hunter2 }}\"\n";
    let chart = Chart::from_files([
        File::new("Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n"),
        File::new("values.yaml", values),
        File::new("templates/a.yaml", template),
    ])
    .unwrap();
    let compiled = CompiledChart::compile(&chart).unwrap();
    let values = compiled.coalesce(Values::new()).unwrap();
    let mut input = RenderInput::new(ReleaseInfo::new("demo", "default"), &values);
    let hidden = shown(&compiled.render(&input).unwrap_err());
    input.values_in_errors = true;
    (hidden, shown(&compiled.render(&input).unwrap_err()))
}

#[test]
fn errors_do_not_show_the_contents_of_values_unless_asked_to() {
    for (template, message) in [
        (
            "{{ tpl .Values.broken . }}",
            "error calling tpl: cannot parse template a string of 21 bytes: template: gotpl:1: function a \
             string of 7 bytes not defined",
        ),
        (
            "{{ range .Values.password }}{{ end }}",
            "range can't iterate over a value of type string",
        ),
        (
            "{{ semverCompare .Values.password \"1.0.0\" }}",
            "improper constraint: a string of 7 bytes",
        ),
        (
            "{{ mustRegexMatch (print \"(\" .Values.password) \"\" }}",
            "error calling mustRegexMatch: error parsing regexp: missing closing ): a string of 8 bytes",
        ),
        (
            "{{ mustToDate \"2006\" .Values.password }}",
            "parsing time a string of 7 bytes as a string of 4 bytes: cannot parse a string of 7 bytes as \
             a string of 4 bytes",
        ),
        (
            "{{ genSelfSignedCert \"a\" (list .Values.password) nil 1 }}",
            "error parsing ip: a string of 7 bytes",
        ),
    ] {
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
    assert!(
        shown.contains("2 | secret {{ .nope.hunter2 }} hunter2"),
        "{shown}"
    );
}

#[test]
fn message_of_the_charts_author_is_shown_as_it_is() {
    let (hidden, _) = hidden_and_shown("{{ fail \"set \\\"a\\\" or `b`\" }}");
    assert!(hidden.contains("set \"a\" or `b`"), "{hidden}");
}
