//! The rows of all custom resources, as they change.
//!
//! While there are viewers, one task looks at the caches twice a second. Work and memory thus depend on the number of
//! custom resources, not on that of their changes or viewers. A viewer gets all rows first, and then what has changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use host::HashMap;
use operator_runtime::controller::Key;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::broadcast::{Receiver, Sender};
use tokio::task::JoinError;

use super::LOOK_EVERY;
use crate::helm::view::{Row, ShownKind, Stored, View, Views};

/// Number of looks that a viewer may lag behind. One that is slower has to begin anew.
const BEHIND: usize = 16;
/// Number of rows that one look computes anew at most. The others follow with the next looks.
const MAX_ROWS: usize = 500;

/// State that viewers of the list share.
pub(super) struct Live {
    views: Views,
    /// There while there are viewers.
    table: Mutex<Option<Table>>,
}

/// The rows as last sent.
struct Table {
    /// The kinds, by the number of their view.
    kinds: BTreeMap<u64, ShownKind>,
    rows: HashMap<(u64, Key), KnownRow>,
    /// Number of looks so far.
    looks: u64,
    changes: Sender<Arc<str>>,
}

struct KnownRow {
    /// The custom resource that it was computed from.
    stored: Stored,
    /// The row as JSON.
    shown: Box<str>,
    /// The last look that has seen the custom resource.
    seen: u64,
}

/// A row, or a custom resource that is gone, with its kind.
#[derive(Serialize)]
struct OfKind<'a, T> {
    group: &'a str,
    kind: &'a str,
    #[serde(flatten)]
    of: T,
}

#[derive(Serialize)]
struct Name<'a> {
    namespace: Option<&'a str>,
    name: &'a str,
}

impl Live {
    pub(super) fn new(views: Views) -> Self {
        Self {
            views,
            table: Mutex::default(),
        }
    }

    /// Returns everything, and what changes from then on.
    ///
    /// # Errors
    /// If a look panics.
    pub(super) async fn follow(
        self: &Arc<Self>,
    ) -> Result<(Arc<str>, Receiver<Arc<str>>), JoinError> {
        let live = Arc::clone(self);
        let begin = move || {
            let mut table = live.table.lock();
            let is_first = table.is_none();
            let table = table.get_or_insert_with(Table::new);
            if is_first {
                table.look(&live.views, usize::MAX);
            }
            (table.all(), table.changes.subscribe(), is_first)
        };
        // Thousands of custom resources are decoded.
        let (all, changes, is_first) = host::blocking(begin).await?;
        if is_first {
            tokio::spawn(Arc::clone(self).look());
        }
        Ok((all, changes))
    }

    /// Looks until nobody follows.
    async fn look(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let live = Arc::clone(&self);
            let look = move || {
                let mut shared = live.table.lock();
                let Some(table) = &mut *shared else {
                    return false;
                };
                if table.changes.receiver_count() == 0 {
                    *shared = None;
                    return false;
                }
                if let Some(change) = table.look(&live.views, MAX_ROWS) {
                    // Whoever has left since misses nothing.
                    drop(table.changes.send(change));
                }
                true
            };
            if !host::blocking(look).await.unwrap_or(false) {
                return;
            }
        }
    }
}

impl Table {
    fn new() -> Self {
        Self {
            kinds: BTreeMap::new(),
            rows: HashMap::default(),
            looks: 0,
            changes: Sender::new(BEHIND),
        }
    }

    /// Looks at the caches, computes at most `most` rows, and returns what has changed.
    fn look(&mut self, views: &Views, most: usize) -> Option<Arc<str>> {
        self.looks += 1;
        let views = views.all();
        let kinds = views.iter().map(|(number, view)| (*number, view.kind()));
        let kinds: BTreeMap<u64, ShownKind> = kinds.collect();
        let mut rows = Vec::new();
        for (number, view) in &views {
            let Some(kind) = kinds.get(number) else {
                continue;
            };
            for (key, stored) in view.stored() {
                rows.extend(self.see((*number, key), stored, view, kind, rows.len() < most));
            }
        }
        let gone = self.gone();
        let changed: Option<Vec<_>> = (kinds != self.kinds).then(|| kinds.values().collect());
        self.kinds.clone_from(&kinds);
        if rows.is_empty() && gone.is_empty() && changed.is_none() {
            return None;
        }
        Some(message(
            changed.as_deref(),
            rows.iter().map(|row| &**row),
            &gone,
        ))
    }

    /// Records that a custom resource is there. Returns its row if it has changed and may be computed.
    fn see(
        &mut self,
        id: (u64, Key),
        stored: Stored,
        view: &View,
        kind: &ShownKind,
        may: bool,
    ) -> Option<Box<str>> {
        let seen = self.looks;
        let known = self.rows.get_mut(&id);
        if let Some(known) = known
            && (known.stored.is(&stored) || !may)
        {
            known.seen = seen;
            return None;
        }
        if !may {
            return None;
        }
        let row: Row = view.row(&id.1, &stored);
        let shown: Box<str> = text(&of_kind(kind, row)).into();
        let row = KnownRow {
            stored,
            shown: shown.clone(),
            seen,
        };
        self.rows.insert(id, row);
        Some(shown)
    }

    /// Forgets the rows that the last look has not seen, and returns their names.
    fn gone(&mut self) -> Vec<String> {
        let looks = self.looks;
        let gone = self.rows.extract_if(|_, row| row.seen != looks);
        let names = gone.filter_map(|((number, key), _)| {
            let name = Name {
                namespace: key.namespace.as_deref(),
                name: &key.name,
            };
            Some(text(&of_kind(self.kinds.get(&number)?, name)))
        });
        names.collect()
    }

    fn all(&self) -> Arc<str> {
        let rows = self.rows.values().map(|row| &*row.shown);
        let kinds: Vec<&ShownKind> = self.kinds.values().collect();
        message(Some(&kinds), rows, &[])
    }
}

fn of_kind<T>(kind: &ShownKind, of: T) -> OfKind<'_, T> {
    OfKind {
        group: &kind.group,
        kind: &kind.kind,
        of,
    }
}

/// Returns a message: `rows` and `gone` as JSON, and the kinds if they have changed.
fn message<'a>(
    kinds: Option<&[&ShownKind]>,
    rows: impl Iterator<Item = &'a str>,
    gone: &[String],
) -> Arc<str> {
    let rows = rows.collect::<Vec<_>>().join(",");
    let (kinds, gone) = (text(&kinds), gone.join(","));
    format!("{{\"kinds\":{kinds},\"rows\":[{rows}],\"gone\":[{gone}]}}").into()
}

fn text(value: &impl Serialize) -> String {
    // Their keys are texts.
    serde_json::to_string(value).unwrap_or_default()
}
