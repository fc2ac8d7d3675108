//! Values as trees, the form in which templates read them.

use go_template::{Str, Tree, TreeMap, Type};
use serde_json::{Map, Number, Value};

use super::Values;
use crate::DigestBuilder;

/// Converts JSON: integers become `int64`, all other numbers `float64`.
pub(crate) fn from_json(value: &Value) -> Tree {
    match value {
        Value::Null => Tree::Nil,
        Value::Bool(value) => Tree::Bool(*value),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Tree::Int64(whole),
            None => Tree::Float(number.as_f64().unwrap_or(0.0)),
        },
        Value::String(text) => Tree::Str(Str::from(text.as_str())),
        Value::Array(items) => Tree::from(items.iter().map(from_json).collect::<Vec<_>>()),
        Value::Object(map) => Tree::from(from_map(map)),
    }
}

/// Converts a JSON map.
pub(crate) fn from_map(map: &Values) -> TreeMap {
    let entries = map
        .iter()
        .map(|(key, value)| (Str::from(key.as_str()), from_json(value)));
    TreeMap::new(Type::MAP, entries)
}

/// Converts a tree to JSON.
pub(crate) fn to_json(tree: &Tree) -> Value {
    match tree {
        Tree::Nil | Tree::NilOf(_) => Value::Null,
        Tree::Bool(value) => Value::Bool(*value),
        Tree::Int(value) | Tree::Int64(value) => Value::from(*value),
        Tree::Float(value) => Number::from_f64(*value).map_or(Value::Null, Value::Number),
        Tree::Str(text) => Value::String(text.to_string_lossy().into_owned()),
        Tree::Bytes(bytes) => Value::String(data_encoding::BASE64.encode(bytes.as_bytes())),
        Tree::List(list) => Value::Array(list.items().iter().map(to_json).collect()),
        Tree::Map(map) => Value::Object(to_map(map)),
    }
}

/// Converts a map to JSON.
pub(crate) fn to_map(map: &TreeMap) -> Values {
    map.iter()
        .map(|(key, value)| (key.to_string_lossy().into_owned(), to_json(value)))
        .collect::<Map<_, _>>()
}

/// Merges `over` into `base`: maps by key, everything else is replaced.
pub(crate) fn merge(base: &TreeMap, over: &TreeMap) -> TreeMap {
    let entries = base.iter().map(|(key, value)| (key.clone(), value.clone()));
    let merged = over.iter().map(|(key, value)| {
        let value = match (base.get(key.as_bytes()), value) {
            (Some(Tree::Map(below)), Tree::Map(above)) => Tree::from(merge(below, above)),
            _ => value.clone(),
        };
        (key.clone(), value)
    });
    TreeMap::new(Type::MAP, entries.chain(merged))
}

/// Returns the tree without nulls in nested maps; lists are unchanged.
pub(crate) fn without_nulls(tree: &Tree) -> Tree {
    if !has_nulls(tree) {
        return tree.clone();
    }
    match tree {
        Tree::Map(map) => {
            let kept = map.iter().filter(|(_, value)| !matches!(value, Tree::Nil));
            let entries = kept.map(|(key, value)| (key.clone(), without_nulls(value)));
            Tree::from(TreeMap::new(Type::MAP, entries))
        }
        _ => tree.clone(),
    }
}

fn has_nulls(tree: &Tree) -> bool {
    match tree {
        Tree::Map(map) => map
            .iter()
            .any(|(_, value)| matches!(value, Tree::Nil) || has_nulls(value)),
        _ => false,
    }
}

/// Adds a tree to a digest. Equal numbers count the same regardless of their kind, so that values
/// from a release record keep their digest.
pub(crate) fn digest_into(tree: &Tree, digest: &mut DigestBuilder) {
    match tree {
        Tree::Nil | Tree::NilOf(_) => digest.add("n"),
        Tree::Bool(value) => digest.add(if *value { "t" } else { "f" }),
        #[allow(
            clippy::cast_precision_loss,
            reason = "records store numbers as floats"
        )]
        Tree::Int(value) | Tree::Int64(value) => digest.add(float_bytes(*value as f64)),
        Tree::Float(value) => digest.add(float_bytes(*value)),
        Tree::Str(text) => {
            digest.add("s");
            digest.add(text.as_bytes());
        }
        Tree::Bytes(bytes) => {
            digest.add("b");
            digest.add(bytes.as_bytes());
        }
        Tree::List(list) => {
            digest.add("l");
            digest.add((list.items().len() as u64).to_le_bytes());
            list.items()
                .iter()
                .for_each(|item| digest_into(item, digest));
        }
        Tree::Map(map) => {
            digest.add("m");
            digest.add((map.len() as u64).to_le_bytes());
            for (key, value) in map.iter() {
                digest.add(key.as_bytes());
                digest_into(value, digest);
            }
        }
    }
}

fn float_bytes(value: f64) -> [u8; 9] {
    let mut bytes = [b'0'; 9];
    if let Some((_, number)) = bytes.split_first_mut() {
        number.copy_from_slice(&value.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(json: &str) -> Tree {
        from_json(&serde_json::from_str(json).unwrap())
    }

    #[test]
    fn nulls_are_removed_from_maps_only() {
        let cleaned = without_nulls(&tree(
            r#"{"a":null,"b":{"c":null,"d":1},"l":[null,{"x":null}]}"#,
        ));
        assert_eq!(
            to_json(&cleaned).to_string(),
            r#"{"b":{"d":1},"l":[null,{"x":null}]}"#
        );
    }

    #[test]
    fn number_kinds_do_not_change_the_digest() {
        let digest = |json| {
            let mut digest = DigestBuilder::new();
            digest_into(&tree(json), &mut digest);
            digest.finish()
        };
        assert_eq!(digest(r#"{"a":1}"#), digest(r#"{"a":1.0}"#));
        assert_ne!(digest(r#"{"a":1}"#), digest(r#"{"a":"1"}"#));
        assert_ne!(digest("[[1],2]"), digest("[[1,2]]"));
    }
}
