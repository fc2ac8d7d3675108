//! Reads custom resources, Secrets and `ConfigMap`s from files.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;

use anyhow::{Context as _, bail};
use helm_core::manifest::list_items;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use serde_json::Value;

/// An object of a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resource {
    pub(crate) object: Value,
}

/// The objects of a file.
pub(crate) struct Given {
    pub(crate) objects: Vec<Resource>,
}

impl Given {
    /// Reads a file, or standard input for `-`.
    pub(crate) fn read(path: &str) -> anyhow::Result<Self> {
        let mut text = Vec::new();
        if path == "-" {
            let read = std::io::stdin().lock().read_to_end(&mut text);
            read.context("cannot read standard input")?;
        } else {
            text = std::fs::read(path).with_context(|| format!("cannot read {path}"))?;
        }
        Self::parse(path, &text)
    }

    /// Reads YAML documents; items of lists count as documents.
    pub(crate) fn parse(path: &str, text: &[u8]) -> anyhow::Result<Self> {
        let documents: Vec<Value> =
            go_yaml::documents(text).with_context(|| format!("{path} is not valid YAML"))?;
        let mut objects = Vec::new();
        for (index, mut document) in documents.into_iter().enumerate() {
            let number = index + 1;
            if let Some(items) = list_items(&mut document) {
                for item in std::mem::take(items) {
                    objects.push(Resource::new(item, path, number)?);
                }
            } else if !document.is_null() {
                objects.push(Resource::new(document, path, number)?);
            }
        }
        Ok(Self { objects })
    }
}

impl Resource {
    fn new(object: Value, path: &str, number: usize) -> anyhow::Result<Self> {
        for pointer in ["/apiVersion", "/kind", "/metadata/name"] {
            let found = object.pointer(pointer).and_then(Value::as_str);
            if found.is_none_or(str::is_empty) {
                let field = pointer.trim_start_matches('/').replace('/', ".");
                bail!("{path}: document {number} is not a Kubernetes object: {field} is missing");
            }
        }
        Ok(Self { object })
    }

    fn text(&self, pointer: &str) -> &str {
        let text = self.object.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default()
    }

    /// Returns a custom resource that was read from a cluster.
    pub(crate) fn of(object: &DynamicObject) -> anyhow::Result<Self> {
        let object = serde_json::to_value(object).context("cannot read the custom resource")?;
        Ok(Self { object })
    }

    pub(crate) fn api_version(&self) -> &str {
        self.text("/apiVersion")
    }

    pub(crate) fn kind(&self) -> &str {
        self.text("/kind")
    }

    pub(crate) fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        Some(self.text("/metadata/namespace")).filter(|name| !name.is_empty())
    }

    pub(crate) fn gvk(&self) -> GroupVersionKind {
        let version = self.api_version();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        GroupVersionKind::gvk(group, version, self.kind())
    }

    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        let labels = self.object.pointer("/metadata/labels").cloned();
        serde_json::from_value(labels.unwrap_or_default()).unwrap_or_default()
    }

    /// Sets or removes the namespace.
    pub(crate) fn set_namespace(&mut self, namespace: Option<&str>) {
        let metadata = self.object.get_mut("metadata");
        let Some(metadata) = metadata.and_then(Value::as_object_mut) else {
            return;
        };
        match namespace {
            Some(name) => {
                metadata.insert("namespace".to_owned(), Value::from(name));
            }
            None => {
                metadata.remove("namespace");
            }
        }
    }

    /// Returns whether `valuesFrom` can refer to it.
    pub(crate) fn is_source(&self) -> bool {
        self.api_version() == "v1" && matches!(self.kind(), "Secret" | "ConfigMap")
    }
}

/// Formats as `Kind namespace/name`.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind())?;
        if let Some(namespace) = self.namespace() {
            write!(f, "{namespace}/")?;
        }
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Given;

    fn read(text: &str) -> Result<Vec<String>, String> {
        let given = Given::parse("cr.yaml", text.as_bytes());
        let given = given.map_err(|error| format!("{error:#}"))?;
        Ok(given.objects.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn documents_and_items_of_lists_are_objects() {
        let text = "---\n# empty\n---\napiVersion: a/v1\nkind: K\nmetadata: {name: x}\n---\n\
                    apiVersion: v1\nkind: List\nitems:\n- apiVersion: a/v1\n  kind: K\n  \
                    metadata: {name: other, namespace: prod}\n";
        assert_eq!(read(text).unwrap(), ["K x", "K prod/other"]);
    }

    #[test]
    fn an_incomplete_object_is_named_by_its_document() {
        let expected = "cr.yaml: document 1 is not a Kubernetes object: apiVersion is missing";
        assert_eq!(read("a: 1\n").unwrap_err(), expected);
        assert!(
            read("a: b: c")
                .unwrap_err()
                .starts_with("cr.yaml is not valid YAML")
        );
        assert_eq!(read("").unwrap(), Vec::<String>::new());
    }
}
