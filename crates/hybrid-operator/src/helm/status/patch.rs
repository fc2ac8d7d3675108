//! The merge patch that brings a status to the API server.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};

use super::super::conditions::ConditionStatus;
use super::{DeployedManifest, Handled, ReleaseStatus, Status};
use crate::reasons::ConditionType;
use helm_release::engine::bounded;

/// Maximum size of a chart's version and of its `appVersion`, in bytes.
const MAX_VERSION: usize = 256;

impl Status {
    /// Returns the merge patch for the status, `None` if it is unchanged.
    pub(crate) fn patch(&self, written: &WrittenStatus) -> Option<Value> {
        let mut status = Map::new();
        status.insert("conditions".to_owned(), json!(self.conditions));
        if let Some(generation) = self.observed_generation() {
            status.insert("observedGeneration".to_owned(), json!(generation));
        }
        if let Some(release) = &self.release {
            status.insert("release".to_owned(), json!(shortened(release)));
            let name = release.name.as_str();
            let recorded = self.before.pointer("/deployedRelease/name");
            let known = recorded.and_then(Value::as_str) == Some(name);
            let mut deployed = json!({"name": name});
            if let DeployedManifest::Of(Some(manifest)) = &self.manifest {
                deployed = json!({"name": name, "manifest": manifest});
            }
            if self.manifest != DeployedManifest::Same
                || !known && self.has_deployed(ConditionStatus::True)
            {
                status.insert("deployedRelease".to_owned(), deployed);
            }
        }
        if self.without_manifest {
            remove_manifest(&mut status, &self.before);
        }
        if self.has_deployed(ConditionStatus::False) && self.before.get("deployedRelease").is_some()
        {
            status.insert("deployedRelease".to_owned(), Value::Null);
        }
        if let Some(history) = &self.history {
            status.insert("history".to_owned(), json!(history));
        }
        if self.handled != Handled::default() {
            status.insert("handled".to_owned(), json!(self.handled));
        }
        for (name, value) in &self.outputs {
            let before = self.before.get(name);
            match value {
                Some(value) => {
                    status.insert(name.clone(), replacing(value, before));
                }
                None if before.is_some_and(|before| !before.is_null()) => {
                    status.insert(name.clone(), Value::Null);
                }
                None => {}
            }
        }
        let same = status
            .iter()
            .all(|(key, value)| self.before.get(key) == Some(value));
        let status = Value::Object(status);
        // Do not send fields again that the API server drops.
        if same && !written.unanswered || written.is(&status, &self.before) {
            return None;
        }
        let mut patch = status;
        add_removed_fields(&mut patch, &self.before, "release");
        add_removed_fields(&mut patch, &self.before, "deployedRelease");
        add_removed_fields(&mut patch, &self.before, "handled");
        Some(patch)
    }

    fn has_deployed(&self, status: ConditionStatus) -> bool {
        let mut conditions = self.conditions.iter();
        conditions.any(|condition| {
            condition.type_ == ConditionType::Deployed && condition.status == status
        })
    }
}

/// Returns a release without what a chart may make arbitrarily long.
fn shortened(release: &ReleaseStatus) -> ReleaseStatus {
    let bounded = |version: &String| bounded(version, MAX_VERSION).into_owned();
    ReleaseStatus {
        chart_version: release.chart_version.as_ref().map(bounded),
        app_version: release.app_version.as_ref().map(bounded),
        ..release.clone()
    }
}

/// Takes the manifest out of a new status, and removes that of the present one.
fn remove_manifest(status: &mut Map<String, Value>, before: &Value) {
    let shown = before.pointer("/deployedRelease/manifest").is_some();
    let present = before.get("deployedRelease").filter(|_| shown).cloned();
    let deployed = status.remove("deployedRelease").or(present);
    if let Some(Value::Object(mut deployed)) = deployed {
        deployed.remove("manifest");
        if shown {
            deployed.insert("manifest".to_owned(), Value::Null);
        }
        if before.get("deployedRelease").and_then(Value::as_object) != Some(&deployed) {
            status.insert("deployedRelease".to_owned(), Value::Object(deployed));
        }
    }
}

/// Returns the merge patch that makes a value of the one before: fields that it lacks are null.
fn replacing(value: &Value, before: Option<&Value>) -> Value {
    let (Value::Object(fields), Some(Value::Object(former))) = (value, before) else {
        return value.clone();
    };
    let kept = fields
        .iter()
        .map(|(name, value)| (name.clone(), replacing(value, former.get(name))));
    let gone = former.keys().filter(|name| !fields.contains_key(*name));
    kept.chain(gone.map(|name| (name.clone(), Value::Null)))
        .collect()
}

/// Sets removed fields of an object to null: a merge patch keeps fields that it does not contain.
fn add_removed_fields(patch: &mut Value, before: &Value, field: &str) {
    let known = before.get(field).and_then(Value::as_object);
    if let Some(fields) = patch.get_mut(field).and_then(Value::as_object_mut) {
        for name in known.into_iter().flat_map(Map::keys) {
            fields.entry(name.clone()).or_insert(Value::Null);
        }
    }
}

/// Hashes of the status last sent and of what the API server stored of it: the schema of the CRD
/// may prune fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WrittenStatus {
    sent: u64,
    kept: u64,
    /// Whether a write may not have been answered: the cached status may be older than the stored
    /// one.
    unanswered: bool,
}

impl WrittenStatus {
    /// Records that a status is being sent.
    pub(crate) fn unanswered() -> Self {
        Self {
            unanswered: true,
            ..Self::default()
        }
    }

    /// Records the status sent and the one that the API server returned.
    pub(crate) fn new(sent: &Value, kept: Option<&Value>) -> Self {
        Self {
            sent: hash(sent),
            kept: hash(kept.unwrap_or(&Value::Null)),
            unanswered: false,
        }
    }

    fn is(&self, status: &Value, present: &Value) -> bool {
        *self != Self::default()
            && !self.unanswered
            && self.sent == hash(status)
            && self.kept == hash(present)
    }

    /// Returns the fields of `sent` that were pruned, each as `status.FIELD`.
    pub(crate) fn pruned(sent: &Value, kept: Option<&Value>) -> Vec<String> {
        let Some(kept) = kept else {
            return Vec::new();
        };
        let fields = sent.as_object().into_iter().flatten();
        fields
            .filter(|(field, value)| !value.is_null() && kept.get(*field).is_none())
            .map(|(field, _)| format!("status.{field}"))
            .collect()
    }
}

/// Hashes a value, ignoring null fields.
fn hash(value: &Value) -> u64 {
    fn feed(value: &Value, hasher: &mut DefaultHasher) {
        match value {
            Value::Object(fields) => {
                let mut fields: Vec<_> = fields.iter().filter(|(_, v)| !v.is_null()).collect();
                fields.sort_by_key(|(name, _)| *name);
                fields.len().hash(hasher);
                for (name, value) in fields {
                    name.hash(hasher);
                    feed(value, hasher);
                }
            }
            Value::Array(items) => {
                items.len().hash(hasher);
                for item in items {
                    feed(item, hasher);
                }
            }
            value => value.hash(hasher),
        }
    }
    let mut hasher = DefaultHasher::new();
    feed(value, &mut hasher);
    hasher.finish()
}
