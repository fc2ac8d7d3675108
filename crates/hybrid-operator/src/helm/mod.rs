//! Helm charts as operators: each custom resource of a kind becomes a Helm release.
//!
//! ```text
//! observe (caches) -> desired (values, digest, content) -> plan -> act (one step) -> publish
//! ```
//!
//! `Engine::advance` is the whole flow, for releases of custom resources and of components alike. Each stage is a
//! function in its own module:
//!
//! | module | result | source |
//! |---|---|---|
//! | `custom_resource`, `component` | the release, and what is asked of it | watch of custom resources, native controllers |
//! | `observe` | facts | caches: records, objects, dependencies |
//! | `desired` | inputs with their digest, and the content of a new revision | values, chart, lookups |
//! | `plan` | one step | facts only; all decisions are made here |
//! | `act` | a report | the step, one file each; makes no decisions |
//! | `publish` | status and events | the report; nothing else writes them |
//!
//! `view` shows people what these keep in memory.
//!
//! RBAC: for the kind `get`, `list`, `watch`, `patch`, and `patch` on its status; for Secrets,
//! which hold the records, all verbs; for the chart's objects `get`, `list`, `watch`, `create`,
//! `patch`, `delete`.

mod access;
mod admission;
mod annotations;
mod builder;
mod chart;
mod component;
mod conditions;
mod credentials;
mod custom_resource;
mod deployed;
mod effects;
mod environment;
mod events;
mod extend;
mod locate;
mod mask;
mod memory;
mod offline;
mod outputs;
mod preview;
mod publish;
mod reconciler;
mod references;
mod reload;
mod remote;
mod report;
mod resources;
mod retried;
mod router;
mod setup;
mod source;
mod status;
#[cfg(test)]
mod tests;
mod unassigned;
pub(crate) mod view;

pub(crate) use admission::Admission;
pub use admission::refusal;
pub use builder::{HelmController, load};
pub use chart::{BuildError, Chart};
pub use component::{Component, ComponentError, Release, components, install, uninstall};
pub use deployed::{DeployedRelease, DeployedReleases, deployed};
pub use effects::effects;
pub use extend::{ExtensionError, ReleaseContext};
pub use helm_core::Values;
pub use helm_release::engine::{ReleaseOptions, ReleaseRef};
pub use helm_release::{
    ObjectHealth, RecordInfo, Records, RecordsError, Storage, health, record_key_secret,
};
pub use mask::hide_secrets;
pub use offline::{Preview, PreviewError, PreviewInput, offline, values_of};
pub use preview::in_cluster;
pub use reload::Charts;
pub(crate) use reload::{MissingCharts, READINESS};
pub use remote::ChartReader;
