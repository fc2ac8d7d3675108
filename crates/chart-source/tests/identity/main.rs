//! Verifies signatures of an identity: right ones, wrong ones, and those of a cache that was changed. How the files
//! of `tests/cosign/identity` were made, and what Sigstore's own library says about each, is told there.

#![cfg(feature = "cosign-identity")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails with a panic"
)]

mod published;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use chart_source::verify::{Identity, Name, Policy, VerifyError};
use chart_source::{Access, ChartReference, Digest, Puller};
use hybrid_operator_test::HttpServer;
use hybrid_operator_test::http_server::Reply;
use published::Published;
use serde_json::{Value, json};
use support::{fails_with, rows, text};

const ISSUER: &str = "https://token.actions.githubusercontent.com";
const SUBJECT: &str =
    "https://github.com/example/charts/.github/workflows/release.yml@refs/heads/main";

/// Each file with its problem, as a part of the message; nothing if the file is right.
const CASES: &str = r#"
bundle/right          |
bundle/mail           | the subject of its signature is "release@example.com", which is not "https://github.com
bundle/other-subject  | release.yml@refs/heads/other", which is not
bundle/longer-subject | release.yml@refs/heads/main-2", which is not
bundle/other-issuer   | the issuer of its signature is "https://token.example.com", which is not
bundle/no-issuer      | the issuer of its signature is "", which is not
bundle/no-subject     | the subject of its signature is "", which is not
bundle/other-authority | certificate chain validation failed
bundle/other-usage    | certificate chain validation failed
bundle/no-sct         | certificate is missing SCT extension
bundle/other-ctlog    | SCT signature verification failed
bundle/early          | CertNotValidYet
bundle/late           | CertExpired
bundle/foreign-entry  | log entry
bundle/no-entry       | must have an inclusion proof
bundle/no-promise     | no verified timestamp
bundle/no-proof       | proof
bundle/other-log      | o log key valid
bundle/other-manifest | was changed after it was signed
bundle/damaged        | signature verification failed
bundle/attestation    | its statement has the type "https://slsa.dev/provenance/v1"
bundle-2/right        |
bundle-2/mail         | the subject of its signature is "release@example.com"
bundle-2/late         | CertExpired
bundle-2/no-promise   | requires RFC3161 timestamp
bundle-2/other-manifest | was changed after it was signed
bundle-2/damaged      | TSA
text/right            |
text/other-subject    | release.yml@refs/heads/other", which is not
text/other-issuer     | the issuer of its signature is "https://token.example.com", which is not
text/other-authority  | certificate chain validation failed
text/no-sct           | certificate is missing SCT extension
text/early            | CertNotValidYet
text/late             | CertExpired
text/foreign-entry    | hash mismatch
text/no-entry         | it has no entry of the log
text/other-log        | o log key valid
text/other-manifest   | was changed after it was signed
text/damaged          | signature verification failed
"#;

/// Files that Sigstore's library accepts because they are right for something else: it leaves to its caller what a
/// statement or a text says.
const MEANT_OTHERWISE: [&str; 2] = ["bundle/attestation", "text/other-manifest"];

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cosign")
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(files().join(name)).unwrap()
}

fn exact(name: &str) -> Name {
    Name::Exact(name.to_owned())
}

fn pattern(name: &str) -> Name {
    Name::Pattern(name.to_owned())
}

fn identity(issuer: Name, subject: Name) -> Identity {
    Identity {
        issuer,
        subject,
        trusted_root: files().join("identity/trusted_root.json"),
    }
}

fn of_identity(issuer: Name, subject: Name) -> Policy {
    Policy::cosign_identity(&identity(issuer, subject)).unwrap()
}

fn right() -> Policy {
    of_identity(exact(ISSUER), exact(SUBJECT))
}

