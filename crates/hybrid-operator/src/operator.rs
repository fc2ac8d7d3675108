//! The program of an operator: its command line, logs and exit code.

mod confirm;

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use chart_source::Cache;
use clap::{Args, Command, FromArgMatches};
use kube_objects::with_causes;
use operator_runtime::manager::{Controller, ControllerError, Manager};
use operator_runtime::telemetry::logs;
use operator_runtime::webhook::Webhooks;
use serde_json::json;

use crate::helm::view::{RecentEvents, Views};
use crate::helm::{Admission, ChartReader, Charts, HelmController, MissingCharts, READINESS};
use crate::options::{ChartOptions, RunArgs, double_dashes, environment};
use crate::page::Page;
use crate::process::Renders;

/// Longest time that threads that still run hold up the exit.
const EXIT_WITHIN: Duration = Duration::from_secs(5);

/// The command that `hybrid-operator generate` runs.
const DESCRIBE: &str = "describe";

/// The command that images of the Go operators have.
const VERSION: &str = "version";

/// Adds code to the controller of a chart.
type ExtendChart = Box<dyn Fn(HelmController) -> HelmController + Send + Sync>;

/// The program of an operator, with the commands `run` and `version`.
///
/// ```no_run
/// # use hybrid_operator::native::{self, Action, NativeController};
/// # use k8s_openapi::api::core::v1::Pod;
/// # fn controller() -> NativeController<Pod> {
/// #     native::controller("pods").reconcile(|_, _| async { Ok(Action::done()) })
/// # }
/// use std::process::ExitCode;
///
/// use hybrid_operator::operator::Operator;
///
/// fn main() -> ExitCode {
///     Operator::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
///         .with_charts()
///         .with(controller())
///         .main()
/// }
/// ```
pub struct Operator {
    command: Command,
    charts: Option<ExtendChart>,
    controllers: Vec<Box<dyn Controller>>,
    manager: Vec<Extend>,
    webhooks: Webhooks,
}

/// Adds something to the manager.
type Extend = Box<dyn FnOnce(Manager) -> Manager>;

impl Operator {
    /// Creates a program without controllers. `name` and `version` are shown by `--help` and
    /// `--version`.
    pub fn new(name: &'static str, version: &'static str) -> Self {
        let run = RunArgs::augment_args(Command::new("run"))
            .about("Run the operator until it gets SIGTERM or SIGINT");
        let command = Command::new(name)
            .version(version)
            .about("Kubernetes operator")
            .after_help(format!("Example:\n  {name} run --leader-elect"))
            .subcommand_required(true)
            .arg_required_else_help(true)
            .subcommand(run)
            .subcommand(Command::new(VERSION).about("Print the version"))
            .subcommand(
                Command::new(DESCRIBE)
                    .about("Print the definitions and permissions of the controllers as JSON")
                    .hide(true),
            );
        Self {
            command,
            charts: None,
            controllers: Vec::new(),
            manager: Vec::new(),
            webhooks: Webhooks::default(),
        }
    }

    /// Describes the operator in `--help`.
    #[must_use]
    pub fn about(mut self, about: &'static str) -> Self {
        self.command = self.command.about(about);
        self
    }

    /// Adds a controller for each entry of the watches file (`--watches-file`). A changed file or chart is
    /// reloaded.
    #[must_use]
    pub fn with_charts(self) -> Self {
        self.with_extended_charts(|chart| chart)
    }

    /// Adds a controller for each entry of the watches file, with what `extend` adds to it, for
    /// example a [value translator](crate::helm::HelmController::value_translator).
    #[must_use]
    pub fn with_extended_charts(
        mut self,
        extend: impl Fn(HelmController) -> HelmController + Send + Sync + 'static,
    ) -> Self {
        self.charts = Some(Box::new(extend));
        self
    }

    /// Adds a controller, or a [`runnable`](operator_runtime::manager::runnable).
    #[must_use]
    pub fn with(mut self, controller: impl Controller + 'static) -> Self {
        self.controllers.push(Box::new(controller));
        self
    }

    /// Extends the manager, for example with checks and metrics.
    ///
    /// ```no_run
    /// use hybrid_operator::operator::Operator;
    /// use hybrid_operator::telemetry::prometheus_client::metrics::counter::Counter;
    ///
    /// # fn main() -> std::process::ExitCode {
    /// let backups = Counter::<u64>::default();
    /// let counted = backups.clone();
    /// Operator::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
    ///     .manager(|manager| {
    ///         manager.metrics(|metrics| metrics.register("backups", "Number of backups", counted))
    ///     })
    ///     // .with(a controller that calls backups.inc())
    ///     .main()
    /// # }
    /// ```
    #[must_use]
    pub fn manager(mut self, extend: impl FnOnce(Manager) -> Manager + 'static) -> Self {
        self.manager.push(Box::new(extend));
        self
    }

