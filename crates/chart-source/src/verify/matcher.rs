//! Names that a signature must have: one name, or those of a pattern.

use std::fmt;

use regex_automata::meta::Regex;

use super::{Name, VerifyError};
use crate::limits;

/// A name or a pattern that can be compared.
#[derive(Clone)]
pub(super) struct Matcher {
    name: Name,
    /// The pattern, compiled.
    pattern: Option<Regex>,
}

impl Matcher {
    /// Compiles a pattern. `what` is compared with it, for messages.
    pub(super) fn new(name: &Name, what: &'static str) -> Result<Self, VerifyError> {
        let pattern = match name {
            Name::Exact(_) => None,
            Name::Pattern(pattern) => {
                let wrong = |why: String| VerifyError::Pattern {
                    what,
                    pattern: pattern.clone(),
                    why,
                };
                // Alone first: with parentheses around it, `a)|(b` is an expression too.
                compile(pattern).map_err(&wrong)?;
                Some(compile(&format!(r"\A(?:{pattern})\z")).map_err(wrong)?)
            }
        };
        Ok(Self {
            name: name.clone(),
            pattern,
        })
    }

    /// Returns whether this is the name, or the pattern matches all of it.
    pub(super) fn matches(&self, found: &str) -> bool {
        match (&self.name, &self.pattern) {
            (Name::Exact(name), _) => name == found,
            (Name::Pattern(_), Some(pattern)) => pattern.is_match(found),
            (Name::Pattern(_), None) => false,
        }
    }

    pub(super) fn name(&self) -> &Name {
        &self.name
    }
}

fn compile(pattern: &str) -> Result<Regex, String> {
    let config = Regex::config().nfa_size_limit(Some(limits::PATTERN));
    let built = Regex::builder().configure(config).build(pattern);
    built.map_err(|error| {
        let syntax = error.syntax_error().map(ToString::to_string);
        let text = syntax.unwrap_or_else(|| error.to_string());
        // The lines before the last show the pattern, which the message has already.
        let last = text.lines().last().unwrap_or_default();
        last.trim_start_matches("error: ").to_owned()
    })
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Name::Exact(name) => write!(f, "{name:?}"),
            Name::Pattern(pattern) => write!(f, "what the pattern {pattern:?} matches as a whole"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_a_name_as_a_whole() {
        let matches = |pattern: &str, name: &str| {
            let name_or_pattern = Name::Pattern(pattern.to_owned());
            let matcher = Matcher::new(&name_or_pattern, "subject").unwrap();
            matcher.matches(name)
        };
        let subject =
            "https://github.com/example/charts/.github/workflows/release.yml@refs/tags/v1";
        for (pattern, expected) in [
            (r"https://github\.com/example/charts/.*", true),
            (r"^https://github\.com/example/charts/.*$", true),
            (r"https://github\.com/example/charts/", false),
            ("release", false),
            ("(?i)HTTPS://GITHUB.COM/EXAMPLE/.*", true),
            ("x|https://github.com/example/.*", true),
            ("https://github.com/example/charts|y", false),
            ("(?m)^.*$", true),
            ("", false),
        ] {
            assert_eq!(matches(pattern, subject), expected, "{pattern}");
        }
        assert!(!matches("(?m)^a$", "b\na"));
        assert!(!matches("a", "a\n"));
        assert!(!matches("^a$", "a\n"));
    }

    #[test]
    fn what_is_not_a_regular_expression_is_refused() {
        for (pattern, why) in [
            ("(", "unclosed group"),
            ("a)|(b", "unopened group"),
            ("[z-a]", "invalid character class range, "),
            (r"(a)\1", "backreferences are not supported"),
            ("a\n(", "unclosed group"),
            ("(?:a{1000}){1000}", ""),
        ] {
            let error = Name::pattern(pattern.to_owned(), "issuer").unwrap_err();
            let message = error.to_string();
            let begin = format!(
                "the pattern {pattern:?} for the issuer of a signature is not a regular expression: {why}"
            );
            assert!(message.starts_with(&begin), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
