//! Lists: documents that hold several objects, as Helm reads them (`resource.Builder` of cli-runtime and
//! `UnstructuredJSONScheme` of apimachinery).

use serde_json::{Map, Value};

/// Returns the items of a list; `None` if the value is a single object.
///
/// A document is a list if its `items` are an array, whatever its kind. An item that has neither
/// `apiVersion` nor `kind` gets those of the list: its `apiVersion`, and its kind without `List` at the
/// end. The items of a plain `List` must have their own.
///
/// ```
/// use helm_core::manifest::list_items;
/// use serde_json::json;
/// let mut list = json!({"apiVersion": "v1", "kind": "SecretList", "items": [{"metadata": {"name": "a"}}]});
/// let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}});
/// assert_eq!(list_items(&mut list).unwrap()[..], [secret.clone()]);
/// assert!(list_items(&mut secret.clone()).is_none());
/// ```
pub fn list_items(object: &mut Value) -> Option<&mut Vec<Value>> {
    let kind = text(object.as_object()?, "kind").to_owned();
    let version = text(object.as_object()?, "apiVersion").to_owned();
    let items = object.get_mut("items")?.as_array_mut()?;
    let kind = kind.strip_suffix("List").unwrap_or(&kind);
    if !kind.is_empty() {
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            if text(item, "kind").is_empty() && text(item, "apiVersion").is_empty() {
                item.insert("kind".to_owned(), kind.into());
                item.insert("apiVersion".to_owned(), version.as_str().into());
            }
        }
    }
    Some(items)
}

fn text<'o>(object: &'o Map<String, Value>, field: &str) -> &'o str {
    let text = object.get(field).and_then(Value::as_str);
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // The answers of Helm 4.3.1.
    #[test]
    fn items_get_the_kind_of_their_list_only_if_they_have_none() {
        let object = |version: &str, kind: &str| json!({"apiVersion": version, "kind": kind});
        for (list, item, expected) in [
            ("ConfigMapList", json!({}), object("x/v1", "ConfigMap")),
            (
                "ConfigMapList",
                json!({"kind": "", "apiVersion": null}),
                object("x/v1", "ConfigMap"),
            ),
            (
                "ConfigMapList",
                object("v1", "Secret"),
                object("v1", "Secret"),
            ),
            (
                "ConfigMapList",
                json!({"kind": "ConfigMap"}),
                json!({"kind": "ConfigMap"}),
            ),
            (
                "ConfigMapList",
                json!({"apiVersion": "v1"}),
                json!({"apiVersion": "v1"}),
            ),
            // Any object with an array of items is a list.
            ("Menu", json!({}), object("x/v1", "Menu")),
            ("Menu", object("v1", "Secret"), object("v1", "Secret")),
            ("List", json!({}), json!({})),
            ("List", json!(null), json!(null)),
        ] {
            let mut document = json!({"apiVersion": "x/v1", "kind": list, "items": [item]});
            let items = list_items(&mut document).unwrap();
            assert_eq!(items[..], [expected], "{list} of {item}");
        }
        for mut single in [
            json!({"apiVersion": "x/v1", "kind": "AllowList", "spec": {"items": []}}),
            json!({"apiVersion": "x/v1", "kind": "Menu", "items": {"a": 1}}),
            json!(null),
            json!([{}]),
        ] {
            assert!(list_items(&mut single).is_none(), "{single}");
        }
    }
}
