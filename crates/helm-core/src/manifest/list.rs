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

/// A reason for which Helm creates nothing of a list, although [`list_items`] finds its items. Items are counted
/// from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ListProblem {
    /// An item is not an object.
    #[error("item {item} of {} is not an object", of(kind))]
    NoObject { kind: String, item: usize },
    /// An item is a list.
    #[error("item {item} of {} is a list, too", of(kind))]
    Nested { kind: String, item: usize },
    /// A typed list has a field that lists do not have.
    #[error("{} has the unknown field {field}", of(kind))]
    UnknownField {
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
    use crate::rows::rows;

    fn json(text: &str) -> Value {
        serde_json::from_str(text).unwrap()
    }

    // The answers of Helm 4.3.1, which gives the reasons that are beside them.
    #[test]
    fn lists_that_helm_does_not_create_are_found() {
        let item = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}"#;
        let object = |fields: &str| {
            let text = format!(r#"{{"apiVersion": "v1", {fields}}}"#);
            json(&text.replace("ITEM", item))
        };
        let typed = r#""kind": "ConfigMapList", "items": [ITEM]"#;
        for [fields, expected] in rows(
            r#"
            // "invalid object to validate"
            "kind": "List", "items": [ITEM, null]    | item 2 of the List is not an object
            "kind": "ConfigMapList", "items": [null] | item 1 of the ConfigMapList is not an object
            "kind": "List", "items": ["abc"]         | item 1 of the List is not an object
            "kind": "List", "items": [[]]            | item 1 of the List is not an object
            // "is not a list: no Items field in this object"
            "kind": "List", "items": [ITEM, {"apiVersion": "v1", "kind": "List", "items": [ITEM]}] | item 2 of the List is a list, too
            "kind": "List", "items": [{"apiVersion": "v1", "kind": "ConfigMapList", "items": []}]  | item 1 of the List is a list, too
            "kind": "Menu", "items": [{"apiVersion": "v1", "kind": "Menu", "items": [ITEM]}]       | item 1 of the Menu is a list, too
            // "unknown field \"annotations\" in io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
            TYPED, "metadata": {"annotations": {}} | the ConfigMapList has the unknown field metadata.annotations
            TYPED, "metadata": {"name": "x"}       | the ConfigMapList has the unknown field metadata.name
            // "unknown field \"foo\" in io.k8s.api.core.v1.ConfigMapList"
            TYPED, "foo": 3                        | the ConfigMapList has the unknown field foo
            TYPED                   |
            TYPED, "foo": null      |
            TYPED, "metadata": null |
            TYPED, "metadata": {"annotations": null, "resourceVersion": "", "remainingItemCount": 3}   |
            "kind": "List", "items": [ITEM], "metadata": {"annotations": {"a": "b"}, "name": "x"}      |
            "kind": "List", "items": [ITEM], "foo": 3                                                  |
            "kind": "Menu", "items": [ITEM], "metadata": {"annotations": {"a": "b"}}                   |
            "kind": "List", "items": []                                                                |
            "#,
        ) {
            let object = object(&fields.replace("TYPED", typed));
            let problem = problem_of_list(&object).map(|problem| problem.to_string());
            assert_eq!(problem.unwrap_or_default(), expected, "{object}");
        }
        for object in [json(item), Value::Null] {
            assert_eq!(problem_of_list(&object), None, "{object}");
        }
        // Files of `crds/` are not validated.
        let annotated = format!(r#"{typed}, "metadata": {{"annotations": {{"a": "b"}}}}"#);
        assert_eq!(problem_of_items(&object(&annotated)), None);
        let no_object = object(r#""kind": "List", "items": [null]"#);
        assert!(problem_of_items(&no_object).is_some());
    }

    // The answers of Helm 4.3.1.
    #[test]
    fn items_get_the_kind_of_their_list_only_if_they_have_none() {
        for [list, item, expected] in rows(
            r#"
            ConfigMapList | {}                                       | {"apiVersion": "x/v1", "kind": "ConfigMap"}
            ConfigMapList | {"kind": "", "apiVersion": null}         | {"apiVersion": "x/v1", "kind": "ConfigMap"}
            ConfigMapList | {"apiVersion": "v1", "kind": "Secret"}   | {"apiVersion": "v1", "kind": "Secret"}
            ConfigMapList | {"kind": "ConfigMap"}                    | {"kind": "ConfigMap"}
            ConfigMapList | {"apiVersion": "v1"}                     | {"apiVersion": "v1"}
            // Any object with an array of items is a list.
            Menu          | {}                                       | {"apiVersion": "x/v1", "kind": "Menu"}
            Menu          | {"apiVersion": "v1", "kind": "Secret"}   | {"apiVersion": "v1", "kind": "Secret"}
            List          | {}                                       | {}
            List          | null                                     | null
            "#,
        ) {
            let item = json(item);
            let mut document = json!({"apiVersion": "x/v1", "kind": list, "items": [item]});
            let items = list_items(&mut document).unwrap();
            assert_eq!(items[..], [json(expected)], "{list} of {item}");
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
