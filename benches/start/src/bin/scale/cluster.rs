//! Custom resources.

use futures::{StreamExt, stream};
use hybrid_operator_test::ControlPlane;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::{AT_ONCE, NAMESPACES, name, namespace};

pub(crate) fn kind() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("bench.example.com", "v1", "Widget"))
}

/// Returns the custom resources of a namespace.
pub(crate) fn widgets(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &kind())
}

/// Defines the kind, and creates namespaces and custom resources.
pub(crate) async fn prepare(plane: &ControlPlane, releases: usize) -> Client {
    let client = plane.client().await.unwrap();
    let definition = json!({
        "metadata": {"name": "widgets.bench.example.com"},
        "spec": {
            "group": "bench.example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "listKind": "WidgetList", "plural": "widgets", "singular": "widget"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any(), "status": any()}}},
            }],
        },
    });
    let definition = serde_json::from_value(definition).unwrap();
    start_benchmark::define(client.clone(), &definition).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    for number in 0..NAMESPACES {
        let mut object = Namespace::default();
        object.metadata.name = Some(namespace(number));
        let created = namespaces.create(&PostParams::default(), &object).await;
        drop(created.unwrap());
    }
    let created = (0..releases).map(|number| {
        let widgets = widgets(&client, &namespace(number));
        let mut widget = DynamicObject::new(&name(number), &kind());
        widget.data = json!({"spec": {"replicas": 0}});
        async move {
            let created = widgets.create(&PostParams::default(), &widget).await;
            drop(created.unwrap());
        }
    });
    stream::iter(created)
        .buffer_unordered(AT_ONCE)
        .collect::<()>()
        .await;
    client
}

fn any() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Returns how many custom resources are ready in their last generation.
pub(crate) async fn ready(client: &Client) -> usize {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &kind());
    let mut count = 0;
    let mut page = ListParams::default().limit(500);
    loop {
        let list = all.list(&page).await.unwrap();
        count += list.items.iter().filter(|widget| is_ready(widget)).count();
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return count,
        }
    }
}

/// Returns whether a custom resource is ready in its last generation.
pub(crate) fn is_ready(widget: &DynamicObject) -> bool {
    let conditions = widget.data.pointer("/status/conditions");
    let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    conditions.any(|condition| {
        condition["type"] == "Ready"
            && condition["status"] == "True"
            && condition["observedGeneration"].as_i64() == widget.metadata.generation
    })
}

/// Changes a value of a custom resource.
pub(crate) async fn edit(client: &Client, number: usize, value: usize) -> DynamicObject {
    let patch = Patch::Merge(json!({"spec": {"edit": value.to_string()}}));
    let widgets = widgets(client, &namespace(number));
    let patched = widgets
        .patch(&name(number), &PatchParams::default(), &patch)
        .await;
    patched.unwrap()
}
