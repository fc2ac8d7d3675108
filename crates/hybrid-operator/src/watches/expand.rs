//! Expands `$NAME` and `${NAME}` in a text as Go's `os.Expand` does.

/// Replaces `$NAME` and `${NAME}` with the result of `lookup`, or with nothing if it is `None`. A
/// `$` without a name is kept; `${}` and an unclosed `${` are removed.
pub(crate) fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let after = after.get(1..).unwrap_or("");
        let (name, consumed) = variable(after);
        match name {
            Some("") if consumed == 0 => out.push('$'),
            Some(name) => out.push_str(&lookup(name).unwrap_or_default()),
            None => {}
        }
        rest = after.get(consumed..).unwrap_or("");
    }
    out.push_str(rest);
    out
}

/// Returns the variable name at the start of `text`, which follows a `$`, and its length in bytes.
/// `None` is bad syntax, whose bytes are removed; an empty name of length 0 is not a variable.
fn variable(text: &str) -> (Option<&str>, usize) {
    if let Some(braced) = text.strip_prefix('{') {
        return match braced.find('}') {
            Some(0) => (None, 2),
            Some(end) => (braced.get(..end), end + 2),
            None => (None, 1),
        };
    }
    let first = text.as_bytes().first().copied().unwrap_or(0);
    if matches!(
        first,
        b'*' | b'#' | b'$' | b'@' | b'!' | b'?' | b'-' | b'0'..=b'9'
    ) {
        return (text.get(..1), 1);
    }
    let end = text
        .bytes()
        .position(|c| !(c == b'_' || c.is_ascii_alphanumeric()))
        .unwrap_or(text.len());
    (text.get(..end), end)
}

#[cfg(test)]
mod tests {
    use super::expand;

    #[test]
    fn variables_are_expanded_as_in_go() {
        let lookup = |name: &str| match name {
            "A" => Some("1".to_owned()),
            "LONG_name2" => Some("x".to_owned()),
            _ => None,
        };
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("$A", "1"),
            ("${A}b", "1b"),
            ("$LONG_name2/$A", "x/1"),
            ("$NOPE.", "."),
            ("a$", "a$"),
            ("a$ b", "a$ b"),
            ("$$A", "A"),
            ("${}x", "x"),
            ("${A", "A"),
            ("100%$-", "100%"),
            ("é$A é", "é1 é"),
        ] {
            assert_eq!(expand(text, &lookup), expected, "{text:?}");
        }
    }
}
