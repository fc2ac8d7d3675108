//! Parses schemas of common keywords. Everything must be valid under the metaschemas of all drafts;
//! anything else, or anything unknown, is an error, which means that the schema is not plain.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Number, Value};

use super::pattern::Pattern;
use super::{Bounds, EXACT, PlainSchema, SchemaNode, TypeBits};

/// Allowed values of `$schema`, without the scheme and an optional trailing `#`.
pub(super) const DIALECTS: [&str; 4] = [
    "json-schema.org/schema",
    "json-schema.org/draft-07/schema",
    "json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft/2020-12/schema",
];

/// Keywords of some draft that are not supported.
const UNSUPPORTED: [&str; 28] = [
    "$anchor",
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "$vocabulary",
    "additionalItems",
    "const",
    "contains",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "disallow",
    "enum",
    "extends",
    "format",
    "id",
    "maxContains",
    "minContains",
    "multipleOf",
    "patternProperties",
    "prefixItems",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];

pub(super) fn schema(text: &[u8]) -> Option<PlainSchema> {
    let Root(root) = serde_json::from_slice(text).ok()?;
    let mut plain = PlainSchema {
        root,
        elsewhere: BTreeMap::new(),
    };
    let mut missing = Vec::new();
    plain.missing(&plain.root, &mut missing);
    if missing.is_empty() {
        return Some(plain);
    }
    // The remaining references point below unknown keywords.
    let document: Value = serde_json::from_slice(text).ok()?;
    while let Some(reference) = missing.pop() {
        if plain.target(&reference).is_some() {
            continue;
        }
        let pointer = reference.strip_prefix('#')?;
        if pointer.contains(['%', '~']) || !pointer.starts_with('/') {
            return None;
        }
        let Sub(node) = Sub::deserialize(document.pointer(pointer)?).ok()?;
        plain.missing(&node, &mut missing);
        plain.elsewhere.insert(reference.into_string(), node);
    }
    Some(plain)
}

impl PlainSchema {
    /// Collects references to targets that are not known yet.
    fn missing(&self, node: &SchemaNode, missing: &mut Vec<Box<str>>) {
        if let Some(reference) = &node.reference
            && self.target(reference).is_none()
        {
            missing.push(reference.clone());
        }
        for below in node.below() {
            self.missing(below, missing);
        }
    }
}

impl SchemaNode {
    fn below(&self) -> impl Iterator<Item = &Self> {
        let maps = [&self.properties, &self.definitions, &self.defs];
        let lists = [&self.all, &self.any, &self.one];
        let single = [
            &self.additional,
            &self.items,
            &self.not,
            &self.condition,
            &self.then,
            &self.otherwise,
        ];
        maps.into_iter()
            .flat_map(BTreeMap::values)
            .chain(lists.into_iter().flatten())
            .chain(single.into_iter().filter_map(|node| node.as_deref()))
    }
}

/// The schema of a document, which may name its dialect.
struct Root(SchemaNode);

/// A subschema.
struct Sub(SchemaNode);

impl<'de> Deserialize<'de> for Root {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(NodeVisitor { root: true })
            .map(Self)
    }
}

impl<'de> Deserialize<'de> for Sub {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_any(NodeVisitor { root: false })
            .map(Self)
    }
}

