//! A Grafana dashboard and Prometheus alerts for the metrics of an operator.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// A panel: title, unit, and the queries with their legends.
struct Panel {
    title: &'static str,
    description: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
}

/// The panels in reading order, two in a row.
const PANELS: &[Panel] = &[
    Panel {
        title: "Reconciles by result",
        description: "How often custom resources are reconciled. At rest this is near zero.",
        unit: "ops",
        queries: &[(
            "sum by (controller, result) (rate(controller_runtime_reconcile_total{SELECT}[$__rate_interval]))",
            "{{controller}} {{result}}",
        )],
    },
    Panel {
        title: "Failed reconciles",
        description: "A controller that fails all the time has a custom resource to look at: hybrid-operator status.",
        unit: "ops",
        queries: &[(
            "sum by (controller) (rate(controller_runtime_reconcile_errors_total{SELECT}[$__rate_interval]))",
            "{{controller}}",
        )],
    },
    Panel {
        title: "Duration of reconciles",
        description: "Half and 99 percent of the reconciles are faster.",
        unit: "s",
        queries: &[
            (
                "histogram_quantile(0.5, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{SELECT}[$__rate_interval])))",
                "{{controller}} 50%",
            ),
            (
                "histogram_quantile(0.99, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{SELECT}[$__rate_interval])))",
                "{{controller}} 99%",
            ),
        ],
    },
    Panel {
        title: "Reconciles in progress",
        description: "Limited by --max-concurrent-reconciles.",
        unit: "short",
        queries: &[
            (
                "sum by (controller) (controller_runtime_active_workers{SELECT})",
                "{{controller}}",
            ),
            (
                "sum by (controller) (controller_runtime_max_concurrent_reconciles{SELECT})",
                "{{controller}} at most",
            ),
        ],
    },
    Panel {
        title: "Longest reconcile in progress",
        description: "A value that grows belongs to a reconcile that does not end.",
        unit: "s",
        queries: &[
            (
                "max by (name) (workqueue_longest_running_processor_seconds{SELECT})",
                "{{name}}",
            ),
            (
                "sum by (name) (workqueue_unfinished_work_seconds{SELECT})",
                "{{name}} all",
            ),
        ],
    },
    Panel {
        title: "Reconciles that ended badly",
        description: "Terminal errors are not tried again until something changes. Panics and time-outs are defects of a controller in Rust.",
        unit: "short",
        queries: &[
            (
                "sum by (controller) (increase(controller_runtime_terminal_reconcile_errors_total{SELECT}[$__rate_interval]))",
                "{{controller}} terminal",
            ),
            (
                "sum by (controller) (increase(controller_runtime_reconcile_panics_total{SELECT}[$__rate_interval]))",
                "{{controller}} panics",
            ),
            (
                "sum by (controller) (increase(controller_runtime_reconcile_timeouts_total{SELECT}[$__rate_interval]))",
                "{{controller}} time-outs",
            ),
        ],
    },
    Panel {
        title: "Queue",
        description: "Custom resources that wait for a free worker.",
        unit: "short",
        queries: &[("sum by (name) (workqueue_depth{SELECT})", "{{name}}")],
    },
    Panel {
        title: "Added to the queue",
        description: "Changes of custom resources and of what they own.",
        unit: "ops",
        queries: &[(
            "sum by (name) (rate(workqueue_adds_total{SELECT}[$__rate_interval]))",
            "{{name}}",
        )],
    },
    Panel {
        title: "Retries",
        description: "Reconciles that failed and are tried again.",
        unit: "ops",
        queries: &[(
            "sum by (name) (rate(workqueue_retries_total{SELECT}[$__rate_interval]))",
            "{{name}}",
        )],
    },
    Panel {
        title: "Time in the queue and at work",
        description: "99 percent are faster.",
        unit: "s",
        queries: &[
            (
                "histogram_quantile(0.99, sum by (name, le) (rate(workqueue_queue_duration_seconds_bucket{SELECT}[$__rate_interval])))",
                "{{name}} queued",
            ),
            (
                "histogram_quantile(0.99, sum by (name, le) (rate(workqueue_work_duration_seconds_bucket{SELECT}[$__rate_interval])))",
                "{{name}} at work",
            ),
        ],
    },
    Panel {
        title: "Custom resources",
        description: "Number of custom resources of charts by kind.",
        unit: "short",
        queries: &[(
            "count by (kind) (resource_created_at_seconds{SELECT})",
            "{{kind}}",
        )],
    },
    Panel {
        title: "Requests to the API server",
        description: "At rest the operator sends none. 409 is answered by reading again; 403 is a missing permission.",
        unit: "reqps",
        queries: &[(
            "sum by (code, method) (rate(rest_client_requests_total{SELECT}[$__rate_interval]))",
            "{{method}} {{code}}",
        )],
    },
    Panel {
        title: "Watches restarted",
        description: "Watches that had to list everything again, by cause.",
        unit: "short",
        queries: &[(
            "sum by (kind, cause) (increase(hybrid_operator_watch_restarts_total{SELECT}[$__rate_interval]))",
            "{{kind}} {{cause}}",
        )],
    },
    Panel {
        title: "Leader",
        description: "Exactly one replica is the leader.",
        unit: "short",
        queries: &[(
            "max by (pod, name) (leader_election_master_status{SELECT})",
            "{{pod}} {{name}}",
        )],
    },
    Panel {
        title: "Blocked threads",
        description: "Reconciles of native controllers that blocked their thread for more than 5 s.",
        unit: "short",
        queries: &[(
            "sum by (controller) (increase(hybrid_operator_blocked_reconciles_total{SELECT}[$__rate_interval]))",
            "{{controller}}",
        )],
    },
    Panel {
        title: "Reloads",
        description: "Changes of the watches file and its charts, by result, releases that wait for one, and entries whose charts could not be fetched yet.",
        unit: "short",
        queries: &[
            (
                "sum by (result) (increase(hybrid_operator_reload_total{SELECT}[$__rate_interval]))",
                "{{result}}",
            ),
            (
                "sum by (controller) (hybrid_operator_rollout_waiting{SELECT})",
                "{{controller}} waiting",
            ),
            (
                "max(hybrid_operator_charts_missing{SELECT})",
                "charts missing",
            ),
        ],
    },
    Panel {
        title: "Time since the last reload",
        description: "Time since the watches file and its charts were last loaded.",
        unit: "s",
        queries: &[(
            "time() - max by (pod) (hybrid_operator_reload_last_success_timestamp_seconds{SELECT})",
            "{{pod}}",
        )],
    },
    Panel {
        title: "Memory",
        description: "Resident memory. It grows with the number of watched objects, not with the time.",
        unit: "bytes",
        queries: &[(
            "max by (pod) (process_resident_memory_bytes{SELECT})",
            "{{pod}}",
        )],
    },
    Panel {
        title: "Processors",
        description: "Processors that are busy with the operator. At rest this is near zero.",
        unit: "short",
        queries: &[(
            "sum by (pod) (rate(process_cpu_seconds_total{SELECT}[$__rate_interval]))",
            "{{pod}}",
        )],
    },
    Panel {
        title: "Open files",
        description: "Connections count. At the limit the operator can open no more of them.",
        unit: "short",
        queries: &[
            ("max by (pod) (process_open_fds{SELECT})", "{{pod}}"),
            ("max by (pod) (process_max_fds{SELECT})", "{{pod}} at most"),
        ],
    },
    Panel {
        title: "Time since the start",
        description: "A process that was restarted begins again. A memory limit is a usual cause.",
        unit: "s",
        queries: &[(
            "time() - max by (pod) (process_start_time_seconds{SELECT})",
            "{{pod}}",
        )],
    },
    Panel {
        title: "Webhook requests",
        description: "Empty without webhooks.",
        unit: "reqps",
        queries: &[
            (
                "sum by (webhook, code) (rate(controller_runtime_webhook_requests_total{SELECT}[$__rate_interval]))",
                "{{webhook}} {{code}}",
            ),
            (
                "sum by (webhook) (controller_runtime_webhook_requests_in_flight{SELECT})",
                "{{webhook}} in flight",
            ),
        ],
    },
    Panel {
        title: "Duration of webhook requests",
        description: "The API server waits for them: 99 percent are faster.",
        unit: "s",
        queries: &[(
            "histogram_quantile(0.99, sum by (webhook, le) (rate(controller_runtime_webhook_latency_seconds_bucket{SELECT}[$__rate_interval])))",
            "{{webhook}}",
        )],
    },
];

