//! Discovery, capabilities and reading on a real API server.

use std::collections::BTreeSet;
use std::time::Duration;

use helm_core::manifest::ObjectKey;
use kube::core::GroupVersionKind;
use kube_objects::Scope;
use kube_objects::read;
use serde_json::json;

use super::support::{Stage, config_map};
use crate::capabilities::capabilities;

#[tokio::test]
async fn kinds_are_resolved() {
    let Some(stage) = Stage::new("kinds").await else {
        return;
    };
    for (group, version, kind, plural, scope, scalable) in [
        ("", "v1", "Pod", "pods", Scope::Namespaced, false),
        ("", "v1", "Namespace", "namespaces", Scope::Cluster, false),
        (
            "apps",
            "v1",
            "Deployment",
            "deployments",
            Scope::Namespaced,
            true,
        ),
        (
            "networking.k8s.io",
            "v1",
            "NetworkPolicy",
            "networkpolicies",
            Scope::Namespaced,
            false,
        ),
    ] {
        let found = stage
            .cluster
            .resolve(&GroupVersionKind::gvk(group, version, kind))
            .await;
        let found = found.unwrap();
        assert_eq!(found.resource.plural, plural);
        assert_eq!((found.scope, found.scalable), (scope, scalable));
    }
    let unknown = GroupVersionKind::gvk("nope.example.com", "v1", "Nope");
    let error = stage.cluster.resolve(&unknown).await.unwrap_err();
    assert_eq!(error.reason(), "UnknownKind");
}

#[tokio::test]
async fn capabilities_are_those_that_helm_sees() {
    let Some(stage) = Stage::new("capabilities").await else {
        return;
    };
    let chart = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = chart.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\n");
    let template = "{{ range .Capabilities.APIVersions }}# {{ . }}\n{{ end }}# kube \
                    {{ .Capabilities.KubeVersion.Version }}\n";
    write("templates/a.yaml", template);
    let folder = chart.path().to_str().unwrap();
    let Some(text) = stage.helm(&["template", "x", "--dry-run=server", folder]) else {
        return;
    };
    let listed: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# "))
        .collect();
    let capabilities = capabilities(&stage.cluster, Duration::ZERO).await.unwrap();
    let kube = format!("kube {}", capabilities.kube_version.version());
    let mut ours: BTreeSet<&str> = capabilities.api_versions.iter().collect();
    ours.insert(&kube);
    let differences: Vec<_> = ours
        .symmetric_difference(&listed)
        // Definitions of other tests come and go.
        .filter(|version| !version.contains(".example.com") && !version.starts_with("Source"))
        .collect();
    assert!(
        listed.len() > 100 && differences.is_empty(),
        "{differences:?}\n{text}"
    );
}

#[tokio::test]
async fn objects_are_read_and_listed_as_lookup_needs_them() {
    let Some(stage) = Stage::new("read").await else {
        return;
    };
    let object = config_map("conf", &json!({"a": "1"}));
    stage.apply_first(object.clone()).await;
    let mut key = ObjectKey::of(&object).unwrap();
    key.namespace = Some(stage.namespace.clone());
    let live = read::get(&stage.cluster, &key).await.unwrap().unwrap();
    assert_eq!(live["data"], json!({"a": "1"}));
    key.name = "none".to_owned();
    assert!(read::get(&stage.cluster, &key).await.unwrap().is_none());
    let gvk = GroupVersionKind::gvk("", "v1", "ConfigMap");
    let namespace = Some(&*stage.namespace);
    let list = read::list(&stage.cluster, &gvk, namespace).await;
    let list = list.unwrap();
    assert_eq!(list["kind"], "ConfigMapList");
    assert!(list["items"].as_array().unwrap().len() >= 2);
    let selector = Some("app.kubernetes.io/managed-by=Helm");
    let kind = stage.cluster.resolve(&gvk).await.unwrap();
    let list = read::list_metadata(&stage.cluster, &kind, namespace, selector, None).await;
    assert_eq!(list.unwrap().len(), 1);
}
