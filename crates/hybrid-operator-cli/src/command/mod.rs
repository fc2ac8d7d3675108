//! The subcommands, one module each.

pub(crate) mod ask;
mod chart_flags;
mod charts;
pub(crate) mod completion;
mod cosign_flags;
mod create;
mod dev;
mod diff;
mod events;
mod generate;
mod get;
mod history;
mod image;
mod init;
mod lint;
mod man;
mod migrate;
mod olm;
mod preview_flags;
#[cfg(test)]
mod reference;
pub(crate) mod renamed;
mod rollback;
mod row;
mod run;
mod status;
mod target;
mod template;
mod tree;
mod verbs;
mod version;
mod why;

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
  # A project with a chart, run in a cluster of its own
  hybrid-operator init --domain example.com --project-name shop-operator --plugins helm
  hybrid-operator create api --group shop --version v1 --kind Shop --helm-chart ./shop
  hybrid-operator dev

  # What a custom resource would change, and the state of all releases
  hybrid-operator diff shop.yaml
  hybrid-operator status";

#[derive(Subcommand)]
enum Command {
    /// Write the files of a new project into the current directory.
    Init(Box<init::Args>),
    /// Add a kind or webhooks to the project.
    Create(create::Args),
    /// Write the CRDs, roles, samples and other files of a project.
    Generate(Box<generate::Args>),
    /// Package the operator for the Operator Lifecycle Manager.
    Olm(olm::Args),
    /// Check images of operators.
    Image(image::Args),
    /// Lock the charts of repositories and registries, copy them into the project, or upgrade these copies.
    Charts(Box<charts::Args>),
    /// Run a project in a cluster, and follow its files.
    Dev(dev::Args),
    /// Run an operator for the charts of a watches file.
    Run(Box<hybrid_operator::options::RunArgs>),
    /// Render a chart like `helm template`, or what the operator would deploy for a custom resource.
    Template(Box<template::Args>),
    /// Show what a custom resource, or a change of the project, would change.
    Diff(Box<diff::Args>),
    /// Say what breaks when a chart runs under an operator.
    Lint(Box<lint::Args>),
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
    /// Say why a custom resource is not ready, what the operator does next, and what helps.
    Why(Box<why::Args>),
    #[command(flatten)]
    Verb(Box<verbs::Verb>),
    /// Move a project of operator-sdk or helm-operator-plugins to this operator.
    Migrate(migrate::Args),
    /// Print the completion script of a shell.
    Completion(completion::Args),
    /// Print or write manual pages.
    #[command(hide = true)]
    Man(man::Args),
    /// Print the version.
    Version,
}

/// Wrong usage of the command: a flag is missing or wrong, whatever files and clusters contain.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

impl UsageError {
    /// Returns an error about a flag or an argument, with its causes.
    pub(crate) fn of(error: impl Into<anyhow::Error>) -> Self {
        Self(format!("{:#}", error.into()))
    }
}

impl Cli {
    pub(crate) fn run(self, out: &mut dyn Write) -> anyhow::Result<()> {
        match self.command {
            Command::Init(args) => init::run(*args, out),
            Command::Create(args) => create::run(args, out),
            Command::Generate(args) => generate::run(&args, out),
            Command::Charts(args) => charts::run(*args, out),
            Command::Dev(args) => dev::run(args, out),
            Command::Run(args) => run::run(*args),
            Command::Template(args) => template::run(&args, out),
            Command::Diff(args) => diff::run(&args, out),
            Command::Lint(args) => lint::run(&args, out),
            Command::Status(args) => status::run(&args, out),
            Command::History(args) => history::run(&args, out),
            Command::Rollback(args) => rollback::run(&args, out),
            Command::Get(args) => get::run(&args, out),
            Command::Events(args) => events::run(&args, out),
            Command::Why(args) => why::run(&args, out),
            Command::Verb(verb) => verbs::run(&verb, out),
            Command::Migrate(args) => migrate::run(&args, out),
            Command::Olm(args) => olm::run(&args, out),
            Command::Image(args) => image::run(&args, out),
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
