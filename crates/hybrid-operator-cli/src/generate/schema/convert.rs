//! Converts `values.schema.json`. Keywords that a structural schema cannot express are left out, so
//! that the result accepts at least what Helm accepts.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Number, Value};
use url::Url;

use super::node::{Kind, Kinds, Node, Others};

/// Depth below which a schema is open.
const DEPTH: usize = 40;
/// Number of schemas after which references are no longer inlined.
const BUDGET: usize = 20_000;

/// URL of a `values.schema.json`, against which Helm resolves references.
const ROOT: &str = "file:///values.schema.json";

/// The documents that a schema may refer to, by their URLs without fragments.
pub(crate) type Documents = BTreeMap<String, Value>;

/// Converts a JSON schema of any draft that refers to no other documents.
pub(crate) fn convert(document: &Value) -> Node {
    convert_with(document, &Documents::new())
}

/// Converts a JSON schema of any draft.
pub(crate) fn convert_with(document: &Value, documents: &Documents) -> Node {
    let mut converter = Converter {
        documents,
        document: Document::at(Url::parse(ROOT).ok(), document),
        open_references: BTreeSet::new(),
        left: BUDGET,
    };
    converter.schema(document, 0)
}

/// Until draft 7, keywords beside `$ref` are ignored. Without `$schema`, Helm assumes the newest
/// draft.
fn has_siblings_of_ref(document: &Value) -> bool {
    let draft = document.get("$schema").and_then(Value::as_str);
    !draft.is_some_and(|draft| draft.contains("draft-0"))
}

/// A document whose schemas are being converted.
#[derive(Clone)]
struct Document<'a> {
    value: &'a Value,
    /// URL against which its references are resolved.
    base: Option<Url>,
    siblings_of_ref: bool,
}

impl<'a> Document<'a> {
    fn at(url: Option<Url>, value: &'a Value) -> Self {
        let id = id_of(value);
        Self {
            base: url.map(|url| url.join(id).unwrap_or(url)),
            siblings_of_ref: has_siblings_of_ref(value),
            value,
        }
    }
}

/// Returns the identifier at the top of a document, or an empty text.
fn id_of(document: &Value) -> &str {
    let id = document.get("$id").or_else(|| document.get("id"));
    id.and_then(Value::as_str).unwrap_or_default()
}

struct Converter<'a> {
    documents: &'a Documents,
    /// The document with the schema that is being converted.
    document: Document<'a>,
    /// References that are being inlined: the document, and the pointer in it.
    open_references: BTreeSet<(*const Value, String)>,
    left: usize,
}

