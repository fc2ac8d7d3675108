//! Annotations, options and flags whose effect no other test shows.

use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use helm_core::release::Release;
use hybrid_operator::native::{self, Action};
use hybrid_operator::options::ChartOptions;
use hybrid_operator_test::{Operator, TestNamespace, shared_or_skip};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::security::decode;
use crate::world::{
    InProcessOperator, LIMIT, MAP, Project, World, api, apply, cluster_api, condition,
    control_plane, events, eventually, holds, merge, namespace_of, new_namespace, options, program,
    remove, root, says, until,
};

/// A hook that leaves a `ConfigMap` with the number of its revision.
const HOOK: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: 'pre-install,pre-upgrade', helm.sh/hook-delete-policy: before-hook-creation}
data: {revision: {{ .Release.Revision | quote }}}
";

/// Reads a record.
async fn record(world: &World, release: &str, revision: u32) -> Release {
    let name = format!("sh.helm.release.v1.{release}.v{revision}");
    decode(&world.get("Secret", &name).await.data)
}

/// Waits until there is an event about a Widget with a reason and returns its message.
async fn told(world: &World, reason: &str) -> String {
    let told = async || {
        let events = events(&world.namespace).await;
        let found = events.iter().find(|event| event.data["reason"] == reason);
        found.map(|event| event.data["message"].to_string())
    };
    eventually(reason, told).await
}

#[tokio::test]
async fn annotations_of_hooks_and_descriptions_change_install_upgrade_and_uninstall() {
    let project = Project::new("", &[("map.yaml", MAP), ("hook.yaml", HOOK)]);
    let world = or_skip!(project.start("described").await);
    let prefix = "helm.sdk.operatorframework.io";
    let custom = |value: &str, annotations: Value| json!({"metadata": {"annotations": annotations}, "spec": {"value": value}});
    let first = json!({
        format!("{prefix}/install-disable-hooks"): "true",
        format!("{prefix}/install-description"): "first",
        format!("{prefix}/upgrade-froce"): "true",
        format!("{prefix}/uninstall-wait"): "yes",
    });
    apply(&world.api("Widget"), "one", &custom("1", first)).await;
    world.revision("one", 1).await;
    let maps = world.api("ConfigMap");
    assert!(maps.get_opt("one-hook").await.unwrap().is_none());
    assert_eq!(record(&world, "one", 1).await.info.description, "first");
    // What is wrong is named with its form, and changes nothing.
    let both = async || {
        let all = events(&world.namespace).await.into_iter();
        let invalid = all.filter(|event| event.data["reason"] == "InvalidAnnotation");
        let notes: String = invalid
            .map(|event| event.data["message"].to_string())
            .collect();
        let parts = ["did you mean", "uninstall.wait of watches.yaml holds"];
        let told = parts.iter().all(|part| notes.contains(part));
        if told { Ok(()) } else { Err(notes) }
    };
    eventually("the events", both).await;

    // An upgrade has annotations of its own.
    world.widget("one", json!({"value": "2"})).await;
    world.revision("one", 2).await;
    world.data("one-hook", json!({"revision": "2"})).await;
    let second = json!({
        format!("{prefix}/upgrade-disable-hooks"): "true",
        format!("{prefix}/upgrade-description"): "third",
    });
    apply(&world.api("Widget"), "one", &custom("3", second)).await;
    world.revision("one", 3).await;
    world.data("one-hook", json!({"revision": "2"})).await;
    assert_eq!(record(&world, "one", 3).await.info.description, "third");
}

#[tokio::test]
async fn uninstall_waits_and_is_described_as_its_annotations_say() {
    let world = or_skip!(World::of("last", "", &[("map.yaml", MAP)]).await);
    world.widget("one", json!({"value": "1"})).await;
    world.revision("one", 1).await;
    world.annotate("one", "uninstall-wait", json!("true")).await;
    world
        .annotate("one", "uninstall-description", json!("the end"))
        .await;
    let hold = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    let maps = world.api("ConfigMap");
    merge(&maps, "one-map", &hold(json!(["example.com/hold"]))).await;
    let widgets = world.api("Widget");
    drop(widgets.delete("one", &DeleteParams::default()).await);
    let waits = |cr: &Value| says(cr, "Ready", "one-map");
    world.until("Widget", "one", "the object", waits).await;
    assert_eq!(record(&world, "one", 1).await.info.description, "the end");
    merge(&maps, "one-map", &hold(Value::Null)).await;
    world.gone("Widget", "one").await;
}

