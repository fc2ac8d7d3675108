use std::sync::{Arc, mpsc};
use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use clap::Parser;
use hybrid_operator_test::scripted::{Answer, ScriptedApi, When};
use hybrid_operator_test::wait;
use serde_json::json;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::checks::Checks;
use super::{Controller, ControllerContext, ControllerError, Manager, ManagerError, runnable};
use crate::options::{Options, ProcessArgs};

const LIMIT: Duration = Duration::from_secs(30);

fn options() -> Options {
    let args = [
        "run",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
        "--kubeconfig=/dev/null/none",
    ];
    ProcessArgs::parse_from(args).options(|_| None)
}

fn boxed(controller: impl Controller + 'static) -> Vec<Box<dyn Controller>> {
    vec![Box::new(controller)]
}

#[tokio::test]
async fn the_api_server_is_asked_while_charts_are_loaded_and_readiness_waits_for_both() {
    let api = ScriptedApi::new();
    let version = json!({"gitVersion": "v1.36.0", "major": "1", "minor": "36"});
    api.on(When::get("/version"), Answer::json(200, version));
    let (go_on, wait_for_it) = mpsc::channel::<()>();
    let started = Arc::new(Notify::new());
    let notify = Arc::clone(&started);
    let manager = Manager::new(options())
        .client(api.client("default"))
        .load(move || {
            wait_for_it.recv()?;
            let controller = runnable("loaded", |context| async move {
                let of_another = |_: &ControllerContext| "opened".to_owned();
                let opened = context.shared(|context| vec![context.shared(of_another)]);
                assert_eq!(context.shared(|_| Vec::<String>::new()), opened);
                notify.notify_one();
                context.stop.cancelled().await;
                Ok(())
            });
            Ok::<_, mpsc::RecvError>(boxed(controller))
        });
    let readiness = manager.probes.readiness.clone();
    let ready = || Checks::all(State(readiness.clone()), RawQuery(None));
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run_until(stop.clone()));

    let asked = async || !api.requests().is_empty();
    let waited = wait::until(LIMIT, "a request to the API server", asked).await;
    waited.unwrap();
    assert_eq!(ready().await.0, StatusCode::INTERNAL_SERVER_ERROR);
    let paths: Vec<_> = api.requests().iter().map(|one| one.path.clone()).collect();
    assert_eq!(paths, ["/version"], "readiness needs one request");

    go_on.send(()).unwrap();
    let waited = tokio::time::timeout(LIMIT, started.notified()).await;
    waited.unwrap();
    assert_eq!(ready().await.0, StatusCode::OK);
    stop.cancel();
    running.await.unwrap().unwrap();
}

/// Runs a manager until it fails.
async fn error_of(manager: Manager) -> ManagerError {
    let running = Box::pin(manager.run_until(CancellationToken::new()));
    let ended = tokio::time::timeout(LIMIT, running).await;
    ended.unwrap().unwrap_err()
}

#[tokio::test]
async fn charts_that_cannot_be_loaded_end_the_process_even_without_an_api_server() {
    let broken = || Err::<Vec<_>, ControllerError>("watches.yaml is broken".into());
    // Every request fails.
    let api = ScriptedApi::new();
    let unreachable = Manager::new(options()).client(api.client("default"));
    let no_kubeconfig = Manager::new(options());
    for manager in [unreachable, no_kubeconfig] {
        let error = error_of(manager.load(broken)).await;
        assert!(matches!(error, ManagerError::Load(_)));
        assert_eq!(error.to_string(), "watches.yaml is broken");
    }
}

#[tokio::test]
async fn a_kubeconfig_that_is_missing_ends_the_process_when_the_charts_are_right() {
    let right = || Ok::<_, ControllerError>(Vec::new());
    let error = error_of(Manager::new(options()).load(right)).await;
    assert!(matches!(error, ManagerError::Connect(_)));
}
