//! `hybrid-operator generate chart`: writes a Helm chart of the operator itself.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::generate::output::{Target, deliver, place};
use crate::operator_chart::{self, Choices};
use crate::project::Project;

const EXAMPLES: &str = "\
Examples:
  # Write dist/chart from config/
  hybrid-operator generate chart

  # The chart of a release, then its package
  hybrid-operator generate chart --version 1.2.0 --image registry.example.com/shop-operator:v1.2.0
  helm package dist/chart";

/// Arguments of `generate chart`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory of the chart, relative to the project
    #[arg(long, value_name = "DIR", default_value = "dist/chart")]
    output_dir: PathBuf,

    /// Version of the chart [default: that of the present Chart.yaml, else that of the image's tag]
    #[arg(long)]
    version: Option<String>,

    /// Image of the operator [default: that of config/manager]
    #[arg(long)]
    image: Option<String>,

    /// Write nothing; fail if a file is out of date
    #[arg(long)]
    check: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let project = Project::find(Path::new("."))?;
    let directory = project.root.join(&args.output_dir);
    let path = directory.join("Chart.yaml");
    let present = match fs::read(&path) {
        Ok(text) => Some(
            go_yaml::from_slice(&text)
                .with_context(|| format!("{} is not valid YAML", path.display()))?,
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => {
            return Err(error).with_context(|| format!("cannot read {}", path.display()));
        }
    };
    let choices = Choices {
        version: args.version.clone(),
        image: args.image.clone(),
    };
    let files = operator_chart::generate(&project, &choices, present.as_ref())?;
    let (root, inside) = place(&project.root, &directory);
    let target = Target {
        root: &root,
        check: args.check,
        command: "hybrid-operator generate chart",
    };
    let files = if inside.as_os_str().is_empty() {
        files
    } else {
        files.below(&inside)?
    };
    deliver(&files, &target, out)
}
