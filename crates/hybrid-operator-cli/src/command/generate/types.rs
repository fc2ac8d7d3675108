//! `generate types`: Rust types of a chart's values, or of a spec of its own.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use helm_core::chart::Chart;

use crate::command::UsageError;
use crate::command::chart_flags::chart_path;
use crate::files::FileSet;
use crate::generate::inputs::{CRDS, Inputs};
use crate::generate::output::{Target, deliver};
use crate::generate::types;

const EXAMPLES: &str = "\
Examples:
  # Print the types of the chart that serves a kind of the project
  hybrid-operator generate types --kind Shop

  # Write those of any chart, and check in continuous integration that they are up to date
  hybrid-operator generate types --chart helm-charts/shop --output src/shop_values.rs
  hybrid-operator generate types --chart helm-charts/shop --output src/shop_values.rs --check";

/// Arguments of `generate types`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Chart directory or packaged chart (.tgz)
    #[arg(long, value_name = "PATH", value_parser = chart_path(), conflicts_with_all = ["kind", "watches_file"])]
    chart: Option<PathBuf>,

    /// Kind of the watches file; may be left out if there is only one
    #[arg(long)]
    kind: Option<String>,

    /// Watches file with the kinds and charts [default: watches.yaml of the project]
    #[arg(long, value_name = "FILE")]
    watches_file: Option<PathBuf>,

    /// Name of the outermost struct [default: `KINDValues`, `CHARTValues`, or `KINDSpec` of a kind with `api`]
    #[arg(long)]
    name: Option<String>,

    /// Write to this file instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Write nothing; print how the file differs, and exit with 3 if it does
    #[arg(long, requires = "output")]
    check: bool,
}

/// Prints, writes or checks the types.
pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let module = args.module()?;
    match &args.output {
        Some(path) => to_file(
            path,
            module,
            args.check,
            "hybrid-operator generate types",
            out,
        ),
        None => Ok(out.write_all(module.as_bytes())?),
    }
}

/// Writes one file, or checks it.
pub(super) fn to_file(
    path: &Path,
    text: impl Into<Vec<u8>>,
    check: bool,
    command: &str,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let Some(name) = path.file_name() else {
        return Err(UsageError(format!("{} is not the path of a file", path.display())).into());
    };
    let current = std::env::current_dir().context("cannot find the current directory")?;
    let root = current.join(path.parent().unwrap_or(Path::new("")));
    let mut files = FileSet::default();
    files.add(name, text)?;
    let target = Target {
        root: &root,
        check,
        command,
    };
    deliver(&files, &target, out)
}

impl Args {
    /// Returns the types of a chart's values, or of a spec of its own.
    fn module(&self) -> anyhow::Result<String> {
        let name = |of: &str, what: &str| self.name.clone().unwrap_or(format!("{of}-{what}"));
        if let Some(path) = &self.chart {
            let chart = Chart::load(path).with_context(|| {
                format!("cannot load the chart {:?}", path.display().to_string())
            })?;
            return types::module(&chart, &name(chart.name(), "Values"));
        }
        let inputs = Inputs::load(self.watches_file.as_deref(), Path::new(CRDS))?;
        let kinds: Vec<&str> = inputs.charts.iter().map(|chart| chart.api().kind).collect();
        let found = match &self.kind {
            Some(kind) => inputs.charts.iter().find(|chart| chart.api().kind == kind),
            None if inputs.charts.len() == 1 => inputs.charts.first(),
            None => None,
        };
        match (found, &self.kind) {
            (Some(found), _) => {
                let api = found.api();
                match found.spec() {
                    Some(spec) => Ok(types::module_of_spec(
                        api.kind,
                        spec,
                        &name(api.kind, "Spec"),
                    )),
                    None => types::module(api.chart, &name(api.kind, "Values")),
                }
            }
            (None, Some(kind)) => bail!(
                "no chart serves the kind {kind:?}; kinds of the watches file: {}",
                kinds.join(", ")
            ),
            (None, None) if kinds.is_empty() => {
                let message = "the watches file has no charts; name one with --chart";
                Err(UsageError(message.to_owned()).into())
            }
            (None, None) => {
                let kinds = kinds.join(", ");
                Err(UsageError(format!("choose one of the kinds with --kind: {kinds}")).into())
            }
        }
    }
}
