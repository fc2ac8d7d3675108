//! `generate watches-schema`: the JSON schema of `watches.yaml`.

use std::io::Write;
use std::path::PathBuf;

use super::types::to_file;
use crate::generate::watches_schema::SCHEMA;

const EXAMPLES: &str = "\
Examples:
  # Write the schema, and let editors use it with this first line of watches.yaml:
  #   # yaml-language-server: $schema=watches.schema.json
  hybrid-operator generate watches-schema --output watches.schema.json";

/// Arguments of `generate watches-schema`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write nothing; print how the file differs, and exit with 3 if it does
    #[arg(long, requires = "output")]
    check: bool,
}

/// Prints, writes or checks the schema.
pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let command = "hybrid-operator generate watches-schema";
    match &args.output {
        Some(path) => to_file(path, SCHEMA, args.check, command, out),
        None => Ok(out.write_all(SCHEMA.as_bytes())?),
    }
}
