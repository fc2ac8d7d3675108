//! The run of a project, from its custom resources to their end.

use std::path::Path;
use std::process::Command;

use futures::StreamExt;
use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::{ControlPlane, helm, wait};
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams, ResourceExt};
use kube::core::GroupVersionKind;
use kube::discovery::{Discovery, Scope};
use serde_json::{Value, json};

use super::compare::{by_name, differences_of};
use super::project::{Entry, Project};
use super::report::Report;
use crate::transcript::programs;
use crate::world::{LIMIT, condition, is_true, merge, output, try_until};

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

/// Error of the helm command about a chart whose subcharts are fetched when its image is built.
const WITHOUT_SUBCHARTS: &str = "missing in charts/ directory";

/// Custom resources whose charts permit no values that they do not know, and an edit that they permit.
const EDITS: &[(&str, &str)] = &[(
    "Move2Kube/move2kube-sample",
    r#"{"ingress": {"host": "edited.example.com"}}"#,
)];

/// Part of the condition's message when the schema of a chart refuses an edit.
const UNKNOWN_VALUE: &str = "additionalProperties 'edited' not allowed";

/// A custom resource of a project that runs.
struct Applied<'p> {
    project: &'p Project,
    plane: &'p ControlPlane,
    operator: &'p RunningOperator,
    kind: &'p Entry,
    /// `KIND/NAME`.
    key: String,
    name: String,
    api: Api<DynamicObject>,
    conditions: Value,
}

/// State of a custom resource whose release is deployed.
struct Deployed {
    release: String,
    objects: Vec<Located>,
}

/// An object of a release, and where it is.
struct Located {
    label: String,
    api: Api<DynamicObject>,
    name: String,
    is_kept: bool,
}

/// Runs a project.
pub(super) async fn run(project: &Project, plane: &ControlPlane) -> Report {
    let client = plane.client().await.unwrap();
    create_namespace(&client, &project.namespace).await;
    for kind in &project.kinds {
        project.define(plane, kind).await;
    }
    let operator = project.start(plane).await;
    let mut applied = Vec::new();
    for (key, conditions) in project.custom_resources() {
        let (kind, name) = key.split_once('/').unwrap();
        let kind = project.kinds.iter().find(|known| known.kind == kind);
        let kind = kind.unwrap();
        let gvk = GroupVersionKind::gvk(&kind.group, &kind.version, &kind.kind);
        let (resource, _) = kube::discovery::pinned_kind(&client, &gvk).await.unwrap();
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), &project.namespace, &resource);
        let created = api
            .create(&PostParams::default(), &project.sample(kind, name))
            .await;
        drop(created.unwrap_or_else(|error| panic!("{}: {key}: {error}", project.name)));
        applied.push(Applied {
            project,
            plane,
            operator: &operator,
            kind,
            name: name.to_owned(),
            api,
            conditions,
            key,
        });
    }
    let expected = project.expected.as_ref();
    let there = |resource: &&Applied<'_>| resource.conditions["Deployed"] == "True";
    let mut report = Report {
        name: project.name.clone(),
        kinds: project.kinds.len(),
        deployed: (
            expected.map(|_| applied.iter().filter(there).count()),
            0,
            applied.len(),
        ),
        objects: 0,
        memory: (
            expected.and_then(|expected| expected["memoryMiB"].as_f64()),
            0.0,
        ),
        notes: Vec::new(),
        differences: Vec::new(),
        log: String::new(),
    };
    let mut deployed = Vec::new();
    for resource in &applied {
        if let Some(state) = resource.compare(&mut report).await {
            report.deployed.1 += 1;
            report.objects += state.objects.len();
            deployed.push((resource, state));
        }
    }
    report.memory.1 = memory(operator.pid());
    for (resource, state) in &deployed {
        resource.touch(state, &mut report).await;
        resource.edit(state, &mut report).await;
    }
    for resource in &applied {
        let params = DeleteParams::default();
        drop(resource.api.delete(&resource.name, &params).await.unwrap());
    }
    for resource in &applied {
        let gone = wait::gone(&resource.api, &resource.name, LIMIT).await;
        report
            .differences
            .extend(gone.err().map(|error| error.to_string()));
    }
    let objects = deployed.into_iter().flat_map(|(_, state)| state.objects);
    report.differences.extend(leftovers(objects).await);
    for file in project.changed_files() {
        report
            .differences
            .push(format!("{} was changed", file.display()));
    }
    let log = operator.log();
    let lines: Vec<&str> = log.lines().filter(|line| !line.contains("debug")).collect();
    report.log = lines[lines.len().saturating_sub(20)..].join("\n");
    report
}

