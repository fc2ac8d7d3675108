//! Items of associative lists, and the elements of paths that name them.

use serde_json::Value;

use crate::api_server::fields::path::PathElement;
use crate::api_server::fields::schema::{List, Schema};

/// Returns the element that names an item of an associative list.
///
/// # Errors
///
/// The item has no key, or cannot be a part of a set.
pub(super) fn element(schema: &Schema, list: &List, item: &Value) -> Result<PathElement, String> {
    if list.keys.is_empty() {
        return match item {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => {
                Err("not supported: associative list with lists as elements".to_owned())
            }
            Value::Null => Err(
                "associative list without keys has an element that's an explicit null".to_owned(),
            ),
            item => Ok(PathElement::Value(item.clone())),
        };
    }
    let fields = match item {
        Value::Null => {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        Value::Object(fields) => fields,
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let type_ = schema.resolve(&list.of).and_then(|atom| atom.map);
    let mut keys = Vec::with_capacity(list.keys.len());
    for name in &list.keys {
        let default = || type_.and_then(|(map, _)| map.defaults.get(name));
        if let Some(value) = fields.get(name).or_else(default) {
            keys.push((name.clone(), value.clone()));
        }
    }
    if keys.is_empty() {
        let names: Vec<_> = list.keys.iter().map(|key| format!("{key:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    keys.sort_by(|one, two| one.0.cmp(&two.0));
    Ok(PathElement::Key(keys.into()))
}
