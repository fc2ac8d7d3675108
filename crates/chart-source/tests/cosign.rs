//! Verifies signatures of cosign: right ones, wrong ones, and those of a cache that was changed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails with a panic"
)]

mod support;

use std::path::{Path, PathBuf};

use chart_source::verify::Policy;
use chart_source::{Cache, ChartReference, Digest, PullError, Pulled, Puller};
use data_encoding::BASE64;
use ed25519_dalek::pkcs8::EncodePublicKey as _;
use hybrid_operator_test::HttpServer;
use hybrid_operator_test::http_server::Reply;
use p256::ecdsa::signature::Signer as _;
use p256::pkcs8::LineEnding;
use support::{FileServer, access, fails_with, text};

/// Bytes that only have to begin like an archive.
const ARCHIVE: &[u8] = b"\x1f\x8b\x08 a chart";
const OTHER_ARCHIVE: &[u8] = b"\x1f\x8b\x08 another chart";
const PAYLOAD_LAYER: &str = "application/vnd.dev.cosign.simplesigning.v1+json";

fn manifest(archive: &[u8]) -> Vec<u8> {
    let (digest, size) = (Digest::of(archive), archive.len());
    format!(
        r#"{{"schemaVersion": 2,
            "config": {{"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": "{digest}", "size": 2}},
            "layers": [{{"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "digest": "{digest}", "size": {size}}}]}}"#
    )
    .into_bytes()
}

/// The text that cosign signs.
fn payload(kind: &str, manifest: &[u8]) -> String {
    let digest = Digest::of(manifest);
    format!(
        r#"{{"critical":{{"identity":{{"docker-reference":"example.com/a/web"}},"image":{{"docker-manifest-digest":"{digest}"}},"type":"{kind}"}},"optional":null}}"#
    )
}

fn payload_of(manifest: &[u8]) -> String {
    payload("cosign container image signature", manifest)
}

/// A key pair of one kind.
enum Key {
    P256(p256::ecdsa::SigningKey),
    Ed25519(ed25519_dalek::SigningKey),
}

impl Key {
    fn p256(seed: u8) -> Self {
        Self::P256(p256::ecdsa::SigningKey::from_slice(&[seed; 32]).unwrap())
    }

    fn ed25519(seed: u8) -> Self {
        Self::Ed25519(ed25519_dalek::SigningKey::from_bytes(&[seed; 32]))
    }

    fn public(&self) -> String {
        match self {
            Self::P256(key) => key.verifying_key().to_public_key_pem(LineEnding::LF),
            Self::Ed25519(key) => key.verifying_key().to_public_key_pem(LineEnding::LF),
        }
        .unwrap()
    }

    /// Returns the signature of a text in base64.
    fn sign(&self, text: &str) -> String {
        match self {
            Self::P256(key) => {
                let signature: p256::ecdsa::Signature = key.sign(text.as_bytes());
                BASE64.encode(signature.to_der().as_bytes())
            }
            Self::Ed25519(key) => BASE64.encode(&key.sign(text.as_bytes()).to_bytes()),
        }
    }
}

/// A registry with the chart `a/web` in the version 1.0.0, whose files can be changed.
struct Published {
    server: FileServer,
    folder: tempfile::TempDir,
}

impl Published {
    fn new() -> Self {
        let published = Self {
            server: FileServer::start(),
            folder: tempfile::tempdir().unwrap(),
        };
        published.chart(ARCHIVE);
        published
    }

    fn put(&self, path: &str, body: impl Into<Vec<u8>>) {
        self.server.put(format!("/v2/a/web/{path}"), body);
    }

    fn blob(&self, body: &[u8]) {
        self.put(&format!("blobs/{}", Digest::of(body)), body);
    }

    /// Publishes a manifest by its digest, which it returns.
    fn manifest(&self, manifest: &[u8]) -> Digest {
        let digest = Digest::of(manifest);
        self.put(&format!("manifests/{digest}"), manifest);
        digest
    }

    /// Publishes a manifest by its digest and as the version 1.0.0.
    fn version(&self, manifest: &[u8]) {
        self.manifest(manifest);
        self.put("manifests/1.0.0", manifest);
    }

    fn chart(&self, archive: &[u8]) {
        self.blob(archive);
        self.version(&manifest(archive));
    }

    /// Publishes texts and their signatures for the manifest of an archive.
    fn sign(&self, archive: &[u8], signed: &[(String, String)]) {
        self.signatures(&manifest(archive), signed);
    }

    /// Publishes texts and their signatures for a manifest.
    fn signatures(&self, manifest: &[u8], signed: &[(String, String)]) {
        let layers: Vec<String> = signed
            .iter()
            .map(|(text, signature)| {
                self.blob(text.as_bytes());
                let (digest, size) = (Digest::of(text.as_bytes()), text.len());
                format!(
                    r#"{{"mediaType": "{PAYLOAD_LAYER}", "digest": "{digest}", "size": {size},
                        "annotations": {{"dev.cosignproject.cosign/signature": "{signature}"}}}}"#
                )
            })
            .collect();
        let body = format!(
            r#"{{"schemaVersion": 2, "layers": [{}]}}"#,
            layers.join(",")
        );
        let tag = format!("sha256-{}.sig", Digest::of(manifest).hex());
        self.put(&format!("manifests/{tag}"), body);
    }

    /// Publishes a statement about the chart in a bundle, as cosign 3 does.
    fn bundle(&self, list: &str, statement: &str, key: &Key) {
        let kind = "application/vnd.in-toto+json";
        let encoded = format!(
            "DSSEv1 {} {kind} {} {statement}",
            kind.len(),
            statement.len()
        );
        let signature = key.sign(&encoded);
        let payload = BASE64.encode(statement.as_bytes());
        let media = "application/vnd.dev.sigstore.bundle.v0.3+json";
        let bundle = format!(
            r#"{{"mediaType": "{media}", "verificationMaterial": {{"publicKey": {{"hint": "x"}}}},
                "dsseEnvelope": {{"payload": "{payload}", "payloadType": "{kind}", "signatures": [{{"sig": "{signature}"}}]}}}}"#
        );
        self.blob(bundle.as_bytes());
        let (digest, size) = (Digest::of(bundle.as_bytes()), bundle.len());
        let referrer = format!(
            r#"{{"schemaVersion": 2, "config": {{"mediaType": "application/vnd.oci.empty.v1+json", "digest": "{digest}", "size": 2}},
                "layers": [{{"mediaType": "{media}", "digest": "{digest}", "size": {size}}}]}}"#
        );
        let (digest, size) = (self.manifest(referrer.as_bytes()), referrer.len());
        let index = format!(
            r#"{{"schemaVersion": 2, "manifests": [{{"mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": "{digest}", "size": {size}, "artifactType": "{media}"}}]}}"#
        );
        self.put(list, index);
    }

    fn signed_by(&self, key: &Key) {
        let text = payload_of(&manifest(ARCHIVE));
        let signature = key.sign(&text);
        self.sign(ARCHIVE, &[(text, signature)]);
    }

    fn key(&self, key: &Key) -> PathBuf {
        let path = self.folder.path().join("cosign.pub");
        std::fs::write(&path, key.public()).unwrap();
        path
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn reference(&self, digest: Option<Digest>) -> ChartReference {
        let name = format!("oci://{}/a/web:1.0.0", self.server.http.address());
        let reference = ChartReference::parse(&name, None, None).unwrap();
        ChartReference {
            digest,
            ..reference
        }
    }

    fn puller(&self, key: &Path) -> Puller {
        let cache = Cache::at(self.cache());
        let puller = Puller::new(&access(), Some(cache)).unwrap();
        puller.verifying(Policy::cosign_key(key).unwrap())
    }

    fn pull(&self, key: &Key) -> Result<Pulled, PullError> {
        let path = self.key(key);
        self.puller(&path).pull_blocking(&self.reference(None))
    }

    /// Returns the only file in the cache with this extension.
    fn cached(&self, extension: &str) -> PathBuf {
        let entries = std::fs::read_dir(self.cache()).unwrap();
        let mut paths = entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|found| found == extension));
        let path = paths.next().unwrap();
        assert_eq!(paths.next(), None);
        path
    }
}

