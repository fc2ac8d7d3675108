//! Errors of rendering a chart.

use std::fmt::Write as _;

use go_template::{BudgetError, Frame};

use super::include::{self, Warning};
use super::{LookupKey, MAX_LOOKUPS};
use crate::chart::LoadError;
use crate::manifest::ManifestError;

/// An error while loading and compiling a chart.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The chart cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A template of the chart cannot be parsed.
    #[error(transparent)]
    Compile(#[from] RenderError),
}

/// An error while rendering a chart.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum RenderError {
    /// A file is not a valid template.
    #[error("parse error at ({location}): {message}")]
    Parse {
        /// Template name and line.
        location: String,
        message: String,
        /// The line with a caret.
        excerpt: String,
    },
    /// A template failed.
    #[error("{message}")]
    Execution {
        /// Helm's message: template, line, column and error for each template that was being
        /// executed.
        message: String,
        /// The line of the innermost template with a caret, and the chain of includes.
        excerpt: String,
        /// The exceeded limit, if that is the error.
        limit: Option<BudgetError>,
        /// The message with the contents of values, if `message` leaves them out.
        quoting: Option<Box<str>>,
        /// Whether the author of the chart wrote the message, for `fail` or `required`.
        is_by_author: bool,
    },
    /// Objects that a `lookup` needs are not in the snapshot: fetch them and render again.
    #[error("the templates look up {} objects that were not fetched", .0.len())]
    NeedsLookup(Vec<LookupKey>),
    /// The templates look up more objects than allowed, including those fetched for earlier rounds.
    #[error(
        "the templates look up more than {MAX_LOOKUPS} different objects; look up a list instead of single names"
    )]
    TooManyLookups,
    /// The render was cancelled through its [`Cancel`](super::Cancel), which is checked between any
    /// two steps. A single function call, such as generating an RSA key, and the parsing of one
    /// document are not interrupted.
    #[error("the render was cancelled")]
    Cancelled,
    /// Sorting the documents of a template exceeded a limit.
    #[error("cannot sort the documents that {template} renders: {limit}")]
    Limit {
        template: String,
        limit: BudgetError,
    },
    /// The chart does not support this version of Kubernetes.
    #[error(
        "chart requires kubeVersion: {constraint} which is incompatible with Kubernetes {version}"
    )]
    KubeVersion {
        /// The constraint in `Chart.yaml`.
        constraint: String,
        /// The version of the cluster.
        version: String,
    },
    /// The chart is a library chart.
    #[error("{0} charts are not installable")]
    NotInstallable(String),
    /// `Chart.yaml` lists dependencies that the chart does not contain.
    #[error("found in Chart.yaml, but missing in charts/ directory: {}", .0.join(", "))]
    MissingDependencies(Vec<String>),
    /// A rendered document is not YAML, or its head is malformed.
    #[error(
        "YAML parse error on {template}: {message} (line {line}, column {column} of what the template renders, in its document {document})"
    )]
    Yaml {
        template: String,
        /// The number of the document in the output of the template, from 1.
        document: usize,
        /// The line of the output of the template, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        message: String,
        /// The rendered line with a caret.
        excerpt: Box<str>,
        /// The exceeded limit, if that is the error.
        limit: Option<BudgetError>,
    },
    /// A rendered document is not a Kubernetes object.
    #[error(transparent)]
    Object(#[from] ManifestError),
}

impl RenderError {
    /// Converts a parse error.
    pub(super) fn from_parse(error: &go_template::ParseError) -> Self {
        let location = error.location();
        Self::Parse {
            location: format!("{}:{}", location.file, location.line),
            message: error.message().to_owned(),
            excerpt: error.report().to_string(),
        }
    }

    /// Converts an execution error to Helm's wording, with the contents of values only if `shows` says so.
    pub(super) fn from_execution(error: &go_template::RenderError, shows: bool) -> Self {
        let hidden = error.without_values();
        let (frames, problem, excerpt) = if shows {
            (error.frames(), error.message(), error.report().to_string())
        } else {
            (
                hidden.frames(),
                hidden.message(),
                hidden.report().to_string(),
            )
        };
        let outermost = frames.iter().find_map(|frame| frame.location.as_ref());
        let (message, is_by_author) = match (error.host::<Warning>(), outermost) {
            (Some(Warning(message)), Some(location)) => {
                (format!("execution error at ({location}): {message}"), true)
            }
            _ => (traced(&problem, &frames), false),
        };
        let is_hidden = !shows && !is_by_author;
        let quoting = is_hidden.then(|| traced(&error.message(), &error.frames()).into());
        Self::Execution {
            message,
            excerpt: include::without_marks(&excerpt),
            limit: error.budget().cloned(),
            quoting,
            is_by_author,
        }
    }

    /// Converts an exceeded limit of sorting the documents of a template.
    pub(crate) fn from_sorting(template: &str, error: BudgetError) -> Self {
        match error {
            BudgetError::Cancelled => Self::Cancelled,
            limit => Self::Limit {
                template: template.to_owned(),
                limit,
            },
        }
    }

    /// Returns the exceeded limit of [`RenderInput::limits`](super::RenderInput::limits), if that is
    /// the error.
    pub fn limit(&self) -> Option<&BudgetError> {
        match self {
            Self::Execution { limit, .. } | Self::Yaml { limit, .. } => limit.as_ref(),
            Self::Limit { limit, .. } => Some(limit),
            _ => None,
        }
    }

    /// Returns the message with the contents of values, for readers who may see all values, if that of
    /// `Display` leaves them out.
    pub fn quoting(&self) -> Option<&str> {
        match self {
            Self::Execution { quoting, .. } => quoting.as_deref(),
            _ => None,
        }
    }

    /// Returns whether the author of the chart wrote the message, for `fail` or `required`.
    pub fn is_by_author(&self) -> bool {
        matches!(self, Self::Execution { is_by_author, .. } if *is_by_author)
    }

    /// Returns the reason for events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Parse { .. } => "TemplateSyntax",
            Self::Execution { .. } => "TemplateFailed",
            Self::NeedsLookup(_) => "NeedsLookup",
            Self::TooManyLookups => "TooManyLookups",
            Self::Cancelled => "Cancelled",
            Self::Limit { .. } => "LimitExceeded",
            Self::KubeVersion { .. } => "IncompatibleKubernetes",
            Self::NotInstallable(_) => "NotInstallable",
            Self::MissingDependencies(_) => "MissingDependencies",
            Self::Yaml { .. } | Self::Object(_) => "InvalidManifest",
        }
    }

    /// Returns the source line with a caret and the chain of includes, or an empty string.
    pub fn excerpt(&self) -> &str {
        match self {
            Self::Parse { excerpt, .. } | Self::Execution { excerpt, .. } => excerpt,
            Self::Yaml { excerpt, .. } => excerpt,
            _ => "",
        }
    }
}

/// Returns the trace of the templates being executed, outermost first: position and action, and the
/// error for the innermost.
fn traced(problem: &str, frames: &[Frame]) -> String {
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
            let _ = write!(text, "    {problem}");
        }
    }
    text
}
