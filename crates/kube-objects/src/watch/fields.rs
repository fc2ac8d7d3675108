//! Fields of objects that are kept from the events of a watch.

use std::collections::BTreeMap;

use serde_json::Value;

/// The fields of the objects of a kind that are kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Fields {
    /// Everything.
    Whole,
    /// The fields with these names, each as far as it is kept.
    Named(BTreeMap<String, Self>),
}

impl Default for Fields {
    fn default() -> Self {
        Self::Named(BTreeMap::new())
    }
}

impl Fields {
    /// Adds the field at a path, with everything below it.
    pub fn add(&mut self, path: &[impl AsRef<str>]) {
        match (path, &mut *self) {
            ([], _) => *self = Self::Whole,
            (_, Self::Whole) => {}
            ([first, rest @ ..], Self::Named(fields)) => {
                let field = fields.entry(first.as_ref().to_owned()).or_default();
                field.add(rest);
            }
        }
    }

    /// Returns what is kept of a value. Lists are kept whole.
    pub(super) fn of(&self, value: &Value) -> Value {
        match (self, value) {
            (Self::Named(fields), Value::Object(found)) => {
                let kept = found.iter().filter_map(|(name, value)| {
                    let field = fields.get(name)?;
                    Some((name.clone(), field.of(value)))
                });
                Value::Object(kept.collect())
            }
            (_, value) => value.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Fields;

    #[test]
    fn named_fields_are_kept_with_what_is_below_them() {
        let mut fields = Fields::default();
        fields.add(&["status", "replicas"]);
        fields.add(&["metadata", "labels"]);
        fields.add(&["status", "ingress", "0", "ip"]);
        fields.add(&["metadata", "labels", "app"]);
        let object = json!({
            "metadata": {"name": "a", "labels": {"app": "web", "tier": "front"}},
            "spec": {"replicas": 3},
            "status": {"replicas": 2, "ready": 1, "ingress": [{"ip": "1.2.3.4", "mode": "VIP"}]},
        });
        let kept = json!({
            "metadata": {"labels": {"app": "web", "tier": "front"}},
            "status": {"replicas": 2, "ingress": [{"ip": "1.2.3.4", "mode": "VIP"}]},
        });
        assert_eq!(fields.of(&object), kept);
        fields.add(&[""; 0]);
        assert_eq!(fields.of(&object), object);
    }
}
