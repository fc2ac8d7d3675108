//! What the program of a project says of its native controllers.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::Value;

/// The output of `describe`, a command of every program that is built with
/// `hybrid_operator::operator::Operator`.
#[derive(Debug, Deserialize)]
pub(crate) struct Description {
    /// Definitions of the kinds that it defines.
    pub(crate) crds: Vec<Value>,
    /// Its controllers, with `name`, `group`, `version`, `kind` and `rules`.
    #[allow(dead_code, reason = "for roles")]
    pub(crate) controllers: Vec<Value>,
}

/// Builds and runs the program of a project.
pub(crate) fn describe(root: &Path) -> anyhow::Result<Description> {
    crate::print_message("building the program to read its definitions ...");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.arg("run").arg("--quiet").current_dir(root);
    if root.join("Cargo.lock").is_file() {
        command.arg("--locked");
    }
    command.args(["--", "describe"]).stderr(Stdio::inherit());
    let output = command
        .output()
        .context("cannot run cargo, which builds the native controllers; install Rust, or generate only the files of charts with --charts-only")?;
    if !output.status.success() {
        bail!(
            "'cargo run -- describe' failed in {}: correct the program, or generate only the files of charts with --charts-only",
            root.display()
        );
    }
    serde_json::from_slice(&output.stdout).with_context(|| {
        format!(
            "'cargo run -- describe' in {} printed no description; main must end with hybrid_operator::operator::Operator::main",
            root.display()
        )
    })
}

/// Returns the file name of a definition.
pub(crate) fn file_name(crd: &Value) -> Option<String> {
    let spec = crd.get("spec")?;
    let group = spec.get("group")?.as_str()?;
    let plural = spec.get("names")?.get("plural")?.as_str()?;
    Some(format!("{group}_{plural}.yaml"))
}
