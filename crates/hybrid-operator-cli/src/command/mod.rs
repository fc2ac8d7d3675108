//! The subcommands, one module each.

mod ask;
mod completion;
mod create;
mod init;
mod run;
mod template;
mod version;

use std::ffi::OsString;
use std::io::Write;

use clap::{Parser, Subcommand};
use hybrid_operator::options::double_dashes;

/// Run Helm charts and Rust controllers as a Kubernetes operator.
#[derive(Parser)]
#[command(name = "hybrid-operator", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  hybrid-operator init --domain example.com --project-name shop-operator
  hybrid-operator template shop ./helm-charts/shop --set replicas=2
  hybrid-operator run --watches-file ./watches.yaml
  hybrid-operator completion bash > /etc/bash_completion.d/hybrid-operator";

#[derive(Subcommand)]
enum Command {
    /// Write the files of a new project into the current directory.
    Init(Box<init::Args>),
    /// Add a kind or webhooks to the project.
    Create(create::Args),
    /// Render a chart, like `helm template`.
    Template(Box<template::Args>),
    /// Run an operator for the charts of a watches file.
    Run(Box<hybrid_operator::options::RunArgs>),
    /// Print the completion script of a shell.
    Completion(completion::Args),
    /// Print the version.
    Version,
}

/// Wrong usage of the command: something is missing that flags must say.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

impl Cli {
    /// Runs the subcommand.
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self.command {
            Command::Init(args) => init::run(*args, out),
            Command::Create(args) => create::run(args, out),
            Command::Template(args) => template::run(&args, out),
            Command::Run(args) => run::run(*args),
            Command::Completion(args) => completion::run(&args, out),
            Command::Version => version::run(out),
        }
    }
}

/// Converts `-flag` to `--flag` for `run`, which accepts the flags of the Go operators. The other
/// subcommands have short flags with values, such as `-nprod`.
pub(crate) fn normalize_flags(arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|command| command == "run") {
        double_dashes(arguments).collect()
    } else {
        arguments
    }
}
