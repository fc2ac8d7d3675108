//! Counts the requests of many releases of which most are not ready: for their install until it is quiet, at
//! rest, and for a restart.

use std::collections::BTreeMap;
use std::time::Instant;

use hybrid_operator_test::fault::Faults;
use hybrid_operator_test::{ControlPlane, TestNamespace, wait};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::restarts::Running;
use crate::world::{
    LIMIT, Project, api, apply, condition, control_plane, eventually, namespace_of,
};

/// Number of releases in each of two namespaces.
const RELEASES: usize = 15;
/// Number of them that are not ready.
const UNREADY: usize = 12;
/// Objects of a release.
const CHART: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      containers: [{name: main, image: example.com/main:1}]
      nodeSelector: {{ .Values.node | toJson }}
";

/// Requests by kind.
type Counts = BTreeMap<String, usize>;

struct Crowd {
    plane: &'static ControlPlane,
    namespaces: [TestNamespace; 2],
    project: Project,
}

impl Crowd {
    /// Starts an operator that reconciles each release ten times a second.
    async fn start(&self) -> Running {
        let [one, two] = &self.namespaces;
        let (plane, faults) = (self.plane, Faults::new());
        Running::start(&self.project, plane, one.name(), faults, |options| {
            let both = [one.name().to_owned(), two.name().to_owned()];
            options.watch_namespaces = both.to_vec();
        })
        .await
    }

    /// Waits until this holds for the `Ready` conditions of all custom resources.
    async fn all(&self, what: &str, holds: impl Fn(usize, &Value) -> bool) {
        let widgets = self.namespaces.each_ref().map(|it| api(it, "Widget"));
        let checked = async || {
            let mut all = 0;
            for widgets in &widgets {
                for widget in widgets.list(&ListParams::default()).await.unwrap() {
                    let number = widget.metadata.name.clone().unwrap();
                    let number: usize = number.trim_start_matches('w').parse().unwrap();
                    let widget = serde_json::to_value(widget).unwrap();
                    let ready = condition(&widget, "Ready");
                    all += usize::from(ready.is_some_and(|ready| holds(number, ready)));
                }
            }
            all == 2 * RELEASES
        };
        wait::until(2 * LIMIT, what, checked).await.unwrap();
    }
}

/// Returns the requests by kind, and how many of them read Pods or events.
fn counts(operator: &Running) -> (Counts, usize) {
    let mut counts = operator.faults.counts();
    let reads = ["list pods", "list events"].map(|kind| counts.remove(kind).unwrap_or_default());
    // Capabilities are asked for in the background.
    counts.retain(|kind, _| !kind.starts_with("get /"));
    (counts, reads.iter().sum())
}

/// Returns how many lists of Pods and events are permitted since then: one of each for a round, of which a
/// namespace has one a minute.
fn reads_since(begin: Instant) -> usize {
    let rounds = 1 + usize::try_from(begin.elapsed().as_secs() / 60).unwrap();
    rounds * 2 * 2
}

fn of(counts: &[(&str, usize)]) -> Counts {
    let counts = counts
        .iter()
        .map(|(kind, count)| ((*kind).to_owned(), *count));
    counts.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_that_are_not_ready_cost_what_ready_ones_do() {
    let plane = or_skip!(control_plane().await);
    let crowd = Crowd {
        plane,
        namespaces: [
            namespace_of(plane, "crowd").await,
            namespace_of(plane, "crowd").await,
        ],
        project: Project::new("reconcilePeriod: 100ms", &[("all.yaml", CHART)]),
    };
    let each = u64::try_from(2 * RELEASES).unwrap();

    let (operator, begin) = (crowd.start().await, Instant::now());
    for namespace in &crowd.namespaces {
        let widgets = api(namespace, "Widget");
        for number in 0..RELEASES {
            let node = if number < UNREADY {
                json!({"no-node": "has-this"})
            } else {
                json!({})
            };
            let spec = json!({"spec": {"node": node}});
            apply(&widgets, &format!("w{number}"), &spec).await;
        }
    }
    let judged = |number: usize, ready: &Value| {
        let (status, reason) = if number < UNREADY {
            ("False", "Unschedulable")
        } else {
            ("True", "AllObjectsReady")
        };
        ready["status"] == status && ready["reason"] == reason
    };
    crowd.all("causes of all that are not ready", judged).await;
    operator.more_reconciles(10 * each).await;
    let (mut install, reads) = counts(&operator);
    let statuses = install.remove("patch widgets/status").unwrap();
    // Deployed, and then ready, or why not.
    assert!(statuses <= 2 * 2 * RELEASES, "{statuses}");
    let expected = of(&[
        ("apply configmaps", 2 * RELEASES),
        ("apply deployments", 2 * RELEASES),
        ("create events", 2 * RELEASES),
        // And the key of the proofs.
        ("create secrets", 2 * RELEASES + 1),
        ("get secrets", 1),
        ("patch widgets", 2 * RELEASES),
        ("update secrets", 2 * RELEASES),
    ]);
    install.retain(|kind, _| !kind.starts_with("watch ") && !kind.starts_with("list "));
    assert_eq!(install, expected);
    assert!(reads <= reads_since(begin), "{reads}");

    // Twenty periods of all releases.
    operator.faults.forget();
    operator.more_reconciles(20 * each).await;
    let (rest, reads) = counts(&operator);
    assert_eq!(rest, Counts::new());
    assert!(reads <= reads_since(begin), "{reads}");

    drop(operator);
    let (operator, begin) = (crowd.start().await, Instant::now());
    operator.more_reconciles(10 * each).await;
    let (restart, _) = counts(&operator);
    // One of each for a namespace.
    let lists_and_watches = of(&[
        ("list secrets", 2),
        ("list widgets", 2),
        ("watch configmaps", 2),
        ("watch deployments", 2),
        ("watch secrets", 2),
        ("watch widgets", 2),
    ]);
    assert_eq!(restart, lists_and_watches);
    // The first round finds what the statuses say.
    let round = async || counts(&operator).1 > 0;
    eventually("a round", round).await;
    operator.more_reconciles(10 * each).await;
    let (after, reads) = counts(&operator);
    assert_eq!(after, restart);
    assert!(reads <= reads_since(begin), "{reads}");
}
