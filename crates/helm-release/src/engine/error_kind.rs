//! Kinds of errors, by what is missing.

/// Kind of what an attempt lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The values.
    Values,
    /// Patches of the owner that can be applied.
    Patches,
    /// The kinds that the API server serves.
    Capabilities,
    /// The records of the release.
    Records,
    /// Objects that the chart renders and that can be applied.
    Chart,
}

impl ErrorKind {
    /// Returns the name of the error.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Values => "ErrorGettingValues",
            Self::Patches => "PatchesRefused",
            Self::Capabilities => "ErrorGettingClient",
            Self::Records => "ErrorGettingReleaseState",
            Self::Chart => "ReconcileError",
        }
    }
}
