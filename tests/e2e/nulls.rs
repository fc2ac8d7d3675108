//! Nulls that a chart renders: what the API server makes of them, and that they keep nobody busy.

use std::process::Command;

use hybrid_operator_test::fault::Faults;
use hybrid_operator_test::request::Recorded;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::helm_cli::helm;
use crate::world::{
    InProcessOperator, Project, api, api_of, apply, autoscale, control_plane, define,
    definition_of, merge, output, ready_at, until,
};

/// Fields with defaults, one without, and one of any content.
const SCHEMA: &str = "{type: object, properties: {spec: {type: object, properties: {\
    kept: {type: integer, default: 5, nullable: true}, \
    reset: {type: integer, default: 5}, \
    refused: {type: string}, \
    free: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}}";

const OBJECTS: &str = "\
apiVersion: GROUP/v1
kind: Sparse
metadata: {name: {{ .Release.Name }}-sparse, labels: {empty: null}}
spec:
  kept: null
  reset: null
  free: {value: null, in: {x: null}, list: [null, {z: null}]}
  {{- if .Values.refused }}
  refused: null
  {{- end }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map, annotations: null}
data: {a: null, value: {{ .Values.value | quote }}}
binaryData: null
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: {{ .Release.Name }}-claim, labels: {value: {{ .Values.value | quote }}}}
spec: {accessModes: [ReadWriteOnce], storageClassName: null, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}-web}
spec: {clusterIP: null, selector: {app: web}, ports: [{name: web, port: 80, protocol: null, nodePort: null}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}-web}
spec:
  replicas: null
  strategy: null
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {value: {{ .Values.value | quote }}}}
    spec:
      nodeSelector: null
      containers:
      - {name: web, image: web, resources: null, ports: [{containerPort: 80, protocol: null}]}
";

/// Returns whether a request writes an object of the release `one`.
fn writes_to_one(request: &Recorded) -> bool {
    request.is_write() && request.path.contains("/one-")
}

#[tokio::test(flavor = "multi_thread")]
async fn nulls_are_sent_as_by_helm_and_leave_nothing_to_do() {
    let Some(program) = helm() else { return };
    let plane = or_skip!(control_plane().await);
    let group = format!("nulls{}.example.com", std::process::id());
    let definition = definition_of(&group, "Sparse", "Namespaced", SCHEMA);
    define(plane, &definition).await;
    let objects = OBJECTS.replace("GROUP", &group);
    let project = Project::new("reconcilePeriod: 0s", &[("objects.yaml", &objects)]);
    let faults = Faults::new();
    let (namespace, mut operator) = or_skip!(project.in_process("nulls", &faults).await);
    let widgets = api(&namespace, "Widget");
    let deployed = async |name: &str, revision: u32| {
        until(&widgets, name, "deployed", ready_at(revision)).await;
    };
    let sparse = api_of(&namespace, &group, "Sparse");
    let (maps, deployments) = (api(&namespace, "ConfigMap"), api(&namespace, "Deployment"));
    apply(&widgets, "one", &json!({"spec": {"value": "1"}})).await;
    deployed("one", 1).await;

    output(
        Command::new(&program)
            .args(["install", "two", "--set-string", "value=1", "--namespace"])
            .arg(namespace.name())
            .arg(project.watches_file().with_file_name("chart"))
            .env("KUBECONFIG", plane.kubeconfig_path()),
    );
    let (ours, helms) = (sparse.get("one-sparse"), sparse.get("two-sparse"));
    let (ours, helms) = (ours.await.unwrap(), helms.await.unwrap());
    assert_eq!(ours.data, helms.data);
    assert_eq!(
        ours.data["spec"],
        json!({"kept": null, "reset": 5,
            "free": {"value": null, "in": {"x": null}, "list": [null, {"z": null}]}})
    );
    assert_eq!(ours.labels()["empty"], "");
    let (ours, helms) = (maps.get("one-map"), maps.get("two-map"));
    assert_eq!(ours.await.unwrap().data, helms.await.unwrap().data);
    let (ours, helms) = (deployments.get("one-web"), deployments.get("two-web"));
    let (ours, helms) = (ours.await.unwrap(), helms.await.unwrap());
    assert_eq!(ours.data["spec"], helms.data["spec"]);

    // An autoscaler sets what the chart leaves to the server; a null that the server refuses is left out.
    autoscale(&deployments, "one-web").await;
    for (revision, value) in [(2, "2"), (3, "3")] {
        let spec = json!({"value": value, "refused": true});
        apply(&widgets, "one", &json!({"spec": spec})).await;
        deployed("one", revision).await;
        let web = deployments.get("one-web").await.unwrap();
        assert_eq!(web.data["spec"]["replicas"], 5);
        let ports = web.data.pointer("/spec/template/spec/containers/0/ports");
        assert_eq!(
            ports,
            Some(&json!([{"containerPort": 80, "protocol": "TCP"}]))
        );
        let claim = api(&namespace, "PersistentVolumeClaim")
            .get("one-claim")
            .await;
        assert_eq!(claim.unwrap().labels()["value"], value);
        let spec = sparse.get("one-sparse").await.unwrap().data["spec"].clone();
        assert_eq!(spec.get("kept"), Some(&Value::Null));
        assert_eq!(spec.get("refused"), None);
    }

    // A null is restored like any other value.
    merge(&sparse, "one-sparse", &json!({"spec": {"kept": 7}})).await;
    let restored = |object: &Value| object["spec"].get("kept") == Some(&Value::Null);
    let what = "the null";
    until(&sparse, "one-sparse", what, restored).await;
    deployed("one", 3).await;

    // What has happened so far is handled once another release is deployed; the same after a restart.
    for other in ["other", "third"] {
        faults.forget();
        apply(&widgets, other, &json!({"spec": {"value": "1"}})).await;
        deployed(other, 1).await;
        let requests = faults.requests();
        let writes: Vec<&Recorded> = requests.iter().filter(|it| writes_to_one(it)).collect();
        assert!(writes.is_empty(), "{writes:?}");
        drop(operator);
        operator = InProcessOperator::faulty(&project, plane, &namespace, &faults).await;
    }
    drop(operator);
}
