//! Custom resources, and what the kubelet and a registry that is down would write.

use futures::{StreamExt, stream};
use hybrid_operator_test::ControlPlane;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use start_benchmark::AT_ONCE;

use crate::Case;

/// Defines the kind, and creates the namespaces of a case.
pub(crate) async fn prepare(plane: &ControlPlane, case: &Case) -> Client {
    let namespaces = (0..case.namespaces).map(|number| case.namespace(number));
    start_benchmark::prepare(plane, namespaces).await
}

/// Creates the custom resources of a case.
pub(crate) async fn create(client: &Client, case: &Case) {
    let all = (0..case.releases).map(|number| {
        let pod = case.is_unready(number).then_some("pending");
        let spec = json!({"pod": pod});
        (case.namespace(number), format!("w{number}"), spec)
    });
    start_benchmark::create(client, all).await;
}

/// Says of each Pod that its image cannot be pulled, as a kubelet does.
pub(crate) async fn refuse_images(client: &Client) {
    let all: Api<Pod> = Api::all(client.clone());
    let pods = all.list(&ListParams::default()).await.unwrap().items;
    let ours = pods
        .into_iter()
        .filter(|pod| pod.namespace().is_some_and(|it| it.starts_with("tenant-")));
    let told = ours.map(|pod| async move {
        let (name, namespace) = (pod.name_any(), pod.namespace().unwrap());
        let image = "registry.example.com/main:1";
        let status = json!({"status": {"phase": "Pending", "containerStatuses": [{
            "name": "main", "image": image, "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {
                "reason": "ImagePullBackOff",
                "message": format!("Back-off pulling image \"{image}\""),
            }},
        }]}});
        let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let patch = Patch::Merge(&status);
        let patched = api
            .patch_status(&name, &PatchParams::default(), &patch)
            .await;
        drop(patched.unwrap());
        let event = json!({
            "metadata": {"name": format!("{name}.1"), "namespace": namespace},
            "involvedObject": {
                "kind": "Pod", "apiVersion": "v1", "namespace": namespace, "name": name,
                "uid": pod.metadata.uid,
            },
            "type": "Warning", "reason": "Failed", "count": 12, "source": {"component": "kubelet"},
            "message": format!("Failed to pull image \"{image}\": dial tcp 192.0.2.1:443: connect: connection refused"),
            "lastTimestamp": "2025-01-01T00:00:00Z",
        });
        let events: Api<Event> = Api::namespaced(client.clone(), &namespace);
        let event = serde_json::from_value(event).unwrap();
        drop(events.create(&PostParams::default(), &event).await.unwrap());
    });
    stream::iter(told)
        .buffer_unordered(AT_ONCE)
        .collect::<()>()
        .await;
}

/// Returns the number of Pods of the releases.
pub(crate) async fn pods(client: &Client) -> usize {
    let all: Api<Pod> = Api::all(client.clone());
    let pods = all.list(&ListParams::default()).await.unwrap().items;
    let ours = |pod: &&Pod| pod.namespace().is_some_and(|it| it.starts_with("tenant-"));
    pods.iter().filter(ours).count()
}
