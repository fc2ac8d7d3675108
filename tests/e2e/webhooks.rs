//! Webhooks of native operators, called by the API server: validation, mutation, conversion, and
//! the life of the certificate.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hybrid_operator::manager::Manager;
use hybrid_operator::options::Options;
use hybrid_operator::webhook::{self, Denied, Operation, Request, Webhooks};
use hybrid_operator_test::fault::Faults;
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::{ControlPlane, TestNamespace};
use kube::CustomResource;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

use crate::native::get;
use crate::world::{
    InProcessOperator, api, api_of, control_plane, define_kind, eventually, exists, free_address,
    gone, options, until,
};

mod conversion;

const GROUP: &str = "webhook.example.com";

/// Stands for a kind of a user.
#[derive(CustomResource, Serialize, Deserialize, Debug, Clone)]
#[kube(
    group = "webhook.example.com",
    version = "v1",
    kind = "Cup",
    namespaced,
    schema = "disabled"
)]
struct CupSpec {
    size: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    colour: Option<String>,
    /// Written by the type even where the object lacks it.
    #[serde(default)]
    lid: bool,
}

async fn check(request: Request<Cup>) -> Result<(), Denied> {
    let spec = &request.object().spec;
    if spec.size > 100 {
        request.warn("sizes above 100 are for buckets");
    }
    match spec.size {
        ..1 => return Err(Denied::invalid("spec.size", "must be at least 1")),
        13 => std::panic::panic_any("13 on purpose"),
        1000.. => return Err(Denied::new("a cup is not a bucket")),
        _ => {}
    }
    if let Some(old) = request.old()
        && old.spec.colour != spec.colour
    {
        return Err(Denied::invalid("spec.colour", "cannot be changed"));
    }
    Ok(())
}

async fn may_go(request: Request<Cup>) -> Result<(), Denied> {
    assert_eq!(request.operation(), &Operation::Delete);
    if request.object().spec.colour.as_deref() == Some("gold") {
        return Err(Denied::new(format!("{} is too precious", request.name())));
    }
    Ok(())
}

async fn complete(mut cup: Cup, _: Request<Cup>) -> Result<Cup, Denied> {
    cup.spec.colour.get_or_insert_with(|| "white".to_owned());
    Ok(cup)
}

/// An operator with webhooks only, in this process. It is killed when dropped.
struct Replica {
    faults: Faults,
    metrics: String,
    operator: InProcessOperator,
}

impl Replica {
    async fn start(plane: &ControlPlane, namespace: &TestNamespace, webhooks: Webhooks) -> Self {
        Self::with(plane, namespace, webhooks, |_| {}).await
    }

    async fn with(
        plane: &ControlPlane,
        namespace: &TestNamespace,
        webhooks: Webhooks,
        change: impl FnOnce(&mut Options),
    ) -> Self {
        let faults = Faults::new();
        let client = plane.client_with(&faults).await.unwrap();
        let mut options = options_in(namespace);
        change(&mut options);
        let metrics = options.metrics_bind_address.clone();
        let manager = Manager::new(options).client(client);
        Self::run(manager.with_webhooks(webhooks), faults, metrics)
    }

    fn run(manager: Manager, faults: Faults, metrics: String) -> Self {
        Self {
            faults,
            metrics,
            operator: InProcessOperator::run(manager),
        }
    }

    /// Returns the writes so far, without those of other parts of the manager.
    fn writes(&self) -> Vec<String> {
        let requests = self.faults.requests();
        let writes = requests.iter().filter(|request| request.is_write());
        writes.map(Recorded::kind).collect()
    }
}

/// Returns the options of an operator that is named after its namespace.
fn options_in(namespace: &TestNamespace) -> Options {
    let names = ["WATCH_NAMESPACE", "OPERATOR_NAME", "POD_NAMESPACE"];
    let env = names.map(|name| (name, namespace.name()));
    let mut options = options(&["--webhook-bind-address=127.0.0.1:0"], &env);
    options.metrics_bind_address = free_address();
    options
}

/// Prepares the kind and a namespace.
async fn setup(prefix: &str) -> Option<(&'static ControlPlane, TestNamespace)> {
    let plane = control_plane().await?;
    define_kind(plane, GROUP, "Cup").await;
    Some((plane, TestNamespace::create(plane, prefix).await.unwrap()))
}

