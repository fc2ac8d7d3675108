//! Tests of `init` and `create`: the program is run in a temporary directory, without a terminal.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hybrid_operator_test::helm;
use tempfile::TempDir;

use support::{Done, PROGRAM, Text as _, files, or_skip, text, write};

#[path = "scaffold/bad_input.rs"]
mod bad_input;
#[path = "scaffold/make.rs"]
mod make;

/// Files of the repository's root that differ from what the commands write, and why.
const DIFFERENT: &str = "
    Cargo.toml is also the workspace of the framework
    README.md is about the framework
    config/samples/cache_v1alpha1_memcached.yaml sets only the values that the demo shows
    src/api/v1alpha1.rs has the fields of the finished type
    config/crd/bases/cache.example.com_memcachedbackups.yaml has the fields of that type
    config/samples/cache_v1alpha1_memcachedbackup.yaml sets the fields of that type
    src/controllers/memcached_backup/mod.rs is a finished controller
    src/controllers/memcached_backup/desired.rs is part of that controller
    src/controllers/memcached_backup/status.rs is part of that controller
    config/rbac/native/memcachedbackup_role.yaml allows what that controller does
";

/// Files that only the repository's root has in the directories of a project, and why.
const ONLY_IN_ROOT: &str = "
    src/controllers/memcached_backup/source.rs reads the release that the finished controller copies
";

fn root() -> PathBuf {
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap()
}

fn memcached() -> String {
    root().join("helm-charts/memcached").display().to_string()
}

/// Runs the program with arguments that are separated by spaces.
fn run(directory: &Path, arguments: &str) -> Output {
    start(directory, &arguments.split_whitespace().collect::<Vec<_>>())
}

fn start(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(PROGRAM)
        .args(arguments)
        .current_dir(directory)
        // The repositories that the user added to Helm are not part of the tests.
        .env("HELM_REPOSITORY_CONFIG", "/nonexistent/repositories.yaml")
        .output()
        .unwrap()
}

/// Runs the program, which must succeed, and returns its output.
#[track_caller]
fn ok(directory: &Path, arguments: &str) -> String {
    let output = run(directory, arguments);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{arguments}\n{out}{err}");
    out
}

/// Makes a project in a temporary directory with `init`.
fn project(flags: &str) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let init = format!("init --domain example.com {flags}");
    ok(directory.path(), &init);
    directory
}

/// Runs the program, which must fail with this message.
#[track_caller]
fn refused(directory: &Path, arguments: &str, message: &str) -> Done {
    let done = Done::of(run(directory, arguments));
    assert_eq!(done.code, Some(1), "{arguments}");
    done.err.must_have(message);
    done
}

fn names(table: &str) -> Vec<&str> {
    let lines = table.lines().map(str::trim_start);
    lines
        .filter_map(|line| Some(line.split_once(' ')?.0))
        .collect()
}

#[test]
fn the_root_of_the_repository_is_what_init_and_create_write() {
    let with = "--with monitoring,olm,scorecard";
    let directory = project(&format!("--project-name memcached-operator {with}"));
    let kind = "create api --group cache --version v1alpha1 --kind";
    for flags in [
        format!("Memcached --helm-chart {}", memcached()),
        "MemcachedBackup --native".to_owned(),
    ] {
        ok(directory.path(), &format!("{kind} {flags}"));
    }
    let mut written = files(directory.path());
    let licence = tempfile::tempdir().unwrap();
    let mut arguments = vec!["init", "--owner", "2026 Tomas Tauber"];
    arguments.extend(
        "--license apache2 --domain example.com --project-name memcached-operator".split(' '),
    );
    assert!(start(licence.path(), &arguments).status.success());
    let licence = fs::read(licence.path().join("LICENSE")).unwrap();
    written.insert("LICENSE".to_owned(), licence);

    let different = names(DIFFERENT);
    for (path, data) in &written {
        let present = fs::read(root().join(path));
        let present = present.unwrap_or_else(|error| panic!("the root has no {path}: {error}"));
        if different.contains(&path.as_str()) {
            assert!(
                present != *data,
                "{path} is equal; remove it from the table of differences"
            );
        } else {
            let why = "what is written, and what is in the root";
            assert_eq!(text(data), text(&present), "{path}: {why}");
        }
    }
    for path in &different {
        assert!(written.contains_key(*path), "{path} is not written");
    }
    let only_in_root = names(ONLY_IN_ROOT);
    for folder in ["src", "config", "helm-charts"] {
        for name in files(&root().join(folder)).into_keys() {
            let path = format!("{folder}/{name}");
            let is_written = !only_in_root.contains(&path.as_str());
            assert_eq!(written.contains_key(&path), is_written, "{path}");
        }
    }
}

