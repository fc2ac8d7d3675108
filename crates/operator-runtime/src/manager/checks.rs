//! Health checks: what `/healthz` and `/readyz` answer.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use futures::future::BoxFuture;
use futures::future::join_all;

use super::ControllerError;

/// Time limit of one check.
const CHECK_WITHIN: Duration = Duration::from_secs(5);

type CheckFunction = dyn Fn() -> BoxFuture<'static, Result<(), ControllerError>> + Send + Sync;

/// One check of a probe.
#[derive(Clone)]
struct Check {
    name: String,
    function: Arc<CheckFunction>,
}

/// The checks of one probe; it succeeds if all of them do.
#[derive(Clone, Default)]
pub(super) struct Checks(Vec<Check>);

/// The answer of a probe.
type Answer = (StatusCode, String);

impl Checks {
    pub(super) fn add<F, Fut>(&mut self, name: &str, check: F)
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), ControllerError>> + Send + 'static,
    {
        self.0.push(Check {
            name: name.to_owned(),
            function: Arc::new(move || Box::pin(check())),
        });
    }

    /// Answers `/healthz` or `/readyz`: `ok`, or a line for each check if one fails or the query is
    /// `verbose`, as controller-runtime does.
    pub(super) async fn all(State(checks): State<Self>, query: RawQuery) -> Answer {
        let results = join_all(checks.0.iter().map(Check::run)).await;
        let failed = results.iter().any(Result::is_err);
        let verbose = query.0.is_some_and(|query| query.starts_with("verbose"));
        if !failed && !verbose {
            return (StatusCode::OK, "ok".to_owned());
        }
        let mut text = String::new();
        for (check, result) in checks.0.iter().zip(&results) {
            // Writing to a String does not fail.
            let _ = match result {
                Ok(()) => writeln!(text, "[+]{} ok", check.name),
                Err(error) => writeln!(text, "[-]{} failed: {error}", check.name),
            };
        }
        text.push_str(if failed {
            "check failed\n"
        } else {
            "check passed\n"
        });
        (status(failed), text)
    }

    /// Answers `/healthz/NAME` or `/readyz/NAME`.
    pub(super) async fn one(State(checks): State<Self>, Path(name): Path<String>) -> Answer {
        let Some(check) = checks.0.iter().find(|check| check.name == name) else {
            return (StatusCode::NOT_FOUND, format!("there is no check {name}\n"));
        };
        match check.run().await {
            Ok(()) => (StatusCode::OK, "ok".to_owned()),
            Err(error) => (status(true), format!("{error}\n")),
        }
    }
}

impl Check {
    async fn run(&self) -> Result<(), ControllerError> {
        let check = (self.function)();
        match tokio::time::timeout(CHECK_WITHIN, check).await {
            Ok(result) => result,
            Err(_) => Err(format!("took longer than {CHECK_WITHIN:?}").into()),
        }
    }
}

fn status(failed: bool) -> StatusCode {
    if failed {
        StatusCode::INTERNAL_SERVER_ERROR
    } else {
        StatusCode::OK
    }
}
