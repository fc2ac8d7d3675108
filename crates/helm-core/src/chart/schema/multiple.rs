//! `multipleOf` with exact numbers: Go computes with the number as written, which binary floats cannot
//! represent (`0.3` and `0.1`), and whose quotient they round (`1e30` and `7`).

use std::collections::HashSet;

use boon::{ErrorKind, ValidationError};
use bounded::{Budget, BudgetError};
use serde_json::{Map, Number, Value};

use super::{Violation, steps};

/// Returns whether an error remains one if `multipleOf` is computed with decimals.
pub(super) fn is_violation(error: &ValidationError<'_, '_>) -> bool {
    match &error.kind {
        ErrorKind::MultipleOf { got, want } => !is_multiple(got, want),
        ErrorKind::Group
        | ErrorKind::Schema { .. }
        | ErrorKind::Reference { .. }
        | ErrorKind::AllOf => error.causes.is_empty() || error.causes.iter().any(is_violation),
        ErrorKind::AnyOf => error.causes.iter().all(is_violation),
        ErrorKind::OneOf(None) => {
            let fine = error.causes.iter().filter(|cause| !is_violation(cause));
            fine.count() != 1
        }
        _ => true,
    }
}

/// Returns the numbers that are not multiples, of those that must be in any case: those below `anyOf`,
/// `oneOf`, `not`, `if` and references by name are left to the library.
pub(super) fn violations(
    schema: &Value,
    value: &Value,
    budget: &Budget,
) -> Result<Vec<Violation>, BudgetError> {
    let mut search = Search {
        root: schema,
        seen: HashSet::new(),
        found: Vec::new(),
        budget,
    };
    search.apply(schema, &[], value, &[])?;
    Ok(search.found)
}

/// Returns whether a schema, which is not nested too deeply, has the keyword.
pub(super) fn is_used(schema: &Value) -> bool {
    match schema {
        Value::Array(items) => items.iter().any(is_used),
        Value::Object(fields) => fields.contains_key("multipleOf") || fields.values().any(is_used),
        _ => false,
    }
}

struct Search<'s, 'b> {
    root: &'s Value,
    /// The addresses of the pairs of a schema and a value.
    seen: HashSet<(usize, usize)>,
    found: Vec<Violation>,
    budget: &'b Budget,
}

impl<'s> Search<'s, '_> {
    /// Applies the schema at the path `rule` to the value at `path`.
    fn apply(
        &mut self,
        schema: &'s Value,
        rule: &[String],
        value: &Value,
        path: &[String],
    ) -> Result<(), BudgetError> {
        let address = |value| std::ptr::from_ref::<Value>(value).addr();
        let Value::Object(keywords) = schema else {
            return Ok(());
        };
        // References mean something else below a schema with a name.
        let is_named =
            !rule.is_empty() && ["$id", "id"].iter().any(|id| keywords.contains_key(*id));
        if is_named || !self.seen.insert((address(schema), address(value))) {
            return Ok(());
        }
        let budget = self.budget;
        budget.descend(|| {
            // Whether the other keywords have a meaning beside it depends on the draft.
            if let Some(reference) = keywords.get("$ref") {
                let pointer = reference.as_str().and_then(|text| text.strip_prefix('#'));
                let target =
                    pointer.and_then(|pointer| Some((pointer, self.root.pointer(pointer)?)));
                return target.map_or(Ok(()), |(pointer, target)| {
                    self.apply(target, &steps(pointer), value, path)
                });
            }
            for (index, schema) in list(keywords, "allOf").iter().enumerate() {
                self.apply(
                    schema,
                    &joined(rule, &["allOf", &index.to_string()]),
                    value,
                    path,
                )?;
            }
            match value {
                Value::Number(number) => {
                    self.number(keywords, rule, number, path);
                    Ok(())
                }
                Value::Array(items) => self.items(keywords, rule, items, path),
                Value::Object(fields) => self.fields(keywords, rule, fields, path),
                _ => Ok(()),
            }
        })
    }

    fn number(
        &mut self,
        keywords: &Map<String, Value>,
        rule: &[String],
        number: &Number,
        path: &[String],
    ) {
        if let Some(Value::Number(unit)) = keywords.get("multipleOf")
            && !is_multiple(number, unit)
        {
            self.found.push(Violation {
                path: Some(path.to_vec()),
                rule: rule.to_vec(),
                message: format!("is not a multiple of {unit}"),
            });
        }
    }

    fn items(
        &mut self,
        keywords: &'s Map<String, Value>,
        rule: &[String],
        items: &[Value],
        path: &[String],
    ) -> Result<(), BudgetError> {
        let Some(schema @ Value::Object(_)) = keywords.get("items") else {
            return Ok(());
        };
        // These come first in the drafts in which `items` has one schema.
        let skipped = list(keywords, "prefixItems").len();
        for (index, item) in items.iter().enumerate().skip(skipped) {
            let path = joined(path, &[&index.to_string()]);
            self.apply(schema, &joined(rule, &["items"]), item, &path)?;
        }
        Ok(())
    }

    fn fields(
        &mut self,
        keywords: &'s Map<String, Value>,
        rule: &[String],
        fields: &Map<String, Value>,
        path: &[String],
    ) -> Result<(), BudgetError> {
        let properties = keywords.get("properties").and_then(Value::as_object);
        let others = keywords
            .get("additionalProperties")
            .filter(|_| !keywords.contains_key("patternProperties"));
        for (name, value) in fields {
            let known = properties.and_then(|properties| properties.get(name));
            let (schema, rule) = match (known, others) {
                (Some(schema), _) => (schema, joined(rule, &["properties", name])),
                (None, Some(schema)) => (schema, joined(rule, &["additionalProperties"])),
                (None, None) => continue,
            };
            self.apply(schema, &rule, value, &joined(path, &[name]))?;
        }
        Ok(())
    }
}

fn list<'s>(keywords: &'s Map<String, Value>, keyword: &str) -> &'s [Value] {
    let list = keywords.get(keyword).and_then(Value::as_array);
    list.map(Vec::as_slice).unwrap_or_default()
}

fn joined(path: &[String], steps: &[&str]) -> Vec<String> {
    let path = path.iter().map(String::as_str);
    path.chain(steps.iter().copied())
        .map(str::to_owned)
        .collect()
}

/// Returns whether `number` is a whole multiple of `unit`.
fn is_multiple(number: &Number, unit: &Number) -> bool {
    let (Some((number, exponent)), Some((unit, unit_exponent))) = (decimal(number), decimal(unit))
    else {
        return false;
    };
    let shift = exponent - unit_exponent;
    if unit == 0 {
        return false;
    }
    if shift >= 0 {
        let mut rest = number % unit;
        for _ in 0..shift {
            rest = rest * 10 % unit;
        }
        return rest == 0;
    }
    let mut unit = unit;
    for _ in shift..0 {
        // If the unit is so much larger, only zero is a multiple.
        if unit > number {
            break;
        }
        unit *= 10;
    }
    number % unit == 0
}

/// Returns the digits of a number without its sign as an integer, and the power of ten to multiply
/// them by. A float is taken as its shortest decimal.
fn decimal(number: &Number) -> Option<(u128, i32)> {
    if let Some(whole) = number.as_i128() {
        return Some((whole.unsigned_abs(), 0));
    }
    let text = format!("{:e}", number.as_f64()?.abs());
    let (mantissa, exponent) = text.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}").parse().ok()?;
    Some((digits, exponent - i32::try_from(fraction.len()).ok()?))
}
