//! `status --watch`: shows changes as they happen.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use hybrid_operator::native::AnyObject;
use hybrid_operator::watches::Watch;
use jiff::Timestamp;
use kube::api::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};

use super::row::{self, Row};
use super::{Args, nothing};
use crate::cluster::{Cluster, explain_watch};
use crate::output::one_line;

/// Clears the screen and moves the cursor to its start.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";
/// Time between two redraws without a change, which update the ages.
const REDRAW: Duration = Duration::from_secs(5);

type Rows = BTreeMap<(Option<String>, String, String), Row>;

/// Watches the custom resources until interrupted.
pub(super) async fn run(
    args: &Args,
    cluster: &Cluster,
    watches: &[Watch],
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let namespace = args.namespace(cluster);
    let mut streams = Vec::new();
    let mut resources = Vec::new();
    for (index, watch) in watches.iter().enumerate() {
        let kind = cluster.served(&watch.gvk).await?;
        let api: Api<AnyObject> = cluster.api(&kind, namespace);
        let mut config = watcher::Config::default();
        if let Some(selector) = &watch.selector {
            config = config.labels(&selector.to_string());
        }
        let stream = watcher::watcher(api, config)
            .default_backoff()
            .map(move |event| (index, event));
        streams.push(stream.boxed());
        resources.push(kind.text());
    }
    let mut events = stream::select_all(streams);
    let mut view = View {
        args,
        terminal: io::stdout().is_terminal(),
        rows: Rows::new(),
        initial: watches.len(),
    };
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = tokio::time::sleep(REDRAW), if view.terminal && view.initial == 0 => {
                view.draw(watches, namespace, out)?;
                continue;
            }
            _ = tokio::signal::ctrl_c() => return Ok(()),
        };
        let Some((index, event)) = event else {
            return Ok(());
        };
        let event = match event {
            Ok(event) => event,
            Err(error) => {
                let resource = resources.get(index).map(String::as_str).unwrap_or_default();
                let error = explain_watch(cluster, error, resource, namespace);
                if view.initial > 0 {
                    return Err(error);
                }
                // The watch is opened again, after a pause.
                crate::print_message(&format!("warning: {error:#}"));
                continue;
            }
        };
        let Some(watch) = watches.get(index) else {
            continue;
        };
        if view.apply(watch, event, out)? {
            view.draw(watches, namespace, out)?;
        }
    }
}

struct View<'a> {
    args: &'a Args,
    terminal: bool,
    rows: Rows,
    /// Kinds whose first list is not complete.
    initial: usize,
}

impl View<'_> {
    /// Takes an event in. Returns whether the table on the terminal has changed.
    fn apply(
        &mut self,
        watch: &Watch,
        event: Event<AnyObject>,
        out: &mut dyn Write,
    ) -> io::Result<bool> {
        match event {
            Event::Init => return Ok(false),
            Event::InitDone => {
                self.initial = self.initial.saturating_sub(1);
                return Ok(self.terminal && self.initial == 0);
            }
            Event::Apply(AnyObject(object)) | Event::InitApply(AnyObject(object)) => {
                let row = Row::of(watch, &object);
                let before = self.rows.insert(row.key(), row.clone());
                if before.as_ref() == Some(&row) {
                    return Ok(false);
                }
                if !self.terminal {
                    self.append(&row, "", out)?;
                }
            }
            Event::Delete(AnyObject(object)) => {
                let row = Row::of(watch, &object);
                self.rows.remove(&row.key());
                if !self.terminal {
                    self.append(&row, " deleted", out)?;
                }
            }
        }
        Ok(self.terminal && self.initial == 0)
    }

    /// Prints one row as a line, for logs and pipes.
    fn append(&self, row: &Row, suffix: &str, out: &mut dyn Write) -> io::Result<()> {
        let namespace = row.namespace.as_deref().map(|name| format!("{name}/"));
        let namespace = namespace.unwrap_or_default();
        let revision = row.revision.map(|number| format!(" revision={number}"));
        let chart = row.chart.as_ref().map(|chart| format!(" chart={chart}"));
        let message = one_line(&row.message);
        let paint = self.args.output.color.paint();
        let color = row::color(&row.ready);
        let ready = paint.colored(color, &row.ready);
        writeln!(
            out,
            "{} {namespace}{} Ready={ready} {}{}{}{suffix}{}{message}",
            row.kind,
            row.name,
            row.reason,
            revision.unwrap_or_default(),
            chart.unwrap_or_default(),
            if message.is_empty() { "" } else { ": " },
        )?;
        out.flush()
    }

    fn draw(
        &self,
        watches: &[Watch],
        namespace: Option<&str>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        write!(out, "{CLEAR}")?;
        if self.rows.is_empty() {
            writeln!(out, "{}", nothing(watches, namespace))?;
        } else {
            let rows: Vec<Row> = self.rows.values().cloned().collect();
            let table = row::table(&rows, self.args.is_wide(), Timestamp::now());
            out.write_all(table.text(self.args.output.color.paint()).as_bytes())?;
        }
        out.flush()
    }
}
