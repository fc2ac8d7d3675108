//! Runs an operator as a separate process: starts it, waits until it is ready, sends signals, and
//! captures its log.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::wait::{self, WaitError};

/// Number of log lines in an error.
const TAIL_LINES: usize = 30;

/// Failure of an operator to start, stop or respond.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ProcessError {
    /// The program cannot be started.
    #[error("cannot start {}", program.display())]
    Spawn {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The operator did not become ready in time, or exited before.
    #[error("{} did not become ready; the end of its log:\n{log}", program.display())]
    NotReady {
        program: PathBuf,
        log: String,
        #[source]
        source: WaitError,
    },
    /// The operator did not exit in time.
    #[error("{} did not exit; the end of its log:\n{log}", program.display())]
    StillRunning {
        program: PathBuf,
        log: String,
        #[source]
        source: WaitError,
    },
    /// A signal cannot be sent.
    #[error("cannot send a signal to {}", program.display())]
    Signal {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A request to the operator's HTTP server failed.
    #[error("cannot get http://127.0.0.1:{port}{path}")]
    Http {
        /// The port on loopback.
        port: u16,
        path: String,
        #[source]
        source: io::Error,
    },
}

/// A command that runs an operator.
///
/// In arguments and environment variables, `{probe_port}` and `{metrics_port}` are replaced with
/// free ports, new ones for every start.
#[derive(Debug, Clone)]
pub struct Operator {
    program: PathBuf,
    args: Vec<String>,
    env: BTreeMap<String, OsString>,
    dir: Option<PathBuf>,
    ready_within: Duration,
    ready_path: String,
}

impl Operator {
    /// Creates a command without arguments, with the environment of this process except
    /// `KUBECONFIG`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: BTreeMap::new(),
            dir: None,
            ready_within: Duration::from_secs(30),
            ready_path: "/readyz".to_owned(),
        }
    }

    /// Runs the operator under another program, which is given `args` and then the operator's own
    /// command line, and becomes it; `taskset` for example.
    #[must_use]
    pub fn under<S: Into<String>>(
        mut self,
        program: impl Into<PathBuf>,
        args: impl IntoIterator<Item = S>,
    ) -> Self {
        let operator = std::mem::replace(&mut self.program, program.into());
        let args = args.into_iter().map(Into::into);
        self.args = args
            .chain([operator.to_string_lossy().into_owned()])
            .chain(std::mem::take(&mut self.args))
            .collect();
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<String>, value: impl Into<OsString>) -> Self {
        self.env.insert(name.into(), value.into());
        self
    }

    /// Sets the kubeconfig: the cluster and the user of the operator.
    #[must_use]
    pub fn kubeconfig(self, path: impl AsRef<Path>) -> Self {
        self.env("KUBECONFIG", path.as_ref())
    }

    /// Sets the working directory.
    #[must_use]
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Sets the path that responds with 200 once the operator is ready. Default: `/readyz`.
    #[must_use]
    pub fn ready_path(mut self, path: impl Into<String>) -> Self {
        self.ready_path = path.into();
        self
    }

    /// Sets the time limit for becoming ready. Default: 30 seconds.
    #[must_use]
    pub fn ready_within(mut self, within: Duration) -> Self {
        self.ready_within = within;
        self
    }

    /// Starts the operator and waits until it is ready.
    ///
    /// # Errors
    ///
    /// [`ProcessError::Spawn`] and [`ProcessError::NotReady`].
    pub async fn start(self) -> Result<RunningOperator, ProcessError> {
        let operator = self.spawn()?;
        operator.ready().await?;
        Ok(operator)
    }

    /// Starts the operator and returns at once, for an operator that is not expected to become ready.
    ///
    /// # Errors
    ///
    /// [`ProcessError::Spawn`].
    pub fn spawn(self) -> Result<RunningOperator, ProcessError> {
        let log = Arc::new(Mutex::new(Vec::new()));
        let (child, guard, ports) = self.launch(&log)?;
        Ok(RunningOperator {
            child: Mutex::new(child),
            guard,
            ports,
            log,
            command_spec: self,
        })
    }

    fn launch(&self, log: &Arc<Mutex<Vec<String>>>) -> Result<(Child, Guard, Ports), ProcessError> {
        let failed = |source| ProcessError::Spawn {
            program: self.program.clone(),
            source,
        };
        let ports = Ports::free().map_err(failed)?;
        let mut command = Command::new(&self.program);
        command
            .args(self.args.iter().map(|arg| ports.fill(arg)))
            .env_remove("KUBECONFIG");
        for (name, value) in &self.env {
            let filled = value
                .to_str()
                .map_or_else(|| value.clone(), |value| ports.fill(value).into());
            command.env(name, filled);
        }
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let guard = Guard::new(child.id()).map_err(failed)?;
        if let Some(stdout) = child.stdout.take() {
            capture_lines(stdout, Arc::clone(log));
        }
        if let Some(stderr) = child.stderr.take() {
            capture_lines(stderr, Arc::clone(log));
        }
        Ok((child, guard, ports))
    }
}

