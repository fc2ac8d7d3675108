//! Charts that the operator fetches: from a registry, with a lock and a cache, and from servers that are
//! down, come back, or have other versions.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use data_encoding::BASE64;
use hybrid_operator_test::http_server::Reply;
use hybrid_operator_test::{HttpServer, Operator, Registry, helm, packaged_chart};
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use p256::pkcs8::{EncodePublicKey as _, LineEnding};
use serde_json::json;

use crate::transcript::{is_current, programs};
use crate::world::{
    LIMIT, Project, World, api, apply, condition, control_plane, eventually, new_namespace, output,
    says, until,
};

/// A `ConfigMap` with the version of the chart and a value.
const MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: '{{ .Release.Name }}-map'}
data: {chart: '{{ .Chart.Version }}', value: '{{ .Values.value }}'}
";

fn archive(version: &str) -> Vec<u8> {
    packaged_chart("web", version, &[("templates/map.yaml", MAP)])
}

/// A project without charts of its own, whose kind `Gadget` has the chart `chart` (YAML).
fn project(chart: &str) -> Project {
    let project = Project::new("", &[("map.yaml", MAP)]);
    set_chart(&project, chart);
    project
}

/// Writes a watches file in which `Widget` has a chart of the project, and `Gadget` the chart `chart`.
fn set_chart(project: &Project, chart: &str) {
    let entry = "group: test.example.com, version: v1";
    let watches = format!(
        "- {{{entry}, kind: Widget, chart: chart}}\n- {{{entry}, kind: Gadget, chart: {chart}}}\n"
    );
    project.write("watches.yaml", &watches);
}

/// Serves the chart `web` in versions 1.0.0 and 2.0.0 while `up`.
fn repository(up: &Arc<AtomicBool>) -> HttpServer {
    let up = Arc::clone(up);
    HttpServer::start(move |request| {
        let index = "apiVersion: v1\nentries: {web: [{name: web, version: 2.0.0, urls: [2.0.0.tgz]}, {name: web, version: 1.0.0, urls: [1.0.0.tgz]}]}";
        match request.target.as_str() {
            _ if !up.load(Ordering::SeqCst) => Reply::status(503),
            "/index.yaml" => Reply::body(index),
            path => match path.trim_start_matches('/').strip_suffix(".tgz") {
                Some(version) => Reply::body(archive(version)),
                None => Reply::status(404),
            },
        }
    })
    .unwrap()
}

async fn start(
    project: &Project,
    prefix: &str,
    change: impl FnOnce(Operator) -> Operator,
) -> Option<World> {
    let cache = project.watches_file().with_file_name("cache");
    World::with(prefix, |plane, name| {
        change(project.operator(plane, name).env("CHART_CACHE", cache))
    })
    .await
}

/// Applies a Gadget and waits for what its chart makes of it.
async fn deployed(world: &World, name: &str, chart: &str, value: &str) {
    let spec = json!({"spec": {"value": value}});
    apply(&api(&world.namespace, "Gadget"), name, &spec).await;
    let data = json!({"chart": chart, "value": value});
    world.data(&format!("{name}-map"), data).await;
}

/// Waits until a probe answers with a status and a text.
async fn answers(world: &World, path: &str, status: u16, text: &str) {
    let there = async || {
        let answer = world.operator.probe(path).await;
        answer.is_ok_and(|(found, body)| found == status && body.contains(text))
    };
    eventually(text, there).await;
}

/// Waits until a metric has a value: `line` is a line of `/metrics`.
async fn counts(world: &World, line: &str) {
    let there = async || {
        let metrics = world.operator.metrics().await.unwrap();
        metrics.lines().any(|found| found == line)
    };
    eventually(line, there).await;
}

fn hybrid_operator(folder: &Path, arguments: &[&str]) -> String {
    is_current("hybrid-operator").unwrap();
    output(
        Command::new(programs().join("hybrid-operator"))
            .args(arguments)
            .current_dir(folder)
            .env("HOME", folder),
    )
}

/// Pushes a version of the chart to a registry with Helm's command.
fn push(helm: &Path, registry: &Registry, home: &Path, version: &str) {
    let file = home.join(format!("web-{version}.tgz"));
    std::fs::write(&file, archive(version)).unwrap();
    let target = format!("oci://{}/charts", registry.address());
    run_helm(
        helm,
        home,
        &["push", "--plain-http", file.to_str().unwrap(), &target],
    );
}

