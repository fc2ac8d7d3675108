//! `hybrid-operator migrate [DIR]`: moves a project of the Go operators to this one.

use std::io::Write;
use std::path::PathBuf;

use crate::Exit;
use crate::files::ChangeKind;
use crate::migrate::{self, Finding, Kind, Migration, Origin};

const EXAMPLES: &str = "\
Examples:
  # What would change, and what must be done by hand
  hybrid-operator migrate --check ./memcached-operator

  # The same with the changes as a diff
  hybrid-operator migrate --check --diff

  # Make the changes
  hybrid-operator migrate ./memcached-operator

The exit code is 1 if something must be done by hand. Custom resources and releases stay as they are; the
operator adopts the releases of the Go operators when it starts.";

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
    let left = migration.of(Kind::ByHand).count();
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
        return Err(Exit::Reported.into());
    }
    Ok(())
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