/// A process that kills another one when this process has ended, however that ends: it reads a pipe that only this
/// process holds open.
#[derive(Debug)]
struct Guard(Child);

impl Guard {
    fn new(pid: u32) -> io::Result<Self> {
        let guard = Command::new("/bin/sh")
            .args(["-c", "read -r line; kill -9 $0", &pid.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        guard.map(Self)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Waiting closes the pipe.
        if self.0.kill().is_ok() {
            drop(self.0.wait());
        }
    }
}

/// A running operator. Dropping it kills the process and, if the test has failed, prints its log. The process is killed
/// as well if this one is.
#[derive(Debug)]
pub struct RunningOperator {
    child: Mutex<Child>,
    guard: Guard,
    ports: Ports,
    log: Arc<Mutex<Vec<String>>>,
    command_spec: Operator,
}

impl RunningOperator {
    /// Waits until the operator is ready. Fails at once if it has exited.
    ///
    /// # Errors
    ///
    /// [`ProcessError::NotReady`].
    pub async fn ready(&self) -> Result<(), ProcessError> {
        let path = &self.command_spec.ready_path;
        let (what, within) = (format!("200 from {path}"), self.command_spec.ready_within);
        let check = async || {
            if let Some(status) = self.exit_status() {
                self.wait_for_log().await;
                let (what, last) = (what.clone(), status.to_string());
                return Ok(Err(WaitError { what, within, last }));
            }
            match get(self.ports.probe, path).await {
                Ok((200, _)) => Ok(Ok(())),
                Ok((status, body)) => Err(format!("{status} {}", body.trim())),
                Err(error) => Err(error.to_string()),
            }
        };
        let not_ready = |source| ProcessError::NotReady {
            program: self.command_spec.program.clone(),
            log: self.log_tail(),
            source,
        };
        let ready = wait::until(within, &what, check).await;
        ready.map_err(not_ready)?.map_err(not_ready)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.lock().id()
    }

    /// Returns the port that stands for `{probe_port}`.
    pub fn probe_port(&self) -> u16 {
        self.ports.probe
    }

    /// Returns the port that stands for `{metrics_port}`.
    pub fn metrics_port(&self) -> u16 {
        self.ports.metrics
    }

    /// Gets `/metrics` from the metrics port.
    ///
    /// # Errors
    ///
    /// [`ProcessError::Http`].
    pub async fn metrics(&self) -> Result<String, ProcessError> {
        let answer = answer_of(self.ports.metrics, "/metrics").await;
        answer.map(|(_, body)| body)
    }

    /// Gets a path from the probe port; returns the status code and the body.
    ///
    /// # Errors
    ///
    /// [`ProcessError::Http`].
    pub async fn probe(&self, path: &str) -> Result<(u16, String), ProcessError> {
        answer_of(self.ports.probe, path).await
    }

    /// Returns its standard output and standard error since the first start.
    pub fn log(&self) -> String {
        join(&self.log.lock())
    }

    /// Waits until the output of an exited process is read, but only briefly, because its child
    /// processes may keep the pipe open.
    async fn wait_for_log(&self) {
        let within = Duration::from_secs(2);
        // Each reader holds a reference to the log until the end of its pipe.
        let read = async || Arc::strong_count(&self.log) == 1;
        drop(wait::until(within, "the end of the log", read).await);
    }

    fn log_tail(&self) -> String {
        let log = self.log.lock();
        let tail = log.get(log.len().saturating_sub(TAIL_LINES)..);
        join(tail.unwrap_or_default())
    }

    /// Returns its exit status, if it has exited.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.child.lock().try_wait().ok().flatten()
    }

    /// Sends SIGTERM, as the kubelet does.
    ///
    /// # Errors
    ///
    /// [`ProcessError::Signal`].
    pub fn sigterm(&self) -> Result<(), ProcessError> {
        self.signal(Signal::TERM)
    }

    /// Sends SIGKILL and waits until it has exited.
    ///
    /// # Errors
    ///
    /// [`ProcessError::Signal`].
    pub fn sigkill(&self) -> Result<(), ProcessError> {
        let mut child = self.child.lock();
        let killed = child.kill().and_then(|()| child.wait());
        killed.map(drop).map_err(|source| ProcessError::Signal {
            program: self.command_spec.program.clone(),
            source,
        })
    }

    /// Suspends it until [`Self::wake`], like a process on an overloaded node.
    ///
    /// # Errors
    ///
    /// [`ProcessError::Signal`].
    pub fn freeze(&self) -> Result<(), ProcessError> {
        self.signal(Signal::STOP)
    }

    /// Resumes it after [`Self::freeze`].
    ///
    /// # Errors
    ///
    /// [`ProcessError::Signal`].
    pub fn wake(&self) -> Result<(), ProcessError> {
        self.signal(Signal::CONT)
    }

    /// Sends a signal. Does nothing if the process has exited.
    fn signal(&self, signal: Signal) -> Result<(), ProcessError> {
        let mut child = self.child.lock();
        // The process id is not reused before the process is waited for.
        let running = matches!(child.try_wait(), Ok(None));
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let Some(pid) = pid.filter(|_| running) else {
            return Ok(());
        };
        let failed = |error: rustix::io::Errno| ProcessError::Signal {
            program: self.command_spec.program.clone(),
            source: error.into(),
        };
        kill_process(pid, signal).map_err(failed)
    }

    /// Waits until it has exited, by itself or after a signal, and its log is read.
    ///
    /// # Errors
    ///
    /// [`ProcessError::StillRunning`].
    pub async fn exited(&self, within: Duration) -> Result<ExitStatus, ProcessError> {
        let exited = wait::until(within, "the process to exit", async || {
            self.exit_status().ok_or("still running")
        });
        let status = exited.await.map_err(|source| ProcessError::StillRunning {
            program: self.command_spec.program.clone(),
            log: self.log_tail(),
            source,
        })?;
        self.wait_for_log().await;
        Ok(status)
    }

    /// Sends SIGTERM and waits until it has exited.
    ///
    /// # Errors
    ///
    /// [`ProcessError::Signal`] and [`ProcessError::StillRunning`].
    pub async fn stop(&self, within: Duration) -> Result<ExitStatus, ProcessError> {
        self.sigterm()?;
        self.exited(within).await
    }

    /// Kills it if it runs, starts it again with other ports, and waits until it is ready.
    ///
    /// # Errors
    ///
    /// [`ProcessError::Signal`], [`ProcessError::Spawn`] and [`ProcessError::NotReady`].
    pub async fn restart(&mut self) -> Result<(), ProcessError> {
        self.sigkill()?;
        let (child, guard, ports) = self.command_spec.launch(&self.log)?;
        self.child = Mutex::new(child);
        self.guard = guard;
        self.ports = ports;
        self.ready().await
    }
}

impl Drop for RunningOperator {
    fn drop(&mut self) {
        drop(self.sigkill());
        if thread::panicking() {
            let program = self.command_spec.program.display();
            let text = format!("log of {program}:\n{}", self.log());
            drop(io::stderr().write_all(text.as_bytes()));
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    probe: u16,
    metrics: u16,
}

impl Ports {
    fn free() -> io::Result<Self> {
        // Both listeners are open at the same time, so the ports differ.
        let (probe, metrics) = (free_listener()?, free_listener()?);
        Ok(Self {
            probe: probe.local_addr()?.port(),
            metrics: metrics.local_addr()?.port(),
        })
    }

    fn fill(self, text: &str) -> String {
        text.replace("{probe_port}", &self.probe.to_string())
            .replace("{metrics_port}", &self.metrics.to_string())
    }
}

/// Listens on a port that systems do not give to outgoing connections: one of these could take it before the program
/// that is to listen there starts.
fn free_listener() -> io::Result<TcpListener> {
    let attempts = std::iter::repeat_with(|| {
        let port = fastrand::u16(10_000..32_000);
        TcpListener::bind(("127.0.0.1", port))
    });
    let free = attempts.take(100).find(Result::is_ok);
    free.unwrap_or_else(|| TcpListener::bind(("127.0.0.1", 0)))
}

/// Returns an address of this machine on which nobody listens.
///
/// # Errors
///
/// The system has no more ports.
pub fn free_address() -> io::Result<SocketAddr> {
    free_listener()?.local_addr()
}

fn capture_lines(output: impl Read + Send + 'static, log: Arc<Mutex<Vec<String>>>) {
    thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            log.lock().push(line);
        }
    });
}

