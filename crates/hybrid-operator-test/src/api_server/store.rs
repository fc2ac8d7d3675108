//! Objects, and the log of their changes that watches read.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, Deref};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::Value;

use super::object::{meta, set_meta};

/// Group and plural: what is stored together, whatever the version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) plural: String,
}

/// Namespace and name. The namespace of cluster-scoped objects is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Resource {
    pub(super) fn new(group: &str, plural: &str) -> Self {
        Self {
            group: group.to_owned(),
            plural: plural.to_owned(),
        }
    }
}

impl Key {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// An object as it is stored, and the texts of it that were sent.
#[derive(Debug)]
pub(super) struct Stored {
    value: Value,
    text: OnceLock<String>,
    item: OnceLock<String>,
    pub(super) read: OnceLock<Read>,
}

/// An object as its kind showed it.
#[derive(Debug)]
pub(super) struct Read {
    /// Since when the kind is served as it is.
    pub(super) since: u64,
    pub(super) api_version: String,
    /// The object if it is shown differently than it is stored.
    pub(super) object: Option<Arc<Stored>>,
}

impl Stored {
    pub(super) fn new(value: Value) -> Self {
        Self {
            value,
            text: OnceLock::new(),
            item: OnceLock::new(),
            read: OnceLock::new(),
        }
    }

    /// Returns the object as JSON.
    pub(super) fn text(&self) -> &str {
        self.text
            .get_or_init(|| serde_json::to_string(&self.value).unwrap_or_default())
    }

    /// Returns the object as JSON without its version and kind, which lists of built-in kinds name once.
    pub(super) fn item(&self) -> &str {
        self.item.get_or_init(|| {
            let all = self.value.as_object().into_iter().flatten();
            let fields = all.filter(|(name, _)| !matches!(name.as_str(), "apiVersion" | "kind"));
            let fields: BTreeMap<&String, &Value> = fields.collect();
            serde_json::to_string(&fields).unwrap_or_default()
        })
    }
}

impl Deref for Stored {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.value
    }
}

/// A change of an object.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) version: u64,
    /// Time since the start of the server.
    pub(super) at: Duration,
    pub(super) resource: Arc<Resource>,
    /// The object before; `None` if it was created.
    pub(super) before: Option<Arc<Stored>>,
    /// The object after; `None` if it was deleted.
    pub(super) after: Option<Arc<Stored>>,
}

impl Change {
    pub(super) fn before(&self) -> Option<&Value> {
        self.before.as_ref().map(|object| &***object)
    }

    pub(super) fn after(&self) -> Option<&Value> {
        self.after.as_ref().map(|object| &***object)
    }

    /// Returns the object after the change; a deleted one as it was, with the version of its deletion.
    pub(super) fn last(&self) -> Option<Arc<Stored>> {
        match (&self.after, &self.before) {
            (Some(after), _) => Some(Arc::clone(after)),
            (None, Some(before)) => {
                let deleted = versioned((**before).clone(), self.version);
                Some(Arc::new(Stored::new(deleted)))
            }
            (None, None) => None,
        }
    }
}

/// Everything that the server stores.
#[derive(Debug)]
pub(super) struct Store {
    version: u64,
    /// Time of the next change.
    now: Duration,
    /// Changes up to this version are forgotten.
    compacted: u64,
    objects: BTreeMap<Arc<Resource>, BTreeMap<Key, Arc<Stored>>>,
    log: VecDeque<Change>,
}

impl Store {
    pub(super) fn new() -> Self {
        Self {
            version: 1,
            now: Duration::ZERO,
            compacted: 0,
            objects: BTreeMap::new(),
            log: VecDeque::new(),
        }
    }

    /// Returns the version of the last change.
    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Sets the time of the next change.
    pub(super) fn set_time(&mut self, now: Duration) {
        self.now = now;
    }

    /// Returns the version that was the last at a time, as far as changes are remembered.
    pub(super) fn version_at(&self, time: Duration) -> u64 {
        let first = self.log.partition_point(|change| change.at <= time);
        let last = first.checked_sub(1).and_then(|index| self.log.get(index));
        let oldest = self.log.front();
        let oldest = oldest.map_or(self.version, |change| change.version - 1);
        last.map_or(oldest, |change| change.version)
    }

