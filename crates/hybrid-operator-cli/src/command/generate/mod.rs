//! `generate`: writes CRDs, samples and other files of a project.

mod chart;
mod crds;
mod dashboards;
mod health;
mod protection;
mod rbac;
mod ring;
mod samples;
mod types;
mod watches_schema;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use helm_core::chart::Chart;

use crate::ToDo;
use crate::files::FileSet;
use crate::generate::inputs::{CRDS, Inputs};
use crate::generate::native::Program;
use crate::generate::schema::Strictness;
use crate::project::{DASHBOARD, Project};

pub(super) use rbac::ci_values;

const EXAMPLES: &str = "\
Examples:
  # All files of the project of this directory, and whether they are up to date
  hybrid-operator generate
  hybrid-operator generate --check

  # Only the CRDs, and what breaks in comparison with the last release
  hybrid-operator generate crds --compat v1.2.0

  # Rust types of a chart's values
  hybrid-operator generate types --chart helm-charts/shop --output src/shop_values.rs";

/// Arguments of `generate`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    options: Options,
}

/// Options of all generators of project files.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Options {
    /// Watches file with the kinds and charts [default: watches.yaml of the project]
    #[arg(long, value_name = "FILE")]
    pub(crate) watches_file: Option<PathBuf>,

    /// Write nothing; print how files differ, and exit with 3 if any does
    #[arg(long)]
    pub(crate) check: bool,

    /// Leave out what needs the program of the project, which is built for it
    #[arg(long)]
    pub(crate) charts_only: bool,

    /// Built program of the project, which has the native controllers; without it, cargo builds it
    #[arg(long, value_name = "FILE", conflicts_with = "charts_only")]
    pub(crate) program: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Write a Helm chart of the operator itself.
    Chart(chart::Args),
    /// Write the CRDs of charts and of native controllers.
    Crds(crds::Args),
    /// Write the roles that the operator needs for its charts and native controllers.
    Rbac(rbac::Args),
    /// Write a Grafana dashboard and alerts for the operator's metrics.
    Dashboards(dashboards::Args),
    /// Write samples of custom resources with the charts' defaults.
    Samples(samples::Args),
    /// Write policies that refuse the deletion of protected custom resources.
    Protection(protection::Args),
    /// Print a ring of kubernetes-controller-sharding, whose sharder assigns custom resources to replicas.
    Ring(ring::Args),
    /// Print Rust types of a chart's values, or of a spec of its own.
    Types(types::Args),
    /// Print how Argo CD and Flux judge custom resources.
    Health(health::Args),
    /// Print the JSON schema of watches.yaml, for editors.
    WatchesSchema(watches_schema::Args),
}

/// Runs one generator, or all that write files of the project.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let program = Program::new(match &args.what {
        Some(What::Crds(args)) => args.options.program.clone(),
        Some(What::Rbac(args)) => args.program.clone(),
        Some(_) => None,
        None => args.options.program.clone(),
    });
    match &args.what {
        Some(What::Chart(args)) => chart::run(args, out),
        Some(What::Crds(args)) => crds::run(args, &program, out),
        Some(What::Rbac(args)) => rbac::run(args, &program, out),
        Some(What::Dashboards(args)) => dashboards::run(args, out),
        Some(What::Samples(args)) => samples::run(args, out),
        Some(What::Protection(args)) => protection::run(args, out),
        Some(What::Ring(args)) => ring::run(args, out),
        Some(What::Types(args)) => types::run(args, out),
        Some(What::Health(args)) => health::run(args, out),
        Some(What::WatchesSchema(args)) => watches_schema::run(args, out),
        None => all(&args.options, &program, out),
    }
}

/// Runs all generators. With `--check`, each one prints its differences before the first error is
/// returned; files that are out of date are reported only if there is no other error.
fn all(options: &Options, program: &Program, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut out = Counted { out, bytes: 0 };
    let mut results = vec![
        crds::run(&crds::Args::with(options), program, &mut out),
        rbac::run(&rbac::Args::with(options), program, &mut out),
        samples::run(&samples::Args::with(options), &mut out),
        protection::run(&protection::Args::with(options), &mut out),
    ];
    // 'init --with monitoring' writes them first.
    let project = Project::find(Path::new("."));
    if project.is_ok_and(|project| project.root.join(DASHBOARD).is_file()) {
        results.push(dashboards::run(&dashboards::Args::with(options), &mut out));
    }
    let errors = results.into_iter().filter_map(Result::err);
    let (to_do, failed): (Vec<_>, Vec<_>) = errors.partition(anyhow::Error::is::<ToDo>);
    if let Some(error) = failed.into_iter().chain(to_do).next() {
        return Err(error);
    }
    if out.bytes == 0 {
        writeln!(out, "all files are up to date")?;
    }
    Ok(())
}

/// Returns the CRDs and samples of the kinds of the watches file, with these charts in place of those of the directories,
/// which are relative to the project.
pub(super) fn of_charts(charts: &BTreeMap<PathBuf, Chart>) -> anyhow::Result<FileSet> {
    let crds = Path::new(CRDS);
    let inputs = Inputs::load_with(None, crds, charts)?;
    let mut files = crds::of_charts(&inputs, crds, Strictness::default())?;
    for chart in &inputs.charts {
        let (name, text) = samples::sample_of(chart)?;
        files.add(Path::new(samples::SAMPLES).join(name), text)?;
    }
    Ok(files)
}

/// Counts what is written.
struct Counted<'a> {
    out: &'a mut dyn Write,
    bytes: usize,
}

impl Write for Counted<'_> {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(text)?;
        self.bytes += written;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
