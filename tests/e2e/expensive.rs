//! A chart that takes long to render holds up nothing else, even on one CPU.

use serde_json::json;

use crate::world::{Project, World, eventually, new_namespace};

/// Far more work than fits into the time limit of a render.
const CHART: &str = "\
{{- if .Values.expensive }}{{ range until 1000000 }}
{{- $x := derivePassword 1 \"long\" \"password\" \"user\" \"site\" }}{{ end }}{{ end }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ .Values.value | quote }}}
";

#[tokio::test]
async fn an_expensive_chart_holds_up_neither_the_lease_nor_probes_nor_other_resources() {
    let (plane, namespace) = or_skip!(new_namespace("expensive").await);
    let project = Project::new("", &[("map.yaml", CHART)]);
    let lease = format!("--leader-election-namespace={}", namespace.name());
    let operator = project
        .operator(plane, namespace.name())
        .args(["--leader-elect", "--leader-election-id=expensive", &lease])
        .under("taskset", ["--cpu-list", "0"]);
    let world = World::run(plane, operator, namespace).await;
    world
        .widget("long", json!({"value": "1", "expensive": true}))
        .await;
    let is_rendering = async || {
        let metrics = world.operator.metrics().await.unwrap();
        let mut lines = metrics.lines();
        lines.any(|line| line == r#"controller_runtime_active_workers{controller="widget"} 1"#)
    };
    eventually("the render to begin", is_rendering).await;
    let leases = world.api("Lease");
    let renewed = async || {
        let lease = leases.get("expensive").await.unwrap();
        lease.data["spec"]["renewTime"].clone()
    };
    let before = renewed().await;
    // The other custom resource is installed, changed and removed meanwhile.
    for value in ["1", "2"] {
        world.deploy("short", json!({"value": value})).await;
        world.data("short-map", json!({"value": value})).await;
    }
    world.remove("Widget", "short").await;
    let is_renewed = async || renewed().await != before;
    eventually("the lease to be renewed", is_renewed).await;
    assert_eq!(world.operator.probe("/readyz").await.unwrap().0, 200);
    // A render ends at its time limit and is tried again.
    eventually("the render to be running", is_rendering).await;
    // Its own custom resource can be deleted at any time.
    world.remove("Widget", "long").await;
    assert!(!world.operator.log().contains("lease was lost"));
}

#[tokio::test]
async fn limits_of_the_operator_apply_to_entries_that_have_none() {
    const LONG: &str = "\
{{- range until 100000 }}{{ $x := . }}{{ end }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {length: {{ repeat 3000000 \"x\" | len | quote }}}
";
    for (flag, field) in [
        ("--limit-time=1ms", "limits.time"),
        ("--limit-memory=2Mi", "limits.memory"),
    ] {
        let project = Project::new("", &[("map.yaml", LONG)]);
        let world = or_skip!(project.start_with("limits", &[flag]).await);
        world.widget("one", json!({})).await;
        let refused = world.is("one", "Irreconcilable").await.to_string();
        let name = flag.split('=').next().unwrap();
        assert_contains!(refused, name, field, "chart/templates/map.yaml:");
        // The entry comes first.
        let limits = "limits: {time: 1m, memory: 20Mi}";
        project.watch("test.example.com", "Widget", limits);
        world.ready("Widget", "one").await;
    }
}
