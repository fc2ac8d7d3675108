//! Manifests: streams of YAML documents with a `# Source:` line each, as Helm stores them.
//!
//! ```
//! use helm_core::manifest::{parse_objects, KindOrder};
//! let manifest = "---\n# Source: c/templates/a.yaml\n{\"apiVersion\": \"v1\", \"kind\": \"Service\",\
//!      \"metadata\": {\"name\": \"web\"}}\n";
//! let objects = parse_objects(manifest)?;
//! assert_eq!(objects[0].source(), Some("c/templates/a.yaml"));
//! assert_eq!(objects[0].key().to_string(), "Service web");
//! # Ok::<(), helm_core::manifest::ManifestError>(())
//! ```

pub mod diff;
mod dropped;
mod head;
pub mod hook;
mod kind_order;
mod list;
mod replaced;
mod split;

use std::sync::Arc;

use serde_json::Value;

pub use diff::{Change, ChangeKind};
pub use dropped::{DropCause, Dropped};
pub(crate) use dropped::{after_end, kind_in};
pub(crate) use head::{Head, HeadError};
pub use hook::{
    DeletePolicy, EventRun, Hook, HookEvent, HookExecution, HookPhase, OutputLogPolicy,
};
pub use kind_order::{INSTALL, KindOrder, UNINSTALL};
pub use list::{ListProblem, list_items};
pub(crate) use list::{problem_of_items, problem_of_list};
pub use object_key::{ObjectIdentity, ObjectKey, api_versions};
pub use replaced::replaced;
pub use split::split;

use crate::yaml::{self, YamlError};

/// An error in a manifest. Documents and lines are counted from 1.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ManifestError {
    /// A document is not YAML.
    #[error("document {document} ({}) is not valid YAML", source_or_unknown(.template.as_deref()))]
    Yaml {
        document: usize,
        template: Option<String>,
        #[source]
        error: YamlError,
    },
    /// A document is not a Kubernetes object.
    #[error(
        "document {document} ({}) is not a Kubernetes object: {missing} is missing",
        source_or_unknown(.template.as_deref())
    )]
    NoObject {
        document: usize,
        template: Option<String>,
        missing: &'static str,
    },
    /// A document is a list whose items are not created.
    #[error("document {document} cannot be created: {problem}")]
    List {
        document: usize,
        problem: ListProblem,
    },
    /// A rendered document is not a Kubernetes object that can be created.
    #[error(
        "document {document} that {template} renders, at line {line} of its output, cannot be created: {kind} has no {missing}"
    )]
    Rendered {
        /// The kind of the object, or "the object".
        kind: String,
        template: String,
        document: usize,
        line: usize,
        missing: &'static str,
    },
    /// A rendered document is a list whose items are not created.
    #[error(
        "document {document} that {template} renders, at line {line} of its output, cannot be created: {problem}"
    )]
    RenderedList {
        template: String,
        document: usize,
        line: usize,
        problem: ListProblem,
    },
    /// There are more objects than [`MAX_OBJECTS`].
    #[error("the manifest has more than {MAX_OBJECTS} objects; split it into several releases")]
    TooMany,
}

/// Maximum number of objects in a manifest, including hooks and items of lists. The largest public
/// charts have a few hundred.
pub const MAX_OBJECTS: usize = 100_000;

/// Returns an error if there are more than [`MAX_OBJECTS`] objects.
pub(crate) fn check_count(objects: usize) -> Result<(), ManifestError> {
    if objects >= MAX_OBJECTS {
        return Err(ManifestError::TooMany);
    }
    Ok(())
}

fn source_or_unknown(template: Option<&str>) -> &str {
    template.unwrap_or("unknown template")
}

impl ManifestError {
    /// Returns the reason for events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Yaml { .. } => "InvalidYaml",
            Self::NoObject { .. }
            | Self::List { .. }
            | Self::Rendered { .. }
            | Self::RenderedList { .. } => "InvalidObject",
            Self::TooMany => "TooManyObjects",
        }
    }
}

