//! `events KIND/NAME`: the events of a custom resource, of the objects of its release and of their
//! Pods, oldest first.

use std::collections::{BTreeSet, HashSet};
use std::io::Write;

use anstyle::AnsiColor;
use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde::Serialize;

use super::target::TargetArgs;
use crate::cluster::{Attempt, Cluster, Found, Selected, objects_of, pods_of};
use crate::output::{self, OutputArgs, Table, age, one_line};

const EXAMPLES: &str = "\
Examples:
  hybrid-operator events shop/main --namespace prod
  hybrid-operator events shop/main --output json";

/// Arguments of `events`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    target: TargetArgs,

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
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
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
    if output::print_data(args.output.output, &rows, out)? {
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

/// Whose events are shown.
struct About {
    namespaces: BTreeSet<String>,
    uids: HashSet<String>,
    /// `Kind namespace/name` of objects that do not exist, or no longer.
    names: HashSet<String>,
}

impl About {
    async fn read(cluster: &Cluster, selected: &Selected) -> anyhow::Result<Self> {
        let resource = &selected.resource;
        let mut about = Self {
            // Events of cluster-scoped objects are in the namespace default.
            namespaces: [resource.namespace().unwrap_or_else(|| "default".to_owned())].into(),
            uids: resource.uid().into_iter().collect(),
            names: HashSet::new(),
        };
        let Some(latest) = selected.history.last() else {
            return Ok(about);
        };
        let record = selected.records.load(latest).await;
        let record = record.context("cannot read the release record")?;
        for object in objects_of(cluster, &record).await? {
            let namespace = object.key.namespace.clone();
            let place = namespace.unwrap_or_else(|| record.namespace.clone());
            about
                .names
                .insert(format!("{} {place}/{}", object.key.kind, object.key.name));
            about.namespaces.insert(place);
            if let Found::Present { uid, .. } = &object.found {
                about.uids.insert(uid.clone());
            }
            let pods = pods_of(cluster, &object).await?;
            about.uids.extend(pods.into_iter().map(|pod| pod.uid));
        }
        for hook in &record.hooks {
            let name = format!("{} {}/{}", hook.kind, record.namespace, hook.name);
            about.names.insert(name);
        }
        Ok(about)
    }

    fn concerns(&self, event: &Event) -> bool {
        let object = &event.involved_object;
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let name = format!(
            "{} {}/{}",
            text(&object.kind),
            text(&object.namespace),
            text(&object.name)
        );
        object
            .uid
            .as_ref()
            .is_some_and(|uid| self.uids.contains(uid))
            || self.names.contains(&name)
    }
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
