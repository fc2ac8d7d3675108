//! The example `visitors`, native and as a chart: what both do alike, and what each costs.

use std::collections::BTreeMap;

use hybrid_operator::helm;
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::{ControlPlane, TestNamespace};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::examples::NativeOperator;
use crate::world::{
    api, api_of, apply, condition, control_plane, create, define, delete, is_false, is_ready,
    merge, remove, root, until,
};

/// The two operators of the example.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Variant {
    Native,
    Chart,
}

impl Variant {
    pub(crate) fn group(self) -> &'static str {
        match self {
            Self::Native => "example.com",
            Self::Chart => "charts.example.com",
        }
    }

    /// Installs the CRD and returns the control plane.
    pub(crate) async fn plane(self) -> Option<&'static ControlPlane> {
        let plane = control_plane().await?;
        let file = match self {
            Self::Native => "crd.yaml",
            Self::Chart => "chart-crd.yaml",
        };
        let path = root().join("examples/visitors/config").join(file);
        define(plane, &std::fs::read_to_string(path).unwrap()).await;
        Some(plane)
    }

    /// Starts the operator in this process, for one namespace.
    pub(crate) async fn start(
        self,
        plane: &ControlPlane,
        namespace: &TestNamespace,
    ) -> NativeOperator {
        match self {
            Self::Native => {
                let controller = visitors::controller::controller();
                NativeOperator::start(plane, namespace, controller).await
            }
            Self::Chart => {
                let watches = root().join("examples/visitors/watches.yaml");
                let mut charts = helm::load(&watches).unwrap();
                let chart = charts.remove(0);
                NativeOperator::start(plane, namespace, chart).await
            }
        }
    }

    pub(crate) fn app(self, name: &str, title: &str) -> Value {
        json!({
            "apiVersion": format!("{}/v1", self.group()), "kind": "VisitorsApp",
            "metadata": {"name": name}, "spec": {"size": 2, "title": title},
        })
    }
}

/// Returns the writes of objects whose name begins with `prefix`.
fn writes_of(operator: &NativeOperator, prefix: &str) -> Vec<String> {
    let requests = operator.faults.requests();
    let writes = requests.iter().filter(|request| {
        let name = request.name.as_deref().unwrap_or_default();
        request.is_write() && name.starts_with(prefix)
    });
    writes.map(Recorded::kind).collect()
}

struct Site {
    apps: Api<DynamicObject>,
    deployments: Api<DynamicObject>,
    secrets: Api<DynamicObject>,
    services: Api<DynamicObject>,
}

impl Site {
    fn new(variant: Variant, namespace: &TestNamespace) -> Self {
        Self {
            apps: api_of(namespace, variant.group(), "VisitorsApp"),
            deployments: api(namespace, "Deployment"),
            secrets: api(namespace, "Secret"),
            services: api(namespace, "Service"),
        }
    }

    async fn ready(&self) -> Value {
        until(&self.apps, "site", "Ready", is_ready).await
    }

    async fn password(&self) -> Value {
        let secret = self.secrets.get("site-mysql").await.unwrap();
        secret.data["data"]["password"].clone()
    }

    /// Returns what changes when somebody writes an object: the generation of a Deployment, whose
    /// status changes by itself, and the version of any other object.
    async fn versions(&self) -> BTreeMap<String, Value> {
        let mut versions = BTreeMap::new();
        for (kind, api) in [
            ("secrets", &self.secrets),
            ("services", &self.services),
            ("deployments", &self.deployments),
        ] {
            for object in api.list(&ListParams::default()).await.unwrap() {
                let metadata = object.metadata;
                let name = metadata.name.unwrap();
                if name.starts_with("site-") {
                    let version = match kind {
                        "deployments" => json!([metadata.uid, metadata.generation]),
                        _ => json!([metadata.uid, metadata.resource_version]),
                    };
                    versions.insert(format!("{kind} {name}"), version);
                }
            }
        }
        assert_eq!(versions.len(), 7, "{versions:?}");
        versions
    }

    /// Returns uid and generation of the Deployment of a component.
    async fn identity(&self, component: &str) -> (Option<String>, Option<i64>) {
        let name = format!("site-{component}");
        let metadata = self.deployments.get(&name).await.unwrap().metadata;
        (metadata.uid, metadata.generation)
    }
}

