//! The operator crashes before and after every single write of an install, an upgrade, a rollback
//! and an uninstall; its successor must reach the same state as without a crash.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use hybrid_operator_test::fault::Fault;
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::{ControlPlane, TestNamespace, wait};
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::hooks::runs;
use crate::world::{
    InProcessOperator, Project, api, apply, control_plane, delete, gone, history, is_ready,
    is_true, namespace_of, ready_at, until,
};

/// Number of runs in parallel.
const SIDE_BY_SIDE: usize = 6;

/// A random password, a value, and an object that the API server rejects on request.
const OBJECTS: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-password}
data: {password: {{ randAlphaNum 20 }}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-value}
data: {value: {{ .Values.value | quote }}}
---
{{- if .Values.more }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-more}
{{- end }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .Release.Name }}
  {{- if .Values.bad }}
  labels: {\"not a label!\": x}
  {{- end }}
";

/// A hook whose objects are named after the revision, so that its runs can be counted.
const HOOK: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  labels: {hook: {{ .Release.Name }}}
  name: {{ .Release.Name }}-hook-{{ .Release.Revision }}
  annotations: {helm.sh/hook: \"pre-install,pre-upgrade\"}
data: {run: {{ randAlphaNum 8 }}}
";

/// A hook that is awaited and that its TTL would delete as soon as it has ended.
const JOB: &str = "\
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: pre-install}
spec:
  ttlSecondsAfterFinished: 0
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: i}]}}
";

/// A hook that is awaited, and that no policy replaces.
const UPGRADE_JOB: &str = "\
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: pre-upgrade, helm.sh/hook-delete-policy: hook-succeeded}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: i}]}}
";

/// The action during which the operator crashes.
#[derive(Debug, Clone, Copy)]
enum Scenario {
    Install,
    Upgrade,
    /// An install with a hook that is a Job.
    Hooked,
    /// An upgrade with a hook that is a Job, and that is not deleted before it is created.
    HookedUpgrade,
    /// An upgrade that changes one of the existing objects.
    Edit,
    Rollback,
    Uninstall,
}

impl Scenario {
    /// Returns the statuses of the records at the end, oldest first.
    fn history(self) -> &'static [&'static str] {
        match self {
            Self::Install | Self::Hooked => &["deployed"],
            Self::Upgrade | Self::Edit | Self::HookedUpgrade => &["superseded", "deployed"],
            Self::Rollback => &["superseded", "failed", "deployed"],
            Self::Uninstall => &[],
        }
    }
}

struct Run<'p> {
    plane: &'p ControlPlane,
    project: &'p Project,
    scenario: Scenario,
}

/// The records and objects at the end.
#[derive(Debug, PartialEq)]
struct End {
    history: Vec<String>,
    objects: BTreeMap<String, Value>,
}

