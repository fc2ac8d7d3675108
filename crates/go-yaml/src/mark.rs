//! Positions in a text, and the errors that name them.

use std::fmt;

/// A position in a YAML text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// Bytes from the start.
    pub offset: usize,
    /// Line, counted from 0.
    pub line: usize,
    /// Column in characters, counted from 0.
    pub column: usize,
}

/// Why a text is not YAML, or not what was asked for.
///
/// [`Display`](fmt::Display) words it as Go's `yaml` package does (`yaml: line 3: …`), since
/// Helm's users know these messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    message: String,
    mark: Mark,
    go_line: usize,
    /// Whether it comes from what Go does with YAML, and so has no `yaml:` in front.
    beyond: bool,
}

impl Error {
    /// An error of what is made of the YAML: its JSON.
    pub(crate) fn beyond(message: impl Into<String>, mark: Mark) -> Self {
        Self {
            beyond: true,
            ..Self::at(message, mark)
        }
    }

    /// An error of the scanner, which reports lines counted from 1.
    pub(crate) fn scanner(message: impl Into<String>, mark: Mark) -> Self {
        let go_line = if mark.line == 0 { 0 } else { mark.line + 1 };
        Self {
            message: message.into(),
            mark,
            go_line,
            beyond: false,
        }
    }

    /// An error of the parser; Go reports its lines counted from 0.
    pub(crate) fn parser(message: impl Into<String>, mark: Mark, context: Mark) -> Self {
        let go_line = if mark.line == 0 {
            context.line
        } else {
            mark.line
        };
        Self {
            message: message.into(),
            mark,
            go_line,
            beyond: false,
        }
    }

    /// An error without a line in Go's wording.
    pub(crate) fn at(message: impl Into<String>, mark: Mark) -> Self {
        Self {
            message: message.into(),
            mark,
            go_line: 0,
            beyond: false,
        }
    }

    /// What is wrong, without the place.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The line, counted from 1.
    pub fn line(&self) -> usize {
        self.mark.line + 1
    }

    /// The column in characters, counted from 1.
    pub fn column(&self) -> usize {
        self.mark.column + 1
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.beyond {
            f.write_str("yaml: ")?;
        }
        if self.go_line > 0 {
            write!(f, "line {}: ", self.go_line)?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

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
