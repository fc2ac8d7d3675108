//! `dev`: runs a project in a cluster while it is being written.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::dev;
use crate::project::Project;

const EXAMPLES: &str = "\
Examples:
  hybrid-operator dev
  hybrid-operator dev --kubeconfig ~/.kube/kind --no-samples
  hybrid-operator dev --log-file operator.log

A kubeconfig is used only if --kubeconfig or KUBECONFIG names one. Without it, dev starts a control
plane with the program 'control-plane', which it looks for in HYBRID_CONTROL_PLANE, beside itself, on
the PATH, and in the checkout of hybrid-operator that the project's Cargo.toml depends on. Without
that, it makes a cluster with kind, k3d or minikube, and deletes it at the end.";

/// Arguments of `dev`.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Use the cluster of this kubeconfig instead of a new one.
    #[arg(long, env = "KUBECONFIG", hide_env_values = true, value_name = "FILE")]
    kubeconfig: Option<OsString>,
    /// Do not ask before a cluster that is not of this machine is changed.
    #[arg(short, long)]
    yes: bool,
    /// Do not apply the files in config/samples.
    #[arg(long)]
    no_samples: bool,
    /// Append the log of the operator to this file [default: a temporary file on terminals, else standard error]
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
}

pub(crate) fn run(args: Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let project = Project::find(Path::new("."))?;
    let terminal = io::stdout().is_terminal();
    let log = match args.log_file {
        Some(path) => Some(std::path::absolute(path).context("cannot find the log file")?),
        None if terminal => Some(temporary_log()?),
        None => None,
    };
    let options = dev::Options {
        root: project.root,
        kubeconfig: args.kubeconfig.filter(|paths| !paths.is_empty()),
        yes: args.yes,
        samples: !args.no_samples,
        log,
        terminal,
    };
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(dev::run(options, out))
}

/// Returns a new file, which is kept.
fn temporary_log() -> anyhow::Result<PathBuf> {
    let file = tempfile::Builder::new()
        .prefix("hybrid-operator-dev-")
        .suffix(".log")
        .tempfile()
        .context("cannot create a file for the log; name one with --log-file")?;
    let (_, path) = file.keep().context("cannot keep the file for the log")?;
    Ok(path)
}
