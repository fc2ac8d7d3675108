//! Describes the kinds of a project for people who install it from a catalog. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::resources::Created;
use super::{items, text};
use crate::rbac::kinds::GroupKind;

/// Prefix of the names of widgets in forms.
const WIDGET: &str = "urn:alm:descriptor:com.tectonic.ui:";
/// Widget of conditions.
const CONDITIONS: &str = "urn:alm:descriptor:io.kubernetes.conditions";

/// Returns the entries of `spec.customresourcedefinitions.owned` for the versions of a definition.
/// What `base` says of the same version is kept.
pub(crate) fn owned(crd: &Value, created: &Created, base: &[Value]) -> Vec<Value> {
    let kind = text(crd, "/spec/names/kind");
    let resources = created.resources(&GroupKind::new(text(crd, "/spec/group"), kind));
    let name = text(crd, "/metadata/name");
    let mut entries = Vec::new();
    for version in items(crd, "/spec/versions") {
        if version.get("served").and_then(Value::as_bool) == Some(false) {
            continue;
        }
        let schema = version
            .pointer("/schema/openAPIV3Schema")
            .unwrap_or(&Value::Null);
        let mut entry = json!({
            "name": name,
            "kind": kind,
            "version": text(version, "/name"),
            "displayName": words(kind),
            "description": description(schema, kind),
        });
        let known = base.iter().find(|known| {
            let same = |field: &str| text(known, field) == text(&entry, field);
            same("/name") && same("/version") && same("/kind")
        });
        let nothing = json!({});
        let known = known.unwrap_or(&nothing);
        let Some(fields) = entry.as_object_mut() else {
            continue;
        };
        if !resources.is_empty() {
            fields.insert("resources".to_owned(), json!(resources));
        }
        for (field, generated) in [
            ("specDescriptors", spec(schema)),
            ("statusDescriptors", status(schema, version)),
        ] {
            let merged = merge(generated, known.get(field));
            if !merged.is_empty() {
                fields.insert(field.to_owned(), json!(merged));
            }
        }
        for (field, value) in known.as_object().into_iter().flatten() {
            if !field.ends_with("Descriptors") {
                fields.insert(field.clone(), value.clone());
            }
        }
        entries.push(entry);
    }
    entries
}

/// Returns the text of a kind's schema, without what a macro wrote.
fn description(schema: &Value, kind: &str) -> String {
    let of_kind = text(schema, "/description");
    let of_spec = text(schema, "/properties/spec/description");
    let chosen = if of_kind.is_empty() || of_kind.starts_with("Auto-generated") {
        of_spec
    } else {
        of_kind
    };
    if chosen.is_empty() {
        format!("{} is a custom resource of this operator.", words(kind))
    } else {
        chosen.to_owned()
    }
}

/// Describes the fields of the `spec`.
fn spec(schema: &Value) -> Vec<Value> {
    let fields = schema
        .pointer("/properties/spec/properties")
        .and_then(Value::as_object);
    let fields = fields.into_iter().flatten();
    fields
        .map(|(name, field)| descriptor(name, name, field))
        .collect()
}

/// Describes the fields of the `status`: those of the schema, and those that are columns of kubectl.
fn status(schema: &Value, version: &Value) -> Vec<Value> {
    let mut found: BTreeMap<String, Value> = BTreeMap::new();
    let fields = schema
        .pointer("/properties/status/properties")
        .and_then(Value::as_object);
    for (name, field) in fields.into_iter().flatten() {
        found.insert(name.clone(), descriptor(name, name, field));
    }
    for column in items(version, "/additionalPrinterColumns") {
        let Some(path) = text(column, "/jsonPath").strip_prefix(".status.") else {
            continue;
        };
        let (path, title) = match path.split_once('[') {
            Some((path, _)) if path == "conditions" => (path, "Conditions"),
            Some(_) => continue,
            None => (path, text(column, "/name")),
        };
        let entry = found.entry(path.to_owned());
        entry.or_insert_with(|| descriptor(path, title, &Value::Null));
    }
    found.into_values().collect()
}

/// Describes one field.
fn descriptor(path: &str, title: &str, schema: &Value) -> Value {
    let mut descriptor = json!({"path": path, "displayName": words(title)});
    let Some(fields) = descriptor.as_object_mut() else {
        return descriptor;
    };
    let description = text(schema, "/description");
    if !description.is_empty() {
        fields.insert("description".to_owned(), json!(description));
    }
    let counts_pods = matches!(path, "replicas" | "replicaCount" | "size");
    let widget = match text(schema, "/type") {
        _ if path == "conditions" => CONDITIONS.to_owned(),
        "integer" if counts_pods => format!("{WIDGET}podCount"),
        "integer" | "number" => format!("{WIDGET}number"),
        "boolean" => format!("{WIDGET}booleanSwitch"),
        "string" => format!("{WIDGET}text"),
        _ if path == "resources" => format!("{WIDGET}resourceRequirements"),
        _ => return descriptor,
    };
    fields.insert("x-descriptors".to_owned(), json!([widget]));
    descriptor
}

