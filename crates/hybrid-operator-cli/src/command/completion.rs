//! `completion`: prints completion scripts for shells.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;

/// Arguments of `completion`.
#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  hybrid-operator completion bash > /etc/bash_completion.d/hybrid-operator"
)]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(
        args.shell,
        &mut Cli::command(),
        "hybrid-operator",
        &mut script,
    );
    out.write_all(&script)?;
    Ok(())
}
