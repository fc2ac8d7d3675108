//! Objects of any kind and shape.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::DynamicObject;
use kube::core::{ApiResource, DynamicResourceScope};
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

/// Maximum nesting of an object. `serde_json` fails a little above, with the whole response, so
/// that a single object would hide all others of its kind.
const MAX_NESTING: usize = 120;

/// Field of a decoded object that names what was left out of it.
const LEFT_OUT: &str = "hybrid-operator/left-out";

/// An object of any kind and shape.
///
/// A [`DynamicObject`] that is nested deeper than `serde_json` reads fails a whole list or watch. Here, what is
/// nested deeper than 120 levels is replaced by null, so that the other objects of a list are read. Write no such object back as a whole.
#[derive(Debug, Clone)]
pub struct AnyObject(pub DynamicObject);

/// Returns the path of a field of a decoded object that was left out because it is nested too deep.
/// Such an object may be neither used as a whole nor written back.
pub fn left_out(object: &DynamicObject) -> Option<String> {
    let path = object.data.get(LEFT_OUT)?.as_str()?;
    Some(format!(
        "{path} is nested deeper than {MAX_NESTING} levels; make it flatter"
    ))
}

impl<'de> Deserialize<'de> for AnyObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut found = None;
        let mut path = Vec::new();
        let level = Level {
            path: &mut path,
            depth: 0,
            left_out: &mut found,
        };
        let mut object = level.deserialize(deserializer)?;
        if let (Some(path), Value::Object(fields)) = (found, &mut object) {
            fields.insert(LEFT_OUT.to_owned(), Value::String(path));
        }
        let object = serde_json::from_value(object).map_err(D::Error::custom)?;
        Ok(Self(object))
    }
}

impl Resource for AnyObject {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.0.metadata
    }
}

/// Reads a value at a level of nesting.
struct Level<'a> {
    /// The first fields on the way to the value.
    path: &'a mut Vec<String>,
    depth: usize,
    /// Path of the first value that was left out.
    left_out: &'a mut Option<String>,
}

impl Level<'_> {
    /// Number of fields of a path that are named.
    const NAMED: usize = 4;

    /// Reads what is one level deeper, in `field` unless it is an item of a list.
    fn below<R>(&mut self, field: Option<&str>, read: impl FnOnce(Level<'_>) -> R) -> R {
        let named = field.filter(|_| self.path.len() < Self::NAMED);
        self.path.extend(named.map(ToOwned::to_owned));
        let result = read(Level {
            path: self.path,
            depth: self.depth + 1,
            left_out: self.left_out,
        });
        if named.is_some() {
            self.path.pop();
        }
        result
    }

    /// Returns whether maps and lists are left out here.
    fn leaves_out(&mut self) -> bool {
        let leaves_out = self.depth >= MAX_NESTING;
        // The managed fields are nested as deep as the object itself, which is what users see.
        let named = self
            .path
            .get(1)
            .is_none_or(|field| field != "managedFields");
        if leaves_out && named && self.left_out.is_none() {
            *self.left_out = Some(self.path.join("."));
        }
        leaves_out
    }
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        // Ignored values are read without recursion.
        if self.leaves_out() {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut list = Vec::new();
        while let Some(item) = self.below(None, |level| items.next_element_seed(level))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<Value, A::Error> {
        if self.leaves_out() {
            while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut map = Map::new();
        while let Some(field) = fields.next_key::<String>()? {
            let value = self.below(Some(&field), |level| fields.next_value_seed(level))?;
            map.insert(field, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use kube::core::WatchEvent;
    use serde_json::json;

    use super::{AnyObject, MAX_NESTING, left_out};

    /// Returns an event of an object whose `spec.deep` has this many levels below it.
    fn event(levels: usize) -> String {
        format!(
            r#"{{"type": "ADDED", "object": {{"apiVersion": "v1", "kind": "Widget", "metadata": {{"name": "a", "generation": 3{}}},
            "spec": {{"size": 2.5, "deep": {}{}}}, "status": {{"phase": "Ready"}}}}}}"#,
            managed_fields(levels),
            r#"{"a": ["#.repeat(levels / 2) + "1",
            "]}".repeat(levels / 2),
        )
    }

    /// Returns the managed fields that the API server keeps of it.
    fn managed_fields(levels: usize) -> String {
        format!(
            r#", "managedFields": [{{"fieldsV1": {}{}}}]"#,
            r#"{"f:a": "#.repeat(levels) + "1",
            "}".repeat(levels),
        )
    }

    fn decode(levels: usize) -> kube::api::DynamicObject {
        match serde_json::from_str(&event(levels)).unwrap() {
            WatchEvent::Added(AnyObject(object)) => object,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_object_is_what_serde_json_decodes() {
        let object = decode(4);
        assert_eq!(left_out(&object), None);
        let whole: serde_json::Value = serde_json::from_str(&event(4)).unwrap();
        assert_eq!(serde_json::to_value(object).unwrap(), whole["object"]);
    }

    #[test]
    fn an_object_that_is_nested_too_deep_is_decoded_but_for_what_is_too_deep() {
        // The object and its spec are the first two levels.
        let fits = decode(MAX_NESTING - 2);
        assert_eq!(left_out(&fits), None);
        for levels in [MAX_NESTING, 200_000] {
            let object = decode(levels);
            let expected = "spec.deep.a.a is nested deeper than 120 levels; make it flatter";
            assert_eq!(left_out(&object).unwrap(), expected);
            assert_eq!(object.metadata.generation, Some(3));
            assert_eq!(object.data["spec"]["size"], json!(2.5));
            assert_eq!(object.data["status"], json!({"phase": "Ready"}));
        }
    }
}
