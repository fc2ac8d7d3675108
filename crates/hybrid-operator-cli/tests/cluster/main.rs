//! Runs the commands that read a cluster on a real API server, beside the operator whose releases
//! they show. Without a control plane the tests are skipped, each with a line that says so.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails with a panic"
)]
#![allow(
    clippy::indexing_slicing,
    reason = "indexing JSON returns null for missing keys"
)]

mod anywhere;
#[path = "../support/mod.rs"]
mod support;
mod verbs;
mod why;

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::wait::{self, Check};
use hybrid_operator_test::{ControlPlane, TestNamespace, helm, shared_or_skip};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use support::{Done, PROGRAM, Project, Text as _, definition, operator, or_skip};

/// Time limit of every wait.
const LIMIT: Duration = Duration::from_mins(1);

const CHART: &[(&str, &str)] = &[
    (
        "Chart.yaml",
        "apiVersion: v2\nname: shop\nversion: 1.2.3\nappVersion: '9'\n",
    ),
    (
        "values.yaml",
        "replicas: 1\nrandom: false\nnodeSelector: {}\nextra: {kept: true}\n",
    ),
    (
        "templates/deployment.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}\nspec:\n  \
         replicas: {{ .Values.replicas }}\n  selector: {matchLabels: {app: {{ .Release.Name }}}}\n  \
         template:\n    metadata: {labels: {app: {{ .Release.Name }}}}\n    spec:\n      \
         nodeSelector: {{ toJson .Values.nodeSelector }}\n      containers:\n      - {name: shop, \
         image: shop}\n",
    ),
    (
        "templates/secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ .Release.Name }}-auth\nstringData:\n  \
         password: {{ if .Values.random }}{{ randAlphaNum 20 }}{{ else }}fixed{{ end }}\n",
    ),
    (
        "templates/hook.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-hook\n  \
         annotations: {helm.sh/hook: 'post-install,post-upgrade'}\n",
    ),
    (
        "templates/NOTES.txt",
        "{{ .Values.replicas }} replicas\nin {{ .Release.Namespace }}\n",
    ),
];

const WATCHES: &str = "\
- group: cli.example.com
  version: v1
  kind: Shop
  chart: helm-charts/shop
  patches:
  - target: {kind: Deployment}
    patch: |
      metadata: {labels: {patched: 'yes'}}
";

/// A project with its operator and a namespace.
struct World {
    plane: &'static ControlPlane,
    namespace: TestNamespace,
    project: Project,
    operator: RunningOperator,
}

impl Done {
    fn failed(self) -> String {
        assert_eq!(self.code, Some(1), "{}{}", self.out, self.err);
        self.err
    }
}

impl World {
    async fn start(prefix: &str) -> Option<Self> {
        Self::with(prefix, &[]).await
    }

    /// Starts the operator of a project with further files, which replace those of the same name.
    async fn with(prefix: &str, files: &[(&str, &str)]) -> Option<Self> {
        static DEFINED: OnceCell<()> = OnceCell::const_new();
        let plane = shared_or_skip().await.unwrap()?;
        DEFINED.get_or_init(|| define(plane)).await;
        let namespace = TestNamespace::create(plane, prefix).await.unwrap();
        let project = Project::with(&[("watches.yaml", WATCHES)]);
        for (name, text) in CHART {
            project.write(&format!("helm-charts/shop/{name}"), text);
        }
        for (name, text) in files {
            project.write(name, text);
        }
        let operator = operator(namespace.name())
            .kubeconfig(plane.kubeconfig_path())
            .dir(project.0.path())
            .start()
            .await
            .unwrap();
        Some(Self {
            plane,
            namespace,
            project,
            operator,
        })
    }

