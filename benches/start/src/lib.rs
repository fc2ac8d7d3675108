//! Shared by the benchmarks of running operators.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a development tool; panicking is its error report"
)]

use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, PostParams};

/// Returns the processor time of all threads of a process.
pub fn cpu(id: u32) -> Duration {
    let threads = fs::read_dir(format!("/proc/{id}/task")).unwrap().flatten();
    let times = threads.filter_map(|thread| {
        let times = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        times.split_whitespace().next()?.parse().ok()
    });
    times.map(Duration::from_nanos).sum()
}

/// Creates a definition, and waits until it is served.
pub async fn define(client: Client, definition: &CustomResourceDefinition) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    let created = definitions.create(&PostParams::default(), definition).await;
    let name = created
        .expect("the definition is new")
        .metadata
        .name
        .expect("a name");
    let established = |object: Option<&CustomResourceDefinition>| {
        let status = object.and_then(|object| object.status.as_ref());
        let mut conditions = status
            .into_iter()
            .flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|condition| condition.type_ == "Established" && condition.status == "True")
    };
    let limit = Duration::from_secs(30);
    hybrid_operator_test::wait::object(&definitions, &name, "Established", limit, established)
        .await
        .expect("Established");
}

/// Replaces a section of the report, or appends it.
pub fn write_section(report: &Path, heading: &str, section: &str) {
    let text = fs::read_to_string(report).expect("the report of benches/corpus");
    let (before, after) = text
        .split_once(heading)
        .map_or((text.as_str(), ""), |(before, old)| {
            (before, old.find("\n## ").map_or("", |end| &old[end + 1..]))
        });
    let (before, section) = (before.trim_end(), section.trim_end());
    let changed = format!("{before}\n\n{section}\n\n{after}");
    fs::write(report, format!("{}\n", changed.trim_end())).expect("a writable report");
}
