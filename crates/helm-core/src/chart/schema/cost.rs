//! How much work it is to check a value against a schema.
//!
//! The library that checks values cannot be interrupted, and a small schema can apply a subschema
//! 2^60 times. The number of times is therefore computed first: each pair of a subschema and a
//! value is visited once, and its cost is the sum of the costs of the pairs that it leads to.

use std::collections::HashMap;

use bounded::{Budget, BudgetError};
use serde_json::Value;

/// Returns an upper bound for the number of subschemas that are applied to values.
pub(super) fn of(schema: &Value, value: &Value, budget: &Budget) -> Result<u64, BudgetError> {
    let mut names = HashMap::new();
    collect_names(schema, &mut names, budget)?;
    let mut costs = Costs {
        root: schema,
        names,
        known: HashMap::new(),
        budget,
    };
    costs.of(schema, value)
}

/// Collects the subschemas that references can name by an anchor or identifier.
fn collect_names<'s>(
    schema: &'s Value,
    names: &mut HashMap<&'s str, &'s Value>,
    budget: &Budget,
) -> Result<(), BudgetError> {
    let mut below = |value: &'s Value| budget.descend(|| collect_names(value, names, budget));
    match schema {
        Value::Array(items) => items.iter().try_for_each(below),
        Value::Object(fields) => {
            fields.values().try_for_each(&mut below)?;
            for keyword in ["$anchor", "$dynamicAnchor", "$recursiveAnchor", "$id", "id"] {
                if let Some(name) = fields.get(keyword).and_then(Value::as_str) {
                    names.insert(name.trim_start_matches('#'), schema);
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

struct Costs<'s, 'b> {
    root: &'s Value,
    names: HashMap<&'s str, &'s Value>,
    /// The cost of a pair, by the addresses of schema and value; 0 while it is being computed.
    known: HashMap<(usize, usize), u64>,
    budget: &'b Budget,
}

impl<'s> Costs<'s, '_> {
    fn of(&mut self, schema: &'s Value, value: &Value) -> Result<u64, BudgetError> {
        let pair = (address(schema), address(value));
        if let Some(cost) = self.known.get(&pair) {
            return Ok(*cost);
        }
        self.known.insert(pair, 0);
        let budget = self.budget;
        let cost = budget.descend(|| self.sum(schema, value))?;
        self.known.insert(pair, cost);
        Ok(cost)
    }

    fn sum(&mut self, schema: &'s Value, value: &Value) -> Result<u64, BudgetError> {
        let mut cost = 1_u64;
        let Value::Object(fields) = schema else {
            return Ok(cost);
        };
        for (keyword, below) in fields {
            let more = match keyword.as_str() {
                "$ref" | "$dynamicRef" | "$recursiveRef" => match self.target(below) {
                    Some(target) => self.of(target, value)?,
                    None => 1,
                },
                "allOf" | "anyOf" | "oneOf" => {
                    let schemas = below.as_array().map(Vec::as_slice).unwrap_or_default();
                    self.all(schemas, [value])?
                }
                "not" | "if" | "then" | "else" => self.of(below, value)?,
                "dependencies" | "dependentSchemas" => {
                    let schemas = below.as_object().into_iter().flat_map(|map| map.values());
                    self.all(schemas, [value])?
                }
                // Each of these may apply to any child.
                "additionalProperties" | "propertyNames" | "unevaluatedProperties" => {
                    self.all([below], fields_of(value))?
                }
                "additionalItems" | "contains" | "unevaluatedItems" => {
                    self.all([below], items_of(value))?
                }
                "patternProperties" => {
                    let schemas = below.as_object().into_iter().flat_map(|map| map.values());
                    self.all(schemas, fields_of(value))?
                }
                "items" | "prefixItems" => match below {
                    Value::Array(schemas) => self.all(schemas, items_of(value))?,
                    schema => self.all([schema], items_of(value))?,
                },
                "properties" => self.properties(below, value)?,
                _ => 0,
            };
            cost = cost.saturating_add(more);
        }
        Ok(cost)
    }

    fn all<'v>(
        &mut self,
        schemas: impl IntoIterator<Item = &'s Value>,
        values: impl IntoIterator<Item = &'v Value, IntoIter: Clone>,
    ) -> Result<u64, BudgetError> {
        let values = values.into_iter();
        let mut cost = 0_u64;
        for schema in schemas {
            for value in values.clone() {
                cost = cost.saturating_add(self.of(schema, value)?);
            }
        }
        Ok(cost)
    }

    fn properties(&mut self, schemas: &'s Value, value: &Value) -> Result<u64, BudgetError> {
        let mut cost = 0_u64;
        let (Value::Object(schemas), Value::Object(fields)) = (schemas, value) else {
            return Ok(cost);
        };
        for (name, value) in fields {
            if let Some(schema) = schemas.get(name) {
                cost = cost.saturating_add(self.of(schema, value)?);
            }
        }
        Ok(cost)
    }

    /// Returns what a reference within the document refers to.
    fn target(&self, reference: &Value) -> Option<&'s Value> {
        let reference = reference.as_str()?;
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let base = match document {
            "" => self.root,
            name => self.names.get(name)?,
        };
        if fragment.is_empty() || fragment.starts_with('/') {
            return base.pointer(fragment);
        }
        self.names.get(fragment).copied()
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

    use super::*;

    fn cost(schema: &Value, value: &Value) -> u64 {
        of(schema, value, &Budget::new(Limits::default())).unwrap()
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
        let mut definitions = serde_json::Map::new();
        for level in 0..60 {
            let next = json!({"$ref": format!("#/definitions/d{}", level + 1)});
            definitions.insert(format!("d{level}"), json!({"allOf": [next, next]}));
        }
        definitions.insert("d60".to_owned(), json!({}));
        let schema = json!({"$ref": "#/definitions/d0", "definitions": definitions});
        assert!(cost(&schema, &json!(1)) > 1 << 60);
    }

    #[test]
    fn schema_that_refers_to_itself_has_a_finite_cost() {
        let schema = json!({"allOf": [{"$ref": "#"}, {"$ref": "#"}]});
        assert!(cost(&schema, &json!({"a": 1})) < 100);
    }
}
