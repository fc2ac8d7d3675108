//! Who may talk to the page: programs of this machine, which send GET for a host of the loopback interface. A page of
//! the web that a browser has open cannot: neither under its own name that it makes resolve to this machine, nor with
//! requests of its scripts.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::{ALLOW, HOST, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// What the page may load and do: files of this server, nothing inline, and no HTML made of text.
pub(super) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// Headers of all answers.
const HEADERS: [(&str, &str); 7] = [
    ("content-security-policy", POLICY),
    ("cache-control", "no-store"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
];

/// Refuses requests for other hosts, from other sites, and with other methods.
pub(super) async fn check(request: Request, next: Next) -> Response {
    if !is_local(request.headers()) {
        let why = "the status page answers for localhost, 127.0.0.1 and [::1] only; reach it with \
            `kubectl port-forward` and open http://localhost:PORT\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    if is_of_another_site(request.headers()) {
        let why = "the status page does not answer requests of other sites\n";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    if request.method() != Method::GET {
        let why = "the status page is read-only\n";
        return (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET")], why).into_response();
    }
    next.run(request).await
}

/// Adds the headers that protect the page.
pub(super) async fn protect(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        let headers = response.headers_mut();
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    response
}

/// Returns whether the request is for a host of the loopback interface.
fn is_local(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().is_ok_and(is_loopback),
        _ => false,
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let address = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let address: Option<IpAddr> = address.unwrap_or(name).parse().ok();
    address.is_some_and(|address| address.is_loopback())
}

/// Returns whether a browser says that another site has sent the request. It may link here, though.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let is = |name: &str, value: &str| headers.get(name).is_some_and(|header| header == value);
    let elsewhere = is("sec-fetch-site", "cross-site") || is("sec-fetch-site", "same-site");
    elsewhere && !is("sec-fetch-mode", "navigate")
}

#[cfg(test)]
mod tests {
    use super::is_loopback;

    #[test]
    fn only_names_and_addresses_of_the_loopback_interface_are_local() {
        for host in [
            "localhost",
            "LocalHost:8082",
            "127.0.0.1:8082",
            "127.9.9.9",
            "[::1]:80",
            "[::1]",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        let others = " example.com localhost.example.com:8082 10.0.0.1:8082 127.0.0.1.example.com [::2]:80 \
            0.0.0.0 localhost:x 127.0.0.1:99999 [::ffff:127.0.0.1]:80";
        for host in others.split(' ') {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
