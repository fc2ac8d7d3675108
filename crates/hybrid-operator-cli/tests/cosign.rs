//! Charts in registries that were signed with cosign, in commands and in entries of a watches file. What is
//! published are the files of `chart-source`, which tells how they were made.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails with a panic"
)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use chart_source::Digest;
use hybrid_operator_test::HttpServer;
use hybrid_operator_test::http_server::Reply;
use serde_json::json;

use support::{Done, PROGRAM, Text as _, alone};

const ISSUER: &str = "https://token.actions.githubusercontent.com";
const SUBJECT: &str =
    "https://github.com/example/charts/.github/workflows/release.yml@refs/heads/main";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../chart-source/tests/cosign")
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(files().join(name)).unwrap()
}

/// A directory, and a registry with a signed chart.
struct Fixture {
    directory: tempfile::TempDir,
    server: HttpServer,
}

impl Fixture {
    /// Publishes the chart `a/web` with the bundle in a file.
    fn new(bundle: &str) -> Self {
        let mut published: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut put = |path: &str, body: Vec<u8>| {
            published.insert(format!("/v2/a/web/{path}"), body);
        };
        let (manifest, archive, bundle) =
            (file("manifest.json"), file("web-1.0.0.tgz"), file(bundle));
        let (digest, layer) = (Digest::of(&manifest), Digest::of(&bundle));
        let signed = json!({
            "schemaVersion": 2,
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": digest.to_string(), "size": 2},
            "layers": [{"mediaType": BUNDLE, "digest": layer.to_string(), "size": bundle.len()}],
        });
        let signed = signed.to_string().into_bytes();
        let of_signed = Digest::of(&signed).to_string();
        let list = json!({"manifests": [{"digest": of_signed, "artifactType": BUNDLE}]});
        let list = list.to_string().into_bytes();
        put(&format!("referrers/{digest}"), list);
        put(&format!("manifests/{of_signed}"), signed);
        put(&format!("blobs/{layer}"), bundle);
        put(&format!("blobs/{}", Digest::of(&archive)), archive);
        put("tags/list", br#"{"tags": ["1.0.0"]}"#.to_vec());
        put("manifests/1.0.0", manifest.clone());
        put(&format!("manifests/{digest}"), manifest);
        let reply = move |path: &str| published.get(path).cloned();
        let server = HttpServer::start(move |request| {
            let path = request.target.split('?').next().unwrap_or_default();
            reply(path).map_or_else(|| Reply::status(404), Reply::body)
        });
        let directory = tempfile::tempdir().unwrap();
        for name in ["trusted_root.json", "other_root.json"] {
            let content = file(&format!("identity/{name}"));
            std::fs::write(directory.path().join(name), content).unwrap();
        }
        std::fs::write(directory.path().join("cosign.pub"), file("cosign.pub")).unwrap();
        let cr = "apiVersion: example.com/v1\nkind: Web\nmetadata: {name: web, namespace: default}\nspec: {}\n";
        std::fs::write(directory.path().join("cr.yaml"), cr).unwrap();
        Self {
            directory,
            server: server.unwrap(),
        }
    }

    /// Returns the flags that name the chart.
    fn chart(&self) -> String {
        format!("oci://{}/a/web:1.0.0 --plain-http", self.server.address())
    }

    /// Writes a watches file whose entry has this `verify.cosign`.
    fn watch(&self, cosign: &str) {
        let url = format!("oci://{}/a/web", self.server.address());
        let chart =
            format!("{{url: '{url}', version: ^1, plainHttp: true, verify: {{cosign: {cosign}}}}}");
        let entry = format!("- {{group: example.com, version: v1, kind: Web, chart: {chart}}}\n");
        std::fs::write(self.directory.path().join("watches.yaml"), entry).unwrap();
    }

    fn run(&self, arguments: &str) -> Done {
        let program = Path::new(PROGRAM);
        let mut command = alone(program, self.directory.path(), arguments);
        Done::of(command.output().unwrap())
    }

    #[track_caller]
    fn succeeds(&self, arguments: &str) -> String {
        self.run(arguments).ok()
    }

    #[track_caller]
    fn refused(&self, arguments: &str, expected: &str) {
        self.ends(arguments, 1, expected);
    }

    #[track_caller]
    fn ends(&self, arguments: &str, code: i32, expected: &str) {
        let done = self.run(arguments);
        assert_eq!(done.code, Some(code), "{arguments}: {}", done.err);
        done.err.must_have(expected);
    }
}

#[test]
fn flags_of_cosign_verify_charts_of_a_registry() {
    let fixture = Fixture::new("identity/bundle/right.json");
    let chart = fixture.chart();
    let signer = format!("--certificate-identity {SUBJECT} --certificate-oidc-issuer {ISSUER}");
    let right = format!("{signer} --trusted-root trusted_root.json");
    let patterns = "--certificate-identity-regexp https://github.com/example/.+ --certificate-oidc-issuer-regexp \
                    https://token[.]actions[.].+ --trusted-root trusted_root.json";
    let plain = fixture.succeeds(&format!("template web {chart}"));
    for flags in [right.as_str(), patterns] {
        let text = fixture.succeeds(&format!("template web {chart} {flags}"));
        assert_eq!(text, plain);
    }
    fixture.succeeds(&format!("lint {chart} {right}"));
    let issuer = format!("--certificate-oidc-issuer {ISSUER} --trusted-root trusted_root.json");
    let cases = format!(
        "\
{signer} --trusted-root other_root.json => its signature does not count
{signer}-2 --trusted-root trusted_root.json => the issuer of its signature
--certificate-identity me@example.com {issuer} => the subject of its signature
--certificate-identity-regexp example {issuer} => the pattern \"example\" matches as a whole
--cosign-key cosign.pub => no signature of it was made with the key"
    );
    for case in cases.lines() {
        let (flags, expected) = case.split_once(" => ").unwrap();
        fixture.refused(&format!("template web {chart} {flags}"), expected);
    }
    let create = "create api --helm-chart";
    fixture.succeeds("init --plugins helm --domain example.com --project-name web");
    let other = format!("{create} {chart} {signer} --trusted-root other_root.json");
    fixture.refused(&other, "its signature does not count");
    let copied = fixture.directory.path().join("helm-charts/web");
    assert!(!copied.exists());
    fixture.succeeds(&format!("{create} {chart} {right}"));
    assert!(copied.join("Chart.yaml").exists());

    // What a key has signed.
    let fixture = Fixture::new("bundle/bundle-0.json");
    let chart = fixture.chart();
    let flags = format!("template web {chart} --cosign-key cosign.pub");
    assert_eq!(fixture.succeeds(&flags), plain);
    let none = "none of its 1 signatures has the certificate of an identity";
    fixture.refused(&format!("template web {chart} {right}"), none);
}

#[test]
fn flags_of_cosign_that_do_not_belong_together_are_refused() {
    let fixture = Fixture::new("identity/bundle/right.json");
    let chart = fixture.chart();
    let cases = "\
2 --cosign-key cosign.pub --trusted-root trusted_root.json => --cosign-key cannot be given with
2 --cosign-key cosign.pub --verify => a chart is verified with one of them
2 --trusted-root trusted_root.json => give --certificate-identity or --certificate-identity-regexp
2 --certificate-identity a@b => give --certificate-oidc-issuer or --certificate-oidc-issuer-regexp
2 --certificate-identity a@b --certificate-identity-regexp .* => --certificate-identity and --certificate-identity-regexp cannot be given together
2 --certificate-identity a@b --certificate-oidc-issuer https://i => needs --trusted-root with the keys of Sigstore; 'cosign trusted-root create
2 --certificate-identity-regexp ( --certificate-oidc-issuer https://i --trusted-root trusted_root.json => is not a regular expression
1 --certificate-identity a@b --certificate-oidc-issuer https://i --trusted-root none.json => cannot read none.json
1 --certificate-identity a@b --certificate-oidc-issuer https://i --trusted-root cosign.pub => cosign.pub is not a trusted root of Sigstore
1 --cosign-key trusted_root.json => is not a public key of cosign";
    for case in cases.lines() {
        let (flags, expected) = case.split_once(" => ").unwrap();
        let (code, flags) = flags.split_once(' ').unwrap();
        let arguments = format!("template web {chart} {flags}");
        fixture.ends(&arguments, code.parse().unwrap(), expected);
    }
    // A chart on this machine has no signature of cosign.
    for local in ["template web .", "lint ."] {
        let expected = "signatures of cosign are in registries only";
        fixture.ends(&format!("{local} --cosign-key cosign.pub"), 2, expected);
    }
}

#[test]
fn charts_of_entries_with_an_identity_need_its_signature() {
    let fixture = Fixture::new("identity/bundle/right.json");
    let identity = |issuer: &str, subject: &str, root: &str| {
        format!("{{identity: {{{issuer}, {subject}, trustedRoot: {root}.json}}}}")
    };
    let issuer = format!("issuer: '{ISSUER}'");
    let subject = format!("subject: '{SUBJECT}'");
    let commands = ["charts lock", "charts vendor", "template --cr cr.yaml"];
    let trusted = |issuer: &str, subject: &str| identity(issuer, subject, "trusted_root");
    fixture.watch(&trusted(&issuer, "subject: me@example.com"));
    fixture.refused("charts lock", "the subject of its signature");
    fixture.watch(&trusted(&issuer, &subject));
    let said = fixture.succeeds("charts lock");
    said.must_have("at 1.0.0");
    let text = fixture.succeeds("template --cr cr.yaml");
    text.must_have("kind: ConfigMap");
    // What is locked and cached is verified with what the entry says now.
    for (cosign, expected) in [
        (
            trusted("issuer: 'https://i'", &subject),
            "the issuer of its signature",
        ),
        (
            trusted("issuerRegExp: token", &subject),
            "the issuer of its signature",
        ),
        (
            trusted(&issuer, "subjectRegExp: release"),
            "the subject of its signature",
        ),
        (
            identity(&issuer, &subject, "other_root"),
            "its signature does not count",
        ),
        (identity(&issuer, &subject, "none"), "none.json"),
        (
            "{key: cosign.pub}".to_owned(),
            "no signature of it was made with the key",
        ),
    ] {
        fixture.watch(&cosign);
        for command in commands {
            fixture.refused(command, expected);
        }
    }
    // With patterns, and without a network.
    let issuer = "issuerRegExp: 'https://token[.].*'";
    fixture.watch(&trusted(issuer, "subjectRegExp: '.*@refs/heads/main'"));
    fixture.succeeds("charts lock");
    let kept = std::fs::read_to_string(fixture.directory.path().join("watches.lock")).unwrap();
    kept.must_have("1.0.0");
    let Fixture { directory, server } = fixture;
    drop(server);
    let server = HttpServer::start(|_| Reply::status(500)).unwrap();
    let fixture = Fixture { directory, server };
    let again = fixture.succeeds("template --cr cr.yaml");
    assert_eq!(again, text);
    fixture.succeeds("charts vendor");
    let vendored = fixture.directory.path().join("helm-charts/web/Chart.yaml");
    assert!(vendored.exists());
}