/// The files of `init` for charts alone, and those that `--with` adds.
const WRITTEN: &str = "
    .dockerignore .gitignore Dockerfile Makefile PROJECT README.md watches.yaml
    config/crd/kustomization.yaml config/samples/kustomization.yaml
    config/default/kustomization.yaml config/default/metrics_service.yaml
    config/manager/kustomization.yaml config/manager/manager.yaml
    config/rbac/kustomization.yaml config/rbac/service_account.yaml
    config/rbac/leader_election_role.yaml config/rbac/leader_election_role_binding.yaml
    config/rbac/metrics_auth_role.yaml config/rbac/metrics_auth_role_binding.yaml
    config/rbac/metrics_reader_role.yaml
    config/rbac/operator_role.yaml config/rbac/operator_role_binding.yaml";
const EXTRAS: [(&str, &str); 4] = [
    (
        "monitoring",
        "config/grafana/operator.json config/network-policy/allow-metrics-traffic.yaml \
         config/network-policy/kustomization.yaml config/prometheus/alerts.yaml \
         config/prometheus/kustomization.yaml config/prometheus/monitor.yaml",
    ),
    ("olm", "olm.mk"),
    (
        "scorecard",
        "config/scorecard/config.yaml config/scorecard/kustomization.yaml",
    ),
    ("ci", ".github/workflows/ci.yml ci.mk tests/samples"),
];

#[test]
fn a_project_has_what_everybody_needs_and_the_rest_on_request() {
    let init = "--project-name shop-operator --plugins helm";
    let plain = project(init);
    let mut expected: Vec<&str> = WRITTEN.split_whitespace().collect();
    let written = |root: &Path| files(root).into_keys().collect::<Vec<_>>();
    expected.sort_unstable();
    assert_eq!(written(plain.path()), expected);
    check_kustomizations(plain.path());
    // One after the other in a project that is there already, and all at once.
    let again = format!("init --domain example.com {init}");
    for (extra, names) in EXTRAS {
        ok(plain.path(), &format!("{again} --with {extra}"));
        expected.extend(names.split(' '));
        expected.sort_unstable();
        assert_eq!(written(plain.path()), expected, "{extra}");
    }
    check_kustomizations(plain.path());
    let all = format!("{again} --with monitoring,olm,scorecard,ci");
    let nothing = "Nothing to do: all files are there already.";
    ok(plain.path(), &all).must_have(nothing);
    ok(plain.path(), &again).must_have(nothing);
    let at_once = project(&format!("{init} --with monitoring,olm,scorecard,ci"));
    assert_eq!(files(at_once.path()), files(plain.path()));
    let workflow = text(&files(plain.path())[".github/workflows/ci.yml"]);
    let installed = concat!(
        "cargo install --locked hybrid-operator-cli@",
        env!("CARGO_PKG_VERSION")
    );
    workflow.must_have(installed);
    go_yaml::from_str::<serde_json::Value>(&workflow).unwrap();
}

#[test]
fn the_framework_is_a_revision_of_a_repository() {
    let url = "https://git.example.com/hybrid-operator.git";
    let directory = project(&format!(
        "--project-name shop-operator --with ci --framework {url}#v1.2.3"
    ));
    let read = |path: &str| fs::read_to_string(directory.path().join(path)).unwrap();
    let dependency = format!("hybrid-operator = {{ git = \"{url}\", rev = \"v1.2.3\" }}\n");
    read("Cargo.toml").must_have(&dependency);
    let workflow = read(".github/workflows/ci.yml");
    workflow.must_have(&format!(
        "cargo install --locked --git {url} --rev v1.2.3 hybrid-operator-cli\n"
    ));
}

