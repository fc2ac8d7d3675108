//! Verifies provenance files of Helm, which were signed by GnuPG: see `provenance/README.md`.

#![cfg(feature = "provenance")]
#![allow(clippy::unwrap_used, reason = "a test fails with a panic")]

mod support;

use std::path::{Path, PathBuf};

use chart_source::verify::{Policy, VerifyError, read_archive};
use chart_source::{Cache, ChartReference, Digest, PullError, Puller, limits};
use support::{FileServer, access, fails_with, rows};

fn path(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/provenance");
    folder.join(name)
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap()
}

fn text(name: &str) -> String {
    String::from_utf8(file(name)).unwrap()
}

fn policy(keyring: &str) -> Policy {
    Policy::keyring(&path(keyring)).unwrap()
}

/// Verifies an archive on this machine, and says `ok` or what is wrong.
fn verified(archive: &[u8], provenance: &[u8], keyring: &Policy) -> String {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("web-1.2.3.tgz");
    std::fs::write(&at, archive).unwrap();
    std::fs::write(folder.path().join("web-1.2.3.tgz.prov"), provenance).unwrap();
    match read_archive(&at, keyring) {
        Ok(read) => {
            assert_eq!(read, archive);
            "ok".to_owned()
        }
        Err(error) => self::support::text(&error),
    }
}

#[test]
fn verdicts_on_signatures_and_keys_are_those_of_helm() {
    let archive = file("web-1.2.3.tgz");
    // Helm accepts SHA-1.
    for [provenance, keyring, expected] in rows(
        "
        signer.prov       | signer.gpg        | ok
        signer.prov       | signer.asc        | ok
        signer.prov       | signer.kbx        | ok
        signer.prov       | signer.secret.gpg | ok
        ed25519.prov      | ed25519.gpg       | ok
        nistp256.prov     | nistp256.gpg      | ok
        subkey.prov       | subkey.gpg        | ok
        signer.prov       | other.gpg         | which is not in /
        signer.prov       | ed25519.gpg       | it is signed with the key A082AD33
        expired.prov      | expired.gpg       | which does not count: it has expired
        revoked.prov      | revoked.gpg       | which does not count: it was revoked
        short.prov        | signer.gpg        | the signature has expired
        sha1.prov         | signer.gpg        | a hash of the SHA-2 or SHA-3 family
        other-chart.prov  | signer.gpg        | the provenance file is for web-1.2.4.tgz, not for web-1.2.3.tgz
        other-digest.prov | signer.gpg        | its signature is for sha256:0000
        no-digests.prov   | signer.gpg        | the provenance file has no part with digests
        ",
    ) {
        let said = verified(&archive, &file(provenance), &policy(keyring));
        assert!(said.contains(expected), "{provenance} {keyring}: {said}");
    }
}

#[test]
fn provenance_files_that_were_changed_are_refused_and_their_surroundings_do_not_matter() {
    let (archive, right) = (file("web-1.2.3.tgz"), text("signer.prov"));
    let keyring = policy("signer.gpg");
    let body = right.split_once("-----\n").unwrap().1;
    let other = text("other.prov");
    let signature = |text: &str| {
        let at = text.find("-----BEGIN PGP SIGNATURE").unwrap();
        text[at..].to_owned()
    };
    let signed_by_other = right.replace(&signature(&right), &signature(&other));
    let changed = "was changed after it was signed";
    let incomplete = "is not a complete OpenPGP message";
    let long = " ".repeat(limits::PROVENANCE + 1);
    for (provenance, expected) in [
        (right.clone(), "ok"),
        (format!("hello\n\n{right}\nbye\n"), "ok"),
        (right.replace('\n', "\r\n"), "ok"),
        (right.replace("name: web\n", "name: web  \n"), "ok"),
        (right.replace("name: web", "name: wep"), changed),
        (right.replace("e05ab6", "e05ab7"), changed),
        (signed_by_other, "which is not in "),
        (right[..300].to_owned(), incomplete),
        (right[..500].to_owned(), incomplete),
        (signature(&right), incomplete),
        (body.to_owned(), incomplete),
        (String::new(), incomplete),
        ("files: {}".to_owned(), incomplete),
        (long, "it is larger than the limit of 1024 KiB"),
    ] {
        let said = verified(&archive, provenance.as_bytes(), &keyring);
        assert!(said.contains(expected), "{provenance:.100}: {said}");
    }
    let said = verified(&archive, b"\xff\xfe", &keyring);
    assert!(said.contains("it is not a text"), "{said}");
    let other = [archive, vec![0]].concat();
    let said = verified(&other, right.as_bytes(), &keyring);
    assert!(said.contains(changed), "{said}");
}