/// Adds what somebody wrote: fields of the same path take the place of generated ones.
fn merge(generated: Vec<Value>, written: Option<&Value>) -> Vec<Value> {
    let mut merged: Vec<Value> = generated;
    for entry in written.and_then(Value::as_array).into_iter().flatten() {
        let fields = entry.as_object().cloned().unwrap_or_else(Map::new);
        let same = merged
            .iter_mut()
            .find(|present| text(present, "/path") == text(entry, "/path"));
        match same.and_then(Value::as_object_mut) {
            Some(present) => present.extend(fields),
            None => merged.push(entry.clone()),
        }
    }
    merged
}

/// Splits a name such as `replicaCount` into words: `Replica Count`.
pub(super) fn words(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    let letters: Vec<char> = name.chars().collect();
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| letters.get(before));
        let after = letters.get(index + 1);
        // A word begins at a capital letter after a small one, and at the last of several.
        let begins = letter.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase()
                    || before.is_ascii_digit()
                    || (before.is_uppercase() && after.is_some_and(|after| after.is_lowercase()))
            });
        if begins {
            words.push(' ');
        }
        match letter {
            '-' | '_' | '.' => words.push(' '),
            _ if before.is_none_or(|before| matches!(before, '-' | '_' | '.')) => {
                words.extend(letter.to_uppercase());
            }
            _ => words.push(*letter),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_words() {
        for (name, title) in [
            ("replicaCount", "Replica Count"),
            ("MemcachedBackup", "Memcached Backup"),
            ("podURLPath", "Pod URL Path"),
            ("etcd-cluster", "Etcd Cluster"),
            ("v2Size", "V2 Size"),
        ] {
            assert_eq!(words(name), title, "{name}");
        }
    }

    fn crd() -> Value {
        json!({"metadata": {"name": "shops.example.com"}, "spec": {"group": "example.com", "names": {"kind": "Shop"}, "versions": [
            {"name": "v1", "served": true,
             "additionalPrinterColumns": [
                {"name": "Ready", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                {"name": "Release", "jsonPath": ".status.release.name"},
                {"name": "Age", "jsonPath": ".metadata.creationTimestamp"}],
             "schema": {"openAPIV3Schema": {"description": "Auto-generated derived type", "properties": {
                "spec": {"description": "A shop.", "properties": {
                    "size": {"type": "integer", "description": "Pods."},
                    "open": {"type": "boolean"},
                    "tls": {"type": "object"}}},
                "status": {"x-kubernetes-preserve-unknown-fields": true}}}}},
            {"name": "v1beta1", "served": false}]}})
    }

    #[test]
    fn fields_of_schema_and_columns_are_described() {
        let owned = owned(&crd(), &Created::default(), &[]);
        let widget = |name: &str| json!([format!("{WIDGET}{name}")]);
        assert_eq!(
            owned,
            [json!({
                "name": "shops.example.com", "kind": "Shop", "version": "v1",
                "displayName": "Shop", "description": "A shop.",
                "specDescriptors": [
                    {"path": "open", "displayName": "Open", "x-descriptors": widget("booleanSwitch")},
                    {"path": "size", "displayName": "Size", "description": "Pods.", "x-descriptors": widget("podCount")},
                    {"path": "tls", "displayName": "Tls"}],
                "statusDescriptors": [
                    {"path": "conditions", "displayName": "Conditions", "x-descriptors": [CONDITIONS]},
                    {"path": "release.name", "displayName": "Release"}],
            })]
        );
    }

    #[test]
    fn what_somebody_wrote_in_the_base_is_kept() {
        let base = json!({"name": "shops.example.com", "kind": "Shop", "version": "v1", "displayName": "Our shop",
            "resources": [{"kind": "Pod", "name": "", "version": "v1"}],
            "specDescriptors": [{"path": "size", "displayName": "Pods"}, {"path": "tls.secret", "displayName": "Secret"}]});
        let other = json!({"name": "shops.example.com", "kind": "Shop", "version": "v2", "displayName": "No"});
        let mut created = Created::default();
        let controller = json!({"name": "shop", "group": "example.com", "version": "v1", "kind": "Shop",
            "owns": [{"group": "apps", "version": "v1", "kind": "Deployment"},
                {"group": "cert-manager.io", "version": "v1", "kind": "Certificate"}]});
        created.add_controller(&serde_json::from_value(controller).unwrap());
        let generated = super::owned(&crd(), &created, std::slice::from_ref(&other));
        let expected = json!([{"kind": "Deployment", "name": "", "version": "v1"},
            {"kind": "Certificate", "name": "certificates.cert-manager.io", "version": "v1"}]);
        assert_eq!(generated[0]["resources"], expected);
        let owned = owned(&crd(), &created, &[other, base]);
        assert_eq!(owned[0]["displayName"], "Our shop");
        let pod = json!([{"kind": "Pod", "name": "", "version": "v1"}]);
        assert_eq!(owned[0]["resources"], pod);
        let size = &owned[0]["specDescriptors"][1];
        assert_eq!(size["displayName"], "Pods");
        assert_eq!(size["description"], "Pods.");
        assert_eq!(owned[0]["specDescriptors"][3]["path"], "tls.secret");
    }
}
