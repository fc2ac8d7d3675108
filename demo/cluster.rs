//! The cluster of the demo: its own control plane, or that of a kubeconfig.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::{ControlPlane, Operator, Options, wait};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::screen::{Screen, Table};

const NAMESPACE: &str = "default";
const FIELD_MANAGER: &str = "kubectl";

/// Resources that the demo uses: plural, group, version, kind.
const RESOURCES: &[(&str, &str, &str, &str)] = &[
    ("memcacheds", "cache.example.com", "v1alpha1", "Memcached"),
    (
        "memcachedbackups",
        "cache.example.com",
        "v1alpha1",
        "MemcachedBackup",
    ),
    ("deployments", "apps", "v1", "Deployment"),
    ("services", "", "v1", "Service"),
    ("configmaps", "", "v1", "ConfigMap"),
    ("serviceaccounts", "", "v1", "ServiceAccount"),
    ("secrets", "", "v1", "Secret"),
];

/// A cluster and its client.
pub(crate) struct Cluster {
    plane: Option<ControlPlane>,
    kubeconfig: PathBuf,
    client: Client,
}

impl Cluster {
    /// Starts a control plane below `target/`, or uses the cluster of `kubeconfig`.
    pub(crate) async fn start(kubeconfig: Option<&Path>, screen: &Screen) -> Result<Self> {
        let (plane, kubeconfig) = if let Some(path) = kubeconfig {
            screen.note(&format!("using the cluster of {}", path.display()));
            (None, path.to_owned())
        } else {
            let started = std::time::Instant::now();
            let plane = ControlPlane::start(Options::default()).await?;
            screen.note(&format!(
                "etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok, ready after {:.1} s",
                started.elapsed().as_secs_f64()
            ));
            let path = plane.kubeconfig_path().to_owned();
            screen.command(&format!("export KUBECONFIG={}", path.display()));
            (Some(plane), path)
        };
        let config = Kubeconfig::read_from(&kubeconfig)?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
        Ok(Self {
            plane,
            kubeconfig,
            client: Client::try_from(config)?,
        })
    }

    /// Returns the path of the kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Stops the control plane, if the demo started it.
    pub(crate) fn stop(self) {
        if let Some(plane) = self.plane {
            plane.stop();
        }
    }

    /// Starts the operator's program and waits until it is ready.
    pub(crate) async fn start_operator(&self) -> Result<RunningOperator> {
        let binary = std::env::current_exe()?
            .ancestors()
            .nth(2)
            .context("the demo runs from target/debug/examples")?
            .join("memcached-operator");
        let operator = Operator::new(binary)
            .args([
                "run",
                "--watches-file",
                "./watches.yaml",
                "--zap-encoder=console",
            ])
            .args(["--health-probe-bind-address", "127.0.0.1:{probe_port}"])
            .args(["--metrics-bind-address", "127.0.0.1:{metrics_port}"])
            .kubeconfig(&self.kubeconfig)
            .env("WATCH_NAMESPACE", NAMESPACE)
            .env("OPERATOR_NAME", "memcached-operator");
        Ok(operator.start().await?)
    }

