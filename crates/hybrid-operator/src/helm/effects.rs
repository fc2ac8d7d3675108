//! Effects of a change of a release on objects that run or hold data, from its two manifests. Pure.

use helm_core::manifest::ManifestObject;
use helm_release::policy::{MUTABLE_OF_STATEFUL_SETS, NEVER_RECREATED, ReleasePolicy};
use serde_json::Value;

const STATEFUL_SET: &str = "StatefulSet";

/// The fields that may not change, of kinds whose other fields may.
const IMMUTABLE: &[(&str, &[&str])] = &[
    ("ClusterRoleBinding", &["/roleRef"]),
    ("DaemonSet", &["/spec/selector"]),
    ("Deployment", &["/spec/selector"]),
    (
        "Job",
        &["/spec/completionMode", "/spec/selector", "/spec/template"],
    ),
    ("RoleBinding", &["/roleRef"]),
];

/// The kinds whose controllers replace Pods when the template changes.
const ROLLED_OUT: &[&str] = &["DaemonSet", "Deployment", "StatefulSet"];

/// Returns what an upgrade from `old` to `new` does, one sentence each: it recreates an object because a field
/// cannot be changed and `upgrade.recreate` has its kind, restarts Pods because their template changes, or deletes an
/// object that holds data. Objects without a namespace are in `namespace`.
pub fn effects(
    old: &[ManifestObject],
    new: &[ManifestObject],
    namespace: &str,
    policy: &ReleasePolicy,
) -> Vec<String> {
    let identity = |object: &ManifestObject| {
        let key = object.key().clone();
        let namespace = key.namespace.unwrap_or_else(|| namespace.to_owned());
        (key.group, key.kind, namespace, key.name)
    };
    let mut effects = Vec::new();
    for before in old {
        let after = new.iter().find(|after| identity(after) == identity(before));
        let (kind, name) = (before.key().kind.as_str(), &before.key().name);
        match after {
            None if NEVER_RECREATED.contains(&kind) && !before.is_kept() => {
                effects.push(format!("deletes {kind} {name}"));
            }
            None => {}
            Some(after) => {
                let (before, after) = (before.object(), after.object());
                if is_recreated(kind, policy) && cannot_become(kind, before, after) {
                    effects.push(format!("recreates {kind} {name}"));
                } else if ROLLED_OUT.contains(&kind) {
                    effects.extend(restart(kind, name, before, after));
                }
            }
        }
    }
    effects
}

/// Returns whether an upgrade recreates objects of a kind of which a field cannot be changed.
pub(super) fn is_recreated(kind: &str, policy: &ReleasePolicy) -> bool {
    match &policy.upgrade.recreate {
        _ if kind == STATEFUL_SET && policy.upgrade.expand_volumes => true,
        Some(kinds) => kinds.iter().any(|known| known == kind),
        None => kind == "Job",
    }
}

/// Returns whether a field changes that cannot be changed.
fn cannot_become(kind: &str, before: &Value, after: &Value) -> bool {
    if kind == STATEFUL_SET {
        let fixed = |object: &Value| {
            let mut spec = object.get("spec").cloned().unwrap_or_default();
            if let Value::Object(fields) = &mut spec {
                fields.retain(|name, _| !MUTABLE_OF_STATEFUL_SETS.contains(&name.as_str()));
            }
            spec
        };
        return fixed(before) != fixed(after);
    }
    let mut known = IMMUTABLE.iter().filter(|(known, _)| *known == kind);
    let mut fields = known.next().into_iter().flat_map(|(_, fields)| *fields);
    fields.any(|field| before.pointer(field) != after.pointer(field))
}

/// Returns which Pods are restarted, if any.
fn restart(kind: &str, name: &str, before: &Value, after: &Value) -> Option<String> {
    let template = |object: &Value| object.pointer("/spec/template").cloned();
    let strategy = after.pointer("/spec/updateStrategy/type");
    if template(before) == template(after) || strategy.is_some_and(|kind| kind == "OnDelete") {
        return None;
    }
    let replicas = before.pointer("/spec/replicas").and_then(Value::as_u64);
    Some(match replicas {
        Some(0) => return None,
        Some(1) => format!("restarts 1 Pod ({kind} {name})"),
        Some(replicas) => format!("restarts {replicas} Pods ({kind} {name})"),
        // A DaemonSet, or an autoscaler decides.
        None => format!("restarts the Pods of {kind} {name}"),
    })
}

#[cfg(test)]
mod tests {
    use helm_core::manifest::parse_objects;

    use super::{ReleasePolicy, effects};

    const OLD: &str = "\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec: {replicas: 3, serviceName: db, template: {image: a}, volumeClaimTemplates: [{size: 1}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {selector: a, template: {image: a}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept, annotations: {helm.sh/resource-policy: keep}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
";

    fn found(change: impl Fn(String) -> String, recreated: &[&str]) -> Vec<String> {
        let (old, new) = (parse_objects(OLD), parse_objects(&change(OLD.to_owned())));
        let mut policy = ReleasePolicy::default();
        policy.upgrade.recreate = Some(recreated.iter().map(ToString::to_string).collect());
        effects(&old.unwrap(), &new.unwrap(), "ns", &policy)
    }

    #[test]
    fn effects_name_what_is_recreated_restarted_and_deleted() {
        let replaced = |from: &'static str, to: &'static str| {
            move |text: String| {
                assert!(text.contains(from), "{from}");
                text.replace(from, to)
            }
        };
        assert!(found(|text| text, &["StatefulSet"]).is_empty());
        let larger = replaced("size: 1", "size: 2");
        assert_eq!(
            found(larger, &["StatefulSet"]),
            ["recreates StatefulSet db"]
        );
        // Without the option, the API server refuses the change.
        assert!(found(larger, &["Job"]).is_empty());
        let image = replaced("image: a", "image: b");
        assert_eq!(
            found(image, &[]),
            [
                "restarts 3 Pods (StatefulSet db)",
                "restarts the Pods of Deployment web"
            ]
        );
        let scaled = replaced("replicas: 3", "replicas: 5");
        assert!(found(scaled, &["StatefulSet"]).is_empty());
        let on_delete = replaced(
            "image: a}, vol",
            "image: b}, updateStrategy: {type: OnDelete}, vol",
        );
        assert!(found(on_delete, &["StatefulSet"]).is_empty());
        let first = |text: String| text.split("---").take(2).collect::<Vec<_>>().join("---");
        assert_eq!(found(first, &[]), ["deletes PersistentVolumeClaim data"]);
    }
}
