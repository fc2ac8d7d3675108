//! Fetches charts from servers that are honest, slow, broken or lying.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails with a panic"
)]

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chart_source::{
    Access, Cache, ChartReference, Digest, Patience, PullError, Pulled, Puller, limits,
};
use hybrid_operator_test::HttpServer;
use hybrid_operator_test::http_server::{Received, Reply};
use support::text;

/// Bytes that only have to begin like an archive.
const ARCHIVE: &[u8] = b"\x1f\x8b\x08 a chart";
const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// Short delays, so that tests of broken servers are quick.
fn access() -> Access {
    Access {
        plain_http: true,
        patience: Patience {
            connect: Duration::from_secs(5),
            answer: Duration::from_millis(300),
            whole: Duration::from_secs(20),
            attempts: 2,
            delay: Duration::from_millis(1),
            longest_delay: Duration::from_millis(2),
        },
        ..Access::default()
    }
}

fn with_user(user: &str, password: &str) -> Access {
    Access {
        username: Some(user.to_owned()),
        password: Some(password.to_owned().into()),
        ..access()
    }
}

fn pull_with(access: &Access, chart: &ChartReference) -> Result<Pulled, PullError> {
    Puller::new(access, None).unwrap().pull_blocking(chart)
}

fn pull(chart: &str, version: Option<&str>) -> Result<Pulled, PullError> {
    pull_with(
        &access(),
        &ChartReference::parse(chart, None, version).unwrap(),
    )
}

fn from_repository(repo: &str, name: &str, version: Option<&str>) -> ChartReference {
    ChartReference::parse(name, Some(repo), version).unwrap()
}

/// Serves files by path.
fn files(files: Vec<(&'static str, Vec<u8>)>) -> HttpServer {
    HttpServer::start(
        move |request| match files.iter().find(|(path, _)| *path == request.target) {
            Some((_, body)) => Reply::body(body.clone()),
            None => Reply::status(404),
        },
    )
    .unwrap()
}

fn index(url: &str, digest: &str) -> Vec<u8> {
    format!(
        "apiVersion: v1\nentries:\n  web:\n  - name: web\n    version: 1.2.3\n    urls: ['{url}']\n    digest: '{digest}'\n"
    )
    .into_bytes()
}

fn manifest(config: &str, digest: &Digest, size: usize) -> Vec<u8> {
    format!(
        r#"{{"schemaVersion": 2, "config": {{"mediaType": "{config}", "digest": "{digest}", "size": 2}},
            "layers": [{{"mediaType": "{LAYER}", "digest": "{digest}", "size": {size}}}]}}"#
    )
    .into_bytes()
}

fn chart_manifest() -> Vec<u8> {
    manifest(CONFIG, &Digest::of(ARCHIVE), ARCHIVE.len())
}

fn blob_path() -> String {
    format!("/v2/a/web/blobs/{}", Digest::of(ARCHIVE))
}

/// Answers as a registry with one chart, `a/web` in the version 1.0.0.
fn registry(request: &Received) -> Reply {
    let path = request.target.split('?').next().unwrap_or_default();
    match path {
        "/v2/a/web/manifests/1.0.0" => Reply::body(chart_manifest()),
        path if path == blob_path() => Reply::body(ARCHIVE),
        _ => Reply::status(404),
    }
}

