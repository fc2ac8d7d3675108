//! The cluster and release layers on a real API server.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]
#![allow(
    clippy::indexing_slicing,
    reason = "JSON is indexed with null for what is absent"
)]

mod apply;
mod deletion;
mod discovery;
mod drift;
mod records;
mod streaming;
mod support;