#[test]
fn a_second_run_changes_nothing_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let init = "init --domain example.com --project-name shop-operator";
    let chart = "create api --group apps --version v1 --kind Shop";
    let native = "create api --group apps --version v1 --kind Order --native";
    let webhook = "create webhook --group apps --version v1 --kind Order --defaulting --programmatic-validation";
    for command in [init, chart, native, webhook] {
        assert!(ok(root, command).contains("\nNext:\n"), "{command}");
    }
    let before = files(root);
    for command in [init, chart, native, webhook] {
        let output = ok(root, command);
        let done = output.ends_with("\nNothing to do: all files are there already.\n");
        assert!(done, "{output}");
        output.must_lack("update ");
    }
    assert_eq!(files(root), before);
}

#[test]
fn a_kind_gets_another_version_and_a_conversion() {
    let directory = project("--project-name shop-operator");
    let root = directory.path();
    let versioned = |what: &str, version: &str, flags: &str| {
        format!("create {what} --group apps --version {version} --kind Order {flags}")
    };
    let native = |version: &str, flags: &str| versioned("api --native", version, flags);
    let conversion = |version: &str| versioned("webhook", version, "--conversion");
    ok(root, &native("v1", "--plural orderz"));
    for (command, message) in [
        (
            conversion("v1"),
            "has no version to convert v1 to; add one with",
        ),
        (native("v2", "--plural orders"), "use --plural orderz"),
        (native("v2", "--namespaced=false"), "use --namespaced=true"),
        (
            native("v2", "--controller"),
            "has a controller for version v1 already",
        ),
    ] {
        refused(root, &command, message);
    }
    let commands = [
        native("v1", "--plural orderz"),
        native("v2", ""),
        conversion("v1"),
    ];
    for command in &commands {
        ok(root, command);
    }
    let hub = "the conversions of Order have the hub v1";
    refused(root, &conversion("v2"), hub);
    let spoke = format!("{} --spoke v3", conversion("v1"));
    refused(root, &spoke, "no native kind Order of apps.example.com/v3");

    let written = files(root);
    let yaml = |path: &str| -> serde_json::Value { go_yaml::from_slice(&written[path]).unwrap() };
    let crd = yaml("config/crd/bases/apps.example.com_orderz.yaml");
    let versions = crd["spec"]["versions"].as_array().unwrap().iter();
    let versions: Vec<_> = versions
        .map(|version| {
            (
                version["name"].as_str().unwrap(),
                version["storage"] == true,
            )
        })
        .collect();
    assert_eq!(versions, [("v1", true), ("v2", false)]);
    let project = yaml("PROJECT");
    let (first, second) = (&project["resources"][0], &project["resources"][1]);
    let webhooks = serde_json::json!({"webhookVersion": "v1", "conversion": true, "spoke": ["v2"]});
    assert_eq!(first["webhooks"], webhooks);
    assert_eq!(first["controller"], true);
    assert!(second["controller"].is_null());
    let listed = text(&written["config/webhook/kustomization.yaml"]);
    listed.must_have("- conversion_role.yaml\n");
    let sample = text(&written["config/samples/apps_v2_order.yaml"]);
    sample.must_have("name: order-v2-sample");

    // A third version, and functions beside the conversions.
    for command in &commands {
        let output = ok(root, command);
        let done = output.ends_with("all files are there already.\n");
        assert!(done, "{output}");
    }
    for command in [
        native("v3", ""),
        conversion("v1"),
        versioned("webhook", "v1", "--programmatic-validation"),
    ] {
        ok(root, &command);
    }
    let webhooks = fs::read_to_string(root.join("src/webhooks/mod.rs")).unwrap();
    for module in ["order", "order_conversion_v2", "order_conversion_v3"] {
        let call = format!("webhooks = {module}::add(webhooks);");
        assert_eq!(webhooks.matches(&call).count(), 1, "{webhooks}");
    }
    let project = fs::read_to_string(root.join("PROJECT")).unwrap();
    project.must_have("spoke:\n    - v2\n    - v3\n    validation: true\n");
}

