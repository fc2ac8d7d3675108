//! The status of the project's custom resources: as a table that is drawn again on terminals, else as
//! one line for each change.

use std::collections::BTreeMap;
use std::io::{self, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use hybrid_operator::native::AnyObject;
use kube::Client;
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams};
use serde_json::Value;

use super::objects::{Kind, condition};

/// Fields of a custom resource that are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    kind: String,
    name: String,
    ready: String,
    reason: String,
    revision: String,
}

/// The custom resources by kind, namespace and name.
pub(super) type Rows = BTreeMap<(String, String, String), Row>;

/// Reads the status of all custom resources of these kinds. A kind that cannot be listed is left out.
pub(super) async fn rows(client: &Client, kinds: &[Kind]) -> Rows {
    let mut rows = Rows::new();
    for kind in kinds {
        let listed = kind.api(client.clone()).list(&ListParams::default()).await;
        for AnyObject(object) in listed.map(|list| list.items).unwrap_or_default() {
            let namespace = object.namespace().unwrap_or_default();
            let key = (kind.kind.clone(), namespace, object.name_any());
            rows.insert(key, Row::of(&kind.kind, &object));
        }
    }
    rows
}

impl Row {
    fn of(kind: &str, object: &DynamicObject) -> Self {
        let ready = condition(&object.data, "Ready");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = object.name_any();
        let observed = object.data.pointer("/status/observedGeneration");
        let current = object.metadata.generation.map(Value::from);
        let is_current = observed.is_none() || observed == current.as_ref();
        let revision = object.data.pointer("/status/release/revision");
        Self {
            kind: kind.to_owned(),
            name: match object.namespace() {
                Some(namespace) => format!("{namespace}/{name}"),
                None => name,
            },
            ready: match ready {
                Some(ready) if is_current => text(&ready["status"]),
                _ => "Unknown".to_owned(),
            },
            reason: match ready {
                _ if object.metadata.deletion_timestamp.is_some() => "Deleting".to_owned(),
                Some(ready) if is_current => text(&ready["reason"]),
                Some(_) => "Reconciling".to_owned(),
                None => "NotReconciled".to_owned(),
            },
            revision: revision.map_or_else(|| "-".to_owned(), Value::to_string),
        }
    }

    fn cells(&self) -> [&str; 5] {
        [
            &self.kind,
            &self.name,
            &self.ready,
            &self.reason,
            &self.revision,
        ]
    }
}

/// Writes messages and the status.
pub(super) struct Screen<'a> {
    out: &'a mut dyn Write,
    /// Whether the table is drawn again in its place.
    terminal: bool,
    shown: Rows,
    /// Number of lines of the table on the terminal.
    lines: usize,
}

impl<'a> Screen<'a> {
    pub(super) fn new(out: &'a mut dyn Write, terminal: bool) -> Self {
        Self {
            out,
            terminal,
            shown: Rows::new(),
            lines: 0,
        }
    }

    /// Writes a message above the table.
    pub(super) fn message(&mut self, text: &str) -> io::Result<()> {
        self.erase()?;
        writeln!(self.out, "{text}")?;
        self.draw()
    }

    /// Shows the status if it has changed.
    pub(super) fn show(&mut self, rows: Rows) -> io::Result<()> {
        if rows == self.shown {
            return Ok(());
        }
        if self.terminal {
            self.erase()?;
            self.shown = rows;
            return self.draw();
        }
        for (key, row) in &rows {
            if self.shown.get(key) != Some(row) {
                let Row {
                    kind,
                    name,
                    ready,
                    reason,
                    revision,
                } = row;
                writeln!(
                    self.out,
                    "{kind} {name}: Ready={ready} {reason}, revision {revision}"
                )?;
            }
        }
        for (key, row) in &self.shown {
            if !rows.contains_key(key) {
                writeln!(self.out, "{} {}: deleted", row.kind, row.name)?;
            }
        }
        self.shown = rows;
        self.out.flush()
    }

    fn erase(&mut self) -> io::Result<()> {
        if self.lines > 0 {
            write!(self.out, "\x1b[{}A\x1b[J", self.lines)?;
            self.lines = 0;
        }
        Ok(())
    }

    fn draw(&mut self) -> io::Result<()> {
        if self.terminal && !self.shown.is_empty() {
            let table = table(&self.shown, None);
            self.lines = table.lines().count();
            writeln!(self.out, "{table}")?;
        }
        self.out.flush()
    }
}

/// Returns the table, no wider than `width` or the terminal.
fn table(rows: &Rows, width: Option<u16>) -> String {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["KIND", "NAME", "READY", "REASON", "REVISION"]);
    if let Some(width) = width {
        table.set_width(width);
    }
    for row in rows.values() {
        table.add_row(row.cells());
    }
    let text = table.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shop(name: &str, status: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "example.com/v1", "kind": "Shop",
            "metadata": {"name": name, "namespace": "default", "generation": 2},
            "status": status,
        }))
        .unwrap()
    }

    fn rows(objects: &[DynamicObject]) -> Rows {
        let row = |object: &DynamicObject| {
            let key = ("Shop".to_owned(), "default".to_owned(), object.name_any());
            (key, Row::of("Shop", object))
        };
        objects.iter().map(row).collect()
    }

    fn ready(name: &str, observed: i64) -> DynamicObject {
        let condition = json!({"type": "Ready", "status": "True", "reason": "Ready"});
        shop(
            name,
            &json!({"conditions": [condition], "observedGeneration": observed, "release": {"revision": 3}}),
        )
    }

    #[test]
    fn status_of_an_earlier_generation_is_unknown() {
        let cells = |object| Row::of("Shop", &object).cells().map(str::to_owned);
        let expected = ["Shop", "default/a", "True", "Ready", "3"];
        assert_eq!(cells(ready("a", 2)), expected);
        let before = cells(ready("a", 1));
        assert_eq!(before, ["Shop", "default/a", "Unknown", "Reconciling", "3"]);
        let new = cells(shop("a", &json!({})));
        assert_eq!(new, ["Shop", "default/a", "Unknown", "NotReconciled", "-"]);
    }

    #[test]
    fn without_a_terminal_each_change_is_a_line() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, false);
        screen.message("hello").unwrap();
        screen.show(rows(&[ready("a", 2), ready("b", 2)])).unwrap();
        screen.show(rows(&[ready("a", 2), ready("b", 2)])).unwrap();
        screen.show(rows(&[ready("a", 1)])).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "hello\n\
             Shop default/a: Ready=True Ready, revision 3\n\
             Shop default/b: Ready=True Ready, revision 3\n\
             Shop default/a: Ready=Unknown Reconciling, revision 3\n\
             Shop default/b: deleted\n"
        );
    }

    #[test]
    fn on_a_terminal_the_table_is_drawn_again_below_messages() {
        let mut out = Vec::new();
        let mut screen = Screen::new(&mut out, true);
        screen.show(rows(&[ready("a", 2)])).unwrap();
        screen.message("rebuilt").unwrap();
        let text = String::from_utf8(out).unwrap();
        let (first, rest) = text.split_once("\x1b[2A\x1b[J").unwrap();
        let expected =
            " KIND  NAME       READY  REASON  REVISION\n Shop  default/a  True   Ready   3\n";
        assert_eq!(first, expected);
        assert_eq!(rest, format!("rebuilt\n{expected}"));
    }

    #[test]
    fn the_table_fits_into_a_narrow_terminal() {
        let text = table(&rows(&[ready("a-name-that-is-rather-long", 2)]), Some(40));
        let fits = text.lines().all(|line| line.chars().count() <= 40);
        assert!(fits, "{text}");
    }
}
