//! Helm without a cluster: charts, values, rendering, manifests and release records.
//!
//! Everything here is synchronous and, except for reading chart files, pure: no Kubernetes client,
//! no clock, no environment. Output and records are byte for byte those of Helm 4.
//!
//! * [`chart`]: a [`Chart`] loaded from a directory or archive, immutable and cheap to clone.
//! * [`values`]: values files, `--set` flags, and coalescing of a user's values with a chart's.
//! * [`engine`]: a [`CompiledChart`], parsed once and rendered often, from any thread.
//! * [`render`]: what a render gives: the manifest, its objects, hooks and notes.
//! * [`manifest`]: documents, install order, hooks, object identities, differences by meaning.
//! * [`release`]: Helm's release record and how it is stored in a Secret.
//! * [`capabilities`]: what templates see of the cluster.
#![warn(clippy::missing_errors_doc)]

pub mod capabilities;
pub mod chart;
mod digest;
pub mod engine;
pub mod manifest;
mod place;
pub mod release;
pub mod render;
#[cfg(test)]
mod rows;
mod slots;
pub mod values;
pub mod version;
mod yaml;

pub use capabilities::Capabilities;
pub use chart::Chart;
pub use digest::{Digest, DigestBuilder};
pub use engine::{CompiledChart, RenderError, RenderInput};
pub use place::Place;
pub use render::Rendered;
pub use values::{Coalesced, Values};

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