/// Returns the objects that stay although they should go, or the reverse.
async fn leftovers(objects: impl Iterator<Item = Located>) -> Vec<String> {
    let mut found = Vec::new();
    for object in objects {
        if object.is_kept && !object.is_there().await {
            found.push(format!("{} is gone", object.label));
        } else if !object.is_kept {
            let gone = wait::gone(&object.api, &object.name, LIMIT).await;
            found.extend(gone.err().map(|error| format!("{}: {error}", object.label)));
        }
    }
    found
}

/// Returns the resident memory of a process in MiB.
fn memory(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

impl Applied<'_> {
    fn add(&self, report: &mut Report, difference: &str) {
        report
            .differences
            .push(format!("{}: {difference}", self.key));
    }

    /// Waits until the custom resource is deployed or has failed as expected, and compares its conditions and objects
    /// with those of the Go operator and of Helm. Returns its state if it is deployed.
    async fn compare(&self, report: &mut Report) -> Option<Deployed> {
        let settled = try_until(&self.api, &self.name, "its end", |cr| {
            is_true(cr, "Deployed") || is_true(cr, "ReleaseFailed")
        });
        let cr = match settled.await {
            Ok(cr) => cr,
            Err(error) => {
                self.add(report, &error.to_string());
                return None;
            }
        };
        if !is_true(&cr, "Deployed") {
            let reason = FAILS.iter().find(|(key, _)| *key == self.key);
            let failed = condition(&cr, "ReleaseFailed");
            let message = failed.map_or_else(String::new, |failed| failed["message"].to_string());
            if self.conditions["Deployed"] == "True"
                || reason.is_none_or(|(_, reason)| !message.contains(reason))
            {
                self.add(report, &format!("it fails otherwise: {message}"));
            } else {
                report.notes.push(format!("{}: {message}", self.key));
            }
            return None;
        }
        if self.conditions["Deployed"] == "True" {
            for (type_, wanted) in self.conditions.as_object().unwrap() {
                // A condition that never held may be absent.
                let found =
                    condition(&cr, type_).map_or("False", |c| c["status"].as_str().unwrap());
                if found != wanted {
                    let conditions = &cr["status"]["conditions"];
                    self.add(
                        report,
                        &format!("{type_}={found}, not {wanted}: {conditions}"),
                    );
                }
            }
        }
        let release = cr["status"]["release"]["name"].as_str().unwrap_or_default();
        let manifest = self.recorded("manifest");
        let ours = by_name(&[manifest.as_slice(), &self.recorded("hooks")].concat());
        if self.conditions["Deployed"] == "True"
            && let Some(expected) = &self.project.expected
        {
            let expected = expected["objects"].as_array().unwrap().iter();
            let expected = expected.filter(|object| object["release"] == release);
            let expected: Vec<Value> = expected.map(|object| object["object"].clone()).collect();
            let expected = by_name(&expected);
            for one in differences_of(&ours, &expected) {
                self.add(report, &one);
            }
            if let Some(helm) = helm::ensure_or_skip().unwrap() {
                match self.rendered_by_helm(&helm, release) {
                    Ok(rendered) => {
                        for one in differences_of(&by_name(&rendered), &expected) {
                            self.add(report, &format!("rendered by Helm, {one}"));
                        }
                    }
                    Err(error) if error.contains(WITHOUT_SUBCHARTS) => {
                        let note = "the helm command refuses a chart without its subcharts";
                        report.notes.push(format!("{}: {note}", self.key));
                    }
                    Err(error) => self.add(report, &error),
                }
            }
        }
        let client = self.plane.client().await.unwrap();
        let mut objects = Vec::new();
        for object in self.locate(&client, &manifest).await {
            match object {
                Ok(object) if object.is_there().await => objects.push(object),
                Ok(object) => {
                    self.add(report, &format!("{} is not in the cluster", object.label));
                }
                Err(not_served) => self.add(report, &not_served),
            }
        }
        Some(Deployed {
            release: release.to_owned(),
            objects,
        })
    }

    /// Annotates the custom resource: no object and no record may change.
    async fn touch(&self, state: &Deployed, report: &mut Report) {
        let passes = || {
            let log = self.operator.log();
            let name = format!("{}/{}", self.project.namespace, self.name);
            let is_of_name = |line: &&str| line.contains("planned") && line.contains(&name);
            log.lines().filter(is_of_name).count()
        };
        let before = (self.history(&state.release).await, generations(state).await);
        let known = passes();
        merge(
            &self.api,
            &self.name,
            &json!({"metadata": {"annotations": {"touched": "yes"}}}),
        )
        .await;
        let is_handled = async || passes() > known;
        if let Err(error) = wait::until(LIMIT, "the pass after a touch", is_handled).await {
            return self.add(report, &error.to_string());
        }
        let after = (self.history(&state.release).await, generations(state).await);
        if before != after {
            self.add(report, &format!("a touch changes {before:?} to {after:?}"));
        }
    }

    /// Adds a value that the chart does not know, if it permits that: Helm upgrades then.
    async fn edit(&self, state: &Deployed, report: &mut Report) {
        let revisions = self.history(&state.release).await.len();
        let edit = EDITS.iter().find(|(key, _)| *key == self.key);
        let edit = edit.map_or(r#"{"edited": "yes"}"#, |(_, edit)| edit);
        let edit: Value = serde_json::from_str(edit).unwrap();
        merge(&self.api, &self.name, &json!({"spec": edit})).await;
        let is_upgraded = async || {
            let history = self.history(&state.release).await;
            if history.len() > revisions && history.last().is_some_and(|last| last == "deployed") {
                return Ok(true);
            }
            let cr = self.api.get(&self.name).await.unwrap();
            let conditions = cr.data["status"]["conditions"].to_string();
            if conditions.contains(UNKNOWN_VALUE) {
                return Ok(false);
            }
            Err(conditions)
        };
        match wait::until(LIMIT, "the upgrade after an edit", is_upgraded).await {
            Ok(true) => {}
            Ok(false) => {
                let note = "no edit: the chart permits no values that it does not know";
                report.notes.push(format!("{}: {note}", self.key));
            }
            Err(error) => self.add(report, &error.to_string()),
        }
    }

    /// Returns the statuses of the records of a release, the oldest first.
    async fn history(&self, release: &str) -> Vec<String> {
        let secrets =
            Api::<Secret>::namespaced(self.plane.client().await.unwrap(), &self.project.namespace);
        let of_release = ListParams::default().labels(&format!("owner=helm,name={release}"));
        let records = secrets.list_metadata(&of_release).await.unwrap();
        let mut statuses: Vec<(u32, String)> = records
            .iter()
            .map(|record| {
                let labels = record.labels();
                (labels["version"].parse().unwrap(), labels["status"].clone())
            })
            .collect();
        statuses.sort_unstable();
        statuses.into_iter().map(|(_, status)| status).collect()
    }

    /// Returns the documents that `hybrid-operator get` prints of the release.
    fn recorded(&self, what: &str) -> Vec<Value> {
        let printed = output(
            Command::new(programs().join("hybrid-operator"))
                .args(["get", what])
                .arg(format!(
                    "{}.{}/{}",
                    self.kind.kind, self.kind.group, self.name
                ))
                .args(["--namespace", &self.project.namespace])
                .current_dir(std::env::temp_dir())
                .env("KUBECONFIG", self.plane.kubeconfig_path()),
        );
        documents(&printed)
    }

    /// Returns the objects and hooks that Helm renders with the values of the release, or its error.
    fn rendered_by_helm(&self, helm: &Path, release: &str) -> Result<Vec<Value>, String> {
        let helm = |args: &[&str]| {
            let output = Command::new(helm)
                .args(args)
                .args(["--namespace", &self.project.namespace])
                .current_dir(self.project.directory.path())
                .env("KUBECONFIG", self.plane.kubeconfig_path())
                .output()
                .unwrap();
            if output.status.success() {
                Ok(String::from_utf8(output.stdout).unwrap())
            } else {
                Err(String::from_utf8_lossy(&output.stderr).into_owned())
            }
        };
        let values = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(
            values.path(),
            helm(&["get", "values", release, "-o", "json"])?,
        )
        .unwrap();
        let values = values.path().display().to_string();
        let chart = format!("./{}", self.kind.chart);
        // Schemas may refer to where an image has the chart.
        let flags = [
            "--dry-run=server",
            "--skip-schema-validation",
            "--values",
            &values,
        ];
        helm(&[&["template", release, &chart], flags.as_slice()].concat())
            .map(|text| documents(&text))
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
            let namespace = metadata["namespace"].as_str();
            let namespace = namespace.unwrap_or(&self.project.namespace);
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
}

impl Located {
    async fn is_there(&self) -> bool {
        self.api.get_opt(&self.name).await.unwrap().is_some()
    }
}

/// Returns the uids and generations of the objects of a release.
async fn generations(state: &Deployed) -> Vec<(String, Option<String>, Option<i64>)> {
    let objects = futures::stream::iter(&state.objects);
    let read = objects.then(async |object| {
        let found = object.api.get_metadata_opt(&object.name).await.unwrap();
        let found = found.map(|found| found.metadata).unwrap_or_default();
        (object.label.clone(), found.uid, found.generation)
    });
    read.collect().await
}

fn documents(text: &str) -> Vec<Value> {
    let documents = go_yaml::documents::<Value>(text.as_bytes()).unwrap();
    let objects = documents.into_iter().filter(|object| !object.is_null());
    objects.collect()
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
