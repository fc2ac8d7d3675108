//! Why a chart does not render.

use super::LookupKey;
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
    /// The reason for events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Parse { .. } => "TemplateSyntax",
            Self::Execution { .. } => "TemplateFailed",
            Self::NeedsLookup(_) => "NeedsLookup",
            Self::KubeVersion { .. } => "IncompatibleKubernetes",
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
