//! A server of files, and what several tests ask of it.
#![allow(dead_code, reason = "each test uses a part")]
#![allow(clippy::unwrap_used, reason = "a test fails with a panic")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chart_source::{Access, Patience};
use hybrid_operator_test::HttpServer;
use hybrid_operator_test::http_server::Reply;

/// Serves files that can be changed, by their paths in the URL.
pub(crate) struct FileServer {
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    pub(crate) http: HttpServer,
}

impl FileServer {
    pub(crate) fn start() -> Self {
        let files = Arc::new(Mutex::new(BTreeMap::new()));
        let shared = Arc::clone(&files);
        let http =
            HttpServer::start(
                move |request| match shared.lock().unwrap().get(&request.target) {
                    Some(body) => Reply::body(Vec::clone(body)),
                    None => Reply::status(404),
                },
            );
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
pub(crate) fn text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
