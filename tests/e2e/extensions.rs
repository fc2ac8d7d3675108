//! Extensions in code: value translators, and pre and post hooks, whose errors count.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use helm_core::release::codec;
use hybrid_operator::helm::{
    Chart, ExtensionError, HelmController, ReleaseContext, ReleaseRef, Storage, Values,
};
use hybrid_operator_test::TestNamespace;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, ListParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::examples::NativeOperator;
use crate::helm_cli::helm;
use crate::security::decode;
use crate::world::{
    InProcessOperator, Project, api, apply, control_plane, delete, exists, gone, holds, is_false,
    is_true, merge, new_namespace, ready_at, remove, says, until,
};

const MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ .Values.value | quote }}, owner: {{ .Values.owner | quote }}}
";

/// A hook that fails while it is told to and records what it receives.
#[derive(Clone, Default)]
struct FailingHook {
    fails: Arc<AtomicBool>,
    failures: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Value>>>,
}

impl FailingHook {
    fn failing() -> Self {
        let hook = Self::default();
        hook.fails.store(true, Ordering::SeqCst);
        hook
    }

    fn record(&self, what: Value) -> Result<(), ExtensionError> {
        if self.fails.load(Ordering::SeqCst) {
            self.failures.fetch_add(1, Ordering::SeqCst);
            return Err("rejected by the test".into());
        }
        self.seen.lock().unwrap().push(what);
        Ok(())
    }

    fn before(&self, values: &Values) -> Result<(), ExtensionError> {
        self.record(json!(values))
    }

