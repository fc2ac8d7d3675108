//! `valuesFrom`: reads values from Secrets and `ConfigMap`s.

use std::borrow::Cow;
use std::fmt;

use helm_core::Values;
use helm_core::values::{merge, read};
use serde_json::Value;

use super::inputs::{Inputs, ValuesError};
use super::mapping;
use crate::watches::{ReferenceKind, ValuesFrom, Watch};

/// Reference to a Secret or `ConfigMap`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Reference {
    /// Kind of the object.
    pub kind: ReferenceKind,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

impl Reference {
    /// Returns the reference of an entry for a custom resource.
    ///
    /// # Errors
    /// If the template of the name fails.
    fn of(from: &ValuesFrom, inputs: &Inputs<'_>) -> Result<Self, ValuesError> {
        let own = inputs
            .object
            .pointer("/metadata/namespace")
            .and_then(Value::as_str);
        let namespace = from.namespace.as_deref().or(own).unwrap_or_default();
        Ok(Self {
            kind: from.kind,
            namespace: namespace.to_owned(),
            name: mapping::text(&from.name, inputs, "valuesFrom.name")?,
        })
    }
}

/// Returns what an entry refers to for a custom resource: in `valuesFrom`, then in fields of the spec that refer to
/// Secrets.
///
/// # Errors
/// If the template of a name fails.
pub(crate) fn sources<'w>(
    watch: &'w Watch,
    inputs: &Inputs<'_>,
) -> Result<Vec<(Cow<'w, ValuesFrom>, Reference)>, ValuesError> {
    let listed = watch.values_from.iter();
    let listed = listed.map(|from| Ok((Cow::Borrowed(from), Reference::of(from, inputs)?)));
    let of_spec = watch.secrets.iter().filter_map(|(path, field)| {
        let mut value = inputs.object.get("spec");
        for name in field {
            value = value.and_then(|value| value.get(name));
        }
        let text = |name: &str| Some(value?.get(name)?.as_str()?.to_owned());
        let (name, key) = (text("name")?, text("key")?);
        let namespace = inputs.object.pointer("/metadata/namespace");
        let namespace = namespace.and_then(Value::as_str).unwrap_or_default();
        let reference = Reference {
            kind: ReferenceKind::Secret,
            namespace: namespace.to_owned(),
            name: name.clone(),
        };
        let from = ValuesFrom {
            kind: reference.kind,
            name,
            namespace: None,
            key,
            target_path: Some(path.join(".")),
            optional: false,
        };
        Some(Ok((Cow::Owned(from), reference)))
    });
    listed.chain(of_spec).collect()
}

/// Merges the referenced values into `values`, in order.
pub(super) fn apply(
    watch: &Watch,
    inputs: &Inputs<'_>,
    values: &mut Values,
) -> Result<(), ValuesError> {
    for (from, reference) in sources(watch, inputs)? {
        let content = inputs
            .references
            .get(&reference)
            .and_then(|keys| keys.get(&from.key));
        let (kind, name, key) = (from.kind.to_string(), reference.name, from.key.clone());
        let Some(content) = content else {
            if from.optional {
                continue;
            }
            return Err(ValuesError::Missing { kind, name, key });
        };
        let more = match &from.target_path {
            // The whole text is the value; commas and dots are not special.
            Some(path) => at_path(path, content),
            None => read(content.as_bytes()).map_err(|source| ValuesError::File {
                kind,
                name,
                key,
                source: Box::new(source),
            })?,
        };
        *values = merge(std::mem::take(values), more);
    }
    Ok(())
}

/// Builds a map that holds a text at a dotted path.
fn at_path(path: &str, text: &str) -> Values {
    let mut parts = path.split('.').rev();
    let mut values = Values::new();
    values.insert(
        parts.next().unwrap_or_default().to_owned(),
        Value::from(text),
    );
    for part in parts {
        let inner = std::mem::take(&mut values);
        values.insert(part.to_owned(), Value::Object(inner));
    }
    values
}
