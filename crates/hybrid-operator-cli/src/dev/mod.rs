//! `dev`: a cluster, the CRDs and samples of a project, its operator, and the status of its custom
//! resources, until ctrl-c.
//!
//! ```text
//! plane or kubeconfig -> CRDs -> operator -> samples -> every second: changed files, status
//! ```
//!
//! The operator reloads charts and the watches file by itself; `dev` applies changed CRDs and samples,
//! and builds and restarts operators with code.

mod child;
mod objects;
mod operator;
mod plane;
mod sources;
mod status;

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use hybrid_operator::helm_release::kube_objects::client::is_local;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::command::ask::confirm;
use objects::{ApplyError, Kind};
use operator::{Launch, Operator, has_code};
use plane::Plane;
use sources::{Files, Settled, changed, files};
use status::Screen;

/// Time between two looks at files and status.
const INTERVAL: Duration = Duration::from_millis(500);
/// Number of lines of the log that are shown when the operator has ended.
const LAST_LINES: usize = 10;

/// Options of `dev`.
#[derive(Debug)]
pub(crate) struct Options {
    /// Directory of the project.
    pub(crate) root: PathBuf,
    /// Whether nobody is asked before a cluster elsewhere is changed.
    pub(crate) yes: bool,
    /// Paths of kubeconfigs, as in `$KUBECONFIG`; without one, `dev` starts a cluster.
    pub(crate) kubeconfig: Option<OsString>,
    /// Whether samples are applied.
    pub(crate) samples: bool,
    /// File for the log of the operator; `None` is standard error.
    pub(crate) log: Option<PathBuf>,
    /// Whether the status is drawn as a table.
    pub(crate) terminal: bool,
}

/// Runs until ctrl-c.
pub(crate) async fn run(options: Options, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut signals = Signals::new()?;
    let mut screen = Screen::new(out, options.terminal);
    let (plane, kubeconfig) = if let Some(given) = options.kubeconfig.clone() {
        screen.message(&format!("Using the cluster of {}", given.display()))?;
        (None, given)
    } else {
        screen.message("Starting a cluster ...")?;
        let started = tokio::select! {
            started = Plane::start(&options.root) => started?,
            () = signals.received() => return Ok(()),
        };
        let path = started.kubeconfig.clone();
        screen.message(&format!(
            "To use kubectl: export KUBECONFIG={}",
            path.display()
        ))?;
        (Some(started), path.into_os_string())
    };
    let result = session(&options, kubeconfig, &mut screen, &mut signals).await;
    if let Some(plane) = plane {
        plane.stop().await;
    }
    result
}

async fn session(
    options: &Options,
    kubeconfig: OsString,
    screen: &mut Screen<'_>,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let (client, cluster, is_local) = tokio::select! {
        connected = connect(&kubeconfig) => connected?,
        () = signals.received() => return Ok(()),
    };
    // A cluster of minikube has an address of its own.
    let is_local = is_local || options.kubeconfig.is_none();
    if options.kubeconfig.is_some() {
        screen.message(&cluster)?;
    }
    if !(is_local || options.yes) {
        let question = format!("{cluster} is not on this machine. Change it?");
        confirm(&question, "nothing was changed", &mut io::stderr())?;
    }
    if let Some(log) = &options.log {
        screen.message(&format!("The log of the operator is in {}", log.display()))?;
    }
    let page = free_address()?;
    screen.message(&format!("The status page is at http://{page}"))?;
    let root = &options.root;
    let launch = Launch {
        root: root.clone(),
        kubeconfig: kubeconfig.into(),
        is_local,
        log: options.log.clone(),
        code: has_code(root),
        cargo: std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
        page,
    };
    let mut session = Session {
        definitions: Watched::new(vec![root.join("config/crd")]),
        samples: Watched::new(if options.samples {
            vec![root.join("config/samples")]
        } else {
            Vec::new()
        }),
        code: Watched::new(launch.code()),
        charts: Watched::new(
            ["watches.yaml", "helm-charts"]
                .map(|name| root.join(name))
                .to_vec(),
        ),
        launch,
        client,
        kinds: Vec::new(),
        operator: None,
        screen,
    };
    let result = tokio::select! {
        result = session.work() => result,
        () = signals.received() => Ok(()),
    };
    if let Some(operator) = session.operator.take() {
        session.screen.message("Stopping ...")?;
        tokio::select! {
            ended = operator.stop() => if !ended {
                anyhow::bail!("the operator did not end in time; see its log");
            },
            // A second ctrl-c.
            () = signals.received() => {}
        }
    }
    result
}

/// Connects to the cluster. Returns a line that names it, and whether it is of this machine, too.
async fn connect(kubeconfig: &OsString) -> anyhow::Result<(Client, String, bool)> {
    let subject = || format!("cannot use the kubeconfig {}", kubeconfig.display());
    let mut merged = Kubeconfig::default();
    for path in std::env::split_paths(kubeconfig) {
        let one = Kubeconfig::read_from(path).with_context(subject)?;
        merged = merged.merge(one).with_context(subject)?;
    }
    let context = merged.current_context.clone().unwrap_or_default();
    let config = Config::from_custom_kubeconfig(merged, &KubeConfigOptions::default()).await;
    let config = config.with_context(subject)?;
    let is_local = is_local(&config.cluster_url);
    let server = config.cluster_url.to_string();
    let server = server.trim_end_matches('/');
    let cluster = format!("Cluster: {server} (context {context})");
    let client = Client::try_from(config).with_context(subject)?;
    let reached = client.apiserver_version().await;
    reached.with_context(|| {
        format!(
            "cannot reach the cluster of {}; is it running?",
            kubeconfig.display()
        )
    })?;
    Ok((client, cluster, is_local))
}

