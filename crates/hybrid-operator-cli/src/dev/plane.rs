//! The cluster of `dev` where no kubeconfig was named: a control plane, or a cluster of kind, k3d or minikube, which ends
//! with it.

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
/// Programs that make clusters, with their commands for one of the name `$name`.
const TOOLS: [(&str, &str, &str); 3] = [
    (
        "kind",
        r#"kind create cluster --name "$name" --wait 3m"#,
        r#"kind delete cluster --name "$name""#,
    ),
    (
        "k3d",
        r#"k3d cluster create "$name" --wait"#,
        r#"k3d cluster delete "$name""#,
    ),
    (
        "minikube",
        r#"minikube start --profile "$name""#,
        r#"minikube delete --profile "$name""#,
    ),
];
/// Makes a cluster, as `control-plane up --dir DIR` starts a control plane: names its kubeconfig, and deletes it when it is
/// told to end. The kubeconfig of the user is left alone.
const CLUSTER: &str = r#"
export KUBECONFIG="$3/kubeconfig" name="hybrid-operator-dev-$$"
end() { DELETE; exit "$1"; }
trap 'end 0' TERM
{ CREATE; } >&2 || end 1
echo "export KUBECONFIG=$KUBECONFIG"
while :; do sleep 1; done
"#;
/// Time for the control plane to start, and to be built before if necessary.
const START_WITHIN: Duration = Duration::from_mins(20);

/// Error starting a control plane.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlaneError {
    #[error(
        "there is no cluster: install kind, k3d or minikube, such as with 'go install sigs.k8s.io/kind@latest', or name a cluster with --kubeconfig; the program 'control-plane' of hybrid-operator, on the PATH or named by HYBRID_CONTROL_PLANE, serves as one, too"
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
/// checkout that the project's `Cargo.toml` depends on. Otherwise one on the `PATH` that makes clusters.
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
    let Some(checkout) = checkout(root) else {
        let is_there = |tool: &str| {
            std::env::split_paths(&path).any(|directory| directory.join(tool).is_file())
        };
        let (_, create, delete) = TOOLS.into_iter().find(|(tool, ..)| is_there(tool))?;
        let script = CLUSTER.replace("CREATE", create).replace("DELETE", delete);
        return Some(Launch {
            program: "sh".into(),
            arguments: ["-c", &script, "sh"].map(OsString::from).to_vec(),
        });
    };
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
        fs::write(at("path/minikube"), "").unwrap();
        assert_eq!(look(None), Some("sh".into()));
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