pub(crate) fn run_helm(helm: &Path, home: &Path, arguments: &[&str]) {
    output(Command::new(helm).args(arguments).env("HOME", home));
}

#[tokio::test]
async fn locked_chart_of_a_registry_is_installed_and_needs_no_network_once_it_is_cached() {
    let helm = or_skip!(helm::ensure_or_skip().unwrap());
    let registry = or_skip!(Registry::start_or_skip(None).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let push = |version: &str| push(&helm, &registry, folder.path(), version);
    push("1.0.0");
    push("1.2.0");
    push("2.0.0");
    let url = format!("oci://{}/charts/web", registry.address());
    let project = project(&format!("{{url: '{url}', version: ^1, plainHttp: true}}"));
    let at = project.watches_file();
    let said = hybrid_operator(at.parent().unwrap(), &["charts", "lock"]);
    assert_eq!(said, format!("locked {url} ^1 at 1.2.0\n"));
    // What is published later does not matter.
    push("1.3.0");

    let cache = folder.path().join("cache");
    let with_variable = |operator: Operator| operator.env("CHART_CACHE", &cache);
    let mut world = or_skip!(start(&project, "locked", with_variable).await);
    deployed(&world, "a", "1.2.0", "1").await;
    assert!(world.operator.stop(LIMIT).await.unwrap().success());
    drop(registry);
    let again = project.operator(world.plane, world.namespace.name());
    let again = again.arg(format!("--chart-cache={}", cache.display()));
    world.operator = again.start().await.unwrap();
    deployed(&world, "a", "1.2.0", "2").await;
    let log = world.operator.log();
    assert!(!log.contains("the chart is missing"), "{log}");
}

#[tokio::test]
async fn registry_that_is_down_at_the_start_holds_up_only_the_entry_of_its_chart() {
    let up = Arc::new(AtomicBool::new(false));
    let server = repository(&up);
    let url = server.url("");
    let project = project(&format!("{{repo: '{url}', name: web, version: 1.0.0}}"));
    let reached = |operator: Operator| operator.ready_path("/readyz/api-server");
    let world = or_skip!(start(&project, "missing", reached).await);
    // The other entry runs.
    world.widget("w", json!({"value": "1"})).await;
    let data = json!({"chart": "0.1.0", "value": "1"});
    world.data("w-map", data).await;
    let gadgets = api(&world.namespace, "Gadget");
    apply(&gadgets, "g", &json!({"spec": {"value": "1"}})).await;
    answers(&world, "/readyz/charts", 500, "Gadget does not run: ").await;
    answers(&world, "/readyz", 500, "answers with status 503").await;
    counts(&world, "hybrid_operator_charts_missing 1").await;
    // Its custom resources say why they wait.
    let waits = |cr: &serde_json::Value| {
        condition(cr, "Ready").is_some_and(|ready| ready["reason"] == "Retrying")
            && says(cr, "Ready", &url)
            && says(cr, "Ready", "the next attempt is within")
    };
    until(&gadgets, "g", "the missing chart", waits).await;

    up.store(true, Ordering::SeqCst);
    deployed(&world, "g", "1.0.0", "1").await;
    let ready = |cr: &serde_json::Value| {
        condition(cr, "Ready")
            .is_some_and(|ready| ready["status"] == "True" && ready["message"] == "")
    };
    until(&gadgets, "g", "Ready", ready).await;
    answers(&world, "/readyz", 200, "ok").await;
    counts(&world, "hybrid_operator_charts_missing 0").await;
}

#[tokio::test]
async fn changed_version_is_fetched_and_one_that_is_missing_changes_nothing() {
    let up = Arc::new(AtomicBool::new(true));
    let server = repository(&up);
    let chart = |version: &str| {
        format!(
            "{{repo: '{}', name: web, version: {version}}}",
            server.url("")
        )
    };
    let project = project(&chart("1.0.0"));
    let quick = |operator: Operator| {
        let operator = operator.args(["--reload-pace=100ms", "--reconcile-period=1s"]);
        operator.env("POD_NAME", "operator-0")
    };
    let world = or_skip!(start(&project, "versions", quick).await);
    deployed(&world, "a", "1.0.0", "1").await;

    set_chart(&project, &chart("3.0.0"));
    let refused = "hybrid_operator_reload_total{result=\"refused\"} 1";
    counts(&world, refused).await;
    let log = world.operator.log();
    assert_contains!(log, "has no version \\\"3.0.0\\\"");
    deployed(&world, "a", "1.0.0", "2").await;
    // The entry runs, with the former chart.
    answers(&world, "/readyz", 200, "ok").await;

    set_chart(&project, &chart("2.0.0"));
    let data = json!({"chart": "2.0.0", "value": "2"});
    world.data("a-map", data).await;
}

#[tokio::test]
async fn a_server_with_tls_is_trusted_if_the_entry_names_its_authority() {
    let plane = or_skip!(control_plane().await);
    // The API server stands for a server of charts with TLS: it has nothing for strangers, and no charts.
    let text = std::fs::read(plane.kubeconfig_path()).unwrap();
    let config: serde_json::Value = go_yaml::from_slice(&text).unwrap();
    let cluster = &config["clusters"][0]["cluster"];
    let server = cluster["server"].as_str().unwrap();
    let chart = |more: &str| format!("{{url: '{server}/charts/web-1.0.0.tgz'{more}}}");
    let project = project(&chart(""));
    let authority = cluster["certificate-authority-data"].as_str().unwrap();
    let authority = BASE64.decode(authority.as_bytes()).unwrap();
    project.write("ca.crt", std::str::from_utf8(&authority).unwrap());
    let quick = |operator: Operator| {
        let operator = operator.ready_path("/readyz/api-server");
        operator.arg("--reload-pace=100ms")
    };
    let world = or_skip!(start(&project, "tls", quick).await);
    answers(&world, "/readyz/charts", 500, "is not trusted").await;
    set_chart(&project, &chart(", caFile: ca.crt"));
    answers(
        &world,
        "/readyz/charts",
        500,
        "needs credentials (status 40",
    )
    .await;
}

/// Signs a chart in a registry as cosign does.
async fn sign(registry: &Registry, name: &str, version: &str, key: &SigningKey) {
    let client = reqwest::Client::new();
    let base = format!("http://{}/v2/{name}", registry.address());
    let manifest = format!("{base}/manifests/{version}");
    let accept = "application/vnd.oci.image.manifest.v1+json";
    let answer = client.get(&manifest).header("Accept", accept).send().await;
    let signed = digest(&answer.unwrap().bytes().await.unwrap());
    let payload = json!({"critical": {
        "identity": {"docker-reference": ""},
        "image": {"docker-manifest-digest": signed},
        "type": "cosign container image signature",
    }});
    let payload = payload.to_string();
    let signature: Signature = key.sign(payload.as_bytes());
    let signature = BASE64.encode(signature.to_der().as_bytes());
    let blob = async |content: &str| {
        let started = client.post(format!("{base}/blobs/uploads/")).send().await;
        let started = started.unwrap();
        let location = started.headers()["location"].to_str().unwrap().to_owned();
        let and = if location.contains('?') { '&' } else { '?' };
        let digest = digest(content.as_bytes());
        let url = format!("{location}{and}digest={digest}");
        let put = client.put(url).body(content.to_owned()).send().await;
        assert!(put.unwrap().status().is_success());
        (digest, content.len())
    };
    let (config, config_size) = blob("{}").await;
    let (layer, layer_size) = blob(&payload).await;
    let signatures = json!({
        "schemaVersion": 2,
        "mediaType": accept,
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": config_size},
        "layers": [{
            "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
            "digest": layer,
            "size": layer_size,
            "annotations": {"dev.cosignproject.cosign/signature": signature},
        }],
    });
    let tag = signed.replace(':', "-");
    let put = client
        .put(format!("{base}/manifests/{tag}.sig"))
        .header("Content-Type", accept)
        .body(signatures.to_string())
        .send()
        .await;
    assert!(put.unwrap().status().is_success());
}

fn digest(data: &[u8]) -> String {
    chart_source::Digest::of(data).to_string()
}

#[tokio::test]
async fn a_chart_is_used_only_if_it_is_signed_with_the_key_of_its_entry_also_from_the_cache() {
    let helm = or_skip!(helm::ensure_or_skip().unwrap());
    let registry = or_skip!(Registry::start_or_skip(None).unwrap());
    let folder = tempfile::tempdir().unwrap();
    push(&helm, &registry, folder.path(), "1.0.0");
    let url = format!("oci://{}/charts/web:1.0.0", registry.address());
    let archive = digest(&archive("1.0.0"));
    let project = project(&format!(
        "{{url: '{url}', digest: '{archive}', plainHttp: true, verify: {{cosign: {{key: cosign.pub}}}}}}"
    ));
    let key = SigningKey::from_slice(&[1; 32]).unwrap();
    let public = key.verifying_key().to_public_key_pem(LineEnding::LF);
    let public = public.unwrap();
    project.write("cosign.pub", &public);
    let other = SigningKey::from_slice(&[2; 32]).unwrap();
    sign(&registry, "charts/web", "1.0.0", &other).await;
    let reached = |operator: Operator| operator.ready_path("/readyz/api-server");
    let mut world = or_skip!(start(&project, "signed", reached).await);
    let gadgets = api(&world.namespace, "Gadget");
    apply(&gadgets, "a", &json!({"spec": {"value": "1"}})).await;
    let refused = "no signature of it was made with the key";
    answers(&world, "/readyz/charts", 500, refused).await;

    sign(&registry, "charts/web", "1.0.0", &key).await;
    deployed(&world, "a", "1.0.0", "1").await;

    // Another key in the file is a reload, which is refused.
    let replaced = other.verifying_key().to_public_key_pem(LineEnding::LF);
    project.write("cosign.pub", &replaced.unwrap());
    let refused = "hybrid_operator_reload_total{result=\"refused\"} 1";
    counts(&world, refused).await;
    project.write("cosign.pub", &public);

    assert!(world.operator.stop(LIMIT).await.unwrap().success());
    drop(registry);
    let cache = project.watches_file().with_file_name("cache");
    let again = async |world: &mut World| {
        let operator = project.operator(world.plane, world.namespace.name());
        let operator = operator.env("CHART_CACHE", &cache);
        let operator = operator.ready_path("/readyz/api-server");
        world.operator = operator.start().await.unwrap();
    };
    again(&mut world).await;
    deployed(&world, "a", "1.0.0", "2").await;
    assert!(world.operator.stop(LIMIT).await.unwrap().success());

    let files = std::fs::read_dir(&cache).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let proofs: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|found| found == "proof"))
        .collect();
    assert_eq!(proofs.len(), 1, "{proofs:?}");
    std::fs::write(&proofs[0], "{}").unwrap();
    again(&mut world).await;
    let changed = "somebody changed the cache";
    answers(&world, "/readyz/charts", 500, changed).await;
    world
        .data("a-map", json!({"chart": "1.0.0", "value": "2"}))
        .await;
}

