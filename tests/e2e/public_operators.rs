//! Public Helm operators, as their authors wrote them: each project is run, and what it deploys is compared with
//! what the Go operator deployed on such a control plane.
//!
//! The projects are not part of this repository. The folder has `archives/NAME.tgz`, a project each, and
//! `expected/NAME.json`: the conditions of its custom resources, and the objects of their releases, hooks included.
//! There, `@@random@@` stands for what templates draw at random, and namespaces, owner references, empty annotations
//! and nulls are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use futures::StreamExt;
use hybrid_operator_test::control_plane::Options;
use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::{ControlPlane, Operator, shared_or_skip, skipped, wait};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Discovery, Scope};
use serde_json::{Value, json};

use crate::transcript::{is_current, programs};
use crate::world::{LIMIT, condition, define, is_true, output, root, try_until};

/// Projects that run at the same time.
const AT_ONCE: usize = 2;

/// Projects that are not run, each with the reason.
const EXCLUDED: &[(&str, &str)] = &[
    (
        "EvannDev_artifacthub-operator",
        "the schema of its chart refers to a document of the web, which is not in the chart and which tests do not fetch",
    ),
    (
        "SumoLogic_sumologic-kubernetes-collection-helm-operator",
        "its repository has no chart",
    ),
];

/// Projects that are a folder of their repository, which the names of their namespaces end with.
const FOLDERS: &[(&str, &str)] = &[("turbonomic_t8c-install", "operator")];

/// The project that runs alone: its admission webhook has no Pods that answer, and refuses the Ingresses of others.
const ALONE: &str = "Fish-pro_ingress-nginx-helm-operator";

/// Custom resources that the Go operator does not deploy, and a part of the reason in the condition `ReleaseFailed` if
/// they are not deployed here either.
const FAILS: &[(&str, &str)] = &[
    ("PlatformAPI/platform-api", "certmanager.k8s.io/v1alpha1"),
    (
        "Konk/konk-sample",
        "cert-manager CRD does not appear to be installed",
    ),
    ("KuberoApp/kuberoapp", "opstreelabs.in/v1alpha1"),
    // A Secret whose data is not in base64.
    ("KuberoPipeline/kuberopipeline", "deployment-keys"),
    // A ConfigMap that the chart and its dependency have.
    (
        "PolicyController/policycontroller-sample",
        "policycontroller-sample-policy-controller",
    ),
];

/// Placeholder of a random value in the expected objects.
const RANDOM: &str = "@@random@@";

/// Returns the folder of the projects.
fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("OPERATORS")
        .map_or_else(|| root().join("../shared/operators"), PathBuf::from);
    fs::canonicalize(folder).ok()
}

/// A project that was unpacked, with the namespace of its custom resources.
struct Project {
    name: String,
    directory: tempfile::TempDir,
    expected: Value,
    namespace: String,
}

impl Project {
    fn unpack(folder: &Path, name: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let archive = File::open(folder.join(format!("archives/{name}.tgz"))).unwrap();
        let unpacked = Command::new("tar")
            .arg("xzC")
            .arg(directory.path())
            .stdin(archive)
            .status();
        assert!(unpacked.unwrap().success(), "{name}");
        let expected = fs::read(folder.join(format!("expected/{name}.json"))).unwrap();
        // Templates print the namespace, so it is the one of the expected objects.
        let mut namespace = name.to_lowercase().replace('_', "-");
        if let Some((_, folder)) = FOLDERS.iter().find(|(project, _)| *project == name) {
            namespace = format!("{namespace}-{folder}");
        }
        Self {
            name: name.to_owned(),
            directory,
            expected: serde_json::from_slice(&expected).unwrap(),
            namespace: namespace.chars().take(40).collect(),
        }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.directory.path().join(file)
    }

