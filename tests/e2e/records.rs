//! Release records: large ones that are stored in parts, with crashes at every write, and manual
//! changes.

use hybrid_operator_test::fault::Fault;
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::{ControlPlane, TestNamespace};
use kube::api::{Api, DynamicObject, ListParams};
use serde_json::{Value, json};

use crate::world::{
    InProcessOperator, Project, World, api, apply, condition, control_plane, delete, gone,
    is_ready, merge, namespace_of, ready_at, until,
};

const MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ .Values.value | quote }}, password: {{ randAlphaNum 20 }}}
";

/// `ConfigMap`s that together are too large for a Secret, even without the chart.
const LARGE: &str = "\
{{- range $i := until 4 }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ $.Release.Name }}-large-{{ $i }}}
data: {text: {{ $.Files.Get \"large.txt\" | quote }}, value: {{ $.Values.value | quote }}}
{{- end }}
";

/// Returns a project whose releases are stored in parts, because of a file that no template reads
/// or because of their manifests.
fn large_chart(manifest: bool) -> Project {
    let mut templates = vec![("map.yaml", MAP)];
    if manifest {
        templates.push(("large.yaml", LARGE));
    }
    let project = Project::new("", &templates);
    let size = if manifest { 300_000 } else { 1_100_000 };
    let mut seed = 1_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'#' + seed.to_be_bytes()[0] % 57)
    };
    let text: String = (0..size).map(|_| next()).collect();
    project.write("chart/large.txt", &text);
    project
}

struct Run<'p> {
    plane: &'p ControlPlane,
    project: &'p Project,
    namespace: TestNamespace,
}

impl<'p> Run<'p> {
    async fn begin(plane: &'p ControlPlane, project: &'p Project) -> Self {
        let namespace = namespace_of(plane, "records").await;
        Self {
            plane,
            project,
            namespace,
        }
    }

    fn widgets(&self) -> Api<DynamicObject> {
        api(&self.namespace, "Widget")
    }

    async fn operator(&self) -> InProcessOperator {
        let client = self.plane.client().await.unwrap();
        InProcessOperator::start(self.project, client, self.namespace.name())
    }

    async fn spec(&self, value: &str) {
        apply(&self.widgets(), "one", &json!({"spec": {"value": value}})).await;
    }

    async fn delete(&self) {
        delete(&self.widgets(), "one").await;
    }

    async fn deployed(&self, revision: u32) -> Value {
        let widgets = self.widgets();
        until(&widgets, "one", "Ready", |cr| is_deployed(cr, revision)).await
    }

    async fn gone(&self) {
        gone(&self.widgets(), "one").await;
    }

    /// Starts an operator that crashes at write `k` from now on. Returns `None` if it finishes
    /// before.
    async fn crash_at(
        &self,
        k: usize,
        fault: Fault,
        change: impl Future<Output = ()>,
        end: impl Future<Output = ()>,
    ) -> Option<()> {
        let (plane, namespace) = (self.plane, &self.namespace);
        let crash = (k, fault);
        self.project
            .crash_at(plane, namespace, crash, Recorded::is_write, change, end)
            .await
            .then_some(())
    }

    /// Returns the remaining parts and records.
    async fn left(&self) -> (Vec<DynamicObject>, Vec<DynamicObject>) {
        let secrets = api(&self.namespace, "Secret");
        let list = secrets.list(&ListParams::default()).await.unwrap();
        let name = |secret: &DynamicObject| secret.metadata.name.clone().unwrap();
        list.items
            .into_iter()
            .filter(|secret| name(secret).contains("release"))
            .partition(|secret| name(secret).starts_with("release-part."))
    }

    /// Fails unless nothing of the release is left.
    async fn is_empty(&self, context: &str) {
        let (parts, records) = self.left().await;
        assert_eq!((parts.len(), records.len()), (0, 0), "{context}");
        let maps = api(&self.namespace, "ConfigMap");
        let maps = maps.list(&ListParams::default()).await.unwrap().items;
        let ours = |map: &&DynamicObject| map.metadata.name.as_deref() != Some("kube-root-ca.crt");
        assert_eq!(maps.iter().filter(ours).count(), 0, "{context}");
    }

    /// Fails unless the existing parts are exactly those that records refer to.
    async fn has_only_parts_in_use(&self, context: &str) {
        let (parts, records) = self.left().await;
        assert!(!parts.is_empty(), "{context}");
        for part in &parts {
            assert!(
                records.iter().any(|record| set_of(record) == set_of(part)),
                "{context}: {:?}",
                part.metadata.name
            );
        }
        for record in &records {
            let set = set_of(record);
            let count: usize = set.split('-').nth(1).unwrap().parse().unwrap();
            let own = parts.iter().filter(|part| set_of(part) == set);
            assert_eq!(own.count(), count, "{context}: {set}");
        }
    }
}

