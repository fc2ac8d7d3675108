//! Changes of the watches file and its charts while an operator runs.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hybrid_operator::helm::{Charts, Values};
use hybrid_operator::manager::Manager;
use hybrid_operator_test::process::RunningOperator;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::world::{
    ANYTHING, LIMIT, Project, World, api, apply, definition_of, delete, entry, events, eventually,
    merge, new_namespace, operator, options, says, set_ready, sum_of, until,
};

/// A `ConfigMap` with the version of the chart and a value.
fn map(version: &str) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: '{{{{ .Release.Name }}}}-map'}}
data: {{chart: {version}, value: '{{{{ .Values.value }}}}'}}
"
    )
}

/// A template that cannot be parsed.
const BROKEN: &str = "{{ if }}";

/// A `ConfigMap` that the API server refuses.
const REFUSED: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: '{{ .Release.Name }}_Invalid'}
";

const TEMPLATE: &str = "chart/templates/map.yaml";

/// Starts an operator of the project that knows its Pod.
async fn start(project: &Project, prefix: &str, args: &[&str]) -> Option<World> {
    World::with(prefix, |plane, name| {
        project
            .operator(plane, name)
            .args(args.iter().copied())
            .env("POD_NAME", "operator-0")
            .env("POD_NAMESPACE", name)
    })
    .await
}

/// Returns a metric of the operator; 0 if it does not exist yet.
async fn metric(operator: &RunningOperator, name: &str) -> u64 {
    sum_of(&operator.metrics().await.unwrap(), name)
}

async fn reaches(world: &World, name: &str, wanted: u64) {
    let there = async || metric(&world.operator, name).await == wanted;
    eventually(name, there).await;
}

const SUCCESS: &str = "hybrid_operator_reload_total{result=\"success\"}";
const REFUSED_TOTAL: &str = "hybrid_operator_reload_total{result=\"refused\"}";
const WAITING: &str = "hybrid_operator_rollout_waiting{controller=\"widget\"}";

/// Waits for an event about the operator's Pod and returns its note.
async fn told(world: &World, reason: &str) -> String {
    let told = async || {
        let events = events(&world.namespace).await;
        let found = events.iter().find(|event| {
            event.data["reason"] == reason && event.data["involvedObject"]["kind"] == "Pod"
        });
        found.map(|event| event.data["message"].to_string())
    };
    eventually(reason, told).await
}

async fn deployed(world: &World, name: &str, chart: &str, value: &str) {
    let data = json!({"chart": chart, "value": value});
    world.data(&format!("{name}-map"), data).await;
}

#[tokio::test]
async fn broken_chart_is_refused_and_the_fixed_one_upgrades_all_releases_in_order() {
    let project = Project::new("", &[("map.yaml", &map("v1"))]);
    let args = ["--reload-pace=100ms", "--reconcile-period=1s"];
    let world = or_skip!(start(&project, "reload", &args).await);
    let names = ["c", "a", "b"];
    for name in names {
        world.widget(name, json!({"value": "1"})).await;
    }
    for name in names {
        world.ready("Widget", name).await;
    }

    project.write(TEMPLATE, BROKEN);
    reaches(&world, REFUSED_TOTAL, 1).await;
    let note = told(&world, "ReloadRefused").await;
    assert_contains!(note, "map.yaml");
    world.widget("a", json!({"value": "2"})).await;
    deployed(&world, "a", "v1", "2").await;

    project.write(TEMPLATE, &map("v2"));
    for (name, value) in [("a", "2"), ("b", "1"), ("c", "1")] {
        deployed(&world, name, "v2", value).await;
        world.ready("Widget", name).await;
    }
    world.has_history("b", &["superseded", "deployed"]).await;
    reaches(&world, SUCCESS, 1).await;
    reaches(&world, WAITING, 0).await;
    let log = world.operator.log();
    let turns = log.lines().filter(|line| line.contains("reconciling with"));
    let order: Vec<bool> = turns
        .zip(["a", "b", "c"])
        .map(|(line, name)| line.contains(&format!("{}/{name}\"", world.namespace.name())))
        .collect();
    assert_eq!(order, [true; 3], "{log}");

    // Files that are written without a change are not a change.
    project.write(TEMPLATE, &map("v2"));
    let patches = async || {
        let name = "rest_client_requests_total{code=\"200\",method=\"PATCH\"}";
        metric(&world.operator, name).await
    };
    let resyncs = async || {
        let name =
            "controller_runtime_reconcile_total{controller=\"widget\",result=\"requeue_after\"}";
        metric(&world.operator, name).await
    };
    // Twelve resyncs without a request, after the last events of the roll-out.
    let (mut requests, mut since) = (patches().await, resyncs().await);
    eventually("resyncs without a request", async || {
        let (now, resyncs) = (patches().await, resyncs().await);
        if now != requests {
            (requests, since) = (now, resyncs);
        }
        resyncs >= since + 12
    })
    .await;
    assert_eq!(metric(&world.operator, SUCCESS).await, 1);
}