#[test]
fn charts_with_a_signature_of_the_key_are_returned_and_others_are_not() {
    let (right, other) = (Key::p256(1), Key::p256(2));
    let published = Published::new();
    let refused = |expected: &str| {
        let message = fails_with(published.pull(&right), expected);
        assert!(message.contains("cannot be verified"), "{message}");
        let unsigned = published.cache().read_dir().unwrap();
        let mut names = unsigned.map(|entry| entry.unwrap().file_name());
        assert!(
            names.all(|name| !name.to_string_lossy().ends_with(".proof")),
            "what proves nothing is not kept"
        );
    };
    refused("it is not signed: the registry has no signature in the tag sha256-");
    published.signed_by(&other);
    refused("no signature of it was made with the key");

    let own = payload_of(&manifest(ARCHIVE));
    let of_other = payload_of(&manifest(OTHER_ARCHIVE));
    let of_kind = payload("atomic container signature", &manifest(ARCHIVE));
    let signed = |text: &str| (text.to_owned(), right.sign(text));
    let mismatch = "no signature of it was made with the key";
    for (texts, expected) in [
        (vec![signed(&of_other)], "its signature is for sha256:"),
        (vec![signed(&of_kind)], "its type is"),
        (vec![signed("{}")], "does not name a manifest"),
        (vec![(own.clone(), right.sign(&of_other))], mismatch),
        (vec![(own.clone(), "%".to_owned())], "it is not base64"),
        (vec![], "it is not signed"),
    ] {
        published.sign(ARCHIVE, &texts);
        refused(expected);
    }
    published.sign(ARCHIVE, &vec![signed(&own); 17]);
    fails_with(published.pull(&right), "more than 16 signatures");
    let long = format!("{own}{}", " ".repeat(64 << 10));
    published.sign(ARCHIVE, &[signed(&long)]);
    fails_with(published.pull(&right), "limit of 64 KiB");

    // One of several signatures is enough.
    let several = [(own.clone(), other.sign(&own)), signed(&own)];
    published.sign(ARCHIVE, &several);
    assert_eq!(published.pull(&right).unwrap().archive, ARCHIVE);
    assert_eq!(published.pull(&other).unwrap().archive, ARCHIVE);
    fails_with(published.pull(&Key::p256(3)), "no signature of it");
}

