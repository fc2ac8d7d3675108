//! HTTP requests: redirects, repeated attempts, deadlines and limits.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION,
    PROXY_AUTHORIZATION, RETRY_AFTER, USER_AGENT,
};
use http::{HeaderMap, Method, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use percent_encoding::percent_decode_str;
use tokio::time::timeout;
use url::{Origin, Url};

use crate::access::{self, Access, Patience};
use crate::body::{self, Expected};
use crate::error::{Cause, PullError};
use crate::limits;
use crate::proxy::{Connector, Proxies};
use crate::reference::shown;
use crate::tls;

const AGENT: &str = concat!("hybrid-operator/", env!("CARGO_PKG_VERSION"));

/// Sends requests.
pub(crate) struct Transport {
    client: Client<HttpsConnector<Connector>, Full<Bytes>>,
    proxies: Proxies,
    patience: Patience,
}

#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) url: Url,
    /// Requested resource, for messages.
    pub(crate) what: &'static str,
    /// Largest number of bytes of the answer.
    pub(crate) limit: usize,
    /// Media types.
    pub(crate) accept: Option<&'static str>,
    /// Credentials for the host of the URL.
    pub(crate) authorization: Option<HeaderValue>,
    /// The fields of a form, which is posted.
    pub(crate) form: Option<String>,
}

impl Request {
    pub(crate) fn get(url: Url, what: &'static str, limit: usize) -> Self {
        Self {
            url,
            what,
            limit,
            accept: None,
            authorization: None,
            form: None,
        }
    }

    /// Returns the URL for messages.
    pub(crate) fn shown(&self) -> String {
        shown(&self.url)
    }
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Empty unless the request succeeded.
    pub(crate) body: Vec<u8>,
    /// Number of attempts until this answer.
    pub(crate) attempts: u32,
}

impl Answer {
    /// Returns the body, or what the status means.
    pub(crate) fn success(self, request: &Request) -> Result<Vec<u8>, PullError> {
        let url = request.shown();
        match self.status.as_u16() {
            200..300 => Ok(self.body),
            status @ (401 | 403) => Err(match &request.authorization {
                Some(_) => PullError::Denied {
                    url,
                    source_of_credentials: "that were given".to_owned(),
                    status,
                },
                None => PullError::NeedsCredentials {
                    host: request.url.host_str().unwrap_or_default().to_owned(),
                    url,
                    status,
                },
            }),
            404 => Err(PullError::NotFound {
                url,
                what: request.what,
                private: request.authorization.is_none(),
            }),
            status => Err(PullError::Status {
                url,
                status,
                attempts: self.attempts,
            }),
        }
    }
}

impl Transport {
    pub(crate) fn new(access: &Access) -> Result<Self, PullError> {
        let proxies = Proxies::from_env();
        let plain = Connector::new(proxies.clone(), access.patience.connect);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::config(access)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(plain);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            // A connection belongs to the runtime of a call, which ends with it.
            .pool_max_idle_per_host(0)
            .build(connector);
        Ok(Self {
            client,
            proxies,
            patience: access.patience.clone(),
        })
    }

