//! The cluster of `dev`: that of a kubeconfig which was named, or a control plane of its own.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};

use super::child::{Supervised, supervised};

/// Environment variable that names the program.
const PROGRAM_VARIABLE: &str = "HYBRID_CONTROL_PLANE";
const PROGRAM: &str = "control-plane";
/// Time for the control plane to start, and to be built before if necessary.
const START_WITHIN: Duration = Duration::from_mins(20);

/// Error starting a control plane.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaneError {
    #[error(
        "there is no cluster: the program 'control-plane' was not found; build it in a checkout of hybrid-operator (cargo build --bin control-plane) and put it on the PATH or set HYBRID_CONTROL_PLANE, or name a cluster with --kubeconfig"
    )]
    NoProgram,
    #[error("cannot start {}", program.display())]
    Start {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} ended before the control plane was ready; its messages are above", .0.display())]
    Ended(PathBuf),
}

/// A control plane that runs as long as this value exists.
pub(super) struct Plane {
    program: Supervised,
    /// Removed at the end.
    _state: tempfile::TempDir,
    pub(super) kubeconfig: PathBuf,
}

impl Plane {
    /// Starts a control plane with the program for the project in `root`.
    pub(super) async fn start(root: &Path) -> Result<Self, PlaneError> {
        let launch = find(root, |name| std::env::var_os(name), &executable_directory())
            .ok_or(PlaneError::NoProgram)?;
        let program = launch.program.clone();
        let failed = |source| PlaneError::Start {
            program: launch.program.clone(),
            source,
        };
        let state = tempfile::Builder::new()
            .prefix("hybrid-operator-dev-")
            .tempdir()
            .map_err(failed)?;
        let mut arguments = launch.arguments.clone();
        arguments.extend(["up".into(), "--dir".into(), state.path().into()]);
        let mut command = supervised(program.as_os_str(), &arguments, root);
        let mut running = Supervised::start(command.stdout(Stdio::piped())).map_err(failed)?;
        let output = running.take_output();
        let Some(kubeconfig) = announced(output).await else {
            running.stop(Duration::from_secs(5)).await;
            return Err(PlaneError::Ended(program));
        };
        Ok(Self {
            program: running,
            _state: state,
            kubeconfig,
        })
    }

    /// Stops the control plane.
    pub(super) async fn stop(self) {
        self.program.stop(Duration::from_secs(15)).await;
    }
}

/// Waits for the line that names the kubeconfig.
async fn announced(output: Option<tokio::process::ChildStdout>) -> Option<PathBuf> {
    let mut lines = BufReader::new(output?).lines();
    let line = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(path) = line.strip_prefix("export KUBECONFIG=") {
                return Some(PathBuf::from(path));
            }
        }
        None
    };
    tokio::time::timeout(START_WITHIN, line).await.ok()?
}

/// Command that starts the program.
#[derive(Debug, PartialEq, Eq)]
struct Launch {
    program: PathBuf,
    arguments: Vec<OsString>,
}

fn executable_directory() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    program.parent().unwrap_or(Path::new("")).to_owned()
}

/// Finds the program: named by the environment, beside this program, on the `PATH`, or in the
/// checkout that the project's `Cargo.toml` depends on.
fn find(root: &Path, env: impl Fn(&str) -> Option<OsString>, beside: &Path) -> Option<Launch> {
    let simple = |program: PathBuf| Launch {
        program,
        arguments: Vec::new(),
    };
    if let Some(named) = env(PROGRAM_VARIABLE).filter(|named| !named.is_empty()) {
        return Some(simple(named.into()));
    }
    let path = env("PATH").unwrap_or_default();
    let directories = std::iter::once(beside.to_owned()).chain(std::env::split_paths(&path));
    let mut programs = directories.map(|directory| directory.join(PROGRAM));
    if let Some(program) = programs.find(|program| program.is_file()) {
        return Some(simple(program));
    }
    let checkout = checkout(root)?;
    let manifest = checkout.join("Cargo.toml");
    let arguments = ["run", "--quiet", "--bin", PROGRAM, "--manifest-path"];
    let mut arguments: Vec<OsString> = arguments.map(OsString::from).to_vec();
    arguments.extend([manifest.into(), "--".into()]);
    Some(Launch {
        program: "cargo".into(),
        arguments,
    })
}

/// Returns the checkout of the framework that a project depends on by a path.
fn checkout(root: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(root.join("Cargo.toml")).ok()?;
    let mut lines = text.lines().map(str::trim);
    let dependency = lines.find(|line| {
        let name = line.split(['=', '.']).next();
        name.is_some_and(|name| name.trim() == "hybrid-operator") && line.contains("path")
    })?;
    let (_, after) = dependency.split_once("path")?;
    let path = after.split('"').nth(1)?;
    let checkout = root.join(path).join("../..");
    let checkout = std::fs::canonicalize(checkout).ok()?;
    let has_program = checkout
        .join("crates/hybrid-operator-test/Cargo.toml")
        .is_file();
    has_program.then_some(checkout)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_program_is_found_in_the_documented_order() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for parent in [
            "project",
            "beside",
            "path",
            "framework/crates/hybrid-operator-test",
        ] {
            fs::create_dir_all(at(parent)).unwrap();
        }
        let look = |named: Option<&str>| {
            let env = |name: &str| match name {
                "PATH" => Some(at("path").into_os_string()),
                PROGRAM_VARIABLE => named.map(OsString::from),
                _ => None,
            };
            find(&at("project"), env, &at("beside")).map(|launch| launch.program)
        };
        assert_eq!(look(None), None);
        fs::create_dir_all(at("framework/crates/hybrid-operator")).unwrap();
        fs::write(at("framework/crates/hybrid-operator-test/Cargo.toml"), "").unwrap();
        let dependency = "[dependencies]\nhybrid-operator-other = \"1\"\nhybrid-operator = { path = \"../framework/crates/hybrid-operator\" }\n";
        fs::write(at("project/Cargo.toml"), dependency).unwrap();
        assert_eq!(look(None), Some("cargo".into()));
        fs::write(at("path/control-plane"), "").unwrap();
        assert_eq!(look(None), Some(at("path/control-plane")));
        fs::write(at("beside/control-plane"), "").unwrap();
        assert_eq!(look(None), Some(at("beside/control-plane")));
        assert_eq!(look(Some("/named")), Some("/named".into()));
        assert_eq!(look(Some("")), Some(at("beside/control-plane")));
    }
}
