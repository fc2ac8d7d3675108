//! Patterns that mean the same in ECMAScript, the dialect of schemas, and in the regex crate.

use std::sync::OnceLock;

use regex_automata::meta::Regex;

use super::Verdict;

/// A pattern of letters, digits, classes, groups and simple repetitions.
#[derive(Debug)]
pub(super) struct Pattern {
    text: String,
    /// Compiled on first use.
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// Returns `None` if the pattern uses anything else or is invalid.
    pub(super) fn new(text: String) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b" _-/:,.^$|()[]+*?".contains(&byte);
        // Non-capturing groups, and class syntax that only the regex crate has.
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

    /// Returns whether a text matches.
    pub(super) fn check(&self, text: &[u8]) -> Verdict {
        // The dot excludes other line terminators in ECMAScript.
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
