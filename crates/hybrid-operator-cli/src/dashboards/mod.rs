//! A Grafana dashboard and Prometheus alerts for the metrics of an operator.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// The panels in reading order, two in a row: title, unit and description, and below them the queries with
/// their legends.
const PANELS: &str = "\
Reconciles by result | ops | How often custom resources are reconciled. At rest this is near zero.
    sum by (controller, result) (rate(controller_runtime_reconcile_total{SELECT}[$__rate_interval])) => {{controller}} {{result}}

Failed reconciles | ops | A controller that fails all the time has a custom resource to look at: hybrid-operator status.
    sum by (controller) (rate(controller_runtime_reconcile_errors_total{SELECT}[$__rate_interval])) => {{controller}}

Duration of reconciles | s | Half and 99 percent of the reconciles are faster.
    histogram_quantile(0.5, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{SELECT}[$__rate_interval]))) => {{controller}} 50%
    histogram_quantile(0.99, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{SELECT}[$__rate_interval]))) => {{controller}} 99%

Reconciles in progress | short | Limited by --max-concurrent-reconciles.
    sum by (controller) (controller_runtime_active_workers{SELECT}) => {{controller}}
    sum by (controller) (controller_runtime_max_concurrent_reconciles{SELECT}) => {{controller}} at most

Longest reconcile in progress | s | A value that grows belongs to a reconcile that does not end.
    max by (name) (workqueue_longest_running_processor_seconds{SELECT}) => {{name}}
    sum by (name) (workqueue_unfinished_work_seconds{SELECT}) => {{name}} all

Reconciles that ended badly | short | Terminal errors are not tried again until something changes. Panics and time-outs are defects of a controller in Rust.
    sum by (controller) (increase(controller_runtime_terminal_reconcile_errors_total{SELECT}[$__rate_interval])) => {{controller}} terminal
    sum by (controller) (increase(controller_runtime_reconcile_panics_total{SELECT}[$__rate_interval])) => {{controller}} panics
    sum by (controller) (increase(controller_runtime_reconcile_timeouts_total{SELECT}[$__rate_interval])) => {{controller}} time-outs

Queue | short | Custom resources that wait for a free worker.
    sum by (name) (workqueue_depth{SELECT}) => {{name}}

Added to the queue | ops | Changes of custom resources and of what they own.
    sum by (name) (rate(workqueue_adds_total{SELECT}[$__rate_interval])) => {{name}}

Retries | ops | Reconciles that failed and are tried again.
    sum by (name) (rate(workqueue_retries_total{SELECT}[$__rate_interval])) => {{name}}

Time in the queue and at work | s | 99 percent are faster.
    histogram_quantile(0.99, sum by (name, le) (rate(workqueue_queue_duration_seconds_bucket{SELECT}[$__rate_interval]))) => {{name}} queued
    histogram_quantile(0.99, sum by (name, le) (rate(workqueue_work_duration_seconds_bucket{SELECT}[$__rate_interval]))) => {{name}} at work

Custom resources | short | Number of custom resources of charts by kind.
    count by (kind) (resource_created_at_seconds{SELECT}) => {{kind}}

Outputs | short | Numbers in the status of custom resources: the fields of status in watches.yaml, but those that are computed from Secrets.
    max by (kind, exported_namespace, name, output) (hybrid_operator_output{SELECT}) => {{kind}} {{exported_namespace}}/{{name}} {{output}}

Requests to the API server | reqps | At rest the operator sends none. 409 is answered by reading again; 403 is a missing permission.
    sum by (code, method) (rate(rest_client_requests_total{SELECT}[$__rate_interval])) => {{method}} {{code}}

Watches restarted | short | Watches that had to list everything again, by cause.
    sum by (kind, cause) (increase(hybrid_operator_watch_restarts_total{SELECT}[$__rate_interval])) => {{kind}} {{cause}}

Leader | short | Exactly one replica is the leader, or has a shard; custom resources that no member of the ring has.
    max by (pod, name) (leader_election_master_status{SELECT}) => {{pod}} {{name}}
    max by (kind) (hybrid_operator_unassigned_custom_resources{SELECT}) => {{kind}} without a shard

Blocked threads | short | Reconciles of native controllers that blocked their thread for more than 5 s.
    sum by (controller) (increase(hybrid_operator_blocked_reconciles_total{SELECT}[$__rate_interval])) => {{controller}}

Reloads | short | Changes of the watches file and its charts, by result, releases that wait for one, and entries whose charts could not be fetched yet.
    sum by (result) (increase(hybrid_operator_reload_total{SELECT}[$__rate_interval])) => {{result}}
    sum by (controller) (hybrid_operator_rollout_waiting{SELECT}) => {{controller}} waiting
    max(hybrid_operator_charts_missing{SELECT}) => charts missing

