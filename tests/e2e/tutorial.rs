//! Follows the pages of the tutorial and the guides in `docs/` in an empty directory, as a newcomer does, and
//! compares what each command prints with what is shown.
//!
//! Different from a newcomer's machine are only: `curl` copies a chart of this repository that has the objects
//! which the page shows, and then the public chart, which is not part of this repository; and cargo shares the
//! compiled dependencies of the tests.
//!
//! Commands in blocks of ```` ```console ```` are not run: they need what a test does not have, such as a
//! registry. They are counted.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use hybrid_operator_test::{shared_or_skip, skipped};

use crate::helm_cli::helm;
use crate::transcript::{Shell, has_kubectl, is_current, programs};
use crate::world::{LIMIT, root};

/// The directory of the newcomer in the document.
const HOME: &str = "/home/me";

/// Copies the last part of a URL from the archives.
const CURL: &str = "#!/bin/sh\nfor url; do :; done\nexec cp \"$ARCHIVES/${url##*/}\" .\n";

/// Takes the versions of dependencies that the tests were compiled with.
const CARGO: &str =
    "#!/bin/sh\n[ -e Cargo.lock ] || cp \"$LOCKED\" Cargo.lock\nexec \"$REAL_CARGO\" \"$@\"\n";

/// Returns the folder of packed charts.
pub(crate) fn archives() -> Option<PathBuf> {
    let folder = std::env::var_os("CONFORMANCE")
        .map_or_else(|| root().join("../shared/conformance"), PathBuf::from);
    let archives = fs::canonicalize(folder.join("charts/archives")).ok()?;
    archives.is_dir().then_some(archives)
}

/// Returns cargo's configuration of the newcomer: the profiles and the target directory of the tests.
fn cargo_config() -> String {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, profile) = manifest.split_once("[profile.dev]").unwrap();
    let (profile, _) = profile.split_once("[profile.release]").unwrap();
    let programs = programs();
    let target = programs.parent().unwrap().display();
    format!("[build]\ntarget-dir = \"{target}\"\n[net]\noffline = true\n[profile.dev]{profile}")
}

/// Writes a program of the newcomer.
pub(crate) fn program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns `$PATH` of somebody with the programs of a folder, and those that were built with this test.
pub(crate) fn path_with(bin: PathBuf) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = [bin, programs()].into_iter();
    std::env::join_paths(all.chain(std::env::split_paths(&path))).unwrap()
}

/// Returns the directory of a tool of Rust, which is in the home directory unless a variable names it.
fn rust_home(variable: &str, in_home: &str) -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    std::env::var_os(variable).map_or_else(|| home().join(in_home), PathBuf::from)
}

/// Pages that are followed one after the other. The last section of the first one, which cleans up, comes
/// last.
const START: &[&str] = &[
    "tutorial/start.md",
    "guides/releases.md",
    "guides/tenants.md",
    "guides/charts.md",
];

/// The parts of the tutorial.
const TUTORIAL: &[&str] = &["tutorial/charts.md", "tutorial/native.md"];

/// The chart of the tutorial.
const CHART: &str = "podinfo-6.14.1.tgz";

/// Pages that `redis_page` and `migrating` follow.
const OTHERS: &[&str] = &["tutorial/redis.md", "guides/migrating.md"];

/// Pages whose commands are examples.
const EXAMPLES: &[&str] = &[
    "guides/api.md",
    "guides/outputs.md",
    "guides/troubleshooting.md",
];

/// Pages about clusters, projects and files that readers have, with commands to be copied.
const COPIED: &[&str] = &[
    "guides/deploying.md",
    "guides/native.md",
    "guides/operations.md",
    "guides/watches.md",
];

pub(crate) fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// The directory of a newcomer, with a shell in it.
pub(crate) struct Newcomer {
    shell: Shell,
    /// Deleted at the end.
    _directory: tempfile::TempDir,
}

