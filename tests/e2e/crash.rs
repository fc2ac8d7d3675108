//! The operator dies before and after every single write of an install, an upgrade, a
//! rollback and an uninstall, and its successor brings about what would have been without that.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use hybrid_operator_test::fault::{Fault, Faults};
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::{ControlPlane, TestNamespace, wait};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::world::{LIMIT, Mortal, Project, api, apply, condition, control_plane, until};

/// How many runs go on side by side.
const SIDE_BY_SIDE: usize = 6;

/// A password that is made once, a value, and an object that the API server refuses on request.
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

/// A hook that counts its runs by its name.
const HOOK: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  labels: {hook: {{ .Release.Name }}}
  name: {{ .Release.Name }}-hook-{{ .Release.Revision }}
  annotations: {helm.sh/hook: \"pre-install,pre-upgrade\"}
data: {run: {{ randAlphaNum 8 }}}
";

/// A hook that is awaited, and would be gone as soon as it has ended.
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

/// What is changed while the operator dies.
#[derive(Debug, Clone, Copy)]
enum Scenario {
    Install,
    Upgrade,
    /// An install with a hook that is a Job.
    Hooked,
    /// An upgrade with the objects of before, of which one changes.
    Edit,
    Rollback,
    Uninstall,
}

impl Scenario {
    /// The statuses of the records at the end, oldest first.
    fn history(self) -> &'static [&'static str] {
        match self {
            Self::Install | Self::Hooked => &["deployed"],
            Self::Upgrade | Self::Edit => &["superseded", "deployed"],
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

/// What is left when all is done.
#[derive(Debug, PartialEq)]
struct End {
    history: Vec<String>,
    objects: BTreeMap<String, Value>,
}

impl Run<'_> {
    /// Lets the operator die at write `k`; `None` when there are not that many.
    async fn die_at(&self, k: usize, fault: Fault) -> Option<()> {
        let namespace = TestNamespace::create(self.plane, "crash").await.unwrap();
        let widgets = api(&namespace, "Widget");
        let clean = || async { self.plane.client().await.unwrap() };
        if !matches!(self.scenario, Scenario::Install | Scenario::Hooked) {
            let operator = Mortal::start(self.project, clean().await, namespace.name());
            self.spec(&widgets, json!({"value": "1"})).await;
            self.settled(&widgets, "deployed", 1).await;
            drop(operator);
        }
        let password = self.password(&namespace).await;

        let faults = Faults::new();
        let client = self.plane.client_with(&faults).await.unwrap();
        faults.stop_at(k, fault, Recorded::is_write);
        let operator = Mortal::start(self.project, client, namespace.name());
        self.change(&widgets).await;
        // Either it dies, or it gets to the end before: then there is no such write.
        tokio::select! {
            () = wait_for_injection(&faults) => {}
            () = self.done(&widgets) => {}
        }
        let injected = faults.was_injected();
        drop(operator);
        if !injected {
            return None;
        }

        let operator = Mortal::start(self.project, clean().await, namespace.name());
        self.done(&widgets).await;
        let context = format!("{:?}, {fault:?} at write {k}", self.scenario);
        let end = self.end(&namespace, &operator).await;
        assert_eq!(end.history, self.scenario.history(), "{context}");
        self.check(&end, password.as_ref(), &context);
        if matches!(self.scenario, Scenario::Hooked) {
            assert_eq!(self.runs(&namespace).await, 1, "{context}");
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
            Scenario::Edit => self.spec(widgets, json!({"value": "2"})).await,
            Scenario::Rollback => {
                self.spec(widgets, json!({"value": "2", "more": true, "bad": true}))
                    .await;
            }
            Scenario::Uninstall => {
                let gone = widgets.delete("one", &DeleteParams::default()).await;
                drop(gone.unwrap());
            }
        }
    }

    /// Waits for the end of the scenario.
    async fn done(&self, widgets: &Api<DynamicObject>) {
        match self.scenario {
            Scenario::Install | Scenario::Hooked => self.settled(widgets, "deployed", 1).await,
            Scenario::Upgrade | Scenario::Edit => self.settled(widgets, "deployed", 2).await,
            Scenario::Rollback => {
                let stalled = until(widgets, "one", "Stalled", |cr| {
                    condition(cr, "Stalled").is_some_and(|c| c["status"] == "True")
                        && cr["status"]["release"]["revision"] == 3
                });
                drop(stalled.await.unwrap());
            }
            Scenario::Uninstall => wait::gone(widgets, "one", LIMIT).await.unwrap(),
        }
    }

    async fn settled(&self, widgets: &Api<DynamicObject>, status: &str, revision: u32) {
        let settled = until(widgets, "one", "Ready", |cr| {
            condition(cr, "Ready").is_some_and(|c| {
                c["status"] == "True" && c["observedGeneration"] == cr["metadata"]["generation"]
            }) && cr["status"]["release"]["status"] == status
                && cr["status"]["release"]["revision"] == revision
        });
        drop(settled.await.unwrap());
    }

    /// How often the hook's Job was run: the Job controller tells of every Pod that it makes.
    async fn runs(&self, namespace: &TestNamespace) -> usize {
        let events = api(namespace, "Event").list(&ListParams::default()).await;
        let made = |event: &&DynamicObject| {
            event.data["reason"] == "SuccessfulCreate"
                && event.data["involvedObject"]["name"] == "one-hook"
        };
        events.unwrap().items.iter().filter(made).count()
    }

    async fn password(&self, namespace: &TestNamespace) -> Option<Value> {
        let maps = api(namespace, "ConfigMap");
        let map = maps.get_opt("one-password").await.unwrap()?;
        Some(map.data["data"]["password"].clone())
    }

    /// Looks at what is left, once records and objects are what they will be.
    async fn end(&self, namespace: &TestNamespace, _operator: &Mortal) -> End {
        let secrets = api(namespace, "Secret");
        let history = async || {
            let list = ListParams::default().labels("owner=helm");
            let mut records: Vec<(String, String)> = secrets
                .list(&list)
                .await
                .unwrap()
                .items
                .into_iter()
                .map(|secret| {
                    let labels = secret.metadata.labels.unwrap();
                    (labels["version"].clone(), labels["status"].clone())
                })
                .collect();
            records.sort();
            let records: Vec<String> = records.into_iter().map(|(_, status)| status).collect();
            records
        };
        let expected = self.scenario.history();
        let settled = async || {
            let found = history().await;
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
            Scenario::Hooked => {
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
            // What the failed revision made is gone.
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
            Scenario::Upgrade | Scenario::Edit => {
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

/// Waits until the planned fault has come to pass.
async fn wait_for_injection(faults: &Faults) {
    let injected = async || faults.was_injected();
    let waited = wait::until(LIMIT, "the fault", injected).await;
    drop(waited);
}

/// Every write of a scenario, and both ways to die at it.
async fn dies_everywhere(scenario: Scenario, at_least: usize) {
    let Some(plane) = control_plane().await else {
        return;
    };
    let hook = if matches!(scenario, Scenario::Hooked) {
        JOB
    } else {
        HOOK
    };
    let project = Project::new("", &[("objects.yaml", OBJECTS), ("hook.yaml", hook)]);
    let run = Run {
        plane,
        project: &project,
        scenario,
    };
    for fault in [Fault::Unreachable, Fault::AnswerLost] {
        let deaths = futures::stream::iter(1..40)
            .map(|k| run.die_at(k, fault))
            .buffered(SIDE_BY_SIDE)
            .take_while(|died| std::future::ready(died.is_some()));
        let count = deaths.count().await;
        assert!(count >= at_least, "only {count} writes in {scenario:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_install_survives_death_at_every_write() {
    dies_everywhere(Scenario::Install, 9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_runs_once_whenever_the_operator_dies() {
    dies_everywhere(Scenario::Hooked, 9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_survives_death_at_every_write() {
    dies_everywhere(Scenario::Upgrade, 9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_value_survives_death_at_every_write() {
    dies_everywhere(Scenario::Edit, 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_survives_death_at_every_write() {
    dies_everywhere(Scenario::Rollback, 9).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uninstall_survives_death_at_every_write() {
    dies_everywhere(Scenario::Uninstall, 6).await;
}
