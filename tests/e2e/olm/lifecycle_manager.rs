//! A control plane with OLM. The simulated nodes run no containers, so the test does what two of them do:
//! the one that unpacks a bundle, and the operator.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hybrid_operator_test::control_plane::Options;
use hybrid_operator_test::process::RunningOperator;
use hybrid_operator_test::wait::{self, WaitError};
use hybrid_operator_test::{ControlPlane, Operator, Program, olm, shared_or_skip};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::pod::{self, OperatorPod};
use crate::transcript::{is_current, programs};
use crate::world::{LIMIT, define, eventually, output, program, root, try_until};

/// The namespace of catalogs for all namespaces.
const CATALOGS: &str = "olm";

/// The package, and the name of the project.
const PACKAGE: &str = "memcached-operator";

/// A control plane with the two operators of OLM, and a project with a catalog.
pub(super) struct Olm {
    pub(super) client: Client,
    program: PathBuf,
    /// `olm-operator` and `catalog-operator`.
    operators: [Program; 2],
    catalog: Option<Program>,
    plane: ControlPlane,
    /// Has the project, images of bundles, kubeconfigs and logs.
    directory: TempDir,
}

impl Olm {
    /// Starts everything but the catalog, for this repository's project. Returns `None` if Go's programs are not
    /// available.
    pub(super) async fn start() -> Option<Self> {
        Self::of(project).await
    }

    /// Starts everything but the catalog, for a project that is copied to a folder.
    pub(super) async fn of(project: impl FnOnce(&Path)) -> Option<Self> {
        shared_or_skip().await.unwrap()?;
        let program = tokio::task::spawn_blocking(olm::ensure_or_skip)
            .await
            .unwrap()
            .unwrap()?;
        let directory = tempfile::tempdir().unwrap();
        project(directory.path());
        fs::create_dir(directory.path().join("images")).unwrap();

        // Definitions are for the whole cluster, so it cannot be that of the other tests.
        let plane = ControlPlane::start(Options::default()).await.unwrap();
        let client = plane.client().await.unwrap();
        let definitions = output(Command::new(&program).arg("definitions"));
        let definitions: Vec<Value> = serde_json::from_str(&definitions).unwrap();
        for definition in definitions {
            define(&plane, &definition.to_string()).await;
        }
        create(&client, "", namespace(CATALOGS)).await;
        let config = plane.kubeconfig_path().to_str().unwrap().to_owned();
        let operator = |name: &str, flags: &[String]| {
            let log = directory.path().join(format!("{name}.log"));
            Program::start(&program, name, flags, &log).unwrap()
        };
        let operators = [
            operator("olm-operator", std::slice::from_ref(&config)),
            operator("catalog-operator", &[config.clone(), CATALOGS.to_owned()]),
        ];
        Some(Self {
            client,
            program,
            operators,
            catalog: None,
            plane,
            directory,
        })
    }

    /// Sets all install modes of the base to supported.
    pub(super) fn support_all_modes(&self) {
        // Writes the base.
        self.olm(&["bundle", "--version", "0.0.1"]);
        let bases = self.directory.path().join("config/manifests/bases");
        let base = bases.join(format!("{PACKAGE}.clusterserviceversion.yaml"));
        let text = fs::read_to_string(&base).unwrap();
        fs::write(base, text.replace("supported: false", "supported: true")).unwrap();
    }

    /// Returns the folder of the project.
    pub(super) fn project(&self) -> &Path {
        self.directory.path()
    }

    fn olm(&self, args: &[&str]) {
        package(self.directory.path(), args);
    }