#[test]
fn a_registry_that_replaces_the_chart_under_its_tag_is_found_out() {
    let key = Key::p256(1);
    let published = Published::new();
    published.signed_by(&key);
    assert_eq!(published.pull(&key).unwrap().archive, ARCHIVE);
    published.chart(OTHER_ARCHIVE);
    fails_with(published.pull(&key), "it is not signed");
    // Nor does it help to publish the signature of the former chart for the other one.
    let old = payload_of(&manifest(ARCHIVE));
    let signature = key.sign(&old);
    published.sign(OTHER_ARCHIVE, &[(old, signature)]);
    fails_with(published.pull(&key), "was changed after it was signed");
}

#[test]
fn a_pinned_chart_is_verified_again_from_the_cache_without_a_request() {
    for key in [Key::p256(1), Key::ed25519(1)] {
        let published = Published::new();
        published.signed_by(&key);
        let digest = Digest::of(ARCHIVE);
        let (pinned, path) = (published.reference(Some(digest)), published.key(&key));
        assert_eq!(published.pull(&key).unwrap().archive, ARCHIVE);
        let requests = published.server.requests();
        let puller = published.puller(&path);
        assert_eq!(puller.pull_blocking(&pinned).unwrap().archive, ARCHIVE);
        let cache = Cache::at(published.cache());
        let policy = Policy::cosign_key(&path).unwrap();
        let found = cache.find(&pinned, &policy).unwrap().unwrap();
        assert_eq!(found.archive, ARCHIVE);
        assert_eq!(published.server.requests(), requests);

        // Another key accepts neither what is kept nor what is published.
        let other = published.folder.path().join("other.pub");
        std::fs::write(&other, Key::p256(9).public()).unwrap();
        let policy = Policy::cosign_key(&other).unwrap();
        assert!(cache.find(&pinned, &policy).unwrap().is_none());
        let puller = published.puller(&other);
        fails_with(puller.pull_blocking(&pinned), "no signature of it");
    }
}

