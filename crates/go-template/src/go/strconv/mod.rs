//! Go's `strconv`: conversion between text and numbers, and quoting.
//!
//! The verbs of `fmt` and Sprig's conversions are built on these functions; nothing else in the
//! crate formats floats or quotes strings.

mod float;
mod hexfloat;
mod int;
mod quote;
mod unquote;

pub use float::{Digits, format_float, parse_float};
pub use int::{atoi, format_int, parse_bool, parse_int, parse_uint, push_int, push_uint};
pub(crate) use quote::quoted;
pub use quote::{
    can_backquote, push_quoted, push_quoted_ascii, push_quoted_rune, quote, quote_rune,
    quote_to_ascii,
};
pub use unquote::{Unquoted, unquote, unquote_char};

/// The kind of a number conversion error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NumErrorKind {
    /// The text is malformed.
    #[error("invalid syntax")]
    Syntax,
    /// The number does not fit.
    #[error("value out of range")]
    Range,
}

/// A failed conversion. Go returns a value along with the error, and callers that ignore the error
/// rely on it.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("{kind}")]
pub struct NumError<T: std::fmt::Debug> {
    /// The kind of error.
    pub kind: NumErrorKind,
    /// The value that Go returns along with the error: zero for bad syntax, the nearest
    /// representable value for a range error.
    pub value: T,
}

impl<T: std::fmt::Debug + Default> NumError<T> {
    fn syntax() -> Self {
        Self {
            kind: NumErrorKind::Syntax,
            value: T::default(),
        }
    }

    fn range(value: T) -> Self {
        Self {
            kind: NumErrorKind::Range,
            value,
        }
    }

    /// Returns Go's text: `strconv.ParseInt: parsing "x": invalid syntax`.
    pub fn describe(&self, function: &str, input: &[u8]) -> String {
        let (input, kind) = (quoted(input), self.kind);
        format!("strconv.{function}: parsing {input}: {kind}")
    }
}

/// Splits off a sign, and returns whether it is a minus.
pub(super) fn split_sign(s: &[u8]) -> (bool, &[u8]) {
    match s {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, s),
    }
}

/// Returns whether underscores occur only between digits, or between a base prefix and a digit.
fn underscores_ok(s: &[u8]) -> bool {
    #[derive(PartialEq)]
    enum Saw {
        Start,
        Digit,
        Underscore,
        Other,
    }
    let (_, s) = split_sign(s);
    let (mut saw, hex, digits) = match s {
        [b'0', b'x' | b'X', rest @ ..] => (Saw::Digit, true, rest),
        [b'0', b'b' | b'B' | b'o' | b'O', rest @ ..] => (Saw::Digit, false, rest),
        _ => (Saw::Start, false, s),
    };
    for &c in digits {
        if c.is_ascii_digit() || hex && c.is_ascii_hexdigit() {
            saw = Saw::Digit;
        } else if c == b'_' {
            if saw != Saw::Digit {
                return false;
            }
            saw = Saw::Underscore;
        } else {
            if saw == Saw::Underscore {
                return false;
            }
            saw = Saw::Other;
        }
    }
    saw != Saw::Underscore
}
