//! Which types go with which, as in the checker of cel-go.

use std::collections::HashMap;
use std::sync::Arc;

use crate::Type;

/// What the parameters of types stand for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapping {
    bound: HashMap<u32, Type>,
    next: u32,
}

impl Mapping {
    /// Returns the number of the first of `count` new parameters.
    pub(crate) fn fresh(&mut self, count: u32) -> u32 {
        let first = self.next;
        self.next += count;
        first
    }

    /// Returns whether a value of type `actual` may be where `wanted` is expected, and binds the parameters of both if
    /// so.
    pub(crate) fn accepts(&mut self, actual: &Type, wanted: &Type) -> bool {
        self.all_accept(&[(actual, wanted)])
    }

    /// As [`Mapping::accepts`] for pairs, binding parameters only if all fit.
    pub(crate) fn all_accept(&mut self, pairs: &[(&Type, &Type)]) -> bool {
        let mut attempt = self.clone();
        let fit = pairs
            .iter()
            .all(|(actual, wanted)| attempt.fits(actual, wanted));
        if fit {
            *self = attempt;
        }
        fit
    }

    fn fits(&mut self, a: &Type, b: &Type) -> bool {
        if let Type::Parameter(b) = b {
            match self.bind(a, *b) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Parameter(a) = a {
            return self.bind(b, *a).0;
        }
        match (a, b) {
            (Type::Dyn, _) | (_, Type::Dyn) => true,
            (Type::IntOrString, other) | (other, Type::IntOrString) => {
                matches!(other, Type::IntOrString | Type::Int | Type::String)
            }
            (Type::Null, other) | (other, Type::Null) => matches!(
                other,
                Type::Null
                    | Type::Library(_)
                    | Type::Optional(_)
                    | Type::Object(_)
                    | Type::Duration
                    | Type::Timestamp
            ),
            (Type::List(a), Type::List(b))
            | (Type::Map(a), Type::Map(b))
            | (Type::Optional(a), Type::Optional(b)) => self.fits(a, b),
            (a, b) => a == b,
        }
    }

    /// Returns whether parameter `number` can stand for a type, and whether it stood for one already.
    fn bind(&mut self, type_: &Type, number: u32) -> (bool, bool) {
        if *type_ == Type::Parameter(number) {
            return (true, true);
        }
        if let Some(bound) = self.bound.get(&number).cloned() {
            if *type_ == bound {
                return (true, true);
            }
            if !self.fits(type_, &bound) {
                return (false, true);
            }
            let general = most_general(type_, &bound);
            if !self.contains(&general, number) {
                self.bound.insert(number, general);
            }
            return (true, true);
        }
        if self.contains(type_, number) {
            return (false, false);
        }
        self.bound.insert(number, type_.clone());
        (true, false)
    }

    fn contains(&self, type_: &Type, number: u32) -> bool {
        match type_ {
            Type::Parameter(other) if *other == number => true,
            Type::Parameter(other) => {
                let bound = self.bound.get(other);
                bound.is_some_and(|bound| self.contains(bound, number))
            }
            Type::List(inner) | Type::Map(inner) | Type::Optional(inner) => {
                self.contains(inner, number)
            }
            _ => false,
        }
    }

    /// Returns a type with what its parameters stand for.
    pub(crate) fn resolve(&self, type_: &Type) -> Type {
        replace(type_, &|number| {
            self.bound.get(&number).map(|bound| self.resolve(bound))
        })
    }

    /// Returns a type without parameters.
    pub(crate) fn finish(&self, type_: &Type) -> Type {
        replace(&self.resolve(type_), &|_| Some(Type::Dyn))
    }
}

/// Returns a type with other types in place of its parameters.
pub(crate) fn replace(type_: &Type, other: &dyn Fn(u32) -> Option<Type>) -> Type {
    let inner = |inner: &Arc<Type>| Arc::new(replace(inner, other));
    match type_ {
        Type::Parameter(number) => other(*number).unwrap_or_else(|| type_.clone()),
        Type::List(elements) => Type::List(inner(elements)),
        Type::Map(values) => Type::Map(inner(values)),
        Type::Optional(value) => Type::Optional(inner(value)),
        _ => type_.clone(),
    }
}

/// Returns the more general one of two types that go with each other.
pub(crate) fn most_general(a: &Type, b: &Type) -> Type {
    if is_as_general(a, b) { a } else { b }.clone()
}

fn is_as_general(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Parameter(_), _) => true,
        (_, Type::Dyn | Type::Parameter(_)) => false,
        (Type::IntOrString, _) => true,
        (Type::List(a), Type::List(b))
        | (Type::Map(a), Type::Map(b))
        | (Type::Optional(a), Type::Optional(b)) => is_as_general(a, b),
        (a, b) => a == b,
    }
}
