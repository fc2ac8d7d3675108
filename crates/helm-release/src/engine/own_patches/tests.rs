use serde_json::{Value, json};

use super::*;
use helm_core::chart::{Chart, File};
use helm_core::engine::{CompiledChart, ReleaseInfo, RenderInput};
use helm_core::values::Values;
use kube_objects::target::Target;

/// A chart with two Deployments, a Secret and a Pod in a list.
fn rendered() -> Rendered {
    let objects = json!([
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web",
            "labels": {"app": "web", "helm.sh/chart": "c-1"}},
            "spec": {"replicas": 1, "template": {"metadata": {"annotations": {"a.b/c": "1", "x": "2"}}, "spec": {
                "containers": [
                    {"name": "main", "image": "a", "env": [{"name": "PASSWORD", "value": "s3cret"}]},
                    {"name": "side", "image": "b"}]}}}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "worker"}, "spec": {"replicas": 1}},
        {"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "auth"}, "data": {"password": "cHc="}}]},
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "migrate",
            "annotations": {"helm.sh/hook": "pre-upgrade"}}, "spec": {"backoffLimit": 6}},
    ]);
    let documents = objects.as_array().unwrap().iter();
    let documents: Vec<String> = documents.map(Value::to_string).collect();
    let chart = Chart::from_files([
        File::new("Chart.yaml", "{apiVersion: v2, name: c, version: 0.1.0}"),
        File::new("templates/all.yaml", documents.join("\n---\n")),
    ]);
    let chart = CompiledChart::compile(&chart.unwrap()).unwrap();
    let values = chart.coalesce(Values::new()).unwrap();
    let input = RenderInput::new(ReleaseInfo::new("r", "ns"), &values);
    chart.render(&input).unwrap()
}

fn body(patch: Value) -> PatchBody {
    match patch {
        Value::Array(_) => PatchBody::Json(serde_json::from_value(patch).unwrap()),
        body => PatchBody::StrategicMerge(body),
    }
}

/// Returns patches of the Deployment `web`.
fn own(allowed: &[&str], patches: &[Value]) -> OwnPatches {
    let field = |text: &&str| {
        let text = text.replace("\\.", "\u{0}");
        let (hook, text) = match text.strip_prefix("hook.") {
            Some(text) => (true, text),
            None => (false, text.as_str()),
        };
        let mut names = text.split('.').map(|name| name.replace('\u{0}', "."));
        KindField {
            hook,
            kind: names.next().unwrap(),
            path: names.collect(),
        }
    };
    let patch = |patch: &Value| Patch {
        target: Target {
            kind: Some("Deployment".to_owned()),
            name: Some("web".to_owned()),
            ..Target::default()
        },
        patch: body(patch.clone()),
    };
    OwnPatches {
        place: "spec.patches".to_owned(),
        patches: patches.iter().map(patch).collect(),
        allowed: allowed.iter().map(field).collect(),
    }
}

/// Returns the patched Deployment `web`.
fn patched(own: &OwnPatches) -> Result<Value, String> {
    let message = |error: OwnPatchError| kube_objects::with_causes(&error);
    let rendered = apply(rendered(), own).map_err(message)?;
    let objects = rendered.objects().unwrap();
    let mut objects = objects.iter();
    let web = objects.find(|object| object.key().name == "web").unwrap();
    Ok(web.object().clone())
}

const TOLERATIONS: &str = "Deployment.spec.template.spec.tolerations";
const RESOURCES: &str = "Deployment.spec.template.spec.containers.resources";
const IMAGE: &str = "Deployment.spec.template.spec.containers.image";
const ANNOTATION: &str = "Deployment.spec.template.metadata.annotations.a\\.b/c";
const LABELS: &str = "Deployment.metadata.labels";