/// The database cannot start while there is a quota without Pods.
async fn install_with_a_restart(variant: Variant, plane: &ControlPlane, namespace: &TestNamespace) {
    let site = Site::new(variant, namespace);
    let quotas = api(namespace, "ResourceQuota");
    apply(&quotas, "none", &json!({"spec": {"hard": {"pods": "0"}}})).await;
    let hard = |quota: &Value| !quota["status"]["hard"].is_null();
    until(&quotas, "none", "its status", hard).await;

    let operator = variant.start(plane, namespace).await;
    create(&site.apps, variant.app("site", "One")).await;
    let waits = |app: &Value| is_false(app, "Ready");
    let app = until(&site.apps, "site", "not ready", waits).await;
    if variant == Variant::Native {
        let reason = &condition(&app, "Ready").unwrap()["reason"];
        assert_eq!(*reason, "DatabaseNotReady");
        assert_eq!(app["status"]["database"], "Starting");
        let backend = site.deployments.get_opt("site-backend").await.unwrap();
        assert!(backend.is_none(), "the backend waits for the database");
    }
    until(&site.deployments, "site-mysql", "there", |_| true).await;
    let (before, password) = (site.identity("mysql").await, site.password().await);
    drop(operator);

    let operator = variant.start(plane, namespace).await;
    delete(&quotas, "none").await;
    let app = site.ready().await;
    // The restart changes nothing.
    assert_eq!(site.identity("mysql").await, before);
    assert_eq!(site.password().await, password);
    if variant == Variant::Native {
        assert_eq!(app["status"]["database"], "Ready");
        let image = app["status"]["backendImage"].as_str().unwrap();
        assert_contains!(image, "visitors-service");
        let image = app["status"]["frontendImage"].as_str().unwrap();
        assert_contains!(image, "visitors-webui");
    }
    for (component, replicas) in [("mysql", 1), ("backend", 2), ("frontend", 2)] {
        let deployment = site.deployments.get(&format!("site-{component}")).await;
        assert_eq!(deployment.unwrap().data["spec"]["replicas"], replicas);
    }
    drop(operator);
}

/// A deleted Service comes back after a restart, which leaves everything else as it is; a new title
/// reaches the frontend alone.
async fn repair_and_change(variant: Variant, plane: &ControlPlane, namespace: &TestNamespace) {
    let site = Site::new(variant, namespace);
    let before = site.versions().await;
    let operator = variant.start(plane, namespace).await;
    let name = "site-backend";
    delete(&site.services, name).await;
    let again = |found: &Value| found["metadata"]["uid"].is_string();
    until(&site.services, name, "there", again).await;
    drop(site.ready().await);
    let mut expected = before;
    let after = site.versions().await;
    expected.insert(
        "services site-backend".to_owned(),
        after["services site-backend"].clone(),
    );
    assert_eq!(after, expected);
    if variant == Variant::Native {
        assert_eq!(writes_of(&operator, "site-"), ["apply services"]);
    }
    let (backend, password) = (site.identity("backend").await, site.password().await);
    merge(&site.apps, "site", &json!({"spec": {"title": "Two"}})).await;
    let title = |deployment: &Value| {
        let env = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
        *env == json!([{"name": "REACT_APP_TITLE", "value": "Two"}])
    };
    until(&site.deployments, "site-frontend", "its title", title).await;
    drop(site.ready().await);
    assert_eq!(site.identity("backend").await, backend);
    // A change keeps the password.
    assert_eq!(site.password().await, password);
    let change = json!({"data": {"password": "b3RoZXI="}});
    let params = PatchParams::default();
    let refused = site
        .secrets
        .patch("site-mysql", &params, &Patch::Merge(&change))
        .await;
    assert!(refused.unwrap_err().to_string().contains("immutable"));
}

