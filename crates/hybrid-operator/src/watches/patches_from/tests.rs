use std::path::Path;

use helm_release::policy::PatchBody;
use serde_json::json;

use super::*;
use crate::watches::{Watch, parse};

/// Parses an entry with these fields.
fn entry(fields: &str) -> Result<Watch, String> {
    let text = format!("- {{version: v1, kind: A, chart: c, {fields}}}\n");
    let (mut entries, problems) = parse(text.as_bytes(), Path::new(""));
    let problems: Vec<String> = problems
        .iter()
        .map(|problem| format!("{}: {}", problem.field, problem.message))
        .collect();
    if problems.is_empty() {
        Ok(entries.remove(0).watch)
    } else {
        Err(problems.join("\n"))
    }
}

fn from(fields: &str) -> PatchesFrom {
    let watch = entry(&format!("patchesFrom: {{{fields}}}"));
    watch.unwrap().patches_from.unwrap()
}

#[test]
fn wrong_paths_and_fields_are_refused_with_the_form_that_is_wanted() {
    let with = |path: &str, allow: &str| format!("patchesFrom: {{path: {path}, allow: {allow}}}");
    let allowed = "[Deployment.spec]";
    let no_path = "is not a path below `spec`, such as `spec.patches`";
    let no_field = "is not a field of a kind, such as `Deployment.spec.template.spec.tolerations`";
    let no_metadata = "may change no metadata but labels and annotations";
    for (fields, expected) in [
        (with("spec", allowed), no_path),
        (with("status.patches", allowed), no_path),
        (with("spec..patches", allowed), no_path),
        (with("'spec.a[0]'", allowed), no_path),
        (with("'spec.a\\.b'", allowed), no_path),
        (
            with("[spec, a]", allowed),
            "patchesFrom.path: expected a string, found a list",
        ),
        (
            "patchesFrom: {allow: [A.spec]}".to_owned(),
            "patchesFrom: `path` is required",
        ),
        (
            "patchesFrom: {path: spec.a}".to_owned(),
            "patchesFrom: `allow` is required",
        ),
        (
            with("spec.a", "[]"),
            "patchesFrom.allow: no patch can do anything; list a field, such as",
        ),
        (
            with("spec.a", "A.spec"),
            "patchesFrom.allow: expected a list of fields, found a string",
        ),
        (
            with("spec.a", "[A.spec, 1]"),
            "patchesFrom.allow[1]: expected a string, found a number",
        ),
        (with("spec.a", "[Deployment]"), no_field),
        (with("spec.a", "[deployment.spec]"), no_field),
        (with("spec.a", "[apps/Deployment.spec]"), no_field),
        (with("spec.a", "['*.spec']"), no_field),
        (with("spec.a", "['A.spec.*']"), no_field),
        (with("spec.a", "[A..spec]"), no_field),
        (with("spec.a", "['A.spec.containers[0]']"), no_field),
        (with("spec.a", "['/spec']"), no_field),
        (with("spec.a", "[hook.spec]"), no_field),
        (with("spec.a", "[hook.Job]"), no_field),
        (with("spec.a", "[hook.Job.metadata.name]"), no_metadata),
        (with("spec.a", "[A.metadata]"), no_metadata),
        (with("spec.a", "[A.metadata.name]"), no_metadata),
        (with("spec.a", "[A.metadata.ownerReferences]"), no_metadata),
        (with("spec.a", "[A.kind]"), no_metadata),
        (
            with("spec.a", "['A.metadata.annotations.helm\\.sh/hook']"),
            no_metadata,
        ),
        (
            with(
                "spec.a",
                "['A.metadata.labels.app\\.kubernetes\\.io/managed-by']",
            ),
            no_metadata,
        ),
        (
            format!("api: {{fields: {{a: any}}}}, {}", with("spec.a", allowed)),
            "patchesFrom.path: `a` is a field in `api.fields`, too",
        ),
        (
            format!(
                "api: {{fields: {{a: string}}}}, {}",
                with("spec.a.b", allowed)
            ),
            "patchesFrom.path: `a` in `api.fields` is no map of fields",
        ),
    ] {
        let error = entry(&fields).unwrap_err();
        assert!(error.contains(expected), "{fields}\n{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn path_and_fields_are_read() {
    let hooks = from("path: spec.patches, allow: [hook.Job.spec]");
    let read = |field: &KindField| (field.hook, field.kind.clone(), field.to_string());
    assert_eq!(
        read(&hooks.allow[0]),
        (true, "Job".to_owned(), "hook.Job.spec".to_owned())
    );
    let from = from(
        "path: spec.own.patches, allow: [Deployment.spec.template, 'Service.metadata.annotations.a\\.b/c']",
    );
    assert_eq!(from.path, ["own", "patches"]);
    assert_eq!(from.place(), "spec.own.patches");
    let shown: Vec<String> = from.allow.iter().map(KindField::to_string).collect();
    assert_eq!(
        shown,
        [
            "Deployment.spec.template",
            "Service.metadata.annotations.a\\.b/c"
        ]
    );
    assert_eq!(from.allow[1].path, ["metadata", "annotations", "a.b/c"]);
    entry("api: {fields: {own: {size: string}}}, patchesFrom: {path: spec.own.patches, allow: [A.spec]}")
        .unwrap();
}

#[test]
fn patches_of_a_custom_resource_have_the_forms_of_those_of_an_entry() {
    let from = from("path: spec.patches, allow: [A.spec]");
    let patches = json!([
        {"patch": {"spec": {"a": 1}}},
        {"target": {"kind": "A", "labels": {"matchLabels": {"a": "b"}}},
            "patch": [{"op": "add", "path": "/spec/a", "value": 1.5}]},
        {"target": {"name": "a"}, "patch": "- {op: remove, path: /spec/a}"},
    ]);
    let own = from
        .patches_of(&json!({"spec": {"patches": patches}}))
        .unwrap();
    assert_eq!((own.place.as_str(), own.allowed.len()), ("spec.patches", 1));
    let [merge, json, text] = own.patches.as_slice() else {
        panic!("{own:?}")
    };
    assert_eq!(
        merge.patch,
        PatchBody::StrategicMerge(json!({"spec": {"a": 1}}))
    );
    assert!(json.target.labels.is_some());
    assert!(matches!(&json.patch, PatchBody::Json(operations) if operations.0.len() == 1));
    assert!(matches!(&text.patch, PatchBody::Json(operations) if operations.0.len() == 1));
    for none in [
        json!({}),
        json!({"spec": {"patches": null}}),
        json!({"spec": []}),
    ] {
        assert!(from.patches_of(&none).unwrap().patches.is_empty());
    }
}

#[test]
fn wrong_patches_are_refused_with_their_place() {
    let from = from("path: spec.patches, allow: [A.spec]");
    let nested = (0..100).fold(json!(1), |below, _| json!([below]));
    let many = vec![json!({"patch": {"a": 1}}); 33];
    // 10 levels of 10 aliases each.
    let lines = (0..10).map(|level: usize| match level.checked_sub(1) {
        Some(below) => format!(
            "a{level}: &a{level} [{}]",
            vec![format!("*a{below}"); 10].join(", ")
        ),
        None => "a0: &a0 [xxxxxxxxxx]".to_owned(),
    });
    let bomb = lines.collect::<Vec<_>>().join("\n");
    for (patches, expected) in [
        (
            json!({"patch": {}}),
            "spec.patches: expected a list of patches, found a map",
        ),
        (
            json!("text"),
            "spec.patches: expected a list of patches, found a string",
        ),
        (
            json!([1]),
            "spec.patches[0]: expected a map, found a number",
        ),
        (
            json!([{"patch": {"a": 1}}, {}]),
            "spec.patches[1]: `patch` is required",
        ),
        (
            json!([{"patch": 1}]),
            "spec.patches[0].patch: expected a list of JSON Patch operations",
        ),
        (
            json!([{"patch": [{"op": "delete", "path": "/a"}]}]),
            "spec.patches[0].patch: not a JSON Patch: ",
        ),
        (
            json!([{"patch": [{"op": "remove", "path": "a"}]}]),
            "spec.patches[0].patch: not a JSON Patch: ",
        ),
        (
            json!([{"patch": "{"}]),
            "spec.patches[0].patch: the patch is not valid YAML: ",
        ),
        (
            json!([{"patch": {"a": 1}, "targets": {}}]),
            "spec.patches[0].targets: unknown field; did you mean `target`?",
        ),
        (
            json!([{"patch": {"a": 1}, "target": {"kind": 1}}]),
            "spec.patches[0].target.kind: expected a string, found a number",
        ),
        (
            json!(many),
            "spec.patches has 33 patches; at most 32 are allowed",
        ),
        (
            json!([{"patch": {"a": nested}}]),
            "spec.patches is nested more than 64 levels deep",
        ),
        (
            json!([{"patch": {"a": "x".repeat(70_000)}}]),
            "spec.patches is larger than 64 KiB",
        ),
        (
            json!([{"patch": bomb}]),
            "spec.patches[0].patch: the patch is not valid YAML: ",
        ),
        (
            json!([{"patch": format!("a: &a {}\nb: [{}]", "x".repeat(10_000), vec!["*a"; 20].join(", "))}]),
            "spec.patches is larger than 64 KiB",
        ),
    ] {
        let error = from.patches_of(&json!({"spec": {"patches": patches}}));
        let error = error.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        assert!(error.len() < 300, "{error}");
    }
}

#[test]
fn value_of_the_chart_at_the_path_is_refused() {
    let from = from("path: spec.own.patches, allow: [A.spec]");
    let check = |values: Value| from.check_values(values.as_object().unwrap());
    for free in [json!({}), json!({"own": {"a": 1}, "patches": []})] {
        assert_eq!(check(free), Ok(()));
    }
    for taken in [
        json!({"own": {"patches": {}}}),
        json!({"own": {"patches": null}}),
        json!({"own": 1}),
    ] {
        let error = check(taken).unwrap_err();
        assert!(
            error.contains("`spec.own.patches` is in the way of a value of the chart"),
            "{error}"
        );
    }
}
