//! Public charts become operators with `init --helm-chart` and no further edit: their custom resource
//! is ready on a real API server.
//!
//! The charts are those of the comparison with Helm, which are not part of this repository: without
//! them, the tests are skipped, each with a line that says so.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hybrid_operator_test::wait::{self, Check};
use hybrid_operator_test::{ControlPlane, TestNamespace, shared_or_skip, skipped};
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery;
use serde_json::json;

use support::{PROGRAM, operator, or_skip};

/// Time limit of every wait.
const LIMIT: Duration = Duration::from_mins(2);

/// Returns the packed chart whose file name begins with `name`, such as `redis-2`.
fn archive(name: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("CONFORMANCE").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance"),
        PathBuf::from,
    );
    let entries = fs::read_dir(folder.join("charts/archives")).ok()?;
    let mut paths = entries.map(|entry| entry.unwrap().path());
    paths.find(|path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.starts_with(name)
    })
}

fn run(program: &str, arguments: &[&str], directory: &Path, plane: &ControlPlane) {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(directory)
        .env("KUBECONFIG", plane.kubeconfig_path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
}

/// Makes an operator of a chart, applies its sample, and waits until that is ready.
async fn becomes_an_operator(chart: &str, kind: &str) {
    let Some(archive) = archive(chart) else {
        return skipped(1, &"public charts: no conformance folder");
    };
    let plane = or_skip!(shared_or_skip().await.unwrap());
    let lower = kind.to_lowercase();
    let namespace = TestNamespace::create(plane, &lower).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let project = directory.path();
    let init = format!(
        "init --domain example.com --project-name {lower}-operator --plugins helm --group charts --version v1 --kind {kind} --helm-chart"
    );
    let mut arguments: Vec<&str> = init.split(' ').collect();
    arguments.push(archive.to_str().unwrap());
    run(PROGRAM, &arguments, project, plane);
    run("kubectl", &["apply", "-k", "config/crd"], project, plane);
    let operator = operator(namespace.name())
        .kubeconfig(plane.kubeconfig_path())
        .dir(project)
        .start()
        .await
        .unwrap();
    let samples = ["apply", "-n", namespace.name(), "-k", "config/samples"];
    run("kubectl", &samples, project, plane);

    let gvk = GroupVersionKind::gvk("charts.example.com", "v1", kind);
    let mut served = None;
    let is_served = async || {
        served = discovery::pinned_kind(&namespace.client(), &gvk).await.ok();
        served.is_some()
    };
    let found = wait::until(LIMIT, "the kind to be served", is_served).await;
    found.unwrap();
    let (resource, _) = served.unwrap();
    let api: Api<DynamicObject> =
        Api::namespaced_with(namespace.client(), namespace.name(), &resource);
    let name = format!("{lower}-sample");
    let ready = wait::object(&api, &name, "Ready", LIMIT, |object| {
        let Some(object) = object else {
            return Check::NotYet("it does not exist".to_owned());
        };
        let conditions = object.data["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        if conditions.any(|c| c["type"] == "Ready" && c["status"] == "True") {
            Check::Met(())
        } else {
            Check::NotYet(object.data["status"]["conditions"].to_string())
        }
    });
    let ready = ready.await;
    ready.unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
    drop(api.delete(&name, &DeleteParams::default()).await.unwrap());
    let gone = wait::until(LIMIT, "the release to be uninstalled", async || {
        api.get_opt(&name).await.unwrap().is_none()
    });
    gone.await
        .unwrap_or_else(|error| panic!("{error}\n{}", operator.log()));
}

#[tokio::test]
async fn podinfo_becomes_an_operator() {
    becomes_an_operator("podinfo-", "Podinfo").await;
}

#[tokio::test]
async fn ingress_nginx_becomes_an_operator() {
    becomes_an_operator("ingress-nginx-", "IngressNginx").await;
}

#[tokio::test]
async fn redis_becomes_an_operator() {
    let plane = or_skip!(shared_or_skip().await.unwrap());
    // The volumes that a storage class of a cluster would provide.
    let volumes: Api<PersistentVolume> = Api::all(plane.client().await.unwrap());
    let names = ["redis-0", "redis-1", "redis-2", "redis-3"];
    for name in names {
        let volume = json!({
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "8Gi"}, "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/nowhere"},
            },
        });
        let volume = serde_json::from_value(volume).unwrap();
        let created = volumes.create(&PostParams::default(), &volume).await;
        drop(created.unwrap());
    }
    becomes_an_operator("redis-", "Redis").await;
    for name in names {
        let deleted = volumes.delete(name, &DeleteParams::default()).await;
        drop(deleted.unwrap());
    }
}

#[test]
fn the_apis_of_the_page_fit_their_charts() {
    let names = ["redis-23", "ingress-nginx-4", "podinfo-6"];
    let Some(archives) = names.map(archive).into_iter().collect::<Option<Vec<_>>>() else {
        return skipped(1, &"public charts: no conformance folder");
    };
    let directory = tempfile::tempdir().unwrap();
    let project = directory.path();
    let charts = project.join("helm-charts");
    fs::create_dir(&charts).unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/api.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, page) = page.split_once("\n## Three public charts\n").unwrap();
    let blocks = page.split("```yaml\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let (entries, resources): (Vec<&str>, Vec<&str>) =
        blocks.partition(|block| block.starts_with("- group:"));
    assert_eq!((entries.len(), resources.len()), (3, 1));
    fs::write(project.join("watches.yaml"), entries.concat()).unwrap();
    fs::create_dir(project.join("samples")).unwrap();
    fs::write(project.join("samples/of-page.yaml"), resources[0]).unwrap();
    for archive in archives {
        let unpacked = Command::new("tar")
            .arg("xzf")
            .arg(&archive)
            .arg("-C")
            .arg(&charts)
            .status();
        assert!(unpacked.unwrap().success(), "{}", archive.display());
    }
    let hybrid = |arguments: &[&str]| {
        let output = Command::new(PROGRAM)
            .args(arguments)
            .args(["--watches-file", "watches.yaml"])
            .current_dir(project)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    };
    hybrid(&["generate", "crds", "--output-dir", "crds"]);
    hybrid(&["generate", "samples", "--output-dir", "samples"]);
    let samples = fs::read_dir(project.join("samples")).unwrap();
    let mut rendered = Vec::new();
    for sample in samples {
        let path = sample.unwrap().path();
        let manifest = hybrid(&["template", "--cr", path.to_str().unwrap()]);
        assert!(
            manifest.contains("kind: Service"),
            "{}: {manifest}",
            path.display()
        );
        rendered.push(manifest);
    }
    assert_eq!(rendered.len(), 4);
    let of_page = rendered
        .iter()
        .find(|manifest| manifest.contains("host: \"hello.example.com\""));
    assert!(of_page.unwrap().contains("key: spot"));
}
