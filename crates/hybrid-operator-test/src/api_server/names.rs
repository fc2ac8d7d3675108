//! Rules for names, labels and annotations, with the words of the API server.
//!
//! Source: `k8s.io/apimachinery/pkg/util/validation`.

use super::kinds::Names;

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SERVICE_LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NAME_PART: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// Returns what is wrong with the name of an object, or with its prefix.
pub(super) fn check(rule: Names, name: &str, prefix: bool) -> Vec<String> {
    let masked;
    let name = if prefix && rule != Names::Segment && name.len() > 1 && name.ends_with('-') {
        // The server replaces the last two characters, so that a prefix may end with a dash.
        let start = name.get(..name.len() - 2).unwrap_or_default();
        masked = format!("{start}a");
        masked.as_str()
    } else {
        name
    };
    match rule {
        Names::Subdomain => {
            let fits = name.split('.').all(is_label);
            limited(name, 253, fits, SUBDOMAIN)
        }
        Names::Label => {
            let dotted = name.contains('.') && name.split('.').all(is_label);
            let why = if dotted {
                "must not contain dots"
            } else {
                LABEL
            };
            limited(name, 63, is_label(name), why)
        }
        Names::ServiceLabel => {
            let fits = is_label(name) && name.starts_with(|first: char| first.is_ascii_lowercase());
            limited(name, 63, fits, SERVICE_LABEL)
        }
        Names::Segment => segment(name, prefix),
    }
}

fn limited(name: &str, most: usize, fits: bool, rule: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if name.len() > most {
        wrong.push(format!("must be no more than {most} bytes"));
    }
    if !fits {
        wrong.push(rule.to_owned());
    }
    wrong
}

fn segment(name: &str, prefix: bool) -> Vec<String> {
    let mut wrong = Vec::new();
    if !prefix && matches!(name, "." | "..") {
        wrong.push(format!("may not be '{name}'"));
    }
    for part in ["/", "%"] {
        if name.contains(part) {
            wrong.push(format!("may not contain '{part}'"));
        }
    }
    wrong
}

/// Returns what is wrong with the key of a label.
pub(super) fn check_key(key: &str) -> Vec<String> {
    let mut parts = key.split('/');
    let (name, prefix) = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, None) => (name, None),
        (Some(prefix), Some(name), None) => (name, Some(prefix)),
        _ => {
            let rule = format!(
                "a qualified name {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                NAME_PART.trim_start_matches("name part ")
            );
            return vec![rule];
        }
    };
    let mut wrong = Vec::new();
    match prefix {
        Some("") => wrong.push("prefix part must be non-empty".to_owned()),
        Some(prefix) => {
            let found = check(Names::Subdomain, prefix, false);
            wrong.extend(found.into_iter().map(|text| format!("prefix part {text}")));
        }
        None => {}
    }
    if name.is_empty() {
        wrong.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        wrong.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_word(name) {
        wrong.push(NAME_PART.to_owned());
    }
    wrong
}

/// Returns what is wrong with the value of a label.
pub(super) fn check_value(value: &str) -> Vec<String> {
    limited(value, 63, value.is_empty() || is_word(value), LABEL_VALUE)
}

fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_word(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let outer = |c: char| c.is_ascii_alphanumeric();
    text.chars().all(inner) && text.starts_with(outer) && text.ends_with(outer)
}