    /// Sends a request, again if the server is not available, and reads the answer.
    pub(crate) async fn send(&self, request: &Request) -> Result<Answer, PullError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let whole = self.patience.whole;
            let ended = timeout(whole, self.follow(request)).await;
            let ended = ended.unwrap_or_else(|_| {
                Err(PullError::Timeout {
                    url: request.shown(),
                    after: whole,
                })
            });
            let again = match &ended {
                Ok(answer) => is_temporary(answer.status),
                Err(error) => matches!(
                    error,
                    PullError::Unreachable { .. }
                        | PullError::Timeout { .. }
                        | PullError::Incomplete { .. }
                ),
            };
            if !again || attempts >= self.patience.attempts {
                return ended.map(|answer| Answer { attempts, ..answer });
            }
            let asked = ended.ok().and_then(|answer| retry_after(&answer.headers));
            tokio::time::sleep(delay(&self.patience, attempts, asked)).await;
        }
    }

    /// Sends a request and follows redirects.
    async fn follow(&self, request: &Request) -> Result<Answer, PullError> {
        let mut url = request.url.clone();
        let mut authorization = request.authorization.clone();
        for _ in 0..=limits::REDIRECTS {
            let response = self.exchange(request, &url, authorization.as_ref()).await?;
            let (parts, body) = response.into_parts();
            let target = match parts.status.as_u16() {
                301 | 302 | 303 | 307 | 308 => parts.headers.get(LOCATION),
                _ => None,
            };
            let Some(target) = target else {
                let shown = shown(&url);
                let expected = Expected {
                    url: &shown,
                    what: request.what,
                    limit: request.limit,
                    pause: self.patience.answer,
                };
                let body = if parts.status.is_success() {
                    body::read(&parts.headers, body, &expected).await?
                } else {
                    Vec::new()
                };
                return Ok(Answer {
                    status: parts.status,
                    headers: parts.headers,
                    body,
                    attempts: 1,
                });
            };
            let next = redirect(request, &url, target)?;
            if next.origin() != url.origin() {
                authorization = None;
            }
            url = next;
        }
        Err(PullError::Redirects {
            url: request.shown(),
            limit: limits::REDIRECTS,
        })
    }

    /// Sends one request and waits for the headers of its answer.
    async fn exchange(
        &self,
        request: &Request,
        url: &Url,
        authorization: Option<&HeaderValue>,
    ) -> Result<Response<Incoming>, PullError> {
        // The user of a URL is sent as a header, as far as the URL has one.
        let own = (!url.username().is_empty()).then(|| user_of(url)).flatten();
        let mut bare = url.clone();
        let _ = bare.set_username("");
        let _ = bare.set_password(None);
        bare.set_fragment(None);
        let unreachable = |source: Cause| PullError::Unreachable {
            url: shown(url),
            source,
        };
        let uri: Uri = bare
            .as_str()
            .parse()
            .map_err(|error| unreachable(Box::new(error)))?;
        self.proxies.check(&uri)?;
        let mut sent = http::Request::builder()
            .method(if request.form.is_some() {
                Method::POST
            } else {
                Method::GET
            })
            .header(USER_AGENT, AGENT)
            // Archives are compressed already, and digests are those of what is sent.
            .header(ACCEPT_ENCODING, "identity");
        if let Some(accept) = request.accept {
            sent = sent.header(ACCEPT, accept);
        }
        if let Some(value) = authorization.cloned().or(own) {
            sent = sent.header(AUTHORIZATION, value);
        }
        if let Some(value) = self.proxies.authorization(&uri) {
            sent = sent.header(PROXY_AUTHORIZATION, value);
        }
        let body = match &request.form {
            Some(form) => {
                sent = sent.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
                Bytes::from(form.clone())
            }
            None => Bytes::new(),
        };
        let sent = sent.uri(uri).body(Full::new(body));
        let sent = sent.map_err(|error| unreachable(Box::new(error)))?;
        match timeout(self.patience.answer, self.client.request(sent)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(failure(url, error)),
            Err(_) => Err(PullError::Timeout {
                url: shown(url),
                after: self.patience.answer,
            }),
        }
    }
}

fn user_of(url: &Url) -> Option<HeaderValue> {
    let decoded = |text| percent_decode_str(text).decode_utf8_lossy();
    let password = url.password().unwrap_or_default();
    access::basic(&decoded(url.username()), &decoded(password))
}

/// Says why no answer came.
fn failure(url: &Url, error: ClientError) -> PullError {
    let url = shown(url);
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(rustls::Error::InvalidCertificate(_)) = tls_error(error) {
            let source = Cause::from(error.to_string());
            return PullError::Untrusted { url, source };
        }
        cause = error.source();
    }
    PullError::Unreachable {
        url,
        source: error.into(),
    }
}

