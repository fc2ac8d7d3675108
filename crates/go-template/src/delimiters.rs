//! The texts that enclose actions.

use crate::value::Str;

/// The texts that enclose actions, `{{` and `}}` by default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delimiters {
    pub(crate) left: Str,
    pub(crate) right: Str,
}

impl Delimiters {
    /// Creates delimiters; an empty text stands for the default, as in Go.
    pub(crate) fn new(left: Str, right: Str) -> Self {
        let or = |text: Str, default| {
            if text.is_empty() {
                Str::from_static(default)
            } else {
                text
            }
        };
        Self {
            left: or(left, "{{"),
            right: or(right, "}}"),
        }
    }
}

impl Default for Delimiters {
    fn default() -> Self {
        Self::new(Str::EMPTY, Str::EMPTY)
    }
}