#[test]
fn chart_of_a_repository_is_fetched_once_and_then_taken_from_the_cache() {
    let digest = Digest::of(ARCHIVE);
    let index = index("charts/web-1.2.3.tgz", &digest.hex());
    let server = files(vec![
        ("/repo/index.yaml", index),
        ("/repo/charts/web-1.2.3.tgz", ARCHIVE.to_vec()),
    ]);
    let dir = tempfile::tempdir().unwrap();
    let puller = Puller::new(&access(), Some(Cache::at(dir.path()))).unwrap();
    let mut chart = from_repository(&server.url("/repo"), "web", Some("^1.0"));
    for _ in 0..2 {
        let found = puller.pull_blocking(&chart).unwrap();
        assert_eq!(found.archive, ARCHIVE);
        assert_eq!(found.resolved.version.as_deref(), Some("1.2.3"));
        assert_eq!(found.resolved.url, server.url("/repo/charts/web-1.2.3.tgz"));
        assert_eq!(found.resolved.digest, digest);
    }
    let asked: Vec<_> = server
        .received()
        .into_iter()
        .map(|one| one.target)
        .collect();
    let index = "/repo/index.yaml";
    assert_eq!(asked, [index, "/repo/charts/web-1.2.3.tgz", index]);
    drop(server);
    chart.digest = Some(digest);
    assert_eq!(
        puller.pull_blocking(&chart).unwrap().archive,
        ARCHIVE,
        "without a server"
    );
}

#[test]
fn digest_of_the_index_and_of_the_reference_are_compared() {
    let other = Digest::of(b"other");
    let server = files(vec![
        ("/index.yaml", index("web.tgz", &other.to_string())),
        ("/web.tgz", ARCHIVE.to_vec()),
    ]);
    let chart = from_repository(&server.url(""), "web", None);
    let error = pull_with(&access(), &chart).unwrap_err();
    assert!(
        matches!(
            error,
            PullError::Digest {
                by: "the index",
                ..
            }
        ),
        "{error}"
    );
    let message = text(&error);
    for part in [
        server.url("/web.tgz"),
        other.to_string(),
        Digest::of(ARCHIVE).to_string(),
    ] {
        assert!(message.contains(&part), "{message}");
    }
    let mut chart = ChartReference::parse(&server.url("/web.tgz"), None, None).unwrap();
    assert!(pull_with(&access(), &chart).is_ok());
    chart.digest = Some(other);
    let error = pull_with(&access(), &chart).unwrap_err();
    let message = text(&error);
    assert!(message.contains("the given digest says"), "{message}");
}

#[test]
fn missing_charts_and_forbidden_ones_say_what_to_do() {
    let server = HttpServer::start(|request| match request.target.as_str() {
        "/secret/index.yaml" => Reply::status(401),
        "/forbidden/web.tgz" => Reply::status(403),
        "/page.tgz" => Reply::body("<html>"),
        _ => Reply::status(404),
    })
    .unwrap();
    let secret = from_repository(&server.url("/secret"), "web", None);
    let url = |path: &str| ChartReference::parse(&server.url(path), None, None).unwrap();
    for (access, chart, expected) in [
        (
            access(),
            &secret,
            "needs credentials (status 401); give --username and --password",
        ),
        (
            with_user("me", "hidden"),
            &secret,
            "rejects the credentials that were given (status 401)",
        ),
        (
            access(),
            &url("/forbidden/web.tgz"),
            "needs credentials (status 403)",
        ),
        (
            access(),
            &url("/none.tgz"),
            "does not exist (status 404); check the name of the chart",
        ),
        (
            access(),
            &from_repository(&server.url("/none"), "web", None),
            "check the URL of the repository",
        ),
        (
            access(),
            &url("/page.tgz"),
            "is not a packaged chart (.tgz)",
        ),
    ] {
        let message = text(&pull_with(&access, chart).unwrap_err());
        assert!(message.contains(expected), "{message}");
        assert!(
            message.contains(&server.address()) && !message.contains("hidden"),
            "{message}"
        );
    }
}

#[test]
fn servers_that_are_busy_are_asked_again_and_then_named() {
    let asked = AtomicUsize::new(0);
    let server = HttpServer::start(move |request| match request.target.as_str() {
        "/down.tgz" => Reply::status(503),
        _ if asked.fetch_add(1, Ordering::Relaxed) == 0 => {
            Reply::status(429).header("Retry-After", "3600")
        }
        _ => Reply::body(ARCHIVE),
    })
    .unwrap();
    assert_eq!(
        pull(&server.url("/web.tgz"), None).unwrap().archive,
        ARCHIVE
    );
    let message = text(&pull(&server.url("/down.tgz"), None).unwrap_err());
    assert!(
        message.contains("status 503, after 2 attempts"),
        "{message}"
    );
    assert_eq!(server.received().len(), 4);
}