#[test]
fn a_cache_that_was_changed_is_noticed_and_mended_or_reported() {
    let key = Key::p256(1);
    let published = Published::new();
    published.signed_by(&key);
    published.pull(&key).unwrap();
    let path = published.key(&key);
    let (puller, policy) = (published.puller(&path), Policy::cosign_key(&path).unwrap());
    let pinned = published.reference(Some(Digest::of(ARCHIVE)));
    let proof = published.cached("proof");
    let right = std::fs::read_to_string(&proof).unwrap();
    let mismatch = "no signature of it was made with the key";
    let changed = "was changed after it was signed";
    let damages = [
        (right[..right.len() / 2].to_owned(), "it is incomplete"),
        (String::new(), "it is incomplete"),
        (" ".repeat((4 << 20) + 1), "it is incomplete"),
        (right.replace("example.com", "example.net"), mismatch),
        (right.replace("schemaVersion", "schemaversion"), changed),
    ];
    let cache = Cache::at(published.cache());
    for (damaged, expected) in &damages {
        std::fs::write(&proof, damaged).unwrap();
        fails_with(cache.find(&pinned, &policy), expected);
        assert_eq!(puller.pull_blocking(&pinned).unwrap().archive, ARCHIVE);
        // It was fetched again.
        assert_eq!(std::fs::read_to_string(&proof).unwrap(), right);
    }
    // Evidence that is right for another chart does not prove this one.
    std::fs::write(published.cached("tgz"), OTHER_ARCHIVE).unwrap();
    assert!(cache.find(&pinned, &policy).unwrap().is_none());
    assert_eq!(puller.pull_blocking(&pinned).unwrap().archive, ARCHIVE);

    published.server.clear();
    assert_eq!(puller.pull_blocking(&pinned).unwrap().archive, ARCHIVE);
    for (damaged, expected) in &damages {
        std::fs::write(&proof, damaged).unwrap();
        let message = fails_with(puller.pull_blocking(&pinned), expected);
        let proof = proof.display().to_string();
        for part in ["cannot be fetched again either", &proof, "status 404"] {
            assert!(message.contains(part), "{message}");
        }
    }
}

#[test]
fn files_that_are_no_public_keys_are_refused_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cosign.pub");
    let refused = |content: &[u8], expected: &str| {
        std::fs::write(&path, content).unwrap();
        let error = Policy::cosign_key(&path).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("cosign.pub"), "{error}");
    };
    let form = "is not an ECDSA P-256 or Ed25519 key in PEM format";
    let short = b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
    let private = b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n";
    refused(b"", form);
    refused(short, form);
    refused(b"\xff", "it is not a text");
    refused(private, "it has a private key; give the public one");
    refused(&vec![b'a'; (64 << 10) + 1], "cannot read");
    std::fs::remove_file(&path).unwrap();
    let error = Policy::cosign_key(&path).unwrap_err().to_string();
    assert!(error.contains("cannot read"), "{error}");
}