    /// Returns the command of the program with arguments that are separated by spaces.
    fn command(&self, kubeconfig: &Path, args: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .args(args.split_whitespace())
            .args(["-n", self.namespace.name()])
            .env("KUBECONFIG", kubeconfig)
            .env_remove("HELM_NAMESPACE")
            .current_dir(self.project.0.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &str) -> Done {
        self.run_as(self.plane.kubeconfig_path(), args)
    }

    fn run_as(&self, kubeconfig: &Path, args: &str) -> Done {
        Done::of(self.command(kubeconfig, args).output().unwrap())
    }

    /// Runs the program in a directory without a project.
    fn outside(&self, args: &str) -> Done {
        self.outside_as(self.plane.kubeconfig_path(), args)
    }

    fn outside_as(&self, kubeconfig: &Path, args: &str) -> Done {
        let elsewhere = tempfile::tempdir().unwrap();
        let mut command = self.command(kubeconfig, args);
        Done::of(command.current_dir(elsewhere.path()).output().unwrap())
    }

    fn outside_json(&self, args: &str) -> Value {
        let text = self.outside(&format!("{args} -o json")).ok();
        serde_json::from_str(&text).unwrap()
    }

    fn json(&self, args: &str) -> Value {
        let text = self.run(&format!("{args} -o json")).ok();
        serde_json::from_str(&text).unwrap()
    }

    /// Writes the file of a Shop.
    fn file(&self, name: &str, spec: &Value) -> String {
        let text = serde_json::to_string(&shop(name, spec)).unwrap();
        self.project.write(&format!("{name}.yaml"), &text);
        format!("{name}.yaml")
    }

    fn shops(&self) -> Api<DynamicObject> {
        shops(&self.namespace)
    }

    async fn apply(&self, name: &str, spec: Value) {
        apply(&self.shops(), &shop(name, &spec)).await;
    }

    /// Waits until a Shop has a revision and `Ready` has a status.
    async fn until(&self, name: &str, revision: u64, ready: &str) -> Value {
        let shops = self.shops();
        let found = wait::object(&shops, name, "its release", LIMIT, |object| {
            let value = serde_json::to_value(object).unwrap();
            let conditions = value["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let is = conditions.any(|c| c["type"] == "Ready" && c["status"] == ready);
            if is && value["status"]["release"]["revision"] == revision {
                Check::Met(value)
            } else {
                Check::NotYet(value.to_string())
            }
        });
        found
            .await
            .unwrap_or_else(|error| panic!("{error}\n{}", self.operator.log()))
    }
}

fn shops(namespace: &TestNamespace) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("cli.example.com", "v1", "Shop");
    let resource = ApiResource::from_gvk(&gvk);
    Api::namespaced_with(namespace.client(), namespace.name(), &resource)
}

/// Applies an object, whose name it has.
async fn apply<K>(api: &Api<K>, object: &Value)
where
    K: Clone + DeserializeOwned + std::fmt::Debug,
{
    let params = PatchParams::apply("e2e").force();
    let name = object["metadata"]["name"].as_str().unwrap();
    let applied = api.patch(name, &params, &Patch::Apply(object)).await;
    drop(applied.unwrap());
}

fn shop(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "cli.example.com/v1", "kind": "Shop", "metadata": {"name": name}, "spec": spec})
}