impl Converter<'_> {
    fn schema(&mut self, schema: &Value, depth: usize) -> Node {
        let Value::Object(keywords) = schema else {
            return Node::any();
        };
        let changes_base = |id: &str| !id.starts_with('#');
        let id = keywords.get("$id").or_else(|| keywords.get("id"));
        let foreign = !std::ptr::eq(schema, self.document.value)
            && id.and_then(Value::as_str).is_some_and(changes_base);
        if depth > DEPTH || self.left == 0 || foreign {
            return Node {
                text: text(keywords),
                ..Node::any()
            };
        }
        self.left -= 1;
        let Some(Value::String(reference)) = keywords.get("$ref") else {
            return self.keywords(keywords, depth);
        };
        let mut node = self.reference(reference, depth);
        if let Some(own) = text(keywords) {
            node.text = Some(own);
        }
        if self.document.siblings_of_ref && keywords.len() > 1 {
            node = node.and(self.keywords(keywords, depth));
        }
        node
    }

    /// Inlines a reference. What cannot be found, and what contains itself, is open.
    fn reference(&mut self, reference: &str, depth: usize) -> Node {
        let root = id_of(self.document.value);
        let local = match reference.strip_prefix('#') {
            Some(pointer) => Some(pointer),
            None if !root.is_empty() => reference
                .strip_prefix(root.trim_end_matches('#'))
                .and_then(|rest| rest.strip_prefix('#')),
            None => None,
        };
        if let Some(pointer) = local {
            return self.inlined(pointer, depth);
        }
        let (document, pointer) = reference.split_once('#').unwrap_or((reference, ""));
        let base = self.document.base.as_ref();
        let url = base.and_then(|base| base.join(document).ok());
        let found = url.and_then(|url| Some((self.documents.get(url.as_str())?, url)));
        let Some((value, url)) = found else {
            return Node::any();
        };
        let other = Document::at(Some(url), value);
        let here = std::mem::replace(&mut self.document, other);
        let node = self.inlined(pointer, depth);
        self.document = here;
        node
    }

    /// Inlines what is at a pointer of the document.
    fn inlined(&mut self, pointer: &str, depth: usize) -> Node {
        let pointer = percent_decoded(pointer);
        let document = self.document.value;
        let Some(target) = document.pointer(&pointer) else {
            return Node::any();
        };
        let reference = (std::ptr::from_ref(document), pointer);
        if !self.open_references.insert(reference.clone()) {
            return Node {
                kinds: kinds_of(target),
                text: target.as_object().and_then(text),
                ..Node::any()
            };
        }
        let node = self.schema(target, depth + 1);
        self.open_references.remove(&reference);
        node
    }

    fn keywords(&mut self, keywords: &Map<String, Value>, depth: usize) -> Node {
        let mut node = own_keywords(keywords);
        if let Some(Value::Object(properties)) = keywords.get("properties") {
            for (name, schema) in properties {
                let property = self.schema(schema, depth + 1);
                node.properties.insert(name.clone(), property);
            }
        }
        let has_patterns = matches!(keywords.get("patternProperties"),
            Some(Value::Object(patterns)) if !patterns.is_empty());
        node.others = match keywords.get("additionalProperties") {
            _ if has_patterns => Others::Any,
            Some(Value::Bool(false)) => Others::None,
            Some(schema @ Value::Object(_)) => {
                Others::Like(Box::new(self.schema(schema, depth + 1)))
            }
            _ => Others::Any,
        };
        if let Some(schema @ Value::Object(_)) = keywords.get("items")
            && !keywords.contains_key("prefixItems")
        {
            node.items = Some(Box::new(self.schema(schema, depth + 1)));
        }
        for part in list(keywords, "allOf") {
            node = node.and(self.schema(part, depth + 1));
        }
        for keyword in ["anyOf", "oneOf"] {
            let branches: Vec<Node> = list(keywords, keyword)
                .map(|branch| self.schema(branch, depth + 1))
                .collect();
            if let Some(either) = branches.into_iter().reduce(Node::or) {
                node = node.and(either);
            }
        }
        node
    }
}

/// Reads the keywords without subschemas.
fn own_keywords(keywords: &Map<String, Value>) -> Node {
    let mut node = Node {
        text: text(keywords),
        kinds: keywords.get("type").map(kinds_of_type).unwrap_or_default(),
        format: keywords
            .get("format")
            .and_then(Value::as_str)
            .map(ToOwned::to_owned),
        ..Node::any()
    };
    if let Some(Value::Array(names)) = keywords.get("required") {
        let names = names.iter().filter_map(Value::as_str);
        node.required = names.map(ToOwned::to_owned).collect();
    }
    let allowed = match (keywords.get("const"), keywords.get("enum")) {
        (Some(only), _) => std::slice::from_ref(only),
        (None, Some(Value::Array(values))) => values.as_slice(),
        _ => &[],
    };
    if !allowed.is_empty() {
        let kinds: Kinds = allowed.iter().map(Kind::of).collect();
        node = node.and(Node {
            kinds,
            ..Node::any()
        });
        if !allowed.iter().any(|v| v.is_array() || v.is_object()) {
            node.allowed = allowed.to_vec();
        }
    }
    let count = |name: &str| keywords.get(name).and_then(Value::as_f64).and_then(whole);
    let bounds = &mut node.bounds;
    bounds.min_length = count("minLength");
    bounds.max_length = count("maxLength");
    bounds.min_items = count("minItems");
    bounds.max_items = count("maxItems");
    bounds.multiple_of = count("multipleOf").filter(|factor| *factor > 0);
    bounds.pattern = keywords
        .get("pattern")
        .and_then(Value::as_str)
        .map(ToOwned::to_owned);
    bounds.minimum = bound(keywords, "minimum", "exclusiveMinimum", |one, two| {
        one >= two
    });
    bounds.maximum = bound(keywords, "maximum", "exclusiveMaximum", |one, two| {
        one <= two
    });
    node
}

