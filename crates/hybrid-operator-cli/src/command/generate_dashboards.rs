//! placeholder
use std::io::Write;
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}
pub(crate) fn run(_: &Args, _: &mut dyn Write) -> anyhow::Result<()> { Ok(()) }
