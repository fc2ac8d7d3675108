//! `Chart.yaml` of the chart, with the annotations that Artifact Hub reads. Pure.

use serde_json::{Map, Value, json};

use super::manifests::Manifests;
use super::values::Image;
use super::{OperatorChartError, kind, object_name, text_at, yaml};
use crate::project::Project;

/// Inputs that determine the file.
pub(super) struct Inputs<'a> {
    pub(super) project: &'a Project,
    pub(super) manifests: &'a Manifests,
    pub(super) image: &'a Image,
    pub(super) version: Option<&'a str>,
    /// The file as it is.
    pub(super) present: Option<&'a Value>,
}

pub(super) fn chart(inputs: &Inputs<'_>) -> Result<String, OperatorChartError> {
    let file = "Chart.yaml";
    let name = &inputs.project.file.project_name;
    let mut fields = inputs
        .present
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let tag = inputs.image.tag.as_str();
    let from_tag = tag.strip_prefix('v').unwrap_or(tag);
    let is_version =
        from_tag.split('.').count() == 3 && from_tag.starts_with(|c: char| c.is_ascii_digit());
    let default_version = if is_version { from_tag } else { "0.1.0" };
    let mut set = |name: &str, value: Value, keep: bool| {
        if !(keep && fields.contains_key(name)) {
            fields.insert(name.to_owned(), value);
        }
    };
    set("apiVersion", "v2".into(), false);
    set("name", name.as_str().into(), false);
    set("type", "application".into(), false);
    set("appVersion", tag.into(), false);
    let description = format!("The Kubernetes operator {name}");
    set("description", description.into(), true);
    set("keywords", json!(["operator"]), true);
    let version = inputs.version.unwrap_or(default_version);
    set("version", version.into(), inputs.version.is_none());

    let annotations = fields.entry("annotations").or_insert_with(|| json!({}));
    if !annotations.is_object() {
        *annotations = json!({});
    }
    if let Some(annotations) = annotations.as_object_mut() {
        add_annotations(inputs, annotations)?;
    }
    yaml(file, &Value::Object(fields))
}

/// Adds the annotations that follow from the project; those of the user's stay.
fn add_annotations(
    inputs: &Inputs<'_>,
    annotations: &mut Map<String, Value>,
) -> Result<(), OperatorChartError> {
    let mut add = |name: &str, text: String| {
        annotations.insert(format!("artifacthub.io/{name}"), text.into());
    };
    add("operator", "true".to_owned());
    let definitions: Vec<Value> = inputs.manifests.objects().flat_map(crds).collect();
    if !definitions.is_empty() {
        add("crds", yaml("Chart.yaml", &definitions.into())?);
    }
    if !inputs.manifests.samples.is_empty() {
        let samples = Value::from(inputs.manifests.samples.clone());
        add("crdsExamples", yaml("Chart.yaml", &samples)?);
    }
    let image = json!([{"name": "manager", "image": inputs.image.text()}]);
    add("images", yaml("Chart.yaml", &image)?);
    if inputs.manifests.is_apache2 {
        add("license", "Apache-2.0".to_owned());
    }
    let capabilities = "artifacthub.io/operatorCapabilities";
    if !annotations.contains_key(capabilities) {
        annotations.insert(capabilities.to_owned(), "Seamless Upgrades".into());
    }
    Ok(())
}

/// Returns what Artifact Hub shows of the versions that an object defines.
fn crds(object: &Value) -> Vec<Value> {
    if kind(object) != "CustomResourceDefinition" {
        return Vec::new();
    }
    let kind = text_at(object, "/spec/names/kind");
    let versions = object.pointer("/spec/versions").and_then(Value::as_array);
    let versions = versions.into_iter().flatten();
    let served = versions.filter(|version| version.get("served") == Some(&Value::Bool(true)));
    let shown = served.map(|version| {
        let described = text_at(version, "/schema/openAPIV3Schema/description");
        let first = described.lines().next();
        // kube describes types without a comment of their own in this way.
        let first = first.filter(|line| !line.is_empty() && !line.starts_with("Auto-generated"));
        json!({
            "kind": kind,
            "version": text_at(version, "/name"),
            "name": object_name(object),
            "displayName": kind,
            "description": first.map_or_else(|| format!("Custom resources of the kind {kind}"), ToOwned::to_owned),
        })
    });
    shown.collect()
}
