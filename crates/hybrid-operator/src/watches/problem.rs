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
