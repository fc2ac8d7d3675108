//! A project in a temporary folder, and the operator that runs it in this process.

use std::path::PathBuf;

use hybrid_operator::helm::{self, HelmController};
use hybrid_operator::manager::Manager;
use hybrid_operator::options::{Options, RunArgs};
use hybrid_operator_test::fault::{Fault, Faults};
use hybrid_operator_test::process::{self, RunningOperator};
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::{ControlPlane, Operator, TestNamespace};
use kube::Client;
use tokio_util::sync::CancellationToken;

use super::{World, control_plane, injected, namespace_of, operator};

/// A temporary project: charts and a watches file in one folder.
pub(crate) struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    /// Creates a project with a chart named `chart`, bound to the kind `Widget` with further
    /// `options` of its entry (YAML).
    pub(crate) fn new(options: &str, templates: &[(&str, &str)]) -> Self {
        let project = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        project.write("chart/Chart.yaml", CHART);
        for (name, text) in templates {
            project.write(&format!("chart/templates/{name}"), text);
        }
        project.watch("test.example.com", "Widget", options);
        project
    }

    /// Binds the chart to this kind alone, with further `options` of its entry (YAML).
    pub(crate) fn watch(&self, group: &str, kind: &str, options: &str) {
        self.write("watches.yaml", &entry(group, kind, options));
    }

    /// Writes a file of the project.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Runs an operator of this project in a new namespace. Returns `None` if no control plane is
    /// available.
    pub(crate) async fn start(&self, prefix: &str) -> Option<World> {
        self.start_with(prefix, &[]).await
    }

    /// Does the same with further arguments.
    pub(crate) async fn start_with(&self, prefix: &str, args: &[&str]) -> Option<World> {
        let args = args.iter().copied();
        World::with(prefix, |plane, name| self.operator(plane, name).args(args)).await
    }

    /// Runs an operator in this process in a new namespace; its requests meet `faults`. Returns
    /// `None` if no control plane is available.
    pub(crate) async fn in_process(
        &self,
        prefix: &str,
        faults: &Faults,
    ) -> Option<(TestNamespace, InProcessOperator)> {
        let plane = control_plane().await?;
        let namespace = namespace_of(plane, prefix).await;
        let operator = InProcessOperator::faulty(self, plane, &namespace, faults).await;
        Some((namespace, operator))
    }

    /// Runs an operator of this project in a namespace.
    pub(crate) async fn run(
        &self,
        plane: &ControlPlane,
        namespace: &TestNamespace,
    ) -> RunningOperator {
        let operator = self.operator(plane, namespace.name());
        operator.start().await.unwrap()
    }

    /// Runs an operator, makes a change, and crashes the operator at the `nth` request from now on
    /// for which `counts` returns true: before the server executes it ([`Fault::Unreachable`]) or
    /// after ([`Fault::AnswerLost`]). Returns false if `end` completes without a crash.
    pub(crate) async fn crash_at(
        &self,
        plane: &ControlPlane,
        namespace: &TestNamespace,
        (nth, fault): (usize, Fault),
        counts: impl Fn(&Recorded) -> bool + Send + 'static,
        change: impl Future<Output = ()>,
        end: impl Future<Output = ()>,
    ) -> bool {
        let faults = Faults::new();
        let client = plane.client_with(&faults).await.unwrap();
        faults.stop_at(nth, fault, counts);
        let operator = InProcessOperator::start(self, client, namespace.name());
        change.await;
        tokio::select! {
            () = injected(&faults) => {}
            () = end => {}
        }
        drop(operator);
        faults.was_injected()
    }

    pub(crate) fn watches_file(&self) -> PathBuf {
        self.dir.path().join("watches.yaml")
    }

    /// Returns an operator of this project.
    pub(crate) fn operator(&self, plane: &ControlPlane, namespaces: &str) -> Operator {
        let file = self.watches_file().display().to_string();
        operator(plane, namespaces, &["--watches-file", &file])
    }

    /// Returns an operator that is one of several replicas: the Pod of this name.
    pub(crate) fn replica(
        &self,
        plane: &ControlPlane,
        namespace: &TestNamespace,
        pod: &str,
    ) -> Operator {
        self.operator(plane, namespace.name())
            .args(["--leader-elect", "--leader-election-id=replicas"])
            .env("POD_NAMESPACE", namespace.name())
            .env("POD_NAME", pod)
    }
}

/// Returns the options of an operator that serves neither metrics nor probes.
pub(crate) fn options(flags: &[&str], env: &[(&str, &str)]) -> Options {
    let all = [
        "run",
        "--metrics-bind-address=0",
        "--health-probe-bind-address=0",
    ];
    let all = all.iter().chain(flags);
    let args = <RunArgs as clap::Parser>::parse_from(all);
    args.options(|variable| {
        let found = env.iter().find(|(name, _)| *name == variable);
        found.map(|(_, value)| (*value).to_owned())
    })
}

/// Returns an address on which nothing listens.
pub(crate) fn free_address() -> String {
    process::free_address().unwrap().to_string()
}

/// An operator in this process. Dropping it stops it without any cleanup.
pub(crate) struct InProcessOperator {
    /// Stops it in an orderly way.
    pub(crate) stop: CancellationToken,
    runtime: Option<tokio::runtime::Runtime>,
}

impl InProcessOperator {
    /// Runs a manager.
    pub(crate) fn run(manager: Manager) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let stop = CancellationToken::new();
        runtime.spawn(manager.run_until(stop.clone()));
        Self {
            stop,
            runtime: Some(runtime),
        }
    }

    /// Starts the operator of a project.
    pub(crate) fn start(project: &Project, client: Client, namespace: &str) -> Self {
        Self::extended(project, client, namespace, |chart| chart)
    }

    /// Starts it with requests that meet `faults`.
    pub(crate) async fn faulty(
        project: &Project,
        plane: &ControlPlane,
        namespace: &TestNamespace,
        faults: &Faults,
    ) -> Self {
        let client = plane.client_with(faults).await.unwrap();
        Self::start(project, client, namespace.name())
    }

    /// Starts it with `extend` applied to the controllers of the charts.
    pub(crate) fn extended(
        project: &Project,
        client: Client,
        namespace: &str,
        extend: impl Fn(HelmController) -> HelmController,
    ) -> Self {
        Self::with(project, client, namespace, extend, |_| {})
    }

    /// Starts it with changed options.
    pub(crate) fn with(
        project: &Project,
        client: Client,
        namespace: &str,
        extend: impl Fn(HelmController) -> HelmController,
        change: impl FnOnce(&mut Options),
    ) -> Self {
        let env = ["WATCH_NAMESPACE", "OPERATOR_NAME", "POD_NAME"].map(|name| (name, namespace));
        let mut options = options(&[], &env);
        change(&mut options);
        let charts = helm::load(&project.watches_file()).unwrap();
        let manager = charts
            .into_iter()
            .map(extend)
            .fold(Manager::new(options).client(client), Manager::with);
        Self::run(manager)
    }
}

impl Drop for InProcessOperator {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Returns an entry of a watches file for the chart of a [`Project`].
pub(crate) fn entry(group: &str, kind: &str, options: &str) -> String {
    let more = if options.is_empty() { "" } else { ", " };
    format!("- {{group: {group}, version: v1, kind: {kind}, chart: chart{more}{options}}}\n")
}

const CHART: &str = "apiVersion: v2\nname: chart\nversion: 0.1.0\n";
