//! The manager: own checks, metrics and tasks, selected namespaces, leader-for-life and shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hybrid_operator::manager::{Manager, runnable};
use hybrid_operator::native::{self, Action, Context, Error, NativeController};
use hybrid_operator::telemetry::prometheus_client::metrics::counter::Counter;
use hybrid_operator_test::{TestNamespace, wait};
use kube::api::DeleteParams;
use kube::{Client, CustomResource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::native::get;
use crate::world::{
    LIMIT, api, apply, cluster_api, control_plane, create, free_address, merge, new_namespace,
    options, until,
};

/// A manager that runs until it is dropped.
struct Running {
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
}

impl Running {
    fn start(manager: Manager) -> Self {
        let stop = CancellationToken::new();
        let run = manager.run_until(stop.clone());
        let ended = tokio::spawn(async move { Box::pin(run).await.unwrap() });
        Self { stop, ended }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.ended.await.unwrap();
    }
}

async fn client() -> Option<Client> {
    Some(control_plane().await?.client().await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn checks_metrics_and_tasks_of_an_operator_are_run_by_its_manager() {
    let client = or_skip!(client().await);
    let (probes, metrics) = (free_address(), free_address());
    let mut options = options(&[], &[]);
    options.health_probe_bind_address.clone_from(&probes);
    options.metrics_bind_address.clone_from(&metrics);
    let healthy = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&healthy);
    let (ticks, started) = (Counter::<u64>::default(), Arc::new(Notify::new()));
    let (registered, notify) = (ticks.clone(), Arc::clone(&started));
    let manager = Manager::new(options)
        .client(client)
        .health_check("disk", move || {
            let healthy = seen.load(Ordering::SeqCst);
            std::future::ready(if healthy {
                Ok(())
            } else {
                Err("the disk is full".into())
            })
        })
        .readiness_check("cache", || std::future::ready(Ok(())))
        .metrics(move |registry| registry.register("test_ticks", "Ticks", registered))
        .with(runnable("ticks", |context| async move {
            context.client().apiserver_version().await?;
            ticks.inc();
            notify.notify_one();
            context.stop.cancelled().await;
            Ok(())
        }));
    let running = Running::start(manager);
    started.notified().await;
    assert!(get(&probes, "/healthz").await.ends_with("\r\n\r\nok"));
    assert!(get(&probes, "/readyz/cache").await.ends_with("\r\n\r\nok"));
    let verbose = get(&probes, "/readyz?verbose").await;
    assert_contains!(verbose, "[+]api-server ok\n[+]cache ok\ncheck passed");
    healthy.store(false, Ordering::SeqCst);
    let failed = get(&probes, "/healthz").await;
    assert!(failed.starts_with("HTTP/1.0 500"), "{failed}");
    assert_contains!(failed, "[+]ping ok\n[-]disk failed: the disk is full\n");
    assert!(
        get(&probes, "/healthz/none")
            .await
            .starts_with("HTTP/1.0 404")
    );
    let scraped = get(&metrics, "/metrics").await;
    assert_contains!(scraped, "\ntest_ticks_total 1\n");
    // Tools that do not ask for OpenMetrics get the older format, in which types have the names of samples.
    for line in [
        "content-type: text/plain; version=0.0.4; charset=utf-8\r\n",
        "\n# TYPE test_ticks_total counter\n",
    ] {
        assert!(scraped.contains(line), "{line} is not in\n{scraped}");
    }
    if cfg!(target_os = "linux") {
        assert_contains!(scraped, "\nprocess_resident_memory_bytes ");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_waits_for_tasks_but_not_forever() {
    let client = or_skip!(client().await);
    let ended = Arc::new(AtomicBool::new(false));
    let (started, notify) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (seen, running) = (Arc::clone(&ended), Arc::clone(&notify));
    let begun = Arc::clone(&started);
    let manager = Manager::new(options(&["--graceful-shutdown-timeout=1s"], &[]))
        .client(client)
        .with(runnable("careful", |context| async move {
            context.stop.cancelled().await;
            tokio::task::yield_now().await;
            seen.store(true, Ordering::SeqCst);
            Ok(())
        }))
        .with(runnable("stubborn", |_| async move {
            begun.notify_one();
            running.notified().await;
            Ok(())
        }));
    let running = Running::start(manager);
    started.notified().await;
    running.stop().await;
    assert!(ended.load(Ordering::SeqCst));
    drop(notify);
}

#[derive(CustomResource, Serialize, Deserialize, Debug, Clone)]
#[kube(
    group = "test.example.com",
    version = "v1",
    kind = "Widget",
    namespaced,
    schema = "disabled"
)]
struct WidgetSpec {
    value: u32,
}

/// Copies the value to the status.
fn copying() -> NativeController<Widget> {
    async fn copy(widget: Arc<Widget>, context: Context<Widget>) -> Result<Action, Error> {
        context
            .patch_status(&json!({"seen": widget.spec.value}))
            .await?;
        Ok(Action::done())
    }
    native::controller::<Widget>("copying").reconcile(copy)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_namespaces_with_the_label_are_reconciled_while_they_have_it() {
    let (plane, one) = or_skip!(new_namespace("selected").await);
    let client = plane.client().await.unwrap();
    let two = TestNamespace::create(plane, "selected").await.unwrap();
    let namespaces = cluster_api(&one, "Namespace");
    let label = async |namespace: &TestNamespace, value: Value| {
        let patch = json!({"metadata": {"labels": {"copies": value}}});
        merge(&namespaces, namespace.name(), &patch).await;
    };
    let selector = format!("--namespace-selector=copies={}", one.name());
    label(&one, json!(one.name())).await;
    let manager = Manager::new(options(&[&selector], &[("OPERATOR_NAME", one.name())]));
    let running = Running::start(manager.client(client).with(copying()));
    let (in_one, in_two) = (api(&one, "Widget"), api(&two, "Widget"));
    let seen = |value: u32| move |widget: &Value| widget["status"]["seen"] == value;
    for widgets in [&in_two, &in_one] {
        apply(widgets, "w", &json!({"spec": {"value": 1}})).await;
    }
    until(&in_one, "w", "reconciled", seen(1)).await;
    assert!(in_two.get("w").await.unwrap().data.get("status").is_none());
    label(&one, Value::Null).await;
    // One watch tells of both changes, so that the first is known when the second is.
    label(&two, json!(one.name())).await;
    until(&in_two, "w", "selected", seen(1)).await;
    merge(&in_one, "w", &json!({"spec": {"value": 2}})).await;
    merge(&in_two, "w", &json!({"spec": {"value": 2}})).await;
    until(&in_two, "w", "reconciled", seen(2)).await;
    assert_eq!(in_one.get("w").await.unwrap().data["status"]["seen"], 1);
    label(&one, json!(one.name())).await;
    until(&in_one, "w", "selected again", seen(2)).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_for_life_leads_until_its_pod_is_gone() {
    let (plane, namespace) = or_skip!(new_namespace("for-life").await);
    let client = plane.client().await.unwrap();
    let pods = api(&namespace, "Pod");
    let start = async |pod: &str| {
        let body = json!({"metadata": {"name": pod}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        create(&pods, body).await;
        let flags = ["--leader-elect", "--leader-election-mode=for-life"];
        let env = [
            ("POD_NAME", pod),
            ("POD_NAMESPACE", namespace.name()),
            ("OPERATOR_NAME", "op"),
        ];
        let leads = Arc::new(Notify::new());
        let notify = Arc::clone(&leads);
        let manager = Manager::new(options(&flags, &env))
            .client(client.clone())
            .with(runnable("leads", |context| async move {
                notify.notify_one();
                context.stop.cancelled().await;
                Ok(())
            }));
        (Running::start(manager), leads)
    };
    let (first, leads) = start("first").await;
    leads.notified().await;
    let (second, leads) = start("second").await;
    // The end of the process alone does not end the term: its container may be started again.
    first.stop().await;
    let locks = api(&namespace, "ConfigMap");
    let lock = locks.get("op").await.unwrap();
    assert_eq!(lock.metadata.owner_references.unwrap()[0].name, "first");
    pods.delete("first", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    tokio::time::timeout(LIMIT, leads.notified()).await.unwrap();
    let owned = |lock: &Value| lock["metadata"]["ownerReferences"][0]["name"] == "second";
    until(&locks, "op", "the second leads", owned).await;
    second.stop().await;
    drop(wait::gone(&pods, "first", LIMIT).await);
}
