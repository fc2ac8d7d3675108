//! Patterns that mean the same in ECMAScript, which schemas are written in, and here.

use std::sync::OnceLock;

use regex_automata::meta::Regex;

use super::Verdict;

/// A pattern of letters, digits, classes, groups and simple repetitions.
#[derive(Debug)]
pub(super) struct Pattern {
    text: String,
    /// Compiled when a text is first held against it.
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// `None` if it has more than that, or is no pattern.
    pub(super) fn new(text: String) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b" _-/:,.^$|()[]+*?".contains(&byte);
        // Non-capturing groups, and what classes mean only here.
        let special = ["(?", "[[", "--"];
        let is_plain = text.bytes().all(plain) && !special.iter().any(|part| text.contains(part));
        if !is_plain || regex_syntax::parse(&text).is_err() {
            return None;
        }
        Some(Self {
            text,
            compiled: OnceLock::new(),
        })
    }

    /// Whether a text matches.
    pub(super) fn check(&self, text: &[u8]) -> Verdict {
        // The dot excludes other line ends there.
        if !text.iter().all(|byte| (b' '..=b'~').contains(byte)) {
            return Verdict::Unknown;
        }
        let compiled = self.compiled.get_or_init(|| Regex::new(&self.text).ok());
        match compiled {
            Some(regex) => regex.is_match(text).into(),
            None => Verdict::Unknown,
        }
    }
}
