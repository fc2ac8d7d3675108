use std::path::Path;

use helm_core::Capabilities;
use helm_core::engine::Cancel;
use serde_json::{Value, json};

use super::judge::{Judged, Verdict};
use super::{Entry, Outcome, checked, named, outcome};
use crate::helm::HelmController;
use crate::helm::chart::Chart;
use crate::helm::offline::PreviewInput;
use crate::watches::{AdmissionMode, Watch, parse};

const SCHEMA: &str = r#"{"properties": {"auth": {"properties": {"user": {"type": "string"}}}}}"#;

/// Returns an entry with a chart that has this template.
fn entry(options: &str, template: &str) -> Entry {
    let directory = tempfile::tempdir().unwrap();
    let files = [
        (
            "Chart.yaml",
            "{apiVersion: v2, name: cache, version: 0.1.0}",
        ),
        ("values.schema.json", SCHEMA),
        ("templates/a.yaml", template),
    ];
    std::fs::create_dir(directory.path().join("templates")).unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    Entry {
        mode: AdmissionMode::Render,
        watch: watch(options),
        chart: Chart::load(directory.path()).unwrap(),
        storage: super::Storage::default(),
    }
}

pub(super) fn watch(options: &str) -> Watch {
    let text = format!("- {{group: g.example.com, version: v1, kind: Cache, chart: c, {options}}}");
    let (mut entries, problems) = parse(text.as_bytes(), Path::new(""));
    assert_eq!(problems, []);
    entries.remove(0).watch
}

fn verdict(entry: &Entry, spec: &Value) -> Verdict {
    let object = json!({"metadata": {"name": "x", "namespace": "ns"}, "spec": spec});
    let judged = Judged {
        mode: entry.mode,
        preview: PreviewInput {
            watch: &entry.watch,
            chart: &entry.chart,
            object: &object,
            operator_namespace: None,
            latest: None,
            values_in_errors: false,
        },
        capabilities: &Capabilities::default(),
        limits: entry.watch.policy.limits.of_render(),
        cancel: Cancel::new(),
    };
    judged.verdict()
}

pub(super) fn outcome_of(entry: &Entry, spec: &Value) -> Outcome {
    outcome(&verdict(entry, spec), &entry.watch, &entry.chart, None)
}

fn denied(entry: &Entry, spec: &Value) -> String {
    match outcome_of(entry, spec) {
        Outcome::Denied(message) => message,
        other => panic!("{other:?}"),
    }
}

const OPTIONS: &str =
    "admission: render, map: {replicas: spec.size, auth.user: 'spec.name + spec.suffix'}";

#[test]
fn messages_name_the_place_in_the_chart_and_the_fields_of_the_spec() {
    let fail = "{{ if .Values.odd }}\n{{ fail \"replicas must be odd\" }}{{ end }}\n\
                {{ if .Values.bad }}\n{{ .Values.bad.of.text }}{{ end }}\n\
                {{ if .Values.yaml }}\na: b: c{{ end }}";
    let entry = entry(OPTIONS, fail);
    assert_eq!(
        denied(&entry, &json!({"odd": true, "size": 2})),
        "templates/a.yaml:2: replicas must be odd (from spec.size)"
    );
    let message = denied(&entry, &json!({"bad": "text"}));
    assert!(message.starts_with("templates/a.yaml:4: "), "{message}");
    assert!(!message.contains('\n'), "{message}");
    let message = denied(&entry, &json!({"yaml": true}));
    assert!(message.contains("cache/templates/a.yaml"), "{message}");
    let message = denied(&entry, &json!({"auth": {"user": 1}}));
    assert!(
        message.ends_with("(from spec.name, spec.suffix)"),
        "{message}"
    );
    // An expression that fails quotes no value.
    let message = denied(&entry, &json!({"name": 7, "suffix": "secret"}));
    assert!(message.contains("field map.auth.user"), "{message}");
    assert!(!message.contains("secret"), "{message}");
}

#[test]
fn what_a_check_cannot_know_is_allowed() {
    let lookup =
        "{{ if not (lookup \"v1\" \"Secret\" \"ns\" \"a\") }}{{ fail \"no Secret\" }}{{ end }}";
    let not_checked = |entry: &Entry| match outcome_of(entry, &json!({})) {
        Outcome::NotChecked(why) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        not_checked(&entry(OPTIONS, lookup)),
        "the chart looks up v1 Secret ns/a in the cluster"
    );
    let from = "admission: render, valuesFrom: [{kind: ConfigMap, name: settings}]";
    assert_eq!(
        not_checked(&entry(from, "")),
        "its values come from ConfigMap ns/settings"
    );
    // An error before the lookup does not depend on it.
    let earlier = format!("{{{{ fail \"wrong\" }}}}{lookup}");
    assert_eq!(
        denied(&entry(OPTIONS, &earlier), &json!({})),
        "templates/a.yaml:1: wrong"
    );
}

#[test]
fn schema_alone_does_not_render() {
    let mut entry = entry(OPTIONS, "{{ fail \"always\" }}");
    entry.mode = AdmissionMode::Schema;
    assert!(matches!(verdict(&entry, &json!({})), Verdict::Valid));
    let message = denied(&entry, &json!({"auth": {"user": 1}}));
    assert!(message.contains("at '/auth/user'"), "{message}");
}

#[test]
fn names_that_the_api_server_generates_are_no_mistake() {
    let object = named(&json!({"metadata": {"generateName": "cache-"}}));
    assert_eq!(object["metadata"]["name"], "cache-00000");
    let object = json!({"metadata": {"name": "x"}});
    assert_eq!(named(&object), object);
}

#[test]
fn values_that_a_translator_computes_are_not_checked() {
    let entry = entry(OPTIONS, "");
    let controller = || {
        let admission = entry.watch.admission;
        HelmController::builder(entry.watch.gvk.clone(), entry.chart.clone())
            .options(|watch| watch.admission = admission)
    };
    let file = Path::new("watches.yaml");
    assert_eq!(checked(file, vec![controller()]).unwrap().len(), 1);
    let translated = controller().value_translator(|_, values| async { Ok(values) });
    let refused = checked(file, vec![translated]).err().unwrap();
    let expected = "watches.yaml: Cache has `admission`, which does not know the values that the value translator";
    assert!(refused.to_string().starts_with(expected), "{refused}");
}
