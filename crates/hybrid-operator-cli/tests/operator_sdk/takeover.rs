//! Releases that a Go operator left. Helm makes them, and the test adds what the Go operators add: owner
//! references on the records, labels and owners on the objects, finalizers, and the status.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::{ControlPlane, TestNamespace, helm, shared_or_skip, wait};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::project::{
    LIMIT, NAME, api, apply, condition, define, directory, documents, grant, is_ready, kubeconfig,
    operator, sample, stores, until,
};

/// Operator that left the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Former {
    /// operator-sdk's helm-operator.
    Sdk,
    /// An operator that was built with helm-operator-plugins.
    Plugins,
}

/// The objects of the release; the last one is a hook.
const OBJECTS: &[(&str, &str)] = &[
    ("v1", "ConfigMap"),
    ("v1", "Service"),
    ("apps/v1", "StatefulSet"),
    ("policy/v1", "PodDisruptionBudget"),
];

const FINALIZER: &str = "uninstall-helm-release";

impl Former {
    /// Writes a change of an object as its program does.
    async fn patch(self, api: &Api<DynamicObject>, name: &str, change: &Value) {
        let params = PatchParams {
            field_manager: Some(self.manager().to_owned()),
            ..PatchParams::default()
        };
        let changed = api.patch(name, &params, &Patch::Merge(change)).await;
        drop(changed.unwrap());
    }

