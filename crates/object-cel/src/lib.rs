#![doc = include_str!("../README.md")]

mod built_in;
mod calls;
mod check;
mod error;
mod evaluate;
mod format;
mod functions;
mod libraries;
mod node;
mod pattern;
mod schema;
mod source;
mod text;
mod time;
mod types;
mod unify;
mod value;

use std::collections::BTreeMap;

use serde_json::Value;

pub use built_in::built_in;
pub use error::{EvaluationError, ExpressionError};
pub use schema::SchemaError;
pub use types::{Library, ObjectType, Type};

use evaluate::Run;
use node::Node;
use source::Source;
use value::{MAX_STEPS, Stop};

/// The variables that expressions may use, and their types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<String, Type>);

impl Variables {
    /// Adds a variable. An expression can use it if its name is an identifier of CEL.
    #[must_use]
    pub fn with(mut self, name: &str, type_: Type) -> Self {
        self.0.insert(name.to_owned(), type_);
        self
    }

    /// Returns the type of a variable.
    pub fn get(&self, name: &str) -> Option<&Type> {
        self.0.get(name)
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// An expression whose types are checked.
#[derive(Clone, Debug)]
pub struct Expression {
    text: String,
    node: Node,
    type_: Type,
    reads: check::Reads,
    variables: Variables,
}

/// Equal expressions were written the same, for variables of the same types.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.variables == other.variables
    }
}

/// What an evaluation has found.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The result. Bytes are in base64, durations as `1h30m0s`, and points in time in RFC 3339 in UTC.
    Value(Value),
    /// The path of a field, an element or a key that the result depends on and that is not there (yet), such as
    /// `objects.master.status.readyReplicas`.
    Missing(String),
}

impl Expression {
    /// Parses an expression and checks its types.
    ///
    /// It has at most 4 KiB, at most 32 levels of operators, fields and brackets, and at most three loops within each
    /// other.
    ///
    /// ```
    /// use object_cel::{Expression, Type, Variables};
    /// let variables = Variables::default().with("replicas", Type::Int);
    /// let error = Expression::parse("'has ' + replicas", &variables).unwrap_err();
    /// assert_eq!(error.to_string(), "1:8: there is no + for string and int; convert with string(...)");
    /// ```
    pub fn parse(source: &str, variables: &Variables) -> Result<Self, ExpressionError> {
        let text = source.to_owned();
        let (source, tree) = Source::parse(source)?;
        let checked = check::check(&source, &tree, variables);
        let checked = checked.map_err(|wrong| source.locate(wrong))?;
        let used = |(name, _): &(&String, &Type)| {
            checked.reads.iter().any(|path| path.first() == Some(*name))
        };
        let variables = variables.0.iter().filter(used);
        Ok(Self {
            text,
            variables: Variables(
                variables
                    .map(|(name, type_)| (name.clone(), type_.clone()))
                    .collect(),
            ),
            node: checked.node,
            type_: checked.type_,
            reads: checked.reads,
        })
    }

    /// Returns the expression as it was written.
    pub fn source(&self) -> &str {
        &self.text
    }

    /// Returns the type of the result.
    pub fn result(&self) -> &Type {
        &self.type_
    }

    /// Returns the paths of the fields that it reads, each of which begins with a variable. The path of an element ends
    /// with its list.
    pub fn reads(&self) -> impl Iterator<Item = &[String]> {
        self.reads.iter().map(Vec::as_slice)
    }

    /// Evaluates the expression with these values of variables.
    ///
    /// It takes at most 1,000,000 steps, of which each operator, each element of a list and ten bytes of text are one,
    /// and the result has at most 64 KiB of JSON.
    pub fn evaluate(&self, values: &BTreeMap<String, Value>) -> Result<Outcome, EvaluationError> {
        self.evaluate_within(MAX_STEPS, values)
    }

    /// Evaluates the expression as [`evaluate`](Self::evaluate) does, in at most `steps` steps.
    pub fn evaluate_within(
        &self,
        steps: u64,
        values: &BTreeMap<String, Value>,
    ) -> Result<Outcome, EvaluationError> {
        let mut run = Run::new(values, &self.variables, steps.min(MAX_STEPS));
        let written = run
            .value(&self.node)
            .and_then(|value| value::write(&value, &mut run.budget));
        match written {
            Ok(value) => Ok(Outcome::Value(value)),
            Err(Stop::Missing(path)) => Ok(Outcome::Missing(path)),
            Err(Stop::Failed(error)) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_can_be_shared_between_threads() {
        fn is_shared<T: Send + Sync + Clone + 'static>() {}
        is_shared::<Expression>();
    }
}
