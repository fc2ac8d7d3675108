//! Documents of the web, from a server that also answers wrongly.

#![allow(clippy::unwrap_used, reason = "a test fails with a panic")]

use std::time::Duration;

use chart_source::{Access, DocumentFetcher, Patience};
use hybrid_operator_test::HttpServer;
use hybrid_operator_test::http_server::{Received, Reply};

/// Returns how a test reaches a server, with credentials of a chart repository.
fn access() -> Access {
    Access {
        username: Some("me".to_owned()),
        password: Some("hidden".to_owned().into()),
        pass_credentials: true,
        patience: Patience {
            answer: Duration::from_millis(500),
            attempts: 2,
            delay: Duration::ZERO,
            ..Patience::default()
        },
        ..Access::default()
    }
}

fn reply(request: &Received) -> Reply {
    match request.target.as_str() {
        "/a.json?x=1" => Reply::body("{}"),
        "/moved" => Reply::status(301).header("Location", "/a.json?x=1"),
        "/round" => Reply::status(302).header("Location", "/round"),
        "/file" => Reply::status(302).header("Location", "file:///etc/passwd"),
        "/private" => Reply::status(401),
        "/endless" => Reply::Endless,
        "/silent" => Reply::Silence,
        "/short" => Reply::Short {
            promised: 9,
            body: b"{}".to_vec(),
        },
        _ => Reply::status(404),
    }
}

#[test]
fn documents_are_fetched_without_credentials_and_within_limits() {
    let server = HttpServer::start(reply).unwrap();
    let fetcher = DocumentFetcher::new(&access()).unwrap();
    let get = |url: &str| {
        fetcher
            .fetch_blocking(url)
            .map_err(|error| error.to_string())
    };
    for path in ["/a.json?x=1", "/moved"] {
        assert_eq!(get(&server.url(path)), Ok(b"{}".to_vec()));
    }
    for (path, why) in [
        (
            "/none",
            "/none does not exist (status 404); check the URL, and whether",
        ),
        ("/round", "is redirected more than 10 times"),
        ("/file", "it is not a URL of a web server"),
        ("/private", "/private answers with status 401"),
        ("/endless", "the document at"),
        ("/endless", "is larger than the limit of 4 MiB"),
        ("/silent", "did not answer within 0.5 s"),
        ("/short", "is incomplete"),
    ] {
        let error = get(&server.url(path)).unwrap_err();
        assert!(error.contains(why), "{path}: {error}");
    }
    let user = server
        .url("/a.json")
        .replace("http://", "http://me:hidden@");
    let before = server.received();
    for (url, why) in [
        (
            user.as_str(),
            "has a user; documents are fetched without credentials",
        ),
        ("file:///etc/passwd", "has the scheme \"file\""),
    ] {
        let error = get(url).unwrap_err();
        assert!(error.contains(why) && !error.contains("hidden"), "{error}");
    }
    assert_eq!(server.received().len(), before.len());
    let has_credentials = |request: &Received| request.headers.contains_key("authorization");
    assert!(!before.iter().any(has_credentials), "{before:?}");
}
