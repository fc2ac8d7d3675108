//! `generate ring`: a ring of kubernetes-controller-sharding, whose sharder assigns custom resources to replicas.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::bail;

use super::types::to_file;
use crate::generate::inputs::{CRDS, Inputs};
use crate::generate::ring::{Resources, ring};
use crate::olm::validate::names::is_subdomain;
use crate::project::plural as regular_plural;

const EXAMPLES: &str = "\
Examples:
  # Let the replicas of an operator that is run with --shard-ring=shops share its custom resources
  hybrid-operator generate ring shops | kubectl apply -f -";

/// Arguments of `generate ring`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name of the ring: up to 63 lower case letters, digits, '-' and '.'
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,

    /// Path of the watches file [default: that of the project]
    #[arg(long, value_name = "FILE")]
    watches_file: Option<PathBuf>,

    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write nothing; print how the file differs, and exit with 3 if it does
    #[arg(long, requires = "output")]
    check: bool,
}

fn name(text: &str) -> Result<String, String> {
    if text.len() <= 63 && is_subdomain(text) {
        return Ok(text.to_owned());
    }
    Err(
        "not the name of a ControllerRing: up to 63 lower case letters, digits, '-' and '.'"
            .to_owned(),
    )
}

/// Prints, writes or checks the ring.
pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let resources = resources(args.watches_file.as_deref())?;
    let text = ring(&args.name, &resources);
    match &args.output {
        Some(path) => {
            let command = format!("hybrid-operator generate ring {}", args.name);
            to_file(path, text, args.check, &command, out)
        }
        None => Ok(out.write_all(text.as_bytes())?),
    }
}

/// Returns the kinds that the operator reconciles.
fn resources(watches_file: Option<&Path>) -> anyhow::Result<Resources> {
    let inputs = Inputs::load(watches_file, Path::new(CRDS))?;
    let charts = inputs.charts.iter().map(|chart| {
        let api = chart.api();
        (api.group.to_owned(), api.plural.to_owned())
    });
    let declared = inputs.project.iter().flat_map(|p| &p.file.resources);
    let native = declared
        .filter(|resource| resource.controller)
        .map(|resource| {
            let named = resource.plural.clone();
            let plural = named.unwrap_or_else(|| regular_plural(&resource.kind));
            (resource.full_group(), plural)
        });
    let mut resources = Resources::new();
    for (group, plural) in charts.chain(native) {
        let plurals = resources.entry(group).or_default();
        if !plurals.contains(&plural) {
            plurals.push(plural);
        }
    }
    if resources.is_empty() {
        bail!("the project has no kinds yet; add one with 'hybrid-operator create api'");
    }
    Ok(resources)
}
