//! `status --watch`: shows changes as they happen.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use hybrid_operator::native::AnyObject;
use jiff::Timestamp;
use kube::api::Api;
use kube::core::GroupVersionKind;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};

use super::{Args, nothing};
use crate::cluster::{Cluster, Kind, Kinds, Listed, explain_watch, parse};
use crate::command::row::{self, Row};
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
    kinds: &Kinds,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let selection = &args.selection;
    let namespace = selection.namespace(cluster);
    let (kinds, name) = if let Some(target) = selection.one()? {
        let (kind, name) = parse(target)?;
        (vec![kinds.find(cluster, kind).await?], Some(name))
    } else {
        let Listed { kinds, problems } = selection.kinds(cluster, kinds).await?;
        for problem in problems {
            crate::print_message(&format!("warning: {problem:#}"));
        }
        (kinds, None)
    };
    let mut streams = Vec::new();
    let mut resources = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        let served = cluster.served(&kind.gvk).await?;
        let api: Api<AnyObject> = cluster.api(&served, namespace);
        let mut config = watcher::Config::default();
        if let Some(selector) = kind.selector(selection.selector.as_deref()) {
            config = config.labels(&selector);
        }
        if let Some(name) = name {
            config = config.fields(&format!("metadata.name={name}"));
        }
        let stream = watcher::watcher(api, config)
            .default_backoff()
            .map(move |event| (index, event));
        streams.push(stream.boxed());
        resources.push(served.text());
    }
    let mut events = stream::select_all(streams);
    let mut view = View {
        args,
        terminal: io::stdout().is_terminal(),
        rows: Rows::new(),
        initial: kinds.len(),
    };
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = tokio::time::sleep(REDRAW), if view.terminal && view.initial == 0 => {
                view.draw(&kinds, namespace, out)?;
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
        let Some(kind) = kinds.get(index) else {
            continue;
        };
        if view.apply(&kind.gvk, event, out)? {
            view.draw(&kinds, namespace, out)?;
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
        gvk: &GroupVersionKind,
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
                let row = Row::of(gvk, &object);
                let before = self.rows.insert(row.key(), row.clone());
                if before.as_ref() == Some(&row) {
                    return Ok(false);
                }
                if !self.terminal {
                    self.append(&row, "", out)?;
                }
            }
            Event::Delete(AnyObject(object)) => {
                let row = Row::of(gvk, &object);
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

    fn draw(&self, kinds: &[Kind], namespace: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "{CLEAR}")?;
        if self.rows.is_empty() {
            writeln!(out, "{}", nothing(kinds, namespace))?;
        } else {
            let rows: Vec<Row> = self.rows.values().cloned().collect();
            let table = row::table(&rows, self.args.is_wide(), Timestamp::now());
            out.write_all(table.text(self.args.output.color.paint()).as_bytes())?;
        }
        out.flush()
    }
}
