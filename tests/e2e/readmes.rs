//! Runs the commands in the READMEs of `examples/`, and compares what they print with what is shown.
//!
//! Each README has a control plane of its own, so that commands about all namespaces print what they
//! would print on the reader's. A block of ```` ```sh ```` is run line by line. If a block without a
//! language follows on the next line, it is what those commands print:
//! * the output of `kubectl get` and of other commands that only read must be shown, and is waited
//!   for;
//! * the output of other commands may be left out; if it is, they must succeed.
//!
//! `cargo run` starts the program that was built with the tests.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use futures::StreamExt;
use hybrid_operator_test::control_plane::Options;
use hybrid_operator_test::wait::{self, Check};
use hybrid_operator_test::{ControlPlane, shared_or_skip, skipped};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::world::{LIMIT, root};

/// Examples whose README is not run, each with the reason.
const EXCLUDED: &[(&str, &str)] = &[];

/// READMEs that are run at the same time, each with its own control plane.
const AT_ONCE: usize = 2;

/// Reads the name of a file with a command for each line of its input, and prints its exit code.
/// When its input ends, it ends the programs that it started.
const SHELL: &str = r#"
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
cargo() {
  local package=$PACKAGE
  [ "$1" = run ] || { echo "only cargo run is known here"; return 1; }
  shift
  while [ "$1" != -- ]; do
    [ "$1" = -p ] || { echo "unknown option of cargo run: $1"; return 1; }
    package=$2
    shift 2
  done
  shift
  [ "$package" != hybrid-operator-cli ] || package=hybrid-operator
  [[ "$*" == *bind-address* ]] ||
    set -- "$@" --metrics-bind-address=0 --health-probe-bind-address=0
  exec "$PROGRAMS/$package" "$@" >>"$DIR/operators.log" 2>&1
}
while read -r _; do
  . "$DIR/command" >"$DIR/output" 2>&1 </dev/null
  echo $?
done
"#;

/// Commands and what they print.
#[derive(Debug, PartialEq, Eq, Default)]
struct Block {
    commands: Vec<String>,
    /// `None` if the README does not show it.
    output: Option<String>,
}

/// Returns the blocks of a README.
fn blocks(readme: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut lines = readme.lines();
    // Whether the line before ended a block of commands.
    let mut follows = false;
    while let Some(line) = lines.next() {
        if !line.starts_with("```") {
            follows = false;
            continue;
        }
        let text: Vec<&str> = lines
            .by_ref()
            .take_while(|l| !l.starts_with("```"))
            .collect();
        match line {
            "```sh" => blocks.push(Block {
                commands: commands(&text),
                output: None,
            }),
            "```" if follows => {
                if let Some(block) = blocks.last_mut() {
                    block.output = Some(text.join("\n"));
                }
            }
            _ => {}
        }
        follows = line == "```sh";
    }
    blocks
}

/// Splits lines into commands: one each, unless a line ends with a backslash or begins a document.
fn commands(lines: &[&str]) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut lines = lines.iter();
    while let Some(line) = lines.next() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut command = (*line).to_owned();
        let mut add = |command: &mut String| {
            let line = lines.next()?;
            command.push('\n');
            command.push_str(line);
            Some(*line)
        };
        while command.ends_with('\\') && add(&mut command).is_some() {}
        if let Some((_, rest)) = command.clone().split_once("<<") {
            let end = rest.split_whitespace().next().unwrap_or_default();
            let end = end.trim_matches(['\'', '"', '-']);
            while add(&mut command).is_some_and(|line| line != end) {}
        }
        commands.push(command);
    }
    commands
}

/// Returns the lines of an output without what differs between two runs.
fn normalized(output: &str) -> Vec<String> {
    let line = |line: &str| {
        // kubectl names the namespace since 1.33.
        let line = match line.split_once(" deleted from ") {
            Some((object, _)) => format!("{object} deleted"),
            None => line.to_owned(),
        };
        let words: Vec<String> = line.split_whitespace().map(normalized_word).collect();
        words.join(" ")
    };
    let lines = output.lines().map(line);
    lines.filter(|line| !line.is_empty()).collect()
}

fn normalized_word(word: &str) -> String {
    let is_age = word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h', 'd'])
        && word
            .chars()
            .all(|c| c.is_ascii_digit() || "smhd".contains(c));
    if is_age {
        return "AGE".to_owned();
    }
    if word.parse::<jiff::Timestamp>().is_ok() {
        return "TIME".to_owned();
    }
    if word.parse::<std::net::Ipv4Addr>().is_ok() {
        return "IP".to_owned();
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut normalized = String::new();
    let mut rest = word;
    while let Some(c) = rest.chars().next() {
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end.max(c.len_utf8()));
        normalized.push_str(&normalized_name(name));
        rest = after;
    }
    normalized
}

