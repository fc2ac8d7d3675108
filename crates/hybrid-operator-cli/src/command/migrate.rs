//! `hybrid-operator migrate [DIR]`: moves a project of the Go operators to this one.

use std::io::Write;
use std::path::PathBuf;

use hybrid_operator::watches::OverrideValuesType;

use super::diff;
use crate::ToDo;
use crate::cluster::ClusterArgs;
use crate::files::ChangeKind;
use crate::migrate::{self, Finding, Kind, Migration, Origin};
use crate::output::{ColorArgs, with_progress};
use crate::preview::print::{self, Summary};
use crate::preview::{Bindings, Resource, Source};
use crate::project::WATCHES;

const EXAMPLES: &str = "\
Examples:
  # What would change, and what must be done by hand
  hybrid-operator migrate --check ./memcached-operator

  # The same with the changes as a diff
  hybrid-operator migrate --check --diff

  # Would any release of the running operator get a new revision?
  hybrid-operator migrate --check --context production

  # Make the changes
  hybrid-operator migrate ./memcached-operator

The exit code is 3 if something must be done by hand, or a release would get a new revision. The command
changes nothing in a cluster; the operator adopts the releases of the Go operators when it starts.";

/// Arguments of `migrate`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Directory of the project, which has a watches.yaml
    #[arg(default_value = ".")]
    dir: PathBuf,

    /// Change nothing; only print what would be changed
    #[arg(long)]
    check: bool,

    /// Print the changes as a unified diff
    #[arg(long)]
    diff: bool,

    /// With --kubeconfig or --context, the releases in that cluster are compared with what this operator
    /// would deploy
    #[command(flatten)]
    cluster: ClusterArgs,

    #[command(flatten)]
    color: ColorArgs,
}

/// Migrates the project. Fails if something is left to do.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let migration = migrate::assess(&args.dir)?;
    let files = migration.files()?;
    let changes = if args.check {
        files.changes(&args.dir)?
    } else {
        files.write(&args.dir)?
    };
    let written_by = match migration.origin {
        Origin::Sdk => "operator-sdk",
        Origin::Plugins => "helm-operator-plugins",
    };
    let charts = match migration.charts {
        1 => "1 chart".to_owned(),
        many => format!("{many} charts"),
    };
    writeln!(out, "A project of {written_by} with {charts}.")?;
    let done = if args.check {
        "Would change:"
    } else {
        "Changed:"
    };
    section(out, done, &migration, Kind::Change)?;
    section(out, "To be done by hand:", &migration, Kind::ByHand)?;
    section(out, "Good to know:", &migration, Kind::Note)?;
    if args.diff {
        for change in changes {
            if let ChangeKind::Update { diff } = change.kind {
                write!(out, "\n{diff}")?;
            }
        }
    }
    let upgraded = if args.cluster.is_given() {
        releases(args, migration.origin, out)?
    } else {
        0
    };
    let left = migration.of(Kind::ByHand).count() + upgraded;
    let conclusion = match (left, migration.of(Kind::Change).count(), args.check) {
        (0, 0, _) => "\nNothing to do: this project runs with hybrid-operator as it is.",
        (0, _, true) => "\nRun 'hybrid-operator migrate' without --check to make the changes.",
        (0, _, false) => "\nBuild the image and roll it out in place of the old operator.",
        _ => "",
    };
    if !conclusion.is_empty() {
        writeln!(out, "{conclusion}")?;
    }
    if left > 0 {
        return Err(ToDo::Printed.into());
    }
    Ok(())
}

/// Compares the releases in the cluster with what this operator would deploy. Returns how many would
/// get a new revision.
fn releases(args: &Args, origin: Origin, out: &mut dyn Write) -> anyhow::Result<usize> {
    let source = Source::new(args.dir.join(WATCHES), &args.dir);
    let mut bindings = Bindings::load(source)?;
    if origin == Origin::Sdk {
        // As in the migrated file.
        bindings.change(|watch| watch.override_values_type = OverrideValuesType::String);
    }
    let compared = args.cluster.run(async |cluster| {
        let mut compared = Vec::new();
        let watches = bindings.watches().iter();
        let entries: Vec<_> = watches
            .map(|watch| {
                (
                    watch.gvk.clone(),
                    watch.selector.as_ref().map(ToString::to_string),
                )
            })
            .collect();
        for (gvk, selector) in entries {
            for object in cluster.list(&gvk, None, selector.as_deref()).await? {
                let resource = Resource::of(&object)?;
                let work = Box::pin(diff::with_release(
                    false,
                    &cluster,
                    &mut bindings,
                    &resource,
                ));
                compared.push(with_progress("comparing releases", work).await?);
            }
        }
        Ok(compared)
    })?;
    writeln!(out, "\nReleases:")?;
    if compared.is_empty() {
        writeln!(out, "  there are no custom resources")?;
    }
    let mut upgraded = 0;
    for release in compared {
        let changes = Summary::of(std::slice::from_ref(&release));
        if changes.is_empty() && !release.is_converted {
            writeln!(out, "  {}: no new revision", release.title)?;
        } else {
            upgraded += 1;
            let text = print::text(&[release], args.color.paint());
            writeln!(
                out,
                "  a new revision of {}",
                text.trim_end().replace('\n', "\n  ")
            )?;
        }
    }
    Ok(upgraded)
}

fn section(
    out: &mut dyn Write,
    title: &str,
    migration: &Migration,
    kind: Kind,
) -> std::io::Result<()> {
    let mut findings = migration.of(kind).peekable();
    if findings.peek().is_none() {
        return Ok(());
    }
    writeln!(out, "\n{title}")?;
    for Finding {
        path, line, text, ..
    } in findings
    {
        let line = line.map(|line| format!(":{line}")).unwrap_or_default();
        writeln!(out, "  {}{line}: {text}", path.display())?;
    }
    Ok(())
}
