//! Schemas that refer to documents of the web: the documents are fetched once into the chart, by commands only.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails with a panic"
)]

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use hybrid_operator_test::http_server::{Received, Reply};
use hybrid_operator_test::{HttpServer, packaged_chart};
use serde_json::Value;

use support::{Done, PROGRAM, Project, Text as _, alone, files, text};

const TEMPLATE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}'}\ndata: {size: '{{ .Values.size }}'}\n";

const ENTRY: &str = "- {group: example.com, version: v1, kind: Shop, chart: helm-charts/shop}\n";

/// A document that refers to another one, and that one.
const DOCUMENTS: &[(&str, &str)] = &[
    (
        "/a/size.json",
        r#"{"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"size": {"$ref": "../b.json#/definitions/small"}}}"#,
    ),
    ("/b.json", r#"{"definitions": {"small": {"maximum": 3}}}"#),
];

type Answer = fn(&Received) -> Reply;

impl Done {
    fn failed(self) -> String {
        assert_ne!(self.code, Some(0), "{}{}", self.out, self.err);
        self.out + &self.err
    }
}

impl Project {
    fn empty() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Returns a project with the chart `shop`, whose schema refers to a document.
    fn new(url: &str) -> Self {
        let project = Self::empty();
        project.chart("helm-charts/shop", url);
        project.write("watches.yaml", ENTRY);
        project.write("shop.yaml", &custom_resource(3));
        project
    }

    fn chart(&self, directory: &str, url: &str) {
        let schema = format!(r#"{{"properties": {{"size": {{"$ref": "{url}"}}}}}}"#);
        let metadata = "apiVersion: v2\nname: shop\nversion: 1.0.0\n";
        self.write(&format!("{directory}/Chart.yaml"), metadata);
        self.write(&format!("{directory}/values.yaml"), "size: 1\n");
        self.write(&format!("{directory}/values.schema.json"), &schema);
        self.write(&format!("{directory}/templates/map.yaml"), TEMPLATE);
    }

    fn run(&self, args: &str) -> Done {
        self.run_with(args, &[])
    }

    fn run_with(&self, args: &str, env: &[(&str, &Path)]) -> Done {
        let mut command = alone(Path::new(PROGRAM), self.0.path(), args);
        Done::of(command.envs(env.iter().copied()).output().unwrap())
    }

    /// Returns the files of a directory with their texts.
    fn files(&self, directory: &str) -> BTreeMap<String, String> {
        files(self.0.path())
            .into_iter()
            .filter(|(name, _)| Path::new(name).starts_with(directory))
            .map(|(name, data)| (name, text(&data)))
            .collect()
    }
}

fn custom_resource(size: u32) -> String {
    format!(
        "apiVersion: example.com/v1\nkind: Shop\nmetadata: {{name: main, namespace: prod}}\nspec: {{size: {size}}}\n"
    )
}

/// Answers with [`DOCUMENTS`].
fn documents(request: &Received) -> Reply {
    let found = DOCUMENTS.iter().find(|(path, _)| *path == request.target);
    found.map_or_else(|| Reply::status(404), |(_, text)| Reply::body(*text))
}

/// An authority, and a certificate for the loopback interface with its key.
struct Certificates {
    authority: String,
    certificate: String,
    key: String,
}

/// Makes certificates with the functions of templates.
fn certificates() -> Certificates {
    let project = Project::empty();
    project.write("c/Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n");
    project.write(
        "c/templates/map.yaml",
        r#"{{ $ca := genCAWithKey "ca" 1 (genPrivateKey "ecdsa") -}}
{{ $own := genSignedCertWithKey "127.0.0.1" (list "127.0.0.1") nil 1 $ca (genPrivateKey "ecdsa") -}}
kind: ConfigMap
apiVersion: v1
metadata: {name: c}
data: {ca: {{ $ca.Cert | quote }}, cert: {{ $own.Cert | quote }}, key: {{ $own.Key | quote }}}
"#,
    );
    let map: Value = go_yaml::from_str(&project.run("template c").ok()).unwrap();
    let text = |name: &str| map["data"][name].as_str().unwrap().to_owned();
    Certificates {
        authority: text("ca"),
        certificate: text("cert"),
        key: text("key"),
    }
}

#[test]
fn documents_are_fetched_once_into_the_chart_and_never_by_what_uses_it() {
    let certificates = certificates();
    let (certificate, key) = (&certificates.certificate, &certificates.key);
    let server = HttpServer::start_tls(certificate.as_bytes(), key.as_bytes(), documents);
    let server = server.unwrap();
    let url = server.url("/a/size.json");
    let project = Project::new(&format!("{url}#/definitions/size"));
    project.write("ca.pem", &certificates.authority);
    let uses = [
        "lint",
        "template --cr shop.yaml",
        "template helm-charts/shop",
        "generate rbac",
    ];
    for command in uses {
        let said = project.run(command).failed();
        let why = format!("\"{url}\" is not in the chart; run \"hybrid-operator charts vendor\"");
        said.must_have(&why);
        said.must_have("schema: skip");
    }
    let untrusted = project.run("charts vendor").failed();
    untrusted.must_have("is not trusted");
    assert_eq!(server.received().len(), 0);
    let before = project.files("");

    let vendor = "charts vendor --ca-file ca.pem --username me --password hidden";
    let said = project.run(vendor).ok();
    for (path, text) in DOCUMENTS {
        let (url, size) = (server.url(path), text.len());
        said.must_have(&format!(
            "fetched {url} ({size} bytes) into helm-charts/shop\n"
        ));
    }
    let received = server.received();
    assert_eq!(received.len(), 2, "{received:?}");
    for request in &received {
        assert!(!request.headers.contains_key("authorization"));
    }
    let after = project.files("");
    let mut new = after.clone();
    new.retain(|name, _| !before.contains_key(name));
    assert_eq!(new.len(), 3, "{new:?}");
    let index = &after["helm-charts/shop/values.schema/index.json"];
    index.must_have(&format!("\"{url}\": \"sha256:"));

    let again = project.run("charts vendor").ok();
    again.must_have(&format!("{url} is in helm-charts/shop already\n"));
    again.must_lack("fetched ");
    assert_eq!(server.received().len(), 2);
    assert_eq!(project.files(""), after);

    drop(server);
    for command in uses {
        project.run(command).ok();
    }
    project.run("charts vendor").ok();
    project.write("shop.yaml", &custom_resource(4));
    let refused = project.run("template --cr shop.yaml").failed();
    refused.must_have("'/size': must be <= 3");
}

#[test]
fn changed_documents_are_refused_and_replaced_only_by_force() {
    let now = std::sync::Arc::new(std::sync::Mutex::new("{\"maximum\": 3}"));
    let current = now.clone();
    let server = HttpServer::start(move |_| Reply::body(*current.lock().unwrap())).unwrap();
    let url = server.url("/size.json");
    let project = Project::new(&url);
    project.run("charts vendor").ok();
    let vendored = project.files("helm-charts");
    let document = vendored.keys().find(|name| {
        name.starts_with("helm-charts/shop/values.schema/") && !name.ends_with("index.json")
    });
    let document = document.unwrap();

    project.write(document, "true");
    let refused = project.run("template --cr shop.yaml").failed();
    let why = format!(
        "\"{url}\" was changed in the chart: it is not the one of values.schema/index.json; run"
    );
    refused.must_have(&why);
    project.run("charts vendor").ok();
    assert_eq!(project.files("helm-charts"), vendored);

    // The document on the web is another one now. The one in the chart stays, and is not replaced unasked.
    *now.lock().unwrap() = "{\"maximum\": 5}";
    project.run("charts vendor").ok();
    assert_eq!(project.files("helm-charts"), vendored);
    std::fs::remove_file(project.path(document)).unwrap();
    let refused = project.run("charts vendor").failed();
    refused.must_have("has changed: its digest is sha256:");
    refused.must_have("--force");
    let said = project.run("charts vendor --force").ok();
    said.must_have(&format!("fetched {url} (14 bytes)"));
    project.write("shop.yaml", &custom_resource(5));
    project.run("template --cr shop.yaml").ok();
    assert_eq!(project.files("helm-charts").len(), vendored.len());

    // What no schema refers to any more goes with force.
    project.write("helm-charts/shop/values.schema.json", "{}");
    project.run("charts vendor --force").ok();
    let left = project.files("helm-charts/shop/values.schema");
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn init_and_create_api_fetch_the_documents_of_their_charts() {
    let server = HttpServer::start(documents).unwrap();
    let url = server.url("/a/size.json#/definitions/size");
    let project = Project::empty();
    project.chart("source", &url);
    let init = "init --domain example.com --project-name shops --group apps --helm-chart source";
    let said = project.run(init).ok();
    said.must_have("fetched ");
    said.must_have("into helm-charts/shop\n");
    assert_eq!(server.received().len(), 2);
    let definition = &project.files("config/crd")["config/crd/bases/apps.example.com_shops.yaml"];
    definition.must_have("size");

    // The same once more: the documents of the project are used.
    let create = "create api --group apps --version v1alpha1 --kind Shop --helm-chart source";
    let said = project.run(create).ok();
    said.must_have("is in helm-charts/shop already");
    assert_eq!(server.received().len(), 2);
    drop(server);
    project.run("lint").ok();
    project.run("charts vendor").ok();
}

#[test]
fn documents_of_packed_dependencies_are_kept_in_the_chart_above() {
    let server = HttpServer::start(documents).unwrap();
    let url = server.url("/b.json#/definitions/small");
    let schema = format!(r#"{{"properties": {{"size": {{"$ref": "{url}"}}}}}}"#);
    let project = Project::new("values.json");
    project.write("helm-charts/shop/values.schema.json", "{}");
    let packed = packaged_chart("db", "1.0.0", &[("values.schema.json", &schema)]);
    let charts = project.path("helm-charts/shop/charts");
    std::fs::create_dir_all(&charts).unwrap();
    std::fs::write(charts.join("db-1.0.0.tgz"), packed).unwrap();
    project.run("charts vendor").ok();
    assert_eq!(server.received().len(), 1);
    drop(server);
    project.run("lint").ok();
    let template = "template helm-charts/shop --set db.size=4";
    let refused = project.run(template).failed();
    refused.must_have("'/size': must be <= 3");
}

#[test]
fn charts_that_are_fetched_get_their_documents_with_them() {
    let project = Project::new("unused.json");
    let schema = r#"{"properties": {"size": {"$ref": "URL/b.json#/definitions/small"}}}"#;
    let server = HttpServer::start(move |request| match request.target.as_str() {
        "/shop-1.0.0.tgz" => {
            let host = format!("http://{}", request.headers["host"]);
            let schema = schema.replace("URL", &host);
            let files = [
                ("values.schema.json", schema.as_str()),
                ("templates/map.yaml", TEMPLATE),
            ];
            Reply::body(packaged_chart("shop", "1.0.0", &files))
        }
        _ => documents(request),
    });
    let server = server.unwrap();
    let entry = ENTRY.replace("helm-charts/shop", &server.url("/shop-1.0.0.tgz"));
    project.write("watches.yaml", &entry);
    let refused = project.run("lint").failed();
    refused.must_have("run \"hybrid-operator charts vendor\"");
    let said = project.run("charts vendor --force").ok();
    said.must_have("copied ");
    said.must_have("fetched ");
    project.write("watches.yaml", ENTRY);
    drop(server);
    project.run("lint").ok();
}

#[test]
fn nothing_is_written_if_a_document_cannot_be_used() {
    let endless = |request: &Received| {
        let next = request.target.trim_start_matches('/').len() + 1;
        Reply::body(format!(r#"{{"$ref": "{}"}}"#, "x".repeat(next)))
    };
    let first_is_fine = |request: &Received| match request.target.as_str() {
        "/size.json" => Reply::body(r#"{"$ref": "missing.json"}"#),
        _ => Reply::status(404),
    };
    let short = |_: &Received| Reply::Short {
        promised: 10,
        body: b"{}".to_vec(),
    };
    let cases: [(Answer, &str); 8] = [
        (
            |_| Reply::status(404),
            "/size.json does not exist (status 404); check the URL",
        ),
        (|_| Reply::status(403), "/size.json answers with status 403"),
        (|_| Reply::body("<html>"), "/size.json\" is not JSON"),
        (|_| Reply::Endless, "is larger than the limit of 4 MiB"),
        (
            |_| Reply::status(302).header("Location", "file:///etc/passwd"),
            "it is not a URL of a web server",
        ),
        (endless, "one of more than 256 documents"),
        (first_is_fine, "/missing.json does not exist"),
        (short, "is incomplete"),
    ];
    for (answer, why) in cases {
        let server = HttpServer::start(answer).unwrap();
        let project = Project::new(&server.url("/size.json"));
        let before = project.files("");
        let said = project.run("charts vendor").failed();
        said.must_have(why);
        assert_eq!(project.files(""), before, "{why}");
    }
    let certificates = certificates();
    let (certificate, key) = (&certificates.certificate, &certificates.key);
    let plain = HttpServer::start(|_| Reply::body("{}")).unwrap();
    let target = plain.url("/size.json");
    let leaves = move |_: &Received| Reply::status(302).header("Location", target.clone());
    let server = HttpServer::start_tls(certificate.as_bytes(), key.as_bytes(), leaves).unwrap();
    let project = Project::new(&server.url("/size.json"));
    project.write("ca.pem", &certificates.authority);
    let before = project.files("");
    let trusted = project.path("ca.pem");
    let env: &[(&str, &Path)] = &[("SSL_CERT_FILE", &trusted)];
    let said = project.run_with("charts vendor", env).failed();
    said.must_have("which is not followed: it would leave TLS");
    assert_eq!((project.files(""), plain.received().len()), (before, 0));
}

#[test]
fn charts_that_cannot_keep_documents_are_refused() {
    let server = HttpServer::start(documents).unwrap();
    let url = server.url("/b.json");
    let project = Project::new(&url.replace("http://", "http://me:hidden@"));
    let said = project.run("charts vendor").failed();
    said.must_have("has a user; documents are fetched without credentials");
    said.must_lack("fetched http");
    project.chart("helm-charts/shop", &url);
    for rule in ["values.schema/", "values.schema/*.json", "index.json"] {
        project.write("helm-charts/shop/.helmignore", rule);
        let said = project.run("charts vendor").failed();
        said.must_have("the .helmignore of the chart shop excludes values.schema/");
    }
    let schema = format!(r#"{{"$ref": "{url}"}}"#);
    let packed = packaged_chart("shop", "1.0.0", &[("values.schema.json", &schema)]);
    std::fs::write(project.path("shop.tgz"), packed).unwrap();
    let entry = ENTRY.replace("helm-charts/shop", "shop.tgz");
    project.write("watches.yaml", &entry);
    let said = project.run("charts vendor").failed();
    said.must_have("shop.tgz; unpack it, and name its directory");
    // Nobody needs them.
    project.write("watches.yaml", &ENTRY.replace('}', ", schema: skip}"));
    let before = server.received().len();
    let said = project.run("charts vendor").ok();
    said.must_have("refer to no documents of the web");
    assert_eq!(server.received().len(), before);
}
