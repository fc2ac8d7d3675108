//! Follows `docs/tutorial.md` in an empty directory, as a newcomer does, and compares what each command
//! prints with what is shown.
//!
//! Different from a newcomer's machine are only: `curl` copies the chart from the charts of the
//! comparison with Helm, which are not part of this repository, and cargo shares the compiled
//! dependencies of the tests.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use hybrid_operator_test::{shared_or_skip, skipped};

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
fn archives() -> Option<PathBuf> {
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
fn program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns the directory of a tool of Rust, which is in the home directory unless a variable names it.
fn rust_home(variable: &str, in_home: &str) -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default());
    std::env::var_os(variable).map_or_else(|| home().join(in_home), PathBuf::from)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newcomer_who_follows_the_tutorial_sees_what_it_shows() {
    if shared_or_skip().await.unwrap().is_none() {
        return;
    }
    let Some(archives) = archives() else {
        return skipped(1, &"public charts: no conformance folder");
    };
    if !has_kubectl() {
        return skipped(1, &"there is no kubectl in $PATH");
    }
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
    symlink(root(), home.join("hybrid-operator")).unwrap();

    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = [bin, programs()]
        .into_iter()
        .chain(std::env::split_paths(&path));
    let path = std::env::join_paths(path).unwrap();
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
    let text = fs::read_to_string(root().join("docs/tutorial.md")).unwrap();
    let mut shell =
        Shell::start(&home, "", &environment).replacing(home.display().to_string(), HOME);
    let result = shell.follow(&text, LIMIT).await;
    shell.end().await;
    if let Err(error) = result {
        panic!("docs/tutorial.md: {error}");
    }
}
