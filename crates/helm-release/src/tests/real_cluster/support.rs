//! Support of the tests: a namespace of their own, a custom resource that owns, and small requests.

use std::process::Command;
use std::time::Duration;

use helm_core::manifest::ObjectKey;
use hybrid_operator_test::{ControlPlane, TestNamespace, helm, shared_or_skip, wait};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use kube_objects::apply::{Applied, Apply, ApplyError, ApplyPolicy, Claim, apply};
use kube_objects::delete::{Verdict, verify};
use kube_objects::ownership::mark;
use kube_objects::{Claimant, Cluster, Marks, OperatorId, Primary};
use serde_json::{Value, json};

/// A namespace with a custom resource (a `ConfigMap` plays it) to which a release belongs.
pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) cluster: Cluster,
    pub(crate) namespace: String,
    pub(crate) primary: Primary,
    pub(crate) operator: OperatorId,
    pub(crate) policy: ApplyPolicy,
    plane: &'static ControlPlane,
    /// Deleted with the stage.
    _own: TestNamespace,
}

impl Stage {
    /// Makes one; `None`, with a line that says so, where there is no control plane.
    pub(crate) async fn new(name: &str) -> Option<Self> {
        let plane = shared_or_skip().await.unwrap()?;
        let own = TestNamespace::create(plane, name).await.unwrap();
        let (client, namespace) = (own.client(), own.name().to_owned());
        let owner: ConfigMap =
            serde_json::from_value(json!({"metadata": {"name": "the-cr"}})).unwrap();
        let owners: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace);
        let owner = owners.create(&PostParams::default(), &owner).await.unwrap();
        let primary = Primary {
            gvk: GroupVersionKind::gvk("", "v1", "ConfigMap"),
            namespace: Some(namespace.clone()),
            name: "the-cr".to_owned(),
            uid: owner.metadata.uid.unwrap(),
            component: None,
        };
        Some(Self {
            cluster: Cluster::new(client.clone()),
            client,
            namespace,
            primary,
            operator: OperatorId::new("test"),
            policy: ApplyPolicy::default(),
            plane,
            _own: own,
        })
    }

    pub(crate) fn claimant(&self) -> Claimant<'_> {
        Claimant {
            primary: &self.primary,
            release_name: "rel",
            release_namespace: &self.namespace,
        }
    }

    /// Judges whether an object may be deleted.
    pub(crate) async fn verdict(&self, key: &ObjectKey, uid: Option<&str>) -> Verdict {
        let claimant = self.claimant();
        let verdict = verify(&self.cluster, key, &claimant, uid, false).await;
        verdict.unwrap()
    }

    /// Deletes a config map of the namespace, as somebody.
    pub(crate) async fn delete(&self, name: &str) {
        let deleted = self.config_maps().delete(name, &<_>::default()).await;
        deleted.unwrap();
    }

    /// Marks an object as one of the release.
    pub(crate) async fn marked(&self, mut object: Value) -> Value {
        let key = ObjectKey::of(&object).unwrap();
        let gvk = GroupVersionKind::gvk(&key.group, &key.version, &key.kind);
        let scope = self.cluster.resolve(&gvk).await.unwrap().scope;
        let marks = Marks {
            primary: &self.primary,
            operator: &self.operator,
            chart: "chart",
            release_name: "rel",
            release_namespace: &self.namespace,
            run: None,
            hook: false,
            unowned: false,
        };
        mark(&mut object, &marks, scope);
        object
    }

    /// Marks and applies an object.
    pub(crate) async fn apply(&self, object: Value, claim: Claim) -> Result<Applied, ApplyError> {
        self.apply_with(object, claim, &self.policy).await
    }

    /// Marks and applies an object of which nothing is known.
    pub(crate) async fn apply_first(&self, object: Value) -> Applied {
        self.apply(object, Claim::Unproven).await.unwrap()
    }

    /// Marks and applies an object that was applied before.
    pub(crate) async fn apply_again(&self, object: Value, before: &Applied) -> Applied {
        self.apply(object, known(before)).await.unwrap()
    }

    /// Marks and applies an object in a way of its own.
    pub(crate) async fn apply_with(
        &self,
        object: Value,
        claim: Claim,
        policy: &ApplyPolicy,
    ) -> Result<Applied, ApplyError> {
        self.apply_marked(self.marked(object).await, claim, policy)
            .await
    }

    /// Applies an object that is marked already.
    pub(crate) async fn apply_marked(
        &self,
        object: Value,
        claim: Claim,
        policy: &ApplyPolicy,
    ) -> Result<Applied, ApplyError> {
        let request = Apply {
            object,
            claim,
            claimant: self.claimant(),
            policy,
        };
        apply(&self.cluster, request).await
    }

    pub(crate) fn api(&self, api_version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// The config maps of another namespace.
    pub(crate) fn in_namespace(&self, name: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk("", "v1", "ConfigMap");
        let resource = ApiResource::from_gvk_with_plural(&gvk, "configmaps");
        Api::namespaced_with(self.client.clone(), name, &resource)
    }

    /// The config maps of the namespace.
    pub(crate) fn config_maps(&self) -> Api<DynamicObject> {
        self.api("v1", "ConfigMap", "configmaps")
    }

    /// Changes an object as `kubectl patch` does.
    pub(crate) async fn edit(&self, api: &Api<DynamicObject>, name: &str, patch: &Value) {
        let params = PatchParams {
            field_manager: Some("kubectl-edit".to_owned()),
            ..<_>::default()
        };
        let patched = api.patch(name, &params, &Patch::Merge(patch)).await;
        patched.unwrap();
    }

    /// Runs Helm in the namespace; `None`, with a line that says so, where Helm cannot be built.
    pub(crate) fn helm(&self, args: &[&str]) -> Option<String> {
        let program = helm::ensure_or_skip().unwrap()?;
        let output = Command::new(&program)
            .args(args)
            .args(["--namespace", &self.namespace, "--kubeconfig"])
            .arg(self.plane.kubeconfig_path())
            .output()
            .unwrap();
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "helm {args:?}: {complaint}");
        Some(String::from_utf8(output.stdout).unwrap())
    }

    /// Scales an object through its subresource, as somebody.
    pub(crate) async fn scale(&self, api: &Api<DynamicObject>, name: &str, by: &str, to: u32) {
        let params = PatchParams {
            field_manager: Some(by.to_owned()),
            ..<_>::default()
        };
        let patch = json!({"spec": {"replicas": to}});
        let scaled = api.patch_scale(name, &params, &Patch::Merge(patch)).await;
        scaled.unwrap();
    }
}

/// The claim on an object that was applied before.
pub(crate) fn known(applied: &Applied) -> Claim {
    Claim::Known {
        uid: applied.uid.clone(),
    }
}

pub(crate) fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

pub(crate) fn deployment(name: &str, replicas: u32) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {
                "containers": [{"name": "main", "image": "image"}]}}}})
}

/// Waits until something holds, at most 30 seconds.
pub(crate) async fn until(what: &str, holds: impl AsyncFnMut() -> bool) {
    let waited = wait::until(Duration::from_secs(30), what, holds).await;
    waited.unwrap();
}