Time since the last reload | s | Time since the watches file and its charts were last loaded.
    time() - max by (pod) (hybrid_operator_reload_last_success_timestamp_seconds{SELECT}) => {{pod}}

Memory | bytes | Resident memory. It grows with the number of watched objects, not with the time.
    max by (pod) (process_resident_memory_bytes{SELECT}) => {{pod}}

Processors | short | Processors that are busy with the operator. At rest this is near zero.
    sum by (pod) (rate(process_cpu_seconds_total{SELECT}[$__rate_interval])) => {{pod}}

Open files | short | Connections count. At the limit the operator can open no more of them.
    max by (pod) (process_open_fds{SELECT}) => {{pod}}
    max by (pod) (process_max_fds{SELECT}) => {{pod}} at most

Time since the start | s | A process that was restarted begins again. A memory limit is a usual cause.
    time() - max by (pod) (process_start_time_seconds{SELECT}) => {{pod}}

Webhook requests | reqps | Empty without webhooks.
    sum by (webhook, code) (rate(controller_runtime_webhook_requests_total{SELECT}[$__rate_interval])) => {{webhook}} {{code}}
    sum by (webhook) (controller_runtime_webhook_requests_in_flight{SELECT}) => {{webhook}} in flight

Duration of webhook requests | s | The API server waits for them: 99 percent are faster.
    histogram_quantile(0.99, sum by (webhook, le) (rate(controller_runtime_webhook_latency_seconds_bucket{SELECT}[$__rate_interval]))) => {{webhook}}";

/// The alerts, each in four lines: name, time and severity; query; summary; what to do.
const ALERTS: &str = r#"OperatorReconcileErrors 15m warning
    sum by (namespace, job, controller) (rate(controller_runtime_reconcile_errors_total{JOB}[5m])) > 0.01
    Reconciles of {{ $labels.controller }} fail.
    Find the custom resource whose condition ReleaseFailed or Irreconcilable is true with 'hybrid-operator status', and read its message.
OperatorQueueBacklog 15m warning
    sum by (namespace, job, name) (workqueue_depth{JOB}) > 10
    Custom resources of {{ $labels.name }} wait for a free worker.
    Raise --max-concurrent-reconciles or maxConcurrentReconciles in the watches file, and look for reconciles that take long.
OperatorReconcilesSlow 15m warning
    histogram_quantile(0.99, sum by (namespace, job, controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{JOB}[10m]))) > 10
    Reconciles of {{ $labels.controller }} take more than 10 s.
    Reconciles do not wait for hooks or Pods; look at the API server, admission webhooks and the operator's CPU limit.
OperatorPermissionMissing 10m warning
    sum by (namespace, job, method) (increase(rest_client_requests_total{code="403",JOB}[10m])) > 0
    The API server refuses {{ $labels.method }} requests of the operator.
    The operator's log names the missing permission. Run 'hybrid-operator generate rbac' and apply config/rbac.
OperatorChartsMissing 10m warning
    max by (namespace, job) (hybrid_operator_charts_missing{JOB}) > 0
    {{ $value }} kinds do not run, because their charts could not be fetched.
    /readyz/charts and the operator's log name the charts and the errors. What they deployed keeps running.
OperatorHasNoLeader 5m critical
    sum by (namespace, job, name) (leader_election_master_status{JOB}) < 1
    No replica of the operator is the leader of {{ $labels.name }}.
    Nothing is reconciled. Look at the operator's log and at its Lease.
OperatorUnassigned 10m warning
    max by (namespace, job, kind) (hybrid_operator_unassigned_custom_resources{JOB}) > 0
    {{ $value }} custom resources of {{ $labels.kind }} have no shard.
    They are not reconciled. A sharder must run, and the ControllerRing must list the kind.
OperatorAbsent 10m critical
    absent(helm_operator_build_info{JOB})
    The operator is not scraped.
    It does not run, or its Service and ServiceMonitor do not select it. What it deployed keeps running."#;