/// Returns the error of TLS that an error of the connection is, or contains. An I/O error names the
/// cause of what it contains as its own, so what it contains is asked first.
fn tls_error<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a rustls::Error> {
    let contained = error.downcast_ref::<std::io::Error>();
    match contained.and_then(std::io::Error::get_ref) {
        Some(contained) => tls_error(contained),
        None => error.downcast_ref(),
    }
}

/// Returns the URL that a redirect leads to.
fn redirect(request: &Request, url: &Url, target: &HeaderValue) -> Result<Url, PullError> {
    let refused = |target: String, why| PullError::Redirect {
        url: shown(url),
        target,
        why,
    };
    let joined = target
        .to_str()
        .ok()
        .and_then(|target| url.join(target).ok());
    let Some(next) = joined else {
        return Err(refused("what is not a URL".to_owned(), "it leads nowhere"));
    };
    let why = match (url.scheme(), next.scheme()) {
        _ if request.form.is_some() => "credentials would be sent to it",
        ("https", "http") => "it would leave TLS",
        (_, "http" | "https") if matches!(next.origin(), Origin::Tuple(..)) => return Ok(next),
        _ => "it is not a URL of a web server",
    };
    Err(refused(shown(&next), why))
}

fn is_temporary(status: StatusCode) -> bool {
    matches!(status.as_u16(), 429 | 500 | 502 | 503 | 504)
}

/// Returns the delay in seconds that a server asks for.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?;
    text.parse().ok().map(Duration::from_secs)
}

/// Returns the time before another attempt: what the server asks for, within limits, else one that
/// doubles.
fn delay(patience: &Patience, attempts: u32, asked: Option<Duration>) -> Duration {
    let doubled = patience
        .delay
        .saturating_mul(1 << (attempts.clamp(1, 16) - 1));
    asked.unwrap_or(doubled).min(patience.longest_delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_unless_the_server_asks_for_another_one_within_the_limit() {
        let patience = Patience::default();
        let asked = |seconds| Some(Duration::from_secs(seconds));
        for (attempts, asked, expected) in [
            (1, None, 500),
            (2, None, 1000),
            (3, None, 2000),
            (40, None, 30_000),
            (1, asked(7), 7000),
            (1, asked(3600), 30_000),
            (3, asked(0), 0),
        ] {
            let found = delay(&patience, attempts, asked);
            assert_eq!(found.as_millis(), expected, "{attempts} {asked:?}");
        }
    }

    #[test]
    fn redirects_are_followed_within_the_web_and_not_out_of_tls() {
        let get = Request::get("https://a.example.com/x/y".parse().unwrap(), "chart", 1);
        let post = Request {
            form: Some(String::new()),
            ..get.clone()
        };
        for (request, target, expected) in [
            (&get, "../z?sig=1", Ok("https://a.example.com/z?sig=1")),
            (&get, "https://b.example.com/", Ok("https://b.example.com/")),
            (&get, "//b.example.com/", Ok("https://b.example.com/")),
            (&get, "http://a.example.com/", Err("leave TLS")),
            (&get, "file:///etc/passwd", Err("not a URL of a web server")),
            (&get, "http://[", Err("leads nowhere")),
            (
                &post,
                "https://b.example.com/",
                Err("credentials would be sent"),
            ),
        ] {
            let target = HeaderValue::from_static(target);
            match (redirect(request, &get.url, &target), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found.as_str(), expected),
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().contains(expected), "{error}");
                }
                (found, expected) => panic!("{found:?} instead of {expected:?}"),
            }
        }
    }

    #[test]
    fn user_of_a_url_is_decoded() {
        let url: Url = "https://me%40x:a+b%2F%3D=c@example.com".parse().unwrap();
        assert_eq!(user_of(&url), access::basic("me@x", "a+b/==c"));
    }
}
