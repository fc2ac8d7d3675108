//! Outputs of a release: evaluates what the status shows of its objects, and whether the custom resource is ready.

use std::collections::BTreeMap;
use std::sync::Arc;

use helm_core::manifest::ObjectKey;
use helm_release::engine::{Live, RenderPool};
use object_cel::{EvaluationError, Expression, Outcome};
use serde_json::{Map, Value};

use crate::watches::{Outputs, Watch};

/// Maximum size of all outputs of a custom resource, in bytes of JSON.
const MAX_SIZE: usize = 256 * 1024;

/// Steps of an expression that are evaluated on the threads of the runtime: some milliseconds at most.
const FEW: u64 = 10_000;

/// Numbers among the outputs of a release, with their names.
pub(crate) type Numbers = Box<[(String, f64)]>;

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

impl Evaluated {
    /// Returns the numbers among these outputs, but those that are computed from Secrets; `true` is 1.
    pub(super) fn numbers(&self, outputs: &Outputs) -> Numbers {
        let numbers = self.fields.iter().filter_map(|(name, value)| {
            let number = match value.as_ref()? {
                Value::Bool(value) => f64::from(u8::from(*value)),
                value => value.as_f64()?,
            };
            outputs.is_public(name).then(|| (name.clone(), number))
        });
        numbers.collect()
    }
}

/// An evaluation of the expressions of an entry for a custom resource.
#[derive(Clone)]
pub(super) struct Evaluation {
    outputs: Arc<Outputs>,
    /// Variables of the expressions; `None` if the objects are not known.
    values: Option<BTreeMap<String, Value>>,
    /// Names that select several objects.
    failed: Vec<String>,
}

impl Evaluation {
    /// Returns the evaluation; `None` if there is nothing to say.
    pub(super) fn of(watch: &Watch, resource: &Value, live: &Live) -> Option<Self> {
        let outputs = &watch.outputs;
        if outputs.is_empty() {
            return None;
        }
        let mut evaluation = Self {
            outputs: Arc::clone(outputs),
            values: None,
            failed: Vec::new(),
        };
        let shown = live
            .fields(&watch.policy.kept_fields)
            .filter(|_| live.complete);
        let Some(shown) = shown else {
            return Some(evaluation);
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
                    let several: Vec<String> =
                        several.iter().map(|(key, _)| key.to_string()).collect();
                    evaluation.failed.push(format!(
                        "objects.{name} selects {}; narrow it to one of them",
                        several.join(" and ")
                    ));
                }
            }
        }
        let mut values = watch.variables(resource);
        values.insert("objects".to_owned(), Value::Object(objects));
        evaluation.values = Some(values);
        Some(evaluation)
    }

    /// Evaluates the expressions, in the pool if that takes long.
    pub(super) async fn run(self, pool: &RenderPool) -> Evaluated {
        if let Some(evaluated) = self.evaluate(FEW) {
            return evaluated;
        }
        let done = pool.run(move |_| self.evaluate(u64::MAX).unwrap_or_default());
        done.await.unwrap_or_else(|error| Evaluated {
            awaited: Some(format!("the outputs cannot be evaluated: {error}")),
            ..Evaluated::default()
        })
    }

    /// Evaluates each expression in at most this number of steps; `None` if one takes more that are allowed.
    fn evaluate(&self, steps: u64) -> Option<Evaluated> {
        let outputs = &self.outputs;
        let Some(values) = &self.values else {
            let conditions = outputs.ready_when.first();
            return Some(Evaluated {
                awaited: conditions.map(|first| unmet(first, "its objects are not seen yet")),
                ..Evaluated::default()
            });
        };
        let mut evaluated = Evaluated {
            is_known: true,
            failed: self.failed.clone(),
            ..Evaluated::default()
        };
        let mut size = 0;
        for (name, expression) in &outputs.status {
            let value = match within(steps, expression, values)? {
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
        for condition in &outputs.ready_when {
            evaluated.awaited = reason(condition, within(steps, condition, values)?);
            if evaluated.awaited.is_some() {
                break;
            }
        }
        Some(evaluated)
    }
}

/// Evaluates an expression; `None` if it takes more than these steps, and more are allowed.
fn within(
    steps: u64,
    expression: &Expression,
    values: &BTreeMap<String, Value>,
) -> Option<Result<Outcome, EvaluationError>> {
    match expression.evaluate_within(steps, values) {
        Err(EvaluationError::TooManySteps { max, .. }) if max == steps => None,
        outcome => Some(outcome),
    }
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;
    use crate::watches::parse;

    /// Returns the evaluation of an output over this spec.
    fn evaluation(expression: &str, spec: Value) -> Evaluation {
        let text = format!(
            "- {{group: g.example.com, version: v1, kind: Cache, chart: c, status: {{out: {expression:?}}}}}"
        );
        let (mut entries, problems) = parse(text.as_bytes(), Path::new(""));
        assert_eq!(problems, []);
        Evaluation {
            outputs: entries.remove(0).watch.outputs,
            values: Some([("spec".to_owned(), spec)].into()),
            failed: Vec::new(),
        }
    }

    #[tokio::test]
    async fn long_evaluations_leave_the_threads_of_the_runtime_to_others() {
        let pool = RenderPool::default();
        let spec = json!({"list": vec![1; 120]});
        let short = evaluation("size(spec.list)", spec.clone()).run(&pool);
        let short = short.now_or_never().expect("it is evaluated at once");
        assert_eq!(short.fields["out"], Some(json!(120)));

        let pairs = "size(spec.list.filter(a, spec.list.exists(b, a + b == 3)))";
        let mut long = Box::pin(evaluation(pairs, spec.clone()).run(&pool));
        assert!((&mut long).now_or_never().is_none());
        assert_eq!(long.await.fields["out"], Some(json!(0)));

        let endless =
            "size(spec.list.filter(a, spec.list.exists(b, spec.list.exists(c, a + b + c == 4))))";
        let failed = evaluation(endless, spec).run(&pool).await.failed;
        assert!(
            failed[0].starts_with("out: more than 1000000 steps"),
            "{failed:?}"
        );
    }
}
