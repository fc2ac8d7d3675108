//! The types of objects: of built-in kinds, from a file, and of definitions.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::error::ApplyError;
use super::openapi;
use super::reset::Reset;
use super::schema::{Atom, Ref, Schema};

/// The file with the types of built-in kinds, which a test generates from kube-apiserver's `OpenAPI`.
const BUILTIN: &str = include_str!("types.json");

static BUILTIN_TYPES: LazyLock<Result<Builtin, String>> = LazyLock::new(|| {
    let file: File = serde_json::from_str(BUILTIN).map_err(|error| error.to_string())?;
    Ok(Builtin {
        kinds: file.kinds,
        schema: Arc::new(Schema::new(file.types)),
    })
});

struct Builtin {
    kinds: BTreeMap<String, Kind>,
    schema: Arc<Schema>,
}

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct File {
    /// Kinds by `apiVersion` and `kind`, separated by a space.
    pub(super) kinds: BTreeMap<String, Kind>,
    pub(super) types: BTreeMap<String, Atom>,
}

/// A built-in kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Kind {
    #[serde(rename = "type")]
    pub(super) type_: String,
    /// The object that the server starts from when it creates one: Go's zero value.
    pub(super) empty: Value,
}

/// The types of objects for merging.
#[derive(Debug)]
pub(crate) struct Types;

/// The type of the objects of a kind.
#[derive(Debug, Clone)]
pub(crate) struct TypeRef {
    pub(super) schema: Arc<Schema>,
    pub(super) root: Ref,
    pub(super) kind: String,
    pub(super) reset: Reset,
    /// Whether the kind is defined by a definition.
    pub(super) is_custom: bool,
    /// All versions of a definition, by `apiVersion`.
    pub(super) versions: Arc<BTreeMap<String, DefinedVersion>>,
    empty: Value,
}

/// A version of a definition.
#[derive(Debug)]
pub(super) struct DefinedVersion {
    pub(super) root: Ref,
    pub(super) has_status: bool,
}

impl Types {
    /// Returns the type of a built-in kind.
    ///
    /// # Errors
    ///
    /// [`ApplyError::NotModelled`] if the kind is not in the file.
    pub(crate) fn builtin(api_version: &str, kind: &str) -> Result<TypeRef, ApplyError> {
        let types = builtin_types()?;
        let found = types
            .kinds
            .get(&format!("{api_version} {kind}"))
            .ok_or_else(|| {
                ApplyError::NotModelled(format!("fields of the kind {kind} of {api_version}"))
            })?;
        Ok(TypeRef {
            schema: Arc::clone(&types.schema),
            root: Ref::named(&found.type_),
            kind: kind.to_owned(),
            reset: Reset::of_builtin(kind),
            is_custom: false,
            versions: Arc::default(),
            empty: found.empty.clone(),
        })
    }

    /// Returns the types of the kind that a definition defines, by `apiVersion`. Its versions are given with their
    /// `apiVersion`, their `openAPIV3Schema`, and whether they have the subresource `status`.
    ///
    /// # Errors
    ///
    /// [`ApplyError::NotModelled`] if a schema is no structural one.
    pub(crate) fn of_definition<'a>(
        kind: &str,
        versions: impl IntoIterator<Item = (String, &'a Value, bool)>,
    ) -> Result<BTreeMap<String, TypeRef>, ApplyError> {
        let mut defined = BTreeMap::new();
        for (api_version, schema, has_status) in versions {
            let mut schema = schema.clone();
            add_properties_of_objects(&mut schema, true);
            let atom = openapi::atom(&schema, false).map_err(|error| {
                ApplyError::NotModelled(format!("the schema of {kind}: {error}"))
            })?;
            let root = Ref::inline(atom);
            defined.insert(api_version, DefinedVersion { root, has_status });
        }
        let defined = Arc::new(defined);
        let builtin = builtin_types()?;
        let types = defined.iter().map(|(api_version, version)| {
            let type_ = TypeRef {
                schema: Arc::clone(&builtin.schema),
                root: version.root.clone(),
                kind: kind.to_owned(),
                reset: Reset::of_definition(version.has_status),
                is_custom: true,
                versions: Arc::clone(&defined),
                empty: json!({}),
            };
            (api_version.clone(), type_)
        });
        Ok(types.collect())
    }
}

fn builtin_types() -> Result<&'static Builtin, ApplyError> {
    BUILTIN_TYPES
        .as_ref()
        .map_err(|error| ApplyError::NotModelled(format!("the file of types: {error}")))
}

impl TypeRef {
    /// Returns the object that the server starts from when it creates `new`.
    pub(super) fn empty(&self, api_version: &str, new: &Value) -> Value {
        let mut empty = self.empty.clone();
        if !self.is_custom {
            add_nulls(&mut empty, new);
        }
        if let Some(fields) = empty.as_object_mut() {
            fields.insert("apiVersion".to_owned(), json!(api_version));
            fields.insert("kind".to_owned(), json!(self.kind));
        }
        empty
    }
}

/// Adds the nulls of `new`: fields that Go encodes when they have no value.
fn add_nulls(empty: &mut Value, new: &Value) {
    let (Some(empty), Some(new)) = (empty.as_object_mut(), new.as_object()) else {
        return;
    };
    for (name, value) in new {
        match empty.get_mut(name) {
            Some(part) => add_nulls(part, value),
            None if value.is_null() => {
                empty.insert(name.clone(), Value::Null);
            }
            None => {}
        }
    }
}

/// Declares `apiVersion`, `kind` and `metadata` of the object and of embedded ones.
fn add_properties_of_objects(schema: &mut Value, is_object: bool) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        for property in properties.values_mut() {
            add_properties_of_objects(property, false);
        }
    }
    for below in ["items", "additionalProperties"] {
        if let Some(below) = fields.get_mut(below) {
            add_properties_of_objects(below, false);
        }
    }
    if is_object || fields.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) {
        let properties = fields.entry("properties").or_insert_with(|| json!({}));
        if let Some(properties) = properties.as_object_mut() {
            properties.insert("apiVersion".to_owned(), json!({"type": "string"}));
            properties.insert("kind".to_owned(), json!({"type": "string"}));
            properties.insert("metadata".to_owned(), json!({"$ref": "meta.v1.ObjectMeta"}));
        }
    }
}
