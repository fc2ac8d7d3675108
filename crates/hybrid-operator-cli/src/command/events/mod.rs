//! `events KIND/NAME`: the events of a custom resource, of the objects of its release and of their
//! Pods, oldest first.

mod about;
mod follow;

use std::io::Write;

use anstyle::AnsiColor;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, ListParams};
use serde::Serialize;

use super::target::TargetArgs;
use crate::cluster::{Attempt, Cluster, Selected};
use crate::output::{self, Format, Named, OutputArgs, Paint, Table, age, one_line, with_progress};
use about::About;

const EXAMPLES: &str = "\
Examples:
  hybrid-operator events shop/main --namespace prod

  # Until interrupted
  hybrid-operator events shop/main --watch
  hybrid-operator events shop/main --output json";

/// Arguments of `events`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: TargetArgs,

    /// Show new events until interrupted, one per line; each is printed once, and again when its count
    /// grows
    #[arg(short, long)]
    watch: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// An event.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    last_seen: Option<Timestamp>,
    #[serde(rename = "type")]
    type_: String,
    reason: String,
    object: String,
    count: i32,
    message: String,
    #[serde(skip)]
    name: String,
}

impl Named for Row {
    fn name(&self) -> String {
        format!("event/{}", self.name)
    }
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    if args.watch {
        return watch(args, out);
    }
    let rows = args.target.run(async |cluster, selected| {
        let about = About::read(&cluster, &selected).await?;
        let mut rows = Vec::new();
        for namespace in &about.namespaces {
            for event in list(&cluster, namespace).await? {
                if about.concerns(&event) {
                    rows.push(row(event));
                }
            }
        }
        rows.sort_by_key(|row| row.last_seen);
        Ok(rows)
    })?;
    if output::print_list(args.output.output, &rows, out)? {
        return Ok(());
    }
    if rows.is_empty() {
        writeln!(out, "no events; the API server deletes them after an hour")?;
        return Ok(());
    }
    let paint = args.output.color.paint();
    let text = table(&rows, Timestamp::now()).text(paint);
    out.write_all(text.as_bytes())?;
    Ok(())
}

/// Shows the events until interrupted.
fn watch(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let place = &args.target.place;
    let kinds = place.kinds()?;
    place.cluster.run(async |cluster| {
        let read = async || {
            let target = &args.target.target;
            let selected = Selected::read(&cluster, &kinds, target, place.namespace()).await?;
            About::read(&cluster, &selected).await
        };
        let about = with_progress("reading the release", read()).await?;
        let (format, paint) = (args.output.output, args.output.color.paint());
        let mut show = |row: &Row| print_row(row, format, paint, out);
        let interrupted = async {
            // Without a signal handler, the signal ends the program.
            if tokio::signal::ctrl_c().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        follow::run(&cluster, about, read, &mut show, interrupted).await
    })
}

/// Prints a row as one line, or as one YAML document.
fn print_row(row: &Row, format: Format, paint: Paint, out: &mut dyn Write) -> anyhow::Result<()> {
    match format {
        Format::Json => writeln!(out, "{}", serde_json::to_string(row)?)?,
        Format::Yaml => write!(out, "---\n{}", go_yaml::to_string(row)?)?,
        Format::Name => writeln!(out, "{}", row.name())?,
        Format::Table | Format::Wide => writeln!(out, "{}", line(row, paint))?,
    }
    out.flush()?;
    Ok(())
}

fn line(row: &Row, paint: Paint) -> String {
    let seen = row.last_seen.map(|time| time.strftime("%F %T").to_string());
    let mut type_ = format!("{:<7}", row.type_);
    if row.type_ == "Warning" {
        type_ = paint.colored(AnsiColor::Yellow, &type_);
    }
    let count = if row.count > 1 {
        format!(" (x{})", row.count)
    } else {
        String::new()
    };
    format!(
        "{:<19} {type_} {} {}: {}{count}",
        seen.unwrap_or_default(),
        row.reason,
        row.object,
        one_line(&row.message)
    )
}

async fn list(cluster: &Cluster, namespace: &str) -> anyhow::Result<Vec<Event>> {
    let api = Api::<Event>::namespaced(cluster.client.clone(), namespace);
    let events = api.list(&ListParams::default()).await;
    let events = events.map_err(|error| {
        cluster.explain(
            error,
            &Attempt::new("list", "events").on(Some(namespace), None),
        )
    })?;
    Ok(events.items)
}

fn row(event: Event) -> Row {
    let series = event.series.as_ref();
    let series_time = series.and_then(|series| Some(series.last_observed_time.as_ref()?.0));
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    let first = event.event_time.as_ref().map(|time| time.0);
    let created = event
        .metadata
        .creation_timestamp
        .as_ref()
        .map(|time| time.0);
    let object = event.involved_object;
    Row {
        name: event.metadata.name.unwrap_or_default(),
        last_seen: series_time.or(last).or(first).or(created),
        type_: event.type_.unwrap_or_default(),
        reason: event.reason.unwrap_or_default(),
        object: format!(
            "{}/{}",
            object.kind.unwrap_or_default(),
            object.name.unwrap_or_default()
        ),
        count: series
            .and_then(|series| series.count)
            .or(event.count)
            .unwrap_or(1),
        message: event.message.unwrap_or_default().trim().to_owned(),
    }
}

fn table(rows: &[Row], now: Timestamp) -> Table {
    let mut table = Table::new(&["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]);
    for row in rows {
        let mut seen = row.last_seen.map(|time| age(time, now)).unwrap_or_default();
        if row.count > 1 {
            seen = format!("{seen} (x{})", row.count);
        }
        let color = (row.type_ == "Warning").then_some(AnsiColor::Yellow);
        table.colored([
            (seen, None),
            (row.type_.clone(), color),
            (row.reason.clone(), None),
            (row.object.clone(), None),
            (one_line(&row.message), None),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_show_their_latest_time_and_their_count() {
        let event = |fields: serde_json::Value| {
            let mut event = json!({"metadata": {"name": "e", "creationTimestamp":
                "2026-01-01T00:00:00Z"}, "involvedObject": {"kind": "Pod", "name": "p"},
                "type": "Warning", "reason": "BackOff", "message": "text\n"});
            event
                .as_object_mut()
                .unwrap()
                .extend(fields.as_object().unwrap().clone());
            row(serde_json::from_value(event).unwrap())
        };
        let series = event(json!({"series": {"count": 7, "lastObservedTime":
            "2026-01-01T00:09:00.000000Z"}, "eventTime": "2026-01-01T00:01:00.000000Z"}));
        let now = "2026-01-01T00:10:00Z".parse().unwrap();
        let text = table(&[series], now).text(crate::output::Paint(false));
        assert!(
            text.contains("60s (x7)") && text.contains("Pod/p"),
            "{text}"
        );
        let plain = event(json!({}));
        assert_eq!((plain.count, plain.message.as_str()), (1, "text"));
        assert_eq!(
            plain.last_seen,
            Some("2026-01-01T00:00:00Z".parse().unwrap())
        );
    }
}
