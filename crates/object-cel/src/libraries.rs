//! Quantities, IP addresses, CIDRs and semantic versions, which are values of `kube-cel`.
//!
//! Its quantities panic if they are too large or too small, so those are refused before.

use std::sync::{Arc, LazyLock};

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{CallExpr, Expr};
use kube_cel::cel::{self, Context, IdedExpr};

use crate::value::{Stop, Value};

static CONTEXT: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());

/// Names of the arguments in a call.
const NAMES: &[&str] = &["a", "b"];

/// Calls a function of the libraries.
pub(crate) fn call(function: &'static str, arguments: &[Value]) -> Result<Value, Stop> {
    let first = match arguments.first() {
        Some(Value::String(text)) => Some(&**text),
        _ => None,
    };
    let mut arguments = arguments
        .iter()
        .map(argument)
        .collect::<Result<Vec<_>, _>>()?;
    match (function, first) {
        ("isQuantity", Some(text)) => return Ok(Value::Bool(is_quantity(text))),
        ("quantity", Some(text)) if !is_quantity(text) => {
            return Err(Stop::failed(format!(
                "'{text}' is not a quantity between 1n and 10E"
            )));
        }
        // Kubernetes ignores what is after a plus when it compares versions; `kube-cel` does not.
        ("semver", Some(text)) if text.contains('+') => {
            resolve(function, &arguments)?;
            let version = text.split('+').next().unwrap_or_default();
            arguments = vec![version.into()];
        }
        _ => {}
    }
    match resolve(function, &arguments)? {
        cel::Value::Bool(value) => Ok(Value::Bool(value)),
        cel::Value::Int(number) => Ok(Value::Int(number)),
        cel::Value::Float(number) => Ok(Value::Double(number)),
        cel::Value::String(text) => Ok(text.as_str().into()),
        value @ cel::Value::Opaque(_) => Ok(Value::Library(value)),
        _ => Err(Stop::failed(format!("{function} has an unknown result"))),
    }
}

fn argument(value: &Value) -> Result<cel::Value, Stop> {
    match value {
        Value::String(text) => Ok(cel::Value::String(Arc::new(text.to_string()))),
        Value::Int(number) => Ok(cel::Value::Int(*number)),
        Value::Library(value) => Ok(value.clone()),
        other => Err(Stop::failed(format!(
            "{} is not an argument of this function",
            other.type_name()
        ))),
    }
}

fn resolve(function: &'static str, arguments: &[cel::Value]) -> Result<cel::Value, Stop> {
    let mut context = CONTEXT.new_inner_scope();
    let mut names = Vec::new();
    for (name, value) in NAMES.iter().zip(arguments) {
        context.add_variable_from_value(*name, value.clone());
        names.push(IdedExpr {
            id: 0,
            expr: Expr::Ident((*name).to_owned()),
        });
    }
    let mut names = names.into_iter();
    let target = if function.starts_with('.') {
        names.next().map(Box::new)
    } else {
        None
    };
    let call = IdedExpr {
        id: 0,
        expr: Expr::Call(CallExpr {
            func_name: function.trim_start_matches('.').to_owned(),
            target,
            args: names.collect(),
        }),
    };
    let result = cel::Value::resolve(&call, &context);
    result.map_err(|error| match error {
        cel::ExecutionError::FunctionError { function, message } => {
            Stop::failed(format!("{function}: {message}"))
        }
        _ => Stop::failed(format!(
            "{} cannot take these values",
            function.trim_start_matches('.')
        )),
    })
}

/// Whether a text is a quantity that can be computed with: at most 19 digits before the point, and nine after it.
fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_digit = |c: char| c.is_ascii_digit();
    let number_end = unsigned
        .find(|c: char| !is_digit(c) && c != '.')
        .unwrap_or(unsigned.len());
    let Some((number, suffix)) = unsigned.split_at_checked(number_end) else {
        return false;
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if number.len() > 20 || fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return false;
    }
    let exponent = match suffix {
        "" => 0,
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "k" | "Ki" => 3,
        "M" | "Mi" => 6,
        "G" | "Gi" => 9,
        "T" | "Ti" => 12,
        "P" | "Pi" => 15,
        "E" | "Ei" => 18,
        other => {
            let exponent = other
                .strip_prefix(['e', 'E'])
                .and_then(|digits| digits.parse::<i8>().ok());
            let Some(exponent) = exponent else {
                return false;
            };
            i32::from(exponent)
        }
    };
    let count = |digits: &str| i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let whole = whole.trim_start_matches('0');
    let fraction = fraction.trim_end_matches('0');
    count(whole) + exponent <= 19 && count(fraction) - exponent.min(0) <= 9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_that_cannot_be_computed_with_are_refused() {
        for text in [
            "1",
            "+1.5Gi",
            "-100m",
            "1n",
            "9E",
            "1e3",
            "1E3",
            ".5",
            "5.",
            "0.000000001",
        ] {
            assert!(is_quantity(text), "{text}");
        }
        for text in [
            "",
            ".",
            "1e40",
            "1e-40",
            "100E",
            "0.1n",
            "0.0000000001Ei",
            " 1",
            "1 ",
            "1kk",
            "1.2.3",
            "--1",
            "1e",
            "1e999",
            "ä",
        ] {
            assert!(!is_quantity(text), "{text}");
        }
    }
}
