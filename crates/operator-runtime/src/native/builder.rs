//! Builds a controller from a reconcile function and what it owns and watches.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube_objects::OperatorId;
use kube_objects::ownership::{operator_selector, owner_of};

use super::action::Action;
use super::context::Context;
use super::controller::{Cleanup, NativeController};
use super::definition::crd;
use super::error::Error;
use super::part::Part;
use super::permissions;
use super::predicate::Predicate;
use super::reader::Readers;
use crate::controller::{
    Backoff, Key, ObjectCache, ObjectCaches, ObjectScope, QueueHandle, TypedObject,
};

/// Starts building a controller of `K`. `name` is its name in logs and metrics, and its field
/// manager.
pub fn controller<K: TypedObject>(name: &str) -> Builder<K> {
    Builder {
        name: name.to_owned(),
        selector: None,
        predicate: Predicate::default(),
        sources: Sources::default(),
        triggers: Vec::new(),
        cleanup: None,
        part: None,
        definition: None,
        owned_kinds: Vec::new(),
        permissions: Vec::new(),
        resync: None,
        concurrency: None,
        deadline: Duration::from_mins(5),
        backoff: (Duration::from_millis(500), Duration::from_mins(5)),
    }
}

pub(super) fn group_version_kind<K: TypedObject>() -> GroupVersionKind {
    GroupVersionKind::gvk(&K::group(&()), &K::version(&()), &K::kind(&()))
}

/// A reconcile or clean-up function.
pub(super) type Function<K> =
    Arc<dyn Fn(Arc<K>, Context<K>) -> BoxFuture<'static, Result<Action, Error>> + Send + Sync>;

/// Opens a cache, and routes its changes to the queue.
type OpenSource<K> = Box<dyn FnOnce(&mut SourceContext<'_, K>) + Send>;

/// The order in which sources are opened: an index needs its cache, and what is owned is found in a
/// cache of all objects if the controller has one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SourceOrder {
    Watched,
    Owned,
    Index,
}

/// The sources of changes of a controller.
pub(super) struct Sources<K>(Vec<(SourceOrder, OpenSource<K>)>);

impl<K> Default for Sources<K> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K> Sources<K> {
    fn push(&mut self, order: SourceOrder, open: OpenSource<K>) {
        self.0.push((order, open));
    }

    pub(super) fn open(mut self, context: &mut SourceContext<'_, K>) {
        self.0.sort_by_key(|(order, _)| *order);
        for (_, open) in self.0 {
            open(context);
        }
    }
}

/// Environment of a source of changes.
pub(super) struct SourceContext<'a, K> {
    pub(super) caches: &'a ObjectCaches,
    pub(super) readers: &'a mut Readers,
    pub(super) queue: &'a QueueHandle,
    pub(super) operator: &'a OperatorId,
    pub(super) primaries: &'a ObjectCache<K>,
}

/// A controller without its reconcile function.
pub struct Builder<K> {
    pub(super) name: String,
    pub(super) selector: Option<String>,
    pub(super) predicate: Predicate<K>,
    pub(super) sources: Sources<K>,
    pub(super) triggers: Vec<BoxStream<'static, Key>>,
    pub(super) cleanup: Option<Cleanup<K>>,
    pub(super) part: Option<Box<dyn Part>>,
    pub(super) definition: Option<CustomResourceDefinition>,
    pub(super) owned_kinds: Vec<GroupVersionKind>,
    /// Permissions that the sources and the functions need.
    pub(super) permissions: Vec<PolicyRule>,
    pub(super) resync: Option<Duration>,
    pub(super) concurrency: Option<usize>,
    pub(super) deadline: Duration,
    pub(super) backoff: (Duration, Duration),
}

impl<K: TypedObject> Builder<K> {
    /// Owns objects of this type: they are applied with [`Context::apply`], every change of one
    /// reconciles its custom resource, and [`Context::cached`] reads them.
    ///
    /// A label of the framework selects them, so that only objects of this operator are watched and
    /// kept in memory, whole. If the controller also watches all objects of the type, one watch and
    /// one copy serve both.
    ///
    /// Needs `get`, `list`, `watch`, `create`, `patch` and `delete` on the type.
    #[must_use]
    pub fn owns<O: TypedObject>(mut self) -> Self {
        let open: OpenSource<K> = Box::new(|source| {
            let selector = operator_selector(source.operator);
            let cache = match source.readers.all_objects::<O>() {
                Some(cache) => cache,
                // Objects of cluster-scoped custom resources are in any namespace.
                None if K::Scope::NAMESPACED => source.caches.shared::<O>(Some(&selector)),
                None => source.caches.whole::<O>(Some(&selector)),
            };
            source.readers.set_owned(cache.clone());
            cache.route(source.queue, |object: &O| owner_key::<K>(object.meta()));
        });
        self.sources.push(SourceOrder::Owned, open);
        self.owned_kinds.push(group_version_kind::<O>());
        self.permissions.push(permissions::of_owned::<O>());
        self
    }

