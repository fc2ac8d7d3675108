//! Outputs of a release: evaluates what the status shows of its objects, and whether the custom resource is ready.
//! No I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use helm_core::manifest::ObjectKey;
use helm_release::engine::Live;
use object_cel::{EvaluationError, Expression, Outcome};
use serde_json::{Map, Value};

use crate::watches::Watch;

/// Maximum size of all outputs of a custom resource, in bytes of JSON.
const MAX_SIZE: usize = 256 * 1024;

/// The outputs of a release.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Evaluated {
    /// Whether the objects are known. If not, the status keeps what it has.
    pub(super) is_known: bool,
    /// Fields of the status; `None` for those that are not there yet.
    pub(super) fields: BTreeMap<String, Option<Value>>,
    /// Fields that are not there yet, each with what it waits for.
    pub(super) missing: Vec<String>,
    /// Fields that cannot be evaluated, each with the reason.
    pub(super) failed: Vec<String>,
    /// The first condition of `readyWhen` that is not met.
    pub(super) awaited: Option<String>,
}

/// Evaluates the expressions of an entry for a custom resource; `None` if there is nothing to say.
pub(super) fn evaluate(watch: &Watch, resource: &Value, live: &Live) -> Option<Evaluated> {
    let outputs = &watch.outputs;
    if outputs.is_empty() {
        return None;
    }
    let shown = live
        .fields(&watch.policy.kept_fields)
        .filter(|_| live.complete);
    let Some(shown) = shown else {
        let first = outputs.ready_when.first()?;
        return Some(Evaluated {
            awaited: Some(unmet(first, "its objects are not seen yet")),
            ..Evaluated::default()
        });
    };
    let mut evaluated = Evaluated {
        is_known: true,
        ..Evaluated::default()
    };
    let mut objects = Map::new();
    for (name, target) in &outputs.objects {
        let matches = |(key, object): &&(&ObjectKey, Arc<Value>)| target.matches(key, object);
        let found: Vec<_> = shown.iter().filter(matches).collect();
        match found.as_slice() {
            [] => {}
            [(_, object)] => {
                objects.insert(name.clone(), Value::clone(object));
            }
            several => {
                let several: Vec<String> = several.iter().map(|(key, _)| key.to_string()).collect();
                evaluated.failed.push(format!(
                    "objects.{name} selects {}; narrow it to one of them",
                    several.join(" and ")
                ));
            }
        }
    }
    let mut values = watch.variables(resource);
    values.insert("objects".to_owned(), Value::Object(objects));
    let mut size = 0;
    for (name, expression) in &outputs.status {
        let value = match expression.evaluate(&values) {
            Ok(Outcome::Value(value)) => {
                size += value.to_string().len();
                Some(value).filter(|_| size <= MAX_SIZE)
            }
            Ok(Outcome::Missing(path)) => {
                evaluated.missing.push(format!("{name} waits for {path}"));
                None
            }
            Err(error) => {
                evaluated.failed.push(format!("{name}: {error}"));
                None
            }
        };
        evaluated.fields.insert(name.clone(), value);
    }
    if size > MAX_SIZE {
        let limit = MAX_SIZE / 1024;
        evaluated
            .failed
            .push(format!("the outputs have more than {limit} KiB"));
    }
    let mut conditions = outputs.ready_when.iter();
    evaluated.awaited =
        conditions.find_map(|condition| reason(condition, condition.evaluate(&values)));
    Some(evaluated)
}

/// Returns why a condition is not met; `None` if it is.
fn reason(condition: &Expression, outcome: Result<Outcome, EvaluationError>) -> Option<String> {
    match outcome {
        Ok(Outcome::Value(Value::Bool(true))) => None,
        Ok(Outcome::Value(Value::Bool(false))) => Some(unmet(condition, "it is false")),
        Ok(Outcome::Value(_)) => Some(unmet(condition, "it is neither true nor false")),
        Ok(Outcome::Missing(path)) => Some(unmet(condition, &format!("{path} is not there yet"))),
        Err(error) => Some(unmet(condition, &error.to_string())),
    }
}

fn unmet(condition: &Expression, why: &str) -> String {
    format!("waiting for readyWhen `{}`: {why}", condition.source())
}
