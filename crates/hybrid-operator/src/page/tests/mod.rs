//! The page without a cluster: the server alone, and in a browser with an API server in memory.

mod browser;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::Response;
use futures::StreamExt;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use super::{About, MAX_VIEWERS, Shared, guard, router};
use crate::helm::view::{RecentEvents, Views};

fn server() -> axum::Router {
    let about = About {
        operator: "shops".to_owned(),
        version: "1.2.3",
        pod: None,
        elected: false,
    };
    let stop = CancellationToken::new();
    router(Shared::new(
        Views::default(),
        RecentEvents::default(),
        about,
        stop,
    ))
}

async fn ask(
    server: &axum::Router,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Response {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::empty()).unwrap();
    server.clone().oneshot(request).await.unwrap()
}

const LOCAL: (&str, &str) = ("host", "localhost:8082");

#[tokio::test]
async fn only_get_requests_of_this_machine_and_site_are_answered() {
    let server = server();
    let cross = ("sec-fetch-site", "cross-site");
    let navigates = ("sec-fetch-mode", "navigate");
    for (method, headers, expected) in [
        ("GET", &[LOCAL][..], StatusCode::OK),
        ("GET", &[("host", "127.0.0.1")], StatusCode::OK),
        (
            "GET",
            &[LOCAL, ("sec-fetch-site", "same-origin")],
            StatusCode::OK,
        ),
        ("GET", &[LOCAL, cross, navigates], StatusCode::OK),
        ("GET", &[LOCAL, cross], StatusCode::FORBIDDEN),
        ("GET", &[], StatusCode::FORBIDDEN),
        (
            "GET",
            &[("host", "shops.example.com:8082")],
            StatusCode::FORBIDDEN,
        ),
        (
            "GET",
            &[LOCAL, ("host", "shops.example.com")],
            StatusCode::FORBIDDEN,
        ),
        (
            "POST",
            &[("host", "shops.example.com")],
            StatusCode::FORBIDDEN,
        ),
        ("POST", &[LOCAL], StatusCode::METHOD_NOT_ALLOWED),
        ("HEAD", &[LOCAL], StatusCode::METHOD_NOT_ALLOWED),
        ("OPTIONS", &[LOCAL], StatusCode::METHOD_NOT_ALLOWED),
        ("DELETE", &[LOCAL], StatusCode::METHOD_NOT_ALLOWED),
    ] {
        for path in ["/", "/page.js", "/api/list", "/missing"] {
            let answer = ask(&server, method, path, headers).await;
            let expected = match path {
                "/missing" if expected == StatusCode::OK => StatusCode::NOT_FOUND,
                _ => expected,
            };
            assert_eq!(answer.status(), expected, "{method} {path} {headers:?}");
            let headers = answer.headers();
            assert_eq!(headers["content-security-policy"], guard::POLICY, "{path}");
            assert_eq!(headers["x-content-type-options"], "nosniff");
            assert!(!headers.contains_key("set-cookie"));
            assert!(!headers.contains_key("access-control-allow-origin"));
        }
    }
}

#[tokio::test]
async fn number_of_viewers_is_limited() {
    let server = server();
    let mut viewers = Vec::new();
    for _ in 0..MAX_VIEWERS {
        let answer = ask(&server, "GET", "/api/list", &[LOCAL]).await;
        assert_eq!(answer.status(), StatusCode::OK);
        viewers.push(answer.into_body().into_data_stream());
    }
    let first = viewers[0].next().await.unwrap().unwrap();
    let expected = "event: about\ndata: {\"operator\":\"shops\",\"version\":\"1.2.3\",\"pod\":null,\"elected\":false}\n\n";
    assert_eq!(first, expected);
    let refused = ask(&server, "GET", "/api/list", &[LOCAL]).await;
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    viewers.pop();
    let answer = ask(&server, "GET", "/api/list", &[LOCAL]).await;
    assert_eq!(answer.status(), StatusCode::OK);
}

#[tokio::test]
async fn custom_resource_that_is_not_known_is_shown_as_gone() {
    let server = server();
    let path = "/api/resource?group=example.com&kind=Shop&namespace=a&name=b";
    let mut shown = ask(&server, "GET", path, &[LOCAL])
        .await
        .into_body()
        .into_data_stream();
    shown.next().await.unwrap().unwrap();
    let gone = shown.next().await.unwrap().unwrap();
    assert_eq!(gone, "event: resource\ndata: null\n\n");
    for (path, expected) in [
        (
            "/api/manifest?kind=Shop&name=b&revision=1",
            StatusCode::NOT_FOUND,
        ),
        ("/api/manifest?kind=Shop&name=b", StatusCode::BAD_REQUEST),
        (
            "/api/difference?kind=Shop&name=b&from=1&to=x",
            StatusCode::BAD_REQUEST,
        ),
    ] {
        assert_eq!(
            ask(&server, "GET", path, &[LOCAL]).await.status(),
            expected,
            "{path}"
        );
    }
}
