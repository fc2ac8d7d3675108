//! Files that `--set-file` reads.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use helm_core::chart::{Chart, File};
use helm_core::engine::{CompiledChart, ReleaseInfo, RenderInput};
use helm_core::values::{self, UserValues};

fn chart(template: &str) -> CompiledChart {
    let chart = Chart::from_files([
        File::new("Chart.yaml", "{apiVersion: v2, name: c, version: 0.1.0}"),
        File::new("templates/a.yaml", template),
    ]);
    CompiledChart::compile(&chart.unwrap()).unwrap()
}

/// Templates, and what Helm prints with `--set-file f=FILE,g.h=FILE` of a file that is not UTF-8.
const CONTENTS: &[(&str, &str)] = &[
    ("{{ .Values.f | b64enc }}", "//4AYWJjgA=="),
    ("{{ .Values.g.h | b64enc }}", "//4AYWJjgA=="),
    ("{{ len .Values.f }}", "7"),
    (
        "{{ .Values.f | toJson }}",
        r#""\ufffd\ufffd\u0000abc\ufffd""#,
    ),
    (
        "{{ .Values.f | toYaml }}",
        "\"\u{fffd}\u{fffd}\\0abc\u{fffd}\"",
    ),
    ("{{ toYamlPretty .Values.f }}", "!!binary //4AYWJjgA=="),
    ("{{ printf `%q` .Values.f }}", r#""\xff\xfe\x00abc\x80""#),
    ("{{ sha256sum .Values.f | trunc 8 }}", "f8df5190"),
];

#[test]
fn files_of_flags_need_not_be_utf_8() {
    let read = |path: &str| {
        assert_eq!(path, "bin");
        Ok(b"\xff\xfe\0abc\x80".to_vec())
    };
    let mut user = UserValues::default();
    values::set_file("f=bin,g.h=bin,replaced=bin", &mut user, read).unwrap();
    values::set("replaced=x", user.values_mut()).unwrap();
    for (template, wanted) in CONTENTS {
        let compiled = chart(template);
        let values = compiled.coalesce(user.clone()).unwrap();
        let output = compiled.render_files(&RenderInput::new(ReleaseInfo::new("r", "ns"), &values));
        let (_, text) = output.unwrap().files.remove(0);
        assert_eq!(String::from_utf8(text).unwrap(), *wanted, "{template}");
    }
    let compiled = chart("a: {{ .Values.f }}");
    let values = compiled.coalesce(user).unwrap();
    // What a release records.
    let lossy = "\u{fffd}\u{fffd}\0abc\u{fffd}";
    let recorded = serde_json::json!({"f": lossy, "g": {"h": lossy}, "replaced": "x"});
    assert_eq!(serde_json::Value::from(values.user().clone()), recorded);
    let error = compiled.render(&RenderInput::new(ReleaseInfo::new("r", "ns"), &values));
    let error = error.unwrap_err().to_string();
    for part in ["c/templates/a.yaml", "utf-8"] {
        assert!(error.contains(part), "{error}");
    }
}
