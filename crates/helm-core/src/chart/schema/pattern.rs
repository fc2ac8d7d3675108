//! Limits the patterns of a schema. The library that checks values compiles them without a limit on
//! their number, and takes a pattern that it cannot compile for a mistake of its own.

use bounded::{Budget, BudgetError, Limits};
use go_template::go::regexp::{self, ErrorCode};
use regex_automata::meta;
use serde_json::Value;

/// Maximum memory of a compiled pattern, in bytes: the regex crate refuses larger ones.
const MAX_MEMORY: usize = 10 << 20;

/// Checks that all patterns can be compiled in reasonable time and memory.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    let limits = Limits {
        regex: MAX_MEMORY,
        ..Limits::default()
    };
    below(schema, &Budget::new(limits))
}

fn below(schema: &Value, budget: &Budget) -> Result<(), String> {
    budget
        .descend(|| match schema {
            Value::Array(items) => Ok(items.iter().try_for_each(|item| below(item, budget))),
            Value::Object(fields) => {
                Ok(fields
                    .iter()
                    .try_for_each(|(keyword, value)| match (keyword.as_str(), value) {
                        ("pattern", Value::String(text)) => pattern(text, budget),
                        ("patternProperties", Value::Object(patterns)) => {
                            patterns.keys().try_for_each(|text| pattern(text, budget))?;
                            below(value, budget)
                        }
                        _ => below(value, budget),
                    }))
            }
            _ => Ok(Ok(())),
        })
        .unwrap_or_else(|error: BudgetError| Err(format!("the schema cannot be read: {error}")))
}

fn pattern(text: &str, budget: &Budget) -> Result<(), String> {
    let shown: String = text.chars().take(80).collect();
    match regexp::cached(text.as_bytes(), budget) {
        Ok(Err(error)) if is_size(error.code) || is_too_large(text) => {
            Err(format!("the pattern {shown:?} is refused: {error}"))
        }
        // What else is wrong with it is reported when the schema is compiled.
        Ok(Ok(_) | Err(_)) => Ok(()),
        Err(error) => Err(format!("the pattern {shown:?} is refused: {error}")),
    }
}

fn is_size(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::Large | ErrorCode::NestingDepth | ErrorCode::InvalidRepeatSize
    )
}

/// Returns whether a pattern is too large whose syntax only the regex crate has.
fn is_too_large(text: &str) -> bool {
    let config = meta::Config::new().nfa_size_limit(Some(MAX_MEMORY));
    let built = meta::Builder::new().configure(config).build(text);
    built.is_err_and(|error| error.size_limit().is_some())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn patterns_that_are_too_large_are_errors_wherever_they_are() {
        let large = "((\\pL{1,100}){1,10}){1,1}";
        for schema in [
            json!({"pattern": large}),
            json!({"items": [{"not": {"pattern": large}}]}),
            json!({"patternProperties": {large: true}}),
            json!({"pattern": "x{1001}"}),
            json!({"pattern": "(?x) (\\pL{100}){100}"}),
            json!({"patternProperties": {"a": {"pattern": large}}}),
        ] {
            let error = check(&schema).unwrap_err();
            assert!(error.contains("the pattern"), "{error}");
        }
        for schema in [
            json!({"pattern": "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"}),
            json!({"properties": {"pattern": {"type": "string"}}}),
            json!({"pattern": "^\\w{1,253}$"}),
            // Go's parser refuses it, and so does that of the schemas' library.
            json!({"pattern": "("}),
        ] {
            assert_eq!(check(&schema), Ok(()), "{schema}");
        }
    }
}
