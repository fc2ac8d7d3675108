//! `generate health`: how Argo CD and Flux judge custom resources.

use std::io::Write;
use std::path::PathBuf;

use anyhow::bail;
use clap::ArgGroup;
use hybrid_operator::watches::{self, Watch};

use crate::generate::health::Kinds;
use crate::generate::inputs::Place;

const EXAMPLES: &str = "\
Examples:
  # Let Argo CD wait until the custom resources of this project are ready
  hybrid-operator generate health --argocd > health.yaml
  kubectl patch configmap argocd-cm --namespace argocd --patch-file health.yaml

  # For the spec of a Kustomization of Flux, of one kind alone
  hybrid-operator generate health --flux --kind Shop

  # Without a PROJECT file
  hybrid-operator generate health --argocd --watches-file watches.yaml";

/// Arguments of `generate health`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, group = ArgGroup::new("program").required(true))]
pub(crate) struct Args {
    /// Print health checks for the ConfigMap `argocd-cm` of Argo CD
    #[arg(long, group = "program")]
    argocd: bool,

    /// Print the field `healthCheckExprs` of a `Kustomization` or `HelmRelease` of Flux
    #[arg(long, group = "program")]
    flux: bool,

    /// Only this kind [default: all kinds of the watches file]
    #[arg(long)]
    kind: Option<String>,

    /// Watches file with the kinds [default: watches.yaml of the project]
    #[arg(long, value_name = "FILE")]
    watches_file: Option<PathBuf>,
}

/// Prints the health checks.
pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let place = Place::find(args.watches_file.as_deref())?;
    let watches = watches::load(&place.watches_file)?;
    let kind = args.kind.as_deref();
    let is_asked = |watch: &&Watch| kind.is_none_or(|kind| watch.gvk.kind == kind);
    let kinds = Kinds::of(watches.iter().filter(is_asked));
    if kinds.is_empty() {
        match kind {
            Some(kind) => bail!(
                "no chart serves the kind {kind:?}; kinds of the watches file: {}",
                Kinds::of(&watches)
            ),
            None => bail!(
                "{} has no kinds; add one with 'hybrid-operator create api'",
                place.watches_file.display()
            ),
        }
    }
    let text = if args.argocd {
        kinds.for_argocd()
    } else {
        kinds.for_flux()
    };
    Ok(out.write_all(text.as_bytes())?)
}