#[tokio::test]
async fn edited_custom_resource_does_not_wait_for_its_turn() {
    let project = Project::new("", &[("map.yaml", &map("v1"))]);
    let world = or_skip!(start(&project, "turns", &["--reload-pace=1h"]).await);
    for name in ["a", "b", "c"] {
        world.deploy(name, json!({"value": "1"})).await;
    }
    project.write(TEMPLATE, &map("v2"));
    deployed(&world, "a", "v2", "1").await;
    reaches(&world, WAITING, 2).await;
    world.widget("b", json!({"value": "2"})).await;
    deployed(&world, "b", "v2", "2").await;
    reaches(&world, WAITING, 1).await;
    // Drift of the one that waits is repaired as it was.
    let maps = world.api("ConfigMap");
    delete(&maps, "c-map").await;
    deployed(&world, "c", "v1", "1").await;
    world.has_history("c", &["deployed"]).await;

    project.write(TEMPLATE, &map("v3"));
    reaches(&world, WAITING, 3).await;
    world.widget("c", json!({"value": "3"})).await;
    deployed(&world, "c", "v3", "3").await;
    world.has_history("c", &["superseded", "deployed"]).await;
    world.widget("new", json!({"value": "4"})).await;
    deployed(&world, "new", "v3", "4").await;
}

#[tokio::test]
async fn failing_upgrades_halt_the_rollout_until_the_chart_is_fixed() {
    let project = Project::new("", &[("map.yaml", &map("v1"))]);
    let world = or_skip!(start(&project, "halt", &["--reload-pace=0"]).await);
    let names = ["a", "b", "c", "d", "e"];
    for name in names {
        world.widget(name, json!({"value": "1"})).await;
    }
    for name in names {
        world.ready("Widget", name).await;
    }
    project.write(TEMPLATE, REFUSED);
    let note = told(&world, "RolloutHalted").await;
    assert_contains!(note, "2 others");
    reaches(&world, WAITING, 2).await;
    world.has_history("e", &["deployed"]).await;
    project.write(TEMPLATE, &map("v3"));
    for name in names {
        deployed(&world, name, "v3", "1").await;
        world.ready("Widget", name).await;
    }
    world.has_history("e", &["superseded", "deployed"]).await;
}

/// The names of eight Widgets.
const EIGHT: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// Deploys eight Widgets.
async fn eight(world: &World) {
    for name in EIGHT {
        world.widget(name, json!({"value": "1"})).await;
    }
    for name in EIGHT {
        world.ready("Widget", name).await;
    }
}

/// Waits until the roll-out is halted, and checks that three releases were upgraded.
async fn halted_after_three(world: &World) {
    let note = told(world, "RolloutHalted").await;
    assert_contains!(note, "5 others");
    reaches(world, WAITING, 5).await;
    for name in &EIGHT[..3] {
        world
            .has_history(name, &["superseded", "failed", "deployed"])
            .await;
    }
    for name in &EIGHT[3..] {
        assert_eq!(world.history(name).await, ["deployed"], "{name}");
    }
}

#[tokio::test]
async fn failing_upgrades_halt_the_rollout_of_a_chart_that_replaces_its_definitions() {
    let project = Project::new("crds: createReplace", &[("map.yaml", &map("v1"))]);
    let definition = definition_of("guard.example.com", "Guarded", "Namespaced", ANYTHING);
    project.write("chart/crds/guarded.yaml", &definition);
    let world = or_skip!(start(&project, "guard", &["--reload-pace=0"]).await);
    eight(&world).await;
    project.write(TEMPLATE, REFUSED);
    halted_after_three(&world).await;
}

#[tokio::test]
async fn failing_upgrades_halt_the_rollout_also_after_a_wait_for_a_dependency() {
    let options = "dependsOn: [{apiVersion: test.example.com/v1, kind: Gadget, name: base}]";
    let project = Project::new(options, &[("map.yaml", &map("v1"))]);
    let world = or_skip!(start(&project, "awaits", &["--reload-pace=0"]).await);
    let gadgets = world.api("Gadget");
    apply(&gadgets, "base", &json!({"spec": {}})).await;
    set_ready(&gadgets, "base", "True").await;
    eight(&world).await;
    set_ready(&gadgets, "base", "False").await;
    project.write(TEMPLATE, REFUSED);
    // Three wait for the dependency, the others for them.
    for name in &EIGHT[..3] {
        let waits = |cr: &Value| says(cr, "Ready", "base");
        world.until("Widget", name, "the dependency", waits).await;
    }
    reaches(&world, WAITING, 5).await;
    set_ready(&gadgets, "base", "True").await;
    halted_after_three(&world).await;
}

