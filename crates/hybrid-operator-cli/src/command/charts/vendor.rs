//! `charts vendor`: copies the charts that a watches file fetches into the project.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use hybrid_operator::watches::{self, ChartSource};

use crate::command::chart_flags::AccessFlags;
use crate::files::FileSet;
use crate::preview::SourceArgs;
use crate::scaffold::ChartSource as LoadedChart;

const EXAMPLES: &str = "\
Examples:
  # Copy the charts of watches.yaml into helm-charts/, and say what to change in it
  hybrid-operator charts vendor

  # The same after 'charts lock --update'
  hybrid-operator charts vendor --force";

/// Arguments of `charts vendor`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Replace directories that exist
    #[arg(long)]
    force: bool,

    /// Directory of the charts, relative to that of the watches file
    #[arg(long, value_name = "DIR", default_value = "helm-charts")]
    output_dir: PathBuf,

    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    access: AccessFlags,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let file = args.source.find(Path::new("."))?.watches_file;
    let folder = file.parent().filter(|path| !path.as_os_str().is_empty());
    let target = folder.unwrap_or(Path::new(".")).join(&args.output_dir);
    let entries = watches::load_with(&file, |entry| Ok((entry.chart_position, entry.watch)))?;
    let mut charts = BTreeMap::new();
    let mut changes = Vec::new();
    for ((line, _), watch) in entries {
        let ChartSource::Remote(chart) = watch.chart else {
            continue;
        };
        let pulled = args.access.puller(&chart)?.pull_blocking(&chart.wanted());
        let pulled = pulled.with_context(|| format!("cannot fetch the chart {chart}"))?;
        let loaded = LoadedChart::from_archive(&pulled.resolved.url, &pulled.archive, None)?;
        let name = loaded.chart.name().to_owned();
        changes.push((line, watch.gvk.kind, name.clone()));
        let digest = pulled.resolved.digest;
        if let Some((_, other)) = charts.insert(name.clone(), (loaded, digest))
            && other != digest
        {
            bail!(
                "two entries name different charts with the name {name}; change one of them to the \
                 same version, or vendor it with 'create api'"
            );
        }
    }
    if charts.is_empty() {
        writeln!(out, "{} fetches no charts", file.display())?;
        return Ok(());
    }
    for name in charts.keys() {
        let directory = target.join(name);
        if directory.exists() && !args.force {
            bail!("{} exists; replace it with --force", directory.display());
        }
    }
    for (name, (chart, _)) in &charts {
        let directory = target.join(name);
        let mut files = FileSet::default();
        for (path, data) in chart.own_files() {
            files.add(path, data)?;
        }
        if directory.exists() {
            fs::remove_dir_all(&directory)
                .with_context(|| format!("cannot remove {}", directory.display()))?;
        }
        files.write(&directory)?;
        writeln!(out, "copied {}", directory.display())?;
    }
    writeln!(out, "\nTo use them, change {}:", file.display())?;
    for (line, kind, name) in changes {
        let chart = args.output_dir.join(name);
        writeln!(out, "  line {line}, {kind}: chart: {}", chart.display())?;
    }
    Ok(())
}