/// The right identity with another trusted root.
fn with_root(trusted_root: PathBuf) -> Result<Policy, VerifyError> {
    Policy::cosign_identity(&Identity {
        trusted_root,
        ..identity(exact(ISSUER), exact(SUBJECT))
    })
}

fn other_root() -> Policy {
    with_root(files().join("identity/other_root.json")).unwrap()
}

fn json_file(name: &str) -> Value {
    serde_json::from_slice(&file(name)).unwrap()
}

/// Returns the digest of the chart's manifest.
fn digest() -> Digest {
    Digest::of(&file("manifest.json"))
}

#[test]
fn a_signature_of_the_identity_is_accepted_and_all_others_are_refused_as_sigstore_does() {
    let verdicts: BTreeMap<String, String> =
        serde_json::from_slice(&file("identity/verdicts.json")).unwrap();
    let tried: Vec<&str> = rows(CASES).map(|[name, _]| name).collect();
    for name in verdicts.keys() {
        assert!(tried.contains(&name.as_str()), "{name} is not tried");
    }
    for [name, wrong] in rows(CASES) {
        let published = Published::new();
        published.sign(name);
        let result = published.pull(right());
        let is_accepted = verdicts[name].is_empty() && !MEANT_OTHERWISE.contains(&name);
        assert_eq!(wrong.is_empty(), is_accepted, "{name}");
        match result {
            Ok(pulled) if is_accepted => assert_eq!(pulled.archive, file("web-1.0.0.tgz")),
            Err(error) if !is_accepted => {
                let message = text(&error);
                assert!(message.contains(wrong), "{name}: {message}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn certificates_keys_and_authorities_may_have_expired_since() {
    let root = json_file("identity/trusted_root.json");
    let end = &root["certificateAuthorities"][0]["validFor"]["end"];
    assert_eq!(end, "2025-05-01T12:00:00Z");
    assert_eq!(&root["tlogs"][0]["publicKey"]["validFor"]["end"], end);
    // This is 2025-05-02.
    let later = SystemTime::UNIX_EPOCH + Duration::from_hours(485_040);
    assert!(SystemTime::now() > later, "the clock is wrong");
}

#[test]
fn names_are_compared_as_a_whole_also_with_patterns() {
    let workflows = r"https://github\.com/example/charts/\.github/workflows/.+";
    for name in ["bundle/right", "text/right"] {
        let published = Published::new();
        published.sign(name);
        let github = r"https://token\.actions\.[^/]+";
        let part = "https://github.com/example/";
        let other_issuer = "the issuer of its signature";
        let not_all = "which is not what the pattern";
        for (issuer, subject, wrong) in [
            (exact(ISSUER), pattern(workflows), ""),
            (pattern(github), exact(SUBJECT), ""),
            (exact(ISSUER), pattern(part), not_all),
            (pattern("token"), exact(SUBJECT), other_issuer),
            (pattern(workflows), pattern(workflows), other_issuer),
            (exact(SUBJECT), exact(ISSUER), other_issuer),
        ] {
            let pulled = published.pull(of_identity(issuer, subject));
            if wrong.is_empty() {
                assert!(pulled.is_ok());
            } else {
                fails_with(pulled, wrong);
            }
        }
    }
}

#[test]
fn another_trusted_root_does_not_vouch_for_the_signature() {
    for name in ["bundle/right", "bundle-2/right", "text/right"] {
        let published = Published::new();
        published.sign(name);
        fails_with(published.pull(other_root()), "its signature does not count");
    }
}

#[test]
fn one_of_several_signatures_is_enough_and_keys_and_identities_do_not_stand_for_each_other() {
    let key = Policy::cosign_key(&files().join("cosign.pub")).unwrap();
    let published = Published::new();
    for name in ["bundle/other-subject", "bundle/no-sct", "bundle/right"] {
        published.sign(name);
    }
    published.sign("text/damaged");
    assert!(published.pull(right()).is_ok());
    let mismatch = "no signature of it was made with the key";
    fails_with(published.pull(key.clone()), mismatch);

    // What is wrong with the one of the identity is told, not that there are others.
    let published = Published::new();
    for name in ["bundle/late", "bundle/other-subject"] {
        published.sign(name);
    }
    fails_with(published.pull(right()), "CertExpired");

    for folder in ["tag", "bundle"] {
        let published = Published::new();
        let signatures = json_file(&format!("{folder}/signatures.json"));
        for entry in files().join(folder).read_dir().unwrap() {
            let content = std::fs::read(entry.unwrap().path()).unwrap();
            published.blob(&content);
            published.put(&format!("manifests/{}", Digest::of(&content)), content);
        }
        let tag = digest().to_string().replace(':', "-");
        let suffix = if folder == "tag" { ".sig" } else { "" };
        published.put(&format!("manifests/{tag}{suffix}"), signatures.to_string());
        assert!(published.pull(key.clone()).is_ok());
        let wanted = "none of its 1 signatures has the certificate of an identity";
        fails_with(published.pull(right()), wanted);
    }
    let message = fails_with(Published::new().pull(right()), "it is not signed");
    assert!(message.ends_with("sign it with 'cosign sign'"), "{message}");
}

#[test]
fn what_is_kept_is_verified_again_without_a_request() {
    for name in ["bundle/right", "bundle-2/right", "text/right"] {
        let published = Published::new();
        published.sign(name);
        let archive = file("web-1.0.0.tgz");
        let pinned = published.reference(Some(Digest::of(&archive)));
        assert_eq!(published.pull(right()).unwrap().archive, archive);
        let requests = published.server.requests();
        let puller = published.puller(right());
        assert_eq!(puller.pull_blocking(&pinned).unwrap().archive, archive);
        let found = published.cache().find(&pinned, &right()).unwrap().unwrap();
        assert_eq!(found.archive, archive);
        assert_eq!(published.server.requests(), requests);

        // Another identity does not find it, and another root does not accept it.
        let other = of_identity(exact(ISSUER), exact("release@example.com"));
        assert!(published.cache().find(&pinned, &other).unwrap().is_none());
        let found = published.cache().find(&pinned, &other_root());
        fails_with(found, "its signature does not count");

        // What was changed is noticed, and fetched again.
        let proof = published.proof();
        let kept = std::fs::read_to_string(&proof).unwrap();
        let of_other = if name.starts_with("text") {
            json!({"text": json_file("identity/text/no-sct.json")})
        } else {
            let late = name.replace("right", "late");
            let content = file(&format!("identity/{late}.json"));
            json!({"bundle": String::from_utf8(content).unwrap()})
        };
        let manifest = String::from_utf8(file("manifest.json")).unwrap();
        let of_other = json!({"manifest": manifest, "signed": of_other}).to_string();
        let changed = kept.replace("schemaVersion", "schemaversion");
        for (changed, expected) in [
            (&kept[..kept.len() / 2], "it is incomplete"),
            ("", "it is incomplete"),
            (&changed, "was changed after it was signed"),
            (&of_other, "its signature does not count"),
        ] {
            std::fs::write(&proof, changed).unwrap();
            fails_with(published.cache().find(&pinned, &right()), expected);
            assert_eq!(puller.pull_blocking(&pinned).unwrap().archive, archive);
            // It was fetched again.
            assert_eq!(std::fs::read_to_string(&proof).unwrap(), kept);
        }
    }
}

#[test]
fn what_is_not_a_bundle_or_too_large_is_refused() {
    let refused = |content: &[u8], expected: &str| {
        let published = Published::new();
        published.bundle(content);
        fails_with(published.pull(right()), expected);
    };
    refused(b"{}", "its signature cannot be read");
    refused(b"{", "none of its 1 signatures");
    refused(b"\xff", "none of its 1 signatures");
    refused(&vec![b' '; (256 << 10) + 1], "limit of 256 KiB");
    refused("[".repeat(200_000).as_bytes(), "none of its 1 signatures");
    let mut bundle = json_file("identity/bundle/right.json");
    bundle["dsseEnvelope"]["payload"] = "AAAA".into();
    refused(bundle.to_string().as_bytes(), "its signature");
    // A signature of a file, as 'cosign sign-blob' makes it, is not one of a chart.
    let digest = bundle["dsseEnvelope"]["signatures"][0]["sig"].clone();
    bundle.as_object_mut().unwrap().remove("dsseEnvelope");
    bundle["messageSignature"] = json!({"signature": digest});
    let of_file = bundle.to_string();
    refused(of_file.as_bytes(), "no statement in an envelope of DSSE");

    let right = json_file("identity/text/right.json");
    for [field, value, expected] in rows(
        r"
        entry       | {                           | its entry of the log is incomplete
        certificate | -----BEGIN                  | its certificate is not in PEM format
        certificate |                             | none of its 1 signatures
        chain       | -----BEGIN CERTIFICATE-----\nx | its chain of certificates is wrong
        signature   | !                           | its signature cannot be read
        ",
    ) {
        let published = Published::new();
        let mut changed = right.clone();
        changed[field] = value.replace(r"\n", "\n").into();
        published.text(&changed);
        fails_with(published.pull(self::right()), expected);
    }
}

#[test]
fn files_that_are_not_trusted_roots_are_refused_with_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trusted_root.json");
    let of_file = || with_root(path.clone());
    let refused = |content: &[u8], expected: &str| {
        std::fs::write(&path, content).unwrap();
        let message = of_file().unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
        assert!(message.contains("trusted_root.json"), "{message}");
        assert!(
            message.contains("cosign trusted-root create") || message.contains("cannot read"),
            "{message}"
        );
    };
    refused(b"", "is not a trusted root of Sigstore");
    refused(b"\xff", "it is not a text");
    refused(&vec![b' '; (1 << 20) + 1], "cannot read");
    let root = json_file("identity/trusted_root.json");
    for (field, expected) in [
        ("certificateAuthorities", "no authority for certificates"),
        ("tlogs", "no log of signatures"),
        ("ctlogs", "no log of certificates"),
    ] {
        let mut without = root.clone();
        without[field] = json!([]);
        refused(without.to_string().as_bytes(), expected);
    }
    let mut wrong = root.clone();
    wrong["tlogs"][0]["publicKey"]["rawBytes"] = "AAAA".into();
    let wrong = wrong.to_string();
    refused(wrong.as_bytes(), "is not a trusted root of Sigstore");
    std::fs::write(&path, root.to_string()).unwrap();
    assert!(of_file().is_ok());
    std::fs::remove_file(&path).unwrap();
    let error = of_file().unwrap_err();
    assert!(matches!(error, VerifyError::File { .. }), "{error}");

    let error = Policy::cosign_identity(&identity(exact(ISSUER), pattern("("))).unwrap_err();
    let wrong = "the pattern \"(\" for the subject of a signature is not a regular expression";
    assert!(error.to_string().starts_with(wrong), "{error}");
}

#[test]
fn the_trusted_root_of_the_public_sigstore_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let trusted_root = folder.path().join("trusted_root.json");
    let public = sigstore_verify::trust_root::SIGSTORE_PRODUCTION_TRUSTED_ROOT;
    std::fs::write(&trusted_root, public).unwrap();
    assert!(with_root(trusted_root).is_ok());
}

#[test]
fn signatures_of_an_identity_are_not_looked_for_beside_archives() {
    let server = HttpServer::start(|_| Reply::body(file("web-1.0.0.tgz"))).unwrap();
    let puller = Puller::new(&Access::default(), None).unwrap();
    let reference = ChartReference::parse(&server.url("/web.tgz"), None, None).unwrap();
    let refused = puller.verifying(right()).pull_blocking(&reference);
    fails_with(refused, "are in registries only");
}
