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
use support::{fails_with, rows, text};

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
    let chart = ChartReference::parse(chart, None, version).unwrap();
    pull_with(&access(), &chart)
}

fn from_repository(repo: &str, name: &str, version: Option<&str>) -> ChartReference {
    ChartReference::parse(name, Some(repo), version).unwrap()
}

/// Serves files by path.
fn files(files: Vec<(&'static str, Vec<u8>)>) -> HttpServer {
    let reply = move |request: &Received| {
        let file = files.iter().find(|(path, _)| *path == request.target);
        file.map_or_else(|| Reply::status(404), |(_, body)| Reply::body(body.clone()))
    };
    HttpServer::start(reply).unwrap()
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

/// Returns a request with another text in its target.
fn with_target(request: &Received, old: &str, new: &str) -> Received {
    Received {
        target: request.target.replace(old, new),
        ..request.clone()
    }
}

/// Names the chart of a registry.
fn web_chart(server: &HttpServer) -> String {
    format!("oci://{}/a/web:1.0.0", server.address())
}

fn web_reference(server: &HttpServer) -> ChartReference {
    ChartReference::parse(&web_chart(server), None, None).unwrap()
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
    let asked = server.received().into_iter().map(|one| one.target);
    let asked: Vec<String> = asked.collect();
    let index = "/repo/index.yaml";
    assert_eq!(asked, [index, "/repo/charts/web-1.2.3.tgz", index]);
    drop(server);
    chart.digest = Some(digest);
    // Without a server.
    assert_eq!(puller.pull_blocking(&chart).unwrap().archive, ARCHIVE);
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
    let PullError::Digest { by, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*by, "the index");
    let (message, url) = (text(&error), server.url("/web.tgz"));
    for part in [url, other.to_string(), Digest::of(ARCHIVE).to_string()] {
        assert!(message.contains(&part), "{message}");
    }
    let mut chart = ChartReference::parse(&server.url("/web.tgz"), None, None).unwrap();
    assert!(pull_with(&access(), &chart).is_ok());
    chart.digest = Some(other);
    fails_with(pull_with(&access(), &chart), "the given digest says");
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
    let in_repository = |path: &str| from_repository(&server.url(path), "web", None);
    let url = |path: &str| ChartReference::parse(&server.url(path), None, None).unwrap();
    let (anyone, user) = (access(), with_user("me", "hidden"));
    let refused = |access: &Access, chart: &ChartReference, expected: &str| {
        let message = fails_with(pull_with(access, chart), expected);
        assert!(message.contains(&server.address()), "{message}");
        assert!(!message.contains("hidden"), "{message}");
    };
    let wanted = "needs credentials (status 401); give --username and --password";
    refused(&anyone, &in_repository("/secret"), wanted);
    let rejected = "rejects the credentials that were given (status 401)";
    refused(&user, &in_repository("/secret"), rejected);
    let forbidden = "needs credentials (status 403)";
    refused(&anyone, &url("/forbidden/web.tgz"), forbidden);
    let missing = "does not exist (status 404); check the name of the chart";
    refused(&anyone, &url("/none.tgz"), missing);
    let repository = "check the URL of the repository";
    refused(&anyone, &in_repository("/none"), repository);
    refused(&anyone, &url("/page.tgz"), "is not a packaged chart (.tgz)");
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
    let (web, down) = (server.url("/web.tgz"), server.url("/down.tgz"));
    assert_eq!(pull(&web, None).unwrap().archive, ARCHIVE);
    fails_with(pull(&down, None), "status 503, after 2 attempts");
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
        fails_with(pull(&server.url(path), None), expected);
    }
    let chart = from_repository(&server.url(""), "web", None);
    let message = fails_with(pull_with(&access(), &chart), "the index at");
    assert!(message.contains("limit of 50 MiB"), "{message}");
    let address = server.url("/web.tgz");
    drop(server);
    fails_with(pull(&address, None), "cannot reach");
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
        let has = |one: &Received| one.headers.contains_key("authorization");
        received.iter().map(has).collect()
    };
    assert_eq!(has(server.received()), [true; 4]);
    assert_eq!(has(other.received()), [false; 2]);
    let all = Access {
        pass_credentials: true,
        ..user.clone()
    };
    pull_with(&all, &linked).unwrap();
    assert_eq!(has(other.received()), [false, false, true]);
    let endless = pull_with(&user, &url("/loop.tgz"));
    fails_with(endless, "redirected more than 10 times");
    let local = pull_with(&user, &url("/file.tgz"));
    fails_with(local, "not a URL of a web server");
}

