//! A program that installs, upgrades, repairs and uninstalls a release, and is started again in between.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::error::Error;
use std::process::Command;
use std::sync::Arc;

use helm_release::helm_core::chart::File;
use helm_release::helm_core::{Chart, CompiledChart};
use helm_release::{Helm, ReleaseLocation, ReleaseState, Wanted};
use hybrid_operator_test::{TestNamespace, helm, shared_or_skip};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

const TEMPLATE: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {revision: '{{ .Release.Revision }}', size: {{ required \"size is required\" .Values.size | quote }}}
---
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-password}
stringData: {password: {{ randAlphaNum 20 }}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-hook, annotations: {helm.sh/hook: pre-install}}
";

fn wanted(values: &Value) -> Result<Wanted, Box<dyn Error>> {
    let chart = Chart::from_files([
        File::new(
            "Chart.yaml",
            "apiVersion: v2\nname: cache\nversion: 1.0.0\n",
        ),
        File::new("templates/all.yaml", TEMPLATE),
    ])?;
    let chart = Arc::new(CompiledChart::compile(&chart)?);
    Ok(Wanted::new(chart, serde_json::from_value(values.clone())?))
}

/// Starts the program, installs the release with these values, and ends.
async fn run(own: &TestNamespace, values: &Value) -> Result<ReleaseState, Box<dyn Error>> {
    let mut helm = Helm::connect(own.client(), "example").await?;
    let cache = ReleaseLocation::new(own.name(), "cache")?;
    Ok(helm.install(&cache, &wanted(values)?).await?)
}

#[tokio::test]
async fn program_installs_upgrades_repairs_and_uninstalls_a_release() -> Result<(), Box<dyn Error>>
{
    let Some(plane) = shared_or_skip().await? else {
        return Ok(());
    };
    let own = TestNamespace::create(plane, "program").await?;
    let (client, namespace) = (own.client(), own.name());
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let password = async || {
        secrets
            .get("cache-password")
            .await
            .map(|secret| secret.data)
    };
    let data = async || maps.get("cache").await.map(|map| json!(map.data));

    let state = run(&own, &json!({"size": "small"})).await?;
    assert!(state.is_ready && state.revision == 1, "{state:?}");
    assert_eq!(data().await?, json!({"revision": "1", "size": "small"}));
    let first = password().await?;
    maps.get("cache-hook").await?;
    if let Some(helm) = helm::ensure_or_skip()? {
        let mut list = Command::new(helm);
        list.args(["list", "--short", "--namespace", namespace]);
        list.env("KUBECONFIG", plane.kubeconfig_path());
        assert_eq!(String::from_utf8(list.output()?.stdout)?, "cache\n");
    }

    // The same again is no new revision, also of another process; what somebody has deleted is there again.
    maps.delete("cache", &DeleteParams::default()).await?;
    let state = run(&own, &json!({"size": "small"})).await?;
    assert!(state.is_ready && state.revision == 1, "{state:?}");
    assert_eq!(data().await?, json!({"revision": "1", "size": "small"}));
    assert_eq!(password().await?, first);

    let error = run(&own, &json!({})).await.unwrap_err();
    assert!(error.to_string().contains("size is required"), "{error}");

    let state = run(&own, &json!({"size": "large"})).await?;
    assert!(state.is_ready && state.revision == 2, "{state:?}");
    assert_eq!(data().await?, json!({"revision": "2", "size": "large"}));

    let mut program = Helm::connect(client.clone(), "example").await?;
    program
        .uninstall(&ReleaseLocation::new(namespace, "cache")?)
        .await?;
    assert!(maps.get_opt("cache").await?.is_none());
    assert!(secrets.get_opt("cache-password").await?.is_none());
    let records = ListParams::default().labels("owner=helm");
    assert!(secrets.list(&records).await?.items.is_empty());
    Ok(())
}
