//! Errors in patterns, with the wording of Go's `regexp/syntax`.

use std::fmt;

use super::class::consumed;

/// The kind of an error in a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ErrorCode {
    /// A range such as `z-a`, or a class that does not exist.
    #[error("invalid character class range")]
    InvalidCharRange,
    /// An unknown escape.
    #[error("invalid escape sequence")]
    InvalidEscape,
    /// A bad name in `(?P<name>`.
    #[error("invalid named capture")]
    InvalidNamedCapture,
    /// Unknown syntax after `(?`.
    #[error("invalid or unsupported Perl syntax")]
    InvalidPerlOp,
    /// `a**` and similar.
    #[error("invalid nested repetition operator")]
    InvalidRepeatOp,
    /// More than 1000 repetitions, including nested ones, or `{2,1}`.
    #[error("invalid repeat count")]
    InvalidRepeatSize,
    /// The pattern is not UTF-8.
    #[error("invalid UTF-8")]
    InvalidUtf8,
    /// `[` without `]`.
    #[error("missing closing ]")]
    MissingBracket,
    /// `(` without `)`.
    #[error("missing closing )")]
    MissingParen,
    /// `*` with nothing before it.
    #[error("missing argument to repetition operator")]
    MissingRepeatArgument,
    /// The pattern ends with a backslash.
    #[error("trailing backslash at end of expression")]
    TrailingBackslash,
    /// `)` without `(`.
    #[error("unexpected )")]
    UnexpectedParen,
    /// Groups nested too deeply.
    #[error("expression nests too deeply")]
    NestingDepth,
    /// The compiled pattern would be too large.
    #[error("expression too large")]
    Large,
}

/// An error in a regular expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The kind of error.
    pub code: ErrorCode,
    /// The offending part of the pattern.
    pub expr: Vec<u8>,
}

impl Error {
    pub(super) fn new(code: ErrorCode, expr: &[u8]) -> Self {
        Self {
            code,
            expr: expr.to_vec(),
        }
    }

    /// Creates an error in the part of `s` before its suffix `rest`.
    pub(super) fn before(code: ErrorCode, s: &[u8], rest: &[u8]) -> Self {
        Self::new(code, consumed(s, rest))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expr = String::from_utf8_lossy(&self.expr);
        write!(f, "error parsing regexp: {}: `{expr}`", self.code)
    }
}

impl std::error::Error for Error {}