/// The objects of a site that is created again are those of the new one. The chart's are new; the
/// native operator takes over what the garbage collector has left.
async fn delete_and_create_again(
    variant: Variant,
    plane: &ControlPlane,
    namespace: &TestNamespace,
) {
    let site = Site::new(variant, namespace);
    let _operator = variant.start(plane, namespace).await;
    let password = site.password().await;
    remove(&site.apps, "site").await;
    create(&site.apps, variant.app("site", "Three")).await;
    let app = site.ready().await;
    for component in ["mysql", "backend", "frontend"] {
        let deployment = site.deployments.get(&format!("site-{component}")).await;
        let owners = deployment.unwrap().metadata.owner_references.unwrap();
        let uids: Vec<&str> = owners.iter().map(|owner| &*owner.uid).collect();
        assert_eq!(uids, [app["metadata"]["uid"].as_str().unwrap()]);
    }
    if variant == Variant::Chart {
        assert_ne!(site.password().await, password);
    }
}

async fn life(variant: Variant) {
    let plane = or_skip!(variant.plane().await);
    let namespace = TestNamespace::create(plane, "visitors").await.unwrap();
    let mut refused = variant.app("site", "One");
    refused["spec"]["size"] = json!(0);
    let apps = Site::new(variant, &namespace).apps;
    let refused = serde_json::from_value(refused).unwrap();
    let refused = apps.create(&PostParams::default(), &refused).await;
    assert!(refused.unwrap_err().to_string().contains("spec.size"));

    install_with_a_restart(variant, plane, &namespace).await;
    repair_and_change(variant, plane, &namespace).await;
    delete_and_create_again(variant, plane, &namespace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn native_visitors_survive_restarts_changes_and_deletion() {
    life(Variant::Native).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn visitors_of_the_chart_survive_restarts_changes_and_deletion() {
    life(Variant::Chart).await;
}

/// Returns all requests but the opening of watches.
fn sent(operator: &NativeOperator) -> Vec<String> {
    let all = operator.faults.requests();
    let counted = all.iter().filter(|r| r.verb != "watch" && r.verb != "list");
    counted.map(Recorded::kind).collect()
}

/// Measures the requests of an install, and of a ready site while another one is installed.
async fn requests(variant: Variant) -> Option<(Vec<String>, Vec<String>)> {
    let plane = variant.plane().await?;
    let namespace = TestNamespace::create(plane, "visitors").await.unwrap();
    let operator = variant.start(plane, &namespace).await;
    let apps = Site::new(variant, &namespace).apps;
    let install = async |name: &str| {
        create(&apps, variant.app(name, "One")).await;
        until(&apps, name, "Ready", is_ready).await;
    };
    // The first site opens the watches and discovers the kinds.
    install("warm").await;
    operator.faults.forget();
    install("site").await;
    let installed = sent(&operator);
    operator.faults.forget();
    install("other").await;
    let requests = operator.faults.requests();
    let at_rest = requests.iter().filter(|request| {
        let name = request.name.as_deref().unwrap_or_default();
        name.starts_with("site")
    });
    Some((installed, at_rest.map(Recorded::kind).collect()))
}

/// Returns the numbers in a row of the table in the README: native, chart.
fn stated(row: &str) -> [Vec<usize>; 2] {
    let readme = std::fs::read_to_string(root().join("examples/visitors/README.md")).unwrap();
    let row = format!("| {row} |");
    let line = readme.lines().find(|line| line.starts_with(&row)).unwrap();
    let numbers = |cell: &str| {
        let words = cell.split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    let mut cells = line.split('|').skip(2).map(numbers);
    [cells.next().unwrap(), cells.next().unwrap()]
}

/// Requests that a busy machine may add to an install: caches are behind the API server, and then
/// an object is read before it is applied.
const MORE_WHEN_BUSY: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_both_variants_are_those_of_the_readme() {
    let installs = stated("requests of an install");
    let at_rest_stated = stated("requests of a ready site while others are installed");
    assert_eq!(at_rest_stated, [[0], [0]]);
    for (variant, stated) in [Variant::Native, Variant::Chart].into_iter().zip(installs) {
        let (install, at_rest) = or_skip!(requests(variant).await);
        let (least, most) = (*stated.first().unwrap(), *stated.last().unwrap());
        let allowed = least..=most + MORE_WHEN_BUSY;
        assert!(allowed.contains(&install.len()), "{variant:?} {install:#?}");
        assert!(at_rest.is_empty(), "{variant:?} {at_rest:#?}");
    }
}
