//! Mistakes in `watches.yaml`.

/// One mistake in a watches file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line, counted from 1; 0 if the mistake concerns the whole file.
    pub line: usize,
    /// Column, counted from 1.
    pub column: usize,
    /// The field, such as `[0].install.timeout`; empty for the whole file.
    pub field: String,
    /// Description of the mistake and, if known, of the fix.
    pub message: String,
}

/// A mistake in an entry that only its chart shows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Mistake {
    /// The field of the entry, such as `status.url`.
    pub(super) field: String,
    pub(super) message: String,
}

impl Mistake {
    pub(super) fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

/// A mistake of the chart.
impl From<String> for Mistake {
    fn from(message: String) -> Self {
        Self::new("chart", message)
    }
}