    /// Serves webhooks, instead of those that were set before. Every replica serves them, whether it
    /// is the leader or not.
    #[must_use]
    pub fn with_webhooks(mut self, webhooks: Webhooks) -> Self {
        self.webhooks = webhooks;
        self
    }

    /// Runs the command line of this process.
    ///
    /// Returns 0 after a signal, 1 after an error, which is printed to standard error, and 2 for
    /// invalid arguments.
    pub fn main(self) -> ExitCode {
        let args = double_dashes(std::env::args_os());
        let matches = self.command.clone().get_matches_from(args);
        let Some((command, matches)) = matches.subcommand() else {
            // clap requires a subcommand.
            return ExitCode::FAILURE;
        };
        let mut out = std::io::stdout();
        let ended = match command {
            DESCRIBE => self.describe(&mut out).map_err(Into::into),
            VERSION => write!(out, "{}", self.command.render_version()).map_err(Into::into),
            _ => match RunArgs::from_arg_matches(matches) {
                Ok(args) => self.run(args),
                Err(error) => error.exit(),
            },
        };
        match ended {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                print_error(error.as_ref());
                ExitCode::FAILURE
            }
        }
    }

    /// Prints what `hybrid-operator generate` needs to know of the controllers written in Rust.
    /// Nothing is read, and no cluster is needed.
    fn describe(&self, out: &mut dyn Write) -> Result<(), std::io::Error> {
        let controllers = self.controllers.iter().map(|controller| {
            let kind = controller.kind();
            json!({
                "name": controller.name(),
                "group": kind.as_ref().map(|kind| &kind.group),
                "version": kind.as_ref().map(|kind| &kind.version),
                "kind": kind.as_ref().map(|kind| &kind.kind),
                "owns": controller.owned_kinds(),
                "rules": controller.permissions(),
            })
        });
        let definitions = self.controllers.iter().filter_map(|c| c.definition());
        let description = json!({
            "crds": definitions.collect::<Vec<_>>(),
            "controllers": controllers.collect::<Vec<_>>(),
        });
        writeln!(out, "{description:#}")
    }

    /// Runs the operator until it gets a signal: the command `run`, for programs with a command line of their
    /// own.
    ///
    /// # Errors
    /// If an argument, a file or the cluster keeps it from running.
    pub fn run(self, args: RunArgs) -> Result<(), ControllerError> {
        let mut options = args.options(environment);
        logs::start(&options.logs);
        let kubeconfig = options.kubeconfig.clone();
        // In a Pod, the cluster is the Pod's own.
        let asks = !(options.assume_yes || options.webhooks.in_cluster);
        let ChartOptions {
            watches_file,
            watch_files,
            reload_pace,
            chart_cache,
            ui_bind_address,
            ..
        } = options.extensions.get().cloned().unwrap_or_default();
        if self.charts.is_some() {
            options.extensions.insert(Renders::new());
        }
        let page = match ui_bind_address {
            None => None,
            Some(address) => {
                let (views, events) = (Views::default(), RecentEvents::default());
                options.extensions.insert(views.for_native());
                options.extensions.insert(views.clone());
                options.extensions.insert(events.clone());
                Some(Page::listen(address, views, events)?)
            }
        };
        let cache = chart_cache.map(Cache::at);
        let reader = ChartReader::new(cache.or_else(Cache::open_default));
        let mut manager = Manager::new(options).with_webhooks(self.webhooks);
        for add in self.manager {
            manager = add(manager);
        }
        if let Some(extend) = self.charts {
            let missing = MissingCharts::default();
            let shown = missing.clone();
            let admission = Admission::default();
            manager = manager.with_object_webhooks(admission.webhooks());
            manager = manager.readiness_check(READINESS, move || std::future::ready(shown.check()));
            manager = manager.load(move || {
                let charts = Charts::load_with(&watches_file, extend, reader, missing, admission)?;
                Ok::<_, ControllerError>(
                    charts
                        .watch_files(watch_files)
                        .pace(reload_pace)
                        .controllers(),
                )
            });
        }
        for controller in self.controllers {
            manager = manager.with_boxed(controller);
        }
        if let Some(page) = page {
            manager = manager.with(page.server());
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        if asks {
            runtime.block_on(confirm::confirm(kubeconfig.as_deref()))?;
        }
        let ended = runtime.block_on(manager.run());
        runtime.shutdown_timeout(EXIT_WITHIN);
        Ok(ended?)
    }
}

/// Prints an error with its causes.
fn print_error(error: &dyn Error) {
    // Nobody may read it any more.
    drop(writeln!(std::io::stderr(), "error: {}", with_causes(error)));
}