/// An alert: name, query, time, severity, summary and what to do.
struct Alert {
    name: &'static str,
    query: &'static str,
    lasting: &'static str,
    severity: &'static str,
    summary: &'static str,
    description: &'static str,
}

const ALERTS: &[Alert] = &[
    Alert {
        name: "OperatorReconcileErrors",
        query: "sum by (namespace, job, controller) (rate(controller_runtime_reconcile_errors_total{JOB}[5m])) > 0.01",
        lasting: "15m",
        severity: "warning",
        summary: "Reconciles of {{ $labels.controller }} fail.",
        description: "Find the custom resource whose condition ReleaseFailed or Irreconcilable is true with 'hybrid-operator status', and read its message.",
    },
    Alert {
        name: "OperatorQueueBacklog",
        query: "sum by (namespace, job, name) (workqueue_depth{JOB}) > 10",
        lasting: "15m",
        severity: "warning",
        summary: "Custom resources of {{ $labels.name }} wait for a free worker.",
        description: "Raise --max-concurrent-reconciles or maxConcurrentReconciles in the watches file, and look for reconciles that take long.",
    },
    Alert {
        name: "OperatorReconcilesSlow",
        query: "histogram_quantile(0.99, sum by (namespace, job, controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket{JOB}[10m]))) > 10",
        lasting: "15m",
        severity: "warning",
        summary: "Reconciles of {{ $labels.controller }} take more than 10 s.",
        description: "Reconciles do not wait for hooks or Pods; look at the API server, admission webhooks and the operator's CPU limit.",
    },
    Alert {
        name: "OperatorPermissionMissing",
        query: "sum by (namespace, job, method) (increase(rest_client_requests_total{code=\"403\",JOB}[10m])) > 0",
        lasting: "10m",
        severity: "warning",
        summary: "The API server refuses {{ $labels.method }} requests of the operator.",
        description: "The operator's log names the missing permission. Run 'hybrid-operator generate rbac' and apply config/rbac.",
    },
    Alert {
        name: "OperatorChartsMissing",
        query: "max by (namespace, job) (hybrid_operator_charts_missing{JOB}) > 0",
        lasting: "10m",
        severity: "warning",
        summary: "{{ $value }} kinds do not run, because their charts could not be fetched.",
        description: "/readyz/charts and the operator's log name the charts and the errors. What they deployed keeps running.",
    },
    Alert {
        name: "OperatorHasNoLeader",
        query: "sum by (namespace, job, name) (leader_election_master_status{JOB}) < 1",
        lasting: "5m",
        severity: "critical",
        summary: "No replica of the operator is the leader of {{ $labels.name }}.",
        description: "Nothing is reconciled. Look at the operator's log and at its Lease.",
    },
    Alert {
        name: "OperatorAbsent",
        query: "absent(helm_operator_build_info{JOB})",
        lasting: "10m",
        severity: "critical",
        summary: "The operator is not scraped.",
        description: "It does not run, or its Service and ServiceMonitor do not select it. What it deployed keeps running.",
    },
];

