//! Inputs of the values, and errors of computing them.

use std::collections::BTreeMap;

use helm_core::values::SetError;
use serde_json::Value;

use helm_release::engine::DesiredError;

use super::environment::Environment;
use super::values_from::Reference;

/// Error computing values.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ValuesError {
    #[error("spec must be a map of values for the chart, but it is {0}")]
    NoMap(&'static str),
    #[error("invalid template in watches.yaml, field {field}")]
    Parse {
        field: String,
        #[source]
        source: Box<go_template::ParseError>,
    },
    #[error("cannot evaluate the template in watches.yaml, field {field}")]
    Render {
        field: String,
        #[source]
        source: Box<go_template::RenderError>,
    },
    #[error("the template in watches.yaml, field {field}, must produce UTF-8 text or a JSON value")]
    Result { field: String },
    #[error("cannot evaluate the expression in watches.yaml, field {field}")]
    Expression {
        field: String,
        #[source]
        source: Box<object_cel::EvaluationError>,
    },
    #[error("cannot set the path {field} of watches.yaml")]
    Set {
        field: String,
        #[source]
        source: Box<SetError>,
    },
    #[error(
        "{kind} {name} does not exist or has no key {key}; create it, or make the reference optional"
    )]
    Missing {
        kind: String,
        name: String,
        key: String,
    },
    #[error("{kind} {name}, key {key}, is not a YAML map of values")]
    File {
        kind: String,
        name: String,
        key: String,
        /// The parse error, without the content.
        #[source]
        source: Box<helm_core::values::ValuesError>,
    },
}

impl ValuesError {
    /// Returns the message of a failed template without the contents of values.
    pub(crate) fn without_contents(&self) -> Option<String> {
        match self {
            Self::Render { source, .. } => {
                Some(format!("{self}: {}", source.without_values().message()))
            }
            Self::Expression { .. } => Some(self.to_string()),
            _ => None,
        }
    }
}

impl From<ValuesError> for DesiredError {
    fn from(error: ValuesError) -> Self {
        Self::Values {
            hidden: error.without_contents(),
            source: error.into(),
        }
    }
}

/// Data of the referenced objects.
pub(crate) type Contents = BTreeMap<Reference, BTreeMap<String, String>>;

/// Inputs of the values besides the entry of `watches.yaml`.
pub(crate) struct Inputs<'a> {
    /// Custom resource.
    pub object: &'a Value,
    /// Environment variables.
    pub env: &'a Environment,
    /// Contents of referenced objects.
    pub references: &'a Contents,
}
