//! `multipleOf` with exact numbers: Go computes with the numbers as written, which binary floats cannot
//! represent (`0.3` and `0.1`), and whose quotient they round (`1e30` and `7`).
//!
//! The library that checks values computes with floats and has no keywords of its own users. If floats are
//! wrong about a number among the values, these values are checked by a schema in which each `multipleOf`
//! is a reference to a list of the numbers that are not multiples.

use std::collections::HashMap;

use boon::{Compiler, ErrorKind, ValidationError};
use go_yaml::tree::{self, Node};
use serde_json::{Map, Number, Value, json};

use super::documents::{Document, NothingElse};
use super::{CompiledSchema, URL};

/// The document with the lists, which schemas cannot refer to.
pub(super) const LISTS: &str = "file:///values.schema.json/multiples";

/// Limits on the divisions, and on the comparisons with the numbers of a list, of one check.
const MAX_DIVISIONS: usize = 200_000;
const MAX_COMPARISONS: u64 = 100_000_000;

/// The `multipleOf` of a schema and of the documents that it refers to.
pub(super) struct Multiples {
    /// The documents by their URLs, with references to the lists.
    documents: Vec<(String, Value)>,
    divisors: Vec<Divisor>,
}

struct Divisor {
    number: Number,
    exact: Option<Decimal>,
}

impl Multiples {
    /// Returns the divisors of some documents, or `None` if there are none.
    pub(super) fn read(documents: &[Document]) -> Option<Self> {
        let has_any = |document: &Document| has_divisor(&document.value, &|_| true);
        if !documents.iter().any(has_any) {
            return None;
        }
        let mut divisors = Vec::new();
        let replaced = documents.iter().map(|document| {
            // The tree has the numbers as written.
            let tree = if has_divisor(&document.value, &Value::is_f64) {
                tree::parse(&document.text).ok()
            } else {
                None
            };
            let mut value = document.value.clone();
            replace(&mut value, tree.as_ref(), &mut divisors);
            (document.url.to_string(), value)
        });
        let replaced = replaced.collect();
        (!divisors.is_empty()).then_some(Self {
            documents: replaced,
            divisors,
        })
    }

    /// Returns a schema for these values if floats are wrong about them. `cost` is how many subschemas
    /// are applied to the values, whose numbers are changed to integers where they are equal to one, so
    /// that they are compared exactly.
    pub(super) fn for_values(
        &self,
        values: &mut Value,
        cost: u64,
    ) -> Result<Option<CompiledSchema>, String> {
        let numbers = distinct_numbers(values);
        if numbers.len().saturating_mul(self.divisors.len()) > MAX_DIVISIONS {
            return Err(format!(
                "the schema has {} multipleOf for {} numbers, more than can be checked",
                self.divisors.len(),
                numbers.len()
            ));
        }
        let (mut lists, mut longest, mut is_wrong) = (Map::new(), 0, false);
        for (index, divisor) in self.divisors.iter().enumerate() {
            let mut others = Vec::new();
            for (number, decimal) in &numbers {
                let is_multiple = divisor.exact.is_some_and(|unit| decimal.is_multiple(unit));
                is_wrong |= is_multiple != divisor.divides_float(number);
                if !is_multiple {
                    others.push(number);
                }
            }
            longest = longest.max(others.len());
            lists.insert(index.to_string(), json!({"not": {"enum": others}}));
        }
        if !is_wrong {
            return Ok(None);
        }
        if cost.saturating_mul(longest as u64) > MAX_COMPARISONS {
            return Err(format!(
                "the schema applies {cost} subschemas to {longest} numbers with multipleOf, more \
                 than can be checked"
            ));
        }
        let mut compiler = Compiler::new();
        compiler
            .add_resource(LISTS, json!({"$defs": lists}))
            .map_err(|error| error.to_string())?;
        for (url, document) in &self.documents {
            let added = compiler.add_resource(url, document.clone());
            added.map_err(|error| error.to_string())?;
        }
        let exact = CompiledSchema::of(compiler, NothingElse);
        // The text of the error may quote a document.
        exact
            .map(Some)
            .map_err(|_| format!("{URL} cannot be compiled with exact divisors"))
    }

    /// Returns the divisor, if an error is that of a reference to its list.
    pub(super) fn divisor(&self, error: &ValidationError<'_, '_>) -> Option<&Number> {
        let ErrorKind::Reference { url, .. } = &error.kind else {
            return None;
        };
        let index = url.strip_prefix(LISTS)?.strip_prefix("#/$defs/")?;
        let divisor = self.divisors.get(index.parse::<usize>().ok()?)?;
        Some(&divisor.number)
    }
}

impl Divisor {
    /// Returns what the library computes.
    fn divides_float(&self, number: &Number) -> bool {
        let quotient = number.as_f64().zip(self.number.as_f64());
        quotient.is_none_or(|(number, unit)| (number / unit).fract() == 0.0)
    }
}

/// Returns whether a schema, which is not nested too deeply, has a divisor for which `is_wanted` returns true.
fn has_divisor(schema: &Value, is_wanted: &impl Fn(&Value) -> bool) -> bool {
    match schema {
        Value::Array(items) => items.iter().any(|item| has_divisor(item, is_wanted)),
        Value::Object(fields) => {
            fields.get("multipleOf").is_some_and(is_wanted)
                || fields.values().any(|field| has_divisor(field, is_wanted))
        }
        _ => false,
    }
}

