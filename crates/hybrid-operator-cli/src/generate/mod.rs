//! What the generators share.

pub(crate) mod report;

use helm_core::chart::Chart;

/// A kind of custom resource that a chart serves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChartApi<'a> {
    /// API group.
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
    /// Directory of the chart, relative to the project.
    pub(crate) directory: &'a str,
}
