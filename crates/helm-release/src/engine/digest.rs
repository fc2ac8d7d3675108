//! Computes the digest of a release's inputs. A new revision is needed when it changes. No I/O.
//!
//! The digest is stored in records and must not change between versions of the operator: it is
//! SHA-256 over canonical JSON, pinned by a test.

use helm_core::capabilities::CapabilityReads;
use helm_core::{Coalesced, Digest, DigestBuilder};
use serde_json::{Value, json};

use crate::policy::{Patch, PatchBody};
use crate::release::InputsDigest;

/// Inputs of the digest of a release.
pub struct DigestInputs<'a> {
    /// Chart with coalesced values.
    pub coalesced: &'a Coalesced,
    /// Name of the release.
    pub name: &'a str,
    /// Namespace of the release.
    pub namespace: &'a str,
    /// Patches of the policy.
    pub patches: &'a [Patch],
    /// Patches of the owner, which are applied after them.
    pub own_patches: &'a [Patch],
    /// Digest of the objects that templates look up, if lookups are inputs.
    pub looked_up: Option<Digest>,
    /// Capabilities of the cluster that the templates read.
    pub reads: &'a CapabilityReads,
}

impl DigestInputs<'_> {
    /// Computes the digest.
    pub fn digest(&self) -> InputsDigest {
        let mut digest = DigestBuilder::new()
            .part(self.coalesced.digest().as_bytes())
            .part(self.namespace)
            .part(self.name);
        let patches: Vec<&Patch> = self.patches.iter().chain(self.own_patches).collect();
        if !patches.is_empty() {
            digest = digest.part(canonical(&patches_value(&patches)));
        }
        if let Some(looked_up) = &self.looked_up {
            digest = digest.part(looked_up.as_bytes());
        }
        self.reads.digest_into(&mut digest);
        InputsDigest::from(&digest.finish())
    }
}

/// Returns the patches as JSON.
fn patches_value(patches: &[&Patch]) -> Value {
    let one = |patch: &&Patch| {
        let target = &patch.target;
        let body = match &patch.patch {
            PatchBody::Json(operations) => json!({"jsonPatch": operations}),
            PatchBody::StrategicMerge(body) => json!({"strategicMerge": body}),
        };
        let mut selected = json!({
            "group": target.group, "version": target.version, "kind": target.kind,
            "name": target.name, "namespace": target.namespace,
        });
        if let (Some(labels), Some(fields)) = (&target.labels, selected.as_object_mut()) {
            fields.insert("labels".to_owned(), json!(labels.to_string()));
        }
        json!({"target": selected, "patch": body})
    };
    patches.iter().map(one).collect()
}

/// Serializes JSON without whitespace and with sorted keys.
pub fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write(value, &mut text);
    text
}

fn write(value: &Value, text: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            text.push('{');
            for (index, (name, value)) in fields.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(name.as_str()).to_string());
                text.push(':');
                write(value, text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write(item, text);
            }
            text.push(']');
        }
        value => text.push_str(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use helm_core::Digest;
    use serde_json::json;

    use super::{canonical, patches_value};
    use crate::policy::{Patch, PatchBody};
    use kube_objects::target::Target;

    #[test]
    fn canonical_json_does_not_depend_on_the_order_of_keys() {
        let value = json!({"b": [1, {"d": null, "c": "\"x\""}], "a": 1.5});
        assert_eq!(
            canonical(&value),
            r#"{"a":1.5,"b":[1,{"c":"\"x\"","d":null}]}"#
        );
    }

    #[test]
    fn digest_of_patches_is_stable_across_operator_versions() {
        let patch = Patch {
            target: Target {
                kind: Some("Deployment".to_owned()),
                ..Target::default()
            },
            patch: PatchBody::StrategicMerge(json!({"spec": {"replicas": 2}})),
        };
        let text = canonical(&patches_value(&[&patch]));
        assert_eq!(
            text,
            r#"[{"patch":{"strategicMerge":{"spec":{"replicas":2}}},"target":{"group":null,"kind":"Deployment","name":null,"namespace":null,"version":null}}]"#
        );
        assert_eq!(
            Digest::of(text).to_string(),
            "8943fd06dea22b0d046874f8e1d99a58134d1ad660df269e420c5c9a1ee6884c"
        );
    }
}
