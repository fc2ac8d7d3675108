//! Charts that a native controller installs as components of its custom resource.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hybrid_operator::helm::{self, Chart, Component};
use hybrid_operator::native::{self, Action, Context, Error, NativeController};
use hybrid_operator_test::fault::Faults;
use hybrid_operator_test::request::Recorded;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::examples::NativeOperator;
use crate::world::{
    Project, api, apply, delete, eventually, gone, has_event, history, merge, new_namespace,
    remove, until,
};

#[derive(CustomResource, Serialize, Deserialize, Debug, Clone)]
#[kube(
    group = "test.example.com",
    version = "v1",
    kind = "Widget",
    namespaced,
    schema = "disabled"
)]
struct WidgetSpec {
    value: String,
    #[serde(default)]
    cache: bool,
}

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {containers: [{name: main, image: 'example.com/app', env: [{name: VALUE, value: {{ required \"value is required\" .Values.value | quote }}}]}]}
";

/// Hooks of a deleted release show that it was uninstalled, and not only collected as garbage.
const HOOK: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-deleted
  annotations: {helm.sh/hook: post-delete}
";

/// Calls of the functions of a controller.
#[derive(Default)]
struct Seen {
    reconciles: AtomicUsize,
    clean: AtomicBool,
}

/// Installs a chart, and another one while the spec asks for a cache.
async fn reconcile(
    widget: Arc<Widget>,
    context: Context<Widget>,
    chart: Chart,
) -> Result<Action, Error> {
    let values = match widget.spec.value.as_str() {
        "" => json!({}),
        value => json!({"value": value}),
    };
    let main = helm::install(&context, Component::new("main", &chart).values(values)).await?;
    if widget.spec.cache {
        let cache = Component::new("cache", &chart).values(json!({"value": "cache"}));
        helm::install(&context, cache).await?;
    } else {
        helm::uninstall(&context, "cache").await?;
    }
    // What the function prunes does not include the objects of its charts.
    context.apply_all::<ConfigMap>(&[]).await?;
    let status = json!({
        "release": main.name, "revision": main.revision, "ready": main.ready,
        "message": main.message, "generation": widget.metadata.generation,
    });
    context.patch_status(&status).await?;
    Ok(Action::done())
}

fn controller(chart: &Chart, seen: &Arc<Seen>) -> NativeController<Widget> {
    let (chart, cleaned, reconciled) = (chart.clone(), Arc::clone(seen), Arc::clone(seen));
    native::controller::<Widget>("widgets")
        .owns::<ConfigMap>()
        .with(helm::components())
        .finalizer("test.example.com/cleanup", move |_, _| {
            cleaned.clean.store(true, Ordering::SeqCst);
            std::future::ready(Ok(Action::done()))
        })
        .reconcile(move |widget, context| {
            let (chart, seen) = (chart.clone(), Arc::clone(&reconciled));
            async move {
                let action = reconcile(widget, context, chart).await;
                seen.reconciles.fetch_add(1, Ordering::SeqCst);
                action
            }
        })
}

/// Waits until an operator has applied a hook. The end of the uninstall removes what hooks have made.
async fn ran(operator: &NativeOperator, hook: &str) {
    eventually(format!("{hook} to be applied"), async || {
        let requests = operator.faults.requests();
        requests
            .iter()
            .any(|request| request.is_write() && request.name.as_deref() == Some(hook))
    })
    .await;
}

fn is_ready(value: &'static str, revision: u32) -> impl Fn(&Value) -> bool {
    move |widget: &Value| {
        widget["spec"]["value"] == value
            && widget["status"]["ready"] == true
            && widget["status"]["revision"] == revision
            && widget["status"]["generation"] == widget["metadata"]["generation"]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_of_a_native_controller_are_releases_that_heal_and_are_uninstalled() {
    let (plane, namespace) = or_skip!(new_namespace("components").await);
    let project = Project::new("", &[("deployment.yaml", DEPLOYMENT), ("hook.yaml", HOOK)]);
    let chart = Chart::load(project.watches_file().with_file_name("chart")).unwrap();
    let seen = Arc::<Seen>::default();
    let start = async || {
        let controller = controller(&chart, &seen);
        NativeOperator::start(plane, &namespace, controller).await
    };
    let operator = start().await;
    let widgets = api(&namespace, "Widget");
    let deployments = api(&namespace, "Deployment");
    let object = json!({"spec": {"value": "1", "cache": true}});
    apply(&widgets, "shop", &object).await;
    until(&widgets, "shop", "ready", is_ready("1", 1)).await;
    for release in ["shop-main", "shop-cache"] {
        assert_eq!(history(&namespace, release).await, ["deployed"]);
        let owner = deployments
            .get(release)
            .await
            .unwrap()
            .metadata
            .owner_references;
        assert_eq!(owner.unwrap()[0].kind, "Widget");
    }
    merge(&widgets, "shop", &json!({"spec": {"value": "2"}})).await;
    until(&widgets, "shop", "upgraded", is_ready("2", 2)).await;

    // What somebody deletes comes back.
    let before = deployments.get("shop-main").await.unwrap().metadata.uid;
    delete(&deployments, "shop-main").await;
    let again = |found: &Value| found["metadata"]["uid"] != json!(before);
    until(&deployments, "shop-main", "again", again).await;
    until(&widgets, "shop", "ready again", is_ready("2", 2)).await;

    // A restart changes nothing.
    drop(operator);
    let operator = start().await;
    let labels = json!({"metadata": {"labels": {"seen": "yes"}}});
    merge(&widgets, "shop", &labels).await;
    merge(&widgets, "shop", &json!({"spec": {"cache": false}})).await;
    gone(&deployments, "shop-cache").await;
    ran(&operator, "shop-cache-deleted").await;
    let unchanged = deployments.get("shop-main").await.unwrap().metadata;
    assert_eq!(unchanged.generation, Some(1));
    let requests = operator.faults.requests();
    let writes = requests.iter().filter(|request| {
        request.is_write()
            && !request.kind().contains("events")
            && request
                .name
                .as_deref()
                .is_some_and(|name| name.contains("shop-main"))
    });
    assert_eq!(writes.count(), 0, "{requests:?}");
    let statuses = ["superseded", "deployed"];
    assert_eq!(history(&namespace, "shop-main").await, statuses);

    // The deletion uninstalls what is left, after the function of the finalizer.
    assert!(!seen.clean.load(Ordering::SeqCst));
    remove(&widgets, "shop").await;
    assert!(seen.clean.load(Ordering::SeqCst));
    ran(&operator, "shop-main-deleted").await;
    assert!(deployments.get_opt("shop-main").await.unwrap().is_none());
    assert!(history(&namespace, "shop-main").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_that_cannot_be_rendered_is_named_in_the_message_and_mended_by_new_values() {
    let (plane, namespace) = or_skip!(new_namespace("values").await);
    let project = Project::new("", &[("deployment.yaml", DEPLOYMENT)]);
    let chart = Chart::load(project.watches_file().with_file_name("chart")).unwrap();
    let seen = Arc::<Seen>::default();
    let controller = controller(&chart, &seen);
    let operator = NativeOperator::start(plane, &namespace, controller).await;
    let widgets = api(&namespace, "Widget");
    apply(&widgets, "shop", &json!({"spec": {"value": ""}})).await;
    let told = |widget: &Value| {
        let message = widget["status"]["message"].as_str().unwrap_or_default();
        widget["status"]["ready"] == false && message.contains("value is required")
    };
    until(&widgets, "shop", "the error", told).await;
    assert!(has_event(&namespace, "ReconcileError").await);
    merge(&widgets, "shop", &json!({"spec": {"value": "1"}})).await;
    until(&widgets, "shop", "ready", is_ready("1", 1)).await;
    // At rest, a reconcile of charts costs no request.
    // Other tests define kinds meanwhile, which makes every operator read what is served, and a Pod
    // may become unready, which the function reports.
    let is_expected = |request: &Recorded| {
        request.verb == "watch"
            || request.namespace.is_none()
            || request.resource == "widgets/status"
    };
    operator.faults.forget();
    let before = seen.reconciles.load(Ordering::SeqCst);
    let annotation = json!({"metadata": {"annotations": {"seen": "yes"}}});
    merge(&widgets, "shop", &annotation).await;
    let reconciled = async || seen.reconciles.load(Ordering::SeqCst) > before;
    eventually("a reconcile", reconciled).await;
    let requests = operator.faults.requests();
    assert!(requests.iter().all(is_expected), "{requests:?}");
    let mark = json!({"spec": {"value": "2"}});
    merge(&widgets, "shop", &mark).await;
    until(&widgets, "shop", "upgraded", is_ready("2", 2)).await;
    let counts = operator.faults.counts();
    assert_eq!(counts.get("apply deployments"), Some(&1), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_is_installed_and_uninstalled_wherever_the_operator_crashes() {
    let (plane, namespace) = or_skip!(new_namespace("parts-crash").await);
    let project = Project::new("", &[("deployment.yaml", DEPLOYMENT)]);
    let chart = Chart::load(project.watches_file().with_file_name("chart")).unwrap();
    let widgets = api(&namespace, "Widget");
    for deleting in [false, true] {
        for nth in 1.. {
            let name = format!("shop-{nth:02}");
            if !deleting {
                apply(&widgets, &name, &json!({"spec": {"value": "1"}})).await;
            } else if widgets.get_opt(&name).await.unwrap().is_some() {
                delete(&widgets, &name).await;
            } else {
                break;
            }
            let faults = Faults::new();
            let counted = name.clone();
            faults.stop_at(
                nth,
                hybrid_operator_test::fault::Fault::AnswerLost,
                move |request| {
                    let concerns = request.path.contains(&counted)
                        || request.json().to_string().contains(&counted);
                    request.is_write() && !request.kind().contains("events") && concerns
                },
            );
            let crashing = controller(&chart, &Arc::default());
            let first = NativeOperator::faulty(plane, &namespace, crashing, faults.clone()).await;
            let settled = async || {
                if deleting {
                    gone(&widgets, &name).await;
                } else {
                    until(&widgets, &name, "ready", is_ready("1", 1)).await;
                }
            };
            tokio::select! {
                () = crate::world::injected(&faults) => {}
                () = settled() => {}
            }
            drop(first);
            let controller = controller(&chart, &Arc::default());
            let second = NativeOperator::start(plane, &namespace, controller).await;
            settled().await;
            drop(second);
            let release = format!("{name}-main");
            let records = history(&namespace, &release).await;
            let expected: &[&str] = if deleting { &[] } else { &["deployed"] };
            assert_eq!(
                records, expected,
                "crash at write {nth}, deleting: {deleting}"
            );
            if !faults.was_injected() && !deleting {
                break;
            }
        }
    }
}