    fn after(&self, release: &ReleaseRef) -> Result<(), ExtensionError> {
        self.record(json!([release.name.as_str(), release.revision.0]))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn extension_hook_error_is_reported_and_retried() {
    let (plane, namespace) = or_skip!(new_namespace("extended").await);
    let project = Project::new("", &[("map.yaml", MAP)]);
    let (before, after) = (FailingHook::failing(), FailingHook::failing());
    let client = plane.client().await.unwrap();
    let _operator = InProcessOperator::extended(&project, client, namespace.name(), |chart| {
        let (before, after) = (before.clone(), after.clone());
        chart
            .value_translator(async |context: ReleaseContext, mut values: Values| {
                let name = context.resource().metadata.name.clone();
                values.insert("owner".to_owned(), json!(name.ok_or("it has no name")?));
                Ok(values)
            })
            .pre_hook(move |_, values| std::future::ready(before.before(&values)))
            .post_hook(move |_, release| std::future::ready(after.after(&release)))
    });
    let widgets = api(&namespace, "Widget");
    apply(&widgets, "one", &json!({"spec": {"value": "v"}})).await;
    let is_failed = |which: &'static str| {
        move |cr: &Value| {
            let says = |text: &str| says(cr, "Irreconcilable", text);
            is_true(cr, "Irreconcilable") && says(which) && says("rejected by the test")
        }
    };
    until(
        &widgets,
        "one",
        "the pre hook failed",
        is_failed("pre hook"),
    )
    .await;
    let maps = api(&namespace, "ConfigMap");
    assert!(
        maps.get_opt("one-map").await.unwrap().is_none(),
        "nothing was installed"
    );

    before.fails.store(false, Ordering::SeqCst);
    until(
        &widgets,
        "one",
        "the post hook failed",
        is_failed("post hook"),
    )
    .await;
    let map = maps.get("one-map").await.unwrap();
    assert_eq!(map.data["data"], json!({"value": "v", "owner": "one"}));
    assert_eq!(
        before.seen.lock().unwrap()[0],
        json!({"value": "v", "owner": "one"})
    );

    after.fails.store(false, Ordering::SeqCst);
    let ready = |cr: &Value| is_false(cr, "Irreconcilable") && ready_at(1)(cr);
    until(&widgets, "one", "Ready", ready).await;
    assert_eq!(after.seen.lock().unwrap()[0], json!(["one", 1]));
    assert!(
        before.failures.load(Ordering::SeqCst) > 0 && after.failures.load(Ordering::SeqCst) > 0
    );
}

/// Takes the value from a `ConfigMap` that the controller watches and a Secret that it reads.
async fn of_cluster(context: ReleaseContext, mut values: Values) -> Result<Values, ExtensionError> {
    let namespace = context.resource().metadata.namespace.clone();
    let namespace = namespace.unwrap_or_default();
    let watched = context.cached::<ConfigMap>()?.get("settings");
    let value = watched.and_then(|map| map.data.as_ref()?.get("value").cloned());
    let secrets: Api<Secret> = Api::namespaced(context.client().clone(), &namespace);
    let owner = secrets.get_opt("owner").await?;
    let owner = owner.and_then(|secret| secret.data?.get("name").cloned());
    let owner = owner.map(|name| String::from_utf8_lossy(&name.0).into_owned());
    values.insert("value".to_owned(), json!(value));
    values.insert("owner".to_owned(), json!(owner));
    Ok(values)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_built_in_code_takes_values_from_the_cluster_and_obeys_its_own_annotation() {
    let (plane, namespace) = or_skip!(new_namespace("in-code").await);
    let project = Project::new("", &[("map.yaml", MAP)]);
    let events: Arc<Mutex<Vec<String>>> = Arc::default();
    let recorded = Arc::clone(&events);
    let controller = HelmController::builder(
        GroupVersionKind::gvk("test.example.com", "v1", "Widget"),
        Chart::load(project.watches_file().with_file_name("chart")).unwrap(),
    )
    .selector(std::iter::once(("team".to_owned(), "a".to_owned())).collect())
    .watches_for::<ConfigMap>(|map, widget| {
        map.metadata.name.as_deref() == Some("settings")
            && map.metadata.namespace == widget.metadata.namespace
    })
    .value_translator(of_cluster)
    .annotation("example.com/note", |value, options| {
        if value.is_empty() {
            return Err("the note is empty".to_owned());
        }
        options.install_description = Some(value.to_owned());
        Ok(())
    })
    .pause_handler(|widget| widget.data["spec"]["hold"] == true)
    .logger(|widget| tracing::info_span!("widget", team = ?widget.metadata.labels))
    .event_recorder(move |_, event| {
        recorded.lock().unwrap().push(event.reason);
        std::future::ready(Ok(()))
    });
    let _operator = NativeOperator::start(plane, &namespace, controller).await;

    let secrets = api(&namespace, "Secret");
    apply(&secrets, "owner", &json!({"stringData": {"name": "me"}})).await;
    let maps = api(&namespace, "ConfigMap");
    apply(&maps, "settings", &json!({"data": {"value": "1"}})).await;
    let widgets = api(&namespace, "Widget");
    let labelled = |note: &str, hold: bool| {
        json!({"metadata": {"labels": {"team": "a"}, "annotations": {"example.com/note": note}},
               "spec": {"hold": hold}})
    };
    apply(&widgets, "other", &json!({"spec": {}})).await;
    apply(&widgets, "held", &labelled("", true)).await;
    apply(&widgets, "one", &labelled("first", false)).await;
    let data = |value: &'static str| {
        move |map: &Value| map["data"] == json!({"value": value, "owner": "me"})
    };
    until(&maps, "one-map", "its values", data("1")).await;
    // A change of the watched object upgrades the release without a change of the custom resource.
    apply(&maps, "settings", &json!({"data": {"value": "2"}})).await;
    until(&maps, "one-map", "new values", data("2")).await;
    until(&widgets, "held", "paused", holds("Paused")).await;
    assert!(maps.get_opt("held-map").await.unwrap().is_none());
    assert!(maps.get_opt("other-map").await.unwrap().is_none());
    merge(&widgets, "held", &json!({"spec": {"hold": false}})).await;
    until(&maps, "held-map", "its values", data("2")).await;

    let described = |cr: &Value| cr["status"]["release"]["revision"] == 2;
    until(&widgets, "one", "revision 2", described).await;
    let record = secrets.get("sh.helm.release.v1.one.v1").await.unwrap();
    assert_eq!(decode(&record.data).info.description, "first");
    // Events went to the recorder, and not to the API server.
    let reasons = events.lock().unwrap().clone();
    for reason in ["InvalidAnnotation", "InstallSuccessful"] {
        assert!(reasons.iter().any(|found| found == reason), "{reasons:?}");
    }
    let published = crate::world::events(&namespace).await;
    let of_widgets =
        |event: &&kube::api::DynamicObject| event.data["involvedObject"]["kind"] == "Widget";
    assert_eq!(published.iter().filter(of_widgets).count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn release_records_are_kept_in_config_maps_where_helm_finds_them() {
    let (Some(plane), Some(program)) = (control_plane().await, helm()) else {
        return;
    };
    let project = Project::new("", &[("map.yaml", crate::world::MAP)]);
    let namespace = TestNamespace::create(plane, "config-maps").await.unwrap();
    let chart = Chart::load(project.watches_file().with_file_name("chart")).unwrap();
    let start = async |storage: Storage| {
        let gvk = GroupVersionKind::gvk("test.example.com", "v1", "Widget");
        let controller = HelmController::builder(gvk, chart.clone()).storage(storage);
        NativeOperator::start(plane, &namespace, controller).await
    };
    let widgets = api(&namespace, "Widget");
    // A release whose records are in Secrets is left alone with the other storage.
    let operator = start(Storage::Secrets).await;
    apply(&widgets, "old", &json!({"spec": {"value": "1"}})).await;
    until(&widgets, "old", "deployed", ready_at(1)).await;
    drop(operator);
    let operator = start(Storage::ConfigMaps).await;
    let is_refused =
        |cr: &Value| is_true(cr, "Irreconcilable") && says(cr, "Irreconcilable", "Secrets");
    until(&widgets, "old", "refused", is_refused).await;

    for (revision, value) in [(1, "1"), (2, "2")] {
        apply(&widgets, "one", &json!({"spec": {"value": value}})).await;
        until(&widgets, "one", "deployed", ready_at(revision)).await;
    }
    let records = async |kind: &str, release: &str| {
        let selector = ListParams::default().labels(&format!("owner=helm,name={release}"));
        let found = api(&namespace, kind).list(&selector).await.unwrap();
        found.items.len()
    };
    assert_eq!(records("ConfigMap", "one").await, 2);
    assert_eq!(records("Secret", "one").await, 0);
    let output = std::process::Command::new(&program)
        .args(["ls", "-o", "json", "--namespace", namespace.name()])
        .env("KUBECONFIG", plane.kubeconfig_path())
        .env("HELM_DRIVER", "configmap")
        .output()
        .unwrap();
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list[0]["name"], "one", "{list}");
    assert_eq!(list[0]["revision"], "2");

    // The history is found again after a restart.
    drop(operator);
    let operator = start(Storage::ConfigMaps).await;
    apply(&widgets, "one", &json!({"spec": {"value": "3"}})).await;
    until(&widgets, "one", "deployed", ready_at(3)).await;
    remove(&widgets, "one").await;
    assert_eq!(records("ConfigMap", "one").await, 0);
    assert!(!exists(&api(&namespace, "ConfigMap"), "one-map").await);

    // Only the operator that finds the records uninstalls the release.
    delete(&widgets, "old").await;
    apply(&widgets, "later", &json!({"spec": {"value": "1"}})).await;
    until(&widgets, "later", "deployed", ready_at(1)).await;
    assert!(widgets.get_opt("old").await.unwrap().is_some());
    drop(operator);
    let _operator = start(Storage::Secrets).await;
    gone(&widgets, "old").await;
    assert_eq!(records("Secret", "old").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repair_applies_nothing_from_a_forged_record_in_a_config_map() {
    let (plane, namespace) = or_skip!(new_namespace("forged-map").await);
    let project = Project::new("", &[("map.yaml", crate::world::MAP)]);
    let chart = Chart::load(project.watches_file().with_file_name("chart")).unwrap();
    let gvk = GroupVersionKind::gvk("test.example.com", "v1", "Widget");
    let controller = HelmController::builder(gvk, chart).storage(Storage::ConfigMaps);
    let _operator = NativeOperator::start(plane, &namespace, controller).await;
    let widgets = api(&namespace, "Widget");
    let maps: Api<ConfigMap> = Api::namespaced(namespace.client(), namespace.name());
    apply(&widgets, "one", &json!({"spec": {"value": "1"}})).await;
    until(&widgets, "one", "deployed", ready_at(1)).await;

    let name = "sh.helm.release.v1.one.v1";
    let mut record = maps.get(name).await.unwrap();
    let data = record.data.as_mut().unwrap();
    let mut release = codec::decode(data["release"].as_bytes()).unwrap();
    release
        .manifest
        .push_str("\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: forged}\n");
    data.insert("release".to_owned(), codec::encode(&release).unwrap());
    let as_operator = PostParams {
        field_manager: Some("hybrid-operator".to_owned()),
        ..PostParams::default()
    };
    maps.replace(name, &as_operator, &record).await.unwrap();
    delete(&maps, "one-map").await;
    // The repair renders the chart, which differs from the record.
    until(&widgets, "one", "a new revision", ready_at(2)).await;
    assert!(maps.get_opt("one-map").await.unwrap().is_some());
    assert!(maps.get_opt("forged").await.unwrap().is_none());
}
