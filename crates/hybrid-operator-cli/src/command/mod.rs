//! The subcommands, a file each.

mod completion;
mod run;
mod show;
mod template;
mod values;
mod version;

use clap::{Parser, Subcommand};

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
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Template(args) => template::run(&args),
            Command::Run(args) => run::run(*args),
            Command::Completion(args) => completion::run(&args),
            Command::Version => version::run(),
        }
    }
}