#[test]
fn keyrings_may_have_many_keys_and_those_without_one_are_refused() {
    let (archive, provenance) = (file("web-1.2.3.tgz"), file("signer.prov"));
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("ring");
    let read = |data: &[u8]| {
        std::fs::write(&at, data).unwrap();
        Policy::keyring(&at).map_err(|error| self::support::text(&error))
    };
    let mut broken = file("signer.kbx");
    broken.pop();
    for ring in [
        [file("other.gpg"), file("signer.gpg")].concat(),
        [file("other.asc"), file("signer.asc")].concat(),
        [b"\n\n".to_vec(), file("signer.asc"), file("other.asc")].concat(),
    ] {
        let keyring = read(&ring).unwrap();
        assert_eq!(verified(&archive, &provenance, &keyring), "ok");
    }
    for (ring, expected) in [
        (Vec::new(), "is not a keyring of OpenPGP"),
        (b"hello".to_vec(), "is not a keyring of OpenPGP"),
        (file("web-1.2.3.tgz"), "is not a keyring of OpenPGP"),
        (provenance.clone(), "is not a keyring of OpenPGP"),
        (broken, "its keybox is incomplete"),
        (vec![0; limits::KEYRING + 1], "it is larger than the limit"),
    ] {
        let error = read(&ring).unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(error.contains("ring"), "{error}");
    }
}

#[test]
fn archives_without_a_provenance_file_and_directories_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let keyring = policy("signer.gpg");
    let at = folder.path().join("web-1.2.3.tgz");
    let directory = read_archive(folder.path(), &keyring);
    fails_with(directory, "a directory cannot be verified");
    let error = read_archive(&at, &keyring).unwrap_err();
    assert!(matches!(error, VerifyError::File { .. }), "{error}");
    std::fs::copy(path("web-1.2.3.tgz"), &at).unwrap();
    let unsigned = read_archive(&at, &keyring);
    let message = fails_with(unsigned, "it is not signed: there is no ");
    assert!(message.contains("web-1.2.3.tgz.prov"), "{message}");
}

fn puller(cache: &Path, keyring: &str) -> Puller {
    let puller = Puller::new(&access(), Some(Cache::at(cache))).unwrap();
    puller.verifying(policy(keyring))
}

/// Pulls a chart, and says `ok` or what is wrong.
fn pulled(puller: &Puller, chart: &ChartReference) -> String {
    match puller.pull_blocking(chart) {
        Ok(found) => {
            assert_eq!(found.archive, file("web-1.2.3.tgz"));
            "ok".to_owned()
        }
        Err(error) => {
            assert!(!matches!(error, PullError::Cache(_)), "{error}");
            self::support::text(&error)
        }
    }
}

fn parse(chart: &str, repo: Option<&str>, version: Option<&str>) -> ChartReference {
    ChartReference::parse(chart, repo, version).unwrap()
}

