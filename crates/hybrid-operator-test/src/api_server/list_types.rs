//! Lists whose items are unique: `x-kubernetes-list-type`.
//!
//! Source: `k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype`.

use serde_json::{Map, Value};

use super::object::texts;
use super::schema::{Schema, join};
use super::status::Cause;

/// Items of a list that count as the same.
#[derive(Debug, Default)]
pub(super) enum ListType {
    /// No items.
    #[default]
    Atomic,
    /// Equal items.
    Set,
    /// Items with the same values of these keys.
    Map(Vec<String>),
}

impl ListType {
    pub(super) fn parse(schema: &Value) -> Self {
        match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => Self::Set,
            Some("map") => Self::Map(texts(schema.get("x-kubernetes-list-map-keys"))),
            _ => Self::Atomic,
        }
    }

    /// Returns the part of an item that must be unique.
    fn key(&self, item: &Value) -> Option<Value> {
        match self {
            Self::Atomic => None,
            Self::Set => Some(item.clone()),
            Self::Map(keys) => {
                let values = keys
                    .iter()
                    .filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
                Some(Value::Object(values.collect()))
            }
        }
    }
}

impl Schema {
    /// Returns the items of an object that are in their lists more than once.
    pub(super) fn duplicates(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        self.duplicates_at(object, "", &mut causes);
        causes
    }

    fn duplicates_at(&self, value: &Value, path: &str, causes: &mut Vec<Cause>) {
        match value {
            Value::Object(fields) => self.duplicates_of_fields(fields, path, causes),
            Value::Array(items) => self.duplicates_of_items(items, path, causes),
            _ => {}
        }
    }

    fn duplicates_of_fields(
        &self,
        fields: &Map<String, Value>,
        path: &str,
        causes: &mut Vec<Cause>,
    ) {
        for (name, value) in fields {
            if let Some(schema) = &self.additional {
                schema.duplicates_at(value, &format!("{path}[{name}]"), causes);
            }
            if let Some(schema) = self.properties.get(name) {
                schema.duplicates_at(value, &join(path, name), causes);
            }
        }
    }

    fn duplicates_of_items(&self, items: &[Value], path: &str, causes: &mut Vec<Cause>) {
        if let ListType::Map(_) = self.list_type
            && let Some((index, item)) = items
                .iter()
                .enumerate()
                .find(|(_, item)| !item.is_null() && !item.is_object())
        {
            let detail = "must be an object for an array of list-type map";
            causes.push(Cause::invalid(format!("{path}[{index}]"), item, detail));
        } else {
            let keys: Vec<Option<Value>> =
                items.iter().map(|item| self.list_type.key(item)).collect();
            for (index, key) in keys.iter().enumerate() {
                let before = keys.iter().take(index);
                // Each is named once, where it appears for the second time.
                if let Some(value) = key
                    && before.filter(|before| *before == key).count() == 1
                {
                    causes.push(Cause::duplicate(format!("{path}[{index}]"), value));
                }
            }
        }
        let Some(schema) = &self.items else { return };
        for (index, item) in items.iter().enumerate() {
            schema.duplicates_at(item, &format!("{path}[{index}]"), causes);
        }
    }
}
