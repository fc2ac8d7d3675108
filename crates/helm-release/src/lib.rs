#![doc = include_str!("../README.md")]

mod action;
mod capabilities;
pub mod engine;
pub mod event;
mod health;
mod helm;
mod memories;
pub mod policy;
pub mod preview;
mod records;
pub mod release;
mod release_memory;
mod releases;
mod render_pool;
#[cfg(test)]
mod tests;

pub use engine::{Identity, ReleaseLocation};
pub use health::{ObjectHealth, health};
pub use helm::{Helm, HelmError};
pub use policy::ReleasePolicy;
pub use records::{RecordInfo, Records, RecordsError};
pub use release::{Storage, record_key_secret};
pub use releases::{Advanced, ReleaseState, Releases, Wanted};
/// The versions that fit.
pub use {helm_core, k8s_openapi, kube, kube_objects};