#[test]
fn chart_of_a_repository_is_verified_when_it_is_fetched_and_from_the_cache() {
    let server = FileServer::start();
    let put = |path: &str, body: Vec<u8>| server.put(path, body);
    let digest = Digest::of(&file("web-1.2.3.tgz"));
    let index = format!(
        "apiVersion: v1\nentries: {{web: [{{name: web, version: 1.2.3, urls: [web-1.2.3.tgz], digest: '{digest}'}}]}}"
    );
    put("/index.yaml", index.into_bytes());
    put("/web-1.2.3.tgz", file("web-1.2.3.tgz"));
    put("/web-1.2.3.tgz?token=a", file("web-1.2.3.tgz"));
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path();
    let chart = parse("web", Some(&server.http.url("")), Some("1.2.3"));
    let refused = |expected: &str| {
        let said = pulled(&puller(cache, "signer.gpg"), &chart);
        assert!(said.contains(expected), "{said}");
        let consequence = "cannot be verified and is not used";
        assert!(said.contains(consequence), "{said}");
    };
    refused("it is not signed: there is no http://");
    put("/web-1.2.3.tgz.prov", file("other.prov"));
    refused("which is not in ");
    put("/web-1.2.3.tgz.prov", file("other-chart.prov"));
    refused("not for web-1.2.3.tgz");
    put("/web-1.2.3.tgz.prov", vec![b'a'; limits::PROVENANCE + 1]);
    let said = pulled(&puller(cache, "signer.gpg"), &chart);
    assert!(said.contains("limit of 1 MiB"), "{said}");

    put("/web-1.2.3.tgz.prov", file("signer.prov"));
    put("/web-1.2.3.tgz.prov?token=a", file("signer.prov"));
    assert_eq!(pulled(&puller(cache, "signer.gpg"), &chart), "ok");
    // A URL with a query, without a cache.
    let url = parse(&server.http.url("/web-1.2.3.tgz?token=a"), None, None);
    let empty = folder.path().join("empty");
    assert_eq!(pulled(&puller(&empty, "signer.gpg"), &url), "ok");
    let requests = server.requests();
    let pinned = ChartReference {
        digest: Some(digest),
        ..chart.clone()
    };
    assert_eq!(pulled(&puller(cache, "signer.asc"), &pinned), "ok");
    assert_eq!(server.requests(), requests);
    let other = pulled(&puller(cache, "other.gpg"), &pinned);
    assert!(other.contains("which is not in "), "{other}");

    // The evidence in the cache is verified, and fetched again if it does not prove the chart.
    let name = format!("{}.provenance.proof", digest.hex());
    let proof = cache.join(name);
    let right = std::fs::read_to_string(&proof).unwrap();
    let wrong = right.replace("name: web", "name: wep");
    assert_ne!(right, wrong);
    std::fs::write(&proof, &wrong).unwrap();
    let found = Cache::at(cache).find(&pinned, &policy("signer.gpg"));
    fails_with(found, "was changed after it was signed");
    assert_eq!(pulled(&puller(cache, "signer.gpg"), &pinned), "ok");
    assert_eq!(std::fs::read_to_string(&proof).unwrap(), right);
    std::fs::write(&proof, &wrong).unwrap();
    server.clear();
    let said = pulled(&puller(cache, "signer.gpg"), &pinned);
    for part in [
        "was changed after it was signed",
        "cannot be fetched again either",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn provenance_file_of_a_chart_in_a_registry_is_a_layer_of_its_manifest() {
    let server = FileServer::start();
    let put = |path: String, body: Vec<u8>| server.put(path, body);
    let layer = |kind: &str, data: &[u8]| {
        let (digest, size) = (Digest::of(data), data.len());
        put(format!("/v2/a/web/blobs/{digest}"), data.to_vec());
        format!(
            r#"{{"mediaType": "application/vnd.cncf.helm.{kind}", "digest": "{digest}", "size": {size}}}"#
        )
    };
    let publish = |provenance: Option<&str>| {
        let config = layer("config.v1+json", b"{}");
        let mut layers = vec![layer("chart.content.v1.tar+gzip", &file("web-1.2.3.tgz"))];
        layers.extend(provenance.map(|name| layer("chart.provenance.v1.prov", &file(name))));
        let layers = layers.join(",");
        let manifest =
            format!(r#"{{"schemaVersion": 2, "config": {config}, "layers": [{layers}]}}"#);
        let digest = Digest::of(manifest.as_bytes());
        let bytes = manifest.clone().into_bytes();
        put(format!("/v2/a/web/manifests/{digest}"), bytes);
        put("/v2/a/web/manifests/1.2.3".to_owned(), manifest.into());
        digest
    };
    let name = format!("oci://{}/a/web", server.http.address());
    let chart = parse(&name, None, Some("1.2.3"));
    let pull = |chart: &ChartReference| {
        let folder = tempfile::tempdir().unwrap();
        pulled(&puller(folder.path(), "signer.gpg"), chart)
    };
    publish(None);
    let said = pull(&chart);
    assert!(said.contains("has no provenance file"), "{said}");
    publish(Some("other-chart.prov"));
    let said = pull(&chart);
    assert!(said.contains("not for web-1.2.3.tgz"), "{said}");
    let digest = publish(Some("signer.prov"));
    assert_eq!(pull(&chart), "ok");
    // Without a tag, the version is not known.
    assert_eq!(pull(&parse(&format!("{name}@{digest}"), None, None)), "ok");
    let digest = publish(Some("other-digest.prov"));
    let said = pull(&parse(&format!("{name}@{digest}"), None, None));
    assert!(said.contains("its signature is for sha256:0000"), "{said}");
}
