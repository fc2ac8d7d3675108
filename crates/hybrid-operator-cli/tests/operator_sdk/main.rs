//! A project as `operator-sdk init --plugins=helm` and `create api` lay it out, in `project`, whose
//! image is replaced with this operator. Without a control plane the tests are skipped, each with a
//! line that says so.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON returns null for missing keys"
)]

mod manifests;
mod project;
mod takeover;