async fn define(plane: &ControlPlane) {
    let definition = definition("cli.example.com", "Shop");
    let object: Value = go_yaml::from_str(&definition).unwrap();
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let api: Api<DynamicObject> =
        Api::all_with(plane.client().await.unwrap(), &ApiResource::from_gvk(&gvk));
    apply(&api, &object).await;
    let name = "shops.cli.example.com";
    let established = wait::object(&api, name, "Established", LIMIT, |object| {
        let value = serde_json::to_value(object).unwrap();
        let conditions = value["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|c| c["type"] == "Established" && c["status"] == "True")
    });
    established.await.unwrap();
}

/// Checks that one line of a text begins with `prefix`, and what follows it.
#[track_caller]
fn only(text: &str, prefix: &str, rest: &str) {
    let found = text.lines().filter_map(|line| line.strip_prefix(prefix));
    assert_eq!(found.collect::<Vec<_>>(), [rest], "{text}");
}

#[tokio::test]
async fn previews_equal_what_the_operator_records() {
    let world = or_skip!(World::start("cli-preview").await);
    let spec = json!({"replicas": 2, "extra": {"kept": null, "own": 1}});
    let file = world.file("main", &spec);
    let before = world.run(&format!("diff {file}"));
    assert_eq!(before.code, Some(3), "{}", before.err);
    before.out.must_have("not deployed yet");
    before.out.must_have("\n3 added, 0 changed, 0 removed\n");
    world.apply("main", spec.clone()).await;
    world.until("main", 1, "True").await;

    let preview = world.run(&format!("template --cr {file} --no-hooks")).ok();
    let manifest = world.run("get manifest shop/main").ok();
    assert_eq!(preview.trim(), manifest.trim());
    manifest.must_have("patched: \"yes\"");
    let whole = world.run(&format!("template --cr {file}")).ok();
    let hooks = world.run("get hooks shop/main").ok();
    assert_eq!(whole, format!("{preview}{hooks}"));
    assert_eq!(world.json("get values shop/main"), spec);
    let notes = world.run("get notes shops/main").ok();
    let namespace = world.namespace.name();
    assert_eq!(notes, format!("NOTES:\n2 replicas\nin {namespace}\n\n"));
    let same = world.run(&format!("diff {file}"));
    assert_eq!(same.ok(), "no differences\n");
    let live = world.run(&format!("diff --live --cr {file}"));
    assert_eq!(live.ok(), "no differences\n");

    let file = world.file("main", &json!({"replicas": 5}));
    let changed = world.run(&format!("diff {file}"));
    assert_eq!(changed.code, Some(3), "{}", changed.err);
    let out = changed.out;
    only(&out, "    -  replicas: ", "2");
    only(&out, "    +  replicas: ", "5");
    assert!(out.ends_with("\n0 added, 1 changed, 0 removed\n"), "{out}");
    let live = world.run(&format!("diff --live --cr {file}"));
    only(&live.out, "    +  replicas: ", "5");
    live.out.must_lack("password");
    let records = world.run("history shop/main").ok();
    // A preview changes nothing.
    assert_eq!(records.lines().count(), 2, "{records}");
}

#[tokio::test]
async fn random_values_are_no_difference_while_the_inputs_are_the_same() {
    let world = or_skip!(World::start("cli-random").await);
    let spec = json!({"random": true});
    let file = world.file("dice", &spec);
    let renders = [0; 2].map(|_| world.run(&format!("template --cr {file}")).ok());
    assert_ne!(renders[0], renders[1], "the chart has a random value");
    world.apply("dice", spec).await;
    world.until("dice", 1, "True").await;
    for args in ["diff", "diff --live"] {
        let done = world.run(&format!("{args} --cr {file}"));
        assert_eq!(done.ok(), "no differences\n");
    }
}

#[tokio::test]
async fn a_diff_reads_referenced_objects_and_lookups_from_the_cluster() {
    let watches = format!(
        "{WATCHES}  valuesFrom:\n  - {{kind: Secret, name: input, key: own, targetPath: extra.own}}\n"
    );
    let looked_up = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata:\n  \
                     own: {{ .Values.extra.own | quote }}\n  found: {{ (lookup \"v1\" \"Secret\" \
                     .Release.Namespace \"input\").data.other | b64dec }}\n  served: {{ \
                     .Capabilities.APIVersions.Has \"cli.example.com/v1/Shop\" | quote }}\n";
    let files = [
        ("watches.yaml", watches.as_str()),
        ("helm-charts/shop/templates/map.yaml", looked_up),
    ];
    let world = or_skip!(World::with("cli-lookup", &files).await);
    let secrets: Api<Secret> = world.namespace.api();
    let set = async |own: &str| {
        let data = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "input"},
            "stringData": {"own": own, "other": "there"}});
        apply(&secrets, &data).await;
    };
    set("first").await;
    let file = world.file("main", &json!({}));
    world.apply("main", json!({})).await;
    world.until("main", 1, "True").await;
    let manifest = world.run("get manifest shop/main").ok();
    for part in ["own: \"first\"", "found: there", "served: \"true\""] {
        manifest.must_have(part);
    }
    let same = world.run(&format!("diff {file}"));
    assert_eq!(same.ok(), "no differences\n");
    // The operator would upgrade the release at once.
    world.operator.stop(LIMIT).await.unwrap();
    set("second").await;
    let changed = world.run(&format!("diff {file}")).out;
    only(&changed, "    -  ", "own: first");
    only(&changed, "    +  ", "own: second");
    let refused = world.run("rollback shop/main 1 --yes").failed();
    refused.must_have("but also from valuesFrom in the watches file");
}

#[tokio::test]
async fn a_release_that_does_not_fit_into_one_secret_is_read_from_its_parts() {
    let large = "{{ range $i := until 3 }}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: \
                 {{ $.Release.Name }}-{{ $i }}\ndata:\n  text: {{ range until 9000 }}{{ sha256sum \
                 (printf \"%d/%d\" $i .) }}{{ end }}\n{{ end }}\n";
    let files = [("helm-charts/shop/templates/large.yaml", large)];
    let world = or_skip!(World::with("cli-large", &files).await);
    let file = world.file("main", &json!({}));
    world.apply("main", json!({})).await;
    world.until("main", 1, "True").await;
    let secrets: Api<Secret> = world.namespace.api();
    let of_operator = ListParams::default().labels("owner=hybrid-operator");
    let parts = secrets.list(&of_operator).await.unwrap().items;
    assert!(!parts.is_empty(), "the record is in one Secret");
    let preview = world.run(&format!("template --cr {file} --no-hooks")).ok();
    let manifest = world.run("get manifest shop/main").ok();
    assert!(preview.trim() == manifest.trim(), "the manifests differ");
    assert_eq!(world.run("history shop/main").ok().lines().count(), 2);
}

#[tokio::test]
async fn content_of_releases_is_printed_as_by_helm() {
    let program = or_skip!(helm::ensure_or_skip().unwrap());
    let world = or_skip!(World::start("cli-helm").await);
    let spec = json!({"replicas": 2, "extra": {"kept": null}});
    world.apply("main", spec).await;
    world.until("main", 1, "True").await;
    let helm = |args: &str| {
        let output = Command::new(&program)
            .args(args.split_whitespace())
            .args(["--namespace", world.namespace.name()])
            .env("KUBECONFIG", world.plane.kubeconfig_path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{args}");
        String::from_utf8(output.stdout).unwrap()
    };
    for (what, more) in [
        ("values", ""),
        ("values", "--all"),
        ("values", "--all -o yaml"),
        ("values", "--revision 1"),
        ("manifest", ""),
        ("notes", ""),
        ("hooks", ""),
    ] {
        let ours = world.run(&format!("get {what} shop/main {more}")).ok();
        let theirs = helm(&format!("get {what} main {more}"));
        assert_eq!(ours, theirs, "{what} {more}");
    }
    let ours = world.json("history shop/main");
    let theirs: Value = serde_json::from_str(&helm("history main -o json")).unwrap();
    for field in ["revision", "status", "chart", "app_version", "description"] {
        assert_eq!(ours[0][field], theirs[0][field], "{field}");
    }
}

#[tokio::test]
async fn a_rollback_sets_the_spec_to_the_values_of_the_revision() {
    let world = or_skip!(World::start("cli-rollback").await);
    world.apply("main", json!({"replicas": 1})).await;
    world.until("main", 1, "True").await;
    let alone = world.run("rollback shop/main --yes").failed();
    alone.must_have("has no earlier revision that was deployed");
    world.apply("main", json!({"replicas": 3})).await;
    world.until("main", 2, "True").await;

    let shown = world.run("rollback shop/main --dry-run").ok();
    shown.must_have("-replicas: 3\n+replicas: 1\n");
    let unconfirmed = world.run("rollback shop/main").failed();
    unconfirmed.must_have("confirm with --yes");
    let missing = world.run("rollback shop/main 7").failed();
    missing.must_have("has no revision 7; it has 1, 2");
    let spec = async || world.shops().get("main").await.unwrap().data["spec"].clone();
    assert_eq!(spec().await, json!({"replicas": 3}));

    let done = world.run("rollback shop/main --yes").ok();
    done.must_have("has the values of revision 1 again");
    assert_eq!(spec().await, json!({"replicas": 1}));
    world.until("main", 3, "True").await;
    let history = world.json("history shop/main");
    let revisions = history.as_array().unwrap().iter();
    let statuses: Vec<&Value> = revisions.map(|revision| &revision["status"]).collect();
    assert_eq!(statuses, ["superseded", "superseded", "deployed"]);
    let first = world.run("get manifest shop/main --revision 1").ok();
    assert_eq!(world.run("get manifest shop/main").ok(), first);
    let again = world.run("rollback shop/main 1 --yes").ok();
    again.must_have("already has the values of revision 1");
}

#[tokio::test]
async fn status_shows_releases_their_objects_and_why_pods_do_not_run() {
    let world = or_skip!(World::start("cli-status").await);
    let empty = world.run("status").ok();
    let none = "no custom resources of Shop in namespace";
    assert!(empty.starts_with(none), "{empty}");
    let absent = world.run("status shop/main").failed();
    absent.must_have("Shop main does not exist in namespace");
    world.apply("main", json!({})).await;
    let nowhere = json!({"nodeSelector": {"no": "node"}});
    world.apply("stuck", nowhere).await;
    world.until("main", 1, "True").await;
    world.until("stuck", 1, "False").await;

    let rows = world.json("status");
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 2, "{rows:?}");
    for (row, (name, ready)) in rows.iter().zip([("main", "True"), ("stuck", "False")]) {
        assert_eq!(row["name"], name);
        assert_eq!(row["ready"], ready);
        assert_eq!(row["revision"], 1);
        assert_eq!(row["chart"], "shop-1.2.3");
    }
    let table = world.run("status").ok();
    let heading = table.lines().next().unwrap();
    let columns: Vec<&str> = heading.split_whitespace().collect();
    let expected = "NAMESPACE KIND NAME READY REASON RELEASE REVISION CHART AGE";
    assert_eq!(columns.join(" "), expected);

    let tree = world.run("status shop/main").ok();
    for part in [
        "├─ Conditions",
        "Ready=True",
        "└─ Release main, revision 1, deployed, chart",
    ] {
        tree.must_have(part);
    }
    // Ready workloads are not opened.
    tree.must_lack("Pod ");
    // The scheduler may need a moment.
    let mut tree = String::new();
    let explained = async || {
        tree = world.run("status shop/stuck").ok();
        tree.contains("Unschedulable")
    };
    let waited = wait::until(LIMIT, "the reason of the Pod", explained).await;
    assert!(waited.is_ok(), "{tree}");
    tree.must_have("Deployment.apps");
    tree.must_have("InProgress: ");
    tree.must_have("      └─ Pod stuck-");

    let events = world.json("events shop/stuck");
    let events = events.as_array().unwrap();
    let has = |reason: &str, object: &str| {
        events.iter().any(|event| {
            let name = event["object"].as_str().unwrap_or_default();
            event["reason"] == reason && name.starts_with(object)
        })
    };
    assert!(has("InstallSuccessful", "Shop/stuck"), "{events:?}");
    assert!(has("ScalingReplicaSet", "Deployment/stuck"), "{events:?}");
    assert!(has("FailedScheduling", "Pod/stuck-"), "{events:?}");
    let others = events.iter().filter(|event| event["object"] == "Shop/main");
    assert_eq!(others.count(), 0, "{events:?}");
}

#[tokio::test]
async fn a_followed_status_appends_a_line_for_each_change() {
    let world = or_skip!(World::start("cli-follow").await);
    world.apply("main", json!({})).await;
    world.until("main", 1, "True").await;
    let mut command = world.command(world.plane.kubeconfig_path(), "status --watch");
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let expected = format!("Shop {}/main Ready=True", world.namespace.name());
    first.must_have("revision=1");
    assert!(first.starts_with(&expected), "{first}");
    world.apply("main", json!({"replicas": 2})).await;
    // Ends with the line, or when the program ends.
    let second = lines
        .map_while(Result::ok)
        .find(|line| line.contains("revision=2"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(second.is_some());
}

#[tokio::test]
async fn followed_events_are_printed_once_until_interrupted() {
    let world = or_skip!(World::start("cli-watch").await);
    world.apply("main", json!({})).await;
    world.until("main", 1, "True").await;
    let arguments = "events shop/main --watch --output json";
    let mut command = world.command(world.plane.kubeconfig_path(), arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut seen = Vec::new();
    // Ends with the event, or when the program ends.
    let mut until = |reason: &str, object: &str| {
        for line in lines.by_ref().map_while(Result::ok) {
            let event: Value = serde_json::from_str(&line).unwrap();
            seen.push(line);
            let name = event["object"].as_str().unwrap_or_default();
            if event["reason"] == reason && name.starts_with(object) {
                return seen.clone();
            }
        }
        panic!("the program ended: {seen:?}")
    };
    drop(until("InstallSuccessful", "Shop/main"));
    world.apply("main", json!({"replicas": 2})).await;
    drop(until("UpgradeSuccessful", "Shop/main"));
    // A Pod that did not exist when the command began.
    let nowhere = json!({"nodeSelector": {"no": "node"}});
    world.apply("main", nowhere).await;
    let seen = until("FailedScheduling", "Pod/main-");
    let unique: std::collections::BTreeSet<&String> = seen.iter().collect();
    assert_eq!(unique.len(), seen.len(), "{seen:#?}");
    let process = child.id().to_string();
    let interrupted = Command::new("kill").args(["-INT", &process]).status();
    assert!(interrupted.unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn custom_resources_are_completed_from_the_cluster() {
    let world = or_skip!(World::start("cli-complete").await);
    for name in ["main", "other"] {
        world.apply(name, json!({})).await;
    }
    let namespace = world.namespace.name();
    let answer = |command: &mut Command, kubeconfig: &Path| {
        let command = command.current_dir(world.project.0.path());
        let output = command.env("KUBECONFIG", kubeconfig).output().unwrap();
        let errors = support::text(&output.stderr);
        assert!(output.status.success(), "{errors}");
        (String::from_utf8(output.stdout).unwrap(), errors)
    };
    let reachable = world.plane.kubeconfig_path();
    let fish = |kubeconfig: &Path, words: &[&str]| {
        let mut command = Command::new(PROGRAM);
        let command = command.args(["--", "hybrid-operator"]).args(words);
        let (out, errors) = answer(command.env("HYBRID_OPERATOR_COMPLETE", "fish"), kubeconfig);
        assert_eq!(errors, "");
        out
    };
    for command in ["status", "history", "rollback", "events"] {
        assert_eq!(fish(reachable, &[command, "s"]), "shop/\n", "{command}");
        let names = fish(reachable, &[command, "-n", namespace, "shop/"]);
        assert_eq!(names, "shop/main\nshop/other\n", "{command}");
    }
    let option = format!("--namespace={namespace}");
    let one = fish(reachable, &["get", "values", &option, "shop/o"]);
    assert_eq!(one, "shop/other\n");
    for place in [
        &["-n", "none"][..],
        &["-n", namespace, "--watches-file", "none"],
    ] {
        let words = [&["status"], place, &["shop/"]].concat();
        assert_eq!(fish(reachable, &words), "", "{place:?}");
    }
    // Without a project, kinds come from the cluster, too.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = Command::new(PROGRAM);
    let command = command
        .args(["--", "hybrid-operator", "why", "-n", namespace, "sho"])
        .env("HYBRID_OPERATOR_COMPLETE", "fish")
        .env("KUBECONFIG", reachable)
        .current_dir(elsewhere.path());
    let kinds = Done::of(command.output().unwrap()).ok();
    assert_eq!(kinds, "shop/\n");
    // Nothing is printed where there is no cluster.
    let absent = world.project.0.path().join("none");
    assert_eq!(fish(&absent, &["status", "shop/"]), "");

    // kubectl calls a program of this name with the words after `kubectl hybrid`.
    let plugin = world.project.0.path().join("kubectl_complete-hybrid");
    std::os::unix::fs::symlink(PROGRAM, &plugin).unwrap();
    let mut command = Command::new(&plugin);
    let command = command.args(["history", "-n", namespace, "shop/m"]);
    assert_eq!(answer(command, reachable).0, "shop/main\n:4\n");

    // The script of bash, in bash.
    let words = format!("hybrid-operator history -n {namespace} shop/");
    let call = format!(
        "source <(\"{PROGRAM}\" completion bash)\nCOMP_WORDS=({words})\nCOMP_CWORD=4\nCOMP_TYPE=9\n\
         _clap_complete_hybrid_operator hybrid-operator shop/ {namespace}\nprintf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let mut command = Command::new("bash");
    let (out, errors) = answer(command.args(["-c", &call]), reachable);
    assert_eq!(out, "shop/main\nshop/other\n", "{errors}");
}

#[tokio::test]
async fn a_missing_permission_and_a_missing_release_are_named() {
    let world = or_skip!(World::start("cli-errors").await);
    let operator: PathBuf = world.plane.operator_kubeconfig();
    let denied = world.run_as(&operator, "status").failed();
    for part in [
        "cannot list shops.cli.example.com in namespace",
        "allow the verb \"list\" on the resource \"shops.cli.example.com\"",
    ] {
        denied.must_have(part);
    }
    // A kind that is not installed does not hide the others.
    world.apply("main", json!({})).await;
    let missing = WATCHES.replace("kind: Shop", "kind: Missing");
    let two = format!("{WATCHES}{missing}");
    world.project.write("two.yaml", &two);
    let done = world.run("status --watches-file two.yaml");
    let warning = "warning: the cluster does not serve Missing of cli.example.com/v1; install";
    done.err.must_have(warning);
    done.ok().must_have("Shop");
    // The operator does not see a custom resource of another namespace.
    let other = TestNamespace::create(world.plane, "cli-unseen").await;
    let other = other.unwrap();
    apply(&shops(&other), &shop("lost", &json!({}))).await;
    for args in ["history shop/lost", "get values shop/lost"] {
        let output = Command::new(PROGRAM)
            .args(args.split(' '))
            .args(["--namespace", other.name()])
            .env("KUBECONFIG", world.plane.kubeconfig_path())
            .current_dir(world.project.0.path())
            .output();
        let err = Done::of(output.unwrap()).failed();
        err.must_have("has no release yet; the operator has not seen it");
    }
}

#[tokio::test]
async fn a_custom_resource_that_is_nested_too_deep_hides_no_other_one() {
    let world = or_skip!(World::start("cli-nested").await);
    world.apply("good", json!({})).await;
    world.until("good", 1, "True").await;
    let levels = 5_000;
    let deep = format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    let body = format!(
        r#"{{"apiVersion": "cli.example.com/v1", "kind": "Shop", "metadata": {{"name": "nested"}}, "spec": {{"extra": {deep}}}}}"#
    );
    let shops = world.shops().resource_url().to_owned();
    let request = http::Request::post(&shops).header("Content-Type", "application/json");
    let request = request.body(body.into_bytes()).unwrap();
    let client = world.namespace.client();
    client.request_text(request).await.unwrap();
    let reported = wait::until(LIMIT, "the condition of the nested one", async || {
        let rows = world.json("status");
        let good = rows[0]["name"] == "good" && rows[0]["ready"] == "True";
        let text = rows[1]["message"].as_str().unwrap_or_default();
        if good && rows[1]["name"] == "nested" && text.contains("nested deeper than 120 levels") {
            Check::Met(())
        } else {
            Check::NotYet(rows.to_string())
        }
    });
    reported.await.unwrap();
    let one = world.run("status shop/nested").ok();
    one.must_have("nested deeper than 120 levels");
    let path = format!("{shops}/nested");
    let request = http::Request::delete(path).body(Vec::new()).unwrap();
    client.request_text(request).await.unwrap();
}
