//! Positions in a text, and errors with positions.

use std::fmt;

use bounded::BudgetError;

/// A position in a YAML text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// Offset in bytes.
    pub offset: usize,
    /// Line, from 0.
    pub line: usize,
    /// Column in characters, from 0.
    pub column: usize,
}

/// An error in a YAML text, or a mismatch with the requested type.
///
/// [`Display`](fmt::Display) has the wording of Go's `yaml` package (`yaml: line 3: …`), which
/// Helm's users know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    message: String,
    mark: Mark,
    go_line: usize,
    /// Whether it is a conversion error, which Go prints without the `yaml:` prefix.
    is_conversion: bool,
    limit: Option<BudgetError>,
}

impl Error {
    /// Creates an error of converting YAML to JSON.
    pub(crate) fn conversion(message: impl Into<String>, mark: Mark) -> Self {
        Self {
            is_conversion: true,
            ..Self::at(message, mark)
        }
    }

    /// Creates an error of the scanner, which counts lines from 1.
    pub(crate) fn scanner(message: impl Into<String>, mark: Mark) -> Self {
        let go_line = if mark.line == 0 { 0 } else { mark.line + 1 };
        Self {
            go_line,
            ..Self::at(message, mark)
        }
    }

    /// Creates an error of the parser, for which Go counts lines from 0.
    pub(crate) fn parser(message: impl Into<String>, mark: Mark, context: Mark) -> Self {
        let go_line = if mark.line == 0 {
            context.line
        } else {
            mark.line
        };
        Self {
            go_line,
            ..Self::at(message, mark)
        }
    }

    /// Creates an error that Go prints without a line.
    pub(crate) fn at(message: impl Into<String>, mark: Mark) -> Self {
        Self {
            message: message.into(),
            mark,
            go_line: 0,
            is_conversion: false,
            limit: None,
        }
    }

    /// Adds the position to an exceeded limit.
    pub(crate) fn located(mut self, mark: Mark) -> Self {
        if self.limit.is_some() && self.mark == Mark::default() {
            self.mark = mark;
            self.go_line = mark.line + 1;
        }
        self
    }

    /// Returns the exceeded limit, if that is the error.
    pub fn budget(&self) -> Option<&BudgetError> {
        self.limit.as_ref()
    }

    /// Returns the error without its position.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the offset in bytes.
    pub(crate) fn offset(&self) -> usize {
        self.mark.offset
    }

    /// Returns the line, from 1.
    pub fn line(&self) -> usize {
        self.mark.line + 1
    }

    /// Returns the column in characters, from 1.
    pub fn column(&self) -> usize {
        self.mark.column + 1
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_conversion {
            f.write_str("yaml: ")?;
        }
        if self.go_line > 0 {
            write!(f, "line {}: ", self.go_line)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// A limit was exceeded.
impl From<BudgetError> for Error {
    fn from(error: BudgetError) -> Self {
        Self {
            limit: Some(error.clone()),
            ..Self::at(error.to_string(), Mark::default())
        }
    }
}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::at(message.to_string(), Mark::default())
    }
}

impl serde::ser::Error for Error {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::at(message.to_string(), Mark::default())
    }
}
