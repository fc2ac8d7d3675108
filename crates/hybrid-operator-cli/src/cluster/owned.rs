//! The objects of a release in the cluster, and the Pods of its workloads.

use anyhow::Context as _;
use helm_core::manifest::{ObjectKey, parse_objects};
use helm_core::release::Release as Record;
use hybrid_operator::helm::{ObjectHealth, health};
use hybrid_operator::helm_release::kube_objects::ownership::{CR_LABEL, CrIdentity};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use serde_json::Value;

use super::{Cluster, Selected};

/// An object of a release.
pub(crate) struct Owned {
    pub(crate) key: ObjectKey,
    pub(crate) found: Found,
}

/// An object in the cluster.
pub(crate) enum Found {
    Present {
        uid: String,
        health: ObjectHealth,
        /// Label selector of the Pods, if it is a workload.
        selector: Option<String>,
    },
    Missing,
    /// The object cannot be read.
    Unreadable(String),
}

impl Owned {
    pub(crate) fn is_ready(&self) -> bool {
        matches!(&self.found, Found::Present { health, .. } if health.ready)
    }
}

/// Reads what belongs to a custom resource: the newest record and the objects of its release, or else the objects of a
/// native controller.
pub(crate) async fn owned_by(
    cluster: &Cluster,
    selected: &Selected,
) -> anyhow::Result<(Option<Record>, Vec<Owned>)> {
    let Some(latest) = selected.history.last() else {
        return Ok((None, labelled(cluster, selected).await));
    };
    let record = selected.records.load(latest).await;
    let record = record.context("cannot read the release record")?;
    let objects = objects_of(cluster, &record).await?;
    Ok((Some(record), objects))
}

/// Reads the objects of a release, in the order of its manifest.
async fn objects_of(cluster: &Cluster, record: &Record) -> anyhow::Result<Vec<Owned>> {
    let mut objects = Vec::new();
    for object in parse_objects(&record.manifest)? {
        let mut key = object.key().clone();
        let gvk = gvk_of(&key);
        let place = key
            .namespace
            .clone()
            .unwrap_or_else(|| record.namespace.clone());
        let found = match cluster.get(&gvk, Some(&place), &key.name).await {
            Ok(Some(object)) => {
                key.namespace = object.namespace();
                present(&object)
            }
            Ok(None) => Found::Missing,
            Err(error) => Found::Unreadable(format!("{error:#}")),
        };
        objects.push(Owned { key, found });
    }
    Ok(objects)
}

/// Kinds of objects that are looked for below custom resources of native controllers: those that may be not ready.
const KINDS: [(&str, &str, &str); 6] = [
    ("apps", "v1", "Deployment"),
    ("apps", "v1", "StatefulSet"),
    ("apps", "v1", "DaemonSet"),
    ("batch", "v1", "Job"),
    ("", "v1", "PersistentVolumeClaim"),
    ("", "v1", "Service"),
];

/// Lists objects that a native controller has applied for a custom resource, by their label. What cannot be listed is
/// named on standard error.
async fn labelled(cluster: &Cluster, selected: &Selected) -> Vec<Owned> {
    let (gvk, resource) = (&selected.kind.gvk, &selected.resource);
    let namespace = resource.metadata.namespace.as_deref();
    let identity = CrIdentity::of(&gvk.group, &gvk.kind, namespace, &resource.name_any());
    let selector = format!("{CR_LABEL}={identity}");
    let mut objects = Vec::new();
    for (group, version, kind) in KINDS {
        let gvk = GroupVersionKind::gvk(group, version, kind);
        match cluster.list(&gvk, namespace, Some(&selector)).await {
            Ok(found) => objects.extend(found.iter().filter_map(|object| {
                let key = ObjectKey::of(&serde_json::to_value(object).ok()?)?;
                let found = present(object);
                Some(Owned { key, found })
            })),
            Err(error) => crate::print_message(&format!("warning: {error:#}")),
        }
    }
    objects
}

fn gvk_of(key: &ObjectKey) -> GroupVersionKind {
    GroupVersionKind::gvk(&key.group, &key.version, &key.kind)
}

fn present(object: &DynamicObject) -> Found {
    let whole = serde_json::to_value(object).unwrap_or_default();
    Found::Present {
        uid: object.uid().unwrap_or_default(),
        health: health(&whole),
        selector: selector(&whole),
    }
}

