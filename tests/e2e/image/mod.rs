//! Images are built from their Dockerfiles, and started as a kubelet would: under their user, with a read-only
//! root, without capabilities, and with the files and variables of a service account. The steps of a Dockerfile
//! run as commands; where buildah is installed, it builds the image too, and both must be the same.

mod build;
mod buildah;
mod dockerfile;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use hybrid_operator_test::process::{Operator, RunningOperator};
use hybrid_operator_test::{ControlPlane, TestNamespace, skipped};
use serde_json::{Value, json};

use crate::olm::bundle;
use crate::pod;
use crate::transcript::{is_current, programs};
use crate::world::{LIMIT, api, apply, create, holds, new_namespace, output, root, until};
use build::{Image, build};
use buildah::Buildah;

/// Where a kubelet puts the files of the service account.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Name of the base image of chart projects in their Dockerfiles, and of `make base-image`.
const BASE: &str = concat!("localhost/hybrid-operator:v", env!("CARGO_PKG_VERSION"));

/// Starts a program: `$1` is the root of the image, `$2` its working directory, `$3` its user.
const START: &str = r#"
root=$1 dir=$2 user=$3
shift 3
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
exec setpriv --no-new-privs unshare --root="$root" --wd="$dir" --setgid=0 --setuid="$user" "$@"
"#;

/// Returns whether the test can run; prints why not.
fn can_run() -> bool {
    let root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !root {
        skipped(1, &"only root can mount and change the root directory");
    }
    root
}

/// Returns an engine, or `None` if none is installed; prints that.
fn engine() -> Option<Buildah> {
    let found = Buildah::find();
    if found.is_none() {
        skipped(
            1,
            &"buildah is not installed, so no image is built by a container engine",
        );
    }
    found
}

/// Builds an image with the commands of its Dockerfile and by the engine, and returns that of the engine if
/// there is one.
fn build_twice(
    engine: Option<&Buildah>,
    (project, dockerfile): (&Path, &Path),
    name: &str,
    base: Option<(&str, &Image)>,
) -> Image {
    let image = build(project, dockerfile, base);
    let Some(engine) = engine else {
        return image;
    };
    let built = engine.build(project, dockerfile, name);
    assert_eq!(built.files("/"), image.files("/"));
    let compared = Command::new("diff")
        .args(["--recursive", "--no-dereference"])
        .args([built.root(), image.root()])
        .output()
        .unwrap();
    let differences = String::from_utf8_lossy(&compared.stdout);
    assert!(compared.status.success(), "{differences}");
    is_started_alike(&built, &image);
    built
}

/// Checks that two images start the same program under the same user.
fn is_started_alike(image: &Image, other: &Image) {
    assert_eq!(
        (&image.entrypoint, &image.user, &image.workdir, &image.env),
        (&other.entrypoint, &other.user, &other.workdir, &other.env)
    );
}

/// Starts the entrypoint of an image with access to one namespace.
async fn start(image: &Image, plane: &ControlPlane, namespace: &TestNamespace) -> RunningOperator {
    let client = plane.client().await.unwrap();
    let account = json!({"metadata": {"name": "operator"}});
    create(&api(namespace, "ServiceAccount"), account).await;
    let binding = json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace.name()}],
    });
    apply(&api(namespace, "RoleBinding"), "operator", &binding).await;
    let token = pod::token(&client, namespace.name(), "operator").await;
    let files = image.at(ACCOUNT);
    fs::create_dir_all(&files).unwrap();
    fs::write(files.join("token"), token).unwrap();
    fs::write(files.join("ca.crt"), pod::authority(plane)).unwrap();
    fs::write(files.join("namespace"), namespace.name()).unwrap();

    let server = plane.server().unwrap().rsplit_once(':').unwrap();
    assert!(server.0.ends_with("//127.0.0.1"), "{server:?}");
    let operator = Operator::new("unshare")
        .args(["--mount", "--", "sh", "-ec", START, "sh"])
        .arg(image.root().to_str().unwrap())
        .args([&image.workdir, &image.user])
        .args(image.entrypoint.iter().map(String::as_str))
        .args(["--leader-elect", "--metrics-secure"])
        .arg("--health-probe-bind-address=127.0.0.1:{probe_port}")
        .arg("--metrics-bind-address=127.0.0.1:{metrics_port}")
        .env("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        .env("KUBERNETES_SERVICE_PORT", server.1)
        .env("WATCH_NAMESPACE", namespace.name())
        .env("OPERATOR_NAME", namespace.name());
    let image_env = image.env.iter();
    let operator = image_env.fold(operator, |operator, (name, value)| {
        operator.env(name, value)
    });
    operator.start().await.unwrap()
}

