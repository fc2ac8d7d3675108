//! Follows a chain of names, such as `.Values.image.tag`, through maps and their trees.
//!
//! Maps along the way are neither wrapped nor reference-counted; only the result is copied.
//! Anything but a map entry, or that needs memory, is left to the evaluator, which proceeds step by
//! step.

use super::map::{Map, State};
use super::tree::{Tree, TreeMap};
use super::{Name, Type, Value};

/// Result of following names through maps.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Followed {
    /// A value was found and written.
    Found,
    /// The last name is missing in a map of this type.
    Missing(Type),
    /// The evaluator has to decide.
    Unknown,
}

impl Map {
    /// Follows names through this map and nested maps, whose types must not have methods with these
    /// names, and writes the result to `to`.
    #[inline]
    pub(crate) fn follow(&self, names: &[Name], to: &mut Value) -> Followed {
        let Some((name, rest)) = names.split_first() else {
            return Followed::Unknown;
        };
        if self.go_type().has_method(name) {
            return Followed::Unknown;
        }
        let missing = if rest.is_empty() {
            Followed::Missing(self.go_type())
        } else {
            Followed::Unknown
        };
        match &*self.read() {
            State::Owned(table) => {
                let position = table.find_name(name);
                match position.and_then(|position| table.entry(position)) {
                    Some(entry) => entry.value.follow(rest, to),
                    None => missing,
                }
            }
            State::Frozen { tree, nested } => {
                let Some(position) = tree.table().find_name(name) else {
                    return missing;
                };
                match (nested.get(position), tree.table().entry(position)) {
                    (Some(value), _) if !matches!(value, Value::Invalid) => value.follow(rest, to),
                    (_, Some(entry)) => entry.value.follow(rest, to),
                    _ => Followed::Unknown,
                }
            }
        }
    }
}

impl Value {
    /// Follows names from this value; without names, the result is the value itself.
    fn follow(&self, names: &[Name], to: &mut Self) -> Followed {
        match self {
            value if names.is_empty() => {
                to.put_copy(value);
                Followed::Found
            }
            Self::Map(map) => map.follow(names, to),
            _ => Followed::Unknown,
        }
    }
}

impl Tree {
    /// Follows names from this value.
    fn follow(&self, names: &[Name], to: &mut Value) -> Followed {
        match self {
            leaf if names.is_empty() && leaf.write_leaf(to) => Followed::Found,
            Self::Map(map) if !names.is_empty() => map.follow(names, to),
            _ => Followed::Unknown,
        }
    }
}

impl TreeMap {
    /// Follows names through this map and nested ones, like [`Map::follow`].
    fn follow(&self, names: &[Name], to: &mut Value) -> Followed {
        let mut map = self;
        let mut names = names.iter();
        while let Some(name) = names.next() {
            if map.go_type().has_method(name) {
                break;
            }
            let position = map.table().find_name(name);
            match position.and_then(|position| map.table().entry(position)) {
                None if names.len() == 0 => return Followed::Missing(map.go_type()),
                None => break,
                Some(entry) => match &entry.value {
                    Tree::Map(inner) if names.len() > 0 => map = inner,
                    leaf if names.len() == 0 && leaf.write_leaf(to) => return Followed::Found,
                    _ => break,
                },
            }
        }
        Followed::Unknown
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::value::Str;

    #[test]
    fn names_are_followed_without_wrapping_intermediate_maps() {
        let inner = TreeMap::new(Type::MAP, [(Str::from("x"), Tree::Int(1))]);
        let inner = Tree::Map(Arc::new(inner));
        let tree = TreeMap::new(Type::MAP, [(Str::from("a"), inner)]);
        let map = Map::from_tree(Arc::new(tree));
        let follow = |names: &[&str], to: &mut Value| {
            let names: Vec<_> = names.iter().map(|name| Name::from(*name)).collect();
            map.follow(&names, to)
        };
        let mut to = Value::Nil;
        assert!(matches!(follow(&["a", "x"], &mut to), Followed::Found));
        assert!(matches!(to, Value::Int(1)));
        assert!(matches!(
            follow(&["a", "y"], &mut to),
            Followed::Missing(ty) if ty == Type::MAP
        ));
        assert!(matches!(follow(&["b", "y"], &mut to), Followed::Unknown));
        assert!(matches!(follow(&["a"], &mut to), Followed::Unknown));
        let Some(Value::Map(inner)) = map.get("a") else {
            panic!("no map at a")
        };
        inner.insert("x", Value::Int(2));
        assert!(matches!(follow(&["a", "x"], &mut to), Followed::Found));
        assert!(matches!(to, Value::Int(2)));
    }
}
