//! Regular expressions of RE2, which Kubernetes has, in the syntax of the crate `regex`: classes such as `\d` are those
//! of ASCII, and what only one of both knows is refused.

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;
use std::sync::Arc;

use regex_automata::meta::Regex;

use crate::node::Pattern;

/// Limit on a pattern, in bytes.
const MAX_LENGTH: usize = 500;

/// Limit on a compiled pattern, in bytes.
const MAX_SIZE: usize = 1 << 20;

/// Limit on repetitions, as in RE2.
const MAX_REPETITIONS: u32 = 1000;

/// Compiles a pattern.
pub(crate) fn compile(text: &str) -> Result<Pattern, String> {
    if text.len() > MAX_LENGTH {
        return Err(format!("a pattern has at most {MAX_LENGTH} bytes"));
    }
    let translated = translated(text)?;
    let config = Regex::config().nfa_size_limit(Some(MAX_SIZE));
    let regex = Regex::builder().configure(config).build(&translated);
    let regex = regex.map_err(|error| {
        let error = error
            .syntax_error()
            .map_or_else(|| error.to_string(), ToString::to_string);
        let reason = error.trim().lines().last().unwrap_or_default();
        format!(
            "not a regular expression: {}",
            reason.trim_start_matches("error: ")
        )
    })?;
    Ok(Pattern(Arc::new(regex), text.len()))
}

/// What is before a character of a pattern.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Other,
    Repetition,
    LazyRepetition,
}

fn translated(text: &str) -> Result<String, String> {
    let mut chars = text.chars().peekable();
    let mut pattern = String::new();
    let mut before = Before::Other;
    while let Some(c) = chars.next() {
        let mut next = Before::Other;
        match c {
            '\\' => escape(&mut chars, &mut pattern, false)?,
            '[' => class(&mut chars, &mut pattern)?,
            '?' if before == Before::Repetition => {
                pattern.push('?');
                next = Before::LazyRepetition;
            }
            '*' | '+' | '?' | '{' if before != Before::Other => {
                return Err(format!("`{c}` after another repetition is not supported"));
            }
            '*' | '+' | '?' => {
                pattern.push(c);
                next = Before::Repetition;
            }
            '{' => {
                repetition(&mut chars, &mut pattern)?;
                next = Before::Repetition;
            }
            '(' => {
                pattern.push('(');
                let flags: String = chars
                    .clone()
                    .take_while(|c| !matches!(c, ')' | ':' | '<'))
                    .collect();
                if flags.starts_with('?') && flags.contains(['x', 'u', 'R']) {
                    return Err(format!("the flags ({flags}) are not supported"));
                }
                // The question mark of a group is no repetition.
                if chars.next_if_eq(&'?').is_some() {
                    pattern.push('?');
                }
            }
            c => pattern.push(c),
        }
        before = next;
    }
    Ok(pattern)
}

fn repetition(chars: &mut Peekable<Chars<'_>>, pattern: &mut String) -> Result<(), String> {
    let count: String = chars.by_ref().take_while(|c| *c != '}').collect();
    let is_count = |text: &str| {
        text.parse()
            .is_ok_and(|count: u32| count <= MAX_REPETITIONS)
    };
    let (low, high) = count.split_once(',').unwrap_or((&count, ""));
    if !is_count(low) || !(high.is_empty() || is_count(high)) {
        return Err(format!(
            "{{{count}}} is not a number of repetitions; write \\{{ for a bracket"
        ));
    }
    let _ = write!(pattern, "{{{count}}}");
    Ok(())
}

/// Translates what is after a backslash.
fn escape(
    chars: &mut Peekable<Chars<'_>>,
    pattern: &mut String,
    in_class: bool,
) -> Result<(), String> {
    let c = chars
        .next()
        .ok_or("a pattern cannot end with a backslash")?;
    match c {
        'd' => pattern.push_str("[0-9]"),
        'D' => pattern.push_str("[^0-9]"),
        'w' => pattern.push_str("[0-9A-Za-z_]"),
        'W' => pattern.push_str("[^0-9A-Za-z_]"),
        's' => pattern.push_str("[\\t\\n\\f\\r ]"),
        'S' => pattern.push_str("[^\\t\\n\\f\\r ]"),
        'b' if !in_class && chars.peek() != Some(&'{') => pattern.push_str("(?-u:\\b)"),
        'p' | 'P' if chars.peek().is_some_and(|c| "LMNPSZC".contains(*c)) => {
            pattern.push('\\');
            pattern.push(c);
        }
        'x' | 'a' | 'f' | 't' | 'n' | 'r' | 'v' | 'A' | 'z' => {
            pattern.push('\\');
            pattern.push(c);
        }
        '<' | '>' => pattern.push(c),
        c if c.is_ascii_punctuation() => {
            pattern.push('\\');
            pattern.push(c);
        }
        c => return Err(format!("\\{c} is not supported")),
    }
    Ok(())
}

/// Translates a class in brackets.
fn class(chars: &mut Peekable<Chars<'_>>, pattern: &mut String) -> Result<(), String> {
    pattern.push('[');
    if chars.next_if_eq(&'^').is_some() {
        pattern.push('^');
    }
    let mut is_first = true;
    while let Some(c) = chars.next() {
        match c {
            ']' if is_first => pattern.push_str("\\]"),
            ']' => {
                pattern.push(']');
                return Ok(());
            }
            '\\' => escape(chars, pattern, true)?,
            '[' if chars.peek() == Some(&':') => {
                let name: String = chars.by_ref().take_while(|c| *c != ']').collect();
                let _ = write!(pattern, "[{name}]");
            }
            '-' if chars.peek() == Some(&'-') => {
                return Err("-- in brackets is not supported; write \\-".to_owned());
            }
            '[' | '&' | '~' => {
                pattern.push('\\');
                pattern.push(c);
            }
            c => pattern.push(c),
        }
        is_first = false;
    }
    Err("a bracket is not closed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(pattern: &str, text: &str) -> bool {
        compile(pattern).unwrap().0.is_match(text)
    }

    #[test]
    fn classes_are_those_of_ascii() {
        assert!(is_match(r"^\d+$", "123") && !is_match(r"^\d+$", "१२३"));
        assert!(is_match(r"^[\w.]+$", "a.b") && !is_match(r"^\w$", "ä"));
        assert!(is_match(r"^[^\d]$", "ä") && !is_match(r"^[^\d]$", "1"));
        assert!(is_match(r"^[[a&&b]+$", "[a&b") && is_match(r"^[]a]+$", "]a"));
        assert!(is_match(r"\bis\b", "what is") && is_match("^(?:a|b){1,3}?$", "aba"));
        assert!(is_match("^[[:alpha:]]$", "x") && is_match(r"\<", "<"));
    }

    #[test]
    fn patterns_that_re2_reads_otherwise_are_refused() {
        let long = "a".repeat(501);
        for pattern in [
            "a**",
            "a{,5}",
            "a{2000}",
            "(?x)a",
            r"\B",
            r"\p{Greek}",
            "[a--b]",
            "(",
            "[a",
            "\\",
            r"(\w{1000}){1000}",
            r"\1",
            "(?=a)",
            &long,
        ] {
            assert!(compile(pattern).is_err(), "{pattern}");
        }
    }
}
