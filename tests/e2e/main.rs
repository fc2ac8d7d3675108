//! The operator's own program on a real API server. One control plane serves all tests; each has a
//! namespace and an operator process of its own.
//!
//! Without Go (or a control plane that is built already) the tests are skipped, each with a line
//! that says so.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]
#![allow(
    clippy::indexing_slicing,
    reason = "JSON is indexed with null for what is absent"
)]

mod adoption;
mod away;
mod bad_input;
mod budget;
mod capabilities;
mod charts;
mod crash;
mod drift;
mod expensive;
mod extensions;
mod helm_cli;
mod hooks;
mod lifecycle;
mod native;
mod options;
mod process;
mod rbac;
mod records;
mod restarts;
mod retries;
mod safety;
mod same_inputs;
mod scope;
mod symptoms;
mod told;
mod trouble;
mod vanishing;
mod world;
