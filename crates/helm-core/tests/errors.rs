//! Error messages of failed templates: Helm's wording, then the line with a caret and the chain of
//! includes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use helm_core::chart::{Chart, File};
use helm_core::engine::{CompiledChart, ReleaseInfo, RenderError, RenderInput};
use helm_core::values::Values;

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

#[test]
fn parse_error_names_the_line() {
    let error = failure(&[("templates/a.yaml", "a: 1\nb: {{ if }}\n")]);
    insta::assert_snapshot!(error);
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