#[test]
fn silence_broken_answers_and_endless_ones_end_with_an_error() {
    let server = HttpServer::start(|request| match request.target.as_str() {
        "/silent.tgz" => Reply::Silence,
        "/short.tgz" => Reply::Short {
            promised: 100,
            body: ARCHIVE.to_vec(),
        },
        "/long.tgz" => Reply::Short {
            promised: limits::ARCHIVE + 1,
            body: Vec::new(),
        },
        "/index.yaml" => Reply::Endless,
        _ => Reply::status(404),
    })
    .unwrap();
    for (path, expected) in [
        ("/silent.tgz", "did not answer within 0.3 s"),
        ("/short.tgz", "is incomplete"),
        ("/long.tgz", "is larger than the limit of 64 MiB"),
    ] {
        let message = text(&pull(&server.url(path), None).unwrap_err());
        assert!(message.contains(expected), "{message}");
    }
    let chart = from_repository(&server.url(""), "web", None);
    let message = text(&pull_with(&access(), &chart).unwrap_err());
    assert!(
        message.contains("the index at") && message.contains("limit of 50 MiB"),
        "{message}"
    );
    let address = server.url("/web.tgz");
    drop(server);
    let message = text(&pull(&address, None).unwrap_err());
    assert!(message.contains("cannot reach"), "{message}");
}

#[test]
fn credentials_go_to_the_repository_and_to_no_other_host() {
    let other = HttpServer::start(|_| Reply::body(ARCHIVE)).unwrap();
    let (moved, linked) = (other.url("/moved.tgz?sig=secret"), other.url("/linked.tgz"));
    let server = HttpServer::start(move |request| match request.target.as_str() {
        "/index.yaml" => Reply::body(index(&linked, "")),
        "/here.tgz" => Reply::status(302).header("Location", "/there.tgz"),
        "/there.tgz" => Reply::body(ARCHIVE),
        "/web.tgz" => Reply::status(307).header("Location", moved.clone()),
        "/loop.tgz" => Reply::status(301).header("Location", "/loop.tgz"),
        "/file.tgz" => Reply::status(302).header("Location", "file:///etc/passwd"),
        _ => Reply::status(404),
    })
    .unwrap();
    let user = with_user("me", "hidden");
    let url = |path: &str| ChartReference::parse(&server.url(path), None, None).unwrap();
    let linked = from_repository(&server.url(""), "web", None);
    for chart in [&url("/here.tgz"), &url("/web.tgz"), &linked] {
        assert_eq!(pull_with(&user, chart).unwrap().archive, ARCHIVE);
    }
    let has = |received: Vec<Received>| -> Vec<bool> {
        let headers = received.iter();
        headers
            .map(|one| one.headers.contains_key("authorization"))
            .collect()
    };
    assert_eq!(has(server.received()), [true; 4]);
    assert_eq!(has(other.received()), [false; 2]);
    let all = Access {
        pass_credentials: true,
        ..user.clone()
    };
    pull_with(&all, &linked).unwrap();
    assert_eq!(has(other.received()), [false, false, true]);
    let message = text(&pull_with(&user, &url("/loop.tgz")).unwrap_err());
    assert!(
        message.contains("redirected more than 10 times"),
        "{message}"
    );
    let message = text(&pull_with(&user, &url("/file.tgz")).unwrap_err());
    assert!(message.contains("not a URL of a web server"), "{message}");
}

