//! Expressions: what is refused and where, what is read, and results.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first error"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use object_cel::{Expression, Outcome, Type, Variables, built_in};
use serde_json::{Value, json};

fn variables() -> Variables {
    let kinds = [
        ("master", "apps/v1", "StatefulSet"),
        ("service", "v1", "Service"),
        ("config", "v1", "ConfigMap"),
        ("secret", "v1", "Secret"),
        ("deployment", "apps/v1", "Deployment"),
    ];
    let objects =
        kinds.map(|(name, version, kind)| (name.to_owned(), built_in(version, kind).unwrap()));
    let spec = json!({"type": "object", "properties": {
        "replicas": {"type": "integer"},
        "weight": {"type": "number"},
        "port": {"x-kubernetes-int-or-string": true},
        "since": {"type": "string", "format": "date-time"},
        "wait": {"type": "string", "format": "duration"},
        "free": {"x-kubernetes-preserve-unknown-fields": true},
        "class-name": {"type": "string"},
        "names": {"type": "array", "items": {"type": "string"}},
        "open": {"type": "object", "properties": {"a": {"type": "string"}}, "x-kubernetes-preserve-unknown-fields": true},
    }});
    Variables::default()
        .with("objects", Type::object("objects", objects))
        .with("spec", Type::of_schema(&spec).unwrap())
}

fn values() -> BTreeMap<String, Value> {
    let objects = json!({
        "service": {"metadata": {"name": "redis", "namespace": "prod", "labels": {"a.b/c": "x"}}},
        "config": {"data": {"redis.conf": "maxmemory 1gb"}},
        "secret": {"data": {"password": "c2VjcmV0"}},
        "master": {"metadata": {"name": "redis-master"}, "status": {"replicas": 3, "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-31T12:00:00Z"},
            {"type": "Idle"},
        ]}},
    });
    let spec = json!({
        "replicas": 3.0, "weight": 1, "port": "http", "since": "2026-01-31T12:00:00Z", "wait": "90s",
        "free": {"a": [1, 2.5, "x"], "n": null}, "class-name": "fast", "names": ["b", "a"], "open": {"z": 1},
    });
    [("objects".to_owned(), objects), ("spec".to_owned(), spec)].into()
}

/// Returns what becomes of an expression, as `expressions.txt` has it; of reads if `kind` says so.
fn outcome(source: &str, kind: &str) -> String {
    let expression = match Expression::parse(source, &variables()) {
        Ok(expression) => expression,
        Err(error) => return format!("error {error}"),
    };
    if kind == "reads" {
        let paths: Vec<String> = expression.reads().map(|path| path.join(".")).collect();
        return format!("reads {}", paths.join(", ")).trim_end().to_owned();
    }
    match expression.evaluate(&values()) {
        Ok(Outcome::Value(value)) => format!("value {} = {value}", expression.result()),
        Ok(Outcome::Missing(path)) => format!("missing {path}"),
        Err(error) => format!("failed {error}"),
    }
}

/// `UPDATE_GENERATED=1` writes what becomes of each expression now.
#[test]
fn expressions_have_their_outcomes() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expressions.txt");
    let text = fs::read_to_string(&path).unwrap();
    let mut now = String::new();
    let mut source = "";
    for line in text.lines() {
        let Some(expected) = line.strip_prefix("    ") else {
            source = line;
            writeln!(now, "{line}").unwrap();
            continue;
        };
        let kind = expected.split(' ').next().unwrap();
        writeln!(now, "    {}", outcome(source, kind)).unwrap();
    }
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&path, &now).unwrap();
        return;
    }
    let wrong: Vec<_> = text
        .lines()
        .zip(now.lines())
        .filter(|(old, new)| old != new)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[track_caller]
fn assert_error(source: &str, message: &str) {
    assert_eq!(outcome(source, ""), format!("error {message}"), "{source}");
}

#[test]
fn places_are_right_in_several_lines_and_after_names_in_strings() {
    assert_error(
        "'ä readyReplica' + // readyReplica\n  string(objects.master.status\n    .readyReplica)",
        "3:6: StatefulSetStatus has no field readyReplica; did you mean readyReplicas?",
    );
    assert_error(
        "spec.names.map(readyReplica, 'readyReplica' + readyReplica).size() > 0 &&\n\
         'ö' == r'\\readyReplica' && has(objects.master.status.readyReplica) // has(",
        "2:54: StatefulSetStatus has no field readyReplica; did you mean readyReplicas?",
    );
    assert_error(
        "[objects.master.spec,\n objects.master.status]",
        "2:16: elements of a literal have one type, not StatefulSetSpec and StatefulSetStatus; write dyn(VALUE)",
    );
    assert_error(
        "{'a': 1,\n 'b': 2.5}",
        "2:7: elements of a literal have one type, not int and double; write dyn(VALUE)",
    );
    assert_error(
        "'a' + 'b'\n+ 1",
        "2:1: there is no + for string and int; convert with string(...)",
    );
}

#[test]
fn values_that_are_not_given_or_not_of_their_type_are_reported() {
    let expression = Expression::parse("spec.replicas", &variables()).unwrap();
    let outcome = expression.evaluate(&BTreeMap::new());
    assert_eq!(outcome, Ok(Outcome::Missing("spec".to_owned())));
    let wrong = [("spec".to_owned(), json!({"replicas": "3"}))].into();
    let error = expression.evaluate(&wrong).unwrap_err();
    assert_eq!(
        error.to_string(),
        "spec.replicas is not a value of type int"
    );
}