/// The user `me` with the password `hidden`.
const HTPASSWD: &str = "me:$2a$10$NQA4HuFFf3Bg3BFeGanQO.Beph0quhOf.OgOtT5sKwqYp9sCBgcXi\n";

#[tokio::test]
async fn credentials_of_a_registry_come_from_a_secret() {
    let helm = or_skip!(helm::ensure_or_skip().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let users = folder.path().join("htpasswd");
    std::fs::write(&users, HTPASSWD).unwrap();
    let registry = or_skip!(Registry::start_or_skip(Some(&users)).unwrap());
    let (plane, namespace) = or_skip!(new_namespace("credentials").await);
    let host = registry.address();
    let login = [
        "registry",
        "login",
        host,
        "-u",
        "me",
        "-p",
        "hidden",
        "--plain-http",
    ];
    run_helm(&helm, folder.path(), &login);
    push(&helm, &registry, folder.path(), "1.0.0");

    let secret = format!("{}/registry", namespace.name());
    let project = project(&format!(
        "{{url: 'oci://{host}/charts/web:1.0.0', plainHttp: true, credentialsSecret: {secret}}}"
    ));
    let operator = project.operator(plane, namespace.name());
    let cache = folder.path().join("cache");
    let operator = operator
        .ready_path("/readyz/api-server")
        .env("CHART_CACHE", cache);
    let operator = operator.env("HOME", folder.path().join("nobody"));
    let world = World::run(plane, operator, namespace).await;
    let missing = format!("there is no Secret {secret}");
    answers(&world, "/readyz", 500, &missing).await;

    let secrets = api(&world.namespace, "Secret");
    let wrong = json!({"type": "Opaque", "stringData": {"username": "me"}});
    apply(&secrets, "registry", &wrong).await;
    let why = format!("the Secret {secret} has no password; its keys are: username");
    answers(&world, "/readyz", 500, &why).await;
    let right = json!({"type": "Opaque", "stringData": {"username": "me", "password": "hidden"}});
    apply(&secrets, "registry", &right).await;
    deployed(&world, "a", "1.0.0", "1").await;
    answers(&world, "/readyz", 200, "ok").await;
    let log = world.operator.log();
    assert!(!log.contains("hidden"), "{log}");
}
