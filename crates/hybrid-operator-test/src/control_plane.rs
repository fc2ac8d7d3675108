//! Starts and stops a control plane, and creates clients and kubeconfigs for it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use go_programs::{BuildError, CONTROL_PLANE};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::fault::Faults;
use crate::storage::{Storage, StorageError};

/// Time for a control plane to stop before it is killed; it usually takes 50 ms.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Age at which the directory of an earlier run is removed; until then its logs may be useful.
const KEEP_RUNS_FOR: Duration = Duration::from_hours(1);

/// Options of a control plane.
#[derive(Debug, Clone)]
pub struct Options {
    /// Directory of state, logs and credentials. `None` means a new one in the cache, which is kept
    /// for an hour.
    pub dir: Option<PathBuf>,
    /// Whether the API server writes every request's metadata to [`ControlPlane::audit_log`].
    pub audit: bool,
    /// Additional users and their groups, besides `admin` (`system:masters`) and `operator` (none).
    pub users: Vec<(String, Vec<String>)>,
    /// Time limit for starting, excluding the build of the binary. A start takes about three
    /// seconds.
    pub ready_within: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dir: None,
            audit: false,
            users: Vec::new(),
            ready_within: Duration::from_mins(2),
        }
    }
}

/// An error while starting a control plane. Cloneable, because tests that share one get the same
/// error.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StartError {
    /// The binary is missing and cannot be built.
    #[error(
        "there is no control plane for tests; unit, snapshot and scripted-API tests run without it"
    )]
    Binary(#[source] Arc<BuildError>),
    /// A directory or the process cannot be created.
    #[error("cannot {action} {}", path.display())]
    Run {
        /// The failed action, as a verb.
        action: &'static str,
        /// The directory or program.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: Arc<io::Error>,
    },
    /// The control plane exited before it was ready.
    #[error("the control plane exited before it was ready:\n{output}")]
    Exited {
        /// The output of the control plane, with the end of the log of the program that failed.
        output: String,
    },
    /// The control plane was not ready in time.
    #[error("the control plane was not ready after {within:?}; its logs are in {}\n{output}", dir.display())]
    Deadline {
        /// The time limit.
        within: Duration,
        /// The directory of the control plane.
        dir: PathBuf,
        /// The output of the control plane.
        output: String,
    },
    /// Claims would stay unbound.
    #[error("the control plane has no storage")]
    Storage(#[source] Arc<StorageError>),
}

impl StartError {
    /// Returns whether a prerequisite is missing on this machine, so that tests may be skipped. All
    /// other errors are defects.
    pub fn is_missing_prerequisite(&self) -> bool {
        matches!(self, Self::Binary(error) if error.is_missing_prerequisite())
    }

    fn run(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Run {
            action,
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }
}

/// An error while creating a client.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ClientError {
    /// The kubeconfig cannot be used.
    #[error("cannot use the kubeconfig {}", path.display())]
    Kubeconfig {
        path: PathBuf,
        #[source]
        source: Box<KubeconfigError>,
    },
    /// No client can be created from it.
    #[error("cannot create a client for the kubeconfig {}", path.display())]
    Client {
        path: PathBuf,
        #[source]
        source: Box<kube::Error>,
    },
}

/// The line of JSON that `controlplane up` prints.
#[derive(Debug, Deserialize)]
struct Ready {
    server: String,
    pid: u32,
    programs: BTreeMap<String, u32>,
}

/// A Kubernetes API server with its controllers, on loopback. Everything is real except the nodes:
/// their Pods run no containers and are Running, Ready or Succeeded at once, and volumes hold nothing.
///
/// It stops when the value is dropped, and when this process ends in any way.
#[derive(Debug)]
pub struct ControlPlane {
    kubeconfig: PathBuf,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    dir: PathBuf,
    ready: Ready,
    /// Dropped before the process stops, so that it does not see the API server go.
    storage: Option<Storage>,
    process: Mutex<Process>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// Closing it stops the control plane.
    stdin: Option<ChildStdin>,
}

impl ControlPlane {
    /// Builds the binary if needed, starts a control plane, and waits until it is ready.
    ///
    /// # Errors
    ///
    /// Any [`StartError`].
    pub async fn start(options: Options) -> Result<Self, StartError> {
        match tokio::task::spawn_blocking(move || Self::start_blocking(&options)).await {
            Ok(result) => result,
            Err(error) => Err(StartError::Exited {
                output: error.to_string(),
            }),
        }
    }

    /// Like [`ControlPlane::start`], but blocks this thread.
    ///
    /// # Errors
    ///
    /// Any [`StartError`].
    pub fn start_blocking(options: &Options) -> Result<Self, StartError> {
        let binary = CONTROL_PLANE
            .ensure()
            .map_err(|error| StartError::Binary(Arc::new(error)))?;
        let dir = match &options.dir {
            Some(dir) => dir.clone(),
            None => new_run_dir(),
        };
        fs::create_dir_all(&dir).map_err(|error| StartError::run("create", &dir, error))?;
        let dir = dir
            .canonicalize()
            .map_err(|error| StartError::run("resolve", &dir, error))?;

        let mut command = Command::new(&binary);
        command.arg("up").arg("--dir").arg(&dir);
        if options.audit {
            command.arg("--audit-log").arg(dir.join("audit.log"));
        }
        for (name, groups) in &options.users {
            let user = format!("{name}:{}", groups.join(","));
            command.arg("--user").arg(user);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| StartError::run("start", &binary, error))?;

        let mut process = Process {
            stdin: child.stdin.take(),
            child,
        };
        match wait_ready(&mut process.child, options.ready_within) {
            Ok(ready) => {
                // Dropping this stops the process.
                let mut running = Running {
                    storage: None,
                    ready,
                    process: Mutex::new(process),
                    dir,
                };
                let storage = Storage::start(&running.dir.join("components.kubeconfig"));
                running.storage =
                    Some(storage.map_err(|error| StartError::Storage(Arc::new(error)))?);
                Ok(Self {
                    kubeconfig: running.dir.join("kubeconfig"),
                    running: Some(running),
                })
            }
            Err(NotReady { output, exited }) => {
                process.stop();
                Err(if exited {
                    StartError::Exited { output }
                } else {
                    StartError::Deadline {
                        within: options.ready_within,
                        dir,
                        output,
                    }
                })
            }
        }
    }

    /// Uses a running cluster. Dropping the value does not stop it.
    pub fn existing(kubeconfig: impl Into<PathBuf>) -> Self {
        Self {
            kubeconfig: kubeconfig.into(),
            running: None,
        }
    }

    /// Returns the kubeconfig of `admin`, which has all permissions.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns the kubeconfig of the user `operator`, which has only the permissions that RBAC
    /// grants. For an existing cluster, returns the given kubeconfig.
    pub fn operator_kubeconfig(&self) -> PathBuf {
        self.user_kubeconfig("operator")
    }

    /// Returns the kubeconfig of a user of [`Options::users`].
    pub fn user_kubeconfig(&self, name: &str) -> PathBuf {
        match &self.running {
            Some(running) => running.dir.join(format!("{name}.kubeconfig")),
            None => self.kubeconfig.clone(),
        }
    }

    /// Returns the API server's audit log, if it was started with one.
    pub fn audit_log(&self) -> Option<crate::audit::AuditLog> {
        let path = self.running.as_ref()?.dir.join("audit.log");
        path.is_file().then(|| crate::audit::AuditLog::new(path))
    }

    /// Returns the URL of the API server; `None` for an existing cluster.
    pub fn server(&self) -> Option<&str> {
        let running = self.running.as_ref();
        running.map(|running| running.ready.server.as_str())
    }

    /// Returns the process ids of the programs and, as `up`, of the one that supervises them.
    pub fn pids(&self) -> BTreeMap<String, u32> {
        let Some(running) = &self.running else {
            return BTreeMap::new();
        };
        let mut pids = running.ready.programs.clone();
        pids.insert("up".to_owned(), running.ready.pid);
        pids
    }

    /// Returns a new client as `admin`. It belongs to the runtime that this is called in, so every
    /// `#[tokio::test]` needs its own.
    ///
    /// # Errors
    ///
    /// Any [`ClientError`].
    pub async fn client(&self) -> Result<Client, ClientError> {
        client_of(&self.kubeconfig, None).await
    }

    /// Returns a new client as a user of [`Options::users`], or as `operator`.
    ///
    /// # Errors
    ///
    /// Any [`ClientError`].
    pub async fn client_as(&self, name: &str) -> Result<Client, ClientError> {
        client_of(&self.user_kubeconfig(name), None).await
    }

    /// Returns a new client as `admin` whose requests are recorded and get the planned `faults`.
    ///
    /// # Errors
    ///
    /// Any [`ClientError`].
    pub async fn client_with(&self, faults: &Faults) -> Result<Client, ClientError> {
        client_of(&self.kubeconfig, Some(faults)).await
    }

    /// Stops the control plane and waits until it is gone. Dropping it does the same.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.storage.take());
        self.process.lock().stop();
    }
}