#[test]
fn files_that_were_changed_are_kept_unless_forced() {
    let directory = project("--plugins helm --project-name shop-operator");
    let root = directory.path();
    let chart = "create api --group apps --version v1 --kind Shop";
    ok(root, chart);
    let values = root.join("helm-charts/shop/values.yaml");
    let own = fs::read_to_string(&values).unwrap();
    let own = own.replace("replicaCount: 1", "replicaCount: 7");
    fs::write(&values, &own).unwrap();
    // One of the files is missing too; it must not be written alone.
    fs::remove_file(root.join("config/rbac/shop_admin_role.yaml")).unwrap();
    let before = files(root);
    let why = "nothing was written, because these files have other content: helm-charts/shop/values.yaml; ";
    let out = refused(root, chart, why).out;
    out.must_have("-replicaCount: 7\n+replicaCount: 1\n");
    assert_eq!(files(root), before);
    let output = ok(root, &format!("{chart} --force"));
    output.must_have("update    helm-charts/shop/values.yaml\n");
    output.must_have("create    config/rbac/shop_admin_role.yaml\n");
}

#[test]
fn a_project_of_charts_has_no_code_and_its_kustomizations_are_complete() {
    // The kind is named after the chart.
    let flags = "--plugins helm --project-name cache-operator --helm-chart";
    let directory = project(&format!("{flags} {}", memcached()));
    let root = directory.path();
    let proxy = "create api --group apps --version v1 --kind Proxy --namespaced=false";
    ok(root, proxy);
    let files = files(root);
    let code = files
        .keys()
        .filter(|path| path.contains(".rs") || path.contains("argo"));
    assert_eq!(code.collect::<Vec<_>>(), Vec::<&String>::new());
    let watches = text(&files["watches.yaml"]);
    let expected = "# Each entry binds a kind of custom resource to a chart.
- group: charts.example.com
  version: v1alpha1
  kind: Memcached
  chart: helm-charts/memcached
- group: apps.example.com
  version: v1
  kind: Proxy
  chart: helm-charts/proxy
";
    assert_eq!(watches, expected);
    let crd = text(&files["config/crd/bases/apps.example.com_proxies.yaml"]);
    crd.must_have("scope: Cluster");
    let version = env!("CARGO_PKG_VERSION");
    let base = format!("ARG BASE_IMG=localhost/hybrid-operator:v{version}\nFROM $BASE_IMG\n");
    text(&files["Dockerfile"]).must_have(&base);
    assert!(text(&files["PROJECT"]).contains("- helm.sdk.operatorframework.io/v1\n"));
    check_kustomizations(root);
}

#[test]
fn a_chart_makes_a_project_without_code_and_what_was_assumed_is_said() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| {
        let folder = directory.path().join(name);
        fs::create_dir(&folder).unwrap();
        folder
    };
    let chart = format!("--helm-chart {}", memcached());
    let layout = |root: &Path| fs::read_to_string(root.join("PROJECT")).unwrap();
    let of_chart = "--group charts --version v1alpha1 --kind Memcached";

    let root = at("cache-operator");
    let init = format!("init --domain example.com {chart}");
    let output = ok(&root, &init);
    let assumed = format!("Assumed: --plugins helm --project-name cache-operator {of_chart}\n");
    assert!(output.starts_with(&assumed), "{output}");
    assert!(layout(&root).contains("- helm.sdk.operatorframework.io/v1\n"));
    assert!(!root.join("Cargo.toml").exists());
    let (_, next) = output.split_once("\nNext:\n").unwrap();
    assert!(next.starts_with("  hybrid-operator dev "), "{next}");
    // What is said can be given, and is the same.
    let before = files(&root);
    let given = assumed.trim_end().trim_start_matches("Assumed: ");
    let again = ok(&root, &format!("{init} {given}"));
    again.must_lack("Assumed");
    assert!(again.ends_with("all files are there already.\n"), "{again}");
    assert_eq!(files(&root), before);
    let added = ok(&root, &format!("create api {chart} --kind Memcached"));
    let assumed = "Assumed: --group charts --version v1alpha1\n";
    assert!(added.starts_with(assumed), "{added}");

    // Without a chart, and in a project of that kind also with one.
    let root = at("web-operator");
    let assumed = "Assumed: --plugins hybrid --project-name web-operator";
    let output = ok(&root, "init --domain example.com");
    assert!(output.starts_with(&format!("{assumed}\n")), "{output}");
    let output = ok(&root, &init);
    let start = format!("{assumed} {of_chart}\n");
    assert!(output.starts_with(&start), "{output}");
    assert!(layout(&root).contains("- hybrid-operator.sdk.operatorframework.io/v1\n"));
}

