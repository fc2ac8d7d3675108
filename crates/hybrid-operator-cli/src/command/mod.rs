//! The subcommands, one module each.

mod completion;
mod generate;
mod generate_dashboards;
mod generate_rbac;
mod lint;
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
  hybrid-operator template shop ./helm-charts/shop --set replicas=2
  hybrid-operator run --watches-file ./watches.yaml
  hybrid-operator completion bash > /etc/bash_completion.d/hybrid-operator";

#[derive(Subcommand)]
enum Command {
    /// Render a chart, like `helm template`.
    Template(Box<template::Args>),
    /// Run an operator for the charts of a watches file.
    Run(Box<hybrid_operator::options::RunArgs>),
    /// Write the files of a project that are computed from others.
    Generate(generate::Args),
    /// Say what breaks when a chart runs under an operator.
    Lint(lint::Args),
    /// Print the completion script of a shell.
    Completion(completion::Args),
    /// Print the version.
    Version,
}

impl Cli {
    /// Runs the subcommand.
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self.command {
            Command::Template(args) => template::run(&args, out),
            Command::Run(args) => run::run(*args),
            Command::Generate(args) => generate::run(&args, out),
            Command::Lint(args) => lint::run(&args, out),
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
