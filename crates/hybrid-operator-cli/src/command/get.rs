//! `get values|manifest|notes|hooks KIND/NAME`: content of a release, printed as `helm get` does.

use std::io::Write;

use anyhow::Context as _;
use clap::{Subcommand, ValueEnum};
use helm_core::chart::{Chart, File};
use helm_core::release::Release as Record;
use helm_core::values::{self, Values};

use super::target::TargetArgs;
use crate::output::{self, Format};

const EXAMPLES: &str = "\
Examples:
  hybrid-operator get values shop/main
  hybrid-operator get values shop/main --all --output json
  hybrid-operator get manifest shop/main --revision 3";

/// Arguments of `get`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the values that the operator computed from the custom resource.
    Values {
        #[command(flatten)]
        revision: RevisionArgs,

        /// Print all values, with the defaults of the chart
        #[arg(short, long)]
        all: bool,

        /// Format of the output; `table` is YAML with a heading
        #[arg(
            short,
            long,
            value_name = "FORMAT",
            value_enum,
            default_value = "table"
        )]
        output: ValuesFormat,
    },
    /// Print the manifest of the release.
    Manifest(RevisionArgs),
    /// Print the notes of the release.
    Notes(RevisionArgs),
    /// Print the hooks of the release.
    Hooks(RevisionArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ValuesFormat {
    /// YAML with a heading
    Table,
    /// JSON
    Json,
    /// YAML
    Yaml,
}

#[derive(Debug, clap::Args)]
struct RevisionArgs {
    #[command(flatten)]
    target: TargetArgs,

    /// Revision [default: the newest one]
    #[arg(long)]
    revision: Option<u32>,
}

impl RevisionArgs {
    fn record(&self) -> anyhow::Result<Record> {
        self.target.run(async |_, selected| {
            let info = selected.revision(self.revision)?;
            let record = selected.records.load(info).await;
            record.context("cannot read the release record")
        })
    }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    match &args.what {
        What::Values {
            revision,
            all,
            output,
        } => print_values(&revision.record()?, *all, *output, out),
        What::Manifest(revision) => {
            writeln!(out, "{}", revision.record()?.manifest)?;
            Ok(())
        }
        What::Notes(revision) => {
            let notes = revision.record()?.info.notes;
            if !notes.is_empty() {
                writeln!(out, "NOTES:\n{notes}")?;
            }
            Ok(())
        }
        What::Hooks(revision) => {
            for hook in &revision.record()?.hooks {
                writeln!(out, "---\n# Source: {}\n{}", hook.path, hook.manifest)?;
            }
            Ok(())
        }
    }
}

fn print_values(
    record: &Record,
    all: bool,
    format: ValuesFormat,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let shown = if all {
        coalesced(record)?
    } else {
        record.config.clone()
    };
    let format = match format {
        ValuesFormat::Json => Format::Json,
        ValuesFormat::Yaml => Format::Yaml,
        ValuesFormat::Table => {
            let heading = if all { "COMPUTED" } else { "USER-SUPPLIED" };
            writeln!(out, "{heading} VALUES:")?;
            Format::Yaml
        }
    };
    output::print_data(format, &shown, out)?;
    Ok(())
}

/// Returns the values of a record with the defaults of its chart, which include those of its
/// dependencies.
fn coalesced(record: &Record) -> anyhow::Result<Values> {
    let defaults = record.chart.as_ref().and_then(|chart| chart.values.clone());
    let defaults = go_yaml::to_string(&defaults.unwrap_or_default());
    let defaults = defaults.context("cannot write the values of the chart")?;
    let chart = Chart::from_files([
        File::new(
            "Chart.yaml",
            "apiVersion: v2\nname: values\nversion: 0.0.0\n",
        ),
        File::new("values.yaml", defaults),
    ]);
    let chart = chart.context("cannot read the values of the chart")?;
    let merged = values::coalesce(&chart, record.config.clone());
    Ok(merged.context("cannot merge the values")?.values().clone())
}

#[cfg(test)]
mod tests {
    use helm_core::release::{Release, ReleaseChart, Revision};
    use serde_json::{Value, json};

    use super::*;

    fn values(value: Value) -> Values {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn values_are_printed_as_by_helm() {
        let mut record = Release::new("web".parse().unwrap(), "n", Revision(1));
        record.config = values(json!({"a": {"b": null}, "c": 2}));
        record.chart = Some(ReleaseChart {
            values: Some(values(json!({"a": {"b": 1, "d": "x"}, "c": 1}))),
            ..ReleaseChart::default()
        });
        let printed = |all, format| {
            let mut out = Vec::new();
            print_values(&record, all, format, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let expected = "USER-SUPPLIED VALUES:\na:\n  b: null\nc: 2\n";
        assert_eq!(printed(false, ValuesFormat::Table), expected);
        assert_eq!(printed(true, ValuesFormat::Yaml), "a:\n  d: x\nc: 2\n");
    }
}
