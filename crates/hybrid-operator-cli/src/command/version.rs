//! `version`: prints the version, and the version of Helm with which rendering is compatible.

use std::io::Write;

use helm_core::version::HELM;

pub(crate) fn run(out: &mut dyn Write) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, "hybrid-operator {version} (renders as Helm {HELM})")?;
    Ok(())
}
