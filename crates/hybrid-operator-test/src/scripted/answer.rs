//! The responses of the scripted API server.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::Response;
use http::header::CONTENT_TYPE;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Value, json};
use tower::BoxError;

use super::ordered::failure;
use crate::fault::AnswerBody;
use crate::request::Recorded;

/// A response of the scripted API server.
#[derive(Clone)]
pub struct Answer(Kind);

#[derive(Clone)]
enum Kind {
    Json(u16, Value),
    Text(u16, String),
    Echo(u16),
    Watch(Vec<Value>),
    With(Arc<dyn Fn(&Recorded) -> Answer + Send + Sync>),
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Json(status, body) => write!(f, "Answer({status}, {body})"),
            Kind::Text(status, text) => write!(f, "Answer({status}, {text:?})"),
            Kind::Echo(status) => write!(f, "Answer({status}, the request's body)"),
            Kind::Watch(events) => write!(f, "Answer({} events)", events.len()),
            Kind::With(_) => write!(f, "Answer(computed)"),
        }
    }
}

impl Answer {
    /// Responds with this HTTP status and JSON.
    pub fn json(status: u16, body: Value) -> Self {
        Self(Kind::Json(status, body))
    }

    /// Responds with this HTTP status and plain text, such as the log of a Pod.
    pub fn text(status: u16, text: impl Into<String>) -> Self {
        Self(Kind::Text(status, text.into()))
    }

    /// Responds with the object of the request as a server stores it: with the path's name and
    /// namespace, a uid, a resourceVersion and generation 1, unless it has them.
    pub fn echo(status: u16) -> Self {
        Self(Kind::Echo(status))
    }

    /// Responds with a list of these objects.
    pub fn list(api_version: &str, kind: &str, items: impl IntoIterator<Item = Value>) -> Self {
        let items: Vec<Value> = items.into_iter().collect();
        let body = json!({
            "apiVersion": api_version, "kind": format!("{kind}List"),
            "metadata": {"resourceVersion": "1"}, "items": items,
        });
        Self::json(200, body)
    }

    /// Responds to a watch with these events (ADDED, MODIFIED, DELETED, BOOKMARK, ERROR) and then
    /// stays open.
    pub fn watch(events: impl IntoIterator<Item = (&'static str, Value)>) -> Self {
        let event = |(kind, object)| json!({"type": kind, "object": object});
        Self(Kind::Watch(events.into_iter().map(event).collect()))
    }

    /// Responds with a Status object of a failure.
    pub fn status(code: u16, reason: &str, message: &str) -> Self {
        Self::json(code, failure(code, reason, message, &json!({})))
    }

    /// Responds with 404.
    pub fn not_found() -> Self {
        Self::status(404, "NotFound", "not found")
    }

    /// Responds with 409 Conflict, as for an outdated resourceVersion or a field of another
    /// manager.
    pub fn conflict() -> Self {
        Self::status(409, "Conflict", "the object has been modified")
    }

    /// Responds with 409 `AlreadyExists`, as for the creation of an existing object.
    pub fn already_exists() -> Self {
        Self::status(409, "AlreadyExists", "already exists")
    }

    /// Responds with 403.
    pub fn forbidden() -> Self {
        Self::status(403, "Forbidden", "forbidden")
    }

    /// Responds with the function's result for the request.
    pub fn with(answer: impl Fn(&Recorded) -> Self + Send + Sync + 'static) -> Self {
        Self(Kind::With(Arc::new(answer)))
    }

    /// Builds the HTTP response. `serial` differs between requests.
    pub(super) fn respond(
        &self,
        request: &Recorded,
        serial: u64,
    ) -> Result<Response<AnswerBody>, BoxError> {
        let mut media_type = "application/json";
        let (status, body) = match &self.0 {
            Kind::Json(status, body) => (*status, whole(serde_json::to_vec(body)?)),
            Kind::Text(status, text) => {
                media_type = "text/plain";
                (*status, whole(text.clone().into_bytes()))
            }
            Kind::Echo(status) => {
                let object = stored(request, serial);
                (*status, whole(serde_json::to_vec(&object)?))
            }
            Kind::Watch(events) => (200, endless(events)?),
            Kind::With(answer) => return answer(request).respond(request, serial),
        };
        let response = Response::builder().status(status);
        Ok(response.header(CONTENT_TYPE, media_type).body(body)?)
    }
}

fn whole(body: Vec<u8>) -> AnswerBody {
    Full::from(body).map_err(Into::into).boxed_unsync()
}

fn endless(events: &[Value]) -> Result<AnswerBody, BoxError> {
    let mut lines = Vec::with_capacity(events.len());
    for event in events {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        lines.push(Ok::<_, BoxError>(Frame::data(Bytes::from(line))));
    }
    Ok(StreamBody::new(stream::iter(lines).chain(stream::pending())).boxed_unsync())
}

/// Returns the request's object with the metadata that a server adds.
fn stored(request: &Recorded, serial: u64) -> Value {
    let mut object = request.body.clone().unwrap_or_else(|| json!({}));
    let Value::Object(fields) = &mut object else {
        return object;
    };
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    let Value::Object(metadata) = metadata else {
        return object;
    };
    let uid = format!("00000000-0000-0000-0000-{serial:012}");
    for (key, value) in [
        ("name", request.name.clone().map(Value::String)),
        ("namespace", request.namespace.clone().map(Value::String)),
        ("uid", Some(Value::String(uid))),
        ("generation", Some(Value::from(1))),
    ] {
        if let Some(value) = value {
            metadata.entry(key).or_insert(value);
        }
    }
    metadata.insert("resourceVersion".to_owned(), serial.to_string().into());
    object
}
