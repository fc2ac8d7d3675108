//! Reads `Chart.yaml`, `requirements.yaml` and lock files as leniently as Go's decoders.

use bounded::{Budget, Limits};
use go_template::go::semver::Version;
use go_template::go::unicode;
use go_yaml::Selection;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{File, Lock, Metadata};
use crate::place::Place;
use crate::yaml::{self, YamlError};

/// An error in a file that describes a chart.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ChartYamlError {
    /// The text is not UTF-8.
    #[error("it is not UTF-8 at {place}")]
    Utf8 {
        /// Place of the error.
        place: Box<Place>,
        #[source]
        error: std::str::Utf8Error,
    },
    /// The text is not YAML.
    #[error("it is not valid YAML at {place}")]
    Yaml {
        /// Place of the error.
        place: Box<Place>,
        #[source]
        error: YamlError,
    },
    /// The document is not a map.
    #[error("it is not a map")]
    NotAMap,
    /// A field has the wrong type.
    #[error("{}{message}", at(.place.as_deref()))]
    Field {
        /// Place of the error, if it is known.
        place: Option<Box<Place>>,
        /// The field and its type.
        message: String,
    },
}

fn at(place: Option<&Place>) -> String {
    place.map(|place| format!("{place}: ")).unwrap_or_default()
}

impl ChartYamlError {
    /// Returns the place to name.
    pub(super) fn place(&self) -> Option<&Place> {
        match self {
            Self::Utf8 { place, .. } | Self::Yaml { place, .. } => Some(place),
            Self::Field { place, .. } => place.as_deref(),
            Self::NotAMap => None,
        }
    }

    /// Returns the place to name.
    pub(super) fn place_mut(&mut self) -> Option<&mut Place> {
        match self {
            Self::Utf8 { place, .. } | Self::Yaml { place, .. } => Some(place),
            Self::Field { place, .. } => place.as_deref_mut(),
            Self::NotAMap => None,
        }
    }
}