#[test]
fn another_version_of_a_chart_replaces_the_former_one_whole() {
    let directory = tempfile::tempdir().unwrap();
    let chart = |version: &str, template: &str| {
        let folder = directory.path().join(version).join("cache");
        let metadata = format!("apiVersion: v2\nname: cache\nversion: {version}\n");
        write(&folder.join("Chart.yaml"), &metadata);
        write(&folder.join(".helmignore"), "*.bak\n");
        write(&folder.join(template), "");
        format!("--helm-chart {}", folder.display())
    };
    let root = directory.path().join("operator");
    fs::create_dir(&root).unwrap();
    let first = chart("1.0.0", "templates/set.yaml");
    ok(&root, &format!("init --domain example.com {first}"));
    // What is ignored is no part of the chart.
    let notes = root.join("helm-charts/cache/notes.bak");
    write(&notes, "");
    let second = format!("create api {}", chart("2.0.0", "templates/sets.yaml"));
    let before = files(&root);
    let set = "helm-charts/cache/templates/set.yaml";
    refused(&root, &second, &format!("{set} (not in the chart)"));
    assert_eq!(files(&root), before);
    let output = ok(&root, &format!("{second} --force"));
    output.must_have(&format!("delete    {set}\n"));
    assert!(!root.join(set).exists() && notes.exists());
    assert!(root.join("helm-charts/cache/templates/sets.yaml").exists());
    let again = ok(&root, &second);
    assert!(again.ends_with("all files are there already.\n"), "{again}");
}

/// Checks that each resource of each kustomization exists, and that no manifest was forgotten.
fn check_kustomizations(root: &Path) {
    let mut listed = Vec::new();
    let always = ["crd", "default", "manager", "rbac", "samples"];
    let optional = ["network-policy", "prometheus", "scorecard"];
    let config = root.join("config");
    let there = optional
        .into_iter()
        .filter(|folder| config.join(folder).exists());
    for folder in always.into_iter().chain(there) {
        let folder = config.join(folder);
        let text = fs::read_to_string(folder.join("kustomization.yaml")).unwrap();
        for line in text.lines() {
            let path = line.strip_prefix("- ");
            if let Some(path) = path.filter(|path| !path.starts_with("name:")) {
                let path = fs::canonicalize(folder.join(path));
                listed.push(path.unwrap_or_else(|error| panic!("{line}: {error}")));
            }
        }
    }
    for folder in ["crd", "rbac", "samples"] {
        let folder = fs::canonicalize(root.join("config").join(folder)).unwrap();
        for path in files(&folder).into_keys() {
            let is_listed = path == "kustomization.yaml" || listed.contains(&folder.join(&path));
            assert!(is_listed, "{path} is not listed");
        }
    }
}

#[test]
fn an_archive_is_unpacked_like_the_directory_it_was_made_of() {
    let directory = tempfile::tempdir().unwrap();
    let archive = directory.path().join("memcached.tgz");
    let tar = Command::new("tar")
        .arg("-czf")
        .arg(&archive)
        .arg("-C")
        .arg(root().join("helm-charts"))
        .arg("memcached")
        .status();
    assert!(tar.unwrap().success());
    let written = |chart: &str| {
        let made = project(&format!(
            "--plugins helm --project-name p --helm-chart {chart}"
        ));
        files(made.path())
    };
    assert_eq!(written(&memcached()), written(archive.to_str().unwrap()));
}

