//! Remembers what templates have printed.
//!
//! Charts include the same few templates in every file: names, labels, annotations. A template that
//! gets the same data again prints the same text, unless
//!
//! * a map or a list was changed meanwhile, which drops everything that is remembered,
//! * or it used something that varies, such as a random number, the time, or a map that
//!   [`Map::insert_varying`](crate::Map::insert_varying) has set. Such a text is not remembered.
//!
//! A text that is used again counts as the steps, the output and the levels of nesting that it took to print it,
//! so that limits apply as if it were printed again.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use bounded::memory::{self, Held};
use bounded::{Budget, BudgetError};

use crate::set::{Template, TemplateSet};
use crate::value::table::hash;
use crate::value::{Changes, List, Map, Str, Value, changes};

/// Longer strings are neither compared nor kept.
const MAX_STRING: usize = 256;
/// Longer texts are not kept.
const MAX_TEXT: usize = 16 << 10;
const MAX_ENTRIES: usize = 1_024;
/// The share of the memory limit, as a divisor, that a render may hold while texts are kept. Beyond it, they and
/// their data are dropped, so that a render does not fail because of what is only remembered.
const SHARE: usize = 8;
/// Maps and lists that nobody else has are compared by their elements, if they have few.
const MAX_ELEMENTS: usize = 8;
/// Depth to which these are compared.
const MAX_LEVELS: usize = 3;
/// Templates that nest deeper are executed, so that an endless recursion ends with the error that it has
/// without a memo.
const MAX_DEPTH: usize = 500;

/// Texts that templates of one set have printed, during one session.
#[derive(Default)]
pub(crate) struct Memo {
    set: Option<TemplateSet>,
    entries: HashMap<u64, Entry, BuildHasherDefault<Passed>>,
    /// The number of writes for which the entries hold.
    writes: u64,
    /// The deepest nesting of templates since the last [`Memo::watch`].
    deepest: usize,
    held: Held,
}

/// A text that a template printed.
pub(crate) struct Entry {
    /// The address of a template of the set.
    template: usize,
    data: Value,
    text: Str,
    /// Cost of the text, as a budget counts it.
    steps: u64,
    written: usize,
    /// Depth to which the template nested others.
    levels: usize,
}

impl Entry {
    pub(crate) fn text(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// Counts what it took to print the text.
    pub(crate) fn spend(&self, budget: &Budget) -> Result<(), BudgetError> {
        budget.step(self.steps)?;
        budget.output(self.written)
    }
}

/// The state before a template is executed whose text may be kept.
#[derive(Clone, Copy)]
pub(crate) struct Watch {
    key: u64,
    changes: Changes,
    steps: u64,
    written: usize,
    deepest: usize,
}

impl Memo {
    pub(crate) fn new(set: &TemplateSet) -> Self {
        Self {
            set: Some(set.clone()),
            ..Self::default()
        }
    }

    /// Returns the key of a template of the set and its data, if these can be compared with others.
    pub(crate) fn key(
        &self,
        set: &TemplateSet,
        template: &Arc<Template>,
        data: &Value,
    ) -> Option<u64> {
        if !self.set.as_ref()?.is_same(set) {
            return None;
        }
        let address = address(template);
        fingerprint(data, MAX_LEVELS).map(|print| mix(address as u64, print))
    }

    /// Returns what the template printed for this data, if it may nest as deeply here.
    pub(crate) fn get(
        &mut self,
        key: u64,
        template: &Arc<Template>,
        data: &Value,
        budget: &Budget,
    ) -> Option<&Entry> {
        let writes = changes().writes;
        if self.writes != writes {
            self.forget();
            self.writes = writes;
            return None;
        }
        let entry = self.entries.get(&key)?;
        let deepest = budget.depth() + entry.levels;
        let holds = entry.template == address(template)
            && deepest <= MAX_DEPTH.min(budget.limits().depth)
            && is_same(&entry.data, data, MAX_LEVELS);
        if !holds {
            return None;
        }
        self.deepest = self.deepest.max(deepest);
        Some(entry)
    }

    /// Watches what a template does, and its data.
    pub(crate) fn watch(&mut self, key: u64, data: &Value, budget: &Budget) -> Watch {
        data.watch();
        Watch {
            key,
            changes: changes(),
            steps: budget.steps(),
            written: budget.written(),
            deepest: std::mem::replace(&mut self.deepest, budget.depth()),
        }
    }

    /// Notes how deep templates are nested.
    #[inline]
    pub(crate) fn nest(&mut self, depth: usize) {
        self.deepest = self.deepest.max(depth);
    }

