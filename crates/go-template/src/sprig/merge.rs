//! `merge` and `mergeOverwrite`, by the rules of `dario.cat/mergo` 1.0.1.

use super::default::is_empty;
use super::text::is_slice;
use crate::budget::Limits;
use crate::error::FuncError;
use crate::func::{Args, Call, Func};
use crate::value::{Kind, Map, Str, Type, Value};

type Answer = Result<Value, FuncError>;

const MAP: Type = Type::MAP;

pub(super) static FUNCS: &[Func] = &[
    Func::value("merge", &[MAP], merge).variadic(MAP),
    Func::value("mergeOverwrite", &[MAP], merge_overwrite).variadic(MAP),
    Func::value("mustMerge", &[MAP], must_merge).variadic(MAP),
    Func::value("mustMergeOverwrite", &[MAP], must_merge_overwrite).variadic(MAP),
];

/// Why a merge stops.
enum Stop {
    /// A pointer meets something else: all that mergo itself refuses.
    DifferentTypes,
    Failed(FuncError),
}

fn merge(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    swallow(merge_all(call, args, false))
}

fn merge_overwrite(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    swallow(merge_all(call, args, true))
}

fn must_merge(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    insist(merge_all(call, args, false))
}

fn must_merge_overwrite(call: &mut Call<'_>, args: &mut Args<'_>) -> Answer {
    insist(merge_all(call, args, true))
}

fn swallow(merged: Result<Value, Stop>) -> Answer {
    match merged {
        Ok(merged) => Ok(merged),
        Err(Stop::DifferentTypes) => Ok(Value::Str(Str::EMPTY)),
        Err(Stop::Failed(error)) => Err(error),
    }
}

fn insist(merged: Result<Value, Stop>) -> Answer {
    merged.map_err(|stop| match stop {
        Stop::DifferentTypes => FuncError::new("src and dst must be of same type"),
        Stop::Failed(error) => error,
    })
}

/// Merges the dictionaries from the second on into the first, which changes in place.
fn merge_all(call: &mut Call<'_>, args: &mut Args<'_>, overwrite: bool) -> Result<Value, Stop> {
    let sources = args.take_rest(1);
    let target = args.take(0);
    let mut map = target.as_map().cloned();
    let limits = call.budget().limits().clone();
    let mut merger = Merger {
        overwrite,
        limits: &limits,
        steps: 0,
    };
    for source in &sources {
        let Some(source) = source.as_map() else {
            continue;
        };
        let map = map.get_or_insert_with(Map::new);
        merger.merge(map, source, 0)?;
    }
    call.budget()
        .step(merger.steps)
        .map_err(|error| Stop::Failed(error.into()))?;
    Ok(map.map_or(target, Value::Map))
}

struct Merger<'l> {
    overwrite: bool,
    limits: &'l Limits,
    steps: u64,
}

impl Merger<'_> {
    fn merge(&mut self, target: &Map, source: &Map, depth: usize) -> Result<(), Stop> {
        if depth > self.limits.nesting {
            let limit = self.limits.nesting;
            let error = crate::budget::BudgetError::Nesting { limit };
            return Err(Stop::Failed(error.into()));
        }
        for (key, value) in source.entries() {
            self.steps += 1;
            self.merge_entry(target, key, value, depth)?;
        }
        Ok(())
    }

    fn merge_entry(
        &mut self,
        target: &Map,
        key: Str,
        value: Value,
        depth: usize,
    ) -> Result<(), Stop> {
        if matches!(value, Value::Nil) {
            if self.overwrite {
                target.insert(key, value);
            }
            return Ok(());
        }
        let old = target.get(&key);
        if let Some(old) = &old {
            self.descend(old, &value, depth)?;
            // Only now, since descending may have filled an empty dictionary.
            if !is_zero(old) {
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

    /// Merges what lies inside `value` into what lies inside `old`.
    fn descend(&mut self, old: &Value, value: &Value, depth: usize) -> Result<(), Stop> {
        match (old, value) {
            (Value::Map(old), Value::Map(value)) => {
                crate::stack::grow(|| self.merge(old, value, depth + 1))
            }
            // A pointer takes another pointer, and anything when it may be overwritten.
            (Value::Object(old), Value::Map(_) | Value::Object(_))
                if old.go_type().kind() == Kind::Ptr
                    && value.kind() != Kind::Ptr
                    && !self.overwrite =>
            {
                let composite = matches!(value.kind(), Kind::Map | Kind::Struct);
                let points_to_it = Some(old.go_type().elem()) == value.go_type();
                if composite && !points_to_it {
                    Err(Stop::DifferentTypes)
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }
}

/// Sets an entry. Values of other types do not fit a dictionary of texts.
fn store(target: &Map, key: Str, value: Value) -> Result<(), Stop> {
    let element = target.go_type().elem();
    let fits = value.go_type().is_none_or(|ty| ty.assignable_to(element));
    if !fits {
        let message = format!(
            "reflect.Value.SetMapIndex: value of type {} is not assignable to type {element}",
            value.type_name()
        );
        return Err(Stop::Failed(FuncError::new(message)));
    }
    target.insert(key, value);
    Ok(())
}

/// What mergo takes for empty: pointers to structs are not.
fn is_zero(value: &Value) -> bool {
    is_empty(value)
}