    /// Watches all objects of a type. `related` returns the keys of the custom resources that the
    /// change of an object concerns.
    ///
    /// Every object of the type is kept in memory; see
    /// [`watches_metadata`](Self::watches_metadata) and [`watches_selected`](Self::watches_selected).
    ///
    /// Needs `list` and `watch` on the type.
    #[must_use]
    pub fn watches<O: TypedObject, I: IntoIterator<Item = Key>>(
        self,
        related: impl Fn(&O) -> I + Send + Sync + 'static,
    ) -> Self {
        self.watching(None, move |object: &O, _: &ObjectCache<K>| {
            related(object).into_iter().collect()
        })
    }

    /// Watches the objects of a type that a label selector selects.
    ///
    /// Needs `list` and `watch` on the type.
    #[must_use]
    pub fn watches_selected<O: TypedObject, I: IntoIterator<Item = Key>>(
        self,
        selector: &str,
        related: impl Fn(&O) -> I + Send + Sync + 'static,
    ) -> Self {
        self.watching(Some(selector), move |object: &O, _: &ObjectCache<K>| {
            related(object).into_iter().collect()
        })
    }

    /// Watches all objects of a type whose changes concern those custom resources that `concerns`
    /// accepts, for example all whose selector selects a Namespace.
    ///
    /// Needs `list` and `watch` on the type.
    #[must_use]
    pub fn watches_for<O: TypedObject>(
        self,
        concerns: impl Fn(&O, &K) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.watching(None, move |object: &O, primaries: &ObjectCache<K>| {
            let mut primaries = primaries.list(None);
            primaries.retain(|primary| concerns(object, primary));
            primaries
                .iter()
                .map(|primary| Key::of(&**primary))
                .collect()
        })
    }

    /// Watches the metadata of all objects of a type: nothing else of them is sent or kept. They are
    /// read with [`Context::cached_metadata`].
    ///
    /// Needs `list` and `watch` on the type.
    #[must_use]
    pub fn watches_metadata<O: TypedObject, I: IntoIterator<Item = Key>>(
        mut self,
        related: impl Fn(&PartialObjectMeta<O>) -> I + Send + Sync + 'static,
    ) -> Self {
        let open: OpenSource<K> = Box::new(move |source| {
            let cache = source.caches.metadata::<O>(None);
            source.readers.set_watched(cache.clone());
            cache.route(source.queue, related);
        });
        self.sources.push(SourceOrder::Watched, open);
        self.permissions.push(permissions::of_watched::<O>());
        self
    }

    fn watching<O: TypedObject>(
        mut self,
        selector: Option<&str>,
        related: impl Fn(&O, &ObjectCache<K>) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        let selector = selector.map(ToOwned::to_owned);
        let open: OpenSource<K> = Box::new(move |source| {
            let cache = source.caches.whole::<O>(selector.as_deref());
            if selector.is_none() {
                source.readers.set_all(cache.clone());
            } else {
                source.readers.set_watched(cache.clone());
            }
            let primaries = source.primaries.clone();
            cache.route(source.queue, move |object: &O| related(object, &primaries));
        });
        self.sources.push(SourceOrder::Watched, open);
        self.permissions.push(permissions::of_watched::<O>());
        self
    }

    /// Adds an index to a type that the controller watches or owns. `values` returns the values under
    /// which [`by_index`](super::Reader::by_index) finds an object.
    #[must_use]
    pub fn index<O: TypedObject>(
        mut self,
        name: &'static str,
        values: impl Fn(&O) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        let open: OpenSource<K> = Box::new(move |source| {
            let caches = source.readers.caches::<O>();
            if let Some(cache) = caches.watched.or(caches.owned) {
                cache.add_index(name, Box::new(values));
            }
        });
        self.sources.push(SourceOrder::Index, open);
        self
    }

    /// Reconciles after the changes that `predicate` accepts. Default: changes of the spec, of labels
    /// and of annotations, but not of the status.
    ///
    /// The deletion of a custom resource is always reconciled.
    #[must_use]
    pub fn predicate(mut self, predicate: Predicate<K>) -> Self {
        self.predicate = predicate;
        self
    }

    /// Reconciles the keys of a stream: events from outside of the cluster.
    #[must_use]
    pub fn trigger(mut self, keys: impl Stream<Item = Key> + Send + 'static) -> Self {
        self.triggers.push(keys.boxed());
        self
    }