impl Newcomer {
    /// Makes the directory. `archives` has the charts that `curl` copies, `helm` is the program.
    pub(crate) fn new(archives: &Path, helm: Option<&Path>) -> Self {
        for name in ["hybrid-operator", "control-plane"] {
            is_current(name).unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        let machine = fs::canonicalize(directory.path()).unwrap();
        let (home, bin) = (machine.join("home"), machine.join("bin"));
        for folder in [&home, &bin, &machine.join(".cargo")] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(machine.join(".cargo/config.toml"), cargo_config()).unwrap();
        program(&bin.join("curl"), CURL);
        program(&bin.join("cargo"), CARGO);
        if let Some(helm) = helm {
            symlink(helm, bin.join("helm")).unwrap();
        }
        symlink(root(), home.join("hybrid-operator")).unwrap();

        let path = path_with(bin);
        let (cargo_home, rustup_home) = (
            rust_home("CARGO_HOME", ".cargo"),
            rust_home("RUSTUP_HOME", ".rustup"),
        );
        let locked = root().join("Cargo.lock");
        let environment: [(&str, &OsStr); 9] = [
            ("HOME", home.as_os_str()),
            ("PATH", &path),
            ("ARCHIVES", archives.as_os_str()),
            ("LOCKED", locked.as_os_str()),
            ("REAL_CARGO", env!("CARGO").as_ref()),
            // dev and generate run this cargo.
            ("CARGO", "cargo".as_ref()),
            ("CARGO_HOME", cargo_home.as_os_str()),
            ("RUSTUP_HOME", rustup_home.as_os_str()),
            ("KUBECONFIG", "".as_ref()),
        ];
        let shell = Shell::start(&home, "", &environment);
        Self {
            shell: shell.replacing(home.display().to_string(), HOME),
            _directory: directory,
        }
    }

    /// Follows texts one after the other, each with the name of its page.
    pub(crate) async fn follow(mut self, texts: &[(&str, String)]) {
        let mut result = Ok(());
        for (name, text) in texts {
            result = self.shell.follow(text, LIMIT).await;
            if let Err(error) = &mut result {
                *error = format!("docs/{name}: {error}");
                break;
            }
        }
        self.shell.end().await;
        if let Err(error) = result {
            panic!("{error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_who_follows_the_tutorial_sees_what_it_shows() {
    if shared_or_skip().await.unwrap().is_none() {
        return;
    }
    if !has_kubectl() {
        return skipped(1, &"there is no kubectl in $PATH");
    }
    let parts: Vec<(&str, String)> = TUTORIAL.iter().map(|name| (*name, page(name))).collect();
    let packed = tempfile::tempdir().unwrap();
    let tar = Command::new("tar")
        .arg("czf")
        .arg(packed.path().join(CHART))
        .arg("-C")
        .arg(root().join("tests/e2e"))
        .arg("podinfo")
        .status();
    assert!(tar.unwrap().success());
    Newcomer::new(packed.path(), None).follow(&parts).await;
    // One after the other: both projects have the same program.
    match archives().filter(|archives| archives.join(CHART).is_file()) {
        Some(archives) => Newcomer::new(&archives, None).follow(&parts).await,
        None => skipped(1, &"the public chart podinfo: no conformance folder"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_who_follows_the_start_and_the_guides_sees_what_they_show() {
    if shared_or_skip().await.unwrap().is_none() {
        return;
    }
    let Some(helm) = helm() else { return };
    if !has_kubectl() {
        return skipped(1, &"there is no kubectl in $PATH");
    }
    let mut texts: Vec<(&str, String)> = START.iter().map(|name| (*name, page(name))).collect();
    let (first, end) = texts[0].1.split_once("## Clean up\n").unwrap();
    let (first, end) = (first.to_owned(), end.to_owned());
    texts[0].1 = first;
    texts.push((START[0], end));
    Newcomer::new(root(), Some(&helm)).follow(&texts).await;
}

/// Returns the number of commands of a page that are examples.
fn examples(text: &str) -> usize {
    let blocks = text.split("```console\n").skip(1);
    // `demo.rs` compares that one with what the demo prints.
    let blocks = blocks.filter(|block| !block.starts_with("$ make demo\n"));
    let commands = blocks.flat_map(|block| block.split("```").next().unwrap_or_default().lines());
    commands.filter(|line| line.starts_with("$ ")).count()
}

/// Returns the number of lines of commands that readers copy from a page.
fn to_copy(text: &str) -> usize {
    let blocks = text.split("```sh\n").skip(1);
    let lines = blocks.flat_map(|block| block.split("```").next().unwrap_or_default().lines());
    examples(text) + lines.count()
}

#[test]
fn commands_that_are_not_run_are_counted() {
    assert_eq!(
        examples("```console\n$ a\nb\n$ c\n```\n$ d\n```sh\n$ e\n```\n"),
        2
    );
    let followed = || START.iter().chain(TUTORIAL).chain(OTHERS);
    let all = followed().chain(EXAMPLES);
    let examples = all.map(|name| (*name, examples(&page(name))));
    let copied = COPIED.iter().map(|name| (*name, to_copy(&page(name))));
    for (name, count) in examples.chain(copied).filter(|(_, count)| *count > 0) {
        skipped(count, &format!("commands of docs/{name} that are examples"));
    }
    // All other commands on these pages are run.
    for name in EXAMPLES {
        assert!(!page(name).contains("```sh"), "docs/{name} is not run");
    }
    for folder in ["guides", "tutorial"] {
        for entry in fs::read_dir(root().join("docs").join(folder)).unwrap() {
            let name = entry.unwrap().file_name();
            let name = format!("{folder}/{}", name.to_string_lossy());
            let mut known = followed().chain(EXAMPLES).chain(COPIED);
            assert!(known.any(|known| *known == name), "docs/{name} is not run");
        }
    }
}
