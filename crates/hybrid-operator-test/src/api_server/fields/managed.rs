//! The entries of `metadata.managedFields`.

use std::collections::BTreeMap;

use serde_json::{Map as Object, Value, json};

use super::go_text;
use super::set::FieldSet;

/// The identity of an entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ManagerId {
    pub(super) manager: String,
    pub(super) applies: bool,
    /// Empty for those that apply, which keep their entry when they change the version.
    pub(super) api_version: String,
    pub(super) subresource: String,
}

/// The fields of a manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) set: FieldSet,
    pub(super) api_version: String,
    pub(super) applied: bool,
}

/// All entries of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct Managed {
    pub(super) fields: BTreeMap<ManagerId, Owned>,
    /// Times in RFC 3339. They outlive the fields of their managers until the object is written.
    pub(super) times: BTreeMap<ManagerId, String>,
}

impl ManagerId {
    pub(super) fn applying(manager: &str, subresource: &str) -> Self {
        Self {
            manager: manager.to_owned(),
            applies: true,
            api_version: String::new(),
            subresource: subresource.to_owned(),
        }
    }

    pub(super) fn updating(manager: &str, api_version: &str, subresource: &str) -> Self {
        Self {
            manager: manager.to_owned(),
            applies: false,
            api_version: api_version.to_owned(),
            subresource: subresource.to_owned(),
        }
    }

    fn operation(&self) -> &'static str {
        if self.applies { "Apply" } else { "Update" }
    }

    /// Returns the JSON by which the server sorts managers.
    pub(super) fn text(&self) -> String {
        let parts = [
            ("manager", self.manager.as_str()),
            ("operation", self.operation()),
            ("apiVersion", &self.api_version),
            ("subresource", &self.subresource),
        ];
        let fields: Vec<_> = parts
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(name, value)| format!("\"{name}\":{}", go_text::json_string(value)))
            .collect();
        format!("{{{}}}", fields.join(","))
    }

    /// Returns the manager as messages about conflicts name it.
    pub(super) fn readable(&self) -> String {
        let mut text = go_text::quoted(&self.manager);
        if !self.subresource.is_empty() {
            text = format!(
                "{text} with subresource {}",
                go_text::quoted(&self.subresource)
            );
        }
        if !self.applies {
            text = format!("{text} using {}", self.api_version);
        }
        text
    }
}

impl Managed {
    /// Reads the entries of an object.
    ///
    /// # Errors
    ///
    /// An entry is invalid.
    pub(super) fn decode(object: &Value) -> Result<Self, String> {
        let mut managed = Self::default();
        let entries = metadata(object, "managedFields").and_then(Value::as_array);
        for (index, entry) in entries.into_iter().flatten().enumerate() {
            let text = |name: &str| entry[name].as_str().unwrap_or_default();
            let applied = match text("operation") {
                "Apply" => true,
                "Update" => false,
                _ => return Err("operation must be `Apply` or `Update`".to_owned()),
            };
            let api_version = text("apiVersion");
            if api_version.is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => {
                    return Err(format!(
                        "missing fieldsType in managed fields entry {index}"
                    ));
                }
                other => {
                    return Err(format!(
                        "invalid fieldsType {} in managed fields entry {index}",
                        go_text::quoted(other)
                    ));
                }
            }
            let id = if applied {
                ManagerId::applying(text("manager"), text("subresource"))
            } else {
                ManagerId::updating(text("manager"), api_version, text("subresource"))
            };
            let set = match &entry["fieldsV1"] {
                Value::Null => FieldSet::default(),
                fields => FieldSet::decode(fields)
                    .map_err(|error| format!("error decoding set: {error}"))?,
            };
            let owned = Owned {
                set,
                api_version: api_version.to_owned(),
                applied,
            };
            managed.fields.insert(id.clone(), owned);
            match entry["time"].as_str() {
                Some(time) => managed.times.insert(id, time.to_owned()),
                None => managed.times.remove(&id),
            };
        }
        Ok(managed)
    }

    /// Writes the entries to an object, or removes them if there are none.
    pub(super) fn write(&self, object: &mut Value) {
        let mut entries: Vec<_> = self
            .fields
            .iter()
            .map(|(id, owned)| (id, owned, self.times.get(id)))
            .collect();
        entries.sort_by(|(one, one_owned, one_time), (two, two_owned, two_time)| {
            (one.operation().cmp(two.operation()))
                .then_with(|| one_time.cmp(two_time))
                .then_with(|| one.manager.cmp(&two.manager))
                .then_with(|| one_owned.api_version.cmp(&two_owned.api_version))
                .then_with(|| one.subresource.cmp(&two.subresource))
        });
        let entries = entries.into_iter().map(|(id, owned, time)| {
            let mut entry = Object::new();
            entry.insert("apiVersion".to_owned(), json!(owned.api_version));
            entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
            entry.insert("fieldsV1".to_owned(), owned.set.encode());
            entry.insert("manager".to_owned(), json!(id.manager));
            entry.insert("operation".to_owned(), json!(id.operation()));
            if !id.subresource.is_empty() {
                entry.insert("subresource".to_owned(), json!(id.subresource));
            }
            if let Some(time) = time {
                entry.insert("time".to_owned(), json!(time));
            }
            Value::Object(entry)
        });
        let entries: Vec<_> = entries.collect();
        remove(object);
        if !entries.is_empty()
            && let Some(object) = object.as_object_mut()
        {
            let metadata = object.entry("metadata").or_insert_with(|| json!({}));
            if metadata.is_null() {
                *metadata = json!({});
            }
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.insert("managedFields".to_owned(), Value::Array(entries));
            }
        }
    }
}

/// Returns a field of the metadata of an object.
pub(super) fn metadata<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object.get("metadata")?.get(name)
}

/// Removes the entries from an object.
pub(super) fn remove(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}
