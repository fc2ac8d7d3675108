//! Places of images in rendered objects. Pure.

use serde_json::{Map, Value};

use super::reference::Reference;
use crate::rbac::survey::Found;

/// A place that holds an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// The object, and the path in it. Items of lists have their names.
    pub(crate) at: String,
    /// The object.
    pub(crate) object: String,
    /// Template of the object.
    pub(crate) template: String,
    pub(crate) image: String,
}

/// Returns the places of images in objects: in containers, in volumes, and in fields named `image` of any kind.
pub(crate) fn places(found: &[Found]) -> Vec<Place> {
    let mut places = Vec::new();
    for one in found {
        let object = one.object.key().to_string();
        let mut images = Vec::new();
        collect(one.object.object(), "", &mut images);
        places.extend(images.into_iter().map(|(path, image)| Place {
            at: format!("{object} {path}"),
            object: object.clone(),
            template: one.template.clone(),
            image,
        }));
    }
    places
}

fn collect(value: &Value, path: &str, images: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let path = format!("{path}/{key}");
                match (key.as_str(), value) {
                    ("image", Value::String(image)) if !image.is_empty() => {
                        images.push((path, image.clone()));
                    }
                    ("image", Value::Object(fields)) => match joined(fields) {
                        Some(image) => images.push((path, image)),
                        None => collect(value, &path, images),
                    },
                    // Texts of ConfigMaps and schemas of definitions are not images.
                    ("data" | "openAPIV3Schema", _) => {}
                    _ => collect(value, &path, images),
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let name = item.get("name").and_then(Value::as_str);
                let name = name.map_or_else(|| index.to_string(), str::to_owned);
                collect(item, &format!("{path}/{name}"), images);
            }
        }
        _ => {}
    }
}

/// Returns the image of fields as custom resources have them, or of a volume.
fn joined(fields: &Map<String, Value>) -> Option<String> {
    let text = |name: &str| match fields.get(name)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    if let Some(image) = text("reference") {
        return Some(image);
    }
    let mut image = text("repository")?;
    if let Some(registry) = text("registry") {
        image = format!("{registry}/{image}");
    }
    if let Some(tag) = text("tag").or_else(|| text("version")) {
        image = format!("{image}:{tag}");
    }
    if let Some(digest) = text("digest").or_else(|| text("sha")) {
        image = format!("{image}@{digest}");
    }
    Some(image)
}

/// Returns whether a render with made-up values has made this image.
pub(crate) fn is_made_up(image: &str) -> bool {
    let mut words = image.split(['/', ':', '@']);
    words.any(|word| word == "example") || Reference::parse(image).is_none()
}

/// Returns the first value of a label that Kubernetes refuses. A tag with a digest is too long for one.
pub(crate) fn bad_label(value: &Value) -> Option<&str> {
    match value {
        Value::Object(map) => map
            .iter()
            .find_map(|(key, value)| match (key.as_str(), value) {
                ("labels" | "matchLabels", Value::Object(labels)) => labels
                    .values()
                    .filter_map(Value::as_str)
                    .find(|text| !is_label(text)),
                _ => bad_label(value),
            }),
        Value::Array(items) => items.iter().find_map(bad_label),
        _ => None,
    }
}

fn is_label(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        && (text.is_empty() || text.starts_with(is_end) && text.ends_with(is_end))
}
