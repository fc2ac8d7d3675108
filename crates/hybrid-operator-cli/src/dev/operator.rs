//! The operator of a project: this program's `run` for charts, `cargo run` for projects with code.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::Command;

use super::child::{Supervised, supervised};
use crate::pins::edit::{self, MANAGER};

/// Time for the operator to end: its own grace period and a little more.
const STOP_WITHIN: Duration = Duration::from_secs(35);

/// Parameters to start the operator.
#[derive(Debug)]
pub(super) struct Launch {
    pub(super) root: PathBuf,
    pub(super) kubeconfig: PathBuf,
    /// Whether the cluster is of this machine; if not, somebody has agreed to it.
    pub(super) is_local: bool,
    /// File for the operator's log; `None` is standard error.
    pub(super) log: Option<PathBuf>,
    /// Whether the project has code that is built.
    pub(super) code: bool,
    /// The command that builds and runs code.
    pub(super) cargo: OsString,
    /// Address of the status page.
    pub(super) page: SocketAddr,
}

/// A running operator.
pub(super) struct Operator(Supervised);

impl Launch {
    pub(super) fn start(&self) -> io::Result<Operator> {
        let (program, mut arguments): (OsString, Vec<OsString>) = if self.code {
            let arguments = ["run", "--quiet", "--"].map(OsString::from);
            (self.cargo.clone(), arguments.to_vec())
        } else {
            (std::env::current_exe()?.into(), Vec::new())
        };
        let flags = [
            "run",
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
            "--zap-encoder=console",
            "--reload-pace=0",
        ];
        arguments.extend(flags.map(OsString::from));
        if !self.is_local {
            arguments.push("--yes".into());
        }
        arguments.push(format!("--ui-bind-address={}", self.page).into());
        let mut command = supervised(&program, &arguments, &self.root);
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .stdout(Stdio::null())
            .stderr(self.log()?);
        // As where it is deployed: lines of overrideValues may read them.
        let manager = std::fs::read_to_string(self.root.join(MANAGER)).unwrap_or_default();
        let images = edit::variables(&manager).into_iter();
        command.envs(images.filter(|(name, _)| std::env::var_os(name).is_none()));
        if std::env::var_os("POD_NAMESPACE").is_none() {
            // Releases of cluster-scoped custom resources need a namespace.
            command.env("POD_NAMESPACE", "default");
        }
        Ok(Operator(Supervised::start(&mut command)?))
    }

    fn log(&self) -> io::Result<Stdio> {
        let Some(path) = &self.log else {
            return Ok(Stdio::inherit());
        };
        let file = File::options().create(true).append(true).open(path)?;
        Ok(file.into())
    }

    /// Builds the code. Returns the compiler's messages if it cannot be built.
    pub(super) async fn build(&self) -> io::Result<Result<(), String>> {
        let mut command = Command::new(&self.cargo);
        command
            .args(["build", "--quiet"])
            .current_dir(&self.root)
            .stdin(Stdio::null())
            .process_group(0)
            .kill_on_drop(true);
        let built = command.output().await?;
        if built.status.success() {
            return Ok(Ok(()));
        }
        Ok(Err(String::from_utf8_lossy(&built.stderr)
            .trim_end()
            .to_owned()))
    }

    /// Returns the files whose change needs a build.
    pub(super) fn code(&self) -> Vec<PathBuf> {
        if !self.code {
            return Vec::new();
        }
        let names = ["src", "build.rs", "Cargo.toml", "Cargo.lock"];
        names.map(|name| self.root.join(name)).to_vec()
    }
}

/// Returns whether a project has code.
pub(super) fn has_code(root: &Path) -> bool {
    root.join("Cargo.toml").is_file()
}

impl Operator {
    /// Waits until the operator ends.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.0.ended().await
    }

    /// Ends the operator with SIGTERM. Returns false if it does not end.
    pub(super) async fn stop(self) -> bool {
        self.0.stop(STOP_WITHIN).await.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A `cargo` that fails to build while `broken` exists, and whose program waits.
    const CARGO: &str = r#"#!/bin/sh
case "$1" in
build) if [ -e broken ]; then echo 'error: expected `;`' >&2; exit 101; fi ;;
run) echo "$*" > started; trap 'echo ended > ended; exit 0' TERM; while :; do sleep 0.05; done ;;
esac
"#;

    #[tokio::test]
    async fn code_is_built_and_run_with_cargo_and_ends_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().to_owned();
        let cargo = root.join("cargo");
        fs::write(&cargo, CARGO).unwrap();
        fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
        let launch = Launch {
            root: root.clone(),
            kubeconfig: root.join("kubeconfig"),
            is_local: true,
            log: Some(root.join("log")),
            code: true,
            cargo: cargo.into(),
            page: ([127, 0, 0, 1], 8082).into(),
        };
        fs::write(root.join("broken"), "").unwrap();
        let message = launch.build().await.unwrap().unwrap_err();
        assert_eq!(message, "error: expected `;`");
        fs::remove_file(root.join("broken")).unwrap();
        assert_eq!(launch.build().await.unwrap(), Ok(()));

        let operator = launch.start().unwrap();
        let started = async {
            while !root.join("started").exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(30), started);
        in_time.await.unwrap();
        assert!(operator.stop().await);
        let started = fs::read_to_string(root.join("started")).unwrap();
        assert!(started.starts_with("run --quiet -- run "), "{started}");
        let page = "--ui-bind-address=127.0.0.1:8082";
        assert!(started.contains(page), "{started}");
        assert_eq!(fs::read_to_string(root.join("ended")).unwrap(), "ended\n");
    }
}
