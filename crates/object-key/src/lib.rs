#![doc = include_str!("../README.md")]

pub mod api_versions;
mod identity;

use std::fmt;

use serde_json::Value;

pub use identity::ObjectIdentity;

/// The name that a document gives an object: group, version, kind, namespace and name. Two documents with
/// different keys may describe one object; see [`ObjectIdentity`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version of the group.
    pub version: String,
    /// The kind.
    pub kind: String,
    /// The namespace, if the document has one.
    pub namespace: Option<String>,
    /// The name; empty if the server generates it.
    pub name: String,
}

impl ObjectKey {
    /// Returns the identity from an object's own fields, or `None` without `apiVersion` or `kind`.
    ///
    /// ```
    /// use object_key::ObjectKey;
    /// let object = serde_json::json!({
    ///     "apiVersion": "apps/v1", "kind": "Deployment",
    ///     "metadata": {"name": "web", "namespace": "prod"},
    /// });
    /// let key = ObjectKey::of(&object).unwrap();
    /// assert_eq!(key.to_string(), "Deployment.apps prod/web");
    /// assert_eq!(key.api_version(), "apps/v1");
    /// ```
    pub fn of(object: &Value) -> Option<Self> {
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("").to_owned();
        let metadata = object.get("metadata");
        let field = |name| text(metadata.and_then(|metadata| metadata.get(name)));
        let (api_version, kind) = (text(object.get("apiVersion")), text(object.get("kind")));
        if api_version.is_empty() || kind.is_empty() {
            return None;
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            kind,
            namespace: Some(field("namespace")).filter(|namespace| !namespace.is_empty()),
            name: field("name"),
        })
    }

    /// Returns `group/version`, or only the version for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Formats as `Kind.group namespace/name`.
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " {namespace}/{}", self.name),
            None => write!(f, " {}", self.name),
        }
    }
}
