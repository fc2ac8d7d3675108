//! Custom resources.

use hybrid_operator_test::ControlPlane;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use start_benchmark::{widget, widgets};

use crate::{NAMESPACES, name, namespace};

/// Defines the kind, and creates namespaces and custom resources.
pub(crate) async fn prepare(plane: &ControlPlane, releases: usize) -> Client {
    let client = start_benchmark::prepare(plane, (0..NAMESPACES).map(namespace)).await;
    let spec = || json!({"replicas": 0});
    let all = (0..releases).map(|number| (namespace(number), name(number), spec()));
    start_benchmark::create(&client, all).await;
    client
}

/// Returns how many custom resources are ready in their last generation.
pub(crate) async fn ready(client: &Client) -> usize {
    let all: Api<DynamicObject> = Api::all_with(client.clone(), &widget());
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
