//! The exit codes of all commands: 1 for an error, 2 for wrong usage, 3 for something to do.

#![allow(clippy::unwrap_used, reason = "a test fails with a panic")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hybrid_operator_test::skipped;
use support::{Done, PROGRAM, Project, alone, copy, or_skip};

/// Command lines that fail in an empty directory without a cluster: one of each command that can fail.
const ERRORS: &str = "
init --domain a.b --project-name p --framework none
create api --group a --version v1 --kind Shop
create webhook --group a --version v1 --kind Shop --defaulting
generate
generate chart
generate crds
generate rbac
generate dashboards
generate samples
generate protection
generate types
generate ring shops
generate health --argocd
generate watches-schema --output /dev/null/schema.json
olm bundle --version 1.0.0
olm catalog none --image a
olm validate none
image check none
charts lock
charts vendor
charts upgrade
dev
run --watches-file none
template none
diff none.yaml
lint none
status
history shop/main
rollback shop/main
get values shop/main
get manifest shop/main
get notes shop/main
get hooks shop/main
events shop/main
why shop/main
retry shop/main
reconcile shop/main
force shop/main
pause shop/main
resume shop/main
adopt shop/main
migrate none";

/// Commands that cannot fail.
const NEVER_FAIL: [&str; 2] = ["completion", "version"];

/// Wrong usage that only the commands themselves notice, in a project.
const USAGE: &str = "
init --domain Example.com
create api --group a --version v1 --kind shop
create api --helm-chart c --helm-chart-repo r.io
create api --plain-http
create chart --kind A
create webhook --group a --version v1 --kind Order
charts dependency build
charts upgrade --version newest
lint oci://r.io/a --verify --cosign-key a
diff --base HEAD -
diff config/samples/shop_v1_shop.yaml --kube-version 1.30
lint --kube-version latest
history shop/main --max 0
status --watch --output json
why main
pause
lint helm-charts/shop --version 1.0.0
lint oci://r.io/a --certificate-identity a
generate types --output ..
olm bundle --version 1.0.0 --channels a --default-channel b
olm bundle --version 1.0.0 --output-dir ..
olm catalog bundle --image a --output-dir ..
olm validate bundle --select-optional name=none
template Shop_1 helm-charts/shop
template a helm-charts/shop --generate-name
template helm-charts/shop --set a
template helm-charts/shop --kube-version latest
template helm-charts/shop --dry-run=server
template helm-charts/shop --name-template {{
template helm-charts/shop --values https://example.com/values.yaml
template helm-charts/shop --output-dir a --show-only b
template helm-charts/shop --output json";

/// Something to do, in a project whose files are out of date.
const TO_DO: &str = "
generate --check
generate chart --check
generate crds --check
generate crds --compat HEAD
generate dashboards --check
generate protection --check
generate rbac --check
generate samples --output-dir samples --check
generate types --output types.rs --check
generate ring shops --output ring.yaml --check
generate watches-schema --output schema.json --check
olm bundle --version 1.0.0 --check
olm catalog ../bundle --image a --check
olm validate ../broken
charts lock --check --watches-file remote.yaml
diff --base HEAD
lint --strict
migrate ../sdk
migrate ../sdk --check";

fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table.lines().filter(|line| !line.is_empty())
}

/// Returns the commands of the reference, without those that only have others below them, with their help.
fn commands() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    let page = fs::read_to_string(page).unwrap();
    let sections = page.split("\n## hybrid-operator").skip(1);
    let all: Vec<(String, String)> = sections
        .map(|section| {
            let (name, help) = section.split_once('\n').unwrap();
            (name.trim().to_owned(), help.to_owned())
        })
        .filter(|(name, help)| {
            let usage = format!("Usage: hybrid-operator {name} <COMMAND>\n");
            !name.is_empty() && !help.contains(&usage)
        })
        .collect();
    assert!(all.len() > 30, "{all:?}");
    all
}

/// Returns the command of a command line: the longest that it begins with.
fn command_of<'c>(line: &str, commands: &'c [(String, String)]) -> &'c str {
    let begins = |name: &&str| line == *name || line.starts_with(&format!("{name} "));
    let names = commands.iter().map(|(name, _)| name.as_str());
    let found = names.filter(begins).max_by_key(|name| name.len());
    assert!(found.is_some(), "{line} is none of the commands");
    found.unwrap()
}

