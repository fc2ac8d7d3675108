//! `image check`: what the certification of images says of one.

use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;

use crate::ToDo;
use crate::image::archive;
use crate::image::checks::{Verdict, checks};

/// Arguments of `image`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Say what Red Hat's preflight would say of images.
    Check(Check),
}

const EXAMPLES: &str = "\
Examples:
  # An image of this machine
  docker save example.com/shop-operator:v1.0.0 --output image.tar
  hybrid-operator image check image.tar";

/// Arguments of `image check`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
struct Check {
    /// Directories with an OCI layout, or archives of 'docker save' or 'podman save'
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Checks the images, and prints one line per check.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let What::Check(args) = &args.what;
    let mut failed = 0;
    for file in &args.files {
        let image = archive::read(file)?;
        if args.files.len() > 1 {
            writeln!(out, "{}:", file.display())?;
        }
        for (name, verdict) in checks(&image) {
            match verdict {
                Verdict::Passed => writeln!(out, "passed   {name}")?,
                Verdict::NotRun(why) => writeln!(out, "not run  {name}: {why}")?,
                Verdict::Failed(why) => {
                    failed += 1;
                    writeln!(out, "FAILED   {name}: {why}")?;
                }
            }
        }
    }
    if failed > 0 {
        return Err(ToDo::Printed.into());
    }
    Ok(())
}