#[test]
fn allowed_fields_are_changed() {
    let toleration = json!([{"key": "gpu", "operator": "Exists"}]);
    let pod = "/spec/template/spec";
    for (allowed, patch, place, expected) in [
        (
            TOLERATIONS,
            json!({"spec": {"template": {"spec": {"tolerations": toleration}}}}),
            "/spec/template/spec/tolerations",
            toleration.clone(),
        ),
        (
            TOLERATIONS,
            json!([{"op": "add", "path": format!("{pod}/tolerations"), "value": toleration},
                {"op": "copy", "from": format!("{pod}/tolerations/0"), "path": format!("{pod}/tolerations/-")},
                {"op": "test", "path": format!("{pod}/tolerations/0/key"), "value": "gpu"},
                {"op": "remove", "path": format!("{pod}/tolerations/1")}]),
            "/spec/template/spec/tolerations",
            toleration.clone(),
        ),
        // An element of a list has no name, and its key selects it.
        (
            RESOURCES,
            json!({"spec": {"template": {"spec": {"containers": [
                {"name": "side", "resources": {"limits": {"cpu": 1}}}]}}}}),
            "/spec/template/spec/containers/1/resources",
            json!({"limits": {"cpu": 1}}),
        ),
        (
            IMAGE,
            json!([{"op": "replace", "path": format!("{pod}/containers/1/image"), "value": "c"}]),
            "/spec/template/spec/containers/1/image",
            json!("c"),
        ),
        (
            "Deployment.spec",
            json!({"spec": {"replicas": null, "paused": true}}),
            "/spec/paused",
            json!(true),
        ),
        (
            ANNOTATION,
            json!({"spec": {"template": {"metadata": {"annotations": {"a.b/c": "3"}}}}}),
            "/spec/template/metadata/annotations",
            json!({"a.b/c": "3", "x": "2"}),
        ),
        // Maps that are not there yet are no change of their own.
        (
            "Deployment.spec.strategy.rollingUpdate.maxSurge",
            json!([{"op": "add", "path": "/spec/strategy", "value": {"rollingUpdate": {"maxSurge": 1}}}]),
            "/spec/strategy",
            json!({"rollingUpdate": {"maxSurge": 1}}),
        ),
        (
            LABELS,
            json!({"metadata": {"labels": {"team": "a"}}}),
            "/metadata/labels",
            json!({"app": "web", "helm.sh/chart": "c-1", "team": "a"}),
        ),
    ] {
        let web = patched(&own(&[allowed], std::slice::from_ref(&patch)));
        let web = web.unwrap_or_else(|error| panic!("{patch}: {error}"));
        assert_eq!(web.pointer(place), Some(&expected), "{patch}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn fields_outside_of_the_list_are_refused_with_their_path() {
    let pod = "/spec/template/spec";
    let main = format!("{pod}/containers/0");
    let containers =
        |container: Value| json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    for (allowed, patch, expected) in [
        (
            TOLERATIONS,
            json!({"spec": {"replicas": 2}}),
            "changes Deployment.spec.replicas of",
        ),
        (
            TOLERATIONS,
            json!([{"op": "remove", "path": "/spec/replicas"}]),
            "changes Deployment.spec.replicas of",
        ),
        (
            TOLERATIONS,
            json!([{"op": "remove", "path": "/spec"}]),
            "changes Deployment.spec of",
        ),
        (
            TOLERATIONS,
            json!([{"op": "add", "path": "", "value": {}}]),
            "changes Deployment of",
        ),
        (TOLERATIONS, json!({}), "changes Deployment of"),
        (
            TOLERATIONS,
            json!({"spec": {"$patch": "replace", "template": {"spec": {"tolerations": []}}}}),
            "changes Deployment.spec.replicas of",
        ),
        (
            TOLERATIONS,
            json!({"spec": {"template": {"$patch": "delete"}}}),
            "changes Deployment.spec.template of",
        ),
        (
            TOLERATIONS,
            json!({"spec": {"template": null}}),
            "changes Deployment.spec.template of",
        ),
        // A name does not begin another one.
        (
            "Deployment.spec.rep",
            json!({"spec": {"replicas": 2}}),
            "changes Deployment.spec.replicas of",
        ),
        (
            "StatefulSet.spec",
            json!({"spec": {"replicas": 2}}),
            "changes Deployment.spec.replicas of",
        ),
        // The length of a list is the list.
        (
            IMAGE,
            containers(json!({"name": "third", "image": "x"})),
            "changes Deployment.spec.template.spec.containers of",
        ),
        (
            IMAGE,
            containers(json!({"name": "side"})),
            "changes Deployment.spec.template.spec.containers of",
        ),
        (
            IMAGE,
            containers(json!({"name": "side", "$patch": "delete"})),
            "changes Deployment.spec.template.spec.containers of",
        ),
        (
            IMAGE,
            containers(json!("x")),
            "changes Deployment.spec.template.spec.containers of",
        ),
        (
            IMAGE,
            json!([{"op": "remove", "path": main}]),
            "changes Deployment.spec.template.spec.containers of",
        ),
        (
            IMAGE,
            json!([{"op": "add", "path": format!("{pod}/containers/-"), "value": {"image": "x"}}]),
            "changes Deployment.spec.template.spec.containers of",
        ),
        // What is read is an answer, too.
        (
            IMAGE,
            json!([{"op": "test", "path": format!("{main}/env/0/value"), "value": "s3cret"}]),
            "reads Deployment.spec.template.spec.containers.env.value of",
        ),
        (
            IMAGE,
            json!([{"op": "test", "path": format!("{main}/none"), "value": 1}]),
            "reads Deployment.spec.template.spec.containers.none of",
        ),
        (
            IMAGE,
            json!([{"op": "copy", "from": format!("{main}/env/0/value"), "path": format!("{main}/image")}]),
            "reads Deployment.spec.template.spec.containers.env.value of",
        ),
        (
            IMAGE,
            json!([{"op": "move", "from": format!("{main}/env/0/value"), "path": format!("{main}/image")}]),
            "changes Deployment.spec.template.spec.containers.env.value of",
        ),
        (
            IMAGE,
            json!([{"op": "copy", "from": format!("{main}/image"), "path": "/spec/replicas"}]),
            "changes Deployment.spec.replicas of",
        ),
        (
            ANNOTATION,
            json!([{"op": "replace", "path": "/spec/template/metadata/annotations", "value": {"a.b/c": "1"}}]),
            "changes Deployment.spec.template.metadata.annotations.x of",
        ),
        (
            ANNOTATION,
            json!({"spec": {"template": {"metadata": {"annotations": {"a.b": {"c": "1"}}}}}}),
            "changes Deployment.spec.template.metadata.annotations.a\\.b.c of",
        ),
    ] {
        let error = patched(&own(&[allowed], std::slice::from_ref(&patch))).unwrap_err();
        let start =
            format!("spec.patches[0] {expected} Deployment.apps web; allowed are only {allowed}");
        assert_eq!(error, start, "{patch}");
    }
}

#[test]
fn guesses_of_fields_outside_of_the_list_are_refused_like_mistakes() {
    let main = "/spec/template/spec/containers/0";
    let messages = ["s3cret", "other"].map(|guess| {
        let env = json!([{"name": "PASSWORD", "value": guess}]);
        let patches = [
            json!([{"op": "replace", "path": format!("{main}/env/0/value"), "value": guess}]),
            json!([{"op": "add", "path": format!("{main}/env"), "value": env}]),
            json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "env": env}]}}}}),
            json!([{"op": "test", "path": format!("{main}/env/0/value"), "value": guess}]),
        ];
        patches.map(|patch| patched(&own(&[IMAGE], &[patch])).unwrap_err())
    });
    assert_eq!(messages[0], messages[1]);
}

