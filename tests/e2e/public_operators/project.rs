//! A project of a public Helm operator, unpacked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::{ControlPlane, Operator};
use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

use crate::transcript::programs;
use crate::world::define;

/// Projects that are a folder of their repository, which the names of their namespaces end with.
const FOLDERS: &[(&str, &str)] = &[("turbonomic_t8c-install", "operator")];

/// The watches file with the charts' paths in the project instead of those in its image.
const WATCHES: &str = "watches.here.yaml";

/// A project that was unpacked, with the namespace of its custom resources.
pub(super) struct Project {
    pub(super) name: String,
    pub(super) directory: tempfile::TempDir,
    /// Result of the Go operator, if it was run.
    pub(super) expected: Option<Value>,
    pub(super) namespace: String,
    pub(super) kinds: Vec<Entry>,
    /// The files as their authors wrote them.
    files: BTreeMap<PathBuf, Vec<u8>>,
}

/// An entry of the watches file.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    /// Folder of its chart in the project.
    pub(super) chart: String,
}

impl Project {
    pub(super) fn unpack(folder: &Path, name: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let archive = File::open(folder.join(format!("archives/{name}.tgz"))).unwrap();
        let unpacked = Command::new("tar")
            .arg("xzC")
            .arg(directory.path())
            .stdin(archive)
            .status();
        assert!(unpacked.unwrap().success(), "{name}");
        let expected = fs::read(folder.join(format!("expected/{name}.json"))).ok();
        // Templates print the namespace, so it is the one of the expected objects.
        let mut namespace = name.to_lowercase().replace('_', "-");
        if let Some((_, folder)) = FOLDERS.iter().find(|(project, _)| *project == name) {
            namespace = format!("{namespace}-{folder}");
        }
        let watches = fs::read_to_string(directory.path().join("watches.yaml")).unwrap();
        let watches = watches.replace("/opt/helm/", "");
        let entries: Value = go_yaml::from_str(&watches).unwrap();
        let kinds = entries.as_array().unwrap().iter().map(|entry| {
            let text = |field: &str| entry[field].as_str().unwrap().to_owned();
            Entry {
                group: text("group"),
                version: text("version"),
                kind: text("kind"),
                chart: text("chart"),
            }
        });
        let files = files(directory.path());
        fs::write(directory.path().join(WATCHES), watches).unwrap();
        Self {
            name: name.to_owned(),
            kinds: kinds.collect(),
            files,
            directory,
            expected: expected.map(|text| serde_json::from_slice(&text).unwrap()),
            namespace: namespace.chars().take(40).collect(),
        }
    }

    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// Returns the files that are not as their authors wrote them.
    pub(super) fn changed_files(&self) -> Vec<PathBuf> {
        let mut now = files(self.directory.path());
        now.remove(&self.path(WATCHES));
        let all: BTreeSet<&PathBuf> = self.files.keys().chain(now.keys()).collect();
        let changed = all
            .into_iter()
            .filter(|path| self.files.get(*path) != now.get(*path));
        changed.cloned().collect()
    }

    /// Returns the variables of the watches file.
    fn variables(&self) -> BTreeSet<String> {
        let text = fs::read_to_string(self.path(WATCHES)).unwrap();
        let of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let names = text.split('$').skip(1).map(|rest| {
            let rest = rest.trim_start_matches('{');
            rest.split(|c| !of_name(c)).next().unwrap().to_owned()
        });
        names.filter(|name| !name.is_empty()).collect()
    }

    /// Returns the objects in the YAML files of a folder.
    fn objects(&self, folder: &str) -> Vec<Value> {
        let mut objects = Vec::new();
        for entry in fs::read_dir(self.path(folder)).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|end| end == "yaml") {
                let text = fs::read(path).unwrap();
                objects.extend(go_yaml::documents::<Value>(&text).unwrap_or_default());
            }
        }
        objects
    }

    /// Returns the custom resources, as `KIND/NAME`, with the conditions that they get.
    pub(super) fn custom_resources(&self) -> Map<String, Value> {
        if let Some(expected) = &self.expected {
            return expected["customResources"].as_object().unwrap().clone();
        }
        let samples = self.objects("config/samples").into_iter();
        let of_kinds = samples.filter(|sample| {
            let kinds = self.kinds.iter();
            kinds
                .clone()
                .any(|kind| sample["kind"] == kind.kind.as_str())
        });
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let keys = of_kinds.map(|sample| {
            format!(
                "{}/{}",
                text(&sample["kind"]),
                text(&sample["metadata"]["name"])
            )
        });
        keys.map(|key| (key, json!({"Deployed": "True"}))).collect()
    }

    /// Installs the definition of a kind: that of the project, or one that accepts everything.
    pub(super) async fn define(&self, plane: &ControlPlane, kind: &Entry) {
        let own = self.objects("config/crd/bases").into_iter().find(|crd| {
            crd["apiVersion"] == "apiextensions.k8s.io/v1"
                && crd["spec"]["group"] == kind.group.as_str()
                && crd["spec"]["names"]["kind"] == kind.kind.as_str()
        });
        let plural = format!("{}s", kind.kind.to_lowercase());
        let anything = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{}", kind.group)},
            "spec": {
                "group": kind.group,
                "names": {"kind": kind.kind, "plural": plural},
                "scope": "Namespaced",
                "versions": [{
                    "name": kind.version,
                    "served": true,
                    "storage": true,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    }},
                }],
            },
        });
        define(plane, &own.unwrap_or(anything).to_string()).await;
    }

    /// Returns a sample of the project, of whatever version, or an object without a spec.
    pub(super) fn sample(&self, kind: &Entry, name: &str) -> DynamicObject {
        let is_of_group = |api_version: &Value| {
            let group_and_version = api_version.as_str().and_then(|text| text.split_once('/'));
            group_and_version.is_some_and(|(group, _)| group == kind.group)
        };
        let sample = self.objects("config/samples").into_iter().find(|sample| {
            is_of_group(&sample["apiVersion"])
                && sample["kind"] == kind.kind.as_str()
                && sample["metadata"]["name"] == name
        });
        let empty = json!({"kind": kind.kind, "metadata": {"name": name}, "spec": {}});
        let mut object = sample.unwrap_or(empty);
        object["apiVersion"] = json!(format!("{}/{}", kind.group, kind.version));
        object["metadata"]["namespace"] = json!(self.namespace);
        serde_json::from_value(object).unwrap()
    }

    pub(super) async fn start(&self, plane: &ControlPlane) -> RunningOperator {
        let program = std::env::var_os("CHART_OPERATOR").map(PathBuf::from);
        let operator = Operator::new(program.unwrap_or_else(|| programs().join("chart-operator")))
            .args(["run", "--zap-log-level=debug"])
            .arg(format!("--watches-file=./{WATCHES}"))
            .arg("--health-probe-bind-address=127.0.0.1:{probe_port}")
            .arg("--metrics-bind-address=0")
            .env("WATCH_NAMESPACE", &self.namespace)
            .env("OPERATOR_NAME", &self.namespace)
            .kubeconfig(plane.kubeconfig_path())
            .dir(self.directory.path());
        let value = "example.com/some/image:1.2.3";
        let variables = self.variables().into_iter();
        let operator = variables.fold(operator, |operator, name| operator.env(name, value));
        operator.start().await.unwrap()
    }
}

/// Returns the files in a folder with their content.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            found.extend(files(&path));
        } else {
            let content = fs::read(&path).unwrap_or_default();
            found.insert(path, content);
        }
    }
    found
}
