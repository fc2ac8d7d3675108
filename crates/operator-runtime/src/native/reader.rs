//! Reads of a reconcile function from the caches of its controller.

use host::HashMap;
use std::any::{Any, TypeId};
use std::sync::Arc;

use futures::future::BoxFuture;
use kube::Resource;
use kube::core::PartialObjectMeta;
use kube_objects::Primary;
use kube_objects::ownership::is_of_predecessor;

use super::apply::owner;
use super::error::Error;
use crate::controller::{Key, ObjectCache, ObjectScope, TypedObject};

/// The caches that a controller has asked for, by the type of their objects.
#[derive(Clone, Default)]
pub struct Readers {
    caches: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    synced: Vec<Synced>,
}

/// Returns a future that ends when a cache is complete.
type Synced = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// The caches of one type.
pub(crate) struct Caches<O> {
    /// Objects that this operator owns, whichever custom resource they belong to.
    pub(crate) owned: Option<ObjectCache<O>>,
    /// All objects, or those of a selector.
    pub(crate) watched: Option<ObjectCache<O>>,
    /// Whether `watched` has all objects.
    all: bool,
}

impl<O> Clone for Caches<O> {
    fn clone(&self) -> Self {
        Self {
            owned: self.owned.clone(),
            watched: self.watched.clone(),
            all: self.all,
        }
    }
}

impl<O> Default for Caches<O> {
    fn default() -> Self {
        Self {
            owned: None,
            watched: None,
            all: false,
        }
    }
}

impl Readers {
    pub(crate) fn caches<O: Send + Sync + 'static>(&self) -> Caches<O> {
        let caches = self.caches.get(&TypeId::of::<O>());
        let caches = caches.and_then(|caches| caches.downcast_ref::<Caches<O>>());
        caches.cloned().unwrap_or_default()
    }

    pub(crate) fn set_owned<O: Send + Sync + 'static>(&mut self, cache: ObjectCache<O>) {
        let mut caches = self.caches::<O>();
        self.await_cache(&cache);
        caches.owned = Some(cache);
        self.caches.insert(TypeId::of::<O>(), Arc::new(caches));
    }

    /// Adds the cache of all objects of a type.
    pub fn set_watched<O: Send + Sync + 'static>(&mut self, cache: ObjectCache<O>) {
        let mut caches = self.caches::<O>();
        self.await_cache(&cache);
        caches.watched = Some(cache);
        self.caches.insert(TypeId::of::<O>(), Arc::new(caches));
    }

    /// Sets the cache of all objects of a type.
    pub(crate) fn set_all<O: Send + Sync + 'static>(&mut self, cache: ObjectCache<O>) {
        self.set_watched(cache);
        let mut caches = self.caches::<O>();
        caches.all = true;
        self.caches.insert(TypeId::of::<O>(), Arc::new(caches));
    }

    /// Returns the cache of all objects of a type, if the controller has one.
    pub(crate) fn all_objects<O: Send + Sync + 'static>(&self) -> Option<ObjectCache<O>> {
        let caches = self.caches::<O>();
        caches.watched.filter(|_| caches.all)
    }

    /// Returns futures that end when the caches are complete.
    pub fn synced(&self) -> Vec<BoxFuture<'static, ()>> {
        self.synced.iter().map(|synced| synced()).collect()
    }

    fn await_cache<O: Send + Sync + 'static>(&mut self, cache: &ObjectCache<O>) {
        let cache = cache.clone();
        self.synced.push(Arc::new(move || {
            let cache = cache.clone();
            Box::pin(async move { cache.synced().await })
        }));
    }

    /// Returns the reader of a type that the controller owns or watches.
    pub fn reader<O>(&self, primary: &Primary) -> Result<Reader<O>, Error>
    where
        O: Resource<DynamicType = (), Scope: ObjectScope> + Send + Sync + 'static,
    {
        let caches = self.caches::<O>();
        if caches.owned.is_none() && caches.watched.is_none() {
            let kind = O::kind(&()).into_owned();
            return Err(Error::NotCached { kind });
        }
        Ok(Reader {
            caches,
            primary: primary.clone(),
        })
    }
}

/// Reads cached objects of one type. Sends no requests.
///
/// # Caveats
/// A cache is behind the API server by the time that an event takes. Objects lack their managed
/// fields.
pub struct Reader<O> {
    caches: Caches<O>,
    primary: Primary,
}

/// Reads the cached metadata of objects of one type.
pub type MetadataReader<O> = Reader<PartialObjectMeta<O>>;

impl<O> Reader<O>
where
    O: Resource<DynamicType = (), Scope: ObjectScope> + Send + Sync + 'static,
{
    /// Returns an object by name, from the namespace of the custom resource if it can be in one.
    pub fn get(&self, name: &str) -> Option<Arc<O>> {
        self.get_in(self.namespace(), name)
    }

    /// Returns an object by namespace (`None` for a cluster-scoped one) and name.
    pub fn get_in(&self, namespace: Option<&str>, name: &str) -> Option<Arc<O>> {
        let key = Key::new(namespace, name);
        let mut caches = self.all().into_iter();
        caches.find_map(|cache| cache.get(&key))
    }

    /// Returns the objects in the namespace of the custom resource, or all of them if it or they
    /// have none; by name.
    pub fn list(&self) -> Vec<Arc<O>> {
        self.list_in(self.namespace())
    }

    /// Returns the objects of a namespace, or of all namespaces; by namespace and name.
    pub fn list_in(&self, namespace: Option<&str>) -> Vec<Arc<O>> {
        // What the operator owns is also among what it watches without a selector.
        let cache = self.caches.watched.as_ref().or(self.caches.owned.as_ref());
        cache.map(|cache| cache.list(namespace)).unwrap_or_default()
    }

    /// Returns the objects that belong to the custom resource, in any namespace; by namespace and
    /// name. Those of a deleted custom resource with the same name do not: the garbage collector
    /// deletes them soon.
    pub fn owned(&self) -> Vec<Arc<O>> {
        let cache = self.caches.owned.as_ref().or(self.caches.watched.as_ref());
        let mut objects = cache.map(|cache| cache.list(None)).unwrap_or_default();
        objects.retain(|object| {
            let metadata = object.meta();
            owner(metadata, &self.primary).is_none() && !is_of_predecessor(metadata, &self.primary)
        });
        objects
    }

    /// Returns the objects that have a value in an index of the controller; by namespace and name.
    ///
    /// # Errors
    /// [`Error::NoIndex`] if the controller has no such index.
    pub fn by_index(&self, index: &str, value: &str) -> Result<Vec<Arc<O>>, Error> {
        let mut caches = self.all().into_iter();
        let found = caches.find_map(|cache| cache.by_index(index, value));
        found.ok_or_else(|| Error::NoIndex {
            kind: O::kind(&()).into_owned(),
            index: index.to_owned(),
        })
    }

    /// Returns the namespace of the custom resource, if objects of this type have namespaces.
    fn namespace(&self) -> Option<&str> {
        let namespace = self.primary.namespace.as_deref();
        namespace.filter(|_| O::Scope::NAMESPACED)
    }

    fn all(&self) -> Vec<&ObjectCache<O>> {
        let caches = [&self.caches.watched, &self.caches.owned];
        caches.into_iter().flatten().collect()
    }
}

impl<O: TypedObject> Reader<O> {
    /// Returns the cache that shows the object of this key, for waiting.
    pub(super) fn cache(&self) -> Option<&ObjectCache<O>> {
        self.caches.watched.as_ref().or(self.caches.owned.as_ref())
    }
}