/// Returns the dashboard as JSON. `name` is the name of the project.
pub(crate) fn dashboard(name: &str) -> Value {
    let selector = "{namespace=~\"$namespace\",job=~\"$job\"}";
    let datasource = json!({"type": "prometheus", "uid": "${datasource}"});
    let panels: Vec<Value> = PANELS
        .iter()
        .enumerate()
        .map(|(index, panel)| {
            let targets: Vec<Value> = panel
                .queries
                .iter()
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
                "title": panel.title,
                "description": panel.description,
                "datasource": datasource,
                "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
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
    for alert in ALERTS {
        let quoted = |text: &str| Value::from(text).to_string();
        let _ = write!(
            text,
            "    - alert: {}
      expr: {}
      for: {}
      labels:
        severity: {}
      annotations:
        summary: {}
        description: {}
",
            alert.name,
            quoted(&alert.query.replace("JOB", job)),
            alert.lasting,
            alert.severity,
            quoted(alert.summary),
            quoted(alert.description),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use hybrid_operator::telemetry::METRICS;

    use super::*;

    /// Returns the names of metrics in queries: words before `{`.
    fn metrics(queries: &[String]) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for query in queries {
            let mut parts = query.split('{');
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
        let queries: Vec<String> = panels
            .iter()
            .flat_map(|panel| panel["targets"].as_array().unwrap())
            .map(|target| target["expr"].as_str().unwrap().to_owned())
            .collect();
        let used = metrics(&queries);
        assert!(used.iter().all(|name| is_registered(name)), "{used:?}");
        let unused: Vec<_> = METRICS
            .iter()
            .filter(|name| !used.contains(**name) && !used.contains(&format!("{name}_bucket")))
            .collect();
        // The variables of the dashboard use the first. The second is what is reserved, not what is used.
        let elsewhere = ["helm_operator_build_info", "process_virtual_memory_bytes"];
        assert_eq!(unused, elsewhere.each_ref());
        assert!(
            board
                .to_string()
                .contains("label_values(helm_operator_build_info")
        );
    }

    #[test]
    fn every_metric_of_the_alerts_is_registered() {
        let rule: Value = go_yaml::from_str(&alerts("shop")).unwrap();
        let rules = rule["spec"]["groups"][0]["rules"].as_array().unwrap();
        assert_eq!(rules.len(), ALERTS.len());
        let queries: Vec<String> = rules
            .iter()
            .map(|rule| rule["expr"].as_str().unwrap().to_owned())
            .collect();
        let used = metrics(&queries);
        assert!(
            used.len() > 4 && used.iter().all(|name| is_registered(name)),
            "{used:?}"
        );
    }

    #[test]
    fn long_names_give_a_uid_that_grafana_accepts() {
        assert_eq!(uid(&"x".repeat(60)).len(), 40);
    }
}