/// Returns the set of parts that a part belongs to or that a record refers to.
fn set_of(secret: &DynamicObject) -> String {
    let labels = secret.metadata.labels.as_ref().unwrap();
    labels["helm.sdk.operatorframework.io/parts"].clone()
}

fn is_deployed(cr: &Value, revision: u32) -> bool {
    is_ready(cr) && ready_at(revision)(cr)
}

#[tokio::test(flavor = "multi_thread")]
async fn release_in_parts_is_uninstalled_wherever_the_operator_crashes() {
    let plane = or_skip!(control_plane().await);
    // A manifest in parts is slow to render, so one crash in the middle is enough.
    for (manifest, fault, writes, least) in [
        (false, Fault::Unreachable, 1..30, 5),
        (true, Fault::AnswerLost, 4..5, 1),
    ] {
        let project = large_chart(manifest);
        let mut crashes = 0;
        for k in writes {
            let run = Run::begin(plane, &project).await;
            let context = format!("{fault:?} at write {k}, manifest in parts: {manifest}");
            let operator = run.operator().await;
            run.spec("1").await;
            run.deployed(1).await;
            drop(operator);
            run.has_only_parts_in_use(&context).await;

            let outcome = Box::pin(run.crash_at(k, fault, run.delete(), run.gone())).await;
            let _successor = run.operator().await;
            run.gone().await;
            run.is_empty(&context).await;
            if outcome.is_none() {
                break;
            }
            crashes += 1;
        }
        // Two writes of the record, its parts, at least one object, and the finalizer.
        assert!(crashes >= least, "only {crashes} writes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interrupted_upgrade_leaves_no_unreferenced_parts() {
    let plane = or_skip!(control_plane().await);
    let project = large_chart(false);
    let mut crashes = 0;
    for k in 1..30 {
        let run = Run::begin(plane, &project).await;
        let context = format!("crashed at write {k}");
        let operator = run.operator().await;
        run.spec("1").await;
        let cr = run.deployed(1).await;
        let large = condition(&cr, "LargeRecord").map(|c| &c["reason"]);
        assert_eq!(large, Some(&json!("StoredInParts")), "{context}");
        drop(operator);
        let change = run.spec("2");
        let end = async { drop(run.deployed(2).await) };
        let outcome = Box::pin(run.crash_at(k, Fault::AnswerLost, change, end)).await;
        let operator = run.operator().await;
        run.deployed(2).await;
        drop(operator);
        run.has_only_parts_in_use(&context).await;
        if outcome.is_none() {
            break;
        }
        crashes += 1;
    }
    assert!(crashes >= 7, "only {crashes} writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resource_deleted_before_its_first_record_leaves_no_parts() {
    let plane = or_skip!(control_plane().await);
    let project = large_chart(false);
    let run = Run::begin(plane, &project).await;
    // The process crashes after writing the parts and before writing the record.
    let is_record = |request: &Recorded| {
        let body = request.body.as_ref();
        request.kind() == "create secrets"
            && body.is_some_and(|body| body["type"] == "helm.sh/release.v1")
    };
    let crash = (1, Fault::Unreachable);
    let (change, end) = (run.spec("1"), std::future::pending());
    let crashed = project.crash_at(plane, &run.namespace, crash, is_record, change, end);
    assert!(Box::pin(crashed).await);
    let (parts, records) = run.left().await;
    assert_eq!((parts.len(), records.len()), (2, 0));
    run.delete().await;
    let _successor = run.operator().await;
    run.gone().await;
    run.is_empty("after the deletion").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manual_record_change_triggers_a_reconcile() {
    let world = or_skip!(World::of("by-hand", "reconcilePeriod: 0s", &[("map.yaml", MAP)]).await);
    let secrets = world.api("Secret");
    world.widget("one", json!({"value": "1"})).await;
    let deployed = |cr: &Value| is_deployed(cr, 1);
    world.until("Widget", "one", "deployed", deployed).await;

    // What `helm uninstall --keep-history` writes to the record's labels.
    let patch = json!({"metadata": {"labels": {"status": "uninstalled"}}});
    merge(&secrets, "sh.helm.release.v1.one.v1", &patch).await;
    let deployed = |cr: &Value| is_deployed(cr, 2);
    world
        .until("Widget", "one", "installed again", deployed)
        .await;

    for revision in 1..=2 {
        let name = format!("sh.helm.release.v1.one.v{revision}");
        delete(&secrets, &name).await;
    }
    let deployed = |cr: &Value| is_deployed(cr, 1) || is_deployed(cr, 3);
    world
        .until("Widget", "one", "recorded again", deployed)
        .await;
    assert!(world.history("one").await.contains(&"deployed".to_owned()));
}
