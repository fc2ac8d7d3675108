//! Charts of repositories and registries in `template`, `lint` and `create api`. The charts are packaged,
//! indexed and pushed by Helm's command, whose output is compared.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails with a panic"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use data_encoding::BASE64;
use hybrid_operator_test::http_server::Reply;
use hybrid_operator_test::{HttpServer, Registry, helm, shared_or_skip};

const PROGRAM: &str = env!("CARGO_BIN_EXE_hybrid-operator");

/// The user `me` with the password `hidden`.
const HTPASSWD: &str = "me:$2a$10$NQA4HuFFf3Bg3BFeGanQO.Beph0quhOf.OgOtT5sKwqYp9sCBgcXi\n";

/// A directory with the charts of the tests, and Helm's command.
struct Fixture {
    helm: PathBuf,
    directory: tempfile::TempDir,
}

impl Fixture {
    /// Packages the chart `shop` in three versions. Returns `None` if the machine cannot build Helm.
    fn new() -> Option<Self> {
        let fixture = Self {
            helm: helm::ensure_or_skip().unwrap()?,
            directory: tempfile::tempdir().unwrap(),
        };
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/charts/shop");
        for version in ["1.2.3", "1.10.0", "2.0.0-rc.1"] {
            let flags = format!("-d repo --version {version} --app-version {version}");
            let package = format!("package {} {flags}", chart.display());
            fixture.helm(&package);
        }
        fixture.helm("repo index repo");
        Some(fixture)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, program: &Path, arguments: &str) -> Output {
        Command::new(program)
            .args(arguments.split_whitespace())
            .current_dir(self.directory.path())
            .env("HOME", self.directory.path())
            .env("KUBECONFIG", self.path("no-kubeconfig"))
            .env_remove("XDG_CACHE_HOME")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("CHART_CACHE")
            .env_remove("HELM_NAMESPACE")
            .output()
            .unwrap()
    }

    /// Runs Helm's command, which must succeed, and returns what it prints.
    fn helm(&self, arguments: &str) -> String {
        succeeded(&self.run(&self.helm, arguments), arguments)
    }

    /// Runs our command, which must succeed, and returns what it prints.
    fn ours(&self, arguments: &str) -> String {
        succeeded(&self.run(Path::new(PROGRAM), arguments), arguments)
    }