    /// Puts charts where the project is, and returns the variables of the watches file.
    fn prepare(&self) -> BTreeSet<String> {
        let file = self.path("watches.yaml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(file, text.replace("/opt/helm/", "")).unwrap();
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

    /// Installs the definition of a kind: that of the project, or one that accepts everything.
    async fn define(&self, plane: &ControlPlane, (group, version, kind): (&str, &str, &str)) {
        let own = self.objects("config/crd/bases").into_iter().find(|crd| {
            crd["apiVersion"] == "apiextensions.k8s.io/v1"
                && crd["spec"]["group"] == group
                && crd["spec"]["names"]["kind"] == kind
        });
        let plural = format!("{}s", kind.to_lowercase());
        let anything = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group,
                "names": {"kind": kind, "plural": plural},
                "scope": "Namespaced",
                "versions": [{
                    "name": version,
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
    fn sample(&self, (group, version, kind): (&str, &str, &str), name: &str) -> DynamicObject {
        let is_of_group = |api_version: &Value| {
            let group_and_version = api_version.as_str().and_then(|text| text.split_once('/'));
            group_and_version.is_some_and(|(of, _)| of == group)
        };
        let sample = self.objects("config/samples").into_iter().find(|sample| {
            is_of_group(&sample["apiVersion"])
                && sample["kind"] == kind
                && sample["metadata"]["name"] == name
        });
        let empty = json!({"kind": kind, "metadata": {"name": name}, "spec": {}});
        let mut object = sample.unwrap_or(empty);
        object["apiVersion"] = json!(format!("{group}/{version}"));
        object["metadata"]["namespace"] = json!(self.namespace);
        serde_json::from_value(object).unwrap()
    }

    async fn start(&self, plane: &ControlPlane) -> RunningOperator {
        let variables = self.prepare();
        let operator = Operator::new(programs().join("chart-operator"))
            .args(["run", "--watches-file=./watches.yaml"])
            .arg("--health-probe-bind-address=127.0.0.1:{probe_port}")
            .arg("--metrics-bind-address=0")
            .env("WATCH_NAMESPACE", &self.namespace)
            .env("OPERATOR_NAME", &self.namespace)
            .kubeconfig(plane.kubeconfig_path())
            .dir(self.directory.path());
        let value = "example.com/some/image:1.2.3";
        let variables = variables.iter();
        let operator = variables.fold(operator, |operator, name| operator.env(name, value));
        operator.start().await.unwrap()
    }

    /// Runs the project, and returns what is different.
    async fn run(&self, plane: &ControlPlane) -> Vec<String> {
        let client = plane.client().await.unwrap();
        create_namespace(&client, &self.namespace).await;
        let kinds = self.expected["kinds"].as_array().unwrap();
        let kinds: Vec<(&str, &str, &str)> = kinds
            .iter()
            .map(|kind| {
                let mut parts = kind.as_str().unwrap().split('/');
                let mut part = || parts.next().unwrap();
                (part(), part(), part())
            })
            .collect();
        for kind in &kinds {
            self.define(plane, *kind).await;
        }
        let operator = self.start(plane).await;
        let resources = self.expected["customResources"].as_object().unwrap();
        let mut applied = Vec::new();
        for (key, conditions) in resources {
            let (kind, name) = key.split_once('/').unwrap();
            let kind = *kinds.iter().find(|(_, _, known)| *known == kind).unwrap();
            let gvk = GroupVersionKind::gvk(kind.0, kind.1, kind.2);
            let (resource, _) = kube::discovery::pinned_kind(&client, &gvk).await.unwrap();
            let api: Api<DynamicObject> =
                Api::namespaced_with(client.clone(), &self.namespace, &resource);
            let created = api
                .create(&PostParams::default(), &self.sample(kind, name))
                .await;
            drop(created.unwrap_or_else(|error| panic!("{}: {key}: {error}", self.name)));
            applied.push(Applied {
                key,
                name,
                api,
                conditions,
            });
        }
        let (mut differences, mut objects) = (Vec::new(), Vec::new());
        for resource in &applied {
            let (found, deployed) = self.compare(plane, resource).await;
            let found = found.into_iter();
            differences.extend(found.map(|one| format!("{}: {}: {one}", self.name, resource.key)));
            objects.extend(deployed);
        }
        self.uninstall(&applied, objects, &operator).await;
        if !differences.is_empty() {
            let log = operator.log();
            let lines: Vec<&str> = log.lines().collect();
            differences.push(lines[lines.len().saturating_sub(20)..].join("\n"));
        }
        differences
    }

    /// Waits until a custom resource is deployed or has failed as expected, and compares its objects. Returns the
    /// differences, and the objects in the cluster.
    async fn compare(
        &self,
        plane: &ControlPlane,
        resource: &Applied<'_>,
    ) -> (Vec<String>, Vec<Located>) {
        let settled = try_until(&resource.api, resource.name, "its end", |cr| {
            is_true(cr, "Deployed") || is_true(cr, "ReleaseFailed")
        });
        let cr = match settled.await {
            Ok(cr) => cr,
            Err(error) => return (vec![error.to_string()], Vec::new()),
        };
        let mut differences = Vec::new();
        if resource.conditions["Deployed"] != "True" {
            let reason = FAILS.iter().find(|(key, _)| *key == resource.key);
            let failed = condition(&cr, "ReleaseFailed");
            let message = failed.map_or_else(String::new, |failed| failed["message"].to_string());
            let is_known = reason.is_some_and(|(_, reason)| message.contains(reason));
            if !is_true(&cr, "Deployed") && !is_known {
                differences.push(format!("it fails otherwise: {message}"));
            }
            return (differences, Vec::new());
        }
        for (type_, wanted) in resource.conditions.as_object().unwrap() {
            // A condition that never held may be absent.
            let found = condition(&cr, type_).map_or("False", |c| c["status"].as_str().unwrap());
            if found != wanted {
                let conditions = &cr["status"]["conditions"];
                differences.push(format!("{type_}={found}, not {wanted}: {conditions}"));
            }
        }
        if !is_true(&cr, "Deployed") {
            return (differences, Vec::new());
        }
        let release = cr["status"]["release"]["name"].as_str().unwrap_or_default();
        let ours: Vec<Value> = ["manifest", "hooks"]
            .iter()
            .flat_map(|what| self.recorded(plane, what, &cr))
            .collect();
        let expected = self.expected["objects"].as_array().unwrap().iter();
        let expected = expected.filter(|object| object["release"] == release);
        let expected: Vec<Value> = expected.map(|object| object["object"].clone()).collect();
        differences.extend(differences_of(&by_name(&ours), &by_name(&expected)));
        let client = plane.client().await.unwrap();
        let manifest = self.recorded(plane, "manifest", &cr);
        let mut objects = Vec::new();
        for object in self.locate(&client, &manifest).await {
            match object {
                Ok(object) if object.is_there().await => objects.push(object),
                Ok(object) => differences.push(format!("{} is not in the cluster", object.label)),
                Err(not_served) => differences.push(not_served),
            }
        }
        (differences, objects)
    }

    /// Returns the documents that `hybrid-operator get` prints of a release.
    fn recorded(&self, plane: &ControlPlane, what: &str, cr: &Value) -> Vec<Value> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (kind, name) = (text(&cr["kind"]), text(&cr["metadata"]["name"]));
        let group = text(&cr["apiVersion"]);
        let group = group.split('/').next().unwrap();
        let printed = output(
            Command::new(programs().join("hybrid-operator"))
                .args(["get", what, &format!("{kind}.{group}/{name}")])
                .args(["--namespace", &self.namespace])
                .current_dir(self.directory.path())
                .env("KUBECONFIG", plane.kubeconfig_path()),
        );
        let documents = go_yaml::documents::<Value>(printed.as_bytes()).unwrap();
        let objects = documents.into_iter().filter(|object| !object.is_null());
        objects.collect()
    }

    /// Returns the places of objects, or the kinds that are not served.
    async fn locate(&self, client: &Client, objects: &[Value]) -> Vec<Result<Located, String>> {
        // A group that another project has just defined has no document of its own yet.
        let discovery = Discovery::new(client.clone()).run_aggregated();
        let discovery = discovery.await.unwrap();
        let locate = |object: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (api_version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
            let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
            let gvk = GroupVersionKind::gvk(group, version, &kind);
            let (resource, capabilities) = discovery
                .resolve_gvk(&gvk)
                .ok_or_else(|| format!("{kind} in {api_version} is not served"))?;
            let metadata = &object["metadata"];
            let namespace = metadata["namespace"].as_str().unwrap_or(&self.namespace);
            let name = text(&metadata["name"]);
            Ok(Located {
                api: match capabilities.scope {
                    Scope::Cluster => Api::all_with(client.clone(), &resource),
                    Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, &resource),
                },
                label: format!("{kind}/{name}"),
                name,
                is_kept: metadata["annotations"]["helm.sh/resource-policy"] == "keep",
            })
        };
        objects.iter().map(locate).collect()
    }

    /// Deletes the custom resources: their releases are uninstalled, and only what is to be kept stays.
    async fn uninstall(
        &self,
        applied: &[Applied<'_>],
        mut objects: Vec<Located>,
        operator: &RunningOperator,
    ) {
        for resource in applied {
            let params = DeleteParams::default();
            drop(resource.api.delete(resource.name, &params).await.unwrap());
        }
        for resource in applied {
            let gone = wait::gone(&resource.api, resource.name, LIMIT).await;
            gone.unwrap_or_else(|error| panic!("{}: {error}\n{}", self.name, operator.log()));
        }
        for object in objects.extract_if(.., |object| object.is_kept) {
            assert!(object.is_there().await, "{}: {}", self.name, object.label);
        }
        for object in objects {
            let gone = wait::gone(&object.api, &object.name, LIMIT).await;
            gone.unwrap_or_else(|error| panic!("{}: {}: {error}", self.name, object.label));
        }
    }
}

/// An object of a release, and where it is.
struct Located {
    label: String,
    api: Api<DynamicObject>,
    name: String,
    is_kept: bool,
}

impl Located {
    async fn is_there(&self) -> bool {
        self.api.get_opt(&self.name).await.unwrap().is_some()
    }
}

/// A custom resource and the conditions that are expected.
struct Applied<'e> {
    key: &'e str,
    name: &'e str,
    api: Api<DynamicObject>,
    conditions: &'e Value,
}

async fn create_namespace(client: &Client, name: &str) {
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    let namespaces = Api::<Namespace>::all(client.clone());
    let created = namespaces.create(&PostParams::default(), &namespace).await;
    drop(created.unwrap());
    let accounts = Api::<ServiceAccount>::namespaced(client.clone(), name);
    let there = wait::object(&accounts, "default", "its account", LIMIT, |account| {
        account.is_some()
    });
    there.await.unwrap();
}

/// Objects by kind and name, without what is left out in the expected ones. There may be several of a name.
type Objects = BTreeMap<(String, String), Vec<Value>>;

fn by_name(objects: &[Value]) -> Objects {
    let mut all = Objects::new();
    for object in objects {
        let mut object = object.clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = (text(&object["kind"]), text(&object["metadata"]["name"]));
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
            if metadata.get("annotations") == Some(&json!({})) {
                metadata.remove("annotations");
            }
        }
        remove_nulls(&mut object);
        all.entry(key).or_default().push(object);
    }
    all
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

fn differences_of(ours: &Objects, expected: &Objects) -> Vec<String> {
    let mut found = Vec::new();
    for key in ours.keys().chain(expected.keys()).collect::<BTreeSet<_>>() {
        let of = |objects: &Objects| objects.get(key).cloned().unwrap_or_default();
        let (ours, expected) = (of(ours), of(expected));
        let name = format!("{}/{}", key.0, key.1);
        if ours.len() != expected.len() {
            found.push(format!("{} {name}, not {}", ours.len(), expected.len()));
        }
        for (ours, expected) in ours.iter().zip(&expected) {
            compare(ours, expected, &name, &mut found);
        }
    }
    found
}

/// Adds the places where two values differ.
fn compare(ours: &Value, expected: &Value, at: &str, found: &mut Vec<String>) {
    match (ours, expected) {
        (_, Value::String(text)) if text == RANDOM => {}
        (Value::Object(ours), Value::Object(expected)) => {
            for key in ours.keys().chain(expected.keys()).collect::<BTreeSet<_>>() {
                let of = |fields: &serde_json::Map<String, Value>| {
                    fields.get(key).cloned().unwrap_or_default()
                };
                compare(&of(ours), &of(expected), &format!("{at}/{key}"), found);
            }
        }
        (Value::Array(ours), Value::Array(expected)) if ours.len() == expected.len() => {
            for (index, (ours, expected)) in ours.iter().zip(expected).enumerate() {
                compare(ours, expected, &format!("{at}/{index}"), found);
            }
        }
        _ if ours == expected => {}
        _ => found.push(format!("{at} is {ours}, not {expected}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn public_operators_deploy_what_they_deploy_under_the_go_operator() {
    let Some(folder) = folder() else {
        return skipped(12, &"public operators: there is no folder of them");
    };
    if shared_or_skip().await.unwrap().is_none() {
        return;
    }
    for program in ["chart-operator", "hybrid-operator"] {
        is_current(program).unwrap();
    }
    let mut projects = Vec::new();
    for entry in fs::read_dir(folder.join("archives")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let name = name.strip_suffix(".tgz").unwrap();
        match EXCLUDED.iter().find(|(excluded, _)| *excluded == name) {
            Some((_, reason)) => skipped(1, &format!("{name}: {reason}")),
            None => projects.push(Project::unpack(&folder, name)),
        }
    }
    assert_eq!(projects.len() + EXCLUDED.len(), 13);
    let plane = ControlPlane::start(Options::default()).await.unwrap();
    let (alone, together): (Vec<_>, Vec<_>) =
        projects.iter().partition(|project| project.name == ALONE);
    let runs = together.iter().map(|project| project.run(&plane));
    let mut differences: Vec<String> = futures::stream::iter(runs)
        .buffer_unordered(AT_ONCE)
        .flat_map(futures::stream::iter)
        .collect()
        .await;
    for project in alone {
        differences.extend(project.run(&plane).await);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn differences_are_found_and_random_values_are_none() {
    let object = |value: &Value| {
        json!({
            "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "n", "annotations": {}},
            "data": {"a": value, "none": null},
        })
    };
    let expected = |value: &Value| {
        let object = json!({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": value}});
        by_name(&[object])
    };
    let ours = by_name(&[object(&json!("x"))]);
    let none: [String; 0] = [];
    assert_eq!(differences_of(&ours, &expected(&json!("x"))), none);
    assert_eq!(differences_of(&ours, &expected(&json!(RANDOM))), none);
    assert_eq!(
        differences_of(&ours, &expected(&json!(["x"]))),
        ["ConfigMap/a/data/a is \"x\", not [\"x\"]"]
    );
    let missing = ["1 ConfigMap/a, not 0"];
    assert_eq!(differences_of(&ours, &Objects::new()), missing);
}
