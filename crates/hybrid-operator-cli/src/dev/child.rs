//! Programs that end when this process asks them to, and when it ends in any way.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, ChildStdin, Command};

/// Runs the program of its arguments until it ends or standard input is closed, which the system
/// does when this process dies.
const SUPERVISOR: &str = r#"
exec 3<&0
"$@" </dev/null 3<&- &
child=$!
{ cat >/dev/null; kill "$child" 2>/dev/null; } <&3 >/dev/null 2>&1 &
waiter=$!
exec 3<&- </dev/null
wait "$child"
code=$?
kill "$waiter" 2>/dev/null
exit "$code"
"#;

/// A running program.
pub(super) struct Supervised {
    child: Child,
    /// The program ends when this is closed.
    alive: Option<ChildStdin>,
}

/// Returns a command that runs a program under supervision. Ctrl-c in the terminal does not reach it.
pub(super) fn supervised(program: &OsStr, arguments: &[OsString], directory: &Path) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", SUPERVISOR, "sh"])
        .arg(program)
        .args(arguments)
        .current_dir(directory)
        .stdin(Stdio::piped())
        .process_group(0);
    command
}

impl Supervised {
    /// Starts a command of [`supervised`].
    pub(super) fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.spawn()?;
        Ok(Self {
            alive: child.stdin.take(),
            child,
        })
    }

    /// Waits until the program ends.
    pub(super) async fn ended(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends the program with SIGTERM and waits for it. Returns `None` if it is still there after
    /// `within`.
    pub(super) async fn stop(mut self, within: Duration) -> Option<ExitStatus> {
        drop(self.alive.take());
        let ended = tokio::time::timeout(within, self.child.wait()).await;
        ended.ok()?.ok()
    }

    /// Takes the pipe of its standard output.
    pub(super) fn take_output(&mut self) -> Option<tokio::process::ChildStdout> {
        self.child.stdout.take()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::AsyncReadExt;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn shell(script: &str) -> Supervised {
        let arguments = ["-c".into(), script.into()];
        let mut command = supervised(OsStr::new("sh"), &arguments, Path::new("/"));
        Supervised::start(command.stdout(Stdio::piped())).unwrap()
    }

    #[tokio::test]
    async fn a_program_that_ends_gives_its_code() {
        assert_eq!(shell("exit 3").ended().await.unwrap().code(), Some(3));
    }

    #[tokio::test]
    async fn a_program_is_told_to_end_and_ends_in_its_own_way() {
        let mut program =
            shell("trap 'echo bye; exit 7' TERM; echo here; while :; do sleep 0.05; done");
        let mut output = program.take_output().unwrap();
        let mut first = [0; 5];
        output.read_exact(&mut first).await.unwrap();
        assert_eq!(&first, b"here\n");
        let ended = program.stop(LIMIT).await.unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).await.unwrap();
        assert_eq!((ended.code(), rest.as_str()), (Some(7), "bye\n"));
    }

    #[tokio::test]
    async fn a_program_ends_when_its_supervision_is_lost() {
        let mut program = shell("echo here; exec sleep 600");
        let mut output = program.take_output().unwrap();
        // As when this process dies: the pipe is closed, and nobody waits.
        drop(program);
        let mut all = String::new();
        let read = tokio::time::timeout(LIMIT, output.read_to_string(&mut all)).await;
        read.unwrap().unwrap();
        assert!(all.is_empty() || all == "here\n", "{all}");
    }
}
