//! `version`: what this is, and what it renders like.

use std::io::Write;

/// The release of Helm whose output is reproduced.
const HELM: &str = "v4.3.1";

pub(crate) fn run() -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    writeln!(
        std::io::stdout(),
        "hybrid-operator {version} (renders as Helm {HELM})"
    )?;
    Ok(())
}
