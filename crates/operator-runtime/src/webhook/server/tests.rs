use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode};
use futures::{StreamExt, stream};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tower::ServiceExt;

use super::{Endpoint, LARGEST_BODY, Listener, MIB, Served, WebhookMetrics, router};
use crate::webhook::certificate::{HostName, Pair, Period, certified, generate};

fn metrics() -> WebhookMetrics {
    WebhookMetrics::register(&mut Registry::default())
}

/// Answers with the length of the body.
fn length() -> Endpoint {
    Endpoint {
        path: "/length".to_owned(),
        answer: Arc::new(|body| Box::pin(async move { Ok(body.len().to_string().into_bytes()) })),
    }
}

fn pair() -> Pair {
    let now = Timestamp::now();
    let period = Period {
        from: now - Duration::from_mins(1),
        until: now + Duration::from_hours(1),
    };
    generate(&[HostName::new("127.0.0.1")], period).unwrap()
}

type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Returns a client that trusts one authority.
fn client(authority: &str) -> HttpsClient {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_only()
        .enable_http1()
        .build();
    Client::builder(TokioExecutor::new()).build(connector)
}

async fn post(client: &HttpsClient, url: &str, body: &str) -> Result<String, String> {
    let request = Request::post(url)
        .body(Full::from(body.to_owned()))
        .unwrap();
    let response = client.request(request).await;
    let response = response.map_err(|error| format!("{error:?}"))?;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn certificate_changes_without_a_restart() {
    let served = Arc::new(Served::default());
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/length", listener.address);
    let running = listener
        .serve(vec![length()], Arc::clone(&served), &metrics(), false)
        .unwrap();
    let (old, new) = (pair(), pair());
    let (trusts_old, trusts_new) = (client(&old.authority), client(&new.authority));
    // There is no certificate yet.
    assert!(post(&trusts_old, &url, "abc").await.is_err());
    served.set(certified(&old.certificate, &old.key).unwrap());
    assert_eq!(post(&trusts_old, &url, "abc").await.unwrap(), "3");
    let error = post(&trusts_new, &url, "abc").await.unwrap_err();
    assert!(error.contains("UnknownIssuer"), "{error}");
    served.set(certified(&new.certificate, &new.key).unwrap());
    assert_eq!(post(&trusts_new, &url, "abcd").await.unwrap(), "4");
    // Connections stay open.
    assert_eq!(post(&trusts_old, &url, "ab").await.unwrap(), "2");
    assert!(post(&client(&old.authority), &url, "ab").await.is_err());
    running.stop().await;
    assert!(post(&client(&new.authority), &url, "ab").await.is_err());
}

#[tokio::test]
async fn certificate_for_another_key_is_refused() {
    let (one, two) = (pair(), pair());
    let (certificate, key) = (&*one.certificate, &*two.key);
    for (certificate, key, message) in [
        (
            certificate,
            key,
            "tls.crt and tls.key cannot be used together",
        ),
        ("", key, "tls.crt contains no certificate in PEM"),
        (certificate, "text", "tls.key is not a private key in PEM"),
    ] {
        let error = certified(certificate, key).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
}

async fn ask(endpoint: Endpoint, request: Request<Body>) -> (StatusCode, String) {
    let response = router(vec![endpoint], &metrics()).oneshot(request).await;
    let response = response.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

fn request(body: Body) -> Request<Body> {
    Request::post("/length").body(body).unwrap()
}

#[tokio::test]
async fn body_is_limited_before_it_is_read() {
    let (status, body) = ask(length(), request(Body::from(vec![0; LARGEST_BODY]))).await;
    assert_eq!((status, body), (StatusCode::OK, LARGEST_BODY.to_string()));
    // A body that never comes is refused because of its length.
    let endless = stream::pending::<Result<Bytes, std::io::Error>>();
    let mut announced = request(Body::from_stream(endless));
    let length_header = (LARGEST_BODY + 1).to_string().parse().unwrap();
    announced
        .headers_mut()
        .insert("content-length", length_header);
    let (status, _) = ask(length(), announced).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    // One without a length is read until it is too long.
    let pieces = stream::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from(vec![0; MIB])));
    let (status, text) = ask(length(), request(Body::from_stream(pieces.take(1000)))).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert!(text.contains("larger than 8388608 bytes"), "{text}");
    let broken = stream::iter([Err::<Bytes, _>(std::io::Error::other("cut off"))]);
    let (status, _) = ask(length(), request(Body::from_stream(broken))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn requests_that_are_no_reviews_are_refused() {
    let reads_json = Endpoint {
        path: "/length".to_owned(),
        answer: Arc::new(|body| {
            Box::pin(async move {
                serde_json::from_slice::<serde_json::Value>(&body)?;
                Ok(Vec::new())
            })
        }),
    };
    let (status, _) = ask(reads_json, request(Body::from("{"))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let get = Request::get("/length").body(Body::empty()).unwrap();
    assert_eq!(ask(length(), get).await.0, StatusCode::METHOD_NOT_ALLOWED);
    let other = Request::post("/other").body(Body::empty()).unwrap();
    assert_eq!(ask(length(), other).await.0, StatusCode::NOT_FOUND);
    let panics = Endpoint {
        path: "/length".to_owned(),
        answer: Arc::new(|_| Box::pin(async { panic!("on purpose") })),
    };
    let (status, text) = ask(panics, request(Body::empty())).await;
    assert_eq!(
        (status, text.as_str()),
        (
            StatusCode::INTERNAL_SERVER_ERROR,
            "the webhook failed: on purpose"
        )
    );
}

/// An endpoint whose function blocks its thread until the sender is dropped.
fn blocking() -> (
    Endpoint,
    tokio::sync::mpsc::UnboundedReceiver<()>,
    mpsc::Sender<()>,
) {
    let (began, has_begun) = tokio::sync::mpsc::unbounded_channel();
    let (go_on, waits) = mpsc::channel::<()>();
    let waits = Arc::new(parking_lot::Mutex::new(waits));
    let endpoint = Endpoint {
        path: "/block".to_owned(),
        answer: Arc::new(move |_| {
            let (began, waits) = (began.clone(), Arc::clone(&waits));
            Box::pin(async move {
                began.send(()).unwrap();
                let _ = waits.lock().recv();
                Ok(Vec::new())
            })
        }),
    };
    (endpoint, has_begun, go_on)
}

#[tokio::test]
async fn function_that_blocks_its_thread_holds_up_no_other() {
    let (endpoint, mut has_begun, go_on) = blocking();
    let router = router(vec![endpoint, length()], &metrics());
    let to_block = Request::post("/block").body(Body::empty()).unwrap();
    let blocked = tokio::spawn(router.clone().oneshot(to_block));
    has_begun.recv().await.unwrap();
    let other = router.oneshot(request(Body::from("abc"))).await.unwrap();
    assert_eq!(other.status(), StatusCode::OK);
    assert!(!blocked.is_finished());
    drop(go_on);
    assert_eq!(blocked.await.unwrap().unwrap().status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn request_is_given_up_before_the_api_server_does() {
    let (endpoint, mut has_begun, go_on) = blocking();
    let router = router(vec![endpoint], &metrics());
    let to_block = Request::post("/block").body(Body::empty()).unwrap();
    let blocked = tokio::spawn(router.oneshot(to_block));
    has_begun.recv().await.unwrap();
    tokio::time::advance(Duration::from_millis(9001)).await;
    let response = blocked.await.unwrap().unwrap();
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
    drop(go_on);
}

#[tokio::test]
async fn address_that_cannot_be_bound_is_named_with_the_flag() {
    let Err(refused) = Listener::bind("nowhere") else {
        panic!("bound");
    };
    let text = refused.to_string();
    for part in ["nowhere", "--webhook-bind-address"] {
        assert!(text.contains(part), "{text}");
    }
}
