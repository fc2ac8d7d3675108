//! Reads `Chart.yaml`, `requirements.yaml` and lock files as leniently as Go's decoders.

use go_template::go::semver::Version;
use go_template::go::unicode;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Lock, Metadata};
use crate::yaml::{self, YamlError};

/// An error in a file that describes a chart.
#[derive(Debug, thiserror::Error)]
pub enum ChartYamlError {
    /// The text is not UTF-8.
    #[error("it is not UTF-8")]
    Utf8(#[source] std::str::Utf8Error),
    /// The text is not YAML.
    #[error("it is not valid YAML")]
    Yaml(#[source] YamlError),
    /// The document is not a map.
    #[error("it is not a map")]
    NotAMap,
    /// A field has the wrong type.
    #[error("{0}")]
    Field(String),
}

/// Merges the fields of a YAML text into those of an earlier one: lists item by item, as Go decodes
/// into a struct that has content already. Nulls leave scalars unchanged.
pub(super) fn overlay(
    document: &mut Map<String, Value>,
    text: &[u8],
) -> Result<(), ChartYamlError> {
    match read_yaml(text)? {
        Value::Object(fields) => {
            lay_over(document, fields);
            Ok(())
        }
        Value::Null => Ok(()),
        _ => Err(ChartYamlError::NotAMap),
    }
}

fn read_yaml(text: &[u8]) -> Result<Value, ChartYamlError> {
    let text = std::str::from_utf8(text).map_err(ChartYamlError::Utf8)?;
    yaml::parse(text).map_err(ChartYamlError::Yaml)
}

fn lay_over(below: &mut Map<String, Value>, above: Map<String, Value>) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => lay_over(below, above),
            (Some(Value::Array(below)), Value::Array(above)) => {
                below.truncate(above.len());
                for (index, value) in above.into_iter().enumerate() {
                    match (below.get_mut(index), value) {
                        (Some(Value::Object(below)), Value::Object(above)) => {
                            lay_over(below, above);
                        }
                        (Some(item), value) => *item = value,
                        (None, value) => below.push(value),
                    }
                }
            }
            (Some(Value::Object(_) | Value::Array(_)) | None, value) => {
                below.insert(key, value);
            }
            (Some(_), Value::Null) => {}
            (Some(slot), value) => *slot = value,
        }
    }
}

/// Returns the metadata of a chart from the fields of `Chart.yaml` and `requirements.yaml`.
pub(super) fn read(mut document: Map<String, Value>) -> Result<Metadata, ChartYamlError> {
    for (key, value) in &mut document {
        match key.as_str() {
            "sources" | "keywords" => each(value, text),
            "annotations" => values_of(value, text),
            "maintainers" => each(value, |item| values_of(item, text)),
            "dependencies" => each(value, dependency),
            "deprecated" => {}
            _ => text(value),
        }
    }
    typed(document)
}

/// Returns the content of a lock file.
pub(super) fn lock(text: &[u8]) -> Result<Lock, ChartYamlError> {
    match read_yaml(text)? {
        Value::Object(mut document) => {
            if let Some(dependencies) = document.get_mut("dependencies") {
                each(dependencies, dependency);
            }
            typed(document)
        }
        Value::Null => Ok(Lock::default()),
        _ => Err(ChartYamlError::NotAMap),
    }
}

fn typed<T: DeserializeOwned>(document: Map<String, Value>) -> Result<T, ChartYamlError> {
    T::deserialize(Value::Object(document))
        .map_err(|error| ChartYamlError::Field(error.to_string()))
}

fn dependency(value: &mut Value) {
    let Value::Object(fields) = value else { return };
    for (key, value) in fields {
        match key.as_str() {
            "tags" => each(value, text),
            "import-values" | "enabled" => {}
            _ => text(value),
        }
    }
}

fn each(value: &mut Value, change: impl Fn(&mut Value)) {
    if let Value::Array(items) = value {
        items.iter_mut().for_each(change);
    }
}

fn values_of(value: &mut Value, change: impl Fn(&mut Value)) {
    if let Value::Object(fields) = value {
        fields.values_mut().for_each(change);
    }
}

/// Converts numbers and booleans to strings where a string is expected (`appVersion: 1.10` is
/// `1.1`).
fn text(value: &mut Value) {
    let text = match value {
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        _ => return,
    };
    *value = Value::String(text);
}

/// Validates the metadata and removes unprintable characters, as Helm does when it loads a chart.
pub(super) fn validate(metadata: &mut Metadata) -> Result<(), String> {
    for field in [
        &mut metadata.name,
        &mut metadata.description,
        &mut metadata.home,
        &mut metadata.icon,
        &mut metadata.condition,
        &mut metadata.tags,
        &mut metadata.app_version,
        &mut metadata.kube_version,
    ] {
        sanitize(field);
    }
    metadata.sources.iter_mut().for_each(sanitize);
    metadata.keywords.iter_mut().for_each(sanitize);
    let name = &metadata.name;
    if name.is_empty() {
        return Err("chart.metadata.name is required".to_owned());
    }
    if matches!(name.as_str(), "." | "..") {
        return Err(format!("chart.metadata.name {name:?} is not allowed"));
    }
    if name.contains('/') {
        return Err(format!("chart.metadata.name {name:?} is invalid"));
    }
    if metadata.version.is_empty() {
        return Err("chart.metadata.version is required".to_owned());
    }
    if Version::new(metadata.version.as_bytes()).is_err() {
        return Err(format!(
            "chart.metadata.version {:?} is invalid",
            metadata.version
        ));
    }
    if !matches!(metadata.chart_type.as_str(), "" | "application" | "library") {
        return Err("chart.metadata.type must be application or library".to_owned());
    }
    for maintainer in &mut metadata.maintainers {
        sanitize(&mut maintainer.name);
        sanitize(&mut maintainer.email);
        sanitize(&mut maintainer.url);
    }
    validate_dependencies(metadata)
}

fn validate_dependencies(metadata: &mut Metadata) -> Result<(), String> {
    let mut seen = std::collections::HashSet::new();
    for dependency in &mut metadata.dependencies {
        sanitize(&mut dependency.name);
        sanitize(&mut dependency.version);
        sanitize(&mut dependency.repository);
        sanitize(&mut dependency.condition);
        dependency.tags.iter_mut().for_each(sanitize);
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if !dependency.alias.chars().all(legal) {
            let name = &dependency.name;
            return Err(format!(
                "dependency {name:?} has disallowed characters in the alias"
            ));
        }
        let key = if dependency.alias.is_empty() {
            &dependency.name
        } else {
            &dependency.alias
        };
        if !seen.insert(key.clone()) {
            return Err(format!(
                "more than one dependency with name or alias {key:?}"
            ));
        }
    }
    Ok(())
}

/// Replaces white space with spaces and removes unprintable characters.
fn sanitize(text: &mut String) {
    if text.chars().all(unicode::is_print) {
        return;
    }
    let clean = text.chars().filter_map(|c| {
        if unicode::is_space(c) {
            Some(' ')
        } else {
            unicode::is_print(c).then_some(c)
        }
    });
    *text = clean.collect();
}