impl Run<'_> {
    /// Crashes the operator at write `k`. Returns `None` if there are fewer writes.
    async fn crash_at(&self, k: usize, fault: Fault) -> Option<()> {
        let namespace = namespace_of(self.plane, "crash").await;
        let widgets = api(&namespace, "Widget");
        let clean = || async { self.plane.client().await.unwrap() };
        if !matches!(self.scenario, Scenario::Install | Scenario::Hooked) {
            let operator = InProcessOperator::start(self.project, clean().await, namespace.name());
            self.spec(&widgets, json!({"value": "1"})).await;
            self.settled(&widgets, 1).await;
            drop(operator);
        }
        let password = self.password(&namespace).await;

        // If the scenario completes without a crash, there is no write `k`.
        let crash = self.project.crash_at(
            self.plane,
            &namespace,
            (k, fault),
            Recorded::is_write,
            self.change(&widgets),
            self.done(&widgets),
        );
        if !Box::pin(crash).await {
            return None;
        }

        let operator = InProcessOperator::start(self.project, clean().await, namespace.name());
        self.done(&widgets).await;
        let context = format!("{:?}, {fault:?} at write {k}", self.scenario);
        let end = self.end(&namespace, &operator).await;
        assert_eq!(end.history, self.scenario.history(), "{context}");
        self.check(&end, password.as_ref(), &context);
        if matches!(self.scenario, Scenario::Hooked | Scenario::HookedUpgrade) {
            assert_eq!(runs(&namespace, "one-hook").await, 1, "{context}");
        }
        Some(())
    }

    async fn spec(&self, widgets: &Api<DynamicObject>, spec: Value) {
        apply(widgets, "one", &json!({"spec": spec})).await;
    }

    async fn change(&self, widgets: &Api<DynamicObject>) {
        match self.scenario {
            Scenario::Install | Scenario::Hooked => {
                self.spec(widgets, json!({"value": "1"})).await;
            }
            Scenario::Upgrade => {
                self.spec(widgets, json!({"value": "2", "more": true}))
                    .await;
            }
            Scenario::Edit | Scenario::HookedUpgrade => {
                self.spec(widgets, json!({"value": "2"})).await;
            }
            Scenario::Rollback => {
                self.spec(widgets, json!({"value": "2", "more": true, "bad": true}))
                    .await;
            }
            Scenario::Uninstall => {
                delete(widgets, "one").await;
            }
        }
    }

    /// Waits until the scenario is complete.
    async fn done(&self, widgets: &Api<DynamicObject>) {
        match self.scenario {
            Scenario::Install | Scenario::Hooked => self.settled(widgets, 1).await,
            Scenario::Upgrade | Scenario::Edit | Scenario::HookedUpgrade => {
                self.settled(widgets, 2).await;
            }
            Scenario::Rollback => {
                until(widgets, "one", "Stalled", |cr| {
                    is_true(cr, "Stalled")
                        && cr["status"]["release"]["revision"] == 3
                        && is_true(cr, "Irreconcilable")
                })
                .await;
            }
            Scenario::Uninstall => gone(widgets, "one").await,
        }
    }

    async fn settled(&self, widgets: &Api<DynamicObject>, revision: u32) {
        let ready = |cr: &Value| is_ready(cr) && ready_at(revision)(cr);
        until(widgets, "one", "Ready", ready).await;
    }

    async fn password(&self, namespace: &TestNamespace) -> Option<Value> {
        let maps = api(namespace, "ConfigMap");
        let map = maps.get_opt("one-password").await.unwrap()?;
        Some(map.data["data"]["password"].clone())
    }

    /// Returns the final state once records and objects no longer change.
    async fn end(&self, namespace: &TestNamespace, _operator: &InProcessOperator) -> End {
        let expected = self.scenario.history();
        let settled = async || {
            let found = history(namespace, "one").await;
            if found == expected {
                Ok(found)
            } else {
                Err(format!("{found:?}"))
            }
        };
        let history = match wait::until(Duration::from_secs(10), "the records", settled).await {
            Ok(history) => history,
            Err(error) => vec![error.last],
        };
        let mut objects = BTreeMap::new();
        for kind in ["ConfigMap", "ServiceAccount"] {
            let all = api(namespace, kind).list(&ListParams::default()).await;
            for object in all.unwrap().items {
                let name = object.metadata.name.unwrap();
                if name != "kube-root-ca.crt" && name != "default" {
                    objects.insert(format!("{kind} {name}"), object.data["data"].clone());
                }
            }
        }
        End { history, objects }
    }

    fn check(&self, end: &End, password: Option<&Value>, context: &str) {
        let names: Vec<&str> = end.objects.keys().map(String::as_str).collect();
        let more = ["ConfigMap one-hook-2", "ConfigMap one-more"];
        let mut expected = vec!["ConfigMap one-hook-1"];
        match self.scenario {
            Scenario::Uninstall => expected.clear(),
            Scenario::Hooked | Scenario::HookedUpgrade => {
                expected = vec!["ConfigMap one-password", "ConfigMap one-value"];
                expected.push("ServiceAccount one");
            }
            Scenario::Install => {
                expected.extend(["ConfigMap one-password", "ConfigMap one-value"]);
                expected.push("ServiceAccount one");
            }
            Scenario::Upgrade => {
                expected.extend(more);
                expected.extend(["ConfigMap one-password", "ConfigMap one-value"]);
                expected.push("ServiceAccount one");
            }
            // Objects that the failed revision created are gone.
            Scenario::Edit | Scenario::Rollback => {
                expected.push("ConfigMap one-hook-2");
                expected.extend(["ConfigMap one-password", "ConfigMap one-value"]);
                expected.push("ServiceAccount one");
            }
        }
        assert_eq!(names, expected, "{context}");
        let value = |name: &str| end.objects.get(&format!("ConfigMap one-{name}")).cloned();
        match self.scenario {
            Scenario::Install | Scenario::Hooked => {
                assert_eq!(value("value"), Some(json!({"value": "1"})), "{context}");
            }
            Scenario::Upgrade | Scenario::Edit | Scenario::HookedUpgrade => {
                assert_eq!(value("value"), Some(json!({"value": "2"})), "{context}");
            }
            Scenario::Rollback => {
                assert_eq!(value("value"), Some(json!({"value": "1"})), "{context}");
                let restored = value("password").map(|data| data["password"].clone());
                assert_eq!(restored.as_ref(), password, "{context}");
            }
            Scenario::Uninstall => {}
        }
    }
}

/// Crashes the operator before and after every write of a scenario.
async fn check_crash_at_every_write(scenario: Scenario, at_least: usize) {
    let plane = or_skip!(control_plane().await);
    let hook = match scenario {
        Scenario::Hooked => JOB,
        Scenario::HookedUpgrade => UPGRADE_JOB,
        _ => HOOK,
    };
    let project = Project::new("", &[("objects.yaml", OBJECTS), ("hook.yaml", hook)]);
    let run = Run {
        plane,
        project: &project,
        scenario,
    };
    for fault in [Fault::Unreachable, Fault::AnswerLost] {
        let deaths = futures::stream::iter(1..40)
            .map(|k| run.crash_at(k, fault))
            .buffered(SIDE_BY_SIDE)
            .take_while(|died| std::future::ready(died.is_some()));
        let count = deaths.count().await;
        assert!(count >= at_least, "only {count} writes in {scenario:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn install_survives_a_crash_at_every_write() {
    check_crash_at_every_write(Scenario::Install, 9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_runs_once_wherever_the_operator_crashes() {
    check_crash_at_every_write(Scenario::Hooked, 9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hook_that_is_not_replaced_runs_once_wherever_the_operator_crashes() {
    check_crash_at_every_write(Scenario::HookedUpgrade, 9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_survives_a_crash_at_every_write() {
    check_crash_at_every_write(Scenario::Upgrade, 9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_value_survives_a_crash_at_every_write() {
    check_crash_at_every_write(Scenario::Edit, 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rollback_survives_a_crash_at_every_write() {
    check_crash_at_every_write(Scenario::Rollback, 9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uninstall_survives_a_crash_at_every_write() {
    check_crash_at_every_write(Scenario::Uninstall, 6).await;
}