fn run(directory: &Path, arguments: &str) -> Done {
    Done::of(
        alone(Path::new(PROGRAM), directory, arguments)
            .output()
            .unwrap(),
    )
}

#[track_caller]
fn ends(directory: &Path, arguments: &str, code: i32) {
    let done = run(directory, arguments);
    assert_eq!(
        done.code,
        Some(code),
        "{arguments}\n{}{}",
        done.out,
        done.err
    );
}

/// Makes a project with one chart.
fn project() -> Project {
    let project = Project::with(&[]);
    let init = "init --plugins helm --domain example.com --project-name p";
    for arguments in [init, "create api --group shop --version v1 --kind Shop"] {
        ends(project.0.path(), arguments, 0);
    }
    project
}

#[test]
fn errors_end_with_1() {
    let commands = commands();
    let mut left: BTreeSet<&str> = commands.iter().map(|(name, _)| name.as_str()).collect();
    for line in lines(ERRORS) {
        let empty = tempfile::tempdir().unwrap();
        ends(empty.path(), line, 1);
        left.remove(command_of(line, &commands));
    }
    assert_eq!(left, BTreeSet::from(NEVER_FAIL), "each command has a row");
}

#[test]
fn wrong_usage_ends_with_2() {
    let project = project();
    let unknown = commands()
        .into_iter()
        .map(|(name, _)| format!("{name} --no-such-flag"));
    let more = lines(USAGE).map(ToOwned::to_owned);
    for line in unknown
        .chain(more)
        .chain(["none".to_owned(), "get".to_owned()])
    {
        ends(project.0.path(), &line, 2);
    }
}

#[test]
fn something_to_do_ends_with_3() {
    let commands = commands();
    let whole = tempfile::tempdir().unwrap();
    let root = or_skip!(outdated(whole.path()));
    let checks = commands
        .iter()
        .filter(|(_, help)| help.contains("--check\n"));
    let mut left: BTreeSet<&str> = checks.map(|(name, _)| name.as_str()).collect();
    assert!(left.contains("olm bundle"), "{left:?}");
    for line in lines(TO_DO) {
        ends(&root, line, 3);
        left.remove(command_of(line, &commands));
    }
    assert_eq!(left, BTreeSet::new(), "each command that checks has a row");
}

/// Makes a committed project, and changes it so that no generated file is up to date. Beside it are a bundle, a broken
/// one, and a project of operator-sdk. Returns `None` if there is no git.
fn outdated(directory: &Path) -> Option<PathBuf> {
    let project = project();
    let root = directory.join("project");
    copy(project.0.path(), &root);
    ends(&root, "olm bundle --version 1.0.0", 0);
    fs::rename(root.join("bundle"), directory.join("bundle")).unwrap();
    fs::create_dir_all(directory.join("broken/manifests")).unwrap();
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/projects/sdk");
    copy(&sdk, &directory.join("sdk"));
    for arguments in ["init --quiet", "add --all", "commit --quiet --message a"] {
        let git = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
            .args(arguments.split(' '))
            .current_dir(&root)
            .status();
        let Ok(status) = git else {
            skipped(1, &"there is no git");
            return None;
        };
        assert!(status.success(), "git {arguments}");
    }
    let chart = "helm-charts/shop";
    let schema = r#"{"properties": {"replicaCount": {"type": "integer", "maximum": 3}}}"#;
    let lock = "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: fixed}\n";
    for (path, text) in [
        (format!("{chart}/values.schema.json"), schema),
        (format!("{chart}/templates/lock.yaml"), lock),
        ("types.rs".to_owned(), ""),
        ("config/grafana/operator.json".to_owned(), ""),
    ] {
        support::write(&root.join(path), text);
    }
    let entry = fs::read_to_string(root.join("watches.yaml")).unwrap();
    fs::write(root.join("watches.yaml"), entry + "  protect: true\n").unwrap();
    let remote = "- {group: a, version: v1, kind: Remote, chart: 'oci://r.io/a:1.0.0'}\n";
    fs::write(root.join("remote.yaml"), remote).unwrap();
    Some(root)
}
