//! `admission`: custom resources that the operator checks before they are stored.

use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use crate::world::{Project, World, eventually, merge};

const DB: &str = "\
{{- if .Values.slow }}
{{- $x := repeat 1000 \"a \" }}{{- range until 500000 }}{{- $y := regexReplaceAll \"(a|b)*c\" $x \"\" }}{{- end }}
{{- end }}
{{- if .Values.lookup }}
{{- if not (lookup \"v1\" \"ConfigMap\" .Release.Namespace \"no-such\") }}{{ $x := 1 }}{{ end }}
{{- end }}
{{- if eq (mod (int .Values.replicas) 2) 0 }}
{{- fail \"replicas must be odd\" }}
{{- end }}
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: {{ .Release.Name }}-db}
spec:
  serviceName: {{ .Values.service | default \"db\" }}
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {containers: [{name: db, image: {{ .Values.image | default \"example.com/db\" | quote }}}]}
{{- if not .Values.stateless }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: {{ .Release.Name }}-data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
{{- end }}
";

const SCHEMA: &str =
    r#"{"type": "object", "properties": {"replicas": {"type": "integer", "maximum": 9}}}"#;

/// Sends a request about a Widget; returns the code, the message if it failed, and the warnings.
async fn send(
    world: &World,
    method: &str,
    name: &str,
    query: &str,
    body: &Value,
) -> (u16, String, Vec<String>) {
    let namespace = world.namespace.name();
    let all = format!("/apis/test.example.com/v1/namespaces/{namespace}/widgets");
    let (url, content) = match method {
        "POST" => (format!("{all}?{query}"), "application/json"),
        _ => (
            format!("{all}/{name}?{query}"),
            "application/merge-patch+json",
        ),
    };
    let request = http::Request::builder()
        .method(method)
        .uri(url)
        .header("content-type", content)
        .body(serde_json::to_vec(body).unwrap().into())
        .unwrap();
    let response = world.namespace.client().send(request).await.unwrap();
    let (head, body) = response.into_parts();
    let warnings = head.headers.get_all("warning").iter();
    let warnings = warnings.map(|text| text.to_str().unwrap().replace("\\\"", "\""));
    let warnings = warnings.collect();
    let body = body.collect_bytes().await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let message = body["message"].as_str().unwrap_or_default().to_owned();
    (head.status.as_u16(), message, warnings)
}

async fn create(world: &World, name: &str, spec: Value, query: &str) -> (u16, String, Vec<String>) {
    let widget = json!({
        "apiVersion": "test.example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec,
    });
    send(world, "POST", name, query, &widget).await
}

async fn change(world: &World, name: &str, patch: &Value) -> (u16, String, Vec<String>) {
    send(world, "PATCH", name, "", patch).await
}

/// Starts the operator of a project with webhooks.
async fn start(project: &Project, prefix: &str) -> Option<World> {
    let world = World::with(prefix, |plane, name| {
        project
            .operator(plane, name)
            .args(["--webhook-bind-address=127.0.0.1:0"])
            .env("POD_NAMESPACE", name)
    });
    world.await
}

/// Waits until the API server asks the operator: a spec is denied that can never be right.
async fn effective(world: &World) {
    let denied = async || {
        let (code, message, _) = create(world, "never", json!({"size": 2}), "dryRun=All").await;
        (code == 403)
            .then_some(())
            .ok_or(format!("{code}: {message}"))
    };
    eventually("the admission", denied).await;
}

fn configurations(world: &World) -> Api<DynamicObject> {
    let kind = "ValidatingWebhookConfiguration";
    let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    Api::all_with(world.namespace.client(), &ApiResource::from_gvk(&gvk))
}

/// Removes the configuration, which remains when the operator ends.
async fn cleanup(world: &World) {
    let name = format!("{}-webhooks", world.namespace.name());
    drop(
        configurations(world)
            .delete(&name, &DeleteParams::default())
            .await,
    );
}

fn project(options: &str) -> Project {
    let options = format!("{options}, map: {{replicas: spec.size}}");
    let project = Project::new(&options, &[("sts.yaml", DB)]);
    project.write("chart/values.schema.json", SCHEMA);
    project
}

#[tokio::test]
async fn spec_that_the_chart_refuses_is_denied_with_its_place_and_field() {
    let world = or_skip!(start(&project("admission: render"), "admission").await);
    effective(&world).await;
    let (code, message, _) = create(&world, "two", json!({"size": 2}), "").await;
    assert_eq!(code, 403, "{message}");
    assert_contains!(
        message,
        "admission webhook \"admit-v1.widgets.test.example.com\" denied the request: \
         Widget \"two\": templates/sts.yaml:8: replicas must be odd (from spec.size)"
    );
    let (code, message, _) = create(&world, "many", json!({"size": 11}), "").await;
    assert_eq!(code, 403, "{message}");
    assert_contains!(
        message,
        "Widget \"many\": ",
        "at '/replicas': must be <= 9",
        "(from spec.size)"
    );
    let (code, message, warnings) = create(&world, "three", json!({"size": 3}), "").await;
    assert_eq!((code, message.as_str()), (201, ""), "{warnings:?}");
    assert!(warnings.is_empty(), "{warnings:?}");
    cleanup(&world).await;
}

#[tokio::test]
async fn broken_custom_resource_can_be_changed_deleted_and_mended() {
    let project = project("admission: render");
    // It is stored while the operator does not check it.
    project.write(
        "chart/templates/sts.yaml",
        &DB.replace("{{- fail \"replicas must be odd\" }}\n", ""),
    );
    let world = or_skip!(start(&project, "mended").await);
    let many = async || {
        let (code, message, _) = create(&world, "never", json!({"size": 11}), "dryRun=All").await;
        (code == 403)
            .then_some(())
            .ok_or(format!("{code}: {message}"))
    };
    eventually("the admission", many).await;
    for name in ["one", "two"] {
        let (code, message, _) = create(&world, name, json!({"size": 2}), "").await;
        assert_eq!(code, 201, "{message}");
        world.api("Widget").get(name).await.unwrap();
    }
    project.write("chart/templates/sts.yaml", DB);
    effective(&world).await;

    let finalizer =
        json!({"metadata": {"finalizers": ["test.example.com/one"], "labels": {"a": "b"}}});
    let (code, message, warnings) = change(&world, "one", &finalizer).await;
    assert_eq!(code, 200, "{message}");
    assert!(warnings.is_empty(), "{warnings:?}");
    let (code, message, _) = change(&world, "one", &json!({"spec": {"size": 4}})).await;
    assert_eq!(code, 403, "{message}");
    let widgets = world.api("Widget");
    let status = Patch::Merge(json!({"status": {"seen": true}}));
    widgets
        .patch_status("one", &PatchParams::default(), &status)
        .await
        .unwrap();
    // Only the new spec counts.
    let (code, message, _) = change(&world, "one", &json!({"spec": {"size": 5}})).await;
    assert_eq!(code, 200, "{message}");
    widgets
        .delete("one", &DeleteParams::default())
        .await
        .unwrap();
    // While it is deleted, its spec does not count any more.
    let (code, message, _) = change(&world, "one", &json!({"spec": {"size": 4}})).await;
    assert_eq!(code, 200, "{message}");
    merge(&widgets, "one", &json!({"metadata": {"finalizers": null}})).await;
    world.gone("Widget", "one").await;
    world.remove("Widget", "two").await;
    cleanup(&world).await;
}

#[tokio::test]
async fn what_cannot_be_known_in_time_is_allowed_with_a_warning() {
    let world = or_skip!(start(&project("admission: render"), "unknown").await);
    effective(&world).await;
    for (field, why) in [
        ("lookup", "the chart looks up v1 ConfigMap"),
        ("slow", "it takes longer than 2 s"),
    ] {
        // It would be denied, too.
        let spec = json!({"size": 2, field: true});
        let (code, message, warnings) = create(&world, field, spec, "dryRun=All").await;
        assert_eq!(code, 201, "{message}");
        let expected = format!("Widget \"{field}\" was not checked: {why}");
        assert!(
            warnings.iter().any(|text| text.contains(&expected)),
            "{warnings:?}"
        );
    }
    cleanup(&world).await;
    let from = "admission: render, valuesFrom: [{kind: Secret, name: none, optional: true}]";
    let world = or_skip!(start(&project(from), "unknown-secret").await);
    let warned = async || {
        let (code, message, warnings) =
            create(&world, "any", json!({"size": 2}), "dryRun=All").await;
        assert_eq!(code, 201, "{message}");
        let expected = format!(
            "its values come from Secret {}/none",
            world.namespace.name()
        );
        let found = warnings.iter().any(|text| text.contains(&expected));
        found.then_some(()).ok_or(format!("{warnings:?}"))
    };
    eventually("the warning", warned).await;
    cleanup(&world).await;
}

#[tokio::test]
async fn warnings_say_what_a_change_does() {
    let options = "admission: render, upgrade: {recreate: [StatefulSet]}";
    let world = or_skip!(start(&project(options), "effects").await);
    effective(&world).await;
    let (code, message, _) = create(&world, "one", json!({"size": 3}), "").await;
    assert_eq!(code, 201, "{message}");
    let deployed = |cr: &Value| cr["status"]["release"]["status"] == "deployed";
    world.until("Widget", "one", "deployed", deployed).await;
    for (patch, expected) in [
        (
            json!({"image": "other"}),
            "restarts 3 Pods (StatefulSet one-db)",
        ),
        (json!({"service": "other"}), "recreates StatefulSet one-db"),
        (
            json!({"stateless": true}),
            "deletes PersistentVolumeClaim one-data",
        ),
    ] {
        let patch = json!({"spec": patch});
        let (code, message, warnings) = send(&world, "PATCH", "one", "dryRun=All", &patch).await;
        assert_eq!(code, 200, "{message}");
        let expected = format!("Widget \"one\": {expected}");
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains(&expected), "{warnings:?}");
    }
    let scale = json!({"spec": {"size": 5}});
    let (_, _, warnings) = send(&world, "PATCH", "one", "dryRun=All", &scale).await;
    assert!(warnings.is_empty(), "{warnings:?}");
    cleanup(&world).await;
}

#[tokio::test]
async fn api_server_is_asked_about_the_objects_and_stores_nothing() {
    const SERVICE: &str = "\
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}}
spec: {ports: [{port: {{ .Values.port | default 80 }}}]}
";
    let of = |options: &str| {
        let project = project(&format!("admission: render, {options}"));
        project.write("chart/templates/service.yaml", SERVICE);
        project
    };
    let project = of("dryRunOption: server, upgrade: {recreate: [Job]}");
    let world = or_skip!(start(&project, "asked").await);
    effective(&world).await;
    let wrong = json!({"size": 3, "port": 70000});
    let (code, message, _) = create(&world, "one", wrong, "").await;
    assert_eq!(code, 403, "{message}");
    assert_contains!(
        message,
        "Widget \"one\": templates/service.yaml: Service",
        "spec.ports[0].port: Invalid value: 70000"
    );
    let (code, message, warnings) = create(&world, "one", json!({"size": 3}), "dryRun=All").await;
    assert_eq!((code, message.as_str()), (201, ""));
    assert!(warnings.is_empty(), "{warnings:?}");
    let services: Api<Service> = world.namespace.api();
    assert!(
        services
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );

    let (code, message, _) = create(&world, "one", json!({"size": 3}), "").await;
    assert_eq!(code, 201, "{message}");
    let deployed = |cr: &Value| cr["status"]["release"]["status"] == "deployed";
    world.until("Widget", "one", "deployed", deployed).await;
    let (code, message, _) = change(&world, "one", &json!({"spec": {"service": "other"}})).await;
    assert_eq!(code, 403, "{message}");
    assert_contains!(
        message,
        "templates/sts.yaml: StatefulSet",
        "cannot be changed"
    );
    let (code, message, _) = change(&world, "one", &json!({"spec": {"port": 81}})).await;
    assert_eq!(code, 200, "{message}");
    world.remove("Widget", "one").await;
    cleanup(&world).await;

    // The account of the release may do nothing.
    let project = of("dryRunOption: server, serviceAccountName: nobody");
    let world = or_skip!(start(&project, "asked-account").await);
    effective(&world).await;
    let (code, message, warnings) = create(
        &world,
        "one",
        json!({"size": 3, "port": 70000}),
        "dryRun=All",
    )
    .await;
    assert_eq!(code, 201, "{message}");
    let expected = "Widget \"one\": not checked by the API server: cannot patch";
    assert!(
        warnings.iter().any(|text| text.contains(expected)),
        "{warnings:?}"
    );
    cleanup(&world).await;
}

#[tokio::test]
async fn without_an_operator_custom_resources_are_stored_unless_the_entry_says_otherwise() {
    for (options, prefix, code) in [
        ("admission: render", "ignore", 201),
        (
            "admission: {mode: schema, failurePolicy: Fail}",
            "fail",
            500,
        ),
    ] {
        let world = or_skip!(start(&project(options), prefix).await);
        let many = async || {
            let (code, message, _) =
                create(&world, "never", json!({"size": 11}), "dryRun=All").await;
            (code == 403)
                .then_some(())
                .ok_or(format!("{code}: {message}"))
        };
        eventually("the admission", many).await;
        // The schema alone is checked in one case.
        let (stored, message, _) = create(&world, "one", json!({"size": 1}), "").await;
        assert_eq!(stored, 201, "{message}");
        world.operator.sigkill().unwrap();
        let (found, message, _) = create(&world, "two", json!({"size": 2}), "").await;
        assert_eq!(found, code, "{message}");
        // Its metadata can be changed, and it can be deleted, in either case.
        let labels = json!({"metadata": {"labels": {"a": "b"}, "finalizers": null}});
        let (found, message, _) = change(&world, "one", &labels).await;
        assert_eq!(found, 200, "{message}");
        world.remove("Widget", "one").await;
        cleanup(&world).await;
    }
}

#[tokio::test]
async fn admission_begins_and_ends_with_a_reload() {
    let project = project("reconcilePeriod: 1m");
    let world = or_skip!(start(&project, "reloaded").await);
    let (code, message, _) = create(&world, "two", json!({"size": 2}), "dryRun=All").await;
    assert_eq!(code, 201, "{message}");
    let name = format!("{}-webhooks", world.namespace.name());
    let found = configurations(&world).get_opt(&name).await.unwrap();
    assert!(found.is_none(), "{name}");

    let options = "map: {replicas: spec.size}";
    project.watch(
        "test.example.com",
        "Widget",
        &format!("admission: render, {options}"),
    );
    effective(&world).await;
    project.watch("test.example.com", "Widget", options);
    let is_gone = async || {
        let found = configurations(&world).get_opt(&name).await.unwrap();
        found.is_none().then_some(()).ok_or(format!("{found:?}"))
    };
    eventually("the end of the admission", is_gone).await;
    let (code, message, _) = create(&world, "two", json!({"size": 2}), "dryRun=All").await;
    assert_eq!(code, 201, "{message}");
}
