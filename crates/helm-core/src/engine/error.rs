//! Why a chart does not render.

use std::fmt::Write as _;

use go_template::{BudgetError, Frame};

use super::include::{self, Warning};
use super::{LookupKey, MAX_LOOKUPS};
use crate::manifest::ManifestError;

/// Why a chart does not render.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// A file is no template.
    #[error("parse error at ({location}): {message}")]
    Parse {
        /// Template and line.
        location: String,
        /// What is wrong.
        message: String,
        /// The line, with a caret.
        excerpt: String,
    },
    /// A template failed.
    #[error("{message}")]
    Execution {
        /// What Helm prints: template, line and column, and what is wrong, for each template that
        /// was being executed.
        message: String,
        /// The line of the innermost template, with a caret, and the chain of includes.
        excerpt: String,
    },
    /// Objects that a `lookup` asked for are not in the snapshot: fetch them and render again.
    #[error("the templates look up {} objects that were not fetched", .0.len())]
    NeedsLookup(Vec<LookupKey>),
    /// The templates ask for more different objects than they may, those that were fetched for
    /// earlier rounds among them.
    #[error(
        "the templates look up more than {MAX_LOOKUPS} different objects; look up a list instead of single names"
    )]
    TooManyLookups,
    /// The render was cancelled: its [`Cancel`](super::Cancel) says so. Templates look at it
    /// between any two steps. One call of a function is not interrupted, such as that which makes
    /// an RSA key, nor is the reading of one document.
    #[error("the render was cancelled")]
    Cancelled,
    /// Sorting what the templates wrote goes over a limit of the render.
    #[error("cannot sort the rendered documents")]
    Limit(#[source] BudgetError),
    /// The chart does not run on this version of Kubernetes.
    #[error(
        "chart requires kubeVersion: {constraint} which is incompatible with Kubernetes {version}"
    )]
    KubeVersion {
        /// What `Chart.yaml` asks for.
        constraint: String,
        /// What the cluster has.
        version: String,
    },
    /// The chart only lends its templates to others.
    #[error("{0} charts are not installable")]
    NotInstallable(String),
    /// `Chart.yaml` names dependencies that the chart does not hold.
    #[error("found in Chart.yaml, but missing in charts/ directory: {}", .0.join(", "))]
    MissingDependencies(Vec<String>),
    /// A rendered document is no YAML, or its head is malformed.
    #[error("YAML parse error on {template}: {message}")]
    Yaml {
        /// The template.
        template: String,
        /// What is wrong.
        message: String,
    },
    /// A rendered document is no Kubernetes object.
    #[error(transparent)]
    Object(#[from] ManifestError),
}

impl RenderError {
    /// A file that is no template.
    pub(super) fn from_parse(error: &go_template::ParseError) -> Self {
        let location = error.location();
        Self::Parse {
            location: format!("{}:{}", location.file, location.line),
            message: error.message().to_owned(),
            excerpt: error.report().to_string(),
        }
    }

    /// A template that failed, in the words of Helm.
    pub(super) fn from_execution(error: &go_template::RenderError) -> Self {
        let frames = error.frames();
        let outermost = frames.iter().find_map(|frame| frame.location.as_ref());
        let message = match (error.host::<Warning>(), outermost) {
            (Some(Warning(message)), Some(location)) => {
                format!("execution error at ({location}): {message}")
            }
            _ => traced(error, &frames),
        };
        Self::Execution {
            message,
            excerpt: include::without_marks(&error.report().to_string()),
        }
    }

    /// The reason for events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Parse { .. } => "TemplateSyntax",
            Self::Execution { .. } => "TemplateFailed",
            Self::NeedsLookup(_) => "NeedsLookup",
            Self::TooManyLookups => "TooManyLookups",
            Self::Cancelled => "Cancelled",
            Self::Limit(_) => "LimitExceeded",
            Self::KubeVersion { .. } => "IncompatibleKubernetes",
            Self::NotInstallable(_) => "NotInstallable",
            Self::MissingDependencies(_) => "MissingDependencies",
            Self::Yaml { .. } | Self::Object(_) => "InvalidManifest",
        }
    }

    /// The source line with a caret, and the chain of includes; empty where there is none.
    pub fn excerpt(&self) -> &str {
        match self {
            Self::Parse { excerpt, .. } | Self::Execution { excerpt, .. } => excerpt,
            _ => "",
        }
    }
}

impl From<BudgetError> for RenderError {
    fn from(error: BudgetError) -> Self {
        match error {
            BudgetError::Cancelled => Self::Cancelled,
            error => Self::Limit(error),
        }
    }
}

/// Every template that was being executed, outermost first: its place, what it was doing, and for
/// the innermost what went wrong.
fn traced(error: &go_template::RenderError, frames: &[Frame]) -> String {
    let mut text = String::new();
    for (depth, frame) in frames.iter().enumerate() {
        match &frame.location {
            Some(location) => {
                let _ = writeln!(text, "{location}");
                let _ = writeln!(
                    text,
                    "  executing {:?} at <{}>:",
                    frame.template, frame.node
                );
            }
            None => {
                let _ = writeln!(text, "{}", frame.template);
            }
        }
        if depth + 1 == frames.len() {
            let _ = write!(text, "    {}", error.message());
        }
    }
    text
}
