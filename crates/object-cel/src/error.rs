//! What is wrong with an expression, and why an evaluation failed.

use std::fmt;

use thiserror::Error;

/// An expression that cannot be used, with the place of the mistake in its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    /// What is wrong.
    pub message: String,
    /// The line in the text of the expression, from 1.
    pub line: usize,
    /// The column in that line, in characters, from 1.
    pub column: usize,
}

/// Formats as `1:9: StatefulSetStatus has no field readyReplica; did you mean readyReplicas?`.
impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ExpressionError {}

/// An evaluation that has no result. A field that is not there is no error, see [`Outcome`](crate::Outcome).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// A given value is not of its declared type.
    #[error("{path} is not a value of type {type_}")]
    Value {
        /// The path of the value.
        path: String,
        /// The type that it should have.
        type_: String,
    },
    /// An operation failed, such as a division by zero.
    #[error("{0}")]
    Operation(String),
    /// The evaluation would take too long.
    #[error("more than {max} steps{}", for_list(list.as_ref()))]
    TooManySteps {
        /// The limit.
        max: u64,
        /// The path and the length of the longest list or map in a loop around the last step, or in its call.
        list: Option<(String, usize)>,
    },
    /// The result is too large.
    #[error("the result has more than {max} bytes of JSON")]
    TooLarge {
        /// The limit.
        max: usize,
    },
    /// A number of the result does not exist in JSON.
    #[error("the result contains {0}, which JSON does not have")]
    NotFinite(String),
}

fn for_list(list: Option<&(String, usize)>) -> String {
    list.map_or_else(String::new, |(path, length)| {
        format!(" for {path}, which has {length} elements")
    })
}