#[tokio::test]
async fn hooks_are_disabled_by_the_entry() {
    let options = "install: {disableHooks: true}, upgrade: {disableHooks: true}";
    let project = Project::new(options, &[("map.yaml", MAP), ("hook.yaml", HOOK)]);
    let world = or_skip!(project.start("hookless").await);
    for (value, revision) in [("1", 1), ("2", 2)] {
        world.widget("one", json!({"value": value})).await;
        world.revision("one", revision).await;
    }
    let maps = world.api("ConfigMap");
    assert!(maps.get_opt("one-hook").await.unwrap().is_none());
}

/// Counts the reconciles of Widgets in another namespace each time.
async fn counted(
    project: &Project,
    flag: Duration,
) -> Option<(InProcessOperator, TestNamespace, Arc<AtomicUsize>)> {
    let (plane, namespace) = new_namespace("period").await?;
    let count = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&count);
    let operator = InProcessOperator::with(
        project,
        plane.client().await.unwrap(),
        namespace.name(),
        move |chart| {
            let counter = Arc::clone(&counter);
            chart.pause_handler(move |_| {
                counter.fetch_add(1, Ordering::SeqCst);
                false
            })
        },
        move |options| {
            let charts = options.extensions.get_or_insert_default::<ChartOptions>();
            charts.reconcile_period = flag;
        },
    );
    Some((operator, namespace, count))
}