/// Checks the user, the capabilities and the root of the process.
fn is_confined(operator: &RunningOperator, user: &str) {
    let read = |file: &str| fs::read_to_string(format!("/proc/{}/{file}", operator.pid())).unwrap();
    let status = read("status");
    let line = |name: &str| {
        let mut lines = status.lines();
        lines
            .find(|line| line.starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert_eq!(
        line("Uid:"),
        format!("Uid:\t{user}\t{user}\t{user}\t{user}")
    );
    assert_eq!(line("NoNewPrivs:"), "NoNewPrivs:\t1");
    assert_eq!(line("CapEff:"), "CapEff:\t0000000000000000");
    let mounts = read("mountinfo");
    let is_root = |line: &&str| line.split(' ').nth(4) == Some("/");
    let mount = mounts.lines().find(is_root).unwrap();
    assert!(
        mount.split(' ').nth(5).unwrap().starts_with("ro"),
        "{mount}"
    );
}

async fn memcached_is_ready(namespace: &TestNamespace, operator: &RunningOperator) {
    let memcacheds = api(namespace, "Memcached");
    apply(&memcacheds, "cache", &json!({"spec": {"replicaCount": 1}})).await;
    until(&memcacheds, "cache", "Ready", holds("Ready")).await;
    let stopped = operator.stop(LIMIT).await.unwrap();
    assert!(stopped.success(), "{}", operator.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn image_of_a_hybrid_project_runs_under_its_user_with_a_read_only_root() {
    let (plane, namespace) = or_skip!(new_namespace("image").await);
    if !can_run() {
        return;
    }
    let files = (root(), &*root().join("Dockerfile"));
    let image = build_twice(engine().as_ref(), files, "memcached-operator", None);
    let own = ["/helm-operator", "/usr/local/bin/helm-operator"];
    for path in own {
        assert!(image.files("/").contains(&path.to_owned()), "{path}");
    }
    // Nothing of the sources.
    let files = image.files("/opt");
    let charts = files.iter().all(|path| {
        path == "/opt/helm/watches.yaml" || path.starts_with("/opt/helm/helm-charts/memcached/")
    });
    assert!(charts && files.len() > 5, "{files:#?}");
    let operator = start(&image, plane, &namespace).await;
    is_confined(&operator, "1001");
    memcached_is_ready(&namespace, &operator).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_alone_are_added_to_the_base_image_as_to_that_of_operator_sdk() {
    let (plane, namespace) = or_skip!(new_namespace("base-image").await);
    if !can_run() {
        return;
    }
    is_current("chart-operator").unwrap();
    is_current("hybrid-operator").unwrap();
    let engine = engine();
    let files = (root(), &*root().join("images/hybrid-operator/Dockerfile"));
    let base = build_twice(engine.as_ref(), files, BASE, None);
    for path in ["/helm-operator", "/usr/local/bin/helm-operator"] {
        let version = Command::new("unshare")
            .arg(format!("--root={}", base.root().display()))
            .args([path, "version"])
            .output()
            .unwrap();
        assert!(version.status.success(), "{path}: {version:?}");
    }

    let project = tempfile::tempdir().unwrap();
    let chart = root().join("helm-charts/memcached");
    let init = "init --plugins helm --domain example.com --project-name shop";
    hybrid_operator(project.path(), init.split(' '));
    let create = "create api --group cache --version v1alpha1 --kind Memcached --helm-chart";
    let create = create.split(' ').chain([chart.to_str().unwrap()]);
    hybrid_operator(project.path(), create);
    let dockerfile = project.path().join("Dockerfile");
    let files = (project.path(), &*dockerfile);
    let image = build_twice(engine.as_ref(), files, "shop", Some((BASE, &base)));
    let operator = start(&image, plane, &namespace).await;
    is_confined(&operator, "1001");
    memcached_is_ready(&namespace, &operator).await;

    // The Dockerfile that operator-sdk writes, with the base that `migrate` puts there.
    let sdk = format!(
        "FROM {BASE}\n\nENV HOME=/opt/helm\nCOPY watches.yaml ${{HOME}}/watches.yaml\nCOPY helm-charts  ${{HOME}}/helm-charts\nWORKDIR ${{HOME}}\n"
    );
    fs::write(&dockerfile, sdk).unwrap();
    let same = build_twice(engine.as_ref(), files, "shop-sdk", Some((BASE, &base)));
    assert_eq!(same.files("/opt"), image.files("/opt"));
    is_started_alike(&same, &image);
}

/// Builds the image for the certification over a stand-in of UBI, and judges its content. The base itself is not known
/// here: what needs Red Hat's catalog is named as not run.
#[tokio::test(flavor = "multi_thread")]
async fn image_for_the_certification_passes_the_checks_of_its_content_and_runs_charts() {
    let (plane, namespace) = or_skip!(new_namespace("ubi-image").await);
    if !can_run() {
        return;
    }
    is_current("chart-operator").unwrap();
    is_current("hybrid-operator").unwrap();
    let files = (
        root(),
        &*root().join("images/hybrid-operator/Dockerfile.ubi"),
    );
    let base = build(files.0, files.1, None);
    let licences = base.files("/licenses");
    assert_eq!(
        licences,
        ["/licenses/LICENSE", "/licenses/anyhow-1.0.0/LICENSE-MIT"]
    );
    assert_eq!(base.labels["version"], env!("CARGO_PKG_VERSION"));
    let image = certified(&base);
    let output = Command::new(programs().join("hybrid-operator"))
        .args(["image", "check"])
        .arg(image.path())
        .output()
        .unwrap();
    let checks = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{checks}{output:?}");
    let others: Vec<&str> = checks
        .lines()
        .filter(|line| !line.starts_with("passed "))
        .collect();
    assert_eq!(others.len(), 1, "{checks}");
    assert!(others[0].starts_with("not run  BasedOnUbi: "), "{checks}");

    // A project changes one line. A schema may refer to /helm-charts.
    let project = tempfile::tempdir().unwrap();
    fs::write(project.path().join("watches.yaml"), WATCHES).unwrap();
    let charts = project.path().join("helm-charts");
    fs::create_dir(&charts).unwrap();
    build::copy(&root().join("helm-charts/memcached"), &charts);
    let sdk = format!(
        "FROM {BASE}\n\nENV HOME=/opt/helm\nCOPY watches.yaml ${{HOME}}/watches.yaml\nCOPY helm-charts  ${{HOME}}/helm-charts\nWORKDIR ${{HOME}}\n"
    );
    let dockerfile = project.path().join("Dockerfile");
    fs::write(&dockerfile, sdk).unwrap();
    let image = build(project.path(), &dockerfile, Some((BASE, &base)));
    assert_eq!(image.user, "1001");
    let link = fs::read_link(image.root().join("helm-charts")).unwrap();
    assert!(
        image
            .root()
            .join(link)
            .join("memcached/Chart.yaml")
            .is_file()
    );
    let operator = start(&image, plane, &namespace).await;
    is_confined(&operator, "1001");
    memcached_is_ready(&namespace, &operator).await;
}

/// The kind of the chart in this repository.
const WATCHES: &str = "- group: cache.example.com\n  version: v1alpha1\n  kind: Memcached\n  chart: helm-charts/memcached\n";

/// Writes an image as `docker save` does. The layer of its base has the database of packages and names the distribution.
fn certified(image: &Image) -> tempfile::NamedTempFile {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let database = at("base/usr/lib/sysimage/rpm");
    fs::create_dir_all(&database).unwrap();
    fs::write(database.join("rpmdb.sqlite"), "").unwrap();
    fs::create_dir_all(at("base/etc")).unwrap();
    fs::write(at("base/etc/os-release"), "ID=rhel").unwrap();
    let pack = |from: &Path, to: &Path| {
        output(
            Command::new("tar")
                .arg("-cf")
                .arg(to)
                .arg("-C")
                .arg(from)
                .arg("."),
        );
    };
    let archive = at("archive");
    fs::create_dir(&archive).unwrap();
    pack(&at("base"), &archive.join("base.tar"));
    pack(image.root(), &archive.join("content.tar"));
    let config = json!({"config": {"User": image.user, "Labels": image.labels}});
    fs::write(archive.join("config.json"), config.to_string()).unwrap();
    let tag = "example.com/hybrid-operator:v1-ubi10";
    let manifest = json!([{"Config": "config.json", "RepoTags": [tag], "Layers": ["base.tar", "content.tar"]}]);
    fs::write(archive.join("manifest.json"), manifest.to_string()).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    pack(&archive, file.path());
    file
}

/// Checks what OLM and the tools of registries read of a bundle's image: its files and its labels.
#[test]
fn image_of_a_bundle_has_its_files_and_its_annotations_as_labels() {
    if !can_run() {
        return;
    }
    let engine = or_skip!(engine());
    let project = tempfile::tempdir().unwrap();
    bundle(project.path());
    let dockerfile = project.path().join("bundle.Dockerfile");
    let image = engine.build(project.path(), &dockerfile, "bundle");
    let compared = Command::new("diff")
        .arg("--recursive")
        .args([image.root(), &project.path().join("bundle")])
        .status();
    assert!(compared.unwrap().success());
    let annotations =
        fs::read_to_string(project.path().join("bundle/metadata/annotations.yaml")).unwrap();
    let annotations: Value = go_yaml::from_str(&annotations).unwrap();
    let mut labels = engine.config("bundle")["Labels"].clone();
    // The engine adds its own version.
    labels.as_object_mut().unwrap().remove("io.buildah.version");
    assert_eq!(labels, annotations["annotations"]);
}

/// Runs the command line in a directory.
fn hybrid_operator<'a>(directory: &Path, arguments: impl Iterator<Item = &'a str>) {
    let program = programs().join("hybrid-operator");
    output(Command::new(program).args(arguments).current_dir(directory));
}
