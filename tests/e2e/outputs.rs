//! Fields of the status that expressions define, `readyWhen`, and specs with fields of their own.

use std::process::Command;

use hybrid_operator_test::fault::Faults;
use hybrid_operator_test::request::Recorded;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::transcript::{is_current, programs};
use crate::world::{
    Project, api, api_of, apply, condition, create, define, holds, merge, new_namespace, output,
    says, until,
};

const GROUP: &str = "outputs.example.com";

const CHART: &str = "\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: {{ .Release.Name }}-db, labels: {role: db}}
spec:
  serviceName: db
  replicas: {{ .Values.replicas | default 1 }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {containers: [{name: db, image: example.com/db}]}
---
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}, labels: {role: front}}
spec: {type: LoadBalancer, ports: [{port: 6379}], selector: {app: {{ .Release.Name }}}}
---
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-auth}
stringData: {password: hidden}
";

const OUTPUTS: &str = r#"
  objects: {db: {kind: StatefulSet}, front: {kind: Service, labels: {matchLabels: {role: front}}}, auth: {kind: Secret}},
  status: {
    url: "'redis://' + objects.front.metadata.name + ':6379'",
    replicas: objects.db.status.readyReplicas,
    asked: "has(spec.replicas) ? spec.replicas : 1",
    address: {value: "objects.front.status.loadBalancer.ingress[0].ip"},
    password: {value: string(objects.auth.data.password), sensitive: true},
    length: {value: objects.auth.data.password.size(), sensitive: true}
  },
  readyWhen: ["objects.front.status.loadBalancer.ingress.size() == 1"],
  columns: {URL: .status.url}"#;

/// Sets the addresses of a Service, as a load balancer does.
async fn set_addresses(services: &Api<DynamicObject>, name: &str, addresses: Value) {
    let patch = Patch::Merge(json!({"status": {"loadBalancer": {"ingress": addresses}}}));
    let params = PatchParams::default();
    drop(services.patch_status(name, &params, &patch).await.unwrap());
}

#[tokio::test]
async fn status_shows_what_expressions_read_and_is_ready_when_their_conditions_hold() {
    let project = Project::new(OUTPUTS, &[("all.yaml", CHART)]);
    let world = or_skip!(project.start("outputs").await);
    world.widget("one", json!({})).await;
    let awaited = |cr: &Value| {
        condition(cr, "Ready").is_some_and(|ready| ready["reason"] == "AwaitsCondition")
    };
    let cr = world.until("Widget", "one", "readyWhen", awaited).await;
    let status = &cr["status"];
    assert_eq!(status["url"], "redis://one:6379", "{status}");
    assert_eq!(status["replicas"], 1, "{status}");
    assert_eq!(status["asked"], 1, "{status}");
    assert_eq!(status["password"], "hidden", "{status}");
    assert_eq!(status.get("address"), None, "{status}");
    let complete = condition(&cr, "OutputsComplete").unwrap();
    assert_eq!(complete["reason"], "OutputsMissing", "{complete}");
    let waits = "address waits for objects.front.status.loadBalancer.ingress";
    assert!(
        complete["message"].as_str().unwrap().contains(waits),
        "{complete}"
    );

    let services = world.api("Service");
    set_addresses(&services, "one", json!([{"ip": "192.0.2.7"}])).await;
    let cr = world.until("Widget", "one", "Ready", holds("Ready")).await;
    assert_eq!(cr["status"]["address"], "192.0.2.7");
    assert_eq!(condition(&cr, "OutputsComplete").unwrap()["status"], "True");

    // What is gone is not shown any longer.
    set_addresses(&services, "one", json!([])).await;
    let is_gone = |cr: &Value| cr["status"].get("address").is_none() && !holds("Ready")(cr);
    world.until("Widget", "one", "no address", is_gone).await;

    set_addresses(&services, "one", json!([{"ip": "192.0.2.8"}])).await;
    world.widget("one", json!({"replicas": 2})).await;
    let follows = |cr: &Value| {
        let status = &cr["status"];
        status["replicas"] == 2 && status["asked"] == 2 && status["address"] == "192.0.2.8"
    };
    world.until("Widget", "one", "two replicas", follows).await;

    // Numbers are metrics, unless they are computed from Secrets.
    let namespace = world.namespace.name();
    let text = world.operator.metrics().await.unwrap();
    let mut series: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("hybrid_operator_output{output="))
        .collect();
    series.sort_unstable();
    let labels = format!(
        "group=\"test.example.com\",kind=\"Widget\",name=\"one\",namespace=\"{namespace}\",version=\"v1\"}}"
    );
    let expected = ["asked", "replicas"].map(|name| format!("\"{name}\",{labels} 2.0"));
    assert_eq!(series, expected);
}

