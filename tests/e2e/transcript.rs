//! Runs the commands of a document, and compares what they print with what is shown.
//!
//! A block of ```` ```sh ```` is run line by line, in one shell. If a block without a language follows
//! on the next line, it is what those commands print; a line `...` in it stands for any lines:
//! * the output of `kubectl get` and of other commands that only read must be shown, and is waited
//!   for;
//! * the output of other commands may be left out; if it is, they must succeed.
//!
//! A block of ```` ```sh NAME ```` has one command, which is started in a terminal of its own, in the
//! same directory. The block after it, and later blocks of ```` ```text NAME ````, have lines that it
//! prints next; other lines in between are allowed. `^C` before such a line is ctrl-c: the command
//! must then print that line and end with exit code 0.

mod document;
mod normalized;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use hybrid_operator_test::wait::{self, Check};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::world::{LIMIT, root};

use document::{blocks, found_in, shown_of};
use normalized::normalized;

/// Time for a command to end: some of them compile.
const LONGEST: Duration = Duration::from_mins(15);

/// Reads the name of a file with a command for each line of its input, and prints its exit code.
/// When its input ends, it ends the programs that it started.
const SHELL: &str = r#"
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
while read -r _; do
  . "$DIR/command" >"$DIR/output" 2>&1 </dev/null
  echo $?
done
"#;

fn only_reads(command: &str) -> bool {
    let programs = ["kubectl", "hybrid-operator"];
    let reads = [
        "diff", "describe", "events", "get", "history", "logs", "status", "template", "why",
    ];
    let mut words = command.split_whitespace();
    words.next().is_some_and(|word| programs.contains(&word))
        && words.next().is_some_and(|word| reads.contains(&word))
}

/// Returns the first line of `shown` that is not printed, in this order; `...` stands for lines that are left out.
pub(crate) fn prints(printed: &str, shown: &str) -> Result<(), String> {
    let mut shown = normalized(shown);
    shown.retain(|line| line != "...");
    found_in(&shown, &normalized(printed)).map(drop)
}