/// The name of a field and its part that is read: texts as scalars.
type Field = (&'static str, Selection);

const TEXTS: Selection = Selection::Each(&Selection::Scalar);

/// Fields of `Chart.yaml`, of its maintainers and dependencies, and of lock files.
const FIELDS: &[Field] = &[
    ("name", Selection::Scalar),
    ("home", Selection::Scalar),
    ("sources", TEXTS),
    ("version", Selection::Scalar),
    ("description", Selection::Scalar),
    ("keywords", TEXTS),
    (
        "maintainers",
        Selection::Each(&Selection::Fields(MAINTAINER_FIELDS)),
    ),
    ("icon", Selection::Scalar),
    ("apiVersion", Selection::Scalar),
    ("condition", Selection::Scalar),
    ("tags", Selection::Scalar),
    ("appVersion", Selection::Scalar),
    ("deprecated", Selection::Whole),
    ("annotations", TEXTS),
    ("kubeVersion", Selection::Scalar),
    ("dependencies", DEPENDENCIES),
    ("type", Selection::Scalar),
];
const MAINTAINER_FIELDS: &[Field] = &[
    ("name", Selection::Scalar),
    ("email", Selection::Scalar),
    ("url", Selection::Scalar),
];
const DEPENDENCIES: Selection = Selection::Each(&Selection::Fields(DEPENDENCY_FIELDS));
const DEPENDENCY_FIELDS: &[Field] = &[
    ("name", Selection::Scalar),
    ("version", Selection::Scalar),
    ("repository", Selection::Scalar),
    ("condition", Selection::Scalar),
    ("tags", TEXTS),
    ("enabled", Selection::Whole),
    ("import-values", Selection::Whole),
    ("alias", Selection::Scalar),
];
const LOCK_FIELDS: &[Field] = &[
    ("generated", Selection::Whole),
    ("digest", Selection::Scalar),
    ("dependencies", DEPENDENCIES),
];

/// Merges the fields of a YAML text into those of an earlier one: lists item by item, as Go decodes
/// into a struct that has content already. Nulls leave scalars unchanged.
pub(super) fn overlay(
    document: &mut Map<String, Value>,
    file: &str,
    text: &[u8],
) -> Result<(), ChartYamlError> {
    match read_yaml(file, text, FIELDS)? {
        Value::Object(fields) => {
            lay_over(document, canonical(fields, FIELDS));
            Ok(())
        }
        Value::Null => Ok(()),
        _ => Err(ChartYamlError::NotAMap),
    }
}

/// Reads the fields of a text. In a text, numbers and booleans are formatted as by Go.
fn read_yaml(file: &str, text: &[u8], fields: &'static [Field]) -> Result<Value, ChartYamlError> {
    let valid = std::str::from_utf8(text).map_err(|error| ChartYamlError::Utf8 {
        place: Box::new(Place::of_utf8(file, text, error)),
        error,
    })?;
    let budget = Budget::new(Limits::NESTING_ONLY);
    yaml::parse_selection(valid, Selection::Fields(fields), &budget).map_err(|error| {
        ChartYamlError::Yaml {
            place: Box::new(Place::of_yaml(file, valid, &error)),
            error,
        }
    })
}

/// Gives fields the names that they are decoded by: Go accepts names of another case, and of several
/// that differ in case the last in the order of the alphabet counts.
fn canonical(fields: Map<String, Value>, names: &[Field]) -> Map<String, Value> {
    let mut sorted: Vec<(String, Value)> = fields.into_iter().collect();
    sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut found = Map::new();
    for (key, mut value) in sorted {
        let mut names = names.iter();
        let field = names.find(|(name, _)| go_yaml::is_alike(name, &key));
        if let Some((_, Selection::Each(Selection::Fields(inner)))) = field {
            each(&mut value, |item| {
                if let Value::Object(fields) = item {
                    *fields = canonical(std::mem::take(fields), inner);
                }
            });
        }
        let name = field.map_or(key, |(name, _)| (*name).to_owned());
        let one: Map<String, Value> = [(name, value)].into_iter().collect();
        lay_over(&mut found, one);
    }
    found
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
pub(super) fn read(
    mut document: Map<String, Value>,
    source: Option<&File>,
) -> Result<Metadata, ChartYamlError> {
    for (key, value) in &mut document {
        match key.as_str() {
            "sources" | "keywords" => each(value, null_is_empty),
            "annotations" => values_of(value, null_is_empty),
            "dependencies" => each(value, dependency),
            _ => {}
        }
    }
    let declares_dependencies = document.get("dependencies").is_some_and(Value::is_array);
    let metadata: Metadata = typed(document, source)?;
    Ok(Metadata {
        declares_dependencies,
        ..metadata
    })
}

/// Returns the content of a lock file.
pub(super) fn lock(file: &File) -> Result<Lock, ChartYamlError> {
    match read_yaml(file.name(), file.data(), LOCK_FIELDS)? {
        Value::Object(document) => {
            let mut document = canonical(document, LOCK_FIELDS);
            if let Some(dependencies) = document.get_mut("dependencies") {
                each(dependencies, dependency);
            }
            typed(document, Some(file))
        }
        Value::Null => Ok(Lock::default()),
        _ => Err(ChartYamlError::NotAMap),
    }
}

fn typed<T: DeserializeOwned>(
    document: Map<String, Value>,
    source: Option<&File>,
) -> Result<T, ChartYamlError> {
    let document = Value::Object(document);
    T::deserialize(&document).map_err(|error| {
        let path = culprit::<T>(&document);
        let place = source.and_then(|file| Place::of_path(file.name(), file.data(), &path));
        ChartYamlError::Field {
            message: format!("{}: {error}", path.join(".")),
            place: place.map(Box::new),
        }
    })
}

/// Returns the path of the first value that cannot be decoded.
fn culprit<T: DeserializeOwned>(document: &Value) -> Vec<String> {
    // Each part is decoded alone, inside of what is around it.
    fn search<T: DeserializeOwned>(
        value: &Value,
        path: &mut Vec<String>,
        wrap: &dyn Fn(Value) -> Value,
    ) {
        // The fields of dependencies are the deepest.
        if path.len() == 4 {
            return;
        }
        let fails = |part: Value| T::deserialize(wrap(part)).is_err();
        match value {
            // A container that fails when it is empty has the wrong type itself.
            Value::Object(_) if fails(Value::Object(Map::new())) => {}
            Value::Array(_) if fails(Value::Array(Vec::new())) => {}
            Value::Object(fields) => {
                let inside = |key: &str, part: Value| Value::from_iter([(key.to_owned(), part)]);
                let bad = fields
                    .iter()
                    .find(|(key, part)| fails(inside(key, (*part).clone())));
                if let Some((key, part)) = bad {
                    path.push(key.clone());
                    search::<T>(part, path, &|part| wrap(inside(key, part)));
                }
            }
            Value::Array(items) => {
                let inside = |part: Value| Value::Array(vec![part]);
                let bad = items.iter().position(|part| fails(inside(part.clone())));
                if let Some((index, part)) = bad.and_then(|index| Some((index, items.get(index)?)))
                {
                    path.push(index.to_string());
                    search::<T>(part, path, &|part| wrap(inside(part)));
                }
            }
            _ => {}
        }
    }
    let mut path = Vec::new();
    search::<T>(document, &mut path, &|part| part);
    path
}

fn dependency(value: &mut Value) {
    if let Some(tags) = value.get_mut("tags") {
        each(tags, null_is_empty);
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

fn null_is_empty(value: &mut Value) {
    if value.is_null() {
        *value = Value::String(String::new());
    }
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