#[test]
fn registry_that_lies_is_found_out() {
    let right = Digest::of(ARCHIVE);
    let other = Digest::of(b"other");
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (manifest(CONFIG, &right, 5), "but the manifest says 5"),
        (
            manifest(CONFIG, &other, ARCHIVE.len()),
            "but the manifest says sha256:",
        ),
        (
            manifest(CONFIG, &right, limits::ARCHIVE + 1),
            "larger than the limit of 64 MiB",
        ),
        (
            manifest("application/vnd.oci.image.config.v1+json", &right, 1),
            "is not a Helm chart: its config has the media type",
        ),
        (
            br#"{"schemaVersion": 2, "manifests": []}"#.to_vec(),
            "is not a Helm chart",
        ),
        (b"<html>".to_vec(), "its manifest is not that of a chart"),
        (
            format!(r#"{{"config": {{"mediaType": "{CONFIG}", "digest": "", "size": 0}}}}"#).into(),
            "it has no layer with the media type",
        ),
    ];
    for (manifest, expected) in cases {
        let server = HttpServer::start(move |request| {
            if request.target.contains("/manifests/") {
                Reply::body(manifest.clone())
            } else {
                Reply::body(ARCHIVE)
            }
        })
        .unwrap();
        let chart = format!("oci://{}/a/web:1.0.0", server.address());
        let message = text(&pull(&chart, None).unwrap_err());
        assert!(
            message.contains(expected),
            "{message} instead of {expected}"
        );
    }
    let server = HttpServer::start(move |request| {
        registry(request).header("Docker-Content-Digest", other.to_string())
    })
    .unwrap();
    let chart = format!("oci://{}/a/web:1.0.0", server.address());
    let message = text(&pull(&chart, None).unwrap_err());
    assert!(
        message.contains("header Docker-Content-Digest says"),
        "{message}"
    );
    let server = HttpServer::start(|request| {
        let path = request
            .target
            .replace(&Digest::of(b"x").to_string(), "1.0.0");
        registry(&Received {
            target: path,
            ..request.clone()
        })
    })
    .unwrap();
    let chart = format!("oci://{}/a/web@{}", server.address(), Digest::of(b"x"));
    let message = text(&pull(&chart, None).unwrap_err());
    assert!(message.contains("but the reference says"), "{message}");
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Returns an index of texts with their media types.
fn oci_index(listed: &[(&str, &[u8])]) -> Vec<u8> {
    let listed = listed.iter().map(|(kind, text)| {
        let (digest, size) = (Digest::of(text), text.len());
        format!(r#"{{"mediaType": "{kind}", "digest": "{digest}", "size": {size}}}"#)
    });
    let listed: Vec<String> = listed.collect();
    format!(
        r#"{{"schemaVersion": 2, "manifests": [{}]}}"#,
        listed.join(",")
    )
    .into_bytes()
}

#[test]
fn the_chart_of_an_index_is_found_beside_images_as_helm_does() {
    let chart = chart_manifest();
    let image = manifest(
        "application/vnd.oci.image.config.v1+json",
        &Digest::of(b""),
        0,
    );
    let other_archive = b"\x1f\x8b\x08 another chart";
    let other = manifest(CONFIG, &Digest::of(other_archive), other_archive.len());
    let (chart_, image_) = ((MANIFEST, chart.as_slice()), (MANIFEST, image.as_slice()));
    let signature = ("application/vnd.dev.cosign.signature", image.as_slice());
    let inner = oci_index(&[image_, chart_]);
    let several = "its index has several charts, with the manifests sha256:";
    let cases: Vec<(Vec<u8>, Result<(), &str>)> = vec![
        (oci_index(&[image_, chart_]), Ok(())),
        (oci_index(&[chart_, signature, image_, chart_]), Ok(())),
        (oci_index(&[image_, (INDEX, &inner)]), Ok(())),
        (oci_index(&[image_]), Err("its index has no chart")),
        (oci_index(&[]), Err("its index has no chart")),
        (oci_index(&[chart_, (MANIFEST, &other)]), Err(several)),
        (
            oci_index(&[(MANIFEST, b"gone"), chart_]),
            Err("does not exist"),
        ),
        (
            oci_index(&vec![image_; limits::INDEXED + 1]),
            Err("its index lists more than 100 manifests"),
        ),
    ];
    for (index, expected) in cases {
        let digest = Digest::of(&index);
        let texts: Vec<Vec<u8>> = [&index, &chart, &image, &other, &inner]
            .map(Vec::clone)
            .into();
        let server = HttpServer::start(move |request| {
            let by = request.target.strip_prefix("/v2/a/web/manifests/");
            let text = match by {
                Some("1.0.0") => texts.first(),
                by => texts
                    .iter()
                    .find(|text| by == Some(&Digest::of(text).to_string())),
            };
            let accepts = |text: &&Vec<u8>| {
                let is_index = text.windows(9).any(|part| part == b"manifests");
                let accepted = request.headers.get("accept");
                !is_index || accepted.is_some_and(|kinds| kinds.contains(INDEX))
            };
            match text.filter(accepts) {
                Some(text) => Reply::body(text.clone()),
                None => registry(&Received {
                    target: request.target.replace("1.0.0", "none"),
                    ..request.clone()
                }),
            }
        })
        .unwrap();
        let chart = format!("oci://{}/a/web:1.0.0", server.address());
        match (pull(&chart, None), expected) {
            (Ok(pulled), Ok(())) => {
                assert_eq!(pulled.archive, ARCHIVE);
                assert_eq!(pulled.resolved.url, format!("{chart}@{digest}"));
                let by_digest = format!("oci://{}/a/web@{digest}", server.address());
                assert_eq!(pull(&by_digest, None).unwrap().archive, ARCHIVE);
            }
            (Err(error), Err(expected)) => {
                let message = text(&error);
                assert!(
                    message.contains(expected),
                    "{message} instead of {expected}"
                );
            }
            (pulled, expected) => panic!("{pulled:?} instead of {expected:?}"),
        }
    }
}

#[test]
fn tags_are_read_in_pages_and_the_newest_in_the_range_is_taken() {
    let server = HttpServer::start(|request| match request.target.as_str() {
        "/v2/a/web/tags/list" => {
            Reply::body(r#"{"name": "a/web", "tags": ["0.9.0", "latest", "2.0.0-rc.1"]}"#)
                .header("Link", "</v2/a/web/tags/list?last=x>; rel=\"next\"")
        }
        "/v2/a/web/tags/list?last=x" => Reply::body(r#"{"tags": ["1.0.0", "0.8.0_b"]}"#),
        "/v2/none/tags/list" => Reply::body(r#"{"tags": null}"#),
        "/v2/a/web/manifests/0.8.0_b" => Reply::body(chart_manifest()),
        _ => registry(request),
    })
    .unwrap();
    let chart = format!("oci://{}/a/web", server.address());
    let digest = Digest::of(&chart_manifest());
    let newest = pull(&chart, None).unwrap();
    assert_eq!(newest.archive, ARCHIVE);
    assert_eq!(newest.resolved.version.as_deref(), Some("1.0.0"));
    assert_eq!(newest.resolved.url, format!("{chart}:1.0.0@{digest}"));
    let older = pull(&chart, Some("<0.9.0")).unwrap();
    assert_eq!(older.resolved.version.as_deref(), Some("0.8.0+b"));
    for (name, wanted, expected) in [
        (
            "a/web",
            "^3",
            "has no version \"^3\"; the newest is 2.0.0-rc.1",
        ),
        ("none", "*", "it has no version at all"),
        (
            "a/web",
            "9.9.9",
            "manifests/9.9.9 does not exist (status 404)",
        ),
    ] {
        let chart = format!("oci://{}/{name}", server.address());
        let message = text(&pull(&chart, Some(wanted)).unwrap_err());
        assert!(message.contains(expected), "{message}");
    }
}

/// Starts a registry that wants tokens, which it gives to everybody, or to a user only.
fn token_registry(user: Option<&'static str>) -> HttpServer {
    let realm = std::sync::OnceLock::<String>::new();
    HttpServer::start(move |request| {
        let host = request.headers.get("host").cloned().unwrap_or_default();
        let realm = realm.get_or_init(|| format!("http://{host}/token"));
        let authorization = request.headers.get("authorization");
        if request.target.starts_with("/token") {
            let form = String::from_utf8_lossy(&request.body);
            let is_refresh = form.contains("refresh_token=refresh-me");
            if user.is_some_and(|user| authorization.is_none_or(|one| one != user)) && !is_refresh {
                return Reply::status(401);
            }
            let asked = format!("{}{form}", request.target);
            if !asked.contains("scope=repository%3Aa%2Fweb%3Apull") {
                return Reply::status(400);
            }
            return Reply::body(r#"{"access_token": "t0ken"}"#);
        }
        if authorization.is_some_and(|one| one == "Bearer t0ken") {
            return registry(request);
        }
        let challenge =
            format!("Bearer realm=\"{realm}\",service=\"r\",scope=\"repository:a/web:pull\"");
        Reply::status(401).header("WWW-Authenticate", challenge)
    })
    .unwrap()
}

fn docker_config(path: &Path, host: &str, entry: &str) -> Access {
    std::fs::write(path, format!(r#"{{"auths": {{"{host}": {entry}}}}}"#)).unwrap();
    Access {
        docker_configs: vec![path.to_owned()],
        ..access()
    }
}

#[test]
fn tokens_are_asked_for_anonymously_or_with_the_credentials_of_the_registry() {
    let anonymous = token_registry(None);
    let chart = |server: &HttpServer| {
        let name = format!("oci://{}/a/web:1.0.0", server.address());
        ChartReference::parse(&name, None, None).unwrap()
    };
    assert_eq!(
        pull_with(&access(), &chart(&anonymous)).unwrap().archive,
        ARCHIVE
    );
    // One challenge, one token, and then the token is used.
    assert_eq!(anonymous.received().len(), 4);

    // me:hidden
    let private = token_registry(Some("Basic bWU6aGlkZGVu"));
    let chart = chart(&private);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.json");
    let host = private.address();
    let login = docker_config(&file, &host, r#"{"auth": "bWU6aGlkZGVu"}"#);
    assert!(pull_with(&login, &chart).is_ok());
    assert!(pull_with(&with_user("me", "hidden"), &chart).is_ok());
    let message = text(&pull_with(&access(), &chart).unwrap_err());
    assert!(message.contains("needs credentials"), "{message}");
    assert!(
        message.contains(&format!("helm registry login {host}")),
        "{message}"
    );
    let wrong = docker_config(&file, &host, r#"{"auth": "bWU6d3Jvbmc="}"#);
    let message = text(&pull_with(&wrong, &chart).unwrap_err());
    assert!(message.contains("rejects the credentials of "), "{message}");
    assert!(
        message.contains("config.json") && !message.contains("wrong"),
        "{message}"
    );
    let identity = docker_config(&file, &host, r#"{"identitytoken": "refresh-me"}"#);
    assert!(pull_with(&identity, &chart).is_ok());
}

#[test]
fn challenge_that_never_ends_or_leads_elsewhere_is_refused() {
    let insists =
        HttpServer::start(|_| Reply::status(401).header("WWW-Authenticate", "Basic realm=\"r\""))
            .unwrap();
    let chart = format!("oci://{}/a/web:1.0.0", insists.address());
    let chart = ChartReference::parse(&chart, None, None).unwrap();
    let message = text(&pull_with(&with_user("me", "hidden"), &chart).unwrap_err());
    assert!(
        message.contains("rejects the credentials that were given"),
        "{message}"
    );
    assert_eq!(insists.received().len(), 2);

    let strange = HttpServer::start(|_| {
        Reply::status(401).header("WWW-Authenticate", "Bearer realm=\"ftp://thief/\"")
    })
    .unwrap();
    let chart = format!("oci://{}/a/web:1.0.0", strange.address());
    let chart = ChartReference::parse(&chart, None, None).unwrap();
    let message = text(&pull_with(&with_user("me", "hidden"), &chart).unwrap_err());
    assert!(message.contains("is not reached by https"), "{message}");
    assert_eq!(strange.received().len(), 1);
}