/// Reads a bound, which draft 4 excludes with a boolean and later drafts with a number.
fn bound(
    keywords: &Map<String, Value>,
    inclusive: &str,
    exclusive: &str,
    is_tighter: impl Fn(f64, f64) -> bool,
) -> Option<(Number, bool)> {
    let number = |name: &str| match keywords.get(name) {
        Some(Value::Number(number)) => Some(number.clone()),
        _ => None,
    };
    match (
        number(inclusive),
        number(exclusive),
        keywords.get(exclusive),
    ) {
        (Some(one), Some(two), _) => {
            let tighter = is_tighter(two.as_f64()?, one.as_f64()?);
            Some(if tighter { (two, true) } else { (one, false) })
        }
        (None, Some(bound), _) => Some((bound, true)),
        (Some(bound), None, excluded) => Some((bound, excluded == Some(&Value::Bool(true)))),
        (None, None, _) => None,
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked"
)]
fn whole(number: f64) -> Option<u64> {
    (number.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&number))
        .then_some(number as u64)
}

fn list<'a>(keywords: &'a Map<String, Value>, name: &str) -> impl Iterator<Item = &'a Value> {
    keywords
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn text(keywords: &Map<String, Value>) -> Option<String> {
    let of = |name: &str| keywords.get(name).and_then(Value::as_str);
    let text = of("description").or_else(|| of("title"))?.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn kinds_of(schema: &Value) -> Kinds {
    schema.get("type").map(kinds_of_type).unwrap_or_default()
}

/// Reads `type`: a name or a list of names.
fn kinds_of_type(value: &Value) -> Kinds {
    let names = match value {
        Value::Array(names) => names.as_slice(),
        one => std::slice::from_ref(one),
    };
    names
        .iter()
        .filter_map(Value::as_str)
        .filter_map(Kind::of_name)
        .collect()
}

/// Decodes the `%XX` of a URI fragment.
fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let decoded = (*first == b'%')
            .then(|| tail.get(..2))
            .flatten()
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(decoded.unwrap_or(*first));
        rest = match decoded {
            Some(_) => tail.get(2..).unwrap_or_default(),
            None => tail,
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_are_inlined_and_recursive_ones_are_open() {
        let node = convert(&json!({
            "$defs": {
                "port": {"type": "integer", "maximum": 65535},
                "tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}},
                "a b": {"type": "string"},
            },
            "properties": {
                "port": {"$ref": "#/$defs/port", "description": "The port.", "minimum": 1},
                "tree": {"$ref": "#/$defs/tree"},
                "name": {"$ref": "#/$defs/a%20b"},
                "far": {"$ref": "https://example.com/x.json"},
            },
        }));
        let port = &node.properties["port"];
        assert_eq!(port.text.as_deref(), Some("The port."));
        assert_eq!(port.only_kind(), Some(Kind::Integer));
        assert_eq!(port.bounds.minimum, Some((1.into(), false)));
        assert_eq!(port.bounds.maximum, Some((65535.into(), false)));
        let left = &node.properties["tree"].properties["left"];
        assert_eq!(left.only_kind(), Some(Kind::Object));
        assert_eq!(left.others, Others::Any);
        assert_eq!(node.properties["name"].only_kind(), Some(Kind::String));
        assert_eq!(node.properties["far"], Node::any());
    }

    #[test]
    fn documents_of_the_web_are_inlined_if_the_chart_has_them() {
        let documents = [
            (
                "https://example.com/schemas/a.json",
                json!({"$id": "https://example.com/other/a.json", "type": "object",
                "additionalProperties": false,
                "properties": {
                    "size": {"$ref": "b.json#/definitions/size"},
                    "again": {"$ref": "#"},
                }}),
            ),
            (
                "https://example.com/other/b.json",
                json!({"$schema": "http://json-schema.org/draft-07/schema#",
                    "definitions": {"size": {"$ref": "#/definitions/number", "maximum": 3},
                        "number": {"type": "integer", "minimum": 1}}}),
            ),
        ];
        let documents = documents.map(|(url, value)| (url.to_owned(), value));
        let node = convert_with(
            &json!({"properties": {
                "all": {"$ref": "https://example.com/schemas/a.json"},
                "size": {"$ref": "https://example.com/other/b.json#/definitions/size"},
                "none": {"$ref": "https://example.com/other/b.json#/definitions/none"},
                "anchor": {"$ref": "https://example.com/other/b.json#anchor"},
                "absent": {"$ref": "https://example.com/absent.json"},
                "after": {"$ref": "#/definitions/after"}},
                "definitions": {"after": {"type": "string"}}}),
            &documents.into(),
        );
        let all = &node.properties["all"];
        assert_eq!(all.others, Others::None);
        for size in [&node.properties["size"], &all.properties["size"]] {
            assert_eq!(size.only_kind(), Some(Kind::Integer));
            assert_eq!(size.bounds.minimum, Some((1.into(), false)));
            assert_eq!(size.bounds.maximum, None);
        }
        assert_eq!(all.properties["again"].only_kind(), Some(Kind::Object));
        assert_eq!(all.properties["again"].others, Others::Any);
        for open in ["none", "anchor", "absent"] {
            assert_eq!(node.properties[open], Node::any(), "{open}");
        }
        let after = &node.properties["after"];
        assert_eq!(after.only_kind(), Some(Kind::String));
    }

    #[test]
    fn keywords_beside_a_reference_are_ignored_until_draft_7() {
        let schema = |draft: &str| {
            json!({"$schema": draft, "definitions": {"a": {"type": "string"}},
                "properties": {"a": {"$ref": "#/definitions/a", "maxLength": 3}}})
        };
        let of = |draft: &str| convert(&schema(draft)).properties["a"].bounds.max_length;
        assert_eq!(of("http://json-schema.org/draft-07/schema#"), None);
        assert_eq!(of("https://json-schema.org/draft/2020-12/schema"), Some(3));
    }

    #[test]
    fn exclusive_bounds_of_all_drafts_are_read() {
        for (minimum, exclusive, wanted) in [
            (json!(1), json!(true), Some((1, true))),
            (json!(1), json!(false), Some((1, false))),
            (Value::Null, json!(1), Some((1, true))),
            (json!(5), json!(1), Some((5, false))),
            (json!(1), json!(1), Some((1, true))),
            (Value::Null, json!(true), None),
        ] {
            let mut schema = json!({"exclusiveMinimum": exclusive});
            if !minimum.is_null() {
                schema["minimum"] = minimum;
            }
            let wanted = wanted.map(|(number, excluded)| (Number::from(number), excluded));
            assert_eq!(convert(&schema).bounds.minimum, wanted, "{schema}");
        }
    }

    #[test]
    fn pattern_properties_open_a_closed_map() {
        let schema = json!({"additionalProperties": false, "patternProperties": {"^x-": {}}});
        assert_eq!(convert(&schema).others, Others::Any);
        let closed = convert(&json!({"additionalProperties": false}));
        assert_eq!(closed.others, Others::None);
    }

    #[test]
    fn a_schema_that_doubles_with_each_reference_is_cut() {
        let mut definitions = Map::new();
        for level in 0..30 {
            let below = format!("#/$defs/l{}", level + 1);
            let level_schema = json!({"properties": {"a": {"$ref": below}, "b": {"$ref": below}}});
            definitions.insert(format!("l{level}"), level_schema);
        }
        let node = convert(&json!({"$ref": "#/$defs/l0", "$defs": definitions}));
        assert_eq!(node.properties.len(), 2);
    }
}
