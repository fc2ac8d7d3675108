//! `charts lock`: writes the exact charts that a watches file means beside it.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Context as _;
use helm_core::chart::{Chart, Limits};
use hybrid_operator::watches::{self, ChartSource, Lock, LockedChart, RemoteChart};

use crate::ToDo;
use crate::command::chart_flags::AccessFlags;
use crate::files::FileSet;
use crate::preview::SourceArgs;

const EXAMPLES: &str = "\
Examples:
  # Lock the charts that are not locked yet
  hybrid-operator charts lock

  # Take the newest versions in the ranges of the watches file
  hybrid-operator charts lock --update

  # In CI: fail if the lock does not match the watches file; needs no network
  hybrid-operator charts lock --check";

/// Arguments of `charts lock`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Look for newer versions of charts that are locked already
    #[arg(long)]
    update: bool,

    /// Write nothing and send no requests; fail if the lock does not match the watches file
    #[arg(long, conflicts_with = "update")]
    check: bool,

    #[command(flatten)]
    source: SourceArgs,

    #[command(flatten)]
    access: AccessFlags,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let file = args.source.find(Path::new("."))?.watches_file;
    let path = Lock::path(&file);
    let name = path.file_name().context("the watches file has no name")?;
    if args.check {
        // Finds entries that are not in the lock, or differ from it.
        let watches = watches::load(&file)?;
        let charts = remote(watches.into_iter().map(|watch| watch.chart));
        return check(&charts, &file, out);
    }
    let watches = watches::load_unlocked(&file)?;
    let charts = remote(watches.into_iter().map(|watch| watch.chart));
    // A malformed lock is replaced.
    let before = match Lock::read(&file) {
        Ok(lock) => lock.unwrap_or_default(),
        Err(watches::LockError::Malformed { .. }) => Lock::default(),
        Err(error) => return Err(error.into()),
    };
    let mut lock = Lock::default();
    for chart in &charts {
        if let Some(known) = lock.find(chart) {
            // Another entry has the same chart, with another key.
            verified(chart, known, &args.access)?;
            continue;
        }
        let known = before.find(chart).filter(|known| {
            let digest = chart.reference.digest;
            !args.update && digest.is_none_or(|digest| digest == known.digest)
        });
        let locked = match known {
            Some(known) => verified(chart, known, &args.access)?,
            None => resolve(chart, &args.access)?,
        };
        say(before.find(chart), &locked, out)?;
        lock.charts.push(locked);
    }
    lock.charts.sort_by(|a, b| a.reference.cmp(&b.reference));
    for stale in stale(&before, &charts) {
        writeln!(out, "removed {}", stale.reference)?;
    }
    if charts.is_empty() {
        if path.exists() {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        writeln!(out, "{} fetches no charts", file.display())?;
        return Ok(());
    }
    let mut files = FileSet::default();
    files.add(name, lock.to_yaml()?)?;
    let folder = path.parent().filter(|path| !path.as_os_str().is_empty());
    files.write(folder.unwrap_or(Path::new(".")))?;
    Ok(())
}

/// Returns the charts that are fetched, each once for each key with which it must be signed.
pub(super) fn remote(charts: impl Iterator<Item = ChartSource>) -> Vec<RemoteChart> {
    let mut found: Vec<RemoteChart> = Vec::new();
    for chart in charts {
        if let ChartSource::Remote(chart) = chart
            && !found
                .iter()
                .any(|known| known.reference == chart.reference && known.verify == chart.verify)
        {
            found.push(*chart);
        }
    }
    found
}

/// Fails if the lock has other charts than the watches file.
fn check(charts: &[RemoteChart], file: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let lock = Lock::read(file)?;
    let path = Lock::path(file);
    // Without a lock, exact versions are accepted by the operator.
    if lock.is_none() && !charts.is_empty() {
        let message = format!(
            "{} is missing; write it with 'hybrid-operator charts lock'",
            path.display()
        );
        return Err(ToDo::Message(message).into());
    }
    let lock = lock.unwrap_or_default();
    if let Some(stale) = stale(&lock, charts).first() {
        let message = format!(
            "{} has {}, which {} does not name; run 'hybrid-operator charts lock'",
            path.display(),
            stale.reference,
            file.display()
        );
        return Err(ToDo::Message(message).into());
    }
    writeln!(out, "{} charts are locked", lock.charts.len())?;
    Ok(())
}

/// Returns what a lock has for charts that the watches file does not name.
fn stale<'a>(lock: &'a Lock, charts: &[RemoteChart]) -> Vec<&'a LockedChart> {
    let is_named = |locked: &&LockedChart| {
        let mut keys = charts.iter().map(|chart| chart.reference.key());
        keys.any(|key| key == locked.reference)
    };
    let locked = lock.charts.iter();
    locked.filter(|locked| !is_named(locked)).collect()
}

/// Finds the chart that a reference means, and checks that it is one.
fn resolve(chart: &RemoteChart, flags: &AccessFlags) -> anyhow::Result<LockedChart> {
    let pulled = flags.puller(chart)?.pull_blocking(&chart.reference);
    let pulled = pulled.with_context(|| format!("cannot fetch the chart {chart}"))?;
    let unpacked = Chart::from_archive(&pulled.archive, &Limits::default())
        .with_context(|| format!("cannot load the chart {}", pulled.resolved.url))?;
    let mut locked = LockedChart::new(chart, &pulled.resolved);
    let version = || unpacked.metadata().version.clone();
    locked.version = Some(locked.version.unwrap_or_else(version));
    Ok(locked)
}

/// Returns what is locked. If the chart must be signed, it is verified, with a request if it is not in the
/// cache.
fn verified(
    chart: &RemoteChart,
    known: &LockedChart,
    flags: &AccessFlags,
) -> anyhow::Result<LockedChart> {
    if flags.verifies(chart) {
        let locked = RemoteChart {
            locked: Some(known.clone()),
            ..chart.clone()
        };
        let pulled = flags.puller(chart)?.pull_blocking(&locked.wanted());
        pulled.with_context(|| format!("cannot fetch the chart {locked}"))?;
    }
    Ok(known.clone())
}

fn say(before: Option<&LockedChart>, now: &LockedChart, out: &mut dyn Write) -> anyhow::Result<()> {
    let version = |locked: &LockedChart| locked.version.clone().unwrap_or_default();
    let (name, new) = (&now.reference, version(now));
    match before {
        None => writeln!(out, "locked {name} at {new}")?,
        Some(before) if before == now => writeln!(out, "kept {name} at {new}")?,
        Some(before) if before.version == now.version => {
            writeln!(out, "updated {name}: {new} has another digest now")?;
        }
        Some(before) => writeln!(out, "updated {name} from {} to {new}", version(before))?,
    }
    Ok(())
}