#[test]
fn registry_that_lies_is_found_out() {
    let right = Digest::of(ARCHIVE);
    let other = Digest::of(b"other");
    let (whole, large) = (ARCHIVE.len(), limits::ARCHIVE + 1);
    let image = manifest("application/vnd.oci.image.config.v1+json", &right, 1);
    let no_config = "is not a Helm chart: its config has the media type";
    let index = br#"{"schemaVersion": 2, "manifests": []}"#.to_vec();
    let no_layer = format!(r#"{{"config": {{"mediaType": "{CONFIG}", "digest": "", "size": 0}}}}"#);
    let size = "larger than the limit of 64 MiB";
    let digest = "but the manifest says sha256:";
    for (manifest, expected) in [
        (manifest(CONFIG, &right, 5), "but the manifest says 5"),
        (manifest(CONFIG, &other, whole), digest),
        (manifest(CONFIG, &right, large), size),
        (image, no_config),
        (index, "is not a Helm chart"),
        (b"<html>".to_vec(), "its manifest is not that of a chart"),
        (no_layer.into(), "it has no layer with the media type"),
    ] {
        let server = HttpServer::start(move |request| {
            if request.target.contains("/manifests/") {
                Reply::body(manifest.clone())
            } else {
                Reply::body(ARCHIVE)
            }
        })
        .unwrap();
        fails_with(pull(&web_chart(&server), None), expected);
    }
    let server = HttpServer::start(move |request| {
        registry(request).header("Docker-Content-Digest", other.to_string())
    })
    .unwrap();
    let said = "header Docker-Content-Digest says";
    fails_with(pull(&web_chart(&server), None), said);
    let server = HttpServer::start(|request| {
        let named = Digest::of(b"x").to_string();
        registry(&with_target(request, &named, "1.0.0"))
    })
    .unwrap();
    let chart = format!("oci://{}/a/web@{}", server.address(), Digest::of(b"x"));
    fails_with(pull(&chart, None), "but the reference says");
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
    let kind = "application/vnd.oci.image.config.v1+json";
    let image = manifest(kind, &Digest::of(b""), 0);
    let other_archive = b"\x1f\x8b\x08 another chart";
    let other = manifest(CONFIG, &Digest::of(other_archive), other_archive.len());
    let (chart_, image_) = ((MANIFEST, chart.as_slice()), (MANIFEST, image.as_slice()));
    let signature = ("application/vnd.dev.cosign.signature", image.as_slice());
    let inner = oci_index(&[image_, chart_]);
    let several = "its index has several charts, with the manifests sha256:";
    let missing = oci_index(&[(MANIFEST, b"gone"), chart_]);
    let long = oci_index(&vec![image_; limits::INDEXED + 1]);
    let too_long = "its index lists more than 100 manifests";
    let cases: [(Vec<u8>, Result<(), &str>); 8] = [
        (oci_index(&[image_, chart_]), Ok(())),
        (oci_index(&[chart_, signature, image_, chart_]), Ok(())),
        (oci_index(&[image_, (INDEX, &inner)]), Ok(())),
        (oci_index(&[image_]), Err("its index has no chart")),
        (oci_index(&[]), Err("its index has no chart")),
        (oci_index(&[chart_, (MANIFEST, &other)]), Err(several)),
        (missing, Err("does not exist")),
        (long, Err(too_long)),
    ];
    for (index, expected) in cases {
        let digest = Digest::of(&index);
        let texts = [&index, &chart, &image, &other, &inner].map(Vec::clone);
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
                None => registry(&with_target(request, "1.0.0", "none")),
            }
        })
        .unwrap();
        let chart = web_chart(&server);
        if let Err(expected) = expected {
            fails_with(pull(&chart, None), expected);
            continue;
        }
        let pulled = pull(&chart, None).unwrap();
        assert_eq!(pulled.archive, ARCHIVE);
        assert_eq!(pulled.resolved.url, format!("{chart}@{digest}"));
        let by_digest = format!("oci://{}/a/web@{digest}", server.address());
        assert_eq!(pull(&by_digest, None).unwrap().archive, ARCHIVE);
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
    for [name, wanted, expected] in rows(
        r#"
        a/web | ^3    | has no version "^3"; the newest is 2.0.0-rc.1
        none  | *     | it has no version at all
        a/web | 9.9.9 | manifests/9.9.9 does not exist (status 404)
        "#,
    ) {
        let chart = format!("oci://{}/{name}", server.address());
        fails_with(pull(&chart, Some(wanted)), expected);
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
    let pulled = pull_with(&access(), &web_reference(&anonymous)).unwrap();
    assert_eq!(pulled.archive, ARCHIVE);
    // One challenge, one token, and then the token is used.
    assert_eq!(anonymous.received().len(), 4);

    // me:hidden
    let private = token_registry(Some("Basic bWU6aGlkZGVu"));
    let chart = web_reference(&private);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.json");
    let host = private.address();
    let login = docker_config(&file, &host, r#"{"auth": "bWU6aGlkZGVu"}"#);
    assert!(pull_with(&login, &chart).is_ok());
    assert!(pull_with(&with_user("me", "hidden"), &chart).is_ok());
    let message = fails_with(pull_with(&access(), &chart), "needs credentials");
    let advice = format!("helm registry login {host}");
    assert!(message.contains(&advice), "{message}");
    let wrong = docker_config(&file, &host, r#"{"auth": "bWU6d3Jvbmc="}"#);
    let message = fails_with(pull_with(&wrong, &chart), "rejects the credentials of ");
    assert!(message.contains("config.json"), "{message}");
    assert!(!message.contains("wrong"), "{message}");
    let identity = docker_config(&file, &host, r#"{"identitytoken": "refresh-me"}"#);
    assert!(pull_with(&identity, &chart).is_ok());
}

#[test]
fn challenge_that_never_ends_or_leads_elsewhere_is_refused() {
    let basic = r#"Basic realm="r""#;
    let elsewhere = r#"Bearer realm="ftp://thief/""#;
    for (challenge, expected, requests) in [
        (basic, "rejects the credentials that were given", 2),
        (elsewhere, "is not reached by https", 1),
    ] {
        let server =
            HttpServer::start(move |_| Reply::status(401).header("WWW-Authenticate", challenge))
                .unwrap();
        let refused = pull_with(&with_user("me", "hidden"), &web_reference(&server));
        fails_with(refused, expected);
        assert_eq!(server.received().len(), requests);
    }
}
