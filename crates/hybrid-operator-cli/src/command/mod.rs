//! The subcommands, a module each.

mod completion;
mod run;
mod template;
mod version;

use std::ffi::OsString;
use std::io::Write;

use clap::{Parser, Subcommand};
use hybrid_operator::options::double_dashes;

/// Kubernetes operators from Helm charts and Rust controllers.
#[derive(Parser)]
#[command(name = "hybrid-operator", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  hybrid-operator template shop ./helm-charts/shop --set replicas=2
  hybrid-operator run --watches-file ./watches.yaml
  hybrid-operator completion bash > /etc/bash_completion.d/hybrid-operator";

#[derive(Subcommand)]
enum Command {
    /// Render a chart and print what `helm template` prints.
    Template(Box<template::Args>),
    /// Run the charts of a watches file as an operator, until a signal.
    Run(Box<hybrid_operator::options::RunArgs>),
    /// Print a script that completes commands in a shell.
    Completion(completion::Args),
    /// Print the version.
    Version,
}

impl Cli {
    /// Does what was asked for.
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self.command {
            Command::Template(args) => template::run(&args, out),
            Command::Run(args) => run::run(*args),
            Command::Completion(args) => completion::run(&args, out),
            Command::Version => version::run(out),
        }
    }
}

/// The arguments with `-flag` made `--flag` for `run`, which has the flags of the Go operators;
/// elsewhere `-n prod` may be written `-nprod`.
pub(crate) fn as_in_go(arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|command| command == "run") {
        double_dashes(arguments).collect()
    } else {
        arguments
    }
}