    /// Holds a custom resource that is being deleted until `cleanup` returns [`Action::Done`].
    ///
    /// The finalizer `name` (`example.com/something`) is added before the first reconcile. `cleanup`
    /// is called instead of the reconcile function once the custom resource is being deleted, again
    /// after an error or when it asks for it, and never twice at a time for one object. It must be
    /// idempotent: the operator may be killed between its end and the removal of the finalizer.
    ///
    /// Needs `patch` on the custom resource.
    #[must_use]
    pub fn finalizer<F, Fut>(mut self, name: &str, cleanup: F) -> Self
    where
        F: Fn(Arc<K>, Context<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, Error>> + Send + 'static,
    {
        self.cleanup = Some(Cleanup {
            finalizer: name.to_owned(),
            function: Arc::new(move |object, context| Box::pin(cleanup(object, context))),
        });
        self
    }

    /// Adds a part that manages more for a custom resource than the functions do, instead of the one that was
    /// added before.
    ///
    /// A finalizer holds a custom resource that is being deleted until the part has cleaned up,
    /// after the function of [`finalizer`](Self::finalizer) is done.
    #[must_use]
    pub fn with(mut self, part: impl Part + 'static) -> Self {
        self.part = Some(Box::new(part));
        self
    }

    /// States that this program defines the kind: `hybrid-operator generate crds` writes its
    /// [definition](super::crd), from the type's derive.
    #[must_use]
    pub fn defines_crd(mut self) -> Self
    where
        K: CustomResourceExt,
    {
        self.definition = Some(crd::<K>());
        self
    }

    /// States what the functions do in addition to what the other methods imply, such as reading
    /// objects with [`Context::get`]. `group` is `""` for the core group. `hybrid-operator generate
    /// rbac` puts it into the controller's role.
    ///
    /// ```
    /// # use operator_runtime::native;
    /// # use k8s_openapi::api::core::v1::Pod;
    /// native::controller::<Pod>("pods").needs("", &["secrets"], &["get"]);
    /// ```
    #[must_use]
    pub fn needs(mut self, group: &str, resources: &[&str], verbs: &[&str]) -> Self {
        self.permissions
            .push(permissions::rule(group, resources, verbs));
        self
    }

    /// Reconciles every custom resource again after this time without a change. Default: the option
    /// `--sync-period`.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.resync = Some(period);
        self
    }

    /// Sets how many custom resources are reconciled at once. Default: the option
    /// `--max-concurrent-reconciles`.
    #[must_use]
    pub fn concurrency(mut self, count: usize) -> Self {
        self.concurrency = Some(count.max(1));
        self
    }

    /// Reconciles only custom resources that a label selector selects.
    #[must_use]
    pub fn selector(mut self, selector: &str) -> Self {
        self.selector = Some(selector.to_owned());
        self
    }

    /// Sets the pauses after failures: from `first`, doubling, to `longest`. Default: 500 ms to
    /// 5 minutes.
    #[must_use]
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.backoff = (first, longest.max(first));
        self
    }

    /// Sets how long one call of a function may take before it is cancelled and counts as failed.
    /// Default: 5 minutes.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// Completes the controller with its reconcile function; see the [module](super) for what the
    /// function may rely on.
    pub fn reconcile<F, Fut>(self, function: F) -> NativeController<K>
    where
        F: Fn(Arc<K>, Context<K>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Action, Error>> + Send + 'static,
    {
        let function: Function<K> =
            Arc::new(move |object, context| Box::pin(function(object, context)));
        NativeController::new(self, function)
    }

    pub(super) fn backoff_of_failures(&self) -> Backoff {
        Backoff::new(self.backoff.0, self.backoff.1)
    }
}

/// Returns the key of the `K` that an object names as its owner.
fn owner_key<K: TypedObject>(meta: &kube::core::ObjectMeta) -> Option<Key> {
    let owner = owner_of(meta)?;
    if owner.kind != K::kind(&()) || owner.group != K::group(&()) {
        return None;
    }
    let namespace = owner.namespace.filter(|_| K::Scope::NAMESPACED);
    Some(Key::new(namespace.as_deref(), &owner.name))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Namespace, Pod};
    use serde_json::json;

    use super::owner_key;

    #[test]
    fn an_owned_object_leads_to_its_owner_of_the_right_kind_and_scope() {
        let owned = |kind: &str| {
            let owner = json!({"apiVersion": "v1", "kind": kind, "name": "one", "uid": "u", "controller": true});
            serde_json::from_value(
                json!({"name": "x", "namespace": "a", "ownerReferences": [owner]}),
            )
            .unwrap()
        };
        let text = |key: Option<crate::controller::Key>| key.map(|key| key.to_string());
        let pod = text(owner_key::<Pod>(&owned("Pod")));
        assert_eq!(pod.as_deref(), Some("a/one"));
        let namespace = text(owner_key::<Namespace>(&owned("Namespace")));
        assert_eq!(namespace.as_deref(), Some("one"));
        assert_eq!(owner_key::<Pod>(&owned("Service")), None);
    }
}