/// One object of a manifest. Cheap to clone.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestObject {
    source: Option<Arc<str>>,
    position: usize,
    key: Arc<ObjectKey>,
    object: Arc<Value>,
    kept: bool,
}

impl ManifestObject {
    /// Returns the template that it comes from, prefixed with the chart's name, or `None` if the
    /// document has no `# Source:` line.
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }

    /// Returns its index in the manifest.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Returns the name that its document gives it.
    pub fn key(&self) -> &ObjectKey {
        &self.key
    }

    /// Returns the object. Whole numbers are integers, as in Kubernetes.
    pub fn object(&self) -> &Value {
        &self.object
    }

    /// Returns the object under another API version.
    #[must_use]
    pub fn in_version(&self, api_version: &str) -> Self {
        let mut object = Value::clone(&self.object);
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".to_owned(), api_version.into());
        }
        let key = ObjectKey::of(&object).map_or_else(|| Arc::clone(&self.key), Arc::new);
        Self {
            key,
            object: Arc::new(object),
            ..self.clone()
        }
    }

    /// Returns the object without what the Helm operators in Go add to a manifest: ownership metadata and the
    /// namespace of the release.
    pub fn without_ownership(&self, namespace: &str) -> Value {
        let mut object = Value::clone(&self.object);
        let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
            return object;
        };
        metadata.remove("ownerReferences");
        if metadata.get("namespace").and_then(Value::as_str) == Some(namespace) {
            metadata.remove("namespace");
        }
        for (field, prefix) in [
            ("annotations", "operator-sdk/primary-resource"),
            ("labels", "helm.sdk.operatorframework.io/"),
        ] {
            if let Some(map) = metadata.get_mut(field).and_then(Value::as_object_mut) {
                map.retain(|key, _| !key.starts_with(prefix));
                if map.is_empty() {
                    metadata.remove(field);
                }
            }
        }
        object
    }

    /// Returns the annotation `name`.
    pub fn annotation(&self, name: &str) -> Option<&str> {
        self.object
            .get("metadata")?
            .get("annotations")?
            .get(name)?
            .as_str()
    }

    /// Returns whether the object stays when the release no longer has it: it, or a list that it is an
    /// item of, is annotated with `helm.sh/resource-policy: keep`.
    pub fn is_kept(&self) -> bool {
        self.kept
    }
}

/// Returns the objects of a manifest in order. Items of lists (see [`list_items`]) are returned
/// separately; empty documents are skipped.
///
/// # Errors
/// If a document is not YAML or not a Kubernetes object.
pub fn parse_objects(manifest: &str) -> Result<Vec<ManifestObject>, ManifestError> {
    let mut objects = Vec::new();
    for (index, text) in split(manifest).enumerate() {
        parse_document(text, index + 1, &mut objects)?;
    }
    Ok(objects)
}

/// Returns the objects of a file of `crds/` as [`parse_objects`] does.
///
/// # Errors
/// The errors of [`parse_objects`], and [`ManifestError::List`] for a list that Helm does not create.
pub fn parse_definitions(manifest: &str) -> Result<Vec<ManifestObject>, ManifestError> {
    for (index, text) in split(manifest).enumerate() {
        let problem = yaml::parse(text)
            .ok()
            .and_then(|list| problem_of_items(&list));
        if let Some(problem) = problem {
            let document = index + 1;
            return Err(ManifestError::List { document, problem });
        }
    }
    parse_objects(manifest)
}

fn parse_document(
    text: &str,
    document: usize,
    objects: &mut Vec<ManifestObject>,
) -> Result<(), ManifestError> {
    let source = source_of(text);
    let object = yaml::parse(text).map_err(|error| ManifestError::Yaml {
        document,
        template: source.map(str::to_owned),
        error,
    })?;
    push_object(object, document, source.map(Arc::from).as_ref(), objects)
}

/// Returns whether an object or a list is annotated with `helm.sh/resource-policy: keep`.
fn is_annotated_to_be_kept(object: &Value) -> bool {
    object
        .pointer("/metadata/annotations/helm.sh~1resource-policy")
        .and_then(Value::as_str)
        .is_some_and(|policy| policy.trim().eq_ignore_ascii_case("keep"))
}