    /// Runs our command, which must fail, and returns its message.
    fn error(&self, arguments: &str) -> String {
        let output = self.run(Path::new(PROGRAM), arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Serves the packaged charts and their index.
    fn repository(&self) -> HttpServer {
        let folder = self.path("repo");
        HttpServer::start(move |request| {
            let name = request.target.trim_start_matches("/charts/");
            match std::fs::read(folder.join(name)) {
                Ok(body) => Reply::body(body),
                Err(_) => Reply::status(404),
            }
        })
        .unwrap()
    }

    /// Pushes all versions to a registry.
    fn push(&self, registry: &Registry, flags: &str) {
        for version in ["1.2.3", "1.10.0", "2.0.0-rc.1"] {
            let target = format!("oci://{}/charts", registry.address());
            self.helm(&format!(
                "push repo/shop-{version}.tgz {target} --plain-http {flags}"
            ));
        }
    }
}

fn succeeded(output: &Output, arguments: &str) -> String {
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments}: {message}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn charts_of_a_repository_render_as_with_helm() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let server = fixture.repository();
    let repo = server.url("/charts");
    for (version, expected) in [
        ("", "1.10.0"),
        ("--version 1.2.3", "1.2.3"),
        ("--version ~1.2", "1.2.3"),
        ("--version >1.0.0-0", "2.0.0-rc.1"),
        ("--devel", "2.0.0-rc.1"),
        ("--devel --version 1.2.3", "1.2.3"),
        ("--version ^1,<1.10", "1.2.3"),
    ] {
        let arguments = format!("template web shop --repo {repo} {version}");
        let text = fixture.ours(&arguments);
        assert!(
            text.contains(&format!(":{expected}\"")),
            "{version}: {text}"
        );
        assert_eq!(text, fixture.helm(&arguments), "{version}");
    }
    let arguments = format!("template web {repo}/shop-1.2.3.tgz --set a=b");
    assert_eq!(fixture.ours(&arguments), fixture.helm(&arguments));
    let cached = std::fs::read_dir(fixture.path(".cache/hybrid-operator/charts")).unwrap();
    assert_eq!(cached.count(), 3, "one archive for each version");

    let message = fixture.error(&format!("template shpo --repo {repo}"));
    assert!(message.contains("did you mean \"shop\"?"), "{message}");
    let message = fixture.error(&format!("lint shop --repo {repo} --version ^3"));
    assert!(
        message.contains("has no version \"^3\"; the newest is 2.0.0-rc.1"),
        "{message}"
    );
    std::fs::write(fixture.path("repo/shop-1.2.3.tgz"), "changed").unwrap();
    let flags = "--version 1.2.3 --chart-cache other";
    let message = fixture.error(&format!("template shop --repo {repo} {flags}"));
    assert!(message.contains("but the index says sha256:"), "{message}");
}

#[test]
fn charts_of_a_registry_render_as_with_helm() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let Some(registry) = Registry::start_or_skip(None).unwrap() else {
        return;
    };
    fixture.push(&registry, "");
    let chart = format!("oci://{}/charts/shop", registry.address());
    for (reference, expected) in [
        (chart.clone(), "1.10.0"),
        (format!("{chart}:1.2.3"), "1.2.3"),
        (format!("{chart} --version 1.2.3"), "1.2.3"),
        (format!("{chart} --version ~1.2"), "1.2.3"),
        (format!("{chart} --version >1.0.0-0"), "2.0.0-rc.1"),
    ] {
        let arguments = format!("template web {reference} --plain-http");
        let text = fixture.ours(&arguments);
        assert!(
            text.contains(&format!(":{expected}\"")),
            "{reference}: {text}"
        );
        assert_eq!(text, fixture.helm(&arguments), "{reference}");
    }
    let message = fixture.error(&format!("template {chart} --version ^3 --plain-http"));
    assert!(
        message.contains("has no version \"^3\"; the newest is 2.0.0-rc.1"),
        "{message}"
    );
    let message = fixture.error(&format!("template {chart}:9.9.9 --plain-http"));
    assert!(message.contains("does not exist (status 404)"), "{message}");
}

#[test]
fn login_of_helm_opens_a_registry_that_wants_credentials() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let users = fixture.path("htpasswd");
    std::fs::write(&users, HTPASSWD).unwrap();
    let Some(registry) = Registry::start_or_skip(Some(&users)).unwrap() else {
        return;
    };
    let host = registry.address();
    let arguments = format!("template web oci://{host}/charts/shop --plain-http");
    let message = fixture.error(&arguments);
    assert!(
        message.contains(&format!("helm registry login {host}")),
        "{message}"
    );
    fixture.helm(&format!(
        "registry login {host} -u me -p hidden --plain-http"
    ));
    fixture.push(&registry, "");
    // Helm's login is found where Helm keeps it.
    assert_eq!(fixture.ours(&arguments), fixture.helm(&arguments));
    let given = format!("{arguments} --registry-config none --username me --password");
    assert_eq!(
        fixture.ours(&format!("{given} hidden")),
        fixture.helm(&arguments)
    );
    let message = fixture.error(&format!("{given} wrong"));
    assert!(
        message.contains("rejects the credentials that were given"),
        "{message}"
    );
    assert!(!message.contains("wrong"), "{message}");
}

