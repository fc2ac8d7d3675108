//! `charts`: what the charts of a project are, and where they come from.

pub(crate) mod documents;
mod lock;
mod upgrade;
mod vendor;

use std::io::Write;

use clap::Subcommand;

/// Arguments of `charts`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write watches.lock: the exact charts that the watches file means.
    Lock(lock::Args),
    /// Copy the charts that the watches file fetches, and the documents of the web that schemas refer to, into the
    /// project.
    Vendor(vendor::Args),
    /// Bring newer versions into the copies that the project has of charts, and keep what was changed in these.
    Upgrade(upgrade::Args),
}

pub(crate) fn run(args: Args, out: &mut dyn Write) -> anyhow::Result<()> {
    match args.what {
        What::Lock(args) => lock::run(&args, out),
        What::Vendor(args) => vendor::run(&args, out),
        What::Upgrade(args) => upgrade::run(&args, out),
    }
}
