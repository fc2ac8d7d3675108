//! Counts the requests of each step of a release.

use hybrid_operator_test::fault::Faults;
use hybrid_operator_test::request::Recorded;
use serde_json::{Value, json};

use crate::world::{Project, api, apply, events, eventually, ready_at, remove, until};

/// Number of objects of the chart: R in the budgets.
const OBJECTS: usize = 4;

const CHART: &str = "\
{{- range $i := until 3 }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ $.Release.Name }}-{{ $i }}}
data: {value: {{ if eq $i 0 }}{{ $.Values.value | quote }}{{ else }}same{{ end }}}
---
{{- end }}
apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ .Release.Name }}}
";

/// A hook that is not a Job: it is complete as soon as it exists.
const HOOK: &str = "\
{{- if .Values.hook }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: post-install}
{{- end }}
";

/// Returns all requests but the opening of watches.
fn sent(faults: &Faults) -> Vec<String> {
    let all = faults.requests();
    let counted = all.iter().filter(|r| r.verb != "watch" && r.verb != "list");
    counted.map(Recorded::kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_stays_within_its_request_budget() {
    let project = Project::new(
        "reconcilePeriod: 200ms",
        &[("all.yaml", CHART), ("hook.yaml", HOOK)],
    );
    let faults = Faults::new();
    let (namespace, _operator) = or_skip!(project.in_process("budget", &faults).await);
    let widgets = api(&namespace, "Widget");
    let settled = async |name: &str, revision: u32| {
        let ready = |cr: &Value| {
            ready_at(revision)(cr)
                && cr["status"]["observedGeneration"] == cr["metadata"]["generation"]
        };
        until(&widgets, name, "Ready", ready).await;
        // Events may be sent after the status.
        let reported = async || {
            let mut all = events(&namespace).await;
            // events.k8s.io has `regarding` instead of core/v1's `involvedObject`.
            all.retain(|e| {
                let fields = ["regarding", "involvedObject"];
                fields.iter().any(|field| e.data[*field]["name"] == name)
            });
            all.len() >= revision as usize
        };
        eventually("events", reported).await;
    };
    // The first release opens the watches and discovers the kinds.
    apply(&widgets, "warm", &json!({"spec": {"value": "0"}})).await;
    settled("warm", 1).await;

    faults.forget();
    apply(&widgets, "one", &json!({"spec": {"value": "1"}})).await;
    settled("one", 1).await;
    let install = sent(&faults);
    assert!(install.len() <= OBJECTS + 6, "{install:#?}");

    // The record is written when the hook begins and when it has ended.
    faults.forget();
    let hooked = json!({"spec": {"value": "1", "hook": true}});
    apply(&widgets, "hooked", &hooked).await;
    settled("hooked", 1).await;
    let install = sent(&faults);
    assert!(install.len() <= OBJECTS + 6 + 3, "{install:#?}");

    faults.forget();
    apply(&widgets, "one", &json!({"spec": {"value": "2"}})).await;
    settled("one", 2).await;
    let upgrade = sent(&faults);
    assert!(upgrade.len() <= 1 + 6, "{upgrade:#?}");

    // Both releases are reconciled five times a second, and others change.
    faults.forget();
    apply(&widgets, "two", &json!({"spec": {"value": "1"}})).await;
    settled("two", 1).await;
    let idle: Vec<String> = faults
        .requests()
        .iter()
        .filter(|r| r.name.as_deref().is_some_and(|n| n.starts_with("one")))
        .map(Recorded::kind)
        .collect();
    assert!(idle.is_empty(), "{idle:#?}");

    faults.forget();
    remove(&widgets, "one").await;
    let delete = sent(&faults);
    // Two records: the older ones are deleted with one request, the newest with another.
    assert!(delete.len() <= OBJECTS + 6, "{delete:#?}");
}