fn all() -> Webhooks {
    webhook::webhooks()
        .validate(check)
        .validate_delete(may_go)
        .mutate(complete)
}

fn cups(namespace: &TestNamespace) -> Api<DynamicObject> {
    api_of(namespace, GROUP, "Cup")
}

fn cup(name: &str, spec: Value) -> DynamicObject {
    let mut cup = json!({
        "apiVersion": "webhook.example.com/v1", "kind": "Cup", "metadata": {"name": name},
    });
    cup["spec"] = spec;
    serde_json::from_value(cup).unwrap()
}

async fn create(namespace: &TestNamespace, name: &str, spec: Value) -> Result<Value, String> {
    let created = cups(namespace)
        .create(&PostParams::default(), &cup(name, spec))
        .await;
    created
        .map(|cup| serde_json::to_value(cup).unwrap())
        .map_err(|error| error.to_string())
}

async fn change(namespace: &TestNamespace, name: &str, patch: Value) -> Result<(), String> {
    let changed = cups(namespace)
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await;
    changed.map(drop).map_err(|error| error.to_string())
}

async fn delete(namespace: &TestNamespace, name: &str) -> Result<(), String> {
    let deleted = cups(namespace).delete(name, &DeleteParams::default()).await;
    deleted.map(drop).map_err(|error| error.to_string())
}

/// Waits until the API server calls the validation: a request is denied.
async fn validated(namespace: &TestNamespace) {
    let denied = async || {
        let error = dry_run(namespace, json!({"size": 0})).await;
        let error = error.map_or_else(|error| error, |cup| cup.to_string());
        if error.contains("must be at least 1") {
            Ok(())
        } else {
            Err(error)
        }
    };
    eventually("the validation", denied).await;
}

/// Waits until the API server calls the validation and the mutation of [`all`].
async fn effective(namespace: &TestNamespace) {
    validated(namespace).await;
    let mutated = async || match dry_run(namespace, json!({"size": 1})).await {
        Ok(cup) if cup["spec"]["colour"] == "white" => Ok(()),
        other => Err(format!("{other:?}")),
    };
    eventually("the mutation", mutated).await;
}

async fn dry_run(namespace: &TestNamespace, spec: Value) -> Result<Value, String> {
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let tried = cups(namespace).create(&dry, &cup("never", spec)).await;
    tried
        .map(|cup| serde_json::to_value(cup).unwrap())
        .map_err(|error| error.to_string())
}

fn configuration_api(namespace: &TestNamespace, kind: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    Api::all_with(namespace.client(), &ApiResource::from_gvk(&gvk))
}

const CONFIGURATIONS: [&str; 2] = [
    "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
];

/// Returns the configurations of the operator that is named after the namespace.
async fn configurations(namespace: &TestNamespace) -> Vec<Value> {
    let mut found = Vec::new();
    for kind in CONFIGURATIONS {
        let name = format!("{}-webhooks", namespace.name());
        let object = configuration_api(namespace, kind).get(&name).await;
        found.push(serde_json::to_value(object.unwrap()).unwrap());
    }
    found
}

/// Removes the configurations, so that the namespace can be deleted without an operator.
async fn cleanup(namespace: &TestNamespace) {
    for kind in CONFIGURATIONS {
        let name = format!("{}-webhooks", namespace.name());
        let api = configuration_api(namespace, kind);
        drop(api.delete(&name, &DeleteParams::default()).await);
    }
}

async fn secret(namespace: &TestNamespace) -> Value {
    let name = format!("{}-webhook-cert", namespace.name());
    let secrets = api(namespace, "Secret");
    until(&secrets, &name, "a Secret", |_| true).await
}

