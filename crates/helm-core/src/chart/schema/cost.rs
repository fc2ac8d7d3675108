//! Cost of checking a value against a schema.
//!
//! The library that checks values cannot be interrupted, and a small schema can apply a subschema
//! 2^60 times. The number of times is therefore computed first: each pair of a subschema and a
//! value is visited once, and its cost is the sum of the costs of the pairs that it leads to.

use std::collections::HashMap;
use std::rc::Rc;

use bounded::Budget;
use serde_json::Value;

use super::documents::Document;
use super::references::{Names, ReferenceError, Scope, Target};

/// Returns an upper bound for the number of subschemas that are applied to values by the first of some documents, whose
/// references lead to any of them.
pub(super) fn of(
    documents: &[Document],
    value: &Value,
    budget: &Budget,
) -> Result<u64, ReferenceError> {
    let Some(schema) = documents.first() else {
        return Ok(0);
    };
    let mut costs = Costs {
        documents,
        names: None,
        targets: HashMap::new(),
        known: HashMap::new(),
        budget,
    };
    costs.of(&schema.value, value, &Scope::of_document(schema))
}

struct Costs<'d, 'b> {
    documents: &'d [Document],
    /// Computed for the first reference.
    names: Option<Names<'d>>,
    /// The targets of references, by the addresses of these.
    targets: HashMap<usize, Rc<[Target<'d>]>>,
    /// The cost of a pair, by the addresses of schema and value; 0 while it is being computed.
    known: HashMap<(usize, usize), u64>,
    budget: &'b Budget,
}

impl<'d> Costs<'d, '_> {
    /// Returns the cost of a pair in the scope around the schema.
    fn of(
        &mut self,
        schema: &'d Value,
        value: &Value,
        outer: &Scope<'d>,
    ) -> Result<u64, ReferenceError> {
        self.budget.step(1)?;
        let pair = (address(schema), address(value));
        if let Some(cost) = self.known.get(&pair) {
            return Ok(*cost);
        }
        self.known.insert(pair, 0);
        let budget = self.budget;
        let cost = budget.descend(|| self.sum(schema, value, &outer.within(schema)?))?;
        self.known.insert(pair, cost);
        Ok(cost)
    }

    fn sum(
        &mut self,
        schema: &'d Value,
        value: &Value,
        scope: &Scope<'d>,
    ) -> Result<u64, ReferenceError> {
        let mut cost = 1_u64;
        let Value::Object(fields) = schema else {
            return Ok(cost);
        };
        for (keyword, below) in fields {
            let more = match keyword.as_str() {
                "$ref" | "$dynamicRef" | "$recursiveRef" => {
                    self.reference(keyword, below, value, scope)?
                }
                "allOf" | "anyOf" | "oneOf" => {
                    let schemas = below.as_array().map(Vec::as_slice).unwrap_or_default();
                    self.all(schemas, [value], scope)?
                }
                "not" | "if" | "then" | "else" => self.of(below, value, scope)?,
                "dependencies" | "dependentSchemas" => {
                    let schemas = below.as_object().into_iter().flat_map(|map| map.values());
                    self.all(schemas, [value], scope)?
                }
                // Each of these may apply to any child.
                "additionalProperties" | "propertyNames" | "unevaluatedProperties" => {
                    self.all([below], fields_of(value), scope)?
                }
                "additionalItems" | "contains" | "unevaluatedItems" => {
                    self.all([below], items_of(value), scope)?
                }
                "patternProperties" => {
                    let schemas = below.as_object().into_iter().flat_map(|map| map.values());
                    self.all(schemas, fields_of(value), scope)?
                }
                "items" | "prefixItems" => match below {
                    Value::Array(schemas) => self.all(schemas, items_of(value), scope)?,
                    schema => self.all([schema], items_of(value), scope)?,
                },
                "properties" => self.properties(below, value, scope)?,
                _ => 0,
            };
            cost = cost.saturating_add(more);
        }
        Ok(cost)
    }

    fn all<'v>(
        &mut self,
        schemas: impl IntoIterator<Item = &'d Value>,
        values: impl IntoIterator<Item = &'v Value, IntoIter: Clone>,
        scope: &Scope<'d>,
    ) -> Result<u64, ReferenceError> {
        let values = values.into_iter();
        let mut cost = 0_u64;
        for schema in schemas {
            for value in values.clone() {
                cost = cost.saturating_add(self.of(schema, value, scope)?);
            }
        }
        Ok(cost)
    }

    fn properties(
        &mut self,
        schemas: &'d Value,
        value: &Value,
        scope: &Scope<'d>,
    ) -> Result<u64, ReferenceError> {
        let mut cost = 0_u64;
        let (Value::Object(schemas), Value::Object(fields)) = (schemas, value) else {
            return Ok(cost);
        };
        for (name, value) in fields {
            if let Some(schema) = schemas.get(name) {
                cost = cost.saturating_add(self.of(schema, value, scope)?);
            }
        }
        Ok(cost)
    }

    /// Returns the highest cost of what a reference may lead to: it leads to one of them.
    fn reference(
        &mut self,
        keyword: &str,
        reference: &'d Value,
        value: &Value,
        scope: &Scope<'d>,
    ) -> Result<u64, ReferenceError> {
        let at = address(reference);
        if !self.targets.contains_key(&at) {
            let names: &Names<'d> = match &self.names {
                Some(names) => names,
                None => self.names.insert(Names::of(self.documents, self.budget)?),
            };
            let found = names.resolve(keyword, reference, scope)?;
            self.targets.insert(at, found.into());
        }
        let targets = self.targets.get(&at).map(Rc::clone).unwrap_or_default();
        let mut highest = 1;
        for target in targets.iter() {
            highest = highest.max(self.of(target.schema, value, &target.scope)?);
        }
        Ok(highest)
    }
}