struct NodeVisitor {
    root: bool,
}

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = SchemaNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain schema")
    }

    fn visit_bool<E: de::Error>(self, fixed: bool) -> Result<SchemaNode, E> {
        Ok(SchemaNode {
            fixed: Some(fixed),
            ..SchemaNode::default()
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<SchemaNode, A::Error> {
        let mut node = SchemaNode::default();
        let mut seen = Vec::new();
        while let Some(Keyword(keyword)) = map.next_key()? {
            if seen.contains(&keyword) {
                return Err(de::Error::custom("duplicate keyword"));
            }
            keyword_into(&keyword, &mut node, &mut map, self.root)?;
            seen.push(keyword);
        }
        Ok(node)
    }
}

/// The name of a keyword.
#[derive(PartialEq)]
struct Keyword(String);

impl<'de> Deserialize<'de> for Keyword {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

/// Parses the value of a keyword into the node.
fn keyword_into<'de, A: MapAccess<'de>>(
    keyword: &str,
    node: &mut SchemaNode,
    map: &mut A,
    root: bool,
) -> Result<(), A::Error> {
    match keyword {
        "$schema" | "$id" => {
            let url: String = map.next_value()?;
            let known = if keyword == "$id" { is_id } else { is_dialect };
            if !root || !known(&url) {
                return Err(de::Error::custom("unsupported dialect or id"));
            }
        }
        "$ref" => node.reference = Some(map.next_value()?),
        "definitions" => node.definitions = map.next_value::<Subs>()?.0,
        "$defs" => node.defs = map.next_value::<Subs>()?.0,
        "type" => node.types = map.next_value::<Types>()?.0,
        "enum" if node.choices.is_none() => node.choices = Some(non_empty(map.next_value()?)?),
        "const" if node.choices.is_none() => node.choices = Some(vec![map.next_value()?]),
        "pattern" => {
            let pattern: String = map.next_value()?;
            let pattern = Pattern::new(pattern);
            let pattern = pattern.ok_or_else(|| de::Error::custom("unsupported pattern"))?;
            node.pattern = Some(Box::new(pattern));
        }
        "properties" => node.properties = map.next_value::<Subs>()?.0,
        "additionalProperties" => node.additional = Some(sub(map)?),
        "required" => {
            node.required = map.next_value()?;
            if has_duplicates(&node.required) {
                return Err(de::Error::custom("duplicate required property"));
            }
        }
        "items" => node.items = Some(sub(map)?),
        "allOf" => node.all = subs(map)?,
        "anyOf" => node.any = subs(map)?,
        "oneOf" => node.one = subs(map)?,
        "not" => node.not = Some(sub(map)?),
        "if" => node.condition = Some(sub(map)?),
        "then" => node.then = Some(sub(map)?),
        "else" => node.otherwise = Some(sub(map)?),
        "title" | "description" | "$comment" => {
            map.next_value::<Text>()?;
        }
        "deprecated" | "readOnly" | "writeOnly" => {
            map.next_value::<bool>()?;
        }
        "examples" => {
            map.next_value::<Vec<IgnoredAny>>()?;
        }
        other if UNSUPPORTED.contains(&other) => {
            return Err(de::Error::custom("unsupported keyword"));
        }
        other => {
            let mut bounds = node.bounds.take().unwrap_or_default();
            if bound_into(other, &mut bounds, map)? {
                node.bounds = Some(bounds);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
    }
    Ok(())
}

/// Parses the value of a minimum or maximum keyword. Returns whether it is one.
fn bound_into<'de, A: MapAccess<'de>>(
    keyword: &str,
    bounds: &mut Bounds,
    map: &mut A,
) -> Result<bool, A::Error> {
    match keyword {
        "minLength" => bounds.length.0 = Some(map.next_value()?),
        "maxLength" => bounds.length.1 = Some(map.next_value()?),
        "minItems" => bounds.items.0 = Some(map.next_value()?),
        "maxItems" => bounds.items.1 = Some(map.next_value()?),
        "minProperties" => bounds.properties.0 = Some(map.next_value()?),
        "maxProperties" => bounds.properties.1 = Some(map.next_value()?),
        "uniqueItems" => bounds.unique = map.next_value()?,
        "minimum" => bounds.number.0 = Some(number(map)?),
        "maximum" => bounds.number.1 = Some(number(map)?),
        "exclusiveMinimum" => bounds.exclusive.0 = Some(number(map)?),
        "exclusiveMaximum" => bounds.exclusive.1 = Some(number(map)?),
        _ => return Ok(false),
    }
    Ok(true)
}

fn is_dialect(url: &str) -> bool {
    let url = url.strip_suffix('#').unwrap_or(url);
    let name = url
        .strip_prefix("http://")
        .or_else(|| url.strip_prefix("https://"));
    name.is_some_and(|name| DIALECTS.contains(&name))
}

/// Returns whether `$id` has no effect: references begin with `#`, and it does not name a draft.
fn is_id(url: &str) -> bool {
    let simple = |c: char| c.is_ascii_alphanumeric() || "-._~/:".contains(c);
    let web = url.starts_with("http://") || url.starts_with("https://");
    web && url.chars().all(simple) && !url.contains("json-schema.org")
}

fn sub<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Box<SchemaNode>, A::Error> {
    map.next_value::<Sub>().map(|sub| Box::new(sub.0))
}

fn subs<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Vec<SchemaNode>, A::Error> {
    let subs: Vec<Sub> = non_empty(map.next_value()?)?;
    Ok(subs.into_iter().map(|sub| sub.0).collect())
}

fn non_empty<T, E: de::Error>(list: Vec<T>) -> Result<Vec<T>, E> {
    if list.is_empty() {
        return Err(de::Error::custom("empty list"));
    }
    Ok(list)
}

fn has_duplicates(names: &[Box<str>]) -> bool {
    let mut sorted: Vec<&Box<str>> = names.iter().collect();
    sorted.sort_unstable();
    sorted.windows(2).any(|pair| pair.first() == pair.last())
}

/// Parses a number that a float holds exactly.
fn number<'de, A: MapAccess<'de>>(map: &mut A) -> Result<f64, A::Error> {
    let number: Number = map.next_value()?;
    let exact = match number.as_i64() {
        Some(whole) => (-EXACT..=EXACT).contains(&whole),
        None => number.is_f64(),
    };
    number
        .as_f64()
        .filter(|_| exact)
        .ok_or_else(|| de::Error::custom("number not representable as a float"))
}

/// Any string; its content is dropped.
struct Text;

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl Visitor<'_> for TextVisitor {
            type Value = Text;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: de::Error>(self, _: &str) -> Result<Text, E> {
                Ok(Text)
            }
        }

        deserializer.deserialize_str(TextVisitor)
    }
}

/// Schemas by name, without duplicates.
struct Subs(BTreeMap<Box<str>, SchemaNode>);

impl<'de> Deserialize<'de> for Subs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SubsVisitor;

        impl<'de> Visitor<'de> for SubsVisitor {
            type Value = Subs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("schemas by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Subs, A::Error> {
                let mut subs = BTreeMap::new();
                while let Some((name, Sub(node))) = map.next_entry()? {
                    if subs.insert(name, node).is_some() {
                        return Err(de::Error::custom("duplicate name"));
                    }
                }
                Ok(Subs(subs))
            }
        }

        deserializer.deserialize_map(SubsVisitor)
    }
}

/// The bits of a type, or of a list of types.
struct Types(u8);

impl<'de> Deserialize<'de> for Types {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Form {
            One(String),
            Some(Vec<String>),
        }

        let names = match Form::deserialize(deserializer)? {
            Form::One(name) => vec![name],
            Form::Some(names) => non_empty(names)?,
        };
        let mut types = 0;
        for name in names {
            let bit = match name.as_str() {
                "null" => TypeBits::NULL,
                "boolean" => TypeBits::BOOLEAN,
                "integer" => TypeBits::INTEGER,
                "number" => TypeBits::NUMBER,
                "string" => TypeBits::STRING,
                "array" => TypeBits::ARRAY,
                "object" => TypeBits::OBJECT,
                _ => return Err(de::Error::custom("unknown type")),
            };
            if types & bit != 0 {
                return Err(de::Error::custom("duplicate type"));
            }
            types |= bit;
        }
        Ok(Self(types))
    }
}