    /// Makes a bundle and its image, adds it to the catalog, and lets OLM read that.
    pub(super) async fn publish(&mut self, version: &str, more: &[&str]) {
        let operator = operator_image(version);
        let args = ["bundle", "--version", version, "--image", &operator];
        self.olm(&[&args, more].concat());
        self.olm(&["catalog", "bundle", "--image", &bundle_image("{version}")]);
        let directory = self.directory.path();
        copy(&directory.join("bundle"), &self.image_directory(version));

        let name = |what: &str| directory.join(format!("{what}-{version}"));
        let cache = name("cache");
        fs::create_dir(&cache).unwrap();
        let flags = [directory.join("catalog"), cache].map(|path| path.display().to_string());
        let catalog = Program::start(&self.program, "serve", &flags, &name("serve")).unwrap();
        let address = async || {
            let log = catalog.log();
            let line = log.lines().find(|line| line.starts_with("127.0.0.1:"));
            line.map(ToOwned::to_owned).ok_or(log)
        };
        let address = eventually("its address", address).await;
        let source = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
            "metadata": {"name": "catalog"},
            "spec": {"sourceType": "grpc", "address": address},
        });
        let api = api_of(&self.client, &source, CATALOGS);
        let params = PatchParams::apply("e2e");
        api.patch("catalog", &params, &Patch::Apply(&source))
            .await
            .unwrap();
        self.catalog = Some(catalog);
    }

    fn image_directory(&self, version: &str) -> PathBuf {
        self.directory.path().join("images").join(version)
    }

    /// Creates a namespace with an `OperatorGroup` for namespaces (all, if there are none) and a
    /// `Subscription`.
    pub(super) async fn subscribe(&self, to: &str, targets: &[&str]) {
        create(&self.client, "", namespace(to)).await;
        let group = json!({
            "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
            "metadata": {"name": "group"}, "spec": {"targetNamespaces": targets},
        });
        create(&self.client, to, group).await;
        let subscription = json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
            "metadata": {"name": PACKAGE},
            "spec": {
                "name": PACKAGE, "channel": "stable",
                "source": "catalog", "sourceNamespace": CATALOGS,
            },
        });
        create(&self.client, to, subscription).await;
    }

    /// Waits for OLM's Job for a bundle, and runs its container's command with its account. The Job is
    /// complete when its Pod is, and OLM waits for the `ConfigMap`.
    pub(super) async fn unpack(&self, version: &str) {
        let jobs = self.api("batch/v1", "Job", CATALOGS);
        let image = json!(bundle_image(version));
        let found = wait::objects(&jobs, "", "the Job for the bundle", LIMIT, |jobs| {
            let pods = jobs.iter().map(|job| &job.data["spec"]["template"]["spec"]);
            let mut pods = pods.filter(|pod| pod["containers"][0]["env"][0]["value"] == image);
            pods.next().cloned().ok_or("no such Job")
        });
        let pod = self.explained(found.await);
        let account = pod["serviceAccountName"].as_str().unwrap();
        let config = self.kubeconfig(CATALOGS, account).await;
        let container = &pod["containers"][0];
        let command: Vec<&str> = strings(&container["command"]).collect();
        let (program, args) = command.split_at(2);
        assert_eq!(program, ["opm", "alpha"]);
        let bundle = format!("{}/", self.image_directory(version).display());
        let args = args.iter().map(|&arg| match arg {
            "/bundle/" => bundle.as_str(),
            _ => arg,
        });
        let mut command = Command::new(&self.program);
        command.args(args).arg("--kubeconfig").arg(config);
        for variable in container["env"].as_array().unwrap() {
            let text = |field: &str| variable[field].as_str().unwrap();
            command.env(text("name"), text("value"));
        }
        output(&mut command);
    }

    /// Waits until OLM has installed a version, and returns the `ClusterServiceVersion`.
    pub(super) async fn installed(&self, namespace: &str, version: &str) -> Value {
        let name = csv_name(version);
        let succeeded = |csv: &Value| csv["status"]["phase"] == "Succeeded";
        let found = try_until(&self.csvs(namespace), &name, "Succeeded", succeeded).await;
        let csv = self.explained(found);

        // An unfinished plan creates anew what somebody deletes.
        let plans = self.api("operators.coreos.com/v1alpha1", "InstallPlan", namespace);
        let complete = wait::objects(&plans, "", "the complete InstallPlan", LIMIT, |plans| {
            let names =
                |plan: &Value| strings(&plan["clusterServiceVersionNames"]).any(|n| n == name);
            let mut plans = plans.iter().filter(|plan| names(&plan.data["spec"]));
            plans
                .all(|plan| plan.data["status"]["phase"] == "Complete")
                .then_some(())
                .ok_or("not complete")
        });
        self.explained(complete.await);
        csv
    }

    /// Waits until OLM has removed a version.
    pub(super) async fn removed(&self, namespace: &str, version: &str) {
        let gone = wait::gone(&self.csvs(namespace), &csv_name(version), LIMIT).await;
        self.explained(gone);
    }

    fn csvs(&self, namespace: &str) -> Api<DynamicObject> {
        let version = "operators.coreos.com/v1alpha1";
        self.api(version, "ClusterServiceVersion", namespace)
    }

    /// Runs this repository's operator as the only Pod of a version's Deployment says, and returns that Pod.
    pub(super) async fn run(&self, namespace: &str, version: &str) -> (RunningOperator, Pod) {
        let operator = Operator::new(program())
            .args(["run", "--watches-file=./watches.yaml"])
            .dir(root());
        self.run_program(operator, namespace, version).await
    }

    /// Runs an operator as the only Pod of a version's Deployment says, and returns that Pod.
    pub(super) async fn run_program(
        &self,
        operator: Operator,
        namespace: &str,
        version: &str,
    ) -> (RunningOperator, Pod) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let image = operator_image(version);
        let found = wait::objects(&pods, pod::LABEL, "the Pod", LIMIT, |pods| match pods {
            [pod] if OperatorPod::from_pod(pod).image == image => Ok(Pod::clone(pod)),
            _ => Err(format!("{} Pods", pods.len())),
        });
        let pod = self.explained(found.await);
        let given = OperatorPod::from_pod(&pod);
        let config = self.kubeconfig(namespace, &given.account).await;
        let operator = given.given_to(operator).kubeconfig(config);
        (operator.start().await.unwrap(), pod)
    }

    /// Writes a kubeconfig with the token of an account.
    async fn kubeconfig(&self, namespace: &str, account: &str) -> PathBuf {
        let token = pod::token(&self.client, namespace, account).await;
        let name = format!("{namespace}-{account}");
        let directory = self.directory.path().join(name);
        fs::create_dir_all(&directory).unwrap();
        pod::kubeconfig(&self.plane, &token, &directory)
    }

    pub(super) fn api(&self, version: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let object = json!({"apiVersion": version, "kind": kind});
        api_of(&self.client, &object, namespace)
    }

    /// Returns what a wait found, or fails with the logs of OLM.
    #[track_caller]
    fn explained<T>(&self, found: Result<T, WaitError>) -> T {
        found.unwrap_or_else(|error| {
            let logs = self.operators.each_ref().map(Program::log);
            panic!("{error}\n{}", logs.join("\n"))
        })
    }
}