#[test]
fn what_identifies_an_object_or_belongs_to_helm_is_never_changed() {
    let reference = json!([{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"}]);
    for (patch, field) in [
        (json!({"metadata": {"name": "b"}}), "metadata.name"),
        (
            json!({"metadata": {"namespace": "b"}}),
            "metadata.namespace",
        ),
        (
            json!({"metadata": {"finalizers": ["a/b"]}}),
            "metadata.finalizers",
        ),
        (
            json!({"metadata": {"ownerReferences": reference}}),
            "metadata.ownerReferences.apiVersion",
        ),
        (json!({"kind": "Pod"}), "kind"),
        (json!({"apiVersion": "v1"}), "apiVersion"),
        (
            json!({"metadata": {"labels": {"helm.sh/chart": null}}}),
            "metadata.labels.helm\\.sh/chart",
        ),
        (
            json!({"metadata": {"annotations": {"helm.sh/hook": "pre-install"}}}),
            "metadata.annotations.helm\\.sh/hook",
        ),
        (
            json!({"metadata": {"annotations": {"helm.sdk.operatorframework.io/cr": "x"}}}),
            "metadata.annotations.helm\\.sdk\\.operatorframework\\.io/cr",
        ),
        (
            json!([{"op": "replace", "path": "/metadata/labels", "value": {"app": "web"}}]),
            "metadata.labels.helm\\.sh/chart",
        ),
        (
            json!([{"op": "replace", "path": "/metadata/labels", "value": "text"}]),
            "metadata.labels.helm\\.sh/chart",
        ),
        (json!([{"op": "remove", "path": "/metadata"}]), "metadata"),
    ] {
        // Lists that the parser of an entry refuses, too.
        let everything = [
            "Deployment.metadata",
            "Deployment.kind",
            "Deployment.apiVersion",
            LABELS,
        ];
        let error = patched(&own(&everything, std::slice::from_ref(&patch))).unwrap_err();
        let expected = format!(
            "spec.patches[0] changes Deployment.{field} of Deployment.apps web; no patch may touch what identifies an object or belongs to Helm or the operator"
        );
        assert_eq!(error, expected, "{patch}");
    }
}

#[test]
fn patch_matches_exactly_one_object() {
    let toleration = json!({"spec": {"template": {"spec": {"tolerations": []}}}});
    let mut patches = own(&[TOLERATIONS], &[toleration.clone(), toleration]);
    patches.patches[1].target.name = None;
    assert_eq!(
        patched(&patches).unwrap_err(),
        "spec.patches[1] matches 2 objects (Deployment.apps web, Deployment.apps worker); a patch must match exactly one, so narrow its target"
    );
    patches.patches[1].target.name = Some("none".to_owned());
    assert_eq!(
        patched(&patches).unwrap_err(),
        "spec.patches[1] matches no object of the release; a patch must match exactly one"
    );
    // The kind is not on the list, although one object in a list matches.
    patches.patches[1].target = Target {
        kind: Some("Secret".to_owned()),
        ..Target::default()
    };
    let error = patched(&patches).unwrap_err();
    assert!(
        error.starts_with(
            "spec.patches[1] changes Secret.spec.template.spec.tolerations of Secret auth;"
        ),
        "{error}"
    );
}

#[test]
fn patches_that_do_not_fit_or_grow_too_much_are_refused() {
    let annotations = "/spec/template/metadata/annotations";
    let add = |value: Value| json!({"op": "add", "path": format!("{annotations}/a.b~1c"), "value": value});
    let misfit = json!([{"op": "replace", "path": "/spec/template/spec/tolerations", "value": []}]);
    assert_eq!(
        patched(&own(&[TOLERATIONS], &[misfit])).unwrap_err(),
        "cannot apply spec.patches[0] to Deployment.apps web: operation '/0' failed at path '/spec/template/spec/tolerations': path is invalid"
    );
    let mut doubled = vec![add(json!({"0": "a text of some length"}))];
    for number in 1..40 {
        let place = format!("{annotations}/a.b~1c");
        doubled.push(json!({"op": "copy", "from": place, "path": format!("{place}/{number}")}));
    }
    let error = patched(&own(&[ANNOTATION], &[Value::from(doubled)])).unwrap_err();
    assert_eq!(
        error,
        "spec.patches[0] copies too much: more than 256 KiB in all patches"
    );
    let place = |depth: usize| format!("{annotations}/a.b~1c{}", "/x".repeat(depth));
    let mut deep = vec![add(json!({}))];
    deep.extend((1..70).map(|depth| json!({"op": "add", "path": place(depth), "value": {}})));
    let error = patched(&own(&[ANNOTATION], &[Value::from(deep)])).unwrap_err();
    assert_eq!(
        error,
        "spec.patches[0] nests fields of Deployment.apps web more than 64 levels deep"
    );
}

/// Returns the paths of all leaves that differ, computed in another way than [`Check::differences`] does.
fn differing(before: &Value, after: &Value) -> Vec<String> {
    fn leaves(value: &Value, path: &str, found: &mut Vec<(String, String)>) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                for (name, value) in fields {
                    leaves(value, &format!("{path}.{name}"), found);
                }
            }
            // Their length is part of the list.
            Value::Array(items) => {
                found.push((path.to_owned(), items.len().to_string()));
                for (at, item) in items.iter().enumerate() {
                    let mut below = Vec::new();
                    leaves(item, path, &mut below);
                    found.extend(
                        below
                            .into_iter()
                            .map(|(path, text)| (path, format!("{at} {text}"))),
                    );
                }
            }
            value => found.push((path.to_owned(), value.to_string())),
        }
    }
    let of = |value: &Value| {
        let mut found = Vec::new();
        leaves(value, "Deployment", &mut found);
        found
    };
    let (before, after) = (of(before), of(after));
    let missing = |one: &Vec<(String, String)>, other: &Vec<(String, String)>| -> Vec<String> {
        let new = one.iter().filter(|leaf| !other.contains(leaf));
        new.map(|(path, _)| path.clone()).collect()
    };
    [missing(&before, &after), missing(&after, &before)].concat()
}