#[test]
fn signatures_of_cosign_are_not_looked_for_beside_archives() {
    let server = HttpServer::start(|_| Reply::body(ARCHIVE)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cosign.pub");
    std::fs::write(&path, Key::p256(1).public()).unwrap();
    let puller = Puller::new(&access(), None).unwrap();
    let puller = puller.verifying(Policy::cosign_key(&path).unwrap());
    let reference = ChartReference::parse(&server.url("/web.tgz"), None, None).unwrap();
    fails_with(puller.pull_blocking(&reference), "are in registries only");
}

/// As `cosign sign` does for a tag that names an index.
#[test]
fn the_signature_of_an_index_proves_its_chart_also_from_the_cache() {
    let (key, published) = (Key::p256(1), Published::new());
    let chart = manifest(ARCHIVE);
    let index = |manifest: &[u8]| {
        let (digest, size) = (Digest::of(manifest), manifest.len());
        format!(
            r#"{{"schemaVersion": 2, "manifests": [{{"mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": "{digest}", "size": {size}}}]}}"#
        )
    };
    let publish = |index: &str, signed: &[u8]| {
        published.version(index.as_bytes());
        let text = payload_of(signed);
        let signature = key.sign(&text);
        published.signatures(index.as_bytes(), &[(text, signature)]);
    };
    // The signature of the manifest alone does not say that the index is right.
    publish(&index(&chart), &chart);
    fails_with(published.pull(&key), "cannot be verified");

    let right = index(&chart);
    publish(&right, right.as_bytes());
    assert_eq!(published.pull(&key).unwrap().archive, ARCHIVE);
    let from_cache = published.reference(Some(Digest::of(ARCHIVE)));
    let path = published.key(&key);
    let requests = published.server.requests();
    let pulled = published.puller(&path).pull_blocking(&from_cache).unwrap();
    assert_eq!(pulled.archive, ARCHIVE);
    assert_eq!(published.server.requests(), requests);

    // In the cache, another manifest is not one that the index lists.
    let proof = published.cached("proof");
    let written = std::fs::read_to_string(&proof).unwrap();
    let mut evidence: serde_json::Value = serde_json::from_str(&written).unwrap();
    evidence["indexed"] = serde_json::json!([String::from_utf8(manifest(OTHER_ARCHIVE)).unwrap()]);
    std::fs::write(&proof, evidence.to_string()).unwrap();
    published.chart(OTHER_ARCHIVE);
    let other = published.reference(Some(Digest::of(ARCHIVE)));
    let cache = Cache::at(published.cache());
    let policy = Policy::cosign_key(&path).unwrap();
    fails_with(
        cache.find(&other, &policy),
        "its index does not list its manifest",
    );
}

/// A statement of in-toto about a manifest.
fn statement(kind: &str, manifest: &[u8]) -> String {
    let digest = Digest::of(manifest).to_string();
    let hex = digest.trim_start_matches("sha256:");
    format!(
        r#"{{"_type":"https://in-toto.io/Statement/v1","subject":[{{"digest":{{"sha256":"{hex}"}}}}],"predicateType":"{kind}","predicate":{{}}}}"#
    )
}

#[test]
fn bundles_of_cosign_prove_a_chart_if_their_statement_is_that_it_is_signed() {
    let (right, other) = (Key::p256(1), Key::p256(2));
    let signed = "https://sigstore.dev/cosign/sign/v1";
    let own = manifest(ARCHIVE);
    let digest = Digest::of(&own);
    let statement_of_own = statement(signed, &own);
    for list in [
        format!("referrers/{digest}"),
        format!("manifests/{}", digest.to_string().replace(':', "-")),
    ] {
        let published = Published::new();
        let refused = |expected: &str| {
            fails_with(published.pull(&right), expected);
        };
        refused("and no bundle");
        published.bundle(&list, &statement_of_own, &other);
        refused("no signature of it was made with the key");
        let predicate = statement("https://slsa.dev/provenance/v1", &own);
        published.bundle(&list, &predicate, &right);
        refused("its statement has the type \"https://slsa.dev/provenance/v1\"");
        let of_other = statement(signed, &manifest(OTHER_ARCHIVE));
        published.bundle(&list, &of_other, &right);
        refused("was changed after it was signed");
        published.bundle(&list, "{}", &right);
        refused("is not a statement of in-toto");
        published.put(&list, "<html>");
        refused("its list of signatures is not one");
        published.put(
            &list,
            r#"{"manifests": [{"digest": "x", "artifactType": "application/vnd.cyclonedx+json"}]}"#,
        );
        refused("and no bundle");

        published.bundle(&list, &statement_of_own, &right);
        assert_eq!(published.pull(&right).unwrap().archive, ARCHIVE);
        // From the cache, without a request.
        let requests = published.server.requests();
        let pinned = published.reference(Some(Digest::of(ARCHIVE)));
        let puller = published.puller(&published.key(&right));
        assert_eq!(puller.pull_blocking(&pinned).unwrap().archive, ARCHIVE);
        assert_eq!(published.server.requests(), requests);
        // A text that was signed as a statement does not count as one that was signed alone.
        let proof = published.cached("proof");
        let content = std::fs::read_to_string(&proof).unwrap();
        std::fs::write(
            &proof,
            content.replace("\"bundle\":true", "\"bundle\":false"),
        )
        .unwrap();
        published.server.clear();
        fails_with(
            puller.pull_blocking(&pinned),
            "no signature of it was made with the key",
        );
    }
}

/// Publishes what cosign wrote, as the registry to which it did keeps it, for a key of `tests/cosign`.
fn written_by_cosign(folder: &str, key: &str) -> Result<Pulled, PullError> {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cosign");
    let read = |name: &str| std::fs::read(files.join(name)).unwrap();
    let published = Published::new();
    let manifest = read("manifest.json");
    published.blob(&read("web-1.0.0.tgz"));
    published.version(&manifest);
    let tag = Digest::of(&manifest).to_string().replace(':', "-");
    for file in files.join(folder).read_dir().unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let content = read(&format!("{folder}/{name}"));
        match (name.as_str(), folder.ends_with("tag")) {
            ("signatures.json", true) => published.put(&format!("manifests/{tag}.sig"), content),
            ("signatures.json", false) => published.put(&format!("manifests/{tag}"), content),
            (name, _) if name.starts_with("manifest") => {
                published.manifest(&content);
            }
            _ => published.blob(&content),
        }
    }
    let puller = published.puller(&files.join(key));
    let chart = puller.pull_blocking(&published.reference(None))?;
    assert_eq!(chart.archive, read("web-1.0.0.tgz"));
    // From the cache, without a registry.
    published.server.clear();
    let pinned = published.reference(Some(Digest::of(&chart.archive)));
    puller.pull_blocking(&pinned)
}

