//! Volumes of a StatefulSet that grow.

use hybrid_operator_test::TestNamespace;
use hybrid_operator_test::fault::Fault;
use hybrid_operator_test::request::Recorded;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use crate::world::{
    InProcessOperator, Project, World, api, apply, autoscale, condition, control_plane, deploy,
    history, holds, namespace_of, ready_at, says, until,
};

const OPTIONS: &str = "upgrade: {expandVolumes: true}";

/// A StatefulSet with two volumes for each Pod.
const DATABASE: &str = "\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: {{ .Release.Name }}-db{{ if .Values.keep }}, annotations: {helm.sh/resource-policy: keep}{{ end }}}
spec:
  serviceName: {{ .Values.service | default \"db\" }}
  replicas: 2
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {containers: [{name: db, image: example.com/db}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: {{ .Values.data | default \"1Gi\" }}}}}
  - metadata: {name: log}
    spec: {accessModes: [ReadWriteOnce], storageClassName: {{ .Values.class }}, resources: {requests: {storage: {{ .Values.log | default \"1Gi\" }}}}}
{{- if .Values.bad }}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: {{ .Release.Name }}-bad}
spec: {}
{{- end }}
";

/// Returns the sizes that the claims of a template ask for.
async fn sizes(namespace: &TestNamespace, template: &str) -> Vec<Value> {
    let mut sizes = Vec::new();
    for number in [0, 1] {
        let name = format!("{template}-one-db-{number}");
        let claim = api(namespace, "PersistentVolumeClaim")
            .get(&name)
            .await
            .unwrap();
        sizes.push(claim.data["spec"]["resources"]["requests"]["storage"].clone());
    }
    sizes
}

/// Returns the uid of the StatefulSet and those of its Pods.
async fn uids(namespace: &TestNamespace) -> (Option<String>, Vec<Option<String>>) {
    let set = api(namespace, "StatefulSet").get("one-db").await.unwrap();
    let mut pods = Vec::new();
    for number in [0, 1] {
        let pod = api(namespace, "Pod")
            .get(&format!("one-db-{number}"))
            .await
            .unwrap();
        assert_eq!(pod.metadata.deletion_timestamp, None);
        pods.push(pod.metadata.uid);
    }
    (set.metadata.uid, pods)
}

/// Makes a storage class whose volumes cannot grow, and returns its name.
async fn fixed_class(namespace: &TestNamespace) -> String {
    let name = format!("{}-fixed", namespace.name());
    let class: StorageClass = serde_json::from_value(json!({
        "metadata": {"name": name}, "provisioner": "test.hybrid-operator/storage",
    }))
    .unwrap();
    let classes = Api::<StorageClass>::all(namespace.client());
    drop(
        classes
            .create(&PostParams::default(), &class)
            .await
            .unwrap(),
    );
    name
}

#[tokio::test]
async fn volumes_of_a_stateful_set_grow_and_its_pods_stay() {
    let world = or_skip!(World::of("volumes", OPTIONS, &[("db.yaml", DATABASE)]).await);
    let fixed = fixed_class(&world.namespace).await;
    let namespace = &world.namespace;
    let spec = |more: Value| {
        let mut spec = more;
        spec["class"] = json!(fixed);
        spec
    };
    world.deploy("one", spec(json!({}))).await;
    let sets = api(namespace, "StatefulSet");
    autoscale(&sets, "one-db").await;
    let (set, pods) = uids(namespace).await;
    world.deploy("one", spec(json!({"data": "2Gi"}))).await;
    let scaled = sets.get("one-db").await.unwrap();
    assert_eq!(scaled.data["spec"]["replicas"], 5);
    assert_eq!(sizes(namespace, "data").await, ["2Gi", "2Gi"]);
    assert_eq!(sizes(namespace, "log").await, ["1Gi", "1Gi"]);
    let (grown, same_pods) = uids(namespace).await;
    assert_ne!(grown, set);
    assert_eq!(same_pods, pods);
    // A rollback cannot make volumes smaller.
    world
        .widget("one", spec(json!({"data": "3Gi", "bad": true})))
        .await;
    let cr = world
        .until("Widget", "one", "Stalled", holds("Stalled"))
        .await;
    let left = condition(&cr, "NotAsRendered").unwrap();
    assert_eq!(left["reason"], "VolumeSizeKept", "{left}");
    let told = left["message"].as_str().unwrap();
    assert_contains!(told, "volumes of data stay at 3Gi and do not become 2Gi");
    assert_eq!(sizes(namespace, "data").await, ["3Gi", "3Gi"]);
    // Nor can a smaller value.
    world.deploy("one", spec(json!({"data": "1Gi"}))).await;
    // If something else cannot be changed, a claim cannot grow, or the set may not be created again, none does.
    for (more, told) in [
        (
            json!({"keep": true}),
            "the annotation helm.sh/resource-policy: keep prevents",
        ),
        (
            json!({"service": "other"}),
            "spec.serviceName is db and becomes other",
        ),
        (
            json!({"log": "2Gi"}),
            "does not have allowVolumeExpansion: true",
        ),
    ] {
        let mut spec = spec(more);
        spec["data"] = json!("9Gi");
        world.widget("one", spec).await;
        let failed = |cr: &Value| says(cr, "ReleaseFailed", told);
        world.until("Widget", "one", told, failed).await;
        assert_eq!(sizes(namespace, "data").await, ["3Gi", "3Gi"]);
    }
    assert_eq!(uids(namespace).await.1, pods);
}

#[tokio::test(flavor = "multi_thread")]
async fn growth_of_volumes_survives_a_crash_at_every_write() {
    let plane = or_skip!(control_plane().await);
    let project = Project::new(OPTIONS, &[("db.yaml", DATABASE)]);
    let client = async || plane.client().await.unwrap();
    let mut crashes = 0;
    for fault in [Fault::Unreachable, Fault::AnswerLost] {
        for nth in 1.. {
            let namespace = namespace_of(plane, "growth").await;
            let widgets = api(&namespace, "Widget");
            let operator = InProcessOperator::start(&project, client().await, namespace.name());
            deploy(&widgets, "one", json!({"class": "standard"})).await;
            drop(operator);
            let (_, pods) = uids(&namespace).await;
            let counts = |request: &Recorded| {
                let kinds = ["persistentvolumeclaims", "statefulsets"];
                request.is_write() && kinds.contains(&request.resource.as_str())
            };
            let larger = json!({"spec": {"class": "standard", "data": "2Gi", "log": "3Gi"}});
            let change = apply(&widgets, "one", &larger);
            let end = async { drop(until(&widgets, "one", "grown", ready_at(2)).await) };
            if !project
                .crash_at(plane, &namespace, (nth, fault), counts, change, end)
                .await
            {
                break;
            }
            crashes += 1;
            let _operator = InProcessOperator::start(&project, client().await, namespace.name());
            until(&widgets, "one", "grown", ready_at(2)).await;
            assert_eq!(sizes(&namespace, "data").await, ["2Gi", "2Gi"]);
            assert_eq!(sizes(&namespace, "log").await, ["3Gi", "3Gi"]);
            assert_eq!(uids(&namespace).await.1, pods);
            assert_eq!(history(&namespace, "one").await, ["superseded", "deployed"]);
        }
    }
    // The refused write, four claims, the deletion and the creation, each before and after its execution.
    assert!(crashes >= 14, "{crashes}");
}
