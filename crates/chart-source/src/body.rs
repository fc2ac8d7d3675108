//! Reads the body of an answer within a limit.

use std::time::Duration;

use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::error::{Cause, PullError};

/// Memory that is taken because of what the server says about the length.
const TRUSTED: usize = 1 << 20;

/// The body to read: names for messages, and limits.
pub(crate) struct Expected<'a> {
    pub(crate) url: &'a str,
    pub(crate) what: &'static str,
    /// Largest number of bytes.
    pub(crate) limit: usize,
    /// Longest time between two parts.
    pub(crate) pause: Duration,
}

/// Reads a body, unless it is longer than the limit.
pub(crate) async fn read(
    headers: &HeaderMap,
    mut body: Incoming,
    expected: &Expected<'_>,
) -> Result<Vec<u8>, PullError> {
    let &Expected {
        url,
        what,
        limit,
        pause,
    } = expected;
    let too_large = || PullError::TooLarge {
        url: url.to_owned(),
        what,
        limit,
    };
    let length = headers.get(CONTENT_LENGTH);
    let length = length.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > limit as u64) {
        return Err(too_large());
    }
    let length = usize::try_from(length.unwrap_or_default()).unwrap_or(TRUSTED);
    let mut data = Vec::with_capacity(length.min(TRUSTED));
    loop {
        let frame = tokio::time::timeout(pause, body.frame()).await;
        let frame = frame.map_err(|_| PullError::Timeout {
            url: url.to_owned(),
            after: pause,
        })?;
        let Some(frame) = frame else {
            return Ok(data);
        };
        let frame = frame.map_err(|error| PullError::Incomplete {
            url: url.to_owned(),
            source: Cause::from(error),
        })?;
        if let Ok(part) = frame.into_data() {
            if part.len() > limit - data.len() {
                return Err(too_large());
            }
            data.extend_from_slice(&part);
        }
    }
}