/// Returns the label selector of the Pods of a workload.
fn selector(object: &Value) -> Option<String> {
    object.pointer("/spec/template/spec/containers")?;
    let labels = object.pointer("/spec/selector/matchLabels")?.as_object()?;
    let pairs = labels
        .iter()
        .filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    let text = pairs.collect::<Vec<_>>().join(",");
    Some(text).filter(|text| !text.is_empty())
}

/// A Pod of a workload.
pub(crate) struct PodState {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) ready: bool,
    /// Phase, or the reason why it does not run.
    pub(crate) state: String,
    pub(crate) message: String,
}

/// Lists the Pods of a workload.
pub(crate) async fn pods_of(cluster: &Cluster, workload: &Owned) -> anyhow::Result<Vec<PodState>> {
    let Found::Present {
        selector: Some(selector),
        ..
    } = &workload.found
    else {
        return Ok(Vec::new());
    };
    let gvk = GroupVersionKind::gvk("", "v1", "Pod");
    let namespace = workload.key.namespace.as_deref();
    let pods = cluster.list(&gvk, namespace, Some(selector)).await?;
    Ok(pods.iter().map(pod_state).collect())
}

fn pod_state(pod: &DynamicObject) -> PodState {
    let whole = serde_json::to_value(pod).unwrap_or_default();
    let (state, message) = pod_reason(&whole);
    PodState {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        ready: health(&whole).ready,
        state,
        message,
    }
}

/// Returns why a Pod does not run, or its phase: the reason of a waiting or failed container, else
/// that of the scheduler.
fn pod_reason(pod: &Value) -> (String, String) {
    let text = |value: &Value, field: &str| {
        let text = value.get(field).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let containers = lists
        .iter()
        .filter_map(|list| pod.pointer(list)?.as_array())
        .flatten();
    for container in containers {
        let states = ["/state/waiting", "/state/terminated"];
        for state in states.iter().filter_map(|state| container.pointer(state)) {
            let failed = state.get("exitCode").is_none_or(|code| code != 0);
            if failed {
                let message = text(state, "message");
                let name = text(container, "name");
                let message = if message.is_empty() {
                    format!("container {name}")
                } else {
                    format!("container {name}: {message}")
                };
                return (text(state, "reason"), message);
            }
        }
    }
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let blocked = conditions.into_iter().flatten().find(|condition| {
        let is = |field: &str, expected: &str| text(condition, field) == expected;
        is("type", "PodScheduled") && is("status", "False")
    });
    if let Some(condition) = blocked {
        return (text(condition, "reason"), text(condition, "message"));
    }
    let phase = pod.pointer("/status/phase").and_then(Value::as_str);
    (phase.unwrap_or("Unknown").to_owned(), String::new())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{pod_reason, selector};

    #[test]
    fn the_reason_of_a_pod_is_that_of_its_container_or_of_the_scheduler() {
        let waiting = json!({"status": {"phase": "Pending", "containerStatuses": [
            {"name": "ok", "state": {"running": {}}},
            {"name": "db", "state": {"waiting": {"reason": "ErrImagePull", "message": "no x"}}}]}});
        let unscheduled = json!({"status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}]}});
        let done = json!({"status": {"phase": "Succeeded", "containerStatuses": [
            {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}});
        let crashed = json!({"status": {"phase": "Running", "initContainerStatuses": [
            {"name": "a", "state": {"terminated": {"exitCode": 3, "reason": "Error"}}}]}});
        for (pod, state, message) in [
            (waiting, "ErrImagePull", "container db: no x"),
            (unscheduled, "Unschedulable", "0/1"),
            (done, "Succeeded", ""),
            (crashed, "Error", "container a"),
            (json!({}), "Unknown", ""),
        ] {
            let expected = (state.to_owned(), message.to_owned());
            assert_eq!(pod_reason(&pod), expected, "{pod}");
        }
    }

    #[test]
    fn only_workloads_have_a_selector_of_pods() {
        let workload = json!({"spec": {"selector": {"matchLabels": {"a": "b", "c": "d"}},
            "template": {"spec": {"containers": []}}}});
        assert_eq!(selector(&workload).unwrap(), "a=b,c=d");
        let service = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}}});
        assert_eq!(selector(&service), None);
    }
}
