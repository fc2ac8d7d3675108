//! A server of files, and what several tests ask of it.
#![allow(dead_code, unused_imports, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails with a panic")]

mod rows;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chart_source::{Access, Patience};
use hybrid_operator_test::HttpServer;
use hybrid_operator_test::http_server::Reply;
pub(crate) use rows::rows;

/// Serves files that can be changed, by their paths in the URL.
pub(crate) struct FileServer {
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    pub(crate) http: HttpServer,
}

impl FileServer {
    pub(crate) fn start() -> Self {
        let files = Arc::new(Mutex::new(BTreeMap::new()));
        let shared = Arc::clone(&files);
        let http = HttpServer::start(move |request| {
            let files = shared.lock().unwrap();
            let body: Option<&Vec<u8>> = files.get(&request.target);
            body.map_or_else(|| Reply::status(404), |body| Reply::body(body.clone()))
        });
        Self {
            files,
            http: http.unwrap(),
        }
    }

    pub(crate) fn put(&self, path: impl Into<String>, body: impl Into<Vec<u8>>) {
        self.files.lock().unwrap().insert(path.into(), body.into());
    }

    /// Removes all files.
    pub(crate) fn clear(&self) {
        self.files.lock().unwrap().clear();
    }

    /// Returns the number of requests so far.
    pub(crate) fn requests(&self) -> usize {
        self.http.received().len()
    }
}

/// Asks a server once.
pub(crate) fn access() -> Access {
    Access {
        plain_http: true,
        patience: Patience {
            attempts: 1,
            answer: Duration::from_secs(5),
            ..Patience::default()
        },
        ..Access::default()
    }
}

/// Returns an error and its causes.
pub(crate) fn text(error: &dyn Error) -> String {
    let errors = std::iter::successors(Some(error), |&error| error.source());
    let messages: Vec<String> = errors.map(ToString::to_string).collect();
    messages.join(": ")
}

/// Checks a part of an error and its causes, and returns their text.
#[track_caller]
pub(crate) fn fails_with<T: Debug, E: Error>(result: Result<T, E>, expected: &str) -> String {
    let message = text(&result.unwrap_err());
    assert!(
        message.contains(expected),
        "{expected:?} is not in {message}"
    );
    message
}
