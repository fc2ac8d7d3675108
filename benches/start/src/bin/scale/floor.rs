//! The requests of an install, sent by a bare client: what the API server takes for them alone.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::{name, namespace};
use start_benchmark::AT_ONCE;

/// Number of requests of a release.
pub(crate) const REQUESTS: usize = 11;
/// Size of a release record.
const RECORD: usize = 2200;
/// Size of a status.
const STATUS: usize = 1500;

/// Sends the requests of all releases; returns the time that they took.
pub(crate) async fn send(client: &Client, releases: usize) -> Duration {
    let begin = Instant::now();
    stream::iter((0..releases).map(|number| install(client, number)))
        .buffer_unordered(AT_ONCE)
        .collect::<()>()
        .await;
    begin.elapsed()
}

async fn install(client: &Client, number: usize) {
    let (namespace, name) = (namespace(number), name(number));
    let (params, widgets) = (
        PatchParams::default(),
        start_benchmark::widgets(client, &namespace),
    );
    let finalizer = Patch::Merge(json!({"metadata": {"finalizers": ["bench.example.com/floor"]}}));
    drop(widgets.patch(&name, &params, &finalizer).await.unwrap());
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let mut record = Secret::default();
    record.metadata.name = Some(format!("floor.{name}.v1"));
    record.string_data = Some([("release".to_owned(), "x".repeat(RECORD))].into());
    let record = secrets
        .create(&PostParams::default(), &record)
        .await
        .unwrap();
    for (group, kind, content) in objects(&name) {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        let objects: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &kind);
        let params = PatchParams::apply("floor").force();
        let mut object = DynamicObject::new(&name, &kind);
        object.data = content;
        drop(
            objects
                .patch(&name, &params, &Patch::Apply(object))
                .await
                .unwrap(),
        );
    }
    let status = |text: &str| {
        let text = text.repeat(STATUS);
        Patch::Merge(json!({"status": {"text": text}}))
    };
    for text in ["a", "b"] {
        let patched = widgets.patch_status(&name, &params, &status(text)).await;
        drop(patched.unwrap());
    }
    let record_name = record.metadata.name.clone().unwrap();
    let params_of_record = PostParams::default();
    let replaced = secrets.replace(&record_name, &params_of_record, &record);
    drop(replaced.await.unwrap());
    let patched = widgets.patch_status(&name, &params, &status("c")).await;
    drop(patched.unwrap());
}

/// Returns the objects of the chart: group, kind and content.
fn objects(name: &str) -> [(&'static str, &'static str, Value); 5] {
    let labels = json!({"app": name});
    [
        ("", "ServiceAccount", json!({})),
        ("", "Secret", json!({"stringData": {"password": "secret"}})),
        ("", "ConfigMap", json!({"data": {"key": "value"}})),
        (
            "",
            "Service",
            json!({"spec": {"selector": labels, "ports": [{"port": 80}]}}),
        ),
        (
            "apps",
            "Deployment",
            json!({"spec": {
                "replicas": 0, "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {
                    "serviceAccountName": name,
                    "containers": [{"name": "main", "image": "registry.example.com/main:1"}],
                }},
            }}),
        ),
    ]
}