/// Returns the template named in the `# Source:` line at the head of a document.
pub(crate) fn source_of(text: &str) -> Option<&str> {
    text.lines()
        .find_map(|line| line.strip_prefix("# Source: "))
        .map(str::trim_end)
}

/// Adds the object of a document, or the items of a list.
pub(crate) fn push_object(
    mut object: Value,
    document: usize,
    source: Option<&Arc<str>>,
    objects: &mut Vec<ManifestObject>,
) -> Result<(), ManifestError> {
    if object.is_null() {
        return Ok(());
    }
    let missing = |missing| ManifestError::NoObject {
        document,
        template: source.map(ToString::to_string),
        missing,
    };
    let has = |name| {
        object
            .get(name)
            .and_then(Value::as_str)
            .is_some_and(|s| !s.is_empty())
    };
    if !has("apiVersion") {
        return Err(missing("apiVersion"));
    }
    if !has("kind") {
        return Err(missing("kind"));
    }
    let kept = is_annotated_to_be_kept(&object);
    if let Some(items) = list_items(&mut object) {
        let first = objects.len();
        for item in std::mem::take(items) {
            push_object(item, document, source, objects)?;
        }
        for item in objects.get_mut(first..).unwrap_or_default() {
            item.kept |= kept;
        }
        return Ok(());
    }
    check_count(objects.len())?;
    let key = ObjectKey::of(&object).ok_or_else(|| missing("kind"))?;
    objects.push(ManifestObject {
        source: source.cloned(),
        position: objects.len(),
        key: Arc::new(key),
        object: Arc::new(object),
        kept,
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_flattened_and_empty_documents_skipped() {
        let manifest = r#"---
# Source: c/templates/list.yaml
{"apiVersion": "v1", "kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}},
  {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "b", "namespace": "n"}}
]}
---
---
# Source: c/templates/typed.yaml
{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBindingList", "items": [
  {"metadata": {"name": "c"}},
  {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "d"}}
]}
"#;
        let objects = parse_objects(manifest).unwrap();
        let keys: Vec<String> = objects
            .iter()
            .map(|object| object.key().to_string())
            .collect();
        assert_eq!(
            keys,
            [
                "Secret a",
                "Deployment.apps n/b",
                "RoleBinding.rbac.authorization.k8s.io c",
                "Secret d"
            ]
        );
        assert_eq!(objects[1].source(), Some("c/templates/list.yaml"));
        assert_eq!(objects[1].position(), 1);
    }

    #[test]
    fn trailing_colon_of_an_argument_is_kept() {
        let manifest = "apiVersion: v1\nkind: Pod\nargs: [--addr=:, --name=x:]\n";
        let objects = parse_objects(manifest).unwrap();
        let expected = serde_json::json!(["--addr=:", "--name=x:"]);
        assert_eq!(objects[0].object()["args"], expected);
    }

    #[test]
    fn non_objects_are_reported_with_template_and_document() {
        let manifest = "---\n{\"apiVersion\": \"v1\", \"kind\": \"Secret\"}\n---\n\
                        # Source: c/templates/x.yaml\n{\"kind\": \"Pod\"}\n";
        let error = parse_objects(manifest).unwrap_err();
        assert_eq!(
            error.to_string(),
            "document 2 (c/templates/x.yaml) is not a Kubernetes object: apiVersion is missing"
        );
    }

    #[test]
    fn keep_policy_is_read_from_the_annotation() {
        let manifest = r#"{"apiVersion": "v1", "kind": "Secret", "metadata":
            {"name": "a", "annotations": {"helm.sh/resource-policy": " Keep"}}}"#;
        assert!(parse_objects(manifest).unwrap()[0].is_kept());
        let list = r#"{"apiVersion": "v1", "kind": "List",
            "metadata": {"annotations": {"helm.sh/resource-policy": "keep"}},
            "items": [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}]}
---
{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}}"#;
        let kept = parse_objects(list).unwrap();
        assert_eq!([kept[0].is_kept(), kept[1].is_kept()], [true, false]);
    }
}