    /// The field manager of its writes, which is the name of its program.
    fn manager(self) -> &'static str {
        match self {
            Self::Sdk => "helm-operator",
            Self::Plugins => "store-operator",
        }
    }

    /// The finalizers of its custom resources. Old versions of operator-sdk had the other one.
    fn finalizers(self) -> Value {
        match self {
            Self::Sdk => json!([FINALIZER, "helm.sdk.operatorframework.io/uninstall-release"]),
            Self::Plugins => json!([FINALIZER]),
        }
    }

    fn status(self, manifest: &str) -> Value {
        let condition = |type_: &str, status: &str, reason: &str, message: &str| {
            json!({"type": type_, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-02T03:04:05Z"})
        };
        let notes = "The store answers";
        let mut conditions = vec![
            json!({"type": "Initialized", "status": "True",
                "lastTransitionTime": "2026-01-02T03:04:05Z"}),
            condition("Deployed", "True", "UpgradeSuccessful", notes),
        ];
        if self == Self::Plugins {
            for type_ in ["ReleaseFailed", "Irreconcilable", "Paused"] {
                conditions.push(condition(type_, "False", "", ""));
            }
        }
        let deployed = json!({"name": NAME, "manifest": manifest});
        json!({"conditions": conditions, "deployedRelease": deployed})
    }
}

/// A namespace with a release that a Go operator left, before and after this operator runs.
struct Takeover {
    plane: &'static ControlPlane,
    namespace: TestNamespace,
    user: String,
    files: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Takeover {
    /// Makes the release. Returns `None` if there is no control plane or no Helm.
    async fn of(former: Former) -> Option<Self> {
        static DEFINED: OnceCell<()> = OnceCell::const_new();
        let helm = helm::ensure_or_skip().unwrap()?;
        let plane = shared_or_skip().await.unwrap()?;
        let namespace = TestNamespace::create(plane, "takeover").await.unwrap();
        DEFINED.get_or_init(|| define(&namespace)).await;
        let account = grant(&namespace, namespace.name()).await;
        let files = tempfile::tempdir().unwrap();
        let takeover = Self {
            plane,
            user: format!("system:serviceaccount:{}:{account}", namespace.name()),
            kubeconfig: kubeconfig(plane, &namespace, &account, files.path()).await,
            files,
            namespace,
        };
        takeover.helm(&helm, "install", &json!({"config": {"color": "red"}}));
        takeover.helm(&helm, "upgrade", &json!({}));
        let mut cr = sample(&json!({}));
        cr["metadata"]["finalizers"] = former.finalizers();
        let cr = apply(&takeover.namespace, &cr).await;
        let manifest = takeover.rewrite_records(former, &cr).await;
        takeover.rewrite_objects(former, &cr).await;
        let status = json!({"status": former.status(&manifest)});
        let patch = Patch::Merge(&status);
        let params = PatchParams::default();
        let custom = stores(&takeover.namespace);
        drop(custom.patch_status(NAME, &params, &patch).await.unwrap());
        Some(takeover)
    }

    /// Runs helm as Helm 3 and the Go operators work: without server-side apply.
    fn helm(&self, program: &Path, verb: &str, change: &Value) {
        let values = self.files.path().join("values.json");
        std::fs::write(&values, sample(change)["spec"].to_string()).unwrap();
        let output = Command::new(program)
            .args([verb, NAME])
            .arg(directory().join("helm-charts/store"))
            .args(["--server-side=false", "--namespace", self.namespace.name()])
            .arg("--values")
            .arg(values)
            .env("KUBECONFIG", self.plane.kubeconfig_path())
            .output()
            .unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{complaint}");
    }

    fn secrets(&self) -> Api<DynamicObject> {
        api(&self.namespace, "v1", "Secret")
    }

    /// Returns the records, oldest first.
    async fn records(&self) -> Vec<DynamicObject> {
        let list = ListParams::default().labels(&format!("owner=helm,name={NAME}"));
        let mut records = self.secrets().list(&list).await.unwrap().items;
        records.sort_by_key(ResourceExt::name_any);
        records
    }

    async fn history(&self) -> Vec<String> {
        let records = self.records().await;
        let records = records.iter();
        records
            .map(|record| record.labels()["status"].clone())
            .collect()
    }

    /// Writes the records as a Go operator writes them, and returns the manifest of the last one.
    async fn rewrite_records(&self, former: Former, cr: &DynamicObject) -> String {
        let mut last = String::new();
        for record in self.records().await {
            let encoded = record.data["data"]["release"].as_str().unwrap();
            let payload = data_encoding::BASE64.decode(encoded.as_bytes()).unwrap();
            let mut release = helm_core::release::codec::decode(&payload).unwrap();
            release.apply_method = None;
            if former == Former::Plugins {
                // Its post-renderer reads and writes all objects.
                release.manifest = self.with_owners(&release.manifest, cr);
                // It coalesces the values itself.
                let values = documents("helm-charts/store/values.yaml").remove(0);
                for (key, value) in values.as_object().unwrap() {
                    let entry = release.config.entry(key.clone());
                    let _ = entry.or_insert_with(|| value.clone());
                }
            }
            last.clone_from(&release.manifest);
            let encoded = helm_core::release::codec::encode(&release).unwrap();
            let patch = json!({
                "metadata": {
                    "ownerReferences": [owner(cr)],
                    "managedFields": managed(&record, former),
                },
                "data": {"release": data_encoding::BASE64.encode(encoded.as_bytes())},
            });
            let name = record.name_any();
            former.patch(&self.secrets(), &name, &patch).await;
        }
        last
    }

    /// Returns a manifest with the owner and the namespace in each object.
    fn with_owners(&self, manifest: &str, cr: &DynamicObject) -> String {
        let documents: Vec<Value> = go_yaml::documents(manifest.as_bytes()).unwrap();
        let objects = documents.into_iter().map(|mut object| {
            object["metadata"]["namespace"] = json!(self.namespace.name());
            object["metadata"]["ownerReferences"] = json!([owner(cr)]);
            format!("---\n{}", go_yaml::to_string(&object).unwrap())
        });
        objects.collect()
    }

    /// Adds what a Go operator adds to the objects of a release.
    async fn rewrite_objects(&self, former: Former, cr: &DynamicObject) {
        for (api_version, kind) in OBJECTS {
            let objects = api(&self.namespace, api_version, kind);
            let object = objects.get(NAME).await.unwrap();
            let is_hook = *kind == "PodDisruptionBudget";
            let mut metadata = json!({"managedFields": managed(&object, former)});
            if former == Former::Sdk {
                metadata["labels"] = json!({"helm.sdk.operatorframework.io/chart": "store"});
            }
            if former == Former::Sdk || !is_hook {
                metadata["ownerReferences"] = json!([owner(cr)]);
            }
            let patch = json!({"metadata": metadata});
            former.patch(&objects, NAME, &patch).await;
        }
    }

    async fn start(&self) -> RunningOperator {
        operator(Path::new(env!("CARGO_BIN_EXE_hybrid-operator")))
            .kubeconfig(&self.kubeconfig)
            .env("POD_NAMESPACE", self.namespace.name())
            .env("WATCH_NAMESPACE", self.namespace.name())
            .start()
            .await
            .unwrap()
    }

    /// Returns uid and generation of each object, which show whether it was replaced or changed.
    async fn objects(&self) -> BTreeMap<&'static str, (Option<String>, Option<i64>)> {
        let mut all = BTreeMap::new();
        for (api_version, kind) in OBJECTS {
            let objects = api(&self.namespace, api_version, kind);
            let object = objects.get(NAME).await.unwrap();
            all.insert(*kind, (object.uid(), object.metadata.generation));
        }
        all
    }

    /// Waits until the custom resource is as wanted.
    async fn until(
        &self,
        operator: &RunningOperator,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        until(&stores(&self.namespace), NAME, what, wanted)
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", operator.log()))
    }
}

fn owner(cr: &DynamicObject) -> Value {
    json!({"apiVersion": "shop.example.org/v1alpha1", "kind": "Store", "name": NAME,
        "uid": cr.uid(), "controller": true, "blockOwnerDeletion": true})
}

/// Returns the managed fields of an object of Helm as those of a Go operator.
fn managed(object: &DynamicObject, former: Former) -> Value {
    let mut fields = json!(object.metadata.managed_fields);
    for entry in fields.as_array_mut().unwrap() {
        let manager = entry["manager"].as_str().unwrap();
        if manager.eq_ignore_ascii_case("helm") {
            entry["manager"] = json!(former.manager());
        }
    }
    fields
}

async fn check_takeover(former: Former) {
    let Some(takeover) = Takeover::of(former).await else {
        return;
    };
    let before = takeover.objects().await;
    let audit = takeover.plane.audit_log().unwrap();
    let mark = audit.mark().unwrap();
    let operator = takeover.start().await;
    let ready = |cr: &Value| is_ready(cr, 2);
    let cr = takeover.until(&operator, "Ready", ready).await;
    assert_eq!(takeover.history().await, ["superseded", "deployed"]);
    assert_eq!(takeover.objects().await, before, "nothing restarts");
    for record in takeover.records().await {
        let owners = record.owner_references();
        assert!(owners.is_empty(), "{} would be garbage", record.name_any());
    }
    assert_eq!(cr["status"]["release"]["chartVersion"], "store-0.3.1");
    assert_eq!(cr["status"]["release"]["appVersion"], "1.4.0");
    let writes = || -> Vec<String> {
        let requests = audit.since(mark, &takeover.user).unwrap().into_iter();
        let writes = requests.filter(|request| {
            let read = ["get", "list", "watch"].contains(&request.verb.as_str());
            // Events have names of their own.
            let name = request.name.as_deref().unwrap_or_default();
            let of_it = name.contains(NAME);
            !read && of_it && request.status < 300 && request.resource != "events"
        });
        writes
            .map(|r| format!("{} {} {}", r.verb, r.resource, r.name.unwrap_or_default()))
            .collect()
    };
    // Each object gets the labels by which it is watched, and one owner of its fields.
    let objects = |kind: &str| writes().iter().filter(|write| write.contains(kind)).count();
    for (kind, most) in [
        ("configmaps", 2),
        ("services", 2),
        ("statefulsets", 2),
        ("poddisruptionbudgets", 0),
        ("secrets", 2),
    ] {
        assert!(objects(kind) <= most, "{kind}: {:#?}", writes());
    }

    // A restart writes nothing.
    assert!(operator.stop(LIMIT).await.unwrap().success());
    let known = writes();
    let operator = takeover.start().await;
    let mut other = sample(&json!({}));
    other["metadata"]["name"] = json!("other");
    drop(apply(&takeover.namespace, &other).await);
    let custom = stores(&takeover.namespace);
    let ready = until(&custom, "other", "Ready", |cr| is_ready(cr, 1)).await;
    drop(ready.unwrap_or_else(|error| panic!("{error}\n{}", operator.log())));
    assert_eq!(writes(), known, "{}", operator.log());

    // The first upgrade fails and is rolled back to the revision of the Go operator.
    let broken = json!({"replicaCount": 4, "serviceAnnotations": {"not a key!": "x"}});
    drop(apply(&takeover.namespace, &sample(&broken)).await);
    let stalled = |cr: &Value| condition(cr, "Stalled").is_some_and(|c| c["status"] == "True");
    let cr = takeover.until(&operator, "Stalled", stalled).await;
    let failed = condition(&cr, "ReleaseFailed").unwrap();
    assert_eq!(failed["reason"], "UpgradeError", "{failed}");
    let expected = ["superseded", "superseded", "failed", "deployed"];
    assert_eq!(takeover.history().await, expected);
    let web = api(&takeover.namespace, "apps/v1", "StatefulSet");
    assert_eq!(web.get(NAME).await.unwrap().data["spec"]["replicas"], 2);

    // The next one works, and removes what the chart no longer renders; a null removes its default.
    let fixed = json!({"replicaCount": 3, "config": {"color": null, "size": "large"}});
    drop(apply(&takeover.namespace, &sample(&fixed)).await);
    let ready = |cr: &Value| is_ready(cr, 5);
    drop(takeover.until(&operator, "Ready", ready).await);
    assert_eq!(web.get(NAME).await.unwrap().data["spec"]["replicas"], 3);
    let maps = api(&takeover.namespace, "v1", "ConfigMap");
    let map = maps.get(NAME).await.unwrap();
    assert_eq!(map.data["data"], json!({"size": "large"}));

    drop(custom.delete(NAME, &DeleteParams::default()).await.unwrap());
    let gone = wait::gone(&custom, NAME, LIMIT).await;
    gone.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    let left = takeover.records().await;
    assert!(left.is_empty(), "{left:#?}");
    for (api_version, kind) in OBJECTS {
        let objects = api(&takeover.namespace, api_version, kind);
        let gone = wait::gone(&objects, NAME, LIMIT).await;
        gone.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    }
}

#[tokio::test]
async fn release_of_operator_sdk_is_taken_over() {
    check_takeover(Former::Sdk).await;
}

#[tokio::test]
async fn release_of_helm_operator_plugins_is_taken_over() {
    check_takeover(Former::Plugins).await;
}