#[test]
fn what_cosign_wrote_is_accepted_with_its_key_and_with_no_other() {
    for (folder, right, other) in [
        ("tag", "cosign.pub", "ed25519.pub"),
        ("bundle", "cosign.pub", "ed25519.pub"),
        // An attestation, a signature of another key, and the one of the key.
        ("several", "cosign.pub", "ed25519.pub"),
        ("ed25519-tag", "ed25519.pub", "cosign.pub"),
        ("ed25519-bundle", "ed25519.pub", "cosign.pub"),
    ] {
        if let Err(error) = written_by_cosign(folder, right) {
            panic!("{folder}: {}", text(&error));
        }
        let refused = text(&written_by_cosign(folder, other).unwrap_err());
        let told = "no signature of it was made with the key";
        assert!(refused.contains(told), "{folder}: {refused}");
    }
}

#[cfg(not(feature = "provenance"))]
#[test]
fn without_the_feature_for_provenance_files_the_error_names_it() {
    let error = Policy::keyring(Path::new("pubring.gpg")).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("without the feature `provenance`"),
        "{message}"
    );
}

#[cfg(not(feature = "cosign-identity"))]
#[test]
fn without_the_feature_for_identities_the_error_names_it() {
    use chart_source::verify::{Identity, Name};

    let error = Policy::cosign_identity(&Identity {
        issuer: Name::Exact("https://example.com".to_owned()),
        subject: Name::Exact("me@example.com".to_owned()),
        trusted_root: PathBuf::from("trusted_root.json"),
    });
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("without the feature `cosign-identity`"),
        "{error}"
    );
}
