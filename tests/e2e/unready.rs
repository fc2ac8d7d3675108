//! A release that stays unready says why, as a person would find it in its Pods and events.

use hybrid_operator_test::fault::Faults;
use k8s_openapi::api::core::v1::{Event, Pod, ResourceQuota};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{Project, World, api, apply, condition, deploy, eventually, until};

/// A Deployment whose Pods have what `spec.pod` says, and a claim if `spec.claim` names a class.
const WEB: &str = r#"
{{- $container := dict "name" "main" "image" "example.com/web:1" "resources" (dict "requests" (dict "cpu" (.Values.cpu | default "10m"))) }}
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}-web}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {{ merge (dict "containers" (list $container)) (.Values.pod | default dict) | toJson }}
{{- with .Values.claim }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {storageClassName: {{ . }}, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
{{- end }}
"#;

/// Waits until `Ready` is false with a reason, and returns its message.
async fn cause(world: &World, name: &str, reason: &str) -> String {
    let explained = |cr: &Value| {
        condition(cr, "Ready").is_some_and(|c| c["status"] == "False" && c["reason"] == reason)
    };
    let cr = world.until("Widget", name, reason, explained).await;
    let message = &condition(&cr, "Ready").unwrap()["message"];
    message.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_schedulers_the_quotas_and_the_volumes_words_are_in_ready() {
    let world = or_skip!(World::of("causes", "", &[("web.yaml", WEB)]).await);
    let quotas: Api<ResourceQuota> =
        Api::namespaced(world.namespace.client(), world.namespace.name());
    let quota = json!({"metadata": {"name": "small"}, "spec": {"hard": {"requests.cpu": "1"}}});
    let quota = serde_json::from_value(quota).unwrap();
    drop(quotas.create(&PostParams::default(), &quota).await.unwrap());
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    for (name, spec) in [
        (
            "node",
            json!({"pod": {"nodeSelector": {"no-node": "has-this"}}}),
        ),
        ("quota", json!({"cpu": "2"})),
        ("account", json!({"pod": {"serviceAccountName": "nobody"}})),
        (
            "volume",
            json!({"claim": "none", "pod": {"volumes": volumes}}),
        ),
    ] {
        world.widget(name, spec).await;
    }
    let message = cause(&world, "node", "Unschedulable").await;
    assert!(
        message.starts_with("Deployment/node-web: Pod node-web-"),
        "{message}"
    );
    assert_contains!(message, "nodes are available");
    let message = cause(&world, "quota", "QuotaExceeded").await;
    assert!(
        message.starts_with("Deployment/quota-web: its Pods are not created: "),
        "{message}"
    );
    assert_contains!(message, "exceeded quota: small");
    let message = cause(&world, "account", "ServiceAccountMissing").await;
    assert_contains!(message, "\"nobody\" not found");
    let message = cause(&world, "volume", "VolumePending").await;
    assert_contains!(message, "\"none\" not found");

    // Once the cause is gone, so is its trace.
    world
        .deploy("node", json!({"pod": {"nodeSelector": {}}}))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_pulled_is_named_and_a_release_at_rest_reads_no_pods() {
    let project = Project::new("reconcilePeriod: 100ms", &[("web.yaml", WEB)]);
    let faults = Faults::new();
    let (namespace, _operator) = or_skip!(project.in_process("image", &faults).await);
    let widgets = api(&namespace, "Widget");
    // No kubelet runs on this node: the test takes its place.
    let spec = json!({"spec": {"pod": {"nodeName": "without-kubelet"}}});
    apply(&widgets, "one", &spec).await;
    let pods: Api<Pod> = Api::namespaced(namespace.client(), namespace.name());
    let selected = ListParams::default().labels("app=one");
    let mut pod = None;
    eventually("a Pod", async || {
        pod = pods.list(&selected).await.unwrap().items.pop();
        pod.is_some()
    })
    .await;
    let pod = pod.unwrap();
    let name = pod.metadata.name.clone().unwrap();
    let image = "example.com/web:1";
    let status = json!({"status": {"phase": "Pending", "containerStatuses": [{
        "name": "main", "image": image, "imageID": "", "ready": false, "restartCount": 0,
        "state": {"waiting": {
            "reason": "ImagePullBackOff", "message": format!("Back-off pulling image \"{image}\""),
        }},
    }]}});
    let patched = pods
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&status))
        .await;
    drop(patched.unwrap());
    let events: Api<Event> = Api::namespaced(namespace.client(), namespace.name());
    let event = json!({
        "metadata": {"name": format!("{name}.1"), "namespace": namespace.name()},
        "involvedObject": {
            "kind": "Pod", "apiVersion": "v1", "namespace": namespace.name(), "name": name,
            "uid": pod.metadata.uid,
        },
        "type": "Warning", "reason": "Failed", "count": 12,
        "message": format!("Failed to pull image \"{image}\": {image}: not found"),
        "source": {"component": "kubelet"},
        "lastTimestamp": "2025-01-01T00:00:00Z",
    });
    let event = serde_json::from_value(event).unwrap();
    drop(events.create(&PostParams::default(), &event).await.unwrap());

    let named = |cr: &Value| {
        condition(cr, "Ready").is_some_and(|c| {
            c["reason"] == "ImagePullFailed"
                && c["message"]
                    == format!("Deployment/one-web: Pod {name}: image {image} not found (12 times)")
        })
    };
    until(&widgets, "one", "the cause", named).await;
    let read = || {
        let requests = faults.requests();
        let about_pods = requests
            .iter()
            .filter(|request| matches!(request.resource.as_str(), "pods" | "events"));
        about_pods
            .filter(|request| request.verb != "create")
            .count()
    };
    // The reconciles of the first ten seconds, ten a second, read nothing.
    assert!(read() <= 4, "{}", read());

    deploy(&widgets, "one", json!({"pod": {}})).await;
    let known = read();
    // Another custom resource is installed meanwhile, over several periods of the first one.
    deploy(&widgets, "two", json!({})).await;
    assert_eq!(read(), known);
}
