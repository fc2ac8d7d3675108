//! `dev` on a small project and a real API server. Without a control plane the tests are skipped, each
//! with a line that says so.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use hybrid_operator_test::{TestNamespace, shared_or_skip, wait};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};

use support::{PROGRAM, Text as _, definition, or_skip};

const LIMIT: Duration = Duration::from_mins(1);

/// A control plane whose cluster exists already. It records its end.
const CONTROL_PLANE: &str = "\
#!/bin/sh
echo 'export KUBECONFIG=KUBECONFIG_PATH'
trap 'echo ended > \"ROOT/plane-ended\"; exit 0' TERM
while :; do sleep 0.05; done
";

/// A project of one chart.
struct Project {
    root: PathBuf,
    _directory: tempfile::TempDir,
}

impl Project {
    fn new(namespace: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let project = Self {
            root: fs::canonicalize(directory.path()).unwrap(),
            _directory: directory,
        };
        project.write("PROJECT", "domain: example.com\nlayout:\n- helm.sdk.operatorframework.io/v1\nprojectName: shop\nversion: \"3\"\n");
        let watches =
            "- {group: dev.example.com, version: v1, kind: Shop, chart: helm-charts/shop}\n";
        project.write("watches.yaml", watches);
        let metadata = "apiVersion: v2\nname: shop\nversion: 0.1.0\n";
        project.write("helm-charts/shop/Chart.yaml", metadata);
        project.write("helm-charts/shop/templates/map.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}'}\ndata: {value: '{{ .Values.value }}'}\n");
        let crd = definition("dev.example.com", "Shop");
        project.write("config/crd/bases/shops.yaml", &crd);
        let kustomization = "resources: [bases/shops.yaml]\n";
        project.write("config/crd/kustomization.yaml", kustomization);
        project.sample(namespace, "1");
        project
    }

    fn sample(&self, namespace: &str, value: &str) {
        let text = format!(
            "apiVersion: dev.example.com/v1\nkind: Shop\nmetadata: {{name: one, namespace: {namespace}}}\nspec: {{value: '{value}'}}\n"
        );
        self.write("config/samples/shop.yaml", &text);
    }

    fn write(&self, name: &str, text: &str) {
        support::write(&self.root.join(name), text);
    }

    /// Starts `dev` in a directory of the project.
    fn dev(&self, namespace: &str, arguments: &[&str], env: &[(&str, &Path)]) -> Dev {
        self.dev_of(Path::new(PROGRAM), namespace, arguments, env)
    }

    /// Starts `dev` of a copy of the program.
    fn dev_of(
        &self,
        program: &Path,
        namespace: &str,
        arguments: &[&str],
        env: &[(&str, &Path)],
    ) -> Dev {
        let mut child = Command::new(program)
            .arg("dev")
            .args(arguments)
            .env_remove("KUBECONFIG")
            .env("WATCH_NAMESPACE", namespace)
            .env("OPERATOR_NAME", namespace)
            .envs(env.iter().copied())
            .current_dir(self.root.join("helm-charts"))
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Dev {
            child,
            lines,
            seen: String::new(),
        }
    }

    /// Waits until no process works in the directory of the project.
    async fn is_left_alone(&self) {
        let alone = async || !works_in(&self.root);
        let ended = wait::until(LIMIT, "the end of all processes", alone).await;
        ended.unwrap();
    }
}

/// Returns whether a process has this directory.
fn works_in(root: &Path) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut directories =
        processes.filter_map(|process| fs::read_link(process.path().join("cwd")).ok());
    directories.any(|directory| directory == root)
}

/// Returns what is served at an address.
async fn page_at(address: &str) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    answer
}

struct Dev {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    seen: String,
}