/// Replaces each `multipleOf` of a schema by a reference in its `allOf`.
fn replace(schema: &mut Value, node: Option<&Node>, divisors: &mut Vec<Divisor>) {
    if let Value::Array(items) = schema {
        let nodes = node.and_then(Node::as_list).unwrap_or_default();
        for (index, item) in items.iter_mut().enumerate() {
            replace(item, nodes.get(index), divisors);
        }
    }
    let Value::Object(keywords) = schema else {
        return;
    };
    let nodes = below(node);
    for (keyword, value) in keywords.iter_mut() {
        let child = nodes.get(keyword.as_str()).copied();
        match (keyword.as_str(), value) {
            ("const" | "enum" | "default" | "examples", _) => {}
            (
                "properties" | "patternProperties" | "dependentSchemas" | "dependencies" | "$defs"
                | "definitions",
                Value::Object(schemas),
            ) => {
                let inner = below(child);
                for (name, schema) in schemas {
                    replace(schema, inner.get(name.as_str()).copied(), divisors);
                }
            }
            (_, value) => replace(value, child, divisors),
        }
    }
    let Some(Value::Number(number)) = keywords.get("multipleOf").cloned() else {
        return;
    };
    let all = keywords.entry("allOf").or_insert_with(|| json!([]));
    let Value::Array(all) = all else { return };
    let written = nodes.get("multipleOf").and_then(|node| node.text());
    let exact = written
        .and_then(Decimal::parse)
        .or_else(|| Decimal::of(&number));
    let known = divisors.iter().position(|divisor| divisor.exact == exact);
    let index = known.unwrap_or(divisors.len());
    all.push(json!({"$ref": format!("{LISTS}#/$defs/{index}")}));
    if known.is_none() {
        divisors.push(Divisor { number, exact });
    }
    keywords.remove("multipleOf");
}

/// Returns the values of a map by their keys, the last one of duplicates as in JSON.
fn below(node: Option<&Node>) -> HashMap<&str, &Node> {
    let entries = node.and_then(Node::as_map).unwrap_or_default();
    let named = entries
        .iter()
        .filter_map(|(key, value)| Some((key.text()?, value)));
    named.collect()
}

/// Returns the numbers of `values`, after changing floats without a fraction to integers.
fn distinct_numbers(values: &mut Value) -> HashMap<Number, Decimal> {
    let mut found = HashMap::new();
    let mut rest = vec![values];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(items) => rest.extend(items),
            Value::Object(fields) => rest.extend(fields.values_mut()),
            Value::Number(number) => {
                if let Some(decimal) = Decimal::of(number) {
                    if let Some(whole) = decimal.magnitude().filter(|_| number.is_f64()) {
                        let sign = if number.as_f64() < Some(0.0) { -1 } else { 1 };
                        *number = Number::from_i128(whole * sign).unwrap_or(number.clone());
                    }
                    found.insert(number.clone(), decimal);
                }
            }
            _ => {}
        }
    }
    found
}

/// A number without its sign: its digits as an integer, and the power of ten to multiply them by.
#[derive(Clone, Copy, PartialEq)]
struct Decimal {
    digits: u128,
    exponent: i32,
}

impl Decimal {
    /// The most digits that are computed with, and an exponent that no float has.
    const MAX_DIGITS: usize = 37;
    const MAX_EXPONENT: u32 = 400;

    /// Returns a number of the values or of the schema. A float is taken as its shortest decimal, as Go
    /// writes it.
    fn of(number: &Number) -> Option<Self> {
        let float = number.as_f64().filter(|_| number.is_f64());
        Self::parse(&float.map_or_else(|| number.to_string(), |float| format!("{float:e}")))
    }

    fn parse(text: &str) -> Option<Self> {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let mantissa = mantissa.trim_start_matches('-');
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_matches('0');
        if digits.is_empty() {
            return (!all.is_empty()).then_some(Self {
                digits: 0,
                exponent: 0,
            });
        }
        let zeros = all.len() - all.trim_end_matches('0').len();
        let exponent = exponent
            .parse::<i32>()
            .ok()?
            .checked_add(i32::try_from(zeros).ok()?)?
            .checked_sub(i32::try_from(fraction.len()).ok()?)?;
        let is_usual =
            digits.len() <= Self::MAX_DIGITS && exponent.unsigned_abs() <= Self::MAX_EXPONENT;
        Some(Self {
            digits: digits.parse().ok().filter(|_| is_usual)?,
            exponent,
        })
    }

    /// Returns the number as an integer, if it is one of at most 64 bits.
    fn magnitude(self) -> Option<i128> {
        let factor = 10_u128.checked_pow(u32::try_from(self.exponent).ok()?)?;
        let whole = u64::try_from(self.digits.checked_mul(factor)?).ok()?;
        Some(i128::from(whole))
    }

    fn is_multiple(self, unit: Self) -> bool {
        if unit.digits == 0 {
            return false;
        }
        let shift = self.exponent - unit.exponent;
        let (mut rest, mut unit) = (self.digits, unit.digits);
        for _ in 0..shift {
            rest = rest % unit * 10;
        }
        for _ in shift..0 {
            // If the unit is so much larger, only zero is a multiple.
            if unit > rest {
                break;
            }
            unit *= 10;
        }
        rest % unit == 0
    }
}

#[cfg(test)]
mod tests;
