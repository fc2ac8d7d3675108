//! Projects: what a history is about.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value, json};

/// A program, what is in the cluster before it starts, and what people may do with it.
#[derive(Debug, Clone)]
pub struct Project {
    /// Directories with the files of the program, one per version of it.
    pub versions: Vec<PathBuf>,
    /// Objects that are in the cluster before.
    pub objects: Vec<Value>,
    /// Objects that are in the cluster after these, and that people delete and create again, such as definitions.
    pub replaced: Vec<Value>,
    /// Contents of an object that values refer to. People change it to another one, and delete it. The first is there in
    /// the beginning.
    pub settings: Vec<Value>,
    /// Custom resources that people create, change and delete.
    pub resources: Vec<Custom>,
    /// Annotation by which people have the program leave a custom resource alone for a while.
    pub suspends: Option<(String, String)>,
    /// Further objects that people create and delete.
    pub others: Vec<Value>,
    /// Number of requests that a history may have for each of its steps, and for its end.
    pub requests: u64,
    /// Whether some histories have two processes of the program, of which one is elected.
    pub elects: bool,
}

/// Version of the program, and settings: all custom resources depend on them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(super) struct Setup {
    /// Version of the program.
    pub(super) version: usize,
    /// Number of the settings.
    pub(super) settings: usize,
}

impl Setup {
    /// Returns the first settings with a version of the program.
    pub(super) fn of(version: usize) -> Self {
        Self {
            version,
            settings: 0,
        }
    }
}

impl Default for Project {
    /// A project without anything, with at most 10,000 requests for each step.
    fn default() -> Self {
        Self {
            versions: Vec::new(),
            objects: Vec::new(),
            replaced: Vec::new(),
            settings: Vec::new(),
            resources: Vec::new(),
            suspends: None,
            others: Vec::new(),
            requests: 10_000,
            elects: false,
        }
    }
}

/// A custom resource that people create, change and delete.
#[derive(Debug, Clone)]
pub struct Custom {
    /// API version, kind, namespace and name.
    pub object: Value,
    /// Fields of the specification that vary.
    pub fields: Vec<Field>,
    /// Annotations that come and go.
    pub annotations: Vec<(String, String)>,
}

/// A field that varies.
#[derive(Debug, Clone)]
pub struct Field {
    /// Name of the field.
    pub name: String,
    /// Values that it may have; null means that it is missing.
    pub values: Vec<Value>,
}

impl Field {
    /// Creates a field.
    pub fn new(name: &str, values: impl IntoIterator<Item = Value>) -> Self {
        Self {
            name: name.to_owned(),
            values: values.into_iter().collect(),
        }
    }
}

impl Custom {
    /// Creates a custom resource without fields. The namespace is empty for a cluster-scoped one.
    pub fn new(api_version: &str, kind: &str, namespace: &str, name: &str) -> Self {
        let metadata = if namespace.is_empty() {
            json!({"name": name})
        } else {
            json!({"namespace": namespace, "name": name})
        };
        Self {
            object: json!({"apiVersion": api_version, "kind": kind, "metadata": metadata}),
            fields: Vec::new(),
            annotations: Vec::new(),
        }
    }

    /// Returns the choices in which exactly one field has not its first value, each with the field and the value.
    pub(super) fn variations(&self) -> impl Iterator<Item = (usize, usize, Vec<usize>)> {
        let count = self.fields.len();
        let values = |(index, field): (usize, &Field)| {
            (1..field.values.len()).map(move |value| (index, value))
        };
        let fields = self.fields.iter().enumerate();
        fields.flat_map(values).map(move |(varied, value)| {
            let chosen = |index| if index == varied { value } else { 0 };
            (varied, value, (0..count).map(chosen).collect())
        })
    }

    /// Returns the object with the first values of its fields.
    pub(super) fn first(&self) -> Value {
        self.with(&vec![0; self.fields.len()])
    }

    /// Returns the object with a choice of values for its fields.
    pub(super) fn with(&self, choice: &[usize]) -> Value {
        let mut spec = Map::new();
        for (field, chosen) in self.fields.iter().zip(choice) {
            match field.values.get(*chosen) {
                None | Some(Value::Null) => {}
                Some(value) => drop(spec.insert(field.name.clone(), value.clone())),
            }
        }
        let mut object = self.object.clone();
        if let Some(fields) = object.as_object_mut() {
            fields.insert("spec".to_owned(), Value::Object(spec));
        }
        object
    }
}
