//! The forms of Kubernetes' names.

/// Returns whether a text is a DNS label (RFC 1123), as the name of a namespace must be.
pub fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// Returns whether a text is a DNS subdomain (RFC 1123), as the names of most objects must be.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && text.chars().all(|c| alphanumeric(c) || c == '-')
}

/// Returns whether a text is a qualified name, as the keys of annotations and labels must be:
/// `NAME` or `DOMAIN/NAME`.
pub fn is_qualified(text: &str) -> bool {
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    let alphanumeric = |c: char| c.is_ascii_alphanumeric();
    domain.is_none_or(is_subdomain)
        && name.len() <= 63
        && name.starts_with(alphanumeric)
        && name.ends_with(alphanumeric)
        && name
            .chars()
            .all(|c| alphanumeric(c) || matches!(c, '-' | '_' | '.'))
}

/// Returns whether a text is a label selector, as the API server parses it.
pub(crate) fn is_selector(text: &str) -> bool {
    let mut rest = text.trim();
    loop {
        // A comma within parentheses separates values.
        let end = match (rest.find(','), rest.find('(')) {
            (Some(comma), Some(open)) if open < comma => match rest.find(')') {
                Some(close) => {
                    close
                        + rest
                            .get(close..)
                            .and_then(|rest| rest.find(','))
                            .unwrap_or(rest.len() - close)
                }
                None => return false,
            },
            (comma, _) => comma.unwrap_or(rest.len()),
        };
        if !rest.get(..end).is_some_and(is_requirement) {
            return false;
        }
        match rest.get(end + 1..) {
            Some(next) => rest = next,
            None => return true,
        }
    }
}

fn is_requirement(text: &str) -> bool {
    let text = text.trim();
    let is_value = |text: &str| {
        let text = text.trim();
        text.is_empty() || !text.contains('/') && is_qualified(text)
    };
    if let Some(key) = text.strip_prefix('!') {
        return is_qualified(key.trim());
    }
    for operator in ["!=", "==", "="] {
        if let Some((key, value)) = text.split_once(operator) {
            return is_qualified(key.trim()) && is_value(value);
        }
    }
    let Some((key, rest)) = text.split_once(char::is_whitespace) else {
        return is_qualified(text);
    };
    let rest = rest.trim();
    let values = rest
        .strip_prefix("notin")
        .or_else(|| rest.strip_prefix("in"))
        .and_then(|values| values.trim().strip_prefix('(')?.strip_suffix(')'));
    is_qualified(key) && values.is_some_and(|values| values.split(',').all(is_value))
}

#[cfg(test)]
mod tests {
    use super::{is_label, is_qualified, is_selector, is_subdomain};

    #[test]
    fn selectors_have_the_form_that_the_api_server_accepts() {
        let right = "team=a|team==a, env!=dev|example.com/team|!team|\
            tier in (gold, silver),team notin (a),x=";
        for text in right.split('|') {
            assert!(is_selector(text), "{text}");
        }
        for text in "|a b|=x|tier in gold|tier in (a|a=b/c|a=b,|team:a".split('|') {
            assert!(!is_selector(text), "{text}");
        }
    }

    #[test]
    fn names_have_the_forms_that_the_api_server_accepts() {
        let long = "a".repeat(64);
        for (text, label, subdomain, qualified) in [
            ("a", true, true, true),
            ("team-1", true, true, true),
            ("a.b-c", false, true, true),
            ("", false, false, false),
            ("-a", false, false, false),
            ("a-", false, false, false),
            ("a..b", false, false, true),
            ("A_b", false, false, true),
            ("a b", false, false, false),
            ("example.com/hold", false, false, true),
            ("example.com/", false, false, false),
            ("Example/hold", false, false, false),
            ("a/b/c", false, false, false),
            (long.as_str(), false, true, false),
        ] {
            assert_eq!(is_label(text), label, "{text:?}");
            assert_eq!(is_subdomain(text), subdomain, "{text:?}");
            assert_eq!(is_qualified(text), qualified, "{text:?}");
        }
    }
}
