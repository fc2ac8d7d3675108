//! Generates files of a project: CRDs, samples, Rust types, and the schema of `watches.yaml`.
//!
//! Everything is computed in memory; [`output`] compares it with the project, or writes it.

pub(crate) mod comments;
pub(crate) mod compat;
pub(crate) mod crds;
pub(crate) mod descriptions;
pub(crate) mod health;
pub(crate) mod inputs;
pub(crate) mod native;
pub(crate) mod output;
pub(crate) mod protection;
pub(crate) mod ring;
pub(crate) mod samples;
pub(crate) mod schema;
pub(crate) mod types;
pub(crate) mod watches_schema;

use helm_core::chart::Chart;

/// A kind of custom resource that a chart serves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChartApi<'a> {
    /// API group, such as `cache.example.com`.
    pub(crate) group: &'a str,
    /// API version, such as `v1alpha1`.
    pub(crate) version: &'a str,
    /// Kind, such as `Memcached`.
    pub(crate) kind: &'a str,
    /// Plural name in lower case.
    pub(crate) plural: &'a str,
    /// Whether custom resources are in a namespace.
    pub(crate) namespaced: bool,
    pub(crate) chart: &'a Chart,
    /// Directory of the chart, relative to the project.
    pub(crate) directory: &'a str,
}

/// Returns the CRD of a kind as YAML.
pub(crate) fn crd(api: &ChartApi) -> anyhow::Result<String> {
    let definition = crds::Definition::new(api.group, api.kind, crds::Names::of(api));
    let definition =
        definition.version(crds::Version::of_chart(api, schema::Strictness::default())?);
    let (yaml, cut) = definition.to_yaml(schema::LIMIT)?;
    if let Some(cut) = cut {
        crate::print_message(&cut);
    }
    Ok(yaml)
}

/// Returns the role that lets the operator serve the kind, as YAML.
pub(crate) fn role(api: &ChartApi) -> anyhow::Result<String> {
    crate::rbac::chart_role(api)
}

/// Returns a custom resource with the chart's defaults as YAML.
pub(crate) fn sample(api: &ChartApi) -> anyhow::Result<String> {
    samples::sample(api)
}
