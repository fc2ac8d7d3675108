//! Deletions.
//!
//! Source: `k8s.io/apiserver/pkg/registry/generic/registry/store.go`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::decode::{to_stored, to_version};
use super::kinds::Kind;
use super::object::{
    finalizers, generation, is_deleting, items, meta, set_at, set_finalizers, set_meta,
};
use super::request::Call;
use super::selectors::Selector;
use super::server::{Place, Reply, Server};
use super::status::{Cause, Failure};
use super::store::{Change, Key, Stored, key_of};
use super::writing::answer;
use super::{definitions, namespaces};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];

/// The options of a deletion.
#[derive(Debug, Default)]
struct Wanted {
    uid: Option<String>,
    version: Option<String>,
    /// The policy of propagation.
    policy: Option<String>,
    orphan: Option<bool>,
    dry_run: bool,
}

impl Wanted {
    fn parse(call: &Call) -> Result<Self, Failure> {
        let mut wanted = Self {
            policy: call.query.get("propagationPolicy").cloned(),
            dry_run: call.is_dry_run(),
            ..Self::default()
        };
        if !call.body.is_empty() {
            let body: Value = serde_json::from_slice(&call.body)
                .map_err(|error| Failure::bad_request(error.to_string()))?;
            wanted.read(&body)?;
        }
        if let Some(policy) = &wanted.policy {
            let field = "propagationPolicy";
            let shown = policy.as_str().into();
            let mut causes = Vec::new();
            if wanted.orphan.is_some() {
                let detail = "orphanDependents and deletionPropagation cannot be both set";
                causes.push(Cause::invalid(field, &shown, detail));
            }
            if !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan") {
                let known = ["Foreground", "Background", "Orphan", "nil"].map(Value::from);
                causes.push(Cause::not_supported(field, &shown, &known));
            }
            if !causes.is_empty() {
                return Err(Failure::invalid_all_options("DeleteOptions", &causes));
            }
        }
        Ok(wanted)
    }

    fn read(&mut self, body: &Value) -> Result<(), Failure> {
        let text = |pointer: &str| body.pointer(pointer)?.as_str().map(ToOwned::to_owned);
        if let Some(kind) = body.get("kind").and_then(Value::as_str)
            && kind != "DeleteOptions"
        {
            let version = text("/apiVersion").unwrap_or_default();
            return Err(Failure::bad_request(format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \"pkg/runtime/scheme.go:111\""
            )));
        }
        self.uid = text("/preconditions/uid");
        self.version = text("/preconditions/resourceVersion");
        self.policy = text("/propagationPolicy").or(self.policy.take());
        self.orphan = body.get("orphanDependents").and_then(Value::as_bool);
        let dry_run = items(body.get("dryRun"));
        if dry_run.iter().any(|value| value != "All") {
            let shown = Value::from(dry_run.to_vec());
            let cause = Cause::not_supported("dryRun", &shown, &["All".into()]);
            return Err(Failure::invalid_options("DeleteOptions", cause));
        }
        self.dry_run |= !dry_run.is_empty();
        Ok(())
    }
}

