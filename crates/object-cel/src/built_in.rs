//! The kinds of kube-apiserver and their types.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::{ObjectType, Type};

/// A line for each kind, `+apps/v1 StatefulSet apps.v1.StatefulSet`, and for each type,
/// `apps.v1.StatefulSetOrdinals start=i`. The test `built_in` writes it.
const TABLE: &str = include_str!("built_in.txt");

struct Table {
    /// Names of types by version and kind.
    kinds: BTreeMap<&'static str, &'static str>,
    /// Fields of types.
    types: BTreeMap<&'static str, &'static str>,
    resolved: BTreeMap<&'static str, Type>,
}

/// Returns the type of the objects of a kind, such as `StatefulSet` of `apps/v1`. These are the kinds of Kubernetes
/// 1.36 that charts have.
///
/// ```
/// use object_cel::{Type, built_in};
/// let Some(Type::Object(service)) = built_in("v1", "Service") else { panic!() };
/// assert_eq!(service.fields["spec"].to_string(), "ServiceSpec");
/// assert_eq!(built_in("v2", "Service"), None);
/// ```
pub fn built_in(api_version: &str, kind: &str) -> Option<Type> {
    static KNOWN: OnceLock<Table> = OnceLock::new();
    let table = KNOWN.get_or_init(Table::read);
    let name = table.kinds.get(format!("{api_version} {kind}").as_str())?;
    table.resolved.get(name).cloned()
}

impl Table {
    fn read() -> Self {
        let mut table = Self {
            kinds: BTreeMap::new(),
            types: BTreeMap::new(),
            resolved: BTreeMap::new(),
        };
        for line in TABLE.lines() {
            if let Some((kind, name)) = line
                .strip_prefix('+')
                .and_then(|line| line.rsplit_once(' '))
            {
                table.kinds.insert(kind, name);
            } else {
                let (name, fields) = line.split_once(' ').unwrap_or((line, ""));
                table.types.insert(name, fields);
            }
        }
        let names: Vec<&str> = table.types.keys().copied().collect();
        for name in names {
            table.resolve(name);
        }
        table
    }

    /// Returns a type. The table has no type within itself.
    fn resolve(&mut self, name: &'static str) -> Type {
        if let Some(type_) = self.resolved.get(name) {
            return type_.clone();
        }
        let fields = self.types.get(name).copied().unwrap_or_default();
        let fields = fields.split(' ').filter_map(|field| field.split_once('='));
        let fields = fields.map(|(field, code)| (field.to_owned(), self.of_code(code)));
        let type_ = Type::Object(Arc::new(ObjectType {
            fields: fields.collect(),
            name: name.rsplit('.').next().unwrap_or(name).to_owned(),
            open: false,
        }));
        self.resolved.insert(name, type_.clone());
        type_
    }

    fn of_code(&mut self, code: &'static str) -> Type {
        let below = code.get(1..).unwrap_or_default();
        match code.get(..1) {
            Some("b") => Type::Bool,
            Some("i") => Type::Int,
            Some("n") => Type::Double,
            Some("s") => Type::String,
            Some("y") => Type::Bytes,
            Some("t") => Type::Timestamp,
            Some("x") => Type::IntOrString,
            Some("[") => Type::list(self.of_code(below)),
            Some("{") => Type::map(self.of_code(below)),
            Some("@") => self.resolve(below),
            _ => Type::Dyn,
        }
    }
}