    /// Applies a file's objects.
    pub(crate) async fn apply_file(&self, path: &str) -> Result<()> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        let object: DynamicObject = go_yaml::from_str(&text)?;
        let types = object
            .types
            .clone()
            .with_context(|| format!("{path} has no kind"))?;
        let is_definition = types.kind == "CustomResourceDefinition";
        let gvk = GroupVersionKind::try_from(&types)?;
        let name = object
            .metadata
            .name
            .clone()
            .context("an object without a name")?;
        let resource = ApiResource::from_gvk(&gvk);
        let api: Api<DynamicObject> = if is_definition {
            Api::all_with(self.client.clone(), &resource)
        } else {
            Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
        };
        let params = PatchParams::apply(FIELD_MANAGER).force();
        api.patch(&name, &params, &Patch::Apply(&object)).await?;
        if is_definition {
            let established = |object: Option<&DynamicObject>| {
                let conditions = object.and_then(|o| o.data.pointer("/status/conditions"));
                conditions.and_then(Value::as_array).is_some_and(|all| {
                    let wanted = [Some(&json!("Established")), Some(&json!("True"))];
                    all.iter()
                        .any(|c| [c.get("type"), c.get("status")] == wanted)
                })
            };
            let limit = Duration::from_secs(30);
            wait::object(&api, &name, "Established", limit, established).await?;
        }
        Ok(())
    }

    /// Returns a list as `kubectl get` shows it: the columns of priority 0 of the server's table.
    pub(crate) async fn table(&self, plural: &str, selector: Option<&str>) -> Result<Table> {
        let resource = resource(plural)?;
        let query = selector.map(|s| format!("?labelSelector={}", s.replace('=', "%3D")));
        let base = if resource.group.is_empty() {
            format!("/api/{}", resource.version)
        } else {
            format!("/apis/{}", resource.api_version)
        };
        let uri = format!(
            "{base}/namespaces/{NAMESPACE}/{plural}{}",
            query.unwrap_or_default()
        );
        let request = http::Request::get(uri)
            .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
            .body(Vec::new())?;
        let answer: Value = self.client.request(request).await?;
        let columns: Vec<(usize, &Value)> = answer
            .get("columnDefinitions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
            .filter(|(_, column)| column.get("priority") == Some(&json!(0)))
            .collect();
        let heading = columns
            .iter()
            .map(|(_, column)| {
                column
                    .get("name")
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_uppercase()
            })
            .collect();
        let mut table: Table = vec![heading];
        for row in answer
            .get("rows")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let cell = |i: usize| match row.pointer(&format!("/cells/{i}")) {
                Some(Value::String(text)) => text.clone(),
                None | Some(Value::Null) => String::new(),
                Some(other) => other.to_string(),
            };
            table.push(columns.iter().map(|(i, _)| cell(*i)).collect());
        }
        Ok(table)
    }

    /// Returns a field of an object; null if it is missing.
    pub(crate) async fn field(&self, path: &str, pointer: &str) -> Result<Value> {
        let (api, name) = self.api(path)?;
        let object = serde_json::to_value(api.get(name).await?)?;
        Ok(object.pointer(pointer).cloned().unwrap_or(Value::Null))
    }

    /// Merge-patches `PLURAL/NAME` or `PLURAL/NAME/scale`.
    pub(crate) async fn merge(&self, path: &str, change: &Value) -> Result<()> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let (path, scale) = match path.strip_suffix("/scale") {
            Some(scaled) => (scaled, true),
            None => (path, false),
        };
        let (api, name) = self.api(path)?;
        if scale {
            api.patch_scale(name, &params, &Patch::Merge(change))
                .await?;
        } else {
            api.patch(name, &params, &Patch::Merge(change)).await?;
        }
        Ok(())
    }

    /// Deletes an object, without waiting.
    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        let (api, name) = self.api(path)?;
        api.delete(name, &kube::api::DeleteParams::default())
            .await?;
        Ok(())
    }

    /// Waits until an object meets a condition. The error contains its last state.
    pub(crate) async fn until(
        &self,
        path: &str,
        limit: Duration,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        let (api, name) = self.api(path)?;
        let check = |object: Option<&DynamicObject>| {
            let object = serde_json::to_value(object).unwrap_or_default();
            if wanted(&object) {
                Ok(())
            } else {
                Err(format!("{object:#}"))
            }
        };
        Ok(wait::object(&api, name, what, limit, check).await?)
    }

    /// Waits until an object is gone.
    pub(crate) async fn until_gone(&self, path: &str, limit: Duration) -> Result<()> {
        let (api, name) = self.api(path)?;
        Ok(wait::gone(&api, name, limit).await?)
    }

    fn api<'a>(&self, path: &'a str) -> Result<(Api<DynamicObject>, &'a str)> {
        let (plural, name) = path.split_once('/').context("a path must be PLURAL/NAME")?;
        let resource = resource(plural)?;
        Ok((
            Api::namespaced_with(self.client.clone(), NAMESPACE, &resource),
            name,
        ))
    }
}

fn resource(plural: &str) -> Result<ApiResource> {
    let (_, group, version, kind) = RESOURCES
        .iter()
        .find(|(known, ..)| *known == plural)
        .with_context(|| format!("unknown resource {plural}"))?;
    let gvk = GroupVersionKind::gvk(group, version, kind);
    Ok(ApiResource::from_gvk_with_plural(&gvk, plural))
}