#[test]
fn all_differences_of_an_accepted_result_are_within_the_list() {
    let before = patched(&own(&[], &[])).unwrap();
    let pod = "/spec/template/spec";
    let paths = [
        "",
        "/spec",
        "/spec/replicas",
        "/spec/template",
        pod,
        "/metadata/labels",
        "/metadata/labels/app",
        "/spec/template/spec/tolerations",
        "/spec/template/spec/tolerations/0",
        "/spec/template/spec/containers",
        "/spec/template/spec/containers/0",
        "/spec/template/spec/containers/1/image",
        "/spec/template/spec/containers/0/env/0",
        "/spec/template/spec/containers/-",
    ];
    let values = [
        json!(null),
        json!({}),
        json!([]),
        json!(2),
        json!("b"),
        json!({"image": "b"}),
        json!([{"name": "side", "image": "c"}]),
        json!({"template": {"spec": {"tolerations": [1]}}}),
        json!([{"name": "main", "image": "a", "env": [{"name": "PASSWORD", "value": "s3cret"}]}, {"name": "side", "image": "c"}]),
    ];
    let mut patches = Vec::new();
    for path in paths {
        patches.push(json!([{"op": "remove", "path": path}]));
        for value in &values {
            for op in ["add", "replace", "test"] {
                patches.push(json!([{"op": op, "path": path, "value": value}]));
            }
            // The same as a merge.
            let names: Vec<&str> = path.split('/').skip(1).collect();
            if names.iter().all(|name| name.parse::<usize>().is_err()) {
                let nested = names.iter().rev();
                let body = nested.fold(value.clone(), |below, name| json!({*name: below}));
                if body.is_object() {
                    patches.push(body);
                }
            }
        }
        for from in paths {
            for op in ["move", "copy"] {
                patches.push(json!([{"op": op, "from": from, "path": path}]));
            }
        }
    }
    let (mut accepted, mut refused) = (0, 0);
    for allowed in [
        TOLERATIONS,
        IMAGE,
        RESOURCES,
        "Deployment.spec.template.spec",
        LABELS,
    ] {
        for patch in &patches {
            let Ok(after) = patched_alone(&before, &own(&[allowed], std::slice::from_ref(patch)))
            else {
                refused += 1;
                continue;
            };
            accepted += 1;
            for path in differing(&before, &after) {
                let is_within = path == allowed || path.starts_with(&format!("{allowed}."));
                assert!(is_within, "{patch} changed {path}, allowed is {allowed}");
                let reserved = "Deployment.metadata.labels.helm.sh/chart";
                assert!(!path.starts_with(reserved), "{patch} changed {path}");
            }
        }
    }
    assert!(accepted > 100 && refused > 1000, "{accepted} {refused}");
}

