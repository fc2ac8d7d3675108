//! Runs the operator's own program on a real API server. All tests share one control plane; each
//! has its own namespace and operator process.
//!
//! Without Go (or an already built control plane) the tests are skipped, each with a line that says
//! so.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]
#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON returns null for missing keys"
)]

/// Takes the value, or ends the test where what it needs is not available.
macro_rules! or_skip {
    ($start:expr) => {{
        let Some(started) = $start else {
            return;
        };
        started
    }};
}

/// Checks that a text has these parts.
macro_rules! assert_contains {
    ($text:expr, $($part:expr),+) => {{
        let text = &$text;
        $(
            let part = $part;
            assert!(text.contains(part), "{part:?} is not in {text}");
        )+
    }};
}

mod accounts;
mod admission;
mod adoption;
mod api_faults;
mod api_outage;
mod bad_input;
mod budget;
mod capabilities;
mod chaos;
mod charts;
mod components;
mod crash;
mod deletion;
mod demo;
mod deployment;
mod drift;
mod etcd_cluster;
mod examples;
mod expensive;
mod extensions;
mod helm_cli;
mod hooks;
mod image;
mod kinds;
mod lifecycle;
mod lists;
mod manager;
mod memory_limit;
mod migrating;
mod names;
mod native;
mod nulls;
mod olm;
mod operations;
mod operator_chart;
mod options;
mod orphans;
mod outputs;
mod own_patches;
mod page;
mod pod;
mod process;
mod profiles;
mod public_operators;
mod rbac;
mod readmes;
mod records;
mod redis_page;
mod reload;
mod remote_charts;
mod reporting;
mod restarts;
mod retries;
mod safety;
mod same_inputs;
mod scope;
mod security;
mod shards;
mod state;
mod status;
mod symptoms;
mod there_and_back;
mod traces;
mod transcript;
mod tutorial;
mod unready;
mod unready_releases;
mod visitors;
mod volumes;
mod webhooks;
mod world;