/// Returns the elements of a list.
fn items_of(value: &Value) -> impl Iterator<Item = &Value> + Clone {
    value.as_array().into_iter().flatten()
}

/// Returns the values of a map.
fn fields_of(value: &Value) -> impl Iterator<Item = &Value> + Clone {
    value.as_object().into_iter().flat_map(|map| map.values())
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
}

#[cfg(test)]
mod tests {
    use bounded::Limits;
    use serde_json::json;
    use url::Url;

    use super::*;

    fn document(url: &str, value: &Value) -> Document {
        Document {
            url: Url::parse(url).unwrap(),
            value: value.clone(),
            text: std::sync::Arc::default(),
        }
    }

    fn cost_of(documents: &[Document], value: &Value) -> u64 {
        of(documents, value, &Budget::new(Limits::default())).unwrap()
    }

    fn cost(schema: &Value, value: &Value) -> u64 {
        cost_of(&[document("file:///values.schema.json", schema)], value)
    }

    /// Returns sixty definitions, each of which refers twice to the next one, by a name that `refer` makes.
    fn doubling(refer: impl Fn(String) -> Value) -> Value {
        let mut definitions = serde_json::Map::new();
        for level in 0..60 {
            let next = refer(format!("d{}", level + 1));
            definitions.insert(format!("d{level}"), json!({"allOf": [next, next]}));
        }
        definitions.insert("d60".to_owned(), json!({}));
        definitions.into()
    }

    #[test]
    fn each_application_of_a_subschema_counts() {
        let schema = json!({"properties": {"a": {"type": "string"}}, "items": {"not": {}}});
        for (value, expected) in [
            (json!({"a": 1, "b": 2}), 2),
            (json!([1, 2, 3]), 7),
            (json!(1), 1),
        ] {
            assert_eq!(cost(&schema, &value), expected, "{value}");
        }
    }

    #[test]
    fn references_that_double_are_counted_without_following_each() {
        let schema = json!({
            "$ref": "#/definitions/d0",
            "definitions": doubling(|name| json!({"$ref": format!("#/definitions/{name}")})),
        });
        assert!(cost(&schema, &json!(1)) > 1 << 60);
    }

    #[test]
    fn references_are_followed_however_they_are_written() {
        let of = |path: &'static str| move |name: String| json!({"$ref": format!("{path}#/definitions/{name}")});
        for (first, definitions) in [
            ("#/definitions/d%30", doubling(of(""))),
            ("root.json#/definitions/d0", doubling(of("root.json"))),
            (
                "http://example.com/root.json#/definitions/d0",
                doubling(of("/root.json")),
            ),
            (
                "values.schema.json#/definitions/d0",
                doubling(of("file:///values.schema.json")),
            ),
        ] {
            let schema = json!({
                "$id": "http://example.com/root.json",
                "allOf": [{"$ref": first}],
                "definitions": definitions,
            });
            assert!(cost(&schema, &json!(1)) > 1 << 60, "{first}");
        }
        // The identifier of a part is that of its references.
        let part = json!({"$id": "part.json", "definitions": doubling(of("")), "$ref": "#/definitions/d0"});
        let schema = json!({"$ref": "part.json", "$defs": {"x": part}});
        assert!(cost(&schema, &json!(1)) > 1 << 60);
        // A list as in the library, which reads numbers with leading zeros.
        let schema = json!({"$ref": "#/$defs/00", "$defs": [{"allOf": [{}, {}, {}]}]});
        assert_eq!(cost(&schema, &json!(1)), 5);
    }

    #[test]
    fn references_into_other_documents_count() {
        let refer = |name: String| json!({"$ref": format!("#/definitions/{name}")});
        let other = json!({"definitions": doubling(refer)});
        let documents = |reference: &str| {
            [
                document("file:///values.schema.json", &json!({"$ref": reference})),
                document("file://./charts/other.json", &other),
                document(
                    "file:///next.json",
                    &json!({"$ref": "file://./charts/other.json#/definitions/d0"}),
                ),
            ]
        };
        for reference in [
            "file://./charts/other.json#/definitions/d0",
            "next.json",
            "file:///x/../next.json",
        ] {
            assert!(
                cost_of(&documents(reference), &json!(1)) > 1 << 60,
                "{reference}"
            );
        }
        assert_eq!(cost_of(&documents("urn:x:y"), &json!(1)), 2);
    }

    #[test]
    fn schema_that_refers_to_itself_has_a_finite_cost() {
        let schema = json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]});
        assert!(cost(&schema, &json!({"a": 1})) < 100);
        let schema = json!({"$id": "b/", "allOf": [{"$ref": "#"}, {"$ref": "../b/"}]});
        assert!(cost(&schema, &json!({"a": 1})) < 100);
    }

    #[test]
    fn identifiers_within_identifiers_are_limited() {
        let mut schema = json!({});
        for level in 0..60 {
            schema = json!({"$id": format!("level-{level}/"), "items": schema});
        }
        // They are looked for when there is a reference.
        let schema = json!({"$ref": "#", "items": schema});
        let documents = [document("file:///values.schema.json", &schema)];
        let error = of(&documents, &json!(1), &Budget::new(Limits::default())).unwrap_err();
        assert_eq!(error.to_string(), "more than 64 $id apply to one subschema");
    }
}