/// Returns a free address for the status page, which stays the same when the operator is started again.
fn free_address() -> anyhow::Result<SocketAddr> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = free.and_then(|free| free.local_addr());
    address.context("cannot find a free port for the status page")
}

/// Files that are looked at again and again.
struct Watched {
    paths: Vec<PathBuf>,
    settled: Settled,
}

impl Watched {
    fn new(paths: Vec<PathBuf>) -> Self {
        let settled = Settled::new(files(&paths));
        Self { paths, settled }
    }

    fn files(&self) -> Files {
        files(&self.paths)
    }

    /// Returns the files of a change that has settled. Deleted files are part of a change, but not
    /// returned.
    fn changed(&mut self) -> Option<Vec<PathBuf>> {
        let now = self.files();
        let before = self.settled.see(&now)?;
        Some(changed(&before, &now))
    }
}

/// State of `dev` in the cluster: the operator and the watched files.
struct Session<'s, 'o> {
    launch: Launch,
    client: Client,
    screen: &'s mut Screen<'o>,
    kinds: Vec<Kind>,
    operator: Option<Operator>,
    definitions: Watched,
    samples: Watched,
    code: Watched,
    charts: Watched,
}

impl Session<'_, '_> {
    /// Sets everything up, and follows changes until an error of this process.
    async fn work(&mut self) -> anyhow::Result<()> {
        self.apply_definitions(all(&self.definitions)).await?;
        self.build_and_start().await?;
        self.apply_samples(all(&self.samples)).await?;
        loop {
            self.follow().await?;
            let rows = status::rows(&self.client, &self.kinds).await;
            self.screen.show(rows)?;
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                ended = ended(&mut self.operator) => self.report_end(ended?)?,
            }
        }
    }

    /// Handles changed files.
    async fn follow(&mut self) -> anyhow::Result<()> {
        if let Some(changed) = self.definitions.changed() {
            self.apply_definitions(changed).await?;
        }
        let charts = self.charts.changed().is_some();
        if self.code.changed().is_some() {
            self.build_and_start().await?;
        } else if charts && self.operator.is_none() {
            self.start()?;
        }
        if let Some(changed) = self.samples.changed() {
            self.apply_samples(changed).await?;
        }
        Ok(())
    }

    async fn apply_definitions(&mut self, paths: Vec<PathBuf>) -> anyhow::Result<()> {
        for path in paths.iter().filter(|path| objects::is_yaml(path)) {
            match objects::apply_definitions(&self.client, path).await {
                Ok(kinds) => {
                    for kind in kinds {
                        self.screen
                            .message(&format!("Applied the CRD of {}", kind.kind))?;
                        self.kinds.push(kind);
                    }
                    self.kinds.sort();
                    self.kinds.dedup();
                }
                Err(error) => self.report(error)?,
            }
        }
        Ok(())
    }

    async fn apply_samples(&mut self, paths: Vec<PathBuf>) -> anyhow::Result<()> {
        for path in paths.iter().filter(|path| objects::is_yaml(path)) {
            match objects::apply_samples(&self.client, path, &self.kinds).await {
                Ok(applied) => {
                    for object in applied {
                        self.screen.message(&format!("Applied {object}"))?;
                    }
                }
                Err(error) => self.report(error)?,
            }
        }
        Ok(())
    }

    /// Builds code and starts the operator; without code, it only starts it.
    async fn build_and_start(&mut self) -> anyhow::Result<()> {
        if self.launch.code {
            self.screen.message("Building the operator ...")?;
            let built = self.launch.build().await.context("cannot run cargo")?;
            if let Err(errors) = built {
                let rest = if self.operator.is_some() {
                    "the operator that was built before continues"
                } else {
                    "the operator starts once it can be built"
                };
                self.screen
                    .message(&format!("{errors}\nThe build failed; {rest}"))?;
                return Ok(());
            }
        }
        if let Some(operator) = self.operator.take() {
            operator.stop().await;
        }
        self.start()
    }

    fn start(&mut self) -> anyhow::Result<()> {
        let operator = self.launch.start().context("cannot start the operator")?;
        self.operator = Some(operator);
        self.screen.message("Started the operator")?;
        Ok(())
    }

    fn report(&mut self, error: ApplyError) -> anyhow::Result<()> {
        let error = anyhow::Error::from(error);
        self.screen.message(&format!("Error: {error:#}"))?;
        Ok(())
    }

    /// Reports that the operator has ended by itself.
    fn report_end(&mut self, status: std::process::ExitStatus) -> anyhow::Result<()> {
        self.operator = None;
        let log = self
            .launch
            .log
            .as_deref()
            .map(last_lines)
            .unwrap_or_default();
        self.screen.message(&format!(
            "{log}The operator ended ({status}); it starts again when the watches file, a chart or code changes"
        ))?;
        Ok(())
    }
}

/// Waits until the operator ends; for ever without one.
async fn ended(operator: &mut Option<Operator>) -> std::io::Result<std::process::ExitStatus> {
    match operator {
        Some(operator) => operator.ended().await,
        None => std::future::pending().await,
    }
}

fn all(watched: &Watched) -> Vec<PathBuf> {
    watched.files().into_keys().collect()
}

fn last_lines(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().rev().take(LAST_LINES).collect();
    lines.iter().rev().flat_map(|line| [line, "\n"]).collect()
}

/// The signals that end `dev`.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