/// Returns the dashboard as JSON. `name` is the name of the project.
pub(crate) fn dashboard(name: &str) -> Value {
    let selector = "{namespace=~\"$namespace\",job=~\"$job\"}";
    let datasource = json!({"type": "prometheus", "uid": "${datasource}"});
    let panels: Vec<Value> = PANELS
        .split("\n\n")
        .enumerate()
        .map(|(index, panel)| {
            let mut lines = panel.lines();
            let mut head = lines.next().unwrap_or_default().split(" | ");
            let (title, unit, description) = (head.next(), head.next(), head.next());
            let targets: Vec<Value> = lines
                .filter_map(|line| line.trim_start().split_once(" => "))
                .zip('A'..='Z')
                .map(|((query, legend), id)| {
                    json!({
                        "datasource": datasource,
                        "expr": query.replace("{SELECT}", selector),
                        "legendFormat": legend,
                        "refId": id.to_string(),
                    })
                })
                .collect();
            json!({
                "id": index + 1,
                "type": "timeseries",
                "title": title,
                "description": description,
                "datasource": datasource,
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "gridPos": {"h": 8, "w": 12, "x": (index % 2) * 12, "y": (index / 2) * 8},
                "targets": targets,
            })
        })
        .collect();
    let variable = |name: &str, query: &str| {
        json!({
            "name": name, "type": "query", "datasource": datasource, "query": query,
            "refresh": 2, "includeAll": true, "multi": true, "allValue": ".*",
            "current": {"text": "All", "value": "$__all"},
        })
    };
    json!({
        "title": format!("Operator {name}"),
        "uid": uid(name),
        "tags": ["kubernetes", "operator"],
        "schemaVersion": 39,
        "version": 1,
        "editable": true,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus"},
            variable("namespace", "label_values(helm_operator_build_info, namespace)"),
            variable("job", "label_values(helm_operator_build_info{namespace=~\"$namespace\"}, job)"),
        ]},
        "panels": panels,
    })
}

/// Returns an identifier that Grafana accepts: at most 40 characters.
fn uid(name: &str) -> String {
    format!("hybrid-{name}").chars().take(40).collect()
}

/// Returns the `PrometheusRule` with the alerts. `name` is the name of the project.
pub(crate) fn alerts(name: &str) -> String {
    let job = "job=~\".*controller-manager-metrics\"";
    let mut text = format!(
        "apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: controller-manager-alerts
  namespace: system
  labels:
    control-plane: controller-manager
    app.kubernetes.io/name: {name}
spec:
  groups:
  - name: {name}
    rules:
"
    );
    let quoted = |text: &str| Value::from(text).to_string();
    let mut lines = ALERTS.lines().map(str::trim_start);
    while let (Some(head), Some(query), Some(summary), Some(description)) =
        (lines.next(), lines.next(), lines.next(), lines.next())
    {
        let mut words = head.split(' ');
        let mut word = || words.next().unwrap_or_default();
        let (alert, lasting, severity) = (word(), word(), word());
        let query = quoted(&query.replace("JOB", job));
        let (summary, description) = (quoted(summary), quoted(description));
        let _ = write!(
            text,
            "    - alert: {alert}
      expr: {query}
      for: {lasting}
      labels:
        severity: {severity}
      annotations:
        summary: {summary}
        description: {description}
"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use hybrid_operator::telemetry::METRICS;

    use super::*;

    /// Returns the names of metrics in expressions: words before `{`.
    fn metrics<'v>(expressions: impl IntoIterator<Item = &'v Value>) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for expression in expressions {
            let mut parts = expression["expr"].as_str().unwrap().split('{');
            let _ = parts.next_back();
            for part in parts {
                let start = part.rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
                names.insert(part[start.map_or(0, |at| at + 1)..].to_owned());
            }
        }
        names
    }

    fn is_registered(name: &str) -> bool {
        let histogram = name.strip_suffix("_bucket");
        METRICS.contains(&histogram.unwrap_or(name))
    }

    #[test]
    fn every_metric_of_the_dashboard_is_registered_and_used() {
        let board = dashboard("shop");
        let panels = board["panels"].as_array().unwrap();
        assert!(panels.iter().all(|panel| panel["description"].is_string()));
        let targets = panels
            .iter()
            .flat_map(|panel| panel["targets"].as_array().unwrap());
        let used = metrics(targets);
        assert!(used.iter().all(|name| is_registered(name)), "{used:?}");
        let unused: Vec<_> = METRICS
            .iter()
            .filter(|name| !used.contains(**name) && !used.contains(&format!("{name}_bucket")))
            .collect();
        // The variables of the dashboard use the first. The second is what is reserved, not what is used.
        let elsewhere = ["helm_operator_build_info", "process_virtual_memory_bytes"];
        assert_eq!(unused, elsewhere.each_ref());
        let board = board.to_string();
        assert!(board.contains("label_values(helm_operator_build_info"));
    }

    #[test]
    fn every_metric_of_the_alerts_is_registered() {
        let rule: Value = go_yaml::from_str(&alerts("shop")).unwrap();
        let rules = rule["spec"]["groups"][0]["rules"].as_array().unwrap();
        assert_eq!(rules.len() * 4, ALERTS.lines().count());
        let used = metrics(rules);
        assert!(used.len() > 4, "{used:?}");
        assert!(used.iter().all(|name| is_registered(name)), "{used:?}");
    }

    #[test]
    fn long_names_give_a_uid_that_grafana_accepts() {
        assert_eq!(uid(&"x".repeat(60)).len(), 40);
    }
}
