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

/// A reason for which Helm creates nothing of a list, although [`list_items`] finds its items.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ListProblem {
    /// An item is not an object.
    #[error("item {item} of {} is not an object", of(kind))]
    NoObject {
        /// Kind of the list.
        kind: String,
        /// Number of the item, from 1.
        item: usize,
    },
    /// An item is a list.
    #[error("item {item} of {} is a list, too", of(kind))]
    Nested {
        /// Kind of the list.
        kind: String,
        /// Number of the item, from 1.
        item: usize,
    },
    /// A typed list has a field that lists do not have.
    #[error("{} has the unknown field {field}", of(kind))]
    UnknownField {
        /// Kind of the list.
        kind: String,
        /// Path of the field.
        field: String,
    },
}

fn of(kind: &str) -> String {
    if kind.is_empty() {
        "the list".to_owned()
    } else {
        format!("the {kind}")
    }
}

/// Fields of a typed list, and of its metadata (`ListMeta` of apimachinery).
const FIELDS: [&str; 4] = ["apiVersion", "kind", "metadata", "items"];
const META: [&str; 4] = [
    "selfLink",
    "resourceVersion",
    "continue",
    "remainingItemCount",
];

/// Returns the first item of a list that Helm does not create, also not in `crds/`.
pub(crate) fn problem_of_items(object: &Value) -> Option<ListProblem> {
    let kind = text(object.as_object()?, "kind");
    let items = object.get("items")?.as_array()?;
    items.iter().enumerate().find_map(|(index, item)| {
        let (kind, number) = (kind.to_owned(), index + 1);
        match item.as_object() {
            None => Some(ListProblem::NoObject { kind, item: number }),
            Some(item) if item.get("items").is_some_and(Value::is_array) => {
                Some(ListProblem::Nested { kind, item: number })
            }
            Some(_) => None,
        }
    })
}

/// Returns the reason for which Helm does not create a list that a template renders: one of its items,
/// or a field that the schema of a typed list lacks. A null counts as absent. A plain `List` may have any
/// fields.
pub(crate) fn problem_of_list(object: &Value) -> Option<ListProblem> {
    if let Some(problem) = problem_of_items(object) {
        return Some(problem);
    }
    let list = object.as_object()?;
    let kind = text(list, "kind");
    let is_typed = kind != "List" && kind.ends_with("List");
    if !is_typed || !list.get("items")?.is_array() {
        return None;
    }
    let unknown = |object: &Map<String, Value>, known: [&str; 4]| {
        let mut fields = object.iter();
        let found = fields.find(|(name, value)| !value.is_null() && !known.contains(&&***name));
        found.map(|(name, _)| name.clone())
    };
    let meta = list.get("metadata").and_then(Value::as_object);
    let in_meta = meta.and_then(|meta| unknown(meta, META));
    let field = in_meta
        .map(|name| format!("metadata.{name}"))
        .or_else(|| unknown(list, FIELDS))?;
    let kind = kind.to_owned();
    Some(ListProblem::UnknownField { kind, field })
}

fn text<'o>(object: &'o Map<String, Value>, field: &str) -> &'o str {
    let text = object.get(field).and_then(Value::as_str);
    text.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // The answers of Helm 4.3.1, which gives the reasons that are beside them.
    #[test]
    fn lists_that_helm_does_not_create_are_found() {
        let item = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
        let list =
            |kind: &str, items: Value| json!({"apiVersion": "v1", "kind": kind, "items": items});
        let with = |mut list: Value, field: &str, value: Value| {
            list[field] = value;
            list
        };
        let typed = list("ConfigMapList", json!([item]));
        for (object, expected) in [
            // "invalid object to validate"
            (
                list("List", json!([item, null])),
                Some("item 2 of the List is not an object"),
            ),
            (
                list("ConfigMapList", json!([null])),
                Some("item 1 of the ConfigMapList is not an object"),
            ),
            (
                list("List", json!(["abc"])),
                Some("item 1 of the List is not an object"),
            ),
            (
                list("List", json!([[]])),
                Some("item 1 of the List is not an object"),
            ),
            // "is not a list: no Items field in this object"
            (
                list("List", json!([item, list("List", json!([item]))])),
                Some("item 2 of the List is a list, too"),
            ),
            (
                list("List", json!([list("ConfigMapList", json!([]))])),
                Some("item 1 of the List is a list, too"),
            ),
            (
                list("Menu", json!([list("Menu", json!([item]))])),
                Some("item 1 of the Menu is a list, too"),
            ),
            // "unknown field \"annotations\" in io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
            (
                with(typed.clone(), "metadata", json!({"annotations": {}})),
                Some("the ConfigMapList has the unknown field metadata.annotations"),
            ),
            (
                with(typed.clone(), "metadata", json!({"name": "x"})),
                Some("the ConfigMapList has the unknown field metadata.name"),
            ),
            // "unknown field \"foo\" in io.k8s.api.core.v1.ConfigMapList"
            (
                with(typed.clone(), "foo", json!(3)),
                Some("the ConfigMapList has the unknown field foo"),
            ),
            (typed.clone(), None),
            (with(typed.clone(), "foo", json!(null)), None),
            (with(typed.clone(), "metadata", json!(null)), None),
            (
                with(
                    typed.clone(),
                    "metadata",
                    json!({"annotations": null, "resourceVersion": "", "remainingItemCount": 3}),
                ),
                None,
            ),
            (
                with(
                    list("List", json!([item])),
                    "metadata",
                    json!({"annotations": {"a": "b"}, "name": "x"}),
                ),
                None,
            ),
            (with(list("List", json!([item])), "foo", json!(3)), None),
            (
                with(
                    list("Menu", json!([item])),
                    "metadata",
                    json!({"annotations": {"a": "b"}}),
                ),
                None,
            ),
            (list("List", json!([])), None),
            (item.clone(), None),
            (json!(null), None),
        ] {
            let problem = problem_of_list(&object).map(|problem| problem.to_string());
            assert_eq!(problem.as_deref(), expected, "{object}");
        }
        // Files of `crds/` are not validated.
        let annotated = with(typed, "metadata", json!({"annotations": {"a": "b"}}));
        assert_eq!(problem_of_items(&annotated), None);
        assert!(problem_of_items(&list("List", json!([null]))).is_some());
    }

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
