//! Runs the commands in the READMEs of `examples/`, and compares what they print with what is shown.
//!
//! Each README has a control plane of its own, so that commands about all namespaces print what they
//! would print on the reader's. `cargo run` starts the program that was built with the tests.

use std::ffi::OsStr;
use std::path::Path;

use futures::StreamExt;
use hybrid_operator_test::control_plane::Options;
use hybrid_operator_test::{ControlPlane, shared_or_skip, skipped};

use crate::transcript::{Shell, has_kubectl, is_current, programs};
use crate::world::{LIMIT, root};

/// Examples whose README is not run, each with the reason.
const EXCLUDED: &[(&str, &str)] = &[];

/// READMEs that are run at the same time, each with its own control plane.
const AT_ONCE: usize = 2;

/// Runs the program that was built with the tests in place of `cargo run`.
const CARGO: &str = r#"
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
"#;

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
    let programs = programs();
    let environment: [(&str, &OsStr); 3] = [
        ("KUBECONFIG", plane.kubeconfig_path().as_os_str()),
        ("PACKAGE", package.as_ref()),
        ("PROGRAMS", programs.as_os_str()),
    ];
    let mut shell = Shell::start(example, CARGO, &environment);
    let result = shell.follow(&readme, LIMIT).await;
    shell.end().await;
    result
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_readmes_print_what_is_shown() {
    if shared_or_skip().await.unwrap().is_none() {
        return;
    }
    if !has_kubectl() {
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