/// A shell that runs commands one after the other.
pub(crate) struct Shell {
    /// The shell ends when this is closed, also when this process is killed.
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    child: Child,
    dir: tempfile::TempDir,
    /// The commands in terminals of their own: how many lines of each were compared.
    terminals: BTreeMap<String, usize>,
    /// Text of outputs that is shown differently, and how.
    replaced: Vec<(String, &'static str)>,
}

impl Shell {
    /// Starts a shell in a directory. `functions` is text of the shell that is run before; its
    /// directory `$DIR` is `$HOME`, too, unless `environment` has another.
    pub(crate) fn start(at: &Path, functions: &str, environment: &[(&str, &OsStr)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Started in the background of a script, the tests ignore ctrl-c, and so would whatever they start: a shell
        // cannot trap a signal that was ignored when it began.
        let mut child = Command::new("env")
            .args(["--default-signal=INT", "bash", "-c"])
            .arg(format!("{functions}{SHELL}"))
            .current_dir(at)
            // kubectl caches there what the API server of an address serves.
            .env("HOME", dir.path())
            .env("DIR", dir.path())
            .env_remove("WATCH_NAMESPACE")
            // For test programs only: with another value, everything is compiled again.
            .env_remove("RUSTC_BOOTSTRAP")
            // Of `make test`: `make` in the document would print the directories it enters.
            .env_remove("MAKELEVEL")
            .env_remove("MAKEFLAGS")
            .env_remove("MFLAGS")
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().unwrap();
        Self {
            stdin: child.stdin.take().unwrap(),
            answers: BufReader::new(stdout).lines(),
            child,
            dir,
            terminals: BTreeMap::new(),
            replaced: Vec::new(),
        }
    }

    /// Shows a text of outputs as another one.
    pub(crate) fn replacing(mut self, text: String, shown: &'static str) -> Self {
        self.replaced.push((text, shown));
        self
    }

    /// Runs a command; returns whether it succeeded, and its output.
    async fn run(&mut self, command: &str) -> (bool, String) {
        std::fs::write(self.dir.path().join("command"), format!("{command}\n")).unwrap();
        self.stdin.write_all(b"\n").await.unwrap();
        let code = self.answers.next_line().await.unwrap();
        (code.as_deref() == Some("0"), self.output("output"))
    }

    /// Returns what was written to a file.
    fn output(&self, file: &str) -> String {
        let output = std::fs::read(self.dir.path().join(file)).unwrap_or_default();
        let mut output = String::from_utf8_lossy(&output).into_owned();
        for (text, shown) in &self.replaced {
            output = output.replace(text, shown);
        }
        output
    }

    /// Runs the blocks of a document. Each command that only reads may take as long as `within`
    /// until it prints what is shown.
    pub(crate) async fn follow(&mut self, document: &str, within: Duration) -> Result<(), String> {
        for block in blocks(document) {
            if let Some(terminal) = &block.terminal {
                self.start_in(terminal, &block.commands).await;
                let shown = block.output.unwrap_or_default();
                self.terminal_prints(terminal, &shown, within).await?;
                continue;
            }
            let shown = block.output.as_deref().map(normalized);
            let mut rest = shown.as_deref().unwrap_or_default();
            for (index, command) in block.commands.iter().enumerate() {
                // What is still shown then can only be the output of the last command.
                let prints = index + 1 == block.commands.len() && !rest.is_empty();
                let taken = self
                    .command(command, shown.as_ref().map(|_| rest), prints, within)
                    .await?;
                rest = &rest[taken..];
            }
            if !rest.is_empty() {
                return Err(format!(
                    "no command prints this, which is shown after\n{}\n\n{}\n\nthe last one printed:\n{}",
                    block.commands.join("\n"),
                    rest.join("\n"),
                    self.output("output")
                ));
            }
        }
        Ok(())
    }

    /// Runs a command until it prints what is shown next, or succeeds if its output is left out.
    /// `prints` tells that it must print something. Returns how many of the lines are its output.
    async fn command(
        &mut self,
        command: &str,
        shown: Option<&[String]>,
        prints: bool,
        within: Duration,
    ) -> Result<usize, String> {
        let mut run = async || {
            let (succeeded, output) = self.run(command).await;
            let printed = normalized(&output);
            let taken = shown.filter(|_| !printed.is_empty());
            match taken.and_then(|shown| shown_of(shown, &printed)) {
                Some(taken) => Check::Met(taken),
                None if shown.is_some()
                    && only_reads(command)
                    && (prints || !printed.is_empty()) =>
                {
                    Check::NotYet(output)
                }
                None if succeeded => Check::Met(0),
                None => Check::NotYet(output),
            }
        };
        let first = tokio::time::timeout(LONGEST, run()).await;
        if let Ok(Check::Met(taken)) = first {
            return Ok(taken);
        }
        let what = format!("`{command}` to print what is shown");
        let result = wait::until(within, what, run).await;
        result.map_err(|error| {
            let shown = shown.unwrap_or_default().join("\n");
            format!(
                "{}\nprinted:\n{}\nshown:\n{shown}\n{}",
                error.what,
                error.last,
                self.logs()
            )
        })
    }

    /// Starts a command in a terminal of its own.
    async fn start_in(&mut self, terminal: &str, command: &[String]) {
        for command in command {
            // As in a terminal, it has a process group, to which ctrl-c goes.
            let start = format!(
                "set -m\n{{ exec {command}\n}} >\"$DIR/{terminal}.log\" 2>&1 </dev/null &\n\
                 {terminal}=$!\nset +m"
            );
            self.run(&start).await;
            self.terminals.insert(terminal.to_owned(), 0);
        }
    }

    /// Waits until the command in a terminal has printed what is shown, and with `^C` in it, ends it.
    async fn terminal_prints(
        &mut self,
        terminal: &str,
        shown: &str,
        within: Duration,
    ) -> Result<(), String> {
        let (before, after) = match shown.split_once("^C") {
            Some((before, after)) => (before, Some(after)),
            None => (shown, None),
        };
        self.wait_for(terminal, &normalized(before), within).await?;
        let Some(after) = after else {
            return Ok(());
        };
        self.run(&format!("kill -INT -- -${terminal}")).await;
        self.wait_for(terminal, &normalized(after), within).await?;
        let ended = tokio::time::timeout(within, self.run(&format!("wait ${terminal}"))).await;
        match ended {
            Ok((true, _)) => Ok(()),
            Ok((false, _)) => Err(format!("{terminal} failed after ctrl-c\n{}", self.logs())),
            Err(_) => Err(format!(
                "{terminal} did not end after ctrl-c\n{}",
                self.logs()
            )),
        }
    }

    async fn wait_for(
        &mut self,
        terminal: &str,
        shown: &[String],
        within: Duration,
    ) -> Result<(), String> {
        let file = format!("{terminal}.log");
        let Some(compared) = self.terminals.get(terminal).copied() else {
            return Err(format!("nothing was started in the terminal {terminal}"));
        };
        let found = async || {
            let printed = normalized(&self.output(&file));
            found_in(shown, printed.get(compared..).unwrap_or_default())
        };
        let found = wait::until(within, "a line", found).await;
        let found = found.map_err(|error| {
            format!(
                "{terminal} does not print this line next: {}\n{}",
                error.last,
                self.logs()
            )
        })?;
        self.terminals.insert(terminal.to_owned(), compared + found);
        Ok(())
    }

    /// Returns the last lines of the logs.
    fn logs(&self) -> String {
        let terminals = self.terminals.keys().map(String::as_str);
        let logs = terminals.chain(["operators"]).map(|name| {
            let log = self.output(&format!("{name}.log"));
            let last: Vec<&str> = log.lines().rev().take(20).collect();
            format!("log of {name}, newest first:\n{}\n", last.join("\n"))
        });
        logs.collect::<String>()
    }

    /// Ends the programs that were started, and the shell.
    pub(crate) async fn end(self) {
        let Self {
            stdin,
            mut child,
            dir,
            ..
        } = self;
        drop(stdin);
        let ended = tokio::time::timeout(LIMIT, child.wait()).await;
        assert!(ended.unwrap().unwrap().success());
        drop(dir);
    }
}

/// Returns the directory of the programs that were built with this test.
pub(crate) fn programs() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().to_owned()
}

/// Fails if a program is missing or older than a file that it was built from.
pub(crate) fn is_current(package: &str) -> Result<(), String> {
    let program = programs().join(package);
    let advice = "`cargo test` builds it if its package has a test that runs it, as \
                  examples/visitors/tests/program.rs; `cargo build --workspace --bins` does too";
    let modified = |path: &Path| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    let Some(built) = modified(&program) else {
        return Err(format!("{} is missing; {advice}", program.display()));
    };
    let files = std::fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let mut files = files.split_whitespace().skip(1);
    match files.find(|file| modified(Path::new(file)).is_some_and(|changed| changed > built)) {
        Some(file) => Err(format!(
            "{} is older than {file}; {advice}",
            program.display()
        )),
        None => Ok(()),
    }
}

/// Returns whether the commands of documents can be run.
pub(crate) fn has_kubectl() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join("kubectl").is_file())
}

