//! The garbage collector: deletes what its owners no longer hold.
//!
//! Source: `pkg/controller/garbagecollector` of Kubernetes.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::controllers::{Object, Task, owner_uids};
use super::kinds::Kind;
use super::object::{finalizers, has_finalizer, is_deleting, items, meta, meta_field, text};
use super::server::Server;
use super::store::{Change, Key, Stored};

/// Makes the tasks that follow from a change.
pub(super) fn react(server: &mut Server, change: &Change, object: &Object, uid: &str) {
    let owners = owner_uids(change.after());
    let is_changed = owners != owner_uids(change.before());
    if !owners.is_empty() && is_changed {
        server.schedule(Task::Collect(object.clone()));
    }
    if is_changed {
        for owner in waiting_owners(server, change.before(), object) {
            server.schedule(Task::Foreground(owner));
        }
    }
    let Some(after) = &change.after else {
        let dependents = server.controllers.dependents.get(uid).cloned();
        for dependent in dependents.into_iter().flatten() {
            server.schedule(Task::Collect(dependent));
        }
        return;
    };
    if !is_deleting(after) {
        return;
    }
    for finalizer in finalizers(after) {
        match finalizer.as_str() {
            "foregroundDeletion" => server.schedule(Task::Foreground(object.clone())),
            "orphan" => server.schedule(Task::Orphan(object.clone())),
            _ => {}
        }
    }
}

/// Makes the tasks that follow from a new kind: its objects may be the owners of any others.
pub(super) fn react_to_kind(server: &mut Server) {
    let dependents = server.controllers.dependents.values().flatten();
    let dependents: Vec<Object> = dependents.cloned().collect();
    for dependent in dependents {
        server.schedule(Task::Collect(dependent));
    }
}

/// Returns the owners of an object that wait for their dependents.
fn waiting_owners(server: &Server, object: Option<&Value>, of: &Object) -> Vec<Object> {
    let Some(object) = object else {
        return Vec::new();
    };
    let owners = items(meta_field(object, "ownerReferences")).iter();
    owners
        .filter_map(|reference| owner(server, reference, &of.key.namespace))
        .filter(|(_, live)| is_waiting(live))
        .map(|(object, _)| object)
        .collect()
}

fn is_waiting(object: &Value) -> bool {
    is_deleting(object) && has_finalizer(object, "foregroundDeletion")
}

/// Returns the owner that a reference names, if it exists with the uid of the reference. An owner is in
/// the namespace of its dependent, or in none.
fn owner(server: &Server, reference: &Value, namespace: &str) -> Option<(Object, Arc<Stored>)> {
    let kind = server.kind_of_owner(reference)?;
    let namespace = if kind.namespaced { namespace } else { "" };
    let key = Key::new(namespace, text(reference, "name"));
    let live = server.store.get(&kind.resource, &key)?;
    let resource = Arc::new(kind.resource.clone());
    (meta(&live, "uid") == text(reference, "uid")).then_some((Object { resource, key }, live))
}

/// Deletes an object whose owners are all gone, and removes references to owners that are gone from
/// others.
pub(super) fn collect(server: &mut Server, object: &Object, live: &Value) {
    let waits = is_waiting(live);
    if is_deleting(live) {
        if waits {
            server.schedule(Task::Foreground(object.clone()));
        }
        return;
    }
    let references = items(meta_field(live, "ownerReferences"));
    let mut solid = Vec::new();
    let mut waiting = false;
    for reference in references {
        if server.kind_of_owner(reference).is_none() {
            // A kind that is not served may come back.
            return;
        }
        match owner(server, reference, &object.key.namespace) {
            Some((_, owner)) if is_waiting(&owner) => waiting = true,
            Some(_) => solid.push(reference.clone()),
            None => {}
        }
    }
    if references.is_empty() || solid.len() == references.len() {
        return;
    }
    let uid = meta(live, "uid").to_owned();
    if !solid.is_empty() {
        let patch = json!({"metadata": {"uid": uid, "ownerReferences": solid}});
        server.act_on(Method::PATCH, object, &patch);
        return;
    }
    let has_dependents = server.controllers.dependents.contains_key(&uid);
    let policy = if waiting && has_dependents {
        "Foreground"
    } else if has_finalizer(live, "orphan") {
        "Orphan"
    } else if has_finalizer(live, "foregroundDeletion") {
        "Foreground"
    } else {
        "Background"
    };
    let options = json!({"propagationPolicy": policy, "preconditions": {"uid": uid}});
    server.act_on(Method::DELETE, object, &options);
}