/// Replaces a uid, and the suffix of the name of a Pod of a Deployment.
fn normalized_name(name: &str) -> String {
    let parts: Vec<&str> = name.split('-').collect();
    let is_hash = |text: &str| {
        text.chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    match parts.as_slice() {
        _ if lengths == [8, 4, 4, 4, 12] => "UID".to_owned(),
        // The names that the operator of etcd clusters makes up.
        [name @ .., random]
            if !name.is_empty()
                && random.len() == 6
                && random.chars().all(|c| c.is_ascii_hexdigit()) =>
        {
            format!("{}-RANDOM", name.join("-"))
        }
        [name @ .., set, pod]
            if !name.is_empty()
                && (8..=10).contains(&set.len())
                && set.contains(|c: char| c.is_ascii_digit())
                && pod.len() == 5
                && is_hash(set)
                && is_hash(pod) =>
        {
            format!("{}-POD", name.join("-"))
        }
        _ => name.to_owned(),
    }
}

fn only_reads(command: &str) -> bool {
    let reads = ["get", "describe", "logs", "events"];
    let mut words = command.split_whitespace();
    words.next() == Some("kubectl") && words.next().is_some_and(|verb| reads.contains(&verb))
}

/// A shell that runs commands one after the other in the directory of an example.
struct Shell {
    /// The shell ends when this is closed, also when this process is killed.
    stdin: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    child: Child,
    dir: tempfile::TempDir,
}

impl Shell {
    fn start(example: &Path, package: &str, kubeconfig: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut child = Command::new("bash")
            .args(["-c", SHELL])
            .current_dir(example)
            .env("KUBECONFIG", kubeconfig)
            // kubectl caches there what the API server of an address serves.
            .env("HOME", dir.path())
            .env("DIR", dir.path())
            .env("PACKAGE", package)
            .env("PROGRAMS", programs())
            .env_remove("WATCH_NAMESPACE")
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
        }
    }

    /// Runs a command; returns whether it succeeded, and its output.
    async fn run(&mut self, command: &str) -> (bool, String) {
        std::fs::write(self.dir.path().join("command"), format!("{command}\n")).unwrap();
        self.stdin.write_all(b"\n").await.unwrap();
        let code = self.answers.next_line().await.unwrap();
        let output = std::fs::read(self.dir.path().join("output")).unwrap();
        let output = String::from_utf8_lossy(&output).into_owned();
        (code.as_deref() == Some("0"), output)
    }

    /// Runs the blocks of a README. Each command may take as long as `within` until it prints what
    /// is shown.
    async fn follow(&mut self, readme: &str, within: Duration) -> Result<(), String> {
        for block in blocks(readme) {
            let shown = block.output.as_deref().map(normalized);
            let mut rest = shown.as_deref().unwrap_or_default();
            for command in &block.commands {
                let taken = self
                    .command(command, shown.as_ref().map(|_| rest), within)
                    .await?;
                rest = &rest[taken..];
            }
            if !rest.is_empty() {
                return Err(format!(
                    "no command prints this, which is shown after\n{}\n\n{}",
                    block.commands.join("\n"),
                    rest.join("\n")
                ));
            }
        }
        Ok(())
    }

    /// Runs a command until it prints what is shown next, or succeeds if its output is left out.
    /// Returns how many of the lines are its output.
    async fn command(
        &mut self,
        command: &str,
        shown: Option<&[String]>,
        within: Duration,
    ) -> Result<usize, String> {
        let what = format!("`{command}` to print what is shown");
        let run = async || {
            let (succeeded, output) = self.run(command).await;
            let printed = normalized(&output);
            match shown {
                Some(shown) if !printed.is_empty() && shown.starts_with(&printed) => {
                    Check::Met(printed.len())
                }
                Some(_) if only_reads(command) && !printed.is_empty() => Check::NotYet(output),
                _ if succeeded => Check::Met(0),
                _ => Check::NotYet(output),
            }
        };
        let result = wait::until(within, what, run).await;
        result.map_err(|error| {
            let shown = shown.unwrap_or_default().join("\n");
            let log = std::fs::read_to_string(self.dir.path().join("operators.log"));
            let log = log.unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(20).collect();
            format!(
                "{}\nprinted:\n{}\nshown:\n{shown}\nlog, newest first:\n{}",
                error.what,
                error.last,
                tail.join("\n")
            )
        })
    }

    /// Ends the programs that were started, and the shell.
    async fn end(self) {
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
fn programs() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().to_owned()
}

/// Fails if a program is missing or older than a file that it was built from.
fn is_current(package: &str) -> Result<(), String> {
    let program = programs().join(package);
    let advice = "`cargo test` builds it if the example has a test that runs it, as \
                  examples/visitors/tests/program.rs";
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

async fn follow_readme(example: &Path) -> Result<(), String> {
    let read = |file: &str| std::fs::read_to_string(example.join(file)).unwrap();
    let (readme, manifest) = (read("README.md"), read("Cargo.toml"));
    let name = manifest
        .lines()
        .find_map(|line| line.strip_prefix("name = \""));
    let package = name.unwrap().trim_end_matches('"');
    is_current(package)?;
    let plane = match ControlPlane::start(Options::default()).await {
        Ok(plane) => plane,
        Err(error) => return Err(error.to_string()),
    };
    let mut shell = Shell::start(example, package, plane.kubeconfig_path());
    let result = shell.follow(&readme, LIMIT).await;
    shell.end().await;
    result
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_readmes_print_what_is_shown() {
    if shared_or_skip().await.unwrap().is_none() {
        return;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|dir| dir.join("kubectl").is_file()) {
        skipped(1, &"there is no kubectl in $PATH");
        return;
    }
    let mut examples = Vec::new();
    for example in std::fs::read_dir(root().join("examples")).unwrap() {
        let example = example.unwrap().path();
        let name = example.file_name().unwrap().to_string_lossy().into_owned();
        let excluded = EXCLUDED.iter().find(|(excluded, _)| *excluded == name);
        if let Some((_, reason)) = excluded {
            skipped(1, &format!("examples/{name}/README.md: {reason}"));
        } else if example.join("README.md").is_file() {
            examples.push(example);
        }
    }
    let runs = examples.iter().map(async |example| {
        let result = follow_readme(example).await;
        let failed = |error| format!("{}: {error}", example.display());
        result.map_err(failed).err()
    });
    let ended = futures::stream::iter(runs).buffer_unordered(AT_ONCE);
    let failed: Vec<String> = ended.filter_map(std::future::ready).collect().await;
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Follows a README in which `kubectl` is a function of the shell.
async fn follow(text: &str) -> Result<(), String> {
    let kubectl = "```sh\nkubectl() { echo \"NAME   AGE\"; echo \"$2   3s\"; }\n```\n";
    let mut shell = Shell::start(root(), "none", Path::new("none"));
    let readme = format!("{kubectl}{text}");
    let result = shell.follow(&readme, Duration::from_millis(200)).await;
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
        let result = follow(&format!("{sh}{shown}")).await;
        assert_eq!(result.is_ok(), right, "{shown}: {result:?}");
    }
    assert!(follow("```sh\nfalse\n```\n").await.is_err());
}

#[test]
fn commands_are_single_lines_continued_lines_and_documents() {
    let readme =
        "```sh\n# a comment\none \\\n  more\ncat <<END\ntext\nEND\nlast\n```\n```\nout\n```\n";
    let block = Block {
        commands: ["one \\\n  more", "cat <<END\ntext\nEND", "last"]
            .map(str::to_owned)
            .to_vec(),
        output: Some("out".to_owned()),
    };
    assert_eq!(blocks(readme), [block]);
}

#[test]
fn ages_times_and_random_names_are_not_compared() {
    for (output, expected) in [
        ("a   4s\n\nb   1m3s", "a AGE|b AGE"),
        ("pod/cache-58d5bdf78f-54dtg   1/1", "pod/cache-POD 1/1"),
        (r#"["cache-58d5bdf78f-54dtg","b"]"#, r#"["cache-POD","b"]"#),
        ("pod/etcd-sample-f26f37", "pod/etcd-sample-RANDOM"),
        ("2030-01-02T03:04:05Z PENDING", "TIME PENDING"),
        ("10.96.3.4 8000/TCP", "IP 8000/TCP"),
        (
            "secret \"a\" deleted from default namespace",
            "secret \"a\" deleted",
        ),
        (
            "site-frontend memcached-sample",
            "site-frontend memcached-sample",
        ),
    ] {
        assert_eq!(normalized(output).join("|"), expected);
    }
}