fn join(lines: &[String]) -> String {
    let texts = lines.iter().flat_map(|line| [line.as_str(), "\n"]);
    texts.collect()
}

async fn answer_of(port: u16, path: &str) -> Result<(u16, String), ProcessError> {
    get(port, path).await.map_err(|source| ProcessError::Http {
        port,
        path: path.to_owned(),
        source,
    })
}

/// Gets a path from a server on loopback; with HTTP/1.0 the response ends with the connection.
async fn get(port: u16, path: &str) -> io::Result<(u16, String)> {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = answer.split_once("\r\n\r\n");
    let parts = status.zip(body.map(|(_, body)| body.to_owned()));
    parts.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no HTTP response"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Operator {
        Operator::new("/bin/sh").arg("-c").arg(script)
    }

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn ports_are_filled_into_arguments_and_environment() {
        let operator = shell("echo {probe_port} $METRICS")
            .env("METRICS", "{metrics_port}")
            .spawn()
            .unwrap();
        operator.exited(SOON).await.unwrap();
        let expected = format!("{} {}\n", operator.probe_port(), operator.metrics_port());
        wait::until(SOON, "the log", async || operator.log() == expected)
            .await
            .unwrap();
        assert_ne!(operator.probe_port(), operator.metrics_port());
    }

    #[tokio::test]
    async fn the_error_of_an_exited_operator_shows_its_log() {
        let error = shell("echo no watches file >&2; exit 3")
            .start()
            .await
            .unwrap_err();
        assert!(error.to_string().contains("no watches file"), "{error}");
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("exit status: 3"), "{source}");
    }

    #[tokio::test]
    async fn sigterm_stops_gracefully_and_sigkill_at_once() {
        let graceful = shell("trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.01; done")
            .spawn()
            .unwrap();
        wait::until(SOON, "the trap", async || graceful.log() == "up\n")
            .await
            .unwrap();
        assert_eq!(graceful.stop(SOON).await.unwrap().code(), Some(7));
        graceful.sigterm().unwrap();

        let killed = shell("sleep 100").spawn().unwrap();
        killed.sigkill().unwrap();
        assert_eq!(killed.exited(SOON).await.unwrap().code(), None);
    }

    #[tokio::test]
    async fn dropping_an_operator_kills_it() {
        let operator = shell("exec sleep 100").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(operator.pid()).unwrap()).unwrap();
        rustix::process::test_kill_process(pid).unwrap();
        drop(operator);
        assert!(rustix::process::test_kill_process(pid).is_err());
    }

    #[tokio::test]
    async fn an_operator_is_killed_when_the_pipe_of_its_parent_closes() {
        let mut operator = shell("exec sleep 100").spawn().unwrap();
        drop(operator.guard.0.stdin.take());
        assert_eq!(operator.exited(SOON).await.unwrap().code(), None);
    }
}