    /// Keeps what a template has printed for this data, without an error, if it would print it again.
    pub(crate) fn keep(
        &mut self,
        watch: Watch,
        template: &Arc<Template>,
        data: &Value,
        text: Option<&[u8]>,
        budget: &Budget,
    ) {
        let levels = self.deepest.saturating_sub(budget.depth());
        self.deepest = self.deepest.max(watch.deepest);
        let Some(text) = text else { return };
        if changes() != watch.changes || text.len() > MAX_TEXT {
            return;
        }
        let limit = budget.limits().memory;
        if !memory::fits(limit - limit / SHARE) {
            self.forget();
            return;
        }
        if self.entries.len() >= MAX_ENTRIES {
            self.forget();
        }
        self.held.add(size_of::<Entry>());
        let entry = Entry {
            template: address(template),
            data: data.clone(),
            text: Str::from(text),
            steps: budget.steps() - watch.steps,
            written: budget.written() - watch.written,
            levels,
        };
        self.entries.insert(watch.key, entry);
    }

    /// Drops all texts and data.
    pub(crate) fn forget(&mut self) {
        self.entries.clear();
        self.held.set(0);
    }
}

/// The set keeps its templates, so that no other template gets the address.
fn address(template: &Arc<Template>) -> usize {
    Arc::as_ptr(template).addr()
}

/// Returns a number that is the same for data that [`is_same`]; `None` for data that is never the same, or
/// that takes too long to compare.
fn fingerprint(value: &Value, levels: usize) -> Option<u64> {
    Some(match value {
        Value::Invalid => 1,
        Value::Nil => 2,
        Value::Bool(value) => 3 + u64::from(*value),
        Value::Int(value) => mix(5, value.cast_unsigned()),
        Value::Int64(value) => mix(6, value.cast_unsigned()),
        Value::Float(value) => mix(7, value.to_bits()),
        Value::Str(text) if text.len() <= MAX_STRING => mix(8, hash(text.as_bytes()).into()),
        Value::Map(map) if map.handles() > 1 => mix(9, map.address() as u64),
        Value::List(list) if list.handles() > 1 => mix(10, list.address() as u64),
        Value::Map(map) if levels > 0 => map.with_few(MAX_ELEMENTS, |entries| {
            entries.iter().try_fold(11, |state, entry| {
                let print = fingerprint(&entry.value, levels - 1)?;
                Some(mix(mix(state, entry.hash().into()), print))
            })
        })??,
        Value::List(list) if levels > 0 && is_small(list) => list.with(|items| {
            items.iter().try_fold(12, |state, item| {
                Some(mix(state, fingerprint(item, levels - 1)?))
            })
        })?,
        _ => return None,
    })
}

fn is_same(a: &Value, b: &Value, levels: usize) -> bool {
    match (a, b) {
        (Value::Invalid, Value::Invalid) | (Value::Nil, Value::Nil) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) | (Value::Int64(a), Value::Int64(b)) => a == b,
        (Value::Float(a), Value::Float(b)) => a.to_bits() == b.to_bits(),
        (Value::Str(a), Value::Str(b)) => a == b,
        (Value::List(a), Value::List(b)) => {
            a.is_same(b) || levels > 0 && has_same_items(a, b, levels - 1)
        }
        (Value::Map(a), Value::Map(b)) => {
            a.go_type() == b.go_type() && (a.is_same(b) || levels > 0 && has_same(a, b, levels - 1))
        }
        _ => false,
    }
}

/// Returns whether two small maps have the same entries in the same order.
fn has_same(a: &Map, b: &Map, levels: usize) -> bool {
    let same = a.with_few(MAX_ELEMENTS, |a| {
        b.with_few(MAX_ELEMENTS, |b| {
            let mut pairs = a.iter().zip(b);
            a.len() == b.len()
                && pairs.all(|(a, b)| a.key == b.key && is_same(&a.value, &b.value, levels))
        })
    });
    same.flatten().unwrap_or(false)
}

/// Returns whether a list has few elements, and nothing behind them that `slice` could show.
fn is_small(list: &List) -> bool {
    list.len() <= MAX_ELEMENTS && list.capacity() == list.len()
}

/// Returns whether two small lists have the same elements.
fn has_same_items(a: &List, b: &List, levels: usize) -> bool {
    a.go_type() == b.go_type()
        && a.len() == b.len()
        && is_small(a)
        && is_small(b)
        && a.with(|a| b.with(|b| a.iter().zip(b).all(|(a, b)| is_same(a, b, levels))))
}

fn mix(state: u64, word: u64) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    (state.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER)
}

/// The keys are spread already.
#[derive(Default)]
struct Passed(u64);

impl Hasher for Passed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = mix(self.0, (*byte).into());
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