#[test]
fn chart_of_a_registry_becomes_part_of_a_project() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let Some(registry) = Registry::start_or_skip(None).unwrap() else {
        return;
    };
    fixture.push(&registry, "");
    let chart = format!("oci://{}/charts/shop", registry.address());
    fixture.ours("init --plugins helm --domain example.com --project-name p");
    fixture.ours(&format!(
        "create api --helm-chart {chart} --helm-chart-version ~1.2 --plain-http"
    ));
    let metadata = std::fs::read_to_string(fixture.path("helm-charts/shop/Chart.yaml")).unwrap();
    assert!(metadata.contains("version: 1.2.3"), "{metadata}");
    let watches = std::fs::read_to_string(fixture.path("watches.yaml")).unwrap();
    assert!(watches.contains("chart: helm-charts/shop"), "{watches}");
    // The operator itself does not fetch charts.
    let named = watches.replace("helm-charts/shop", &chart);
    std::fs::write(fixture.path("watches.yaml"), named).unwrap();
    let message = fixture.error("lint");
    assert!(
        message.contains("the operator does not fetch charts"),
        "{message}"
    );
}

#[test]
fn proxies_of_the_environment_are_used() {
    let proxy = HttpServer::start(|request| match request.target.as_str() {
        "http://charts.example.com/index.yaml" => Reply::body("apiVersion: v1"),
        _ => Reply::status(403),
    })
    .unwrap();
    let address = format!("http://me:hidden@{}", proxy.address());
    let ask = |url: &str| {
        let output = Command::new(PROGRAM)
            .args(["template", "web", "--repo", url])
            .envs([("HTTP_PROXY", &address), ("HTTPS_PROXY", &address)])
            .env("NO_PROXY", "direct.invalid")
            .output()
            .unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let message = ask("http://charts.example.com");
    assert!(message.contains("has no chart \"web\""), "{message}");
    let message = ask("https://charts.example.com");
    assert!(
        message.contains("cannot reach https://charts.example.com/index.yaml"),
        "{message}"
    );
    assert!(!message.contains("hidden"), "{message}");
    let received = proxy.received();
    assert!(
        received
            .iter()
            .all(|one| one.headers["proxy-authorization"] == "Basic bWU6aGlkZGVu")
    );
    assert_eq!(received[0].method, "GET");
    assert_eq!(
        (received[1].method.as_str(), received[1].target.as_str()),
        ("CONNECT", "charts.example.com:443")
    );
    ask("http://direct.invalid");
    assert_eq!(
        proxy.received().len(),
        received.len(),
        "reached without the proxy"
    );
}

#[tokio::test]
async fn certificates_of_servers_are_verified_unless_a_flag_says_otherwise() {
    let Some(plane) = shared_or_skip().await.unwrap() else {
        return;
    };
    // The API server stands for a repository with TLS: it has nothing for strangers, and no charts.
    let text = std::fs::read(plane.kubeconfig_path()).unwrap();
    let config: serde_json::Value = go_yaml::from_slice(&text).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let authority = config.pointer("/clusters/0/cluster/certificate-authority-data");
    let authority = authority.and_then(serde_json::Value::as_str).unwrap();
    let authority = BASE64.decode(authority.as_bytes()).unwrap();
    std::fs::write(directory.path().join("ca"), authority).unwrap();
    std::fs::write(directory.path().join("empty"), "").unwrap();
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
    let ask = |flags: &str| {
        let output = Command::new(PROGRAM)
            .arg("template")
            .arg(format!("{server}/charts/web.tgz"))
            .args(flags.split_whitespace())
            .current_dir(directory.path())
            .output()
            .unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    for (flags, expected) in [
        (
            "",
            "is not trusted; if it is that of your own authority, give its certificate with --ca-file",
        ),
        ("--ca-file ca", "needs credentials (status 40"),
        ("--insecure-skip-tls-verify", "needs credentials (status 40"),
        (
            "--ca-file empty",
            "cannot use empty for TLS: it has no certificate",
        ),
        ("--cert-file none --key-file ca", "cannot use none for TLS"),
    ] {
        let message = ask(flags);
        assert!(message.contains(expected), "{flags}: {message}");
    }
}
