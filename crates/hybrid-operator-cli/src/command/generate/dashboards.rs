//! `hybrid-operator generate dashboards`: writes a Grafana dashboard and alerts.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::Options;
use crate::dashboards::{alerts, dashboard};
use crate::files::FileSet;
use crate::generate::output::{Target, deliver, place};
use crate::project::Project;
use crate::rbac::kustomization::with_resources;

const EXAMPLES: &str = "\
Examples:
  # Write config/grafana/operator.json and config/prometheus/alerts.yaml
  hybrid-operator generate dashboards

  # Fail if they are out of date
  hybrid-operator generate dashboards --check";

/// Arguments of `generate dashboards`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory to write to, relative to the project
    #[arg(long, value_name = "DIR", default_value = "config")]
    output_dir: PathBuf,

    /// Write nothing; fail if a file is out of date
    #[arg(long)]
    check: bool,
}

impl Args {
    /// Returns the arguments of `generate` alone.
    pub(super) fn with(options: &Options) -> Self {
        Self {
            output_dir: "config".into(),
            check: options.check,
        }
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let project = Project::find(Path::new("."))?;
    let name = &project.file.project_name;
    let mut files = FileSet::default();
    let json = serde_json::to_string_pretty(&dashboard(name))
        .context("cannot write the dashboard as JSON")?;
    files.add("grafana/operator.json", json + "\n")?;
    files.add("prometheus/alerts.yaml", alerts(name))?;
    let directory = project.root.join(&args.output_dir);
    let kustomization = "prometheus/kustomization.yaml";
    if let Ok(present) = fs::read_to_string(directory.join(kustomization)) {
        let text = with_resources(&present, &["alerts.yaml".to_owned()]).with_context(|| {
            format!(
                "cannot add the alerts to {}",
                directory.join(kustomization).display()
            )
        })?;
        files.add(kustomization, text)?;
    }
    let command = "hybrid-operator generate dashboards";
    let (root, inside) = place(&project.root, &directory);
    let target = Target {
        root: &root,
        check: args.check,
        command,
    };
    deliver(&files.below(&inside)?, &target, out)
}
