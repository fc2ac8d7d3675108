//! `generate samples`: custom resources with the charts' defaults.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::Options;
use crate::files::FileSet;
use crate::generate::inputs::{CRDS, Inputs, WatchedChart};
use crate::generate::output::{Target, deliver, place};
use crate::generate::{sample, samples};

/// Directory of the samples, relative to the project.
pub(super) const SAMPLES: &str = "config/samples";

const EXAMPLES: &str = "\
Examples:
  # Write config/samples/GROUP_VERSION_KIND.yaml for each kind that has none
  hybrid-operator generate samples

  # Replace samples that were edited
  hybrid-operator generate samples --force";

/// Arguments of `generate samples`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    options: Options,

    /// Directory of the samples [default: config/samples of the project]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Replace samples that exist. Without it, they are kept as they are
    #[arg(long)]
    force: bool,
}

impl Args {
    /// Returns the arguments of `generate` alone.
    pub(super) fn with(options: &Options) -> Self {
        Self {
            options: options.clone(),
            output_dir: None,
            force: false,
        }
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let current = std::env::current_dir().context("cannot find the current directory")?;
    let options = &args.options;
    let inputs = Inputs::load(options.watches_file.as_deref(), Path::new(CRDS))?;
    let directory = match &args.output_dir {
        Some(directory) => current.join(directory),
        None => inputs.root.join(SAMPLES),
    };
    let (root, prefix) = place(&inputs.root, &directory);
    let mut files = FileSet::default();
    for chart in &inputs.charts {
        let (name, text) = sample_of(chart)?;
        let path = prefix.join(name);
        // A sample is edited by hand.
        if args.force || !root.join(&path).exists() {
            files.add(path, text)?;
        }
    }
    let target = Target {
        root: &root,
        check: options.check,
        command: "hybrid-operator generate samples",
    };
    deliver(&files, &target, out)
}

/// Returns the sample of a kind, with its file name.
pub(super) fn sample_of(chart: &WatchedChart) -> anyhow::Result<(String, String)> {
    let api = chart.api();
    let text = match chart.spec() {
        Some(spec) => samples::sample_of_spec(&api, spec)?,
        None => sample(&api)?,
    };
    Ok((samples::file_name(api.group, api.version, api.kind), text))
}
