//! `olm`: packages the operator for the Operator Lifecycle Manager.

mod bundle;
mod catalog;
mod pin;
mod validate;

use std::io::Write;

use clap::Subcommand;

/// Arguments of `olm`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write the bundle of a project.
    Bundle(Box<bundle::Args>),
    /// Write a file-based catalog of bundles.
    Catalog(catalog::Args),
    /// Check a bundle as 'operator-sdk bundle validate' does.
    Validate(validate::Args),
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.what {
        What::Bundle(args) => bundle::run(args, out),
        What::Catalog(args) => catalog::run(args, out),
        What::Validate(args) => validate::run(args, out),
    }
}
