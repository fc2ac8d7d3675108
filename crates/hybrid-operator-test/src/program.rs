//! Runs one program of the control plane on its own, for example a second etcd, or one of OLM.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use crate::control_plane::StartError;

/// Makes a program end when file descriptor 3 is closed; see `plane.go` and OLM's `main.go`.
const PARENT_PIPE: (&str, &str) = ("CONTROL_PLANE_PARENT_PIPE", "3");

/// Becomes the program, with the pipe from this process as file descriptor 3.
const SCRIPT: &str = "exec \"$@\" 3<&0 </dev/null";

/// A running program of the control plane or of OLM. It is killed when the value is dropped, and ends with
/// this process, however that ends: it reads a pipe that only this process holds open.
#[derive(Debug)]
pub struct Program {
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler` or `kwok` with its
    /// own flags. `binary` is what [`crate::binary_or_skip`] returns, or
    /// [`crate::olm::ensure_or_skip`] for programs of OLM; the output is appended to the file `log`.
    ///
    /// # Errors
    ///
    /// [`StartError::Run`].
    pub fn start(
        binary: &Path,
        name: &str,
        flags: &[String],
        log: &Path,
    ) -> Result<Self, StartError> {
        let failed = |action, path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| StartError::Run {
                action,
                path,
                source: Arc::new(error),
            }
        };
        let open = || File::options().create(true).append(true).open(log);
        let output = open().map_err(failed("create", log))?;
        let errors = output.try_clone().map_err(failed("create", log))?;
        let child = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "sh"])
            .arg(binary)
            .arg(name)
            .args(flags)
            .env(PARENT_PIPE.0, PARENT_PIPE.1)
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .map_err(failed("start", binary))?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    /// Returns its exit status, if it has exited.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Kills it and waits until it has exited.
    pub fn kill(&mut self) {
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }

    /// Returns its output so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Program;
    use crate::wait;

    /// The script stands in for the control plane: it ends when file descriptor 3 is closed.
    #[tokio::test]
    async fn a_program_ends_when_the_pipe_of_its_parent_closes() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let script = "echo $CONTROL_PLANE_PARENT_PIPE; cat <&3; echo end".to_owned();
        let flags = [script];
        let shell = std::path::Path::new("/bin/sh");
        let mut program = Program::start(shell, "-c", &flags, &log).unwrap();
        let started = async || program.log() == "3\n";
        let limit = Duration::from_secs(10);
        wait::until(limit, "the program", started).await.unwrap();
        assert_eq!(program.exit_status(), None);
        drop(program.child.stdin.take());
        let ended = async || program.exit_status().is_some_and(|status| status.success());
        wait::until(limit, "its end", ended).await.unwrap();
        assert_eq!(program.log(), "3\nend\n");
    }
}