impl Dev {
    /// Waits for a line with this text.
    async fn says(&mut self, text: &str) {
        let found = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                self.seen += &line;
                self.seen.push('\n');
                if line.contains(text) {
                    return true;
                }
            }
            false
        };
        let found = tokio::time::timeout(LIMIT, found).await.unwrap_or(false);
        assert!(found, "{text:?} is not in\n{}", self.seen);
    }

    async fn signal(&self, signal: &str) {
        let pid = self.child.id().unwrap().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().await;
        assert!(sent.unwrap().success());
    }

    async fn ends(&mut self) -> Option<i32> {
        let ended = tokio::time::timeout(LIMIT, self.child.wait()).await;
        ended.unwrap().unwrap().code()
    }
}

#[tokio::test]
async fn dev_applies_runs_reloads_and_ends_cleanly() {
    let plane = or_skip!(shared_or_skip().await.unwrap());
    let namespace = TestNamespace::create(plane, "dev").await.unwrap();
    let name = namespace.name();
    let project = Project::new(name);
    let program = project.root.join("plane");
    let kubeconfig = plane.kubeconfig_path().to_str().unwrap();
    let text = CONTROL_PLANE
        .replace("KUBECONFIG_PATH", kubeconfig)
        .replace("ROOT", project.root.to_str().unwrap());
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let log = project.root.join("operator.log");
    let arguments = ["--log-file", log.to_str().unwrap()];
    let mut dev = project.dev(name, &arguments, &[("HYBRID_CONTROL_PLANE", &program)]);
    dev.says("The status page is at http://").await;
    let page = dev
        .seen
        .trim_end()
        .rsplit_once("http://")
        .unwrap()
        .1
        .to_owned();
    dev.says("Applied the CRD of Shop").await;
    dev.says("Started the operator").await;
    dev.says("Applied Shop/one").await;
    let is_ready = async |dev: &mut Dev, revision: u32| {
        let end = format!("revision {revision}\n");
        loop {
            dev.says(&format!("Shop {name}/one: Ready=True")).await;
            if dev.seen.ends_with(&end) {
                return;
            }
        }
    };
    is_ready(&mut dev, 1).await;
    page_at(&page)
        .await
        .must_have("<title>hybrid-operator</title>");

    let more = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-more'}\n";
    project.write("helm-charts/shop/templates/more.yaml", more);
    is_ready(&mut dev, 2).await;
    project.sample(name, "2");
    dev.says("Applied Shop/one").await;
    is_ready(&mut dev, 3).await;

    project.write("config/samples/shop.yaml", "kind: Shop\n");
    dev.says("has no apiVersion and kind").await;
    dev.signal("-INT").await;
    dev.says("Stopping ...").await;
    assert_eq!(dev.ends().await, Some(0), "{}", dev.seen);
    assert!(project.root.join("plane-ended").exists());
    project.is_left_alone().await;
    let log = fs::read_to_string(log).unwrap();
    log.must_have("stopped");
}

/// `kind` whose cluster exists already. It records how it is called.
const KIND: &str = "\
#!/bin/sh
echo \"$1 $2 $3 ${4%-*} $5 $6\" >> ROOT/kind-calls
[ $1 = delete ] || cp KUBECONFIG_PATH \"$KUBECONFIG\"
";

#[tokio::test]
async fn a_cluster_of_kind_is_made_where_no_control_plane_is_and_deleted_also_when_dev_is_killed() {
    let plane = or_skip!(shared_or_skip().await.unwrap());
    let namespace = TestNamespace::create(plane, "dev-kind").await.unwrap();
    let project = Project::new(namespace.name());
    let root = project.root.to_str().unwrap();
    let kubeconfig = plane.kubeconfig_path().to_str().unwrap();
    let text = KIND
        .replace("KUBECONFIG_PATH", kubeconfig)
        .replace("ROOT", root);
    project.write("programs/kind", &text);
    let kind = project.root.join("programs/kind");
    fs::set_permissions(&kind, fs::Permissions::from_mode(0o755)).unwrap();
    // Beside the original may be a control plane.
    let program = project.root.join("programs/hybrid-operator");
    fs::copy(PROGRAM, &program).unwrap();
    let path = format!("{root}/programs:/usr/bin:/bin");
    let calls = || fs::read_to_string(project.root.join("kind-calls")).unwrap_or_default();
    let created = "create cluster --name hybrid-operator-dev --wait 3m\n";
    let mut expected = String::new();
    for signal in ["-INT", "-KILL"] {
        let mut dev = project.dev_of(
            &program,
            namespace.name(),
            &[],
            &[("PATH", Path::new(&path))],
        );
        dev.says("Started the operator").await;
        expected += created;
        assert_eq!(calls(), expected);
        dev.signal(signal).await;
        dev.ends().await;
        expected += "delete cluster --name hybrid-operator-dev  \n";
        let deleted = wait::until(LIMIT, "the deletion", async || calls() == expected).await;
        deleted.unwrap();
        project.is_left_alone().await;
    }
}

