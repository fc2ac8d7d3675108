//! Generates the files of a chart's kind: its CRD, its role and its sample.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use helm_core::chart::Chart;
use helm_core::engine::ReleaseInfo;
use helm_core::{CompiledChart, RenderInput, Values};
use serde_json::{Value, json};

use crate::scaffold::names;

/// A kind that a chart serves.
pub(crate) struct ChartApi<'a> {
    /// API group with the domain.
    pub(crate) group: &'a str,
    /// API version.
    pub(crate) version: &'a str,
    /// Kind.
    pub(crate) kind: &'a str,
    /// Plural name in lower case.
    pub(crate) plural: &'a str,
    /// Whether custom resources are in a namespace.
    pub(crate) namespaced: bool,
    /// The chart.
    pub(crate) chart: &'a Chart,
    /// Its directory, relative to the project.
    pub(crate) directory: &'a str,
}

/// Returns the CRD of the kind.
pub(crate) fn crd(api: &ChartApi) -> anyhow::Result<String> {
    let kind = api.kind;
    let column = |name: &str, type_: &str, path: &str| json!({"name": name, "type": type_, "jsonPath": path});
    let open = |description: &str| json!({"description": description, "type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let text = |description: &str| json!({"description": description, "type": "string"});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", api.plural, api.group)},
        "spec": {
            "group": api.group,
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": api.plural,
                "singular": kind.to_ascii_lowercase(),
            },
            "scope": if api.namespaced { "Namespaced" } else { "Cluster" },
            "versions": [{
                "name": api.version,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status"),
                    column("Release", "string", ".status.release.name"),
                    column("Revision", "integer", ".status.release.revision"),
                    column("Chart", "string", ".status.release.chartVersion"),
                    column("Age", "date", ".metadata.creationTimestamp"),
                ],
                "schema": {"openAPIV3Schema": {
                    "description": format!("{kind} is a release of the {} chart; its spec holds the chart's values.", api.chart.name()),
                    "type": "object",
                    "properties": {
                        "apiVersion": text("Version of the schema of this object."),
                        "kind": text("Kind of this object."),
                        "metadata": {"type": "object"},
                        "spec": open("Values of the chart; omitted values have the chart's defaults."),
                        "status": open("Observed state of the release."),
                    },
                }},
            }],
        },
    });
    Ok(go_yaml::to_string(&definition)?)
}

/// Returns the role that lets the operator serve the kind: that of the objects that the chart renders
/// with its default values.
pub(crate) fn role(api: &ChartApi) -> anyhow::Result<String> {
    let objects = rendered(api.chart).with_context(|| {
        format!(
            "cannot render the chart {} with its default values to find out which objects its role must allow",
            api.chart.name()
        )
    })?;
    let mut resources: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (version, kind) in objects {
        let group = version.rsplit_once('/').map_or("", |(group, _)| group);
        let resource = names::plural(&kind);
        resources
            .entry(group.to_owned())
            .or_default()
            .insert(resource);
    }
    let rule = |group: &str, resources: &[String], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let plural = api.plural;
    let all = [
        "create", "delete", "get", "list", "patch", "update", "watch",
    ];
    let mut records = all.to_vec();
    records.insert(2, "deletecollection");
    let mut rules = vec![
        rule(
            api.group,
            &[plural.to_owned()],
            &["get", "list", "patch", "watch"],
        ),
        rule(api.group, &[format!("{plural}/status")], &["patch"]),
        rule(api.group, &[format!("{plural}/finalizers")], &["update"]),
        rule("", &["secrets".to_owned()], &records),
    ];
    for (group, resources) in &resources {
        let resources: Vec<String> = resources.iter().cloned().collect();
        rules.push(rule(group, &resources, &all));
    }
    let cluster_role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": format!("chart-{}-role", api.kind.to_ascii_lowercase())},
        "rules": rules,
    });
    let text = go_yaml::to_string(&cluster_role)?;
    Ok(format!(
        "# What the operator does for the chart {}.\n{text}",
        api.directory
    ))
}

/// Returns `apiVersion` and kind of all objects that the chart renders with its default values.
fn rendered(chart: &Chart) -> anyhow::Result<BTreeSet<(String, String)>> {
    let compiled = CompiledChart::compile(chart)?;
    let values = compiled.coalesce(Values::default())?;
    let release = ReleaseInfo::new("release-name", "default");
    let rendered = compiled.render(&RenderInput::new(release, &values))?;
    let mut texts: Vec<&str> = rendered
        .hooks()
        .iter()
        .map(|hook| hook.manifest.as_str())
        .collect();
    texts.push(rendered.manifest());
    let mut kinds = BTreeSet::new();
    for text in texts {
        for object in go_yaml::documents::<Value>(text.as_bytes())? {
            let field = |name: &str| {
                object
                    .get(name)
                    .and_then(Value::as_str)
                    .map(ToOwned::to_owned)
            };
            kinds.extend(field("apiVersion").zip(field("kind")));
        }
    }
    Ok(kinds)
}

/// Returns a sample of the kind, with the chart's defaults.
#[allow(
    clippy::unnecessary_wraps,
    reason = "has the form of the other generators"
)]
pub(crate) fn sample(api: &ChartApi) -> anyhow::Result<String> {
    Ok(format!(
        "apiVersion: {}/{}\nkind: {}\nmetadata:\n  name: {}-sample\n# Any value of the chart can be set here; see {}/values.yaml.\nspec: {{}}\n",
        api.group,
        api.version,
        api.kind,
        api.kind.to_ascii_lowercase(),
        api.directory
    ))
}
