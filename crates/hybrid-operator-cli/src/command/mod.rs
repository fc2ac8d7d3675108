//! The subcommands, one module each.

mod completion;
mod diff;
mod events;
mod get;
mod history;
mod images;
mod man;
mod preview_flags;
mod rollback;
mod run;
mod status;
mod target;
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
  hybrid-operator status shop/main
  hybrid-operator completion bash > /etc/bash_completion.d/hybrid-operator";

#[derive(Subcommand)]
enum Command {
    /// Render a chart like `helm template`, or what the operator would deploy for a custom resource.
    Template(Box<template::Args>),
    /// Show what a custom resource, or a change of the project, would change.
    Diff(Box<diff::Args>),
    /// List the container images of what the operator would deploy.
    Images(Box<images::Args>),
    /// Show custom resources and their releases.
    Status(Box<status::Args>),
    /// Show the revisions of a release.
    History(Box<history::Args>),
    /// Set the spec of a custom resource back to the values of a revision.
    Rollback(Box<rollback::Args>),
    /// Print the values, manifest, notes or hooks of a release.
    Get(Box<get::Args>),
    /// Show the events of a custom resource and of the objects of its release.
    Events(Box<events::Args>),
    /// Run an operator for the charts of a watches file.
    Run(Box<hybrid_operator::options::RunArgs>),
    /// Print the completion script of a shell.
    Completion(completion::Args),
    /// Print or write manual pages.
    Man(man::Args),
    /// Print the version.
    Version,
}

impl Cli {
    /// Runs the subcommand.
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self.command {
            Command::Template(args) => template::run(&args, out),
            Command::Diff(args) => diff::run(&args, out),
            Command::Images(args) => images::run(&args, out),
            Command::Status(args) => status::run(&args, out),
            Command::History(args) => history::run(&args, out),
            Command::Rollback(args) => rollback::run(&args, out),
            Command::Get(args) => get::run(&args, out),
            Command::Events(args) => events::run(&args, out),
            Command::Run(args) => run::run(*args),
            Command::Completion(args) => completion::run(&args, out),
            Command::Man(args) => man::run(&args, out),
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