#[tokio::test]
async fn field_that_the_entry_no_longer_has_is_removed() {
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\n";
    let project = Project::new(
        "status: {size: spec.size, former: spec.size}",
        &[("map.yaml", map)],
    );
    let world = or_skip!(project.start("former").await);
    world.widget("one", json!({"size": 1})).await;
    let shown = |cr: &Value| cr["status"]["former"] == 1;
    world.until("Widget", "one", "both fields", shown).await;
    // That of another program stays.
    let others = Patch::Merge(json!({"status": {"seen": true}}));
    let widgets = world.api("Widget");
    let params = PatchParams::apply("another");
    widgets.patch_status("one", &params, &others).await.unwrap();
    project.watch("test.example.com", "Widget", "status: {size: spec.size}");
    let is_gone = |cr: &Value| cr["status"].get("former").is_none();
    let cr = world.until("Widget", "one", "one field", is_gone).await;
    assert_eq!(
        (&cr["status"]["size"], &cr["status"]["seen"]),
        (&json!(1), &json!(true))
    );
}

const TWO_MAPS: &str = "\
{{- range list `a` `b` }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ $.Release.Name }}-{{ . }}}
data: {value: {{ $.Values.value | quote }}}
---
{{- end }}
";

#[tokio::test]
async fn name_that_selects_several_objects_is_reported_with_them() {
    let options = "objects: {map: {kind: ConfigMap}}, status: {value: objects.map.data.value}";
    let project = Project::new(options, &[("maps.yaml", TWO_MAPS)]);
    let world = or_skip!(project.start("ambiguous").await);
    let cr = world.deploy("one", json!({"value": "x"})).await;
    let cr = serde_json::to_value(&cr).unwrap();
    let complete = condition(&cr, "OutputsComplete").unwrap();
    assert_eq!(complete["reason"], "OutputsFailed");
    let message = complete["message"].as_str().unwrap();
    let expected = "objects.map selects ConfigMap";
    assert!(
        message.starts_with(expected) && message.contains("one-b; narrow"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_release_with_outputs_sends_no_requests() {
    let options = "reconcilePeriod: 200ms, objects: {one: {kind: ConfigMap, name: one-a}}, \
        status: {value: objects.one.data.value}, readyWhen: [\"objects.one.data.value != ''\"]";
    let project = Project::new(options, &[("maps.yaml", TWO_MAPS)]);
    let faults = Faults::new();
    let (namespace, _operator) = or_skip!(project.in_process("idle-outputs", &faults).await);
    let widgets = api(&namespace, "Widget");
    apply(&widgets, "one", &json!({"spec": {"value": "x"}})).await;
    until(&widgets, "one", "Ready", holds("Ready")).await;

    // It is reconciled five times a second, and others change.
    faults.forget();
    apply(&widgets, "two", &json!({"spec": {"value": "x"}})).await;
    let waits = |cr: &Value| condition(cr, "OutputsComplete").is_some();
    until(&widgets, "two", "its outputs", waits).await;
    let sent: Vec<String> = faults
        .requests()
        .iter()
        .filter(|request| {
            request
                .name
                .as_deref()
                .is_some_and(|name| name.starts_with("one"))
        })
        .map(Recorded::kind)
        .collect();
    assert!(sent.is_empty(), "{sent:#?}");
}

const SPEC_OF_ITS_OWN: &str = r#"
  api: {
    fields: {
      size: "string | enum=small,large | default=small",
      host: "string | pattern=^[a-z.]+$ | optional",
      limits: {memory: string | default=128Mi},
      password: {secretRef: true, optional: true}
    },
    rules: ["!has(self.host) || self.host != 'localhost'"]
  },
  map: {
    replicas: "spec.size == 'large' ? 3 : 1",
    resources.memory: spec.limits.memory,
    auth.password: spec.password,
    annotations.example\.com/host: spec.host
  }"#;

const MAPPED: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}, annotations: {{ .Values.annotations | default dict | toJson }}}
data: {replicas: {{ .Values.replicas | quote }}, memory: {{ .Values.resources.memory }}, password: {{ (.Values.auth | default dict).password | default `none` }}}
";

#[tokio::test]
async fn spec_with_fields_of_its_own_is_mapped_to_values_and_checked_by_the_api_server() {
    let (plane, namespace) = or_skip!(new_namespace("own-spec").await);
    let project = Project::new("", &[("map.yaml", MAPPED)]);
    project.watch(GROUP, "Cache", SPEC_OF_ITS_OWN);
    let crds = project.watches_file().with_file_name("crds");
    is_current("hybrid-operator").unwrap();
    output(
        Command::new(programs().join("hybrid-operator"))
            .args(["generate", "crds", "--watches-file"])
            .arg(project.watches_file())
            .arg("--output-dir")
            .arg(&crds)
            // In the project of this workspace, it would build the program, too.
            .current_dir(project.watches_file().parent().unwrap()),
    );
    let definition = std::fs::read_to_string(crds.join(format!("{GROUP}_caches.yaml"))).unwrap();
    define(plane, &definition).await;
    let operator = project.run(plane, &namespace).await;
    let caches = api_of(&namespace, GROUP, "Cache");
    let cache = |spec: Value| {
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Cache",
        "metadata": {"name": "one"}, "spec": spec})
    };
    for (wrong, expected) in [
        (
            json!({"size": "huge"}),
            "supported values: \"small\", \"large\"",
        ),
        (json!({"host": "UPPER"}), "should match '^[a-z.]+$'"),
        (json!({"host": "localhost"}), "self.host != 'localhost'"),
    ] {
        let object = serde_json::from_value(cache(wrong)).unwrap();
        let refused = caches
            .create(&PostParams::default(), &object)
            .await
            .unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused}");
    }
    create(&caches, cache(json!({}))).await;
    until(&caches, "one", "Ready", holds("Ready")).await;
    let maps = api(&namespace, "ConfigMap");
    let data = json!({"replicas": "1", "memory": "128Mi", "password": "none"});
    let map = maps.get("one").await.unwrap();
    assert_eq!(map.data["data"], data, "{}", operator.log());
    assert_eq!(
        map.metadata
            .annotations
            .unwrap_or_default()
            .get("example.com/host"),
        None
    );

    let change =
        json!({"spec": {"size": "large", "host": "a.example", "limits": {"memory": "1Gi"}}});
    merge(&caches, "one", &change).await;
    let follows = |map: &Value| {
        map["data"] == json!({"replicas": "3", "memory": "1Gi", "password": "none"})
            && map["metadata"]["annotations"]["example.com/host"] == "a.example"
    };
    until(&maps, "one", "the mapped values", follows).await;

    // The value is the content of the Secret, and follows it.
    let change = json!({"spec": {"password": {"name": "login", "key": "word"}}});
    merge(&caches, "one", &change).await;
    let missing = "Secret login does not exist or has no key word";
    let says_so = |cr: &Value| says(cr, "Irreconcilable", missing);
    until(&caches, "one", "the missing Secret", says_so).await;
    let secrets = api(&namespace, "Secret");
    for word in ["first", "second"] {
        apply(&secrets, "login", &json!({"stringData": {"word": word}})).await;
        let follows = |map: &Value| map["data"]["password"] == word;
        until(&maps, "one", word, follows).await;
    }
}