#[test]
fn the_errors_in_the_documentation_are_those_of_the_commands() {
    let page = fs::read_to_string(root().join("docs/reference/cli.md")).unwrap();
    let (_, page) = page
        .split_once("\n### Errors of `init` and `create`\n")
        .unwrap();
    let (page, _) = page.split_once("\n## ").unwrap();
    let directory = tempfile::tempdir().unwrap();
    // Its name can be that of a project.
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let project = project("--plugins helm --project-name project");
    let lines: Vec<&str> = page.lines().collect();
    let mut compared = 0;
    for pair in lines.windows(2) {
        let [command, error] = pair else { continue };
        let command = command.strip_prefix("$ hybrid-operator ");
        let (Some(command), true) = (command, error.starts_with("Error: ")) else {
            continue;
        };
        let folder = if command.starts_with("init") {
            &empty
        } else {
            project.path()
        };
        let output = run(folder, command.trim_end_matches(" < /dev/null"));
        let printed = text(&output.stderr);
        let printed = printed.replace("/nonexistent/", "/home/me/.config/helm/");
        let is_printed = printed.lines().any(|line| line == *error);
        assert!(is_printed, "{command}: {printed}");
        compared += 1;
    }
    assert_eq!(compared, 4);
}

/// Shells put the home directory in place of `~` only at the start of a word.
#[test]
fn a_chart_in_the_home_directory_is_found_behind_an_equals_sign() {
    let home = tempfile::tempdir().unwrap();
    let chart = home.path().join("web");
    let metadata = "apiVersion: v2\nname: web\nversion: 1.0.0\n";
    write(&chart.join("Chart.yaml"), metadata);
    write(&chart.join("values.yaml"), "size: 1\n");
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n";
    write(&chart.join("templates/map.yaml"), map);
    let directory = tempfile::tempdir().unwrap();
    let project = directory.path();
    let run = |arguments: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(arguments.split_whitespace());
        command.current_dir(project).env("HOME", home.path());
        Done::of(command.output().unwrap())
    };
    for arguments in [
        "init --plugins=helm --domain=example.com --project-name=web --helm-chart=~/web",
        "create api --group=shop --version=v1 --kind=Web --helm-chart=~/web/ --force",
        "template web ~/web",
        "lint ~/web",
        "generate types --chart=~/web",
        "generate rbac --previous-chart=~/web",
    ] {
        let done = run(arguments);
        assert_eq!(done.code, Some(0), "{arguments}: {}", done.err);
    }
    let done = run("create api --helm-chart=~/none");
    assert_ne!(done.code, Some(0));
    let missing = home.path().join("none").display().to_string();
    done.err.must_have(&missing);
    // A directory of this name comes first, as for Helm.
    fs::create_dir_all(project.join("~")).unwrap();
    fs::rename(&chart, project.join("~/web")).unwrap();
    let out = run("template web ~/web").ok();
    out.must_have("kind: ConfigMap");
}

#[test]
fn a_new_chart_has_the_files_and_renders_the_objects_of_helm_create() {
    let helm = or_skip!(helm::ensure_or_skip().unwrap());
    let directory = project("--plugins helm --project-name p --group a --version v1 --kind Shop");
    let directory = directory.path();
    let ours = directory.join("helm-charts/shop");
    let theirs = directory.join("shop");
    let helm = |arguments: &str| {
        let mut command = Command::new(&helm);
        command.args(arguments.split(' ')).current_dir(directory);
        Done::of(command.output().unwrap()).ok()
    };
    helm("create shop");
    let (our_files, their_files) = (files(&ours), files(&theirs));
    let names = our_files.keys();
    assert!(names.clone().eq(their_files.keys()), "{names:?}");
    let everything = r#"{
        "replicaCount": 3, "image": {"tag": "2"}, "imagePullSecrets": [{"name": "a"}],
        "nameOverride": "other", "serviceAccount": {"annotations": {"a": "b"}, "name": "sa"},
        "podAnnotations": {"x": "y"}, "podLabels": {"l": "m"}, "podSecurityContext": {"fsGroup": 1},
        "securityContext": {"runAsUser": 1}, "service": {"type": "NodePort", "port": 81},
        "ingress": {"enabled": true, "className": "c", "annotations": {"q": "r"},
            "tls": [{"secretName": "s", "hosts": ["h"]}]},
        "httpRoute": {"enabled": true, "annotations": {"z": "z"}},
        "resources": {"limits": {"cpu": 1}}, "volumes": [{"name": "v", "emptyDir": {}}],
        "autoscaling": {"enabled": true, "targetMemoryUtilizationPercentage": 70},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}], "nodeSelector": {"n": "o"},
        "tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": {}}}"#;
    let little = r#"{"fullnameOverride": "full", "serviceAccount": {"create": false}, "livenessProbe": null}"#;
    for values in ["{}", everything, little] {
        fs::write(directory.join("values.json"), values).unwrap();
        for release in ["web", "shop-two"] {
            let render = |chart: &Path| {
                let chart = chart.display();
                helm(&format!("template {release} {chart} --values values.json"))
            };
            assert_eq!(render(&ours), render(&theirs), "{values}");
        }
    }
}