    /// Returns the version up to which changes are forgotten.
    pub(super) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(super) fn get(&self, resource: &Resource, key: &Key) -> Option<Arc<Stored>> {
        self.objects.get(resource)?.get(key).cloned()
    }

    /// Returns the objects of a resource in the order of their keys, after one of them if given.
    /// Without a namespace, those of all namespaces.
    pub(super) fn list<'a>(
        &'a self,
        resource: &Resource,
        namespace: Option<&'a str>,
        after: Option<&Key>,
    ) -> impl Iterator<Item = (&'a Key, &'a Arc<Stored>)> {
        let from = match (after, namespace) {
            (Some(key), _) => Bound::Excluded(key.clone()),
            (None, Some(namespace)) => Bound::Included(Key::new(namespace, "")),
            (None, None) => Bound::Unbounded,
        };
        let all = self.objects.get(resource).into_iter();
        all.flat_map(move |objects| objects.range((from.clone(), Bound::Unbounded)))
            .take_while(move |(key, _)| {
                namespace.is_none_or(|namespace| key.namespace == namespace)
            })
    }

    /// Returns the objects of a resource as they were at a version. `None` if that is forgotten.
    pub(super) fn list_at(
        &self,
        resource: &Resource,
        version: u64,
    ) -> Option<BTreeMap<Key, Arc<Stored>>> {
        if version < self.compacted {
            return None;
        }
        let mut objects = self.objects.get(resource).cloned().unwrap_or_default();
        let later = self.log.iter().rev();
        for change in later.take_while(|change| change.version > version) {
            if *change.resource != *resource {
                continue;
            }
            let Some(object) = change.after.as_ref().or(change.before.as_ref()) else {
                continue;
            };
            let key = key_of(object);
            match &change.before {
                Some(before) => objects.insert(key, Arc::clone(before)),
                None => objects.remove(&key),
            };
        }
        Some(objects)
    }

    /// Returns the resources of which there are or were objects.
    pub(super) fn resources(&self) -> Vec<Arc<Resource>> {
        self.objects.keys().cloned().collect()
    }

    /// Stores an object under its name and namespace, with a new version.
    pub(super) fn put(&mut self, resource: &Resource, object: Value) -> Arc<Stored> {
        self.version += 1;
        let object = Arc::new(Stored::new(versioned(object, self.version)));
        let resource = self.interned(resource);
        let key = key_of(&object);
        let objects = self.objects.entry(Arc::clone(&resource)).or_default();
        let before = objects.insert(key, Arc::clone(&object));
        self.log.push_back(Change {
            version: self.version,
            at: self.now,
            resource,
            before,
            after: Some(Arc::clone(&object)),
        });
        object
    }

    pub(super) fn delete(&mut self, resource: &Resource, key: &Key) {
        let objects = self.objects.get_mut(resource);
        let Some(before) = objects.and_then(|objects| objects.remove(key)) else {
            return;
        };
        self.version += 1;
        let resource = self.interned(resource);
        self.log.push_back(Change {
            version: self.version,
            at: self.now,
            resource,
            before: Some(before),
            after: None,
        });
    }

    pub(super) fn changes_after(&self, version: u64) -> impl Iterator<Item = &Change> {
        let first = self.log.partition_point(|change| change.version <= version);
        self.log.range(first..)
    }

    /// Forgets all changes.
    pub(super) fn compact(&mut self) {
        self.compacted = self.version;
        self.log.clear();
    }

    fn interned(&mut self, resource: &Resource) -> Arc<Resource> {
        if let Some((known, _)) = self.objects.get_key_value(resource) {
            return Arc::clone(known);
        }
        let resource = Arc::new(resource.clone());
        self.objects.insert(Arc::clone(&resource), BTreeMap::new());
        resource
    }
}

pub(super) fn key_of(object: &Value) -> Key {
    Key::new(meta(object, "namespace"), meta(object, "name"))
}

fn versioned(mut object: Value, version: u64) -> Value {
    set_meta(&mut object, "resourceVersion", version.to_string());
    object
}