/// Deletes the dependents of an object that waits for them, and lets it go when none blocks it.
pub(super) fn delete_dependents(server: &mut Server, object: &Object, live: &Value) {
    if !is_waiting(live) {
        return;
    }
    let uid = meta(live, "uid").to_owned();
    let dependents = server.dependents_of(&uid);
    let blocks = |dependent: &Arc<Stored>| {
        let references = items(meta_field(dependent, "ownerReferences"));
        references.iter().any(|reference| {
            reference.get("uid") == Some(&json!(uid))
                && reference.get("blockOwnerDeletion") == Some(&Value::Bool(true))
        })
    };
    if !dependents.iter().any(|(_, dependent)| blocks(dependent)) {
        server.remove_finalizer(object, live, "foregroundDeletion");
        return;
    }
    for (dependent, _) in dependents {
        server.schedule(Task::Collect(dependent));
    }
}

/// Removes the references to an object that is deleted without its dependents, and lets it go.
pub(super) fn release_dependents(server: &mut Server, object: &Object, live: &Value) {
    if !is_deleting(live) {
        return;
    }
    let uid = meta(live, "uid");
    for (dependent, content) in server.dependents_of(uid) {
        let references = items(meta_field(&content, "ownerReferences")).iter();
        let kept: Vec<&Value> = references
            .filter(|reference| reference.get("uid") != Some(&json!(uid)))
            .collect();
        let kept = if kept.is_empty() {
            Value::Null
        } else {
            json!(kept)
        };
        let patch = json!({"metadata": {"uid": meta(&content, "uid"), "ownerReferences": kept}});
        server.act_on(Method::PATCH, &dependent, &patch);
    }
    if let Some(live) = server.store.get(&object.resource, &object.key) {
        server.remove_finalizer(object, &live, "orphan");
    }
}

impl Server {
    /// Returns the kind of the owner that a reference names, if it is served.
    fn kind_of_owner(&self, reference: &Value) -> Option<&Arc<Kind>> {
        let api_version = text(reference, "apiVersion");
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.kinds.named(group, text(reference, "kind"))
    }

    fn dependents_of(&self, uid: &str) -> Vec<(Object, Arc<Stored>)> {
        let dependents = self.controllers.dependents.get(uid).into_iter().flatten();
        dependents
            .filter_map(|object| {
                let live = self.store.get(&object.resource, &object.key)?;
                Some((object.clone(), live))
            })
            .collect()
    }

    fn remove_finalizer(&mut self, object: &Object, live: &Value, finalizer: &str) {
        let mut kept = finalizers(live);
        kept.retain(|name| name != finalizer);
        let patch = json!({"metadata": {
            "uid": meta(live, "uid"),
            "resourceVersion": meta(live, "resourceVersion"),
            "finalizers": kept,
        }});
        self.act_on(Method::PATCH, object, &patch);
    }

    /// Executes a request of a controller about an object.
    pub(super) fn act_on(&mut self, method: Method, object: &Object, body: &Value) {
        let Some(kind) = self.kinds.of(&object.resource).cloned() else {
            return;
        };
        let path = kind.path(&object.key.namespace, &object.key.name);
        drop(self.act(method, path, &body.to_string()));
    }
}
