//! Fixtures of the tests of the program.

#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "each test uses a part of it"
)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use hybrid_operator_test::Operator;
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_hybrid-operator");

/// Returns what an `Option` has. Without it the test ends: what made it has said what is missing.
macro_rules! or_skip {
    ($option:expr) => {{
        let Some(found) = $option else {
            return;
        };
        found
    }};
}
pub(crate) use or_skip;

/// Checks of a text, which is shown if they fail.
pub(crate) trait Text {
    fn must_have(&self, part: &str);
    fn must_lack(&self, part: &str);
}

impl Text for str {
    #[track_caller]
    fn must_have(&self, part: &str) {
        assert!(self.contains(part), "{part:?} is not in\n{self}");
    }

    #[track_caller]
    fn must_lack(&self, part: &str) {
        assert!(!self.contains(part), "{part:?} is in\n{self}");
    }
}

/// Returns the text that a program printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a command with arguments that are separated by spaces. Its directory is also the home directory, so
/// that nothing of the user has an effect.
pub(crate) fn alone(program: &Path, directory: &Path, arguments: &str) -> Command {
    let mut command = Command::new(program);
    command
        .args(arguments.split_whitespace())
        .current_dir(directory)
        .env("HOME", directory)
        .env("KUBECONFIG", directory.join("no-kubeconfig"));
    for variable in [
        "CHART_CACHE",
        "HELM_CONFIG_HOME",
        "HELM_NAMESPACE",
        "HELM_REPOSITORY_CONFIG",
        "SSL_CERT_FILE",
        "XDG_CACHE_HOME",
        "XDG_CONFIG_HOME",
    ] {
        command.env_remove(variable);
    }
    command
}

/// The end of a command.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn succeeds(&self) -> bool {
        self.code == Some(0)
    }

    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out
    }
}

/// Writes a file, whose directories are made.
pub(crate) fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A temporary directory for a project.
pub(crate) struct Project(pub(crate) TempDir);

impl Project {
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let project = Self(tempfile::tempdir().unwrap());
        for (name, text) in files {
            project.write(name, text);
        }
        project
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        write(&self.path(name), text);
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }
}

/// Copies a directory.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Returns all files below a directory, each with its path in it.
pub(crate) fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut left = vec![directory.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                let name = path.strip_prefix(directory).unwrap().to_str().unwrap();
                files.insert(name.to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Returns the definition of a kind with any fields, in the version `v1`.
pub(crate) fn definition(group: &str, kind: &str) -> String {
    let one = kind.to_lowercase();
    format!(
        "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {one}s.{group}}}
spec:
  group: {group}
  names: {{kind: {kind}, listKind: {kind}List, plural: {one}s, singular: {one}}}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {{status: {{}}}}
    schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"
    )
}

/// Returns the operator of a namespace, which has its name.
pub(crate) fn operator(name: &str) -> Operator {
    Operator::new(PROGRAM)
        .arg("run")
        .args(["--health-probe-bind-address", "127.0.0.1:{probe_port}"])
        .args(["--metrics-bind-address", "127.0.0.1:{metrics_port}"])
        .env("WATCH_NAMESPACE", name)
        .env("OPERATOR_NAME", name)
}
