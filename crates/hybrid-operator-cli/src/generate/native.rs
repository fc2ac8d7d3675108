//! Native controllers of a project, as its program describes them.

use std::cell::OnceCell;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::rbac::native::Controller;

/// The output of `describe`, a command of every program that is built with
/// `hybrid_operator::operator::Operator`.
#[derive(Debug, Deserialize)]
pub(crate) struct Description {
    /// Definitions of the kinds that it defines.
    pub(crate) crds: Vec<Value>,
    pub(crate) controllers: Vec<Controller>,
}

/// The program of a project, which is built and run once.
#[derive(Default)]
pub(crate) struct Program {
    /// The program, if it is built already.
    built: Option<PathBuf>,
    description: OnceCell<Description>,
}

impl Program {
    /// Returns the program at this path, or one that is yet to be built.
    pub(crate) fn new(built: Option<PathBuf>) -> Self {
        Self {
            built,
            description: OnceCell::new(),
        }
    }

    /// Returns whether the project in `root` is a Rust program.
    pub(crate) fn is_in(root: &Path) -> bool {
        root.join("Cargo.toml").is_file()
    }

    /// Builds and runs the program of the project in `root`, unless that was done before.
    pub(crate) fn describe(&self, root: &Path) -> anyhow::Result<&Description> {
        if let Some(description) = self.description.get() {
            return Ok(description);
        }
        let description = match &self.built {
            Some(program) => ask(Command::new(program), root, &program.display().to_string())?,
            None => describe(root)?,
        };
        Ok(self.description.get_or_init(|| description))
    }
}

fn describe(root: &Path) -> anyhow::Result<Description> {
    crate::print_message("building the program to read its definitions ...");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.arg("run").current_dir(root);
    // A first build takes minutes: people see cargo's progress.
    if !std::io::stderr().is_terminal() {
        command.arg("--quiet");
    }
    if root.join("Cargo.lock").is_file() {
        command.arg("--locked");
    }
    command.arg("--");
    ask(command, root, "cargo run --")
}

/// Runs the program and reads its description. `shown` names it in messages.
fn ask(mut command: Command, root: &Path, shown: &str) -> anyhow::Result<Description> {
    command.arg("describe").stderr(Stdio::inherit());
    let output = command.output().with_context(|| {
        format!("cannot run '{shown}', which has the native controllers; install Rust, or generate only the files of charts with --charts-only")
    })?;
    if !output.status.success() {
        bail!(
            "'{shown} describe' failed in {}: correct the program, or generate only the files of charts with --charts-only",
            root.display()
        );
    }
    serde_json::from_slice(&output.stdout).with_context(|| {
        format!(
            "'{shown} describe' in {} printed no description; main must end with hybrid_operator::operator::Operator::main",
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
