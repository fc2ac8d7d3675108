//! Namespaces: what each has from the start, and how they end.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::controllers::{Object, Task};
use super::kinds::Kind;
use super::object::{at, finalizers, is_deleting, items, meta, set_at, set_meta};
use super::server::Server;
use super::store::{Change, Key, Resource, Stored};

/// Returns whether a namespace still waits for its contents.
pub(super) fn is_held(kind: &Kind, object: &Value) -> bool {
    is_namespaces(&kind.resource) && !items(at(object, &["spec", "finalizers"])).is_empty()
}

fn is_namespaces(resource: &Resource) -> bool {
    resource.group.is_empty() && resource.plural == "namespaces"
}

/// Returns a namespace as its deletion leaves it, if it waits for its contents.
pub(super) fn marked(kind: &Kind, existing: &Value, now: &str) -> Option<Value> {
    if !is_namespaces(&kind.resource) || (is_deleting(existing) && !is_held(kind, existing)) {
        return None;
    }
    let mut marked = existing.clone();
    if !is_deleting(existing) {
        set_meta(&mut marked, "deletionTimestamp", now);
        set_at(&mut marked, &["status", "phase"], "Terminating".into());
    }
    Some(marked)
}

/// Makes the tasks that follow from a change of a namespace.
pub(super) fn react(server: &mut Server, change: &Change) {
    let Some(after) = &change.after else { return };
    let name = meta(after, "name").to_owned();
    if change.before.is_none() {
        server.schedule(Task::Furnish(name));
    } else if is_deleting(after) && !items(at(after, &["spec", "finalizers"])).is_empty() {
        server.schedule(Task::Empty(name));
    }
}

/// Makes the tasks that follow from a change of an object in a namespace.
pub(super) fn react_to_content(server: &mut Server, change: &Change, object: &Object) {
    let namespace = &object.key.namespace;
    if namespace.is_empty() {
        return;
    }
    let core = |plural: &str| change.resource.group.is_empty() && change.resource.plural == plural;
    if change.after.is_none() {
        if is_terminating(server, namespace) {
            server.schedule(Task::Empty(namespace.clone()));
        } else if (core("serviceaccounts") && object.key.name == "default")
            || (core("configmaps") && object.key.name == ROOT)
        {
            server.schedule(Task::Furnish(namespace.clone()));
        }
    }
}

fn namespace(server: &Server, name: &str) -> Option<Arc<Stored>> {
    let resource = Resource::new("", "namespaces");
    server.store.get(&resource, &Key::new("", name))
}

fn is_terminating(server: &Server, name: &str) -> bool {
    namespace(server, name).is_some_and(|namespace| is_deleting(&namespace))
}

/// Name of the `ConfigMap` with the certificates of the cluster.
const ROOT: &str = "kube-root-ca.crt";

/// Creates what every namespace has, unless it is there.
pub(super) fn furnish(server: &mut Server, name: &str) {
    let path = |plural: &str| format!("/api/v1/namespaces/{name}/{plural}");
    let account = json!({"metadata": {"name": "default"}}).to_string();
    drop(server.act(Method::POST, path("serviceaccounts"), &account));
    let root =
        json!({"metadata": {"name": ROOT}, "data": {"ca.crt": "-----BEGIN CERTIFICATE-----\n"}});
    drop(server.act(Method::POST, path("configmaps"), &root.to_string()));
}

/// Deletes what is in a namespace, and the namespace when nothing is left.
pub(super) fn empty(server: &mut Server, name: &str) {
    if namespace(server, name).is_none_or(|live| !is_deleting(&live)) {
        return;
    }
    let kinds: Vec<_> = server
        .kinds
        .all()
        // Objects of a kind that is not served stay.
        .filter(|kind| kind.namespaced && !kind.versions.is_empty())
        .cloned()
        .collect();
    let mut left: Vec<(String, usize, Vec<String>)> = Vec::new();
    for kind in kinds {
        if server.objects(&kind.resource, Some(name)).is_empty() {
            continue;
        }
        let options = json!({"propagationPolicy": "Background"}).to_string();
        drop(server.act(Method::DELETE, kind.path(name, ""), &options));
        let remaining = server.objects(&kind.resource, Some(name));
        if !remaining.is_empty() {
            let held = remaining.iter();
            let held = held.flat_map(|(_, object)| finalizers(object)).collect();
            let resource = format!("{}.{}", kind.resource.plural, kind.resource.group);
            left.push((resource, remaining.len(), held));
        }
    }
    let Some(live) = namespace(server, name) else {
        return;
    };
    let path = format!("/api/v1/namespaces/{name}");
    if left.is_empty() {
        let mut finalized = (*live).clone();
        set_at(&mut finalized, &["spec", "finalizers"], json!([]));
        let path = format!("{path}/finalize");
        drop(server.act(Method::PUT, path, &finalized.to_string()));
        return;
    }
    let conditions = conditions(&left, &server.now(), at(&live, &["status", "conditions"]));
    let status = json!({"status": {"conditions": conditions}}).to_string();
    drop(server.act(Method::PATCH, format!("{path}/status"), &status));
}

/// Returns the conditions of a namespace that is not empty.
fn conditions(left: &[(String, usize, Vec<String>)], now: &str, before: Option<&Value>) -> Value {
    let contents = left
        .iter()
        .map(|(resource, count, _)| format!("{resource} has {count} resource instances"));
    let contents = contents.collect::<Vec<_>>().join(", ");
    let mut counts = std::collections::BTreeMap::<&str, usize>::new();
    for finalizer in left.iter().flat_map(|(_, _, held)| held) {
        *counts.entry(finalizer).or_default() += 1;
    }
    let held = counts
        .iter()
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"));
    let held = held.collect::<Vec<_>>().join(", ");
    // Type, status, reason and message of each.
    let rows = [
        "NamespaceDeletionDiscoveryFailure False ResourcesDiscovered All resources successfully discovered".to_owned(),
        "NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions All legacy kube types successfully parsed".to_owned(),
        "NamespaceDeletionContentFailure False ContentDeleted All content successfully deleted, may be waiting on finalization".to_owned(),
        format!("NamespaceContentRemaining True SomeResourcesRemain Some resources are remaining: {contents}"),
        if held.is_empty() {
            "NamespaceFinalizersRemaining False ContentHasNoFinalizers All content-preserving finalizers finished".to_owned()
        } else {
            format!("NamespaceFinalizersRemaining True SomeFinalizersRemain Some content in the namespace has finalizers remaining: {held}")
        },
    ];
    let conditions = rows.iter().map(|row| {
        let mut words = row.splitn(4, ' ');
        let mut word = || words.next().unwrap_or_default();
        let (kind, status, reason, message) = (word(), word(), word(), word());
        let former = items(before).iter().find(|condition| {
            condition.get("type") == Some(&json!(kind))
                && condition.get("status") == Some(&json!(status))
        });
        let since = former.and_then(|condition| condition.get("lastTransitionTime"));
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since.cloned().unwrap_or_else(|| now.into()),
        })
    });
    conditions.collect()
}