impl Process {
    fn stop(&mut self) {
        self.stdin = None;
        let deadline = Instant::now() + STOP_WITHIN;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // Its programs stop with it.
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}

/// Creates a client from a kubeconfig file, ignoring the environment.
pub(crate) async fn client_of(path: &Path, faults: Option<&Faults>) -> Result<Client, ClientError> {
    let kubeconfig_error = |source| ClientError::Kubeconfig {
        path: path.to_owned(),
        source: Box::new(source),
    };
    let kubeconfig = Kubeconfig::read_from(path).map_err(kubeconfig_error)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(kubeconfig_error)?;
    let client = match faults {
        None => Client::try_from(config),
        Some(faults) => kube::client::ClientBuilder::try_from(config)
            .map(|builder| builder.with_layer(&faults.layer()).build()),
    };
    client.map_err(|source| ClientError::Client {
        path: path.to_owned(),
        source: Box::new(source),
    })
}

struct NotReady {
    output: String,
    exited: bool,
}

/// Waits for the line of JSON. Standard error of the process is forwarded, and kept for the error.
fn wait_ready(child: &mut Child, within: Duration) -> Result<Ready, NotReady> {
    let captured = Arc::new(Mutex::new(String::new()));
    let errors = child.stderr.take().map(|stderr| {
        let captured = Arc::clone(&captured);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                drop(writeln!(io::stderr(), "{line}"));
                let mut captured = captured.lock();
                captured.push_str(&line);
                captured.push('\n');
            }
        })
    });
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        thread::spawn(move || {
            let mut line = String::new();
            drop(BufReader::new(stdout).read_line(&mut line));
            drop(sender.send(line));
        });
    }
    let line = receiver.recv_timeout(within);
    if let Ok(Ok(ready)) = line.as_deref().map(serde_json::from_str) {
        return Ok(ready);
    }
    let exited = line.is_ok();
    if exited {
        // Standard error ends with the process, so it is complete now.
        drop(errors.map(thread::JoinHandle::join));
    }
    let output = captured.lock().clone();
    Err(NotReady { output, exited })
}