/// Time for what never happens.
const SHORT: Duration = Duration::from_millis(200);

/// Follows a document in which `kubectl` is a function of the shell.
async fn follow(text: &str, within: Duration) -> Result<(), String> {
    let kubectl = "kubectl() { echo \"NAME   AGE\"; echo \"$2   3s\"; }\n";
    let mut shell = Shell::start(root(), kubectl, &[]);
    let result = shell.follow(text, within).await;
    shell.end().await;
    result
}

#[tokio::test]
async fn a_wrong_line_in_a_readme_is_found() {
    let sh = "```sh\nmkdir -p $DIR/a\necho changed\nkubectl get one\n```\n";
    for (shown, right) in [
        ("```\nNAME AGE\none 12s\n```\n", true),
        ("```\nchanged\nNAME AGE\none 1m3s\n```\n", true),
        ("", true),
        ("Text in between.\n```\nnothing\n```\n", true),
        ("```\nNAME AGE\ntwo 3s\n```\n", false),
        ("```\nNAME AGE\n```\n", false),
        ("```\nchanged\n```\n", false),
        ("```\nunchanged\nNAME AGE\none 3s\n```\n", false),
        ("```\nNAME AGE\none 3s\nthree 3s\n```\n", false),
    ] {
        let result = follow(&format!("{sh}{shown}"), SHORT).await;
        assert_eq!(result.is_ok(), right, "{shown}: {result:?}");
    }
    assert!(follow("```sh\nfalse\n```\n", SHORT).await.is_err());
}

#[tokio::test]
async fn an_output_that_comes_late_is_waited_for() {
    let late = "```sh\nkubectl() { cat $DIR/late 2>/dev/null || echo done >$DIR/late; }\n\
                kubectl get late\n```\n```\ndone\n```\n";
    assert_eq!(follow(late, LIMIT).await, Ok(()));
    let never = "```sh\nkubectl() { true; }\nkubectl get one\n```\n```\ndone\n```\n";
    assert!(follow(never, SHORT).await.is_err());
}

#[tokio::test]
async fn a_terminal_of_its_own_runs_beside_the_others_and_ends_with_ctrl_c() {
    // bash misses a signal that arrives just as the builtin `wait` begins; between commands it misses none.
    let script = "trap 'echo down; exit 0' INT TERM\necho up\nwhile :; do sleep 0.05; done\n";
    let serve = |end: &str| {
        format!(
            "```sh\ncd $DIR\ncat >serve <<'END'\n{script}END\n```\n\
             ```sh web\nbash serve\n```\n```\nup\n```\n```sh\ntrue\n```\n\
             ```text web\n{end}\n```\n"
        )
    };
    assert_eq!(follow(&serve("^Cdown"), LIMIT).await, Ok(()));
    for wrong in ["down", "^Cup", "^Cdown\nmore"] {
        assert!(follow(&serve(wrong), SHORT).await.is_err(), "{wrong}");
    }
    let unknown = follow("```text web\nup\n```\n", SHORT).await.unwrap_err();
    assert_contains!(unknown, "nothing was started");
}
