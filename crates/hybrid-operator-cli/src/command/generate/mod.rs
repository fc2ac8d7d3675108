//! `hybrid-operator generate WHAT`: writes the files of a project that are computed from others.

use std::io::Write;

use clap::Subcommand;

use super::{generate_dashboards, generate_rbac};

/// Arguments of `generate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write the roles that the operator needs for its charts
    Rbac(generate_rbac::Args),
    /// Write a Grafana dashboard and alerts for the operator's metrics
    Dashboards(generate_dashboards::Args),
}

/// Runs the generator.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.what {
        What::Rbac(args) => generate_rbac::run(args, out),
        What::Dashboards(args) => generate_dashboards::run(args, out),
    }
}
