//! `charts vendor`: copies into the project what its charts need from elsewhere: the charts that a watches file
//! fetches, and the documents of the web that schemas refer to.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use helm_core::chart::SchemaRoots;
use hybrid_operator::watches::{self, ChartSource};

use super::documents::{self, Documents};
use crate::command::chart_flags::AccessFlags;
use crate::files::FileSet;
use crate::preview::SourceArgs;
use crate::scaffold::ChartSource as LoadedChart;

const EXAMPLES: &str = "\
Examples:
  # Copy the charts of watches.yaml into helm-charts/, and say what to change in it
  hybrid-operator charts vendor

  # The same after 'charts lock --update', with the documents of schemas as they are now
  hybrid-operator charts vendor --force";

/// Arguments of `charts vendor`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Replace directories that exist, and documents of schemas that were fetched before
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

/// A chart that the watches file fetches.
struct Remote {
    chart: LoadedChart,
    digest: chart_source::Digest,
    /// Whether an entry checks values against its schemas.
    is_checked: bool,
}

/// A chart of the project, with the documents that it gets.
struct Local {
    path: PathBuf,
    files: FileSet,
    documents: Documents,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let file = args.source.find(Path::new("."))?.watches_file;
    let folder = file.parent().filter(|path| !path.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let target = folder.join(&args.output_dir);
    let entries = watches::load_with(&file, |entry| Ok((entry.chart_position, entry.watch)))?;
    let mut charts: BTreeMap<String, Remote> = BTreeMap::new();
    let mut changes = Vec::new();
    let mut own: Vec<Local> = Vec::new();
    for ((line, _), watch) in entries {
        let is_checked = !watch.skip_schema;
        let chart = match watch.chart {
            ChartSource::Local(path) => {
                if is_checked && !own.iter().any(|known| known.path == path) {
                    own.push(Local::complete(args, folder, path)?);
                }
                continue;
            }
            ChartSource::Remote(chart) => chart,
        };
        let pulled = args.access.puller(&chart)?.pull_blocking(&chart.wanted());
        let pulled = pulled.with_context(|| format!("cannot fetch the chart {chart}"))?;
        let loaded = LoadedChart::from_archive(&pulled.resolved.url, &pulled.archive, None)?;
        let name = loaded.chart.name().to_owned();
        changes.push((line, watch.gvk.kind, name.clone()));
        let digest = pulled.resolved.digest;
        let is_checked = is_checked || charts.get(&name).is_some_and(|other| other.is_checked);
        let remote = Remote {
            chart: loaded,
            digest,
            is_checked,
        };
        if let Some(other) = charts.insert(name.clone(), remote)
            && other.digest != digest
        {
            bail!(
                "two entries name different charts with the name {name}; change one of them to the \
                 same version, or vendor it with 'create api'"
            );
        }
    }
    for name in charts.keys() {
        let directory = target.join(name);
        if directory.exists() && !args.force {
            bail!("{} exists; replace it with --force", directory.display());
        }
    }
    let mut copies = Vec::new();
    for (name, mut remote) in charts {
        let documents = if remote.is_checked {
            Documents::add_to(&mut remote.chart, &[], &args.access)?
        } else {
            Documents::default()
        };
        copies.push((name, remote.chart, documents));
    }
    // Everything is fetched.
    for local in &own {
        local.files.write(&local.path)?;
        local.documents.print(&local.path, out)?;
    }
    if copies.is_empty() {
        if own.iter().all(|local| local.documents.is_empty()) {
            writeln!(
                out,
                "{} fetches no charts, and the schemas of its charts refer to no documents of the web",
                file.display()
            )?;
        }
        return Ok(());
    }
    for (name, chart, documents) in &copies {
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
        documents.print(&directory, out)?;
    }
    writeln!(out, "\nTo use them, change {}:", file.display())?;
    for (line, kind, name) in changes {
        let chart = args.output_dir.join(name);
        writeln!(out, "  line {line}, {kind}: chart: {}", chart.display())?;
    }
    Ok(())
}

impl Local {
    /// Fetches the documents that a chart of the project lacks.
    fn complete(args: &Args, project: &Path, path: PathBuf) -> anyhow::Result<Self> {
        let mut source = LoadedChart::read(&path)?;
        if !path.is_dir() {
            let refused = |url: &str| {
                format!(
                    "{url} cannot be added to {}; unpack it, and name its directory in the watches file",
                    path.display()
                )
            };
            let mut refused = |url: &str| Err(refused(url).into());
            source.chart.fetch_documents(&mut refused)?;
            return Ok(Self {
                path,
                files: FileSet::default(),
                documents: Documents::default(),
            });
        }
        let before = documents::files_of(&source);
        if args.force {
            source.remove_documents()?;
        }
        let roots = SchemaRoots::of_project(project);
        source.chart = source.chart.with_schema_roots(roots);
        let documents = Documents::add_to(&mut source, &[], &args.access)?;
        let now = documents::files_of(&source);
        let mut files = FileSet::default();
        for name in before.keys().filter(|name| !now.contains_key(*name)) {
            files.delete(name)?;
        }
        for (name, data) in &now {
            if before.get(name) != Some(data) {
                files.add(name, data.as_slice())?;
            }
        }
        Ok(Self {
            path,
            files,
            documents,
        })
    }
}