/// Copies what a bundle of this repository's project is made of.
fn project(directory: &Path) {
    for part in ["config", "PROJECT"] {
        copy(&root().join(part), &directory.join(part));
    }
}

/// Runs `hybrid-operator generate` in a project.
fn package(directory: &Path, args: &[&str]) {
    is_current("hybrid-operator").unwrap();
    let program = programs().join("hybrid-operator");
    let mut command = Command::new(program);
    output(command.arg("olm").args(args).current_dir(directory));
}

/// Makes a bundle of this repository's project.
pub(crate) fn bundle(directory: &Path) {
    project(directory);
    package(directory, &["bundle", "--version", "0.1.0"]);
}

fn bundle_image(version: &str) -> String {
    format!("example.com/{PACKAGE}-bundle:v{version}")
}

fn operator_image(version: &str) -> String {
    format!("example.com/{PACKAGE}:v{version}")
}

/// Returns the name of the `ClusterServiceVersion` of a version.
pub(super) fn csv_name(version: &str) -> String {
    format!("{PACKAGE}.v{version}")
}

pub(super) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub(super) fn copy(from: &Path, to: &Path) {
    output(Command::new("cp").arg("-r").args([from, to]));
}

fn strings(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|text| text.as_str().unwrap())
}

/// Returns the API of an object's kind in a namespace, or of the cluster.
pub(super) fn api_of(client: &Client, object: &Value, namespace: &str) -> Api<DynamicObject> {
    let text = |field: &str| object[field].as_str().unwrap();
    let (group, version) = text("apiVersion")
        .split_once('/')
        .unwrap_or(("", text("apiVersion")));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("kind")));
    if namespace.is_empty() {
        Api::all_with(client.clone(), &resource)
    } else {
        Api::namespaced_with(client.clone(), namespace, &resource)
    }
}

/// Creates an object in a namespace, or of the cluster.
pub(super) async fn create(client: &Client, namespace: &str, object: Value) {
    let api = api_of(client, &object, namespace);
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}
