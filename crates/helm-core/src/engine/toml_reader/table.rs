//! The tables of a document, and the rules for setting keys in them.

use go_template::{List, Map, Type, TypeInfo, Value};

use super::{Read, TomlReader};

static TABLES: TypeInfo = TypeInfo::slice("[]map[string]interface {}", Type::MAP);
const TABLES_TYPE: Type = Type::new(&TABLES);

impl TomlReader<'_> {
    /// Records that a table exists without a header of its own.
    pub(super) fn imply(&mut self, path: Vec<String>) -> Read {
        self.hold(&path, 1)?;
        self.implicit.insert(path);
        Ok(())
    }

    /// Counts the memory of copies of a path, which is long for deep tables.
    pub(super) fn hold(&mut self, path: &[String], copies: usize) -> Read {
        /// Bytes that the allocator takes for a short name.
        const ALLOCATED: usize = 32;
        let names = path
            .iter()
            .map(|name| size_of::<String>() + ALLOCATED + name.len());
        let bytes = copies * names.sum::<usize>();
        self.budget.memory(bytes)?;
        self.held.add(bytes);
        Ok(())
    }

    /// Makes a table the current one, and creates missing parents.
    pub(super) fn enter(&mut self, key: &[String], array: bool) -> Read {
        let Some((last, parents)) = key.split_last() else {
            return Ok(());
        };
        self.budget.step(key.len() as u64)?;
        let mut hash = self.root.clone();
        for depth in 0..parents.len() {
            let path = parents.get(..=depth).unwrap_or_default();
            let name = parents.get(depth).map_or("", String::as_str);
            if !hash.contains_key(name) {
                self.imply(path.to_vec())?;
                hash.insert(name, Value::Map(Map::new()));
            }
            let Some(map) = below(&hash, name) else {
                let text = format!("Key '{}' was already created as a hash.", dotted(path));
                return Self::fail_line(self.key_line, text);
            };
            hash = map;
        }
        self.context = parents.to_vec();
        if array {
            let mut tables = match hash.get(last.as_str()) {
                None => Vec::new(),
                Some(Value::List(present)) if present.go_type() == TABLES_TYPE => {
                    present.iter().collect()
                }
                Some(_) => {
                    let text = format!(
                        "Key '{}' was already created and cannot be used as an array.",
                        dotted(key)
                    );
                    return Self::fail_line(self.key_line, text);
                }
            };
            tables.push(Value::Map(Map::new()));
            let tables = List::new(TABLES_TYPE, tables);
            hash.insert(last.as_str(), Value::List(tables));
        } else {
            self.set(last, Value::Map(Map::new()))?;
        }
        self.context.push(last.clone());
        Ok(())
    }

    /// Sets a new key of the current table.
    pub(super) fn set(&mut self, name: &str, value: Value) -> Read {
        self.budget.step(self.context.len() as u64)?;
        let mut hash = self.root.clone();
        let mut path = Vec::new();
        for part in &self.context {
            path.push(part.clone());
            let Some(map) = below(&hash, part) else {
                let text = format!("Key '{}' has already been defined.", dotted(&path));
                return Self::fail_line(self.key_line, text);
            };
            hash = map;
        }
        path.push(name.to_owned());
        if let Some(present) = hash.get(name) {
            if !self.implicit.remove(&path) {
                let text = format!("Key '{}' has already been defined.", dotted(&path));
                return Self::fail_line(self.key_line, text);
            }
            // A list of inline tables was built while its items were parsed.
            if matches!((&present, &value), (Value::List(_), Value::List(_))) {
                hash.insert(name, value);
            }
            return Ok(());
        }
        hash.insert(name, value);
        Ok(())
    }
}

/// Returns the table of a name; for an array of tables, its last one.
fn below(hash: &Map, name: &str) -> Option<Map> {
    match hash.get(name)? {
        Value::Map(map) => Some(map),
        Value::List(list) if list.go_type() == TABLES_TYPE => match list.iter().last()? {
            Value::Map(map) => Some(map),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn dotted(key: &[String]) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let parts: Vec<String> = key
        .iter()
        .map(|part| {
            if !part.is_empty() && part.chars().all(bare) {
                part.clone()
            } else {
                format!("{part:?}")
            }
        })
        .collect();
    parts.join(".")
}
