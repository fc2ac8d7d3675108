//! Compares objects with those of the cluster, through a server-side apply that stores nothing.

use helm_core::manifest::ObjectKey;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Map, Value};

use crate::cluster::{Attempt, Cluster};
use crate::preview::Deployed;
use crate::preview::difference::{ObjectDifference, Scopes, difference};

/// Field manager of the operator's applies, which is Helm's.
const MANAGER: &str = "helm";

/// Prefixes of the labels and annotations with which the operator marks objects.
const MARKS: [&str; 4] = [
    "helm.sdk.operatorframework.io/",
    "meta.helm.sh/",
    "operator-sdk/",
    "app.kubernetes.io/managed-by",
];

/// Compares what the API server would store with what it has. Hooks are left out.
pub(super) async fn compare(
    cluster: &Cluster,
    old: &[Deployed],
    new: &[Deployed],
    namespace: &str,
) -> anyhow::Result<Vec<ObjectDifference>> {
    let mut differences = Vec::new();
    let scopes = Scopes::of(old.iter().chain(new));
    let applied = scopes.applied(new, namespace);
    for wanted in applied.into_iter().filter(|object| !object.hook) {
        let key = wanted.object.key();
        let place = key.namespace.as_deref().unwrap_or(namespace);
        let existing = cluster.get(&gvk_of(key), Some(place), &key.name).await?;
        let Some(existing) = existing else {
            let object = Some(wanted.object.object());
            differences.extend(difference(wanted, None, object)?);
            continue;
        };
        let before = serde_json::to_value(existing).unwrap_or_default();
        let mut object = wanted.object.object().clone();
        keep_marks(&before, &mut object);
        let after = dry_run(cluster, key, place, &object).await?;
        let (before, after) = (shown(before), shown(after));
        differences.extend(difference(wanted, Some(&before), Some(&after))?);
    }
    for gone in old {
        let key = gone.object.key();
        let identity = scopes.identity(gone, namespace);
        let stays = new
            .iter()
            .any(|wanted| scopes.identity(wanted, namespace) == identity);
        if stays || gone.object.is_kept() {
            continue;
        }
        let place = key.namespace.as_deref().unwrap_or(namespace);
        if let Some(existing) = cluster.get(&gvk_of(key), Some(place), &key.name).await? {
            let before = shown(serde_json::to_value(existing).unwrap_or_default());
            differences.extend(difference(gone, Some(&before), None)?);
        }
    }
    Ok(differences)
}

async fn dry_run(
    cluster: &Cluster,
    key: &ObjectKey,
    namespace: &str,
    object: &Value,
) -> anyhow::Result<Value> {
    let kind = cluster.served(&gvk_of(key)).await?;
    let params = PatchParams::apply(MANAGER).force().dry_run();
    let api: Api<DynamicObject> = cluster.api(&kind, Some(namespace));
    let applied = api.patch(&key.name, &params, &Patch::Apply(object)).await;
    let applied = applied.map_err(|error| {
        let place = kind.namespaced.then_some(namespace);
        let attempt = Attempt::new("patch", &kind.text()).on(place, Some(&key.name));
        cluster.explain(error, &attempt)
    })?;
    Ok(serde_json::to_value(applied).unwrap_or_default())
}

fn gvk_of(key: &ObjectKey) -> GroupVersionKind {
    GroupVersionKind::gvk(&key.group, &key.version, &key.kind)
}

/// Copies the marks of the operator from an object to its next version, which gets the same.
fn keep_marks(from: &Value, to: &mut Value) {
    let Some(metadata) = to.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(owners) = from.pointer("/metadata/ownerReferences") {
        metadata.insert("ownerReferences".to_owned(), owners.clone());
    }
    for field in ["labels", "annotations"] {
        let entries = from.pointer(&format!("/metadata/{field}"));
        let entries = entries.and_then(Value::as_object).into_iter().flatten();
        let marks = entries.filter(|(key, _)| MARKS.iter().any(|mark| key.starts_with(mark)));
        let own = metadata
            .entry(field)
            .or_insert_with(|| Value::Object(Map::new()));
        if let Some(own) = own.as_object_mut() {
            own.extend(marks.map(|(key, value)| (key.clone(), value.clone())));
        }
    }
}

/// Removes what the API server maintains.
fn shown(mut object: Value) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in [
            "managedFields",
            "resourceVersion",
            "generation",
            "uid",
            "creationTimestamp",
        ] {
            metadata.remove(field);
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{keep_marks, shown};

    #[test]
    fn marks_of_the_operator_are_no_difference() {
        let from = json!({"metadata": {"name": "a", "ownerReferences": [{"uid": "1"}],
            "labels": {"helm.sdk.operatorframework.io/cr": "x", "other": "y"}}});
        let mut to = json!({"metadata": {"name": "a", "labels": {"app": "a"}}});
        keep_marks(&from, &mut to);
        let labels = json!({"app": "a", "helm.sdk.operatorframework.io/cr": "x"});
        assert_eq!(to["metadata"]["labels"], labels);
        assert_eq!(to["metadata"]["ownerReferences"], json!([{"uid": "1"}]));
    }

    #[test]
    fn fields_of_the_server_are_not_shown() {
        let object = json!({"status": {}, "metadata": {"name": "a", "uid": "1", "generation": 2}});
        assert_eq!(shown(object), json!({"metadata": {"name": "a"}}));
    }
}