#[tokio::test]
async fn deletions_that_wait_hold_up_no_rollout() {
    let held = "\
{{- if .Values.held }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-held
  finalizers: [test.example.com/held]
{{- end }}
";
    let templates = [("map.yaml", &*map("v1")), ("held.yaml", held)];
    let project = Project::new("uninstall: {wait: true}", &templates);
    let world = or_skip!(start(&project, "held", &["--reload-pace=0"]).await);
    let deleted = ["a", "b", "c"];
    for name in ["a", "b", "c", "d", "e"] {
        let spec = json!({"value": "1", "held": deleted.contains(&name)});
        world.deploy(name, spec).await;
    }
    for name in deleted {
        let widgets = world.api("Widget");
        drop(widgets.delete(name, &DeleteParams::default()).await);
        world.has_history(name, &["uninstalling"]).await;
    }
    project.write(TEMPLATE, &map("v2"));
    for name in ["d", "e"] {
        deployed(&world, name, "v2", "1").await;
    }
    reaches(&world, WAITING, 0).await;
    for name in deleted {
        let patch = json!({"metadata": {"finalizers": null}});
        merge(&world.api("ConfigMap"), &format!("{name}-held"), &patch).await;
        world.gone("Widget", name).await;
    }
}

#[tokio::test]
async fn entries_are_added_changed_and_removed() {
    let project = Project::new("", &[("map.yaml", &map("v1"))]);
    let world = or_skip!(start(&project, "entries", &["--reload-pace=0"]).await);
    let entry = |kind: &str, options: &str| entry("test.example.com", kind, options);
    world.widget("one", json!({"value": "1"})).await;
    deployed(&world, "one", "v1", "1").await;
    let gadgets = world.api("Gadget");
    apply(&gadgets, "two", &json!({"spec": {"value": "1"}})).await;

    let both = entry("Widget", "") + &entry("Gadget", "");
    project.write("watches.yaml", &both);
    deployed(&world, "two", "v1", "1").await;
    world.ready("Gadget", "two").await;

    // A changed selector restarts the controller.
    let selected = entry("Widget", "selector: {matchLabels: {team: a}}") + &entry("Gadget", "");
    project.write("watches.yaml", &selected);
    reaches(&world, SUCCESS, 2).await;
    world.widget("ignored", json!({"value": "1"})).await;
    let labelled = json!({"metadata": {"labels": {"team": "a"}}, "spec": {"value": "1"}});
    apply(&world.api("Widget"), "chosen", &labelled).await;
    deployed(&world, "chosen", "v1", "1").await;
    let ignored = world.api("ConfigMap").get_opt("ignored-map").await;
    assert!(ignored.unwrap().is_none());

    // The release of a removed entry stays.
    project.write("watches.yaml", &entry("Widget", ""));
    reaches(&world, SUCCESS, 3).await;
    deployed(&world, "ignored", "v1", "1").await;
    apply(&gadgets, "two", &json!({"spec": {"value": "2"}})).await;
    world.widget("one", json!({"value": "2"})).await;
    deployed(&world, "one", "v1", "2").await;
    deployed(&world, "two", "v1", "1").await;
    let log = world.operator.log();
    assert_contains!(log, "the entry is removed");

    project.write("watches.yaml", &both);
    deployed(&world, "two", "v1", "2").await;
    world.ready("Gadget", "two").await;
}