async fn is_reconciled_often(count: &AtomicUsize) {
    let before = count.load(Ordering::SeqCst);
    let often = async || count.load(Ordering::SeqCst) > before + 20;
    eventually("20 reconciles", often).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reconcile_period_comes_from_the_annotation_the_entry_or_the_flag() {
    let (short, long) = (Duration::from_millis(50), Duration::from_hours(1));
    for (options, flag, annotation) in [
        ("", short, None),
        ("reconcilePeriod: 50ms", long, None),
        ("reconcilePeriod: 1h", long, Some("50ms")),
        ("reconcilePeriod: 50ms", long, Some("soon")),
    ] {
        let project = Project::new(options, &[("map.yaml", MAP)]);
        let (_operator, namespace, count) = or_skip!(counted(&project, flag).await);
        let mut custom = json!({"spec": {"value": "1"}});
        if let Some(period) = annotation {
            let name = "helm.sdk.operatorframework.io/reconcile-period";
            custom["metadata"]["annotations"][name] = json!(period);
        }
        apply(&api(&namespace, "Widget"), "one", &custom).await;
        is_reconciled_often(&count).await;
    }
}

/// Reconciles three Widgets and returns how many at once at most. Each takes until two are in progress,
/// or some requests long.
async fn most_at_once(options: &str, flag: usize) -> Option<usize> {
    let (plane, namespace) = new_namespace("atonce").await?;
    let (current, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let seen = Arc::clone(&most);
    let project = Project::new(options, &[("map.yaml", MAP)]);
    let widgets = api(&namespace, "Widget");
    for name in ["a", "b", "c"] {
        apply(&widgets, name, &json!({"spec": {"value": "1"}})).await;
    }
    let _operator = InProcessOperator::with(
        &project,
        plane.client().await.unwrap(),
        namespace.name(),
        move |chart| {
            let (current, most) = (Arc::clone(&current), Arc::clone(&most));
            chart.pre_hook(move |context, _| {
                let (current, most) = (Arc::clone(&current), Arc::clone(&most));
                async move {
                    let now = current.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    let maps: Api<ConfigMap> = Api::default_namespaced(context.client().clone());
                    for _ in 0..20 {
                        if most.load(Ordering::SeqCst) < 2 {
                            maps.list(&ListParams::default()).await?;
                        }
                    }
                    current.fetch_sub(1, Ordering::SeqCst);
                    Ok(())
                }
            })
        },
        move |options| options.max_concurrent_reconciles = flag,
    );
    for name in ["a", "b", "c"] {
        until(&widgets, name, "Ready", holds("Ready")).await;
    }
    Some(seen.load(Ordering::SeqCst))
}

#[tokio::test(flavor = "multi_thread")]
async fn number_of_concurrent_reconciles_is_limited_by_the_entry_or_the_flag() {
    for (options, flag, most) in [
        ("", 1, 1),
        ("", 2, 2),
        ("maxConcurrentReconciles: 1", 2, 1),
        ("maxConcurrentReconciles: 2", 1, 2),
    ] {
        let found = or_skip!(most_at_once(options, flag).await);
        assert_eq!(found, most, "{options} {flag}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_namespace_does_not_hold_up_others_beyond_its_share() {
    let (plane, first) = or_skip!(new_namespace("greedy").await);
    let (_, second) = or_skip!(new_namespace("modest").await);
    let project = Project::new("", &[("map.yaml", MAP)]);
    let greedy = api(&first, "Widget");
    let names = ["a", "b", "c", "d"];
    for name in names {
        apply(&greedy, name, &json!({"spec": {"value": "1"}})).await;
    }
    let (working, in_progress) = watch::channel(0);
    let (release, released) = watch::channel(false);
    let (held, working) = (first.name().to_owned(), Arc::new(working));
    let both = [first.name().to_owned(), second.name().to_owned()];
    let _operator = InProcessOperator::with(
        &project,
        plane.client().await.unwrap(),
        first.name(),
        move |chart| {
            let (held, working, released) = (held.clone(), Arc::clone(&working), released.clone());
            chart.pre_hook(move |context, _| {
                let is_held = context.resource().metadata.namespace.as_ref() == Some(&held);
                let (working, mut released) = (Arc::clone(&working), released.clone());
                async move {
                    if is_held {
                        working.send_modify(|count| *count += 1);
                        let _ = released.wait_for(|released| *released).await;
                    }
                    Ok(())
                }
            })
        },
        move |options| {
            options.watch_namespaces = both.to_vec();
            (options.max_concurrent_reconciles, options.max_share) = (2, 50);
        },
    );
    // Nobody else waits.
    let mut in_progress = in_progress;
    in_progress.wait_for(|count| *count == 2).await.unwrap();
    let modest = api(&second, "Widget");
    apply(&modest, "one", &json!({"spec": {"value": "1"}})).await;
    until(&modest, "one", "Ready", holds("Ready")).await;
    assert_eq!(*in_progress.borrow(), 2);
    release.send_replace(true);
    for name in names {
        until(&greedy, name, "Ready", holds("Ready")).await;
    }
}

#[tokio::test]
async fn drift_waits_for_the_next_reconcile_when_dependents_are_not_watched() {
    let options = "watchDependentResources: false, reconcilePeriod: 0s";
    let world = or_skip!(World::of("unseen", options, &[("map.yaml", MAP)]).await);
    world.deploy("one", json!({"value": "1"})).await;
    // A second pass follows the installation.
    let settled = format!("\"{}/one\",\"step\":\"settle\"", world.namespace.name());
    eventually("the second pass", async || {
        world.operator.log().contains(&settled)
    })
    .await;
    let change = json!({"data": {"value": "other"}});
    merge(&world.api("ConfigMap"), "one-map", &change).await;
    // Another custom resource is reconciled from begin to end meanwhile.
    world.deploy("two", json!({"value": "1"})).await;
    world.data("one-map", json!({"value": "other"})).await;
    world.annotate("one", "reconcile-at", json!("now")).await;
    world.data("one-map", json!({"value": "1"})).await;
}

#[tokio::test]
async fn failed_upgrade_is_uninstalled_and_installed_again_where_the_entry_says_so() {
    // A selector cannot be changed.
    let web = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: {{ .Release.Name }}-web}\nspec: {replicas: 0, selector: {matchLabels: {a: {{ .Values.value }}}}, template: {metadata: {labels: {a: {{ .Values.value }}}}, spec: {containers: [{name: main, image: i}]}}}\n";
    let kept = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-kept, annotations: {helm.sh/resource-policy: keep}}\n";
    let options = "upgrade: {remediation: {retries: 1, strategy: uninstall}}";
    let project = Project::new(options, &[("web.yaml", web), ("kept.yaml", kept)]);
    let world = or_skip!(project.start("anew").await);
    world.deploy("one", json!({"value": "a"})).await;
    let uid = async |kind: &str, name: &str| {
        let object = world.api(kind).get(name).await.unwrap();
        object.metadata.uid.unwrap()
    };
    let (web, kept) = (
        uid("Deployment", "one-web").await,
        uid("ConfigMap", "one-kept").await,
    );
    world.widget("one", json!({"value": "b"})).await;
    let note = told(&world, "UninstalledAfterFailure").await;
    assert_contains!(note, "strategy is uninstall");
    let there = |object: &Value| object["spec"]["selector"]["matchLabels"]["a"] == "b";
    world.until("Deployment", "one-web", "new", there).await;
    world.ready("Widget", "one").await;
    assert_ne!(uid("Deployment", "one-web").await, web);
    assert_eq!(uid("ConfigMap", "one-kept").await, kept);
    assert_eq!(world.history("one").await, ["deployed"]);
}

#[tokio::test]
async fn cluster_scoped_resources_are_watched_despite_watch_namespace() {
    let (plane, namespace) = or_skip!(new_namespace("scoped").await);
    let name = namespace.name();
    let project = Project::new("", &[("map.yaml", MAP)]);
    let selector = format!("selector: {{matchLabels: {{of: {name}}}}}");
    project.watch("test.example.com", "GlobalCache", &selector);
    let caches = cluster_api(&namespace, "GlobalCache");
    let custom = json!({"metadata": {"labels": {"of": name}}, "spec": {"value": "1"}});
    apply(&caches, name, &custom).await;
    // The namespace of its release is not watched: it is refused, and says how to change that.
    let elsewhere = project
        .operator(plane, name)
        .env("POD_NAMESPACE", "default");
    let running = elsewhere.start().await.unwrap();
    let refused = until(&caches, name, "refused", holds("Irreconcilable")).await;
    let message = condition(&refused, "Irreconcilable").unwrap()["message"].to_string();
    assert_contains!(message, "namespace default", "$WATCH_NAMESPACE");
    assert_contains!(message, "releaseNamespace");
    assert_contains!(
        running.log(),
        "the entry of the watches file cannot be used"
    );
    running.stop(LIMIT).await.unwrap();

    let running = project.operator(plane, name).env("POD_NAMESPACE", name);
    let _running = running.start().await.unwrap();
    until(&caches, name, "Ready", holds("Ready")).await;
    let map = api(&namespace, "ConfigMap")
        .get(&format!("{name}-map"))
        .await;
    assert_eq!(map.unwrap().data["data"]["value"], "1");
    remove(&caches, name).await;
}

#[tokio::test]
async fn event_about_overridden_values_shows_them_only_on_request_and_never_the_environment() {
    let options = "overrideValues: {value: '${PLACE}-{{ .Env.PLACE }}', image.tag: '1.2'}, values: {other: '{{ .Env.PLACE }}'}";
    let project = Project::new(options, &[("map.yaml", MAP)]);
    let plane = or_skip!(control_plane().await);
    for (flags, shown) in [
        (&[][..], false),
        (&["--suppress-override-values"], false),
        (
            &[
                "--suppress-override-values=false",
                "--status-manifest=false",
            ],
            true,
        ),
    ] {
        let namespace = namespace_of(plane, "override").await;
        let operator = project.operator(plane, namespace.name());
        let operator = operator.args(flags.iter().copied()).env("PLACE", "hidden");
        let world = World::run(plane, operator, namespace).await;
        world.widget("one", json!({"value": "x"})).await;
        world
            .data("one-map", json!({"value": "hidden-hidden"}))
            .await;
        let note = told(&world, "ValueOverridden").await;
        assert_contains!(note, "image.tag", "value");
        assert!(!note.contains("hidden"), "{note}");
        assert_eq!(note.contains("1.2"), shown, "{note}");
        assert_eq!(note.contains("${PLACE}"), shown, "{note}");
        let cr = world.ready("Widget", "one").await;
        let manifest = &cr.data["status"]["deployedRelease"]["manifest"];
        assert_eq!(manifest.is_null(), shown, "{}", cr.data["status"]);
    }
}

#[tokio::test]
async fn changed_files_are_looked_for_unless_that_is_turned_off() {
    let project = Project::new("", &[("map.yaml", MAP)]);
    for (flags, watched) in [(&[][..], true), (&["--watch-files=false"], false)] {
        let world = or_skip!(project.start_with("files", flags).await);
        // All controllers are started before the first custom resource is reconciled.
        world.deploy("one", json!({"value": "x"})).await;
        let log = world.operator.log();
        let mut starts = log
            .lines()
            .filter(|line| line.contains("starting controller"));
        assert_eq!(
            starts.any(|line| line.contains("\"reload\"")),
            watched,
            "{log}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sync_period_reconciles_native_resources_that_nothing_changes() {
    let (plane, namespace) = or_skip!(new_namespace("sync").await);
    let count = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&count);
    let controller = native::controller::<ConfigMap>("maps").reconcile(move |_, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok(Action::done()) }
    });
    let env = ["WATCH_NAMESPACE", "OPERATOR_NAME"].map(|name| (name, namespace.name()));
    let options = options(&["--sync-period=50ms"], &env);
    let stop = tokio_util::sync::CancellationToken::new();
    let manager = hybrid_operator::manager::Manager::new(options)
        .client(plane.client().await.unwrap())
        .with(controller);
    let running = tokio::spawn(manager.run_until(stop.clone()));
    let maps = api(&namespace, "ConfigMap");
    apply(&maps, "one", &json!({"data": {"a": "b"}})).await;
    is_reconciled_often(&count).await;
    stop.cancel();
    running.await.unwrap().unwrap();
}

/// Runs an operator that ends by itself, without a cluster.
fn refused(project: &Project, args: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String) {
    let file: PathBuf = project.watches_file();
    let Output { status, stderr, .. } = std::process::Command::new(program())
        .arg("run")
        .arg("--watches-file")
        .arg(file)
        .args(args)
        .env(
            "KUBECONFIG",
            project.watches_file().with_file_name("kubeconfig"),
        )
        .envs(env.iter().copied())
        .current_dir(root())
        .output()
        .unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// A cluster that no request reaches.
const KUBECONFIG: &str = "\
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
";

/// Without a flag and a variable. `kubectl` does the same.
#[tokio::test]
async fn an_operator_without_a_kubeconfig_uses_that_of_the_home_directory() {
    let plane = or_skip!(shared_or_skip().await.unwrap());
    let project = Project::new("", &[("map.yaml", MAP)]);
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join(".kube")).unwrap();
    let file = home.path().join(".kube/config");
    std::fs::copy(plane.kubeconfig_path(), file).unwrap();
    let operator = Operator::new(program())
        .arg("run")
        .args(["--health-probe-bind-address", "127.0.0.1:{probe_port}"])
        .args(["--metrics-bind-address", "127.0.0.1:{metrics_port}"])
        .env("HOME", home.path())
        .dir(project.watches_file().parent().unwrap())
        .start()
        .await
        .unwrap();
    operator.stop(LIMIT).await.unwrap();
}

#[test]
fn wrong_names_end_the_process_at_the_start_and_are_named() {
    let project = Project::new("", &[("map.yaml", MAP)]);
    project.write("kubeconfig", KUBECONFIG);
    for (args, env, code, parts) in [
        (
            &["--max-concurrent-reconciles=0"][..],
            &[][..],
            2,
            &["--max-concurrent-reconciles", "at least 1"][..],
        ),
        (
            &[],
            &[("WATCH_NAMESPACE", "Team A")],
            1,
            &["$WATCH_NAMESPACE", "\"Team A\"", "the name of a namespace"],
        ),
        (&["--kubeconfig=/nowhere/else"], &[], 1, &["/nowhere/else"]),
        (
            &[
                "--health-probe-bind-address=nowhere",
                "--metrics-bind-address=0",
            ],
            &[],
            1,
            &["nowhere"],
        ),
        (
            &[
                "--metrics-bind-address=nowhere",
                "--health-probe-bind-address=0",
            ],
            &[],
            1,
            &["nowhere"],
        ),
    ] {
        let (found, text) = refused(&project, args, env);
        assert_eq!(found, Some(code), "{text}");
        for part in parts {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
    let project = Project::new("releaseName: '{{ .Spec.a | upperr }}'", &[]);
    let (code, text) = refused(&project, &[], &[]);
    assert_eq!(code, Some(1), "{text}");
    assert_contains!(text, "watches.yaml:1:", "[0].releaseName");
    assert_contains!(text, "\"upperr\" not defined");
}
