//! `version`: what this is, and what it renders like.

use std::io::Write;

use helm_core::version::HELM;

pub(crate) fn run(out: &mut dyn Write) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, "hybrid-operator {version} (renders as Helm {HELM})")?;
    Ok(())
}