/// Returns a new directory for a run, and removes those of old runs.
fn new_run_dir() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let runs = go_programs::cache_dir().join("runs");
    remove_old_runs(&runs);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default().as_millis();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    runs.join(format!("{since}-{}-{count}", std::process::id()))
}

/// Removes the directories of old runs that no control plane uses any more. Ignores failures.
fn remove_old_runs(runs: &Path) {
    for entry in fs::read_dir(runs).into_iter().flatten().flatten() {
        let dir = entry.path();
        let made = entry.metadata().and_then(|meta| meta.modified());
        let old = made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > KEEP_RUNS_FOR));
        let free = File::open(dir.join("lock")).is_ok_and(|lock| lock.try_lock().is_ok());
        if old && free {
            drop(fs::remove_dir_all(&dir));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_are_locked_or_recent_are_kept() {
        let runs = tempfile::tempdir().unwrap();
        let old = SystemTime::now() - 2 * KEEP_RUNS_FOR;
        let make = |name: &str, modified: SystemTime| {
            let dir = runs.path().join(name);
            fs::create_dir(&dir).unwrap();
            let lock = File::create(dir.join("lock")).unwrap();
            File::open(&dir).unwrap().set_modified(modified).unwrap();
            lock
        };
        make("old", old);
        make("recent", SystemTime::now());
        let held = make("held", old);
        held.lock().unwrap();
        remove_old_runs(runs.path());
        let mut left: Vec<_> = fs::read_dir(runs.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["held", "recent"]);
    }

    #[tokio::test]
    async fn the_error_names_a_missing_kubeconfig() {
        let plane = ControlPlane::existing("/nowhere/kubeconfig");
        let error = plane.client().await.err().unwrap();
        assert!(error.to_string().contains("/nowhere/kubeconfig"), "{error}");
        assert_eq!(
            plane.operator_kubeconfig(),
            Path::new("/nowhere/kubeconfig")
        );
    }
}