#[tokio::test]
async fn swap_of_a_mounted_config_map_is_a_reload() {
    let project = Project::new("", &[]);
    let watches = "- {group: test.example.com, version: v1, kind: Widget, chart: .}\n";
    let version = |name: &str| {
        project.write(
            &format!("mount/{name}/Chart.yaml"),
            "apiVersion: v2\nname: chart\nversion: 0.1.0\n",
        );
        project.write(&format!("mount/{name}/watches.yaml"), watches);
        project.write(
            &format!("mount/{name}/templates/map.yaml"),
            &map(&name.replace('.', "")),
        );
    };
    let mount = project.watches_file().with_file_name("mount");
    version("..v1");
    symlink("..v1", mount.join("..data")).unwrap();
    for name in ["Chart.yaml", "watches.yaml", "templates"] {
        symlink(format!("..data/{name}"), mount.join(name)).unwrap();
    }
    let file = mount.join("watches.yaml").display().to_string();
    let args = ["--watches-file", &file, "--reload-pace=0"];
    let started = World::with("mount", |plane, name| operator(plane, name, &args));
    let world = or_skip!(started.await);
    world.widget("one", json!({"value": "1"})).await;
    deployed(&world, "one", "v1", "1").await;
    version("..v2");
    symlink("..v2", mount.join("..new")).unwrap();
    std::fs::rename(mount.join("..new"), mount.join("..data")).unwrap();
    std::fs::remove_dir_all(mount.join("..v1")).unwrap();
    deployed(&world, "one", "v2", "1").await;
    world.ready("Widget", "one").await;
    world.has_history("one", &["superseded", "deployed"]).await;

    // The directory behind the link has another name, and nothing else has changed.
    std::fs::rename(mount.join("..v2"), mount.join("..v3")).unwrap();
    symlink("..v3", mount.join("..new")).unwrap();
    std::fs::rename(mount.join("..new"), mount.join("..data")).unwrap();
    let same = async || world.operator.log().contains("without a change");
    eventually("a look at the files", same).await;
    assert_eq!(metric(&world.operator, SUCCESS).await, 1);
}

/// A hook that completes when the test lets it.
const HOOK: &str = "\
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: pre-install}
spec:
  suspend: true
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: i}]}}
";

#[tokio::test]
async fn reload_during_an_install_continues_with_the_changed_chart() {
    let project = Project::new("", &[("map.yaml", &map("v1")), ("hook.yaml", HOOK)]);
    let world = or_skip!(start(&project, "installing", &[]).await);
    world.widget("one", json!({"value": "1"})).await;
    world.there("Job", "one-hook").await;
    let hook = HOOK.replace("suspend: true", "suspend: false");
    project.write("chart/templates/hook.yaml", &hook);
    deployed(&world, "one", "v1", "1").await;
    world.ready("Widget", "one").await;
    // As after an edit of the custom resource, the install that was in progress is replaced.
    world.has_history("one", &["failed", "deployed"]).await;
    reaches(&world, SUCCESS, 1).await;
}

#[tokio::test]
async fn replica_that_stands_by_reloads_and_changes_nothing() {
    let (plane, namespace) = or_skip!(new_namespace("standby").await);
    let project = Project::new("", &[("map.yaml", &map("v1"))]);
    let replica = |pod: &str| project.replica(plane, &namespace, pod).start();
    let first = replica("first").await.unwrap();
    let (widgets, maps) = (api(&namespace, "Widget"), api(&namespace, "ConfigMap"));
    apply(&widgets, "one", &json!({"spec": {"value": "1"}})).await;
    let is = async |chart: &str| {
        let there = |map: &Value| map["data"]["chart"] == chart;
        until(&maps, "one-map", chart, there).await
    };
    is("v1").await;
    let second = replica("second").await.unwrap();
    project.write(TEMPLATE, &map("v2"));
    is("v2").await;
    let reloaded = async || metric(&second, SUCCESS).await == 1;
    eventually("a reload", reloaded).await;
    assert!(!second.log().contains("planned"), "{}", second.log());
    first.stop(LIMIT).await.unwrap();
    project.write(TEMPLATE, &map("v3"));
    is("v3").await;
    let statuses = ["superseded", "superseded", "deployed"];
    let there = async || crate::world::history(&namespace, "one").await == statuses;
    eventually("the history", there).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn extensions_in_code_stay_with_a_reloaded_chart() {
    let (plane, namespace) = or_skip!(new_namespace("extended").await);
    let project = Project::new("", &[("map.yaml", &map("v1"))]);
    let env = ["WATCH_NAMESPACE", "OPERATOR_NAME"].map(|name| (name, namespace.name()));
    let options = options(&[], &env);
    let made = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&made);
    let charts = Charts::load(&project.watches_file(), move |chart| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        chart.value_translator(move |_, mut values: Values| {
            values.insert("value".to_owned(), json!(format!("of {number}")));
            std::future::ready(Ok(values))
        })
    });
    let manager = charts
        .unwrap()
        .add_to(Manager::new(options).client(plane.client().await.unwrap()));
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run_until(stop.clone()));
    let (widgets, maps) = (api(&namespace, "Widget"), api(&namespace, "ConfigMap"));
    apply(&widgets, "one", &json!({"spec": {}})).await;
    let is = async |data: Value| {
        let there = |map: &Value| map["data"] == data;
        until(&maps, "one-map", "its data", there).await
    };
    is(json!({"chart": "v1", "value": "of 0"})).await;
    project.write(TEMPLATE, &map("v2"));
    is(json!({"chart": "v2", "value": "of 1"})).await;
    stop.cancel();
    running.await.unwrap().unwrap();
}
