//! `history KIND/NAME`: the revisions of a release.

use std::io::Write;

use anstyle::AnsiColor;
use helm_core::release::{Release as Record, Status};
use hybrid_operator::helm::RecordInfo;
use serde::Serialize;

use super::UsageError;
use super::target::TargetArgs;
use crate::output::{self, Named, OutputArgs, Table};

const EXAMPLES: &str = "\
Examples:
  hybrid-operator history shop/main --namespace prod
  hybrid-operator history shop/main --max 3 --output json";

/// Arguments of `history`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: TargetArgs,

    /// Print at most this many revisions, the newest ones
    #[arg(long, value_name = "NUMBER", default_value_t = 256)]
    max: usize,

    #[command(flatten)]
    output: OutputArgs,
}

/// A revision, with the names of `helm history --output json`.
#[derive(Debug, Serialize)]
struct Row {
    revision: u32,
    updated: String,
    status: String,
    chart: String,
    app_version: String,
    description: String,
    /// Name of the Secret.
    #[serde(skip)]
    record: String,
}

impl Named for Row {
    fn name(&self) -> String {
        format!("secret/{}", self.record)
    }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.max == 0 {
        return Err(UsageError("--max must be at least 1".to_owned()).into());
    }
    let rows = args.target.run(async |_, selected| {
        // An error that says why there is none.
        selected.revision(None)?;
        let skipped = selected.history.len().saturating_sub(args.max);
        let mut rows = Vec::new();
        for info in selected.history.iter().skip(skipped) {
            rows.push(match selected.records.load(info).await {
                Ok(record) => row(&record, info),
                // The others are still worth showing.
                Err(error) => Row {
                    record: info.secret().to_owned(),
                    revision: info.revision().0,
                    updated: info
                        .written_at()
                        .map(|at| at.to_string())
                        .unwrap_or_default(),
                    status: info.status().to_string(),
                    chart: String::new(),
                    app_version: String::new(),
                    description: format!("{:#}", anyhow::Error::new(error)),
                },
            });
        }
        Ok(rows)
    })?;
    if output::print_list(args.output.output, &rows, out)? {
        return Ok(());
    }
    let paint = args.output.color.paint();
    out.write_all(table(&rows).text(paint).as_bytes())?;
    Ok(())
}

fn row(record: &Record, info: &RecordInfo) -> Row {
    let chart = record
        .chart
        .as_ref()
        .and_then(|chart| chart.metadata.as_ref());
    let updated = record.info.last_deployed.or(record.info.first_deployed);
    Row {
        record: info.secret().to_owned(),
        revision: record.revision.0,
        updated: updated.map(|time| time.to_string()).unwrap_or_default(),
        status: record.info.status.to_string(),
        chart: chart
            .map(|chart| format!("{}-{}", chart.name, chart.version))
            .unwrap_or_default(),
        app_version: chart
            .map(|chart| chart.app_version.clone())
            .unwrap_or_default(),
        description: record.info.description.clone(),
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(&[
        "REVISION",
        "UPDATED",
        "STATUS",
        "CHART",
        "APP VERSION",
        "DESCRIPTION",
    ]);
    for row in rows {
        let color = match Status::from(row.status.as_str()) {
            Status::Deployed => Some(AnsiColor::Green),
            Status::Failed => Some(AnsiColor::Red),
            Status::Superseded => None,
            _ => Some(AnsiColor::Yellow),
        };
        let seconds = row.updated.split('.').next().unwrap_or_default();
        table.colored([
            (row.revision.to_string(), None),
            (seconds.trim_end_matches('Z').replace('T', " "), None),
            (row.status.clone(), color),
            (row.chart.clone(), None),
            (row.app_version.clone(), None),
            (row.description.clone(), None),
        ]);
    }
    table
}