#[test]
fn code_is_added_to_what_is_there() {
    let directory = project("--plugins native --project-name abc");
    let root = directory.path();
    let create = |what: &str, kind: &str| {
        let command = format!("create {what} --group apps --version v1 --kind {kind}");
        ok(root, &command);
    };
    // In a project without charts, kinds are native.
    create("api", "Order --controller=false");
    assert!(!root.join("src/controllers/order").exists());
    create("api", "Order --resource=false");
    create("api", "Bill --namespaced=false --plural bills");
    create("webhook", "Bill --programmatic-validation");
    let files = files(root);
    assert_eq!(
        text(&files["src/main.rs"]),
        r#"//! The program of abc: what runs in its manager.

use std::process::ExitCode;

use abc::controllers::bill;
use abc::controllers::order;
use abc::webhooks;
use hybrid_operator::operator::Operator;

fn main() -> ExitCode {
    Operator::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
        .about(env!("CARGO_PKG_DESCRIPTION"))
        .with(order::controller())
        .with(bill::controller())
        .with_webhooks(webhooks::webhooks())
        .main()
}
"#
    );
    assert!(text(&files["src/controllers/mod.rs"]).ends_with("\npub mod bill;\npub mod order;\n"));
    let modules = "\npub mod api;\npub mod controllers;\npub mod webhooks;\n";
    assert!(text(&files["src/lib.rs"]).ends_with(modules));
    let types = text(&files["src/api/v1.rs"]);
    assert_eq!(types.matches("use kube::CustomResource;").count(), 1);
    assert!(types.contains("pub struct OrderSpec") && types.contains("pub struct BillSpec"));
    assert!(!files.contains_key("watches.yaml"));
    check_kustomizations(root);
}

#[test]
fn a_place_that_is_not_found_is_named_and_nothing_is_written() {
    let directory = project("--plugins hybrid --project-name abc");
    let root = directory.path();
    let order = "create api --group apps --version v1 --kind Order --native";
    for (path, unusual, wanted) in [
        (
            "src/main.rs",
            "fn main() {}\n",
            "use abc::controllers::order;\n.with(order::controller())",
        ),
        (
            "config/crd/kustomization.yaml",
            "resources: [a.yaml]\n",
            "- bases/apps.example.com_orders.yaml",
        ),
    ] {
        let usual = fs::read(root.join(path)).unwrap();
        fs::write(root.join(path), unusual).unwrap();
        let before = files(root);
        let place = format!("cannot find the place in {path}");
        let err = refused(root, order, &place).err;
        err.must_have(wanted);
        assert_eq!(files(root), before);
        fs::write(root.join(path), usual).unwrap();
    }
    ok(root, order);
}

