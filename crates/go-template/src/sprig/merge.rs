//! `merge` and `mergeOverwrite`, with the rules of `dario.cat/mergo` 1.0.1.

use super::default::is_empty;
use super::text::is_slice;
use super::{Answer, MAP};
use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::value::{Kind, Map, Str, Value};
use bounded::{Budget, BudgetError};

pub(super) static FUNCS: &[Func] = &[
    Func::value("merge", &[MAP], merge::<false>).variadic(MAP),
    Func::value("mergeOverwrite", &[MAP], merge::<OVERWRITE>).variadic(MAP),
    Func::value("mustMerge", &[MAP], must_merge::<false>).variadic(MAP),
    Func::value("mustMergeOverwrite", &[MAP], must_merge::<OVERWRITE>).variadic(MAP),
];

const OVERWRITE: bool = true;

enum MergeError {
    /// A pointer meets another type: the only case that mergo itself rejects.
    DifferentTypes,
    Failed(FuncError),
}

impl From<BudgetError> for MergeError {
    fn from(error: BudgetError) -> Self {
        Self::Failed(error.into())
    }
}

/// Different types are no error, but give an empty text.
fn merge<const OVERWRITES: bool>(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    match merge_all(call, args, OVERWRITES) {
        Ok(merged) => Ok(merged),
        Err(MergeError::DifferentTypes) => Ok(Value::Str(Str::EMPTY)),
        Err(MergeError::Failed(error)) => Err(error),
    }
}

fn must_merge<const OVERWRITES: bool>(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    merge_all(call, args, OVERWRITES).map_err(|stop| match stop {
        MergeError::DifferentTypes => FuncError::new("src and dst must be of same type"),
        MergeError::Failed(error) => error,
    })
}

/// Merges the dictionaries from the second on into the first, in place.
fn merge_all(
    call: &mut Call<'_>,
    args: &mut Args<'_>,
    overwrite: bool,
) -> Result<Value, MergeError> {
    let sources = args.take_rest(1);
    let target = args.take(0);
    let mut map = target.as_map().cloned();
    let merger = Merger {
        overwrite,
        budget: call.budget(),
    };
    for source in sources.iter().filter_map(Value::as_map) {
        let map = map.get_or_insert_with(Map::new);
        merger.merge(map, source)?;
    }
    Ok(map.map_or(target, Value::Map))
}

struct Merger<'l> {
    overwrite: bool,
    budget: &'l Budget,
}

impl Merger<'_> {
    fn merge(&self, target: &Map, source: &Map) -> Result<(), MergeError> {
        self.budget.range(source.len())?;
        for (key, value) in source.entries() {
            self.merge_entry(target, key, value)?;
        }
        Ok(())
    }

    fn merge_entry(&self, target: &Map, key: Str, value: Value) -> Result<(), MergeError> {
        if matches!(value, Value::Nil) {
            if self.overwrite {
                target.insert(key, value);
            }
            return Ok(());
        }
        let old = target.get(&key);
        if let Some(old) = &old {
            self.descend(old, &value)?;
            // Checked only now, because descending may have filled an empty dictionary.
            if !is_empty(old) {
                let both_maps = old.kind() == Kind::Map && value.kind() == Kind::Map;
                if is_slice(&value) && self.overwrite {
                    return store(target, key, value);
                }
                if is_slice(&value) || both_maps || !self.overwrite {
                    return Ok(());
                }
            }
        }
        store(target, key, value)
    }

    /// Merges the content of `value` into the content of `old`.
    fn descend(&self, old: &Value, value: &Value) -> Result<(), MergeError> {
        match (old, value) {
            (Value::Map(old), Value::Map(value)) => self.budget.descend(|| self.merge(old, value)),
            // A pointer accepts another pointer, and any value if overwriting is allowed.
            (Value::Object(old), Value::Map(_) | Value::Object(_))
                if old.go_type().kind() == Kind::Ptr
                    && value.kind() != Kind::Ptr
                    && !self.overwrite =>
            {
                let composite = matches!(value.kind(), Kind::Map | Kind::Struct);
                let points_to_it = Some(old.go_type().elem()) == value.go_type();
                let fits = !composite || points_to_it;
                fits.then_some(()).ok_or(MergeError::DifferentTypes)
            }
            _ => Ok(()),
        }
    }
}

/// Sets an entry. A typed dictionary rejects values of other types.
fn store(target: &Map, key: Str, value: Value) -> Result<(), MergeError> {
    let element = target.go_type().elem();
    let fits = value.go_type().is_none_or(|ty| ty.assignable_to(element));
    if !fits {
        let message = format!(
            "reflect.Value.SetMapIndex: value of type {} is not assignable to type {element}",
            value.type_name()
        );
        return Err(MergeError::Failed(FuncError::new(message)));
    }
    target.insert(key, value);
    Ok(())
}
