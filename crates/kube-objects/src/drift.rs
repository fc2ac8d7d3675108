//! Drift detection by the metadata of objects alone.
//!
//! For our field manager, the API server keeps the set of fields that we applied and that nobody
//! has changed since. Any change or removal of such a field by anybody else shrinks the set; fields
//! that others add do not affect it. A hash of the set is therefore enough to detect drift, even of
//! kinds without a generation. The set is that of the `Apply` entry: after any other write, its
//! fields have to be moved to that entry, as `apply` does after a PUT.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use object_key::ObjectKey;
use serde_json::Value;

use super::FIELD_MANAGER;
use super::ownership::{CHART_LABEL, CR_LABEL, MANAGED_BY_LABEL, OPERATOR_LABEL, controller_of};

/// Hashes the fields of our `Apply` entry, the controller reference, our labels, and who has written over
/// our data through `stringData`. Returns 0 if there is no such entry.
///
/// The hash does not depend on the order of fields, and is stable across versions of the operator,
/// because the [`aggregate`] is stored in the status.
pub fn ours_hash(metadata: &ObjectMeta) -> u64 {
    let entries = metadata.managed_fields.as_deref().unwrap_or_default();
    let Some(entry) = entries.iter().find(|entry| is_ours(entry)) else {
        return 0;
    };
    let mut hash = entry
        .fields_v1
        .as_ref()
        .map_or(1, |fields| hash_fields(&fields.0));
    if let Some(owner) = controller_of(metadata) {
        hash = hash.wrapping_add(mix(hash_text(&owner.uid) ^ 0x006f_776e_6572));
    }
    if let Some(labels) = &metadata.labels {
        for key in [CHART_LABEL, OPERATOR_LABEL, CR_LABEL, MANAGED_BY_LABEL] {
            if let Some(value) = labels.get(key) {
                hash = hash.wrapping_add(mix(hash_text(key) ^ hash_text(value).rotate_left(17)));
            }
        }
    }
    for other in entries {
        hash = hash.wrapping_add(overwritten_texts(entry, other));
    }
    hash.max(1)
}

/// Hashes which keys of our `data` an entry of a Secret has set through `stringData`, by whom and when; 0
/// if none. The API server copies their values to `data` without taking the keys from our entry.
fn overwritten_texts(ours: &ManagedFieldsEntry, other: &ManagedFieldsEntry) -> u64 {
    let fields = |entry: &'_ ManagedFieldsEntry, name: &str| {
        let fields = &entry.fields_v1.as_ref()?.0;
        fields.get(name)?.as_object().cloned()
    };
    let Some(texts) = fields(other, "f:stringData") else {
        return 0;
    };
    let data = fields(ours, "f:data").unwrap_or_default();
    let time = other.time.as_ref().map_or(0, |time| time.0.as_second());
    let manager = hash_text(other.manager.as_deref().unwrap_or_default());
    let write = mix(manager ^ mix(time.cast_unsigned()));
    let overwritten = texts
        .keys()
        .filter(|key| *key != "." && data.contains_key(*key));
    overwritten.fold(0, |sum: u64, key| {
        sum.wrapping_add(mix(hash_text(key) ^ write))
    })
}

/// Returns whether an entry of `managedFields` is our `Apply` entry.
pub fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(FIELD_MANAGER)
        && entry.operation.as_deref() == Some("Apply")
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// A hash over the objects of a release. If it is equal after a restart, nothing has drifted
/// meanwhile. Displays as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BaselineHash(u64);

impl fmt::Display for BaselineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Combines the hashes of objects, regardless of their order.
pub fn aggregate<'a>(objects: impl IntoIterator<Item = (&'a ObjectKey, u64)>) -> BaselineHash {
    let sum = objects.into_iter().fold(0_u64, |sum, (key, ours)| {
        let identity = [&key.group, &key.kind, &key.name]
            .into_iter()
            .chain(key.namespace.as_ref())
            .fold(0, |hash, part| mix(hash ^ hash_text(part)));
        sum.wrapping_add(mix(identity ^ ours.rotate_left(31)))
    });
    BaselineHash(sum)
}

