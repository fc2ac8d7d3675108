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

use futures::{StreamExt, stream};
use hybrid_operator_test::ControlPlane;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

/// Number of requests at a time, and of custom resources that an operator reconciles at a time.
pub const AT_ONCE: usize = 10;

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

/// Returns the custom resources of a namespace.
pub fn widgets(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &widget())
}

/// Returns the kind of the custom resources.
pub fn widget() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("bench.example.com", "v1", "Widget"))
}

/// Defines the kind, and creates namespaces.
pub async fn prepare(plane: &ControlPlane, namespaces: impl Iterator<Item = String>) -> Client {
    let client = plane.client().await.unwrap();
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "metadata": {"name": "widgets.bench.example.com"},
        "spec": {
            "group": "bench.example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}},
            }],
        },
    });
    define(client.clone(), &serde_json::from_value(definition).unwrap()).await;
    let api: Api<Namespace> = Api::all(client.clone());
    for name in namespaces {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name);
        let created = api.create(&PostParams::default(), &namespace).await;
        drop(created.unwrap());
    }
    client
}

/// Creates custom resources: namespace, name and specification of each.
pub async fn create(client: &Client, all: impl Iterator<Item = (String, String, Value)>) {
    let created = all.map(|(namespace, name, spec)| {
        let mut object = DynamicObject::new(&name, &widget());
        object.data = json!({"spec": spec});
        let api = widgets(client, &namespace);
        async move {
            let created = api.create(&PostParams::default(), &object).await;
            drop(created.unwrap());
        }
    });
    stream::iter(created)
        .buffer_unordered(AT_ONCE)
        .collect::<()>()
        .await;
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