/// Applies patches to one object.
fn patched_alone(object: &Value, own: &OwnPatches) -> Result<Value, OwnPatchError> {
    let mut object = object.clone();
    let mut copied = 0;
    for (index, patch) in own.patches.iter().enumerate() {
        own.change(index, patch, &mut object, false, &mut copied)?;
    }
    Ok(object)
}

#[test]
fn hooks_are_patched_only_if_the_list_names_them() {
    let with = |allowed: &[&str], body: Value| {
        let mut own = own(allowed, &[body]);
        own.patches[0].target = Target {
            kind: Some("Job".to_owned()),
            ..Target::default()
        };
        let message = |error: OwnPatchError| kube_objects::with_causes(&error);
        let rendered = apply(rendered(), &own).map_err(message)?;
        let hook: Value = go_yaml::from_str(&rendered.hooks()[0].manifest).unwrap();
        Ok::<_, String>(hook)
    };
    let retries = || json!({"spec": {"backoffLimit": 1}});
    let hook = with(&["hook.Job.spec.backoffLimit"], retries()).unwrap();
    assert_eq!(hook["spec"]["backoffLimit"], 1);
    assert_eq!(
        hook["metadata"]["annotations"]["helm.sh/hook"],
        "pre-upgrade"
    );

    let error = with(&["Job.spec.backoffLimit"], retries()).unwrap_err();
    assert!(error.contains("matches no object"), "{error}");
    let allowed = ["hook.Job.spec.backoffLimit", "Job.spec.parallelism"];
    let error = with(&allowed, json!({"spec": {"parallelism": 2}})).unwrap_err();
    assert!(
        error.contains(
            "changes hook.Job.spec.parallelism of Job.batch migrate; allowed are only hook.Job"
        ),
        "{error}"
    );
    let annotations = json!({"metadata": {"annotations": {"helm.sh/hook": null}}});
    let error = with(&["hook.Job.metadata.annotations"], annotations).unwrap_err();
    assert!(error.contains("no patch may touch"), "{error}");
}