#[tokio::test]
async fn nothing_is_left_when_dev_is_killed() {
    let plane = or_skip!(shared_or_skip().await.unwrap());
    let namespace = TestNamespace::create(plane, "dev-killed").await.unwrap();
    let project = Project::new(namespace.name());
    let kubeconfig = plane.kubeconfig_path().to_str().unwrap();
    let arguments = ["--kubeconfig", kubeconfig, "--no-samples"];
    let mut dev = project.dev(namespace.name(), &arguments, &[]);
    dev.says("Started the operator").await;
    assert!(works_in(&project.root));
    dev.signal("-KILL").await;
    assert_eq!(dev.ends().await, None);
    project.is_left_alone().await;
    dev.seen.must_lack("Applied Shop");
}

#[tokio::test]
async fn operator_that_cannot_start_starts_once_its_files_are_fixed() {
    let plane = or_skip!(shared_or_skip().await.unwrap());
    let namespace = TestNamespace::create(plane, "dev-broken").await.unwrap();
    let project = Project::new(namespace.name());
    let watches = fs::read_to_string(project.root.join("watches.yaml")).unwrap();
    project.write("watches.yaml", "- {chart: nowhere}\n");
    let kubeconfig = plane.kubeconfig_path().to_str().unwrap();
    let log = project.root.join("operator.log");
    let log = log.to_str().unwrap();
    let arguments = ["--kubeconfig", kubeconfig, "--log-file", log];
    let mut dev = project.dev(namespace.name(), &arguments, &[]);
    // The cluster that is about to be changed comes first.
    dev.says("Using the cluster of ").await;
    if let Some(server) = plane.server() {
        let cluster = format!("Cluster: {server} (context control-plane)");
        dev.says(&cluster).await;
    }
    dev.says("watches.yaml:1").await;
    dev.says("The operator ended (exit status: 1)").await;
    project.write("watches.yaml", &watches);
    dev.says("Started the operator").await;
    dev.says("Ready=True").await;
    dev.signal("-TERM").await;
    assert_eq!(dev.ends().await, Some(0), "{}", dev.seen);
    project.is_left_alone().await;
}

#[tokio::test]
async fn dev_without_a_cluster_or_a_project_says_what_to_do() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = directory.path();
    // Beside the original may be a control plane.
    let program = root.join("hybrid-operator");
    fs::hard_link(env!("CARGO_BIN_EXE_hybrid-operator"), &program).unwrap();
    let project = root.join("project");
    fs::create_dir(&project).unwrap();
    let run = async || {
        let ran = Command::new(&program)
            .arg("dev")
            .env_remove("KUBECONFIG")
            .env_remove("HYBRID_CONTROL_PLANE")
            .env("PATH", "/nonexistent")
            .current_dir(&project)
            .output()
            .await
            .unwrap();
        assert_eq!(ran.status.code(), Some(1));
        String::from_utf8(ran.stderr).unwrap()
    };
    // The directories above are those of this repository, which is a project.
    fs::write(project.join("PROJECT"), "version: \"2\"\n").unwrap();
    let error = run().await;
    error.must_have("version \"2\"");
    let text = "layout: [x]\nprojectName: x\nversion: \"3\"\n";
    fs::write(project.join("PROJECT"), text).unwrap();
    let error = run().await;
    error.must_have("--kubeconfig");
    error.must_have("HYBRID_CONTROL_PLANE");
}