#[tokio::test(flavor = "multi_thread")]
async fn validation_denies_with_a_message_and_warnings() {
    let (plane, namespace) = or_skip!(setup("validate").await);
    let replica = Replica::start(plane, &namespace, all()).await;
    effective(&namespace).await;

    let error = create(&namespace, "zero", json!({"size": 0})).await;
    let error = error.unwrap_err();
    assert_contains!(error, "spec.size: must be at least 1");
    assert_contains!(error, "validate-v1.cups.webhook.example.com");
    // An object without the fields of the type is denied, and the field is named.
    let error = create(&namespace, "text", json!({"size": "big"})).await;
    let error = error.unwrap_err();
    assert_contains!(error, "spec.size: invalid type: string");
    // An update is compared with the stored object.
    create(&namespace, "fine", json!({"size": 1, "colour": "red"}))
        .await
        .unwrap();
    let error = change(&namespace, "fine", json!({"spec": {"colour": "blue"}})).await;
    let error = error.unwrap_err();
    assert_contains!(error, "spec.colour: cannot be changed");
    change(&namespace, "fine", json!({"spec": {"size": 2}}))
        .await
        .unwrap();
    delete(&namespace, "fine").await.unwrap();
    // A deletion can be denied.
    create(&namespace, "cup", json!({"size": 1, "colour": "gold"}))
        .await
        .unwrap();
    let error = delete(&namespace, "cup").await.unwrap_err();
    assert_contains!(error, "cup is too precious");

    // Warnings are shown with an answer of either kind.
    for (size, code, denied) in [(150, 201, false), (1000, 403, true)] {
        let url = format!("/apis/{GROUP}/v1/namespaces/{}/cups", namespace.name());
        let body = serde_json::to_vec(&cup("large", json!({"size": size}))).unwrap();
        let request = http::Request::post(url).header("content-type", "application/json");
        let client = namespace.client();
        let response = client
            .send(request.body(body.into()).unwrap())
            .await
            .unwrap();
        assert_eq!(response.status().as_u16(), code);
        let warnings = response.headers().get_all("warning").iter();
        let warnings: Vec<&str> = warnings.map(|text| text.to_str().unwrap()).collect();
        assert!(
            warnings
                .iter()
                .any(|text| text.contains("sizes above 100 are for buckets")),
            "{denied}: {warnings:?}"
        );
    }
    let metrics = get(&replica.metrics, "/metrics").await;
    let line = "controller_runtime_webhook_requests_total{webhook=\"/validate-webhook-example-com-v1-cup\",code=\"200\"}";
    assert_contains!(metrics, line);
    assert_contains!(metrics, "controller_runtime_webhook_latency_seconds_bucket");
    cleanup(&namespace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn panicking_function_denies_its_request_alone() {
    let (plane, namespace) = or_skip!(setup("panic").await);
    let _replica = Replica::start(plane, &namespace, all()).await;
    effective(&namespace).await;
    let error = create(&namespace, "unlucky", json!({"size": 13})).await;
    let error = error.unwrap_err();
    assert_contains!(error, "panicked; see the log of the operator");
    assert_contains!(error, "denied the request");
    create(&namespace, "lucky", json!({"size": 14}))
        .await
        .unwrap();
    cleanup(&namespace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mutation_sets_a_default_and_keeps_unknown_fields() {
    let (plane, namespace) = or_skip!(setup("mutate").await);
    let _replica = Replica::start(plane, &namespace, all()).await;
    effective(&namespace).await;
    let spec = json!({"size": 1, "unknown": {"to": ["the type"]}});
    let created = create(&namespace, "plain", spec.clone()).await.unwrap();
    let mut wanted = spec;
    wanted["colour"] = json!("white");
    assert_eq!(created["spec"], wanted, "no other field appears");
    let red = create(&namespace, "red", json!({"size": 1, "colour": "red"})).await;
    assert_eq!(red.unwrap()["spec"]["colour"], "red");
    cleanup(&namespace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_writes_nothing_and_removed_webhooks_go() {
    let (plane, namespace) = or_skip!(setup("again").await);
    let address = free_address();
    let start = async |webhooks: Webhooks| {
        let bind = |options: &mut Options| options.webhooks.bind_address.clone_from(&address);
        Replica::with(plane, &namespace, webhooks, bind).await
    };
    let first = start(all()).await;
    effective(&namespace).await;
    let created = [
        "create secrets",
        "apply validatingwebhookconfigurations",
        "apply mutatingwebhookconfigurations",
    ];
    assert_eq!(first.writes(), created);
    let before = (configurations(&namespace).await, secret(&namespace).await);
    drop(first);

    let second = start(all()).await;
    effective(&namespace).await;
    assert_eq!(second.writes(), [] as [&str; 0]);
    assert_eq!(
        before,
        (configurations(&namespace).await, secret(&namespace).await)
    );
    drop(second);

    // Somebody else's webhook in the configuration stays; one that the operator has lost goes.
    let api = configuration_api(&namespace, "ValidatingWebhookConfiguration");
    let name = format!("{}-webhooks", namespace.name());
    let mut foreign = before.0[0]["webhooks"][0].clone();
    foreign["name"] = json!("foreign.example.com");
    foreign["failurePolicy"] = json!("Ignore");
    let foreign = json!([{"op": "add", "path": "/webhooks/-", "value": foreign}]);
    let foreign: json_patch::Patch = serde_json::from_value(foreign).unwrap();
    let patch = Patch::Json::<()>(foreign);
    api.patch(&name, &PatchParams::default(), &patch)
        .await
        .unwrap();
    let _third = start(webhook::webhooks().validate(check)).await;
    let names = |configuration: &Value| {
        let webhooks = configuration["webhooks"].as_array().cloned();
        let names = webhooks.unwrap_or_default().into_iter();
        let mut names: Vec<String> = names
            .map(|w| w["name"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    };
    let wanted = [
        "foreign.example.com",
        "validate-v1.cups.webhook.example.com",
    ];
    let is = |configuration: &Value| names(configuration) == wanted;
    until(&api, &name, "one webhook of the operator's", is).await;
    let mutations = configuration_api(&namespace, "MutatingWebhookConfiguration");
    gone(&mutations, &name).await;
    cleanup(&namespace).await;
}

/// A TCP load balancer: connections go to the first of its backends that accepts them.
struct Balancer {
    address: SocketAddr,
    backends: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Balancer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let backends = Arc::new(Mutex::new(Vec::<String>::new()));
        let known = Arc::clone(&backends);
        let task = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let backends = known.lock().unwrap().clone();
                tokio::spawn(async move {
                    for backend in backends {
                        if let Ok(mut far) = TcpStream::connect(backend).await {
                            drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
                            return;
                        }
                    }
                });
            }
        });
        Self {
            address,
            backends,
            task,
        }
    }

    async fn replica(&self, plane: &ControlPlane, namespace: &TestNamespace) -> Replica {
        let address = free_address();
        let replica = Replica::with(plane, namespace, all(), |options| {
            options.webhooks.bind_address.clone_from(&address);
            options.webhooks.url = Some(format!("https://{}", self.address));
        });
        let replica = replica.await;
        self.backends.lock().unwrap().push(address);
        replica
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_one_certificate_and_stand_in_for_each_other() {
    let (plane, namespace) = or_skip!(setup("replicas").await);
    let balancer = Balancer::start().await;
    let (first, second) = tokio::join!(
        balancer.replica(plane, &namespace),
        balancer.replica(plane, &namespace)
    );
    effective(&namespace).await;
    let one = secret(&namespace).await;
    drop(first);
    // Every new connection leads to the second replica, which serves the same certificate.
    effective(&namespace).await;
    let metrics = get(&second.metrics, "/metrics").await;
    assert_contains!(metrics, "code=\"200\"");
    let data = secret(&namespace).await["data"].clone();
    assert_eq!(one["data"], data);
    for configuration in configurations(&namespace).await {
        assert_eq!(
            configuration["webhooks"][0]["clientConfig"]["caBundle"],
            data["ca.crt"]
        );
    }
    // Both found the same to be wanted, so that they do not undo each other's writes.
    let version = |all: &[Value]| {
        let versions = all.iter().map(|one| one["metadata"]["generation"].clone());
        versions.collect::<Vec<_>>()
    };
    assert_eq!(version(&configurations(&namespace).await), [1, 1]);
    cleanup(&namespace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_that_is_not_the_leader_is_ready_and_serves_webhooks() {
    let (plane, namespace) = or_skip!(setup("follower").await);
    let held = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": namespace.name()},
        "spec": {
            "holderIdentity": "somebody-else", "leaseDurationSeconds": 3600,
            "renewTime": "2030-01-01T00:00:00.000000Z",
        },
    });
    let leases: Api<DynamicObject> = api(&namespace, "Lease");
    let held: DynamicObject = serde_json::from_value(held).unwrap();
    let held = leases.create(&PostParams::default(), &held).await.unwrap();
    let mut options = options_in(&namespace);
    options.leader_elect = true;
    options.kubeconfig = Some(plane.kubeconfig_path().to_owned());
    let probes = free_address();
    options.health_probe_bind_address.clone_from(&probes);
    let metrics = options.metrics_bind_address.clone();
    let manager = Manager::new(options).with_webhooks(all());
    let _replica = Replica::run(manager, Faults::new(), metrics);
    effective(&namespace).await;
    let answer = get(&probes, "/readyz").await;
    assert_contains!(answer, "200 OK");
    let lease = leases.get(namespace.name()).await.unwrap();
    assert_eq!(
        lease.data["spec"], held.data["spec"],
        "it is not the leader"
    );
    cleanup(&namespace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_others_are_not_overwritten() {
    let (plane, namespace) = or_skip!(setup("foreign").await);
    let mutations = configuration_api(&namespace, CONFIGURATIONS[1]);
    let name = format!("{}-webhooks", namespace.name());
    let foreign = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": CONFIGURATIONS[1],
        "metadata": {"name": name},
    });
    let foreign: DynamicObject = serde_json::from_value(foreign).unwrap();
    let foreign = mutations.create(&PostParams::default(), &foreign).await;
    let replica = Replica::start(plane, &namespace, all()).await;
    // The other configuration is applied all the same, and the operator tries again.
    validated(&namespace).await;
    let reads = async || {
        replica
            .faults
            .counts()
            .get("get mutatingwebhookconfigurations")
            >= Some(&2)
    };
    eventually("another attempt", reads).await;
    let untouched = mutations.get(&name).await.unwrap();
    assert_eq!(untouched, foreign.unwrap());
    cleanup(&namespace).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_fails_while_the_certificate_is_rotated() {
    let (plane, namespace) = or_skip!(setup("rotate").await);
    let webhooks = all().certificate_lifetime(Duration::from_secs(20));
    let _replica = Replica::start(plane, &namespace, webhooks).await;
    effective(&namespace).await;
    let first = secret(&namespace).await;
    let (over, count) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
    let ended = Arc::clone(&over);
    // Several at a time, so that there are new connections all the time.
    let requests = async || {
        while !ended.load(Ordering::SeqCst) {
            let answered = dry_run(&namespace, json!({"size": 1})).await.unwrap();
            assert_eq!(answered["spec"]["colour"], "white");
            count.fetch_add(1, Ordering::SeqCst);
        }
    };
    let rotated = async {
        let name = format!("{}-webhook-cert", namespace.name());
        let secrets = api(&namespace, "Secret");
        let key = |secret: &Value| secret["data"]["tls.crt"].clone();
        let announced = |secret: &Value| !secret["data"]["next.crt"].is_null();
        let secret = until(&secrets, &name, "the next certificate", announced).await;
        assert_eq!(key(&secret), key(&first), "it is not served yet");
        let switched = |secret: &Value| key(secret) != key(&first);
        let secret = until(&secrets, &name, "a new certificate", switched).await;
        let bundle = secret["data"]["ca.crt"].as_str().unwrap().to_owned();
        assert!(bundle.len() > first["data"]["ca.crt"].as_str().unwrap().len());
        let shorter = |secret: &Value| {
            let authorities = secret["data"]["ca.crt"].as_str().unwrap();
            authorities.len() < bundle.len()
        };
        until(&secrets, &name, "the former authority to go", shorter).await;
        let before = count.load(Ordering::SeqCst);
        let after = async || count.load(Ordering::SeqCst) > before + 20;
        eventually("requests after the rotation", after).await;
        over.store(true, Ordering::SeqCst);
    };
    tokio::join!(requests(), requests(), requests(), rotated);
    assert!(count.load(Ordering::SeqCst) > 50, "{count:?}");
    cleanup(&namespace).await;
}

/// Returns a certificate for 127.0.0.1, its key and its authority, as another operator made them.
async fn issue(plane: &ControlPlane, prefix: &str) -> [String; 3] {
    let namespace = TestNamespace::create(plane, prefix).await.unwrap();
    let replica = Replica::start(plane, &namespace, all()).await;
    effective(&namespace).await;
    let secret = secret(&namespace).await;
    drop(replica);
    cleanup(&namespace).await;
    ["tls.crt", "tls.key", "ca.crt"].map(|key| {
        let text = secret["data"][key].as_str().unwrap();
        let text = data_encoding::BASE64.decode(text.as_bytes()).unwrap();
        String::from_utf8(text).unwrap()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn certificate_of_a_directory_is_served_and_its_bundle_left_to_others() {
    let (plane, namespace) = or_skip!(setup("files").await);
    let (old, new) = tokio::join!(issue(plane, "issue"), issue(plane, "issue"));
    // A mounted Secret is a link to a directory, and is changed by changing the link.
    let mount = tempfile::tempdir().unwrap();
    let at = |name: &str| mount.path().join(name);
    let publish = |version: &str, pair: &[String; 3]| {
        std::fs::create_dir(at(version)).unwrap();
        std::fs::write(at(version).join("tls.crt"), &pair[0]).unwrap();
        std::fs::write(at(version).join("tls.key"), &pair[1]).unwrap();
        std::os::unix::fs::symlink(at(version), at("link")).unwrap();
        std::fs::rename(at("link"), at("current")).unwrap();
    };
    publish("1", &old);
    let _replica = Replica::with(plane, &namespace, all(), |options| {
        options.webhooks.bind_address = free_address();
        options.webhooks.certificate_directory = Some(at("current"));
        options.webhooks.inject_ca_from = Some("certs/webhooks".to_owned());
    })
    .await;

    // Stands for cert-manager, which fills in the bundle where the annotation asks for it.
    let inject = async |bundle: &str| {
        for kind in CONFIGURATIONS {
            let api = configuration_api(&namespace, kind);
            let name = format!("{}-webhooks", namespace.name());
            let asks = |object: &Value| {
                object["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
                    == "certs/webhooks"
            };
            let object = until(&api, &name, "the annotation", asks).await;
            let count = object["webhooks"].as_array().unwrap().len();
            let bundle = data_encoding::BASE64.encode(bundle.as_bytes());
            let add = |at| json!({"op": "add", "path": format!("/webhooks/{at}/clientConfig/caBundle"), "value": bundle});
            let patch: Vec<Value> = (0..count).map(add).collect();
            let patch: json_patch::Patch = serde_json::from_value(json!(patch)).unwrap();
            let params = PatchParams {
                field_manager: Some("cainjector".to_owned()),
                ..PatchParams::default()
            };
            api.patch(&name, &params, &Patch::Json::<()>(patch))
                .await
                .unwrap();
        }
    };
    inject(&old[2]).await;
    effective(&namespace).await;
    // Once only the new authority is trusted, only the new certificate will do.
    publish("2", &new);
    inject(&new[2]).await;
    effective(&namespace).await;
    for configuration in configurations(&namespace).await {
        let bundle = configuration["webhooks"][0]["clientConfig"]["caBundle"]
            .as_str()
            .unwrap();
        assert_eq!(bundle, data_encoding::BASE64.encode(new[2].as_bytes()));
    }
    let own = format!("{}-webhook-cert", namespace.name());
    assert!(!exists(&api(&namespace, "Secret"), &own).await);
    cleanup(&namespace).await;
}

/// Lets the requests of [`slowly`] go on.
static GO_ON: tokio::sync::Semaphore = tokio::sync::Semaphore::const_new(0);
static ARRIVED: AtomicUsize = AtomicUsize::new(0);

async fn slowly(request: Request<Cup>) -> Result<(), Denied> {
    check_size(&request)?;
    ARRIVED.fetch_add(1, Ordering::SeqCst);
    drop(GO_ON.acquire().await?);
    Ok(())
}

fn check_size(request: &Request<Cup>) -> Result<(), Denied> {
    if request.object().spec.size < 1 {
        return Err(Denied::invalid("spec.size", "must be at least 1"));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_progress_are_answered_when_the_operator_stops() {
    let (plane, namespace) = or_skip!(setup("graceful").await);
    let address = free_address();
    let webhooks = webhook::webhooks().validate(slowly);
    let bind = |options: &mut Options| options.webhooks.bind_address.clone_from(&address);
    let replica = Replica::with(plane, &namespace, webhooks, bind).await;
    validated(&namespace).await;
    let creation = create(&namespace, "slow", json!({"size": 1}));
    let end = async {
        let arrived = async || ARRIVED.load(Ordering::SeqCst) == 1;
        eventually("the request", arrived).await;
        replica.operator.stop.cancel();
        // The listener is closed before the request is answered.
        let closed = async || TcpStream::connect(&address).await.is_err();
        eventually("a closed port", closed).await;
        GO_ON.add_permits(1);
    };
    let (created, ()) = tokio::join!(creation, end);
    created.unwrap();
    cleanup(&namespace).await;
}