impl Server {
    pub(super) fn delete(&mut self, call: &Call, place: &Place) -> Result<Reply, Failure> {
        let kind = Arc::clone(&place.kind);
        let key = place.key();
        let name = key.name.as_str();
        if kind.resource.plural == "namespaces" && IMMORTAL.contains(&name) {
            let why = "this namespace may not be deleted";
            return Err(Failure::forbidden(kind.named(), name, why));
        }
        let wanted = Wanted::parse(call)?;
        let existing = self.find(place)?;
        let orphans = wanted.orphan == Some(false);
        match self.delete_object(place, &key, &existing, &wanted)? {
            Deleted::Now => {
                if kind.rules.returns_deleted {
                    let change = self.store.changes_after(self.store.version() - 1).last();
                    let deleted = change.filter(|_| !wanted.dry_run).and_then(Change::last);
                    return Ok(answer(call, 200, &deleted.unwrap_or(existing)));
                }
                let mut details = json!({
                    "name": name, "kind": kind.resource.plural, "uid": meta(&existing, "uid"),
                });
                if !kind.resource.group.is_empty() {
                    set_at(&mut details, &["group"], kind.resource.group.clone().into());
                }
                Ok(Reply::ok(json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "details": details,
                })))
            }
            Deleted::Later(object) => {
                let object = to_version(&kind, &place.version, &object);
                let code = if orphans { 202 } else { 200 };
                Ok(answer(call, code, &object))
            }
        }
    }

    pub(super) fn delete_collection(
        &mut self,
        call: &Call,
        place: &Place,
    ) -> Result<Reply, Failure> {
        let wanted = Wanted::parse(call)?;
        let selector = Selector::of(call, &place.kind)?;
        let listed = self.list(call, place)?;
        let objects = self.objects(&place.kind.resource, place.namespace.as_deref());
        let limit: usize = call.parameter("limit").parse().unwrap_or_default();
        if limit > 0 || !call.parameter("continue").is_empty() {
            return Err(Failure::unmodelled("deletion of a part of a collection"));
        }
        for (key, object) in objects {
            if selector.matches(&object) {
                self.delete_object(place, &key, &object, &wanted)?;
            }
        }
        Ok(listed)
    }

    /// Deletes all objects of a kind that are not being deleted yet, also of one that is not served.
    pub(super) fn delete_all(&mut self, kind: &Arc<Kind>) {
        for (key, object) in self.objects(&kind.resource, None) {
            if is_deleting(&object) {
                continue;
            }
            let place = Place {
                kind: Arc::clone(kind),
                version: kind.stored.clone(),
                namespace: Some(key.namespace.clone()).filter(|name| !name.is_empty()),
                name: None,
            };
            // Without preconditions it does not fail.
            drop(self.delete_object(&place, &key, &object, &Wanted::default()));
        }
        self.observe();
    }

    fn delete_object(
        &mut self,
        place: &Place,
        key: &Key,
        existing: &Arc<Stored>,
        wanted: &Wanted,
    ) -> Result<Deleted, Failure> {
        let kind = &place.kind;
        check_preconditions(kind, existing, wanted)?;
        let now = self.now();
        let definition = definitions::marked(kind, existing, &now);
        if let Some(marked) = definition.or_else(|| namespaces::marked(kind, existing, &now)) {
            // Namespaces and definitions wait for what they hold.
            return Ok(self.store_marked(kind, existing, marked, wanted));
        }
        let kept = deletion_finalizers(kind, existing, wanted);
        if kept.is_empty() {
            if !wanted.dry_run {
                self.store.delete(&kind.resource, key);
            }
            return Ok(Deleted::Now);
        }
        let mut marked = (*to_version(kind, &place.version, existing)).clone();
        if kept != finalizers(existing) {
            set_finalizers(&mut marked, &kept);
        }
        if !is_deleting(existing) {
            if generation(existing) > 0 {
                set_meta(&mut marked, "generation", generation(existing) + 1);
            }
            set_meta(&mut marked, "deletionTimestamp", now);
        }
        set_meta(&mut marked, "deletionGracePeriodSeconds", 0);
        Ok(self.store_marked(kind, existing, marked, wanted))
    }

    fn store_marked(
        &mut self,
        kind: &Kind,
        existing: &Arc<Stored>,
        marked: Value,
        wanted: &Wanted,
    ) -> Deleted {
        let marked = to_stored(kind, marked);
        Deleted::Later(if marked == ***existing {
            Arc::clone(existing)
        } else if wanted.dry_run {
            Arc::new(Stored::new(marked))
        } else {
            self.store.put(&kind.resource, marked)
        })
    }
}

/// Fails if the object is not the one that the request means.
fn check_preconditions(kind: &Kind, existing: &Value, wanted: &Wanted) -> Result<(), Failure> {
    let name = key_of(existing).name;
    let conflict = |why: String| Err(Failure::conflict(kind.named_kind(), &name, &why));
    if let Some(uid) = &wanted.uid
        && uid != meta(existing, "uid")
    {
        return conflict(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            meta(existing, "uid")
        ));
    }
    let version = meta(existing, "resourceVersion");
    if let Some(wanted) = &wanted.version
        && wanted != version
    {
        return conflict(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        ));
    }
    Ok(())
}

enum Deleted {
    Now,
    Later(Arc<Stored>),
}

/// Returns the finalizers that hold an object when it is deleted.
fn deletion_finalizers(kind: &Kind, object: &Value, wanted: &Wanted) -> Vec<String> {
    let present = finalizers(object);
    if kind.resource.plural == "events" {
        return present;
    }
    let has = |name: &str| present.iter().any(|finalizer| finalizer == name);
    let policy = wanted.policy.as_deref();
    let (orphan, foreground) = match (wanted.orphan, policy) {
        (Some(orphan), _) => (orphan, false),
        (None, Some("Orphan")) => (true, false),
        (None, Some("Foreground")) => (false, true),
        (None, Some(_)) => (false, false),
        (None, None) if has("orphan") => (true, false),
        (None, None) => (false, has("foregroundDeletion")),
    };
    let mut kept: Vec<String> = present
        .iter()
        .filter(|finalizer| !matches!(finalizer.as_str(), "orphan" | "foregroundDeletion"))
        .cloned()
        .collect();
    if orphan {
        kept.push("orphan".to_owned());
    }
    if foreground {
        kept.push("foregroundDeletion".to_owned());
    }
    let same = kept.len() == present.len() && kept.iter().all(|finalizer| has(finalizer));
    if same { present } else { kept }
}