/// Hashes a set of fields in the format of `fieldsV1`: nested maps whose keys are path elements.
fn hash_fields(fields: &Value) -> u64 {
    let Some(map) = fields.as_object() else {
        return 1;
    };
    map.iter().fold(0x9e37, |sum, (key, child)| {
        // Mixing binds a field to its parent; the sum makes the order of siblings irrelevant.
        sum.wrapping_add(mix(hash_text(key) ^ hash_fields(child).rotate_left(23)))
    })
}

/// FNV-1a, which is stable across versions and fast on short strings.
fn hash_text(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The finalizer of `SplitMix64`, which spreads every bit over the word, so that sums do not
/// cancel.
fn mix(hash: u64) -> u64 {
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn meta(entries: &Value) -> ObjectMeta {
        serde_json::from_value(json!({"name": "web", "managedFields": entries})).unwrap()
    }

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1",
               "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::of(&json!({"apiVersion": "v1", "kind": "ConfigMap",
                              "metadata": {"name": name, "namespace": "n"}}))
        .unwrap()
    }

    #[test]
    fn only_our_apply_entry_counts() {
        let fields = json!({"f:data": {"f:a": {}, "f:b": {}}});
        let ours = ours_hash(&meta(&json!([entry("helm", "Apply", &fields)])));
        assert_ne!(ours, 0);
        let foreign = json!([
            entry("kubectl", "Update", &json!({"f:data": {"f:c": {}}})),
            entry("helm", "Apply", &fields)
        ]);
        assert_eq!(ours_hash(&meta(&foreign)), ours);
        let update = json!([entry("helm", "Update", &fields)]);
        assert_eq!(ours_hash(&meta(&update)), 0);
        assert_eq!(ours_hash(&meta(&json!([]))), 0);
        let mut status = entry("helm", "Apply", &fields);
        status["subresource"] = "status".into();
        assert_eq!(ours_hash(&meta(&json!([status]))), 0);
    }

    #[test]
    fn any_lost_field_changes_the_hash() {
        let all = json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}, "f:metadata": {"f:a": {}}});
        let hash = |fields: &Value| ours_hash(&meta(&json!([entry("helm", "Apply", fields)])));
        let mut seen = vec![hash(&all)];
        for fields in [
            json!({"f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:a": {}}}),
            json!({"f:data": {".": {}, "f:b": {}}, "f:metadata": {"f:a": {}}}),
            json!({"f:data": {"f:a": {}, "f:b": {}}, "f:metadata": {"f:a": {}}}),
            json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}}),
            json!({"f:data": {".": {}, "f:a": {"f:b": {}}}, "f:metadata": {"f:a": {}}}),
            json!({}),
        ] {
            let hash = hash(&fields);
            assert!(!seen.contains(&hash), "{fields}");
            seen.push(hash);
        }
    }

    #[test]
    fn our_labels_and_the_controller_count() {
        let mut base = meta(&json!([entry("helm", "Apply", &json!({"f:data": {}}))]));
        let plain = ours_hash(&base);
        base.labels = Some([(CR_LABEL.to_owned(), "x".to_owned())].into());
        let labelled = ours_hash(&base);
        base.labels = Some([(CR_LABEL.to_owned(), "y".to_owned())].into());
        let other = ours_hash(&base);
        base.labels = Some([("app".to_owned(), "y".to_owned())].into());
        assert_eq!(ours_hash(&base), plain);
        assert!(plain != labelled && labelled != other && plain != other);
    }

    #[test]
    fn the_hash_is_the_same_in_every_version() {
        let fields = json!({"f:data": {"f:a": {}}, "f:metadata": {"f:labels": {"f:x": {}}}});
        let ours = ours_hash(&meta(&json!([entry("helm", "Apply", &fields)])));
        assert_eq!(format!("{ours:016x}"), "9447d1c390585fbc");
        assert_eq!(aggregate([(&key("a"), 1)]).to_string(), "a61ab4ab23b911a8");
    }

    #[test]
    fn an_aggregate_depends_on_every_object_but_not_on_the_order() {
        let (a, b) = (key("a"), key("b"));
        let hash = aggregate([(&a, 1), (&b, 2)]);
        assert_eq!(hash, aggregate([(&b, 2), (&a, 1)]));
        assert_ne!(hash, aggregate([(&a, 2), (&b, 1)]));
        assert_ne!(hash, aggregate([(&a, 1)]));
    }
}
