//! Selectors of lists and watches: by labels, and by fields.

use serde_json::Value;

use super::kinds::Kind;
use super::object::{at, meta_field};
use super::request::Call;
use super::status::Failure;

/// Requirements on the objects that a list or watch shows.
#[derive(Debug, Clone, Default)]
pub(super) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(String, bool, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Missing,
}

impl Selector {
    /// Parses the parameters `labelSelector` and `fieldSelector`.
    pub(super) fn of(call: &Call, kind: &Kind) -> Result<Self, Failure> {
        let labels = call.parameter("labelSelector");
        Self::parse(kind, labels, call.parameter("fieldSelector"))
    }

    fn parse(kind: &Kind, labels: &str, fields: &str) -> Result<Self, Failure> {
        let parts = split(labels).into_iter();
        Ok(Self {
            labels: parts
                .filter(|part| !part.trim().is_empty())
                .map(|part| requirement(&part))
                .collect::<Result<_, _>>()?,
            fields: fields
                .split(',')
                .filter(|part| !part.is_empty())
                .map(|part| field(kind, part))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Returns whether every object is selected.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let labels = meta_field(object, "labels");
        let label = |key: &str| labels.and_then(|labels| labels.get(key)?.as_str());
        let by_labels = self.labels.iter().all(|requirement| {
            let value = label(&requirement.key);
            let is_in =
                |values: &[String]| value.is_some_and(|value| values.iter().any(|v| v == value));
            match &requirement.operator {
                Operator::In(values) => is_in(values),
                Operator::NotIn(values) => !is_in(values),
                Operator::Exists => value.is_some(),
                Operator::Missing => value.is_none(),
            }
        });
        by_labels
            && self.fields.iter().all(|(path, equal, wanted)| {
                let path: Vec<&str> = path.split('.').collect();
                let found = match at(object, &path) {
                    Some(Value::String(text)) => text.clone(),
                    Some(Value::Null) | None => String::new(),
                    Some(other) => other.to_string(),
                };
                (found == *wanted) == *equal
            })
    }
}

/// Splits at commas that are not in parentheses.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0_u32;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts
}

fn requirement(text: &str) -> Result<Requirement, Failure> {
    let text = text.trim();
    let of = |key: &str, operator: Operator| {
        let key = key.trim().to_owned();
        Requirement { key, operator }
    };
    let one = |value: &str| vec![value.trim().to_owned()];
    let values = |list: &str| -> Vec<String> {
        let list = list.trim().trim_start_matches('(').trim_end_matches(')');
        list.split(',')
            .map(|value| value.trim().to_owned())
            .collect()
    };
    let parsed = if let Some(key) = text.strip_prefix('!') {
        of(key, Operator::Missing)
    } else if let Some((key, value)) = text.split_once("!=") {
        of(key, Operator::NotIn(one(value)))
    } else if let Some((key, value)) = text.split_once('=') {
        of(key, Operator::In(one(value.trim_start_matches('='))))
    } else if let Some((key, list)) = text.split_once(" notin ") {
        of(key, Operator::NotIn(values(list)))
    } else if let Some((key, list)) = text.split_once(" in ") {
        of(key, Operator::In(values(list)))
    } else {
        of(text, Operator::Exists)
    };
    match parsed.key.split_whitespace().nth(1) {
        Some(found) => Err(Failure::bad_request(format!(
            "unable to parse requirement: found '{found}', expected: in, notin, =, ==, !=, gt, lt"
        ))),
        None => Ok(parsed),
    }
}

/// Fields by which objects of a kind can be selected.
fn known_fields(kind: &Kind) -> &'static str {
    match (kind.resource.group.as_str(), kind.resource.plural.as_str()) {
        ("", "pods") => {
            "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName status.phase"
        }
        ("", "secrets") => "type",
        ("", "namespaces") => "status.phase",
        ("", "nodes") => "spec.unschedulable",
        ("", "events") => {
            "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid reason type"
        }
        ("batch", "jobs") => "status.successful",
        _ => "",
    }
}

fn field(kind: &Kind, text: &str) -> Result<(String, bool, String), Failure> {
    let (path, equal, value) = if let Some((path, value)) = text.split_once("!=") {
        (path, false, value)
    } else if let Some((path, value)) = text.split_once('=') {
        (path, true, value.trim_start_matches('='))
    } else {
        return Err(Failure::bad_request(format!(
            "invalid selector: '{text}'; can't understand '{text}'"
        )));
    };
    let mut known = known_fields(kind).split_whitespace();
    if matches!(path, "metadata.name" | "metadata.namespace") || known.any(|known| known == path) {
        return Ok((path.to_owned(), equal, value.to_owned()));
    }
    let has_own_rule = kind.rules.custom || !known_fields(kind).is_empty();
    Err(Failure::bad_request(if has_own_rule {
        format!("field label not supported: {path}")
    } else {
        format!(
            "{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
        )
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api_server::kinds::Kinds;

    fn matches(labels: &str, object: &Value) -> bool {
        let kind = Kinds::new().served("", "v1", "configmaps").unwrap();
        Selector::parse(&kind, labels, "").unwrap().matches(object)
    }

    #[test]
    fn labels_are_selected_by_equality_sets_and_presence() {
        let object = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
        for (selector, expected) in [
            ("", true),
            ("a=1", true),
            ("a==1,b!=1", true),
            ("a=2", false),
            ("c!=1", true),
            ("a in (1, 2),b notin (3,4)", true),
            ("a notin (1)", false),
            ("a,!c", true),
            ("!a", false),
        ] {
            assert_eq!(matches(selector, &object), expected, "{selector}");
        }
    }
}