#[test]
fn a_chart_without_values_can_be_served() {
    let directory = tempfile::tempdir().unwrap();
    let chart = directory.path().join("bare");
    let metadata = "apiVersion: v2\nname: bare\nversion: 1.0.0\n";
    write(&chart.join("Chart.yaml"), metadata);
    let map = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    write(&chart.join("templates/a.yaml"), map);
    let project = directory.path().join("project");
    fs::create_dir(&project).unwrap();
    let init = "init --plugins helm --domain example.com --project-name p --helm-chart ../bare";
    ok(&project, init);
    let role = text(&files(&project)["config/rbac/charts/bare_role.yaml"]);
    role.must_have("configmaps");
}

/// Builds the reference project with the framework of this checkout, and runs its program.
///
/// Shares the compiled dependencies of the workspace, because it has the same versions, features and
/// profiles. What is compiled for it alone is the framework, once.
#[test]
fn a_project_compiles_and_its_program_runs() {
    // Its program must not take the place of that of the repository's own project.
    let flags = "--project-name scaffolded-operator --framework";
    let directory = project(&format!("{flags} {}", root().display()));
    let project = directory.path();
    let chart = format!(
        "api --version v1alpha1 --kind Memcached --helm-chart {}",
        memcached()
    );
    for create in [
        chart.as_str(),
        "api --version v1alpha1 --kind MemcachedBackup --native",
        "webhook --version v1alpha1 --kind MemcachedBackup --defaulting --programmatic-validation",
        "api --version v1 --kind Cluster --native --namespaced=false",
        "api --version v2 --kind Cluster --native --namespaced=false",
        "webhook --version v1 --kind Cluster --conversion",
    ] {
        ok(project, &format!("create {create} --group cache"));
    }
    // The generated code is formatted.
    let formatted = Command::new(env!("CARGO"))
        .args(["fmt", "--check"])
        .current_dir(project)
        .output()
        .unwrap();
    assert!(formatted.status.success(), "{}", text(&formatted.stdout));

    fs::copy(root().join("Cargo.lock"), project.join("Cargo.lock")).unwrap();
    write(
        &project.join("src/bin.rs"),
        "fn main() {\n    use hybrid_operator::native::crd;\n    use scaffolded_operator::api;\n    let versions = vec![crd::<api::v1::Cluster>(), crd::<api::v2::Cluster>()];\n    let cluster = kube::core::crd::merge_crds(versions, \"v1\").unwrap();\n    let crds = [crd::<api::v1alpha1::MemcachedBackup>(), cluster];\n    print!(\"{}\", serde_json::to_string(&crds).unwrap_or_default());\n}\n",
    );
    let manifest = project.join("Cargo.toml");
    let text_of_manifest = fs::read_to_string(&manifest).unwrap();
    let binaries = "[[bin]]\nname = \"scaffolded-operator\"\npath = \"src/main.rs\"\n\n[[bin]]\nname = \"scaffolded-crds\"\npath = \"src/bin.rs\"\n";
    let profile = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, profile) = profile.split_once("[profile.dev]").unwrap();
    let (profile, _) = profile.split_once("[profile.release]").unwrap();
    let text_of_manifest = format!("{text_of_manifest}\n{binaries}\n[profile.dev]{profile}");
    fs::write(&manifest, text_of_manifest).unwrap();

    // target/debug/hybrid-operator
    let target = Path::new(PROGRAM).ancestors().nth(2).unwrap();
    let cargo = |arguments: &str| {
        let output = Command::new(env!("CARGO"))
            .args(arguments.split(' '))
            .current_dir(project)
            .env("CARGO_TARGET_DIR", target)
            // For test programs only: with another value, everything is compiled again.
            .env_remove("RUSTC_BOOTSTRAP")
            .output()
            .unwrap();
        Done::of(output).ok()
    };
    let help = cargo("run --offline --quiet --bin scaffolded-operator -- run --help");
    help.must_have("--watches-file");

    let crds = cargo("run --offline --quiet --bin scaffolded-crds");
    let crds: Vec<serde_json::Value> = serde_json::from_str(&crds).unwrap();
    for (crd, name) in crds.iter().zip(["memcachedbackups", "clusters"]) {
        let path = format!("config/crd/bases/cache.example.com_{name}.yaml");
        let written = fs::read_to_string(project.join(path)).unwrap();
        assert_eq!(written, go_yaml::to_string(crd).unwrap());
    }
}
