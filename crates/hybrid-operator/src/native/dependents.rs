//! Caches of whole objects that match a label selector, for native controllers.

use std::any::{Any, TypeId};
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures::StreamExt;
use kube::api::Api;
use kube::core::ApiResource;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{Store, store};
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;

use crate::controller::follow::{self, Follower, Lists, WatchTarget};
use crate::controller::{Key, Priority, QueueHandle, WatchState};
use crate::manager::ControllerContext;

/// Maps an object to the key of the custom resource to reconcile.
pub(super) type Concerns<O> = Arc<dyn Fn(&O) -> Option<Key> + Send + Sync>;

/// Object caches by type.
#[derive(Clone, Default)]
pub(super) struct Dependents(Arc<HashMap<TypeId, Box<dyn Any + Send + Sync>>>);

impl Dependents {
    /// Returns the cached objects of a type; none if it is not watched.
    pub(super) fn all<O>(&self) -> Vec<Arc<O>>
    where
        O: Resource<DynamicType = ()> + Clone + 'static,
    {
        let stores = self.0.get(&TypeId::of::<O>());
        let stores = stores.and_then(|stores| stores.downcast_ref::<Vec<Store<O>>>());
        stores
            .into_iter()
            .flatten()
            .flat_map(Store::state)
            .collect()
    }
}

/// Starts the caches of one type.
pub(super) type StartCache = Box<
    dyn FnOnce(&ControllerContext, &QueueHandle) -> (TypeId, Box<dyn Any + Send + Sync>) + Send,
>;

/// Returns a starter for a cache of objects that match `selector`; changes enqueue the key returned
/// by `concerns`.
pub(super) fn cache<O>(selector: &str, concerns: Concerns<O>) -> StartCache
where
    O: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    O::DynamicType: Hash + Eq,
    Api<O>: WholeApi<O>,
{
    let selector = selector.to_owned();
    Box::new(move |context, queue| {
        let apis = Api::<O>::in_scope(context);
        let stores: Vec<Store<O>> = apis
            .into_iter()
            .map(|api| {
                let (reader, writer) = store::<O>();
                let follower = Reader {
                    cached: reader.clone(),
                    writer,
                    concerns: Arc::clone(&concerns),
                    queue: queue.clone(),
                };
                let subject = WatchTarget::new(ApiResource::erase::<O>(&()), api.namespace());
                let selector = selector.clone();
                let open = move |lists| {
                    watcher(api.clone(), follow::config(lists, Some(&selector))).boxed()
                };
                let metrics = queue.watch_metrics();
                let follow = follow::follow(subject, metrics, Lists::Paged, open, follower);
                let stop = context.stop.clone();
                tokio::spawn(async move { stop.run_until_cancelled(follow).await });
                reader
            })
            .collect();
        (TypeId::of::<O>(), Box::new(stores))
    })
}

pub(super) fn start_all(
    starts: Vec<StartCache>,
    context: &ControllerContext,
    queue: &QueueHandle,
) -> Dependents {
    Dependents(Arc::new(
        starts
            .into_iter()
            .map(|start| start(context, queue))
            .collect(),
    ))
}

/// APIs that cover the watched namespaces.
pub(super) trait WholeApi<O>: Sized {
    fn in_scope(context: &ControllerContext) -> Vec<Self>;
}

impl<O> WholeApi<O> for Api<O>
where
    O: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
{
    fn in_scope(context: &ControllerContext) -> Vec<Self> {
        if context.namespaces.is_empty() {
            return vec![Self::all(context.connection.client.clone())];
        }
        let namespaces = context.namespaces.iter();
        namespaces
            .map(|namespace| Self::namespaced(context.connection.client.clone(), namespace))
            .collect()
    }
}

/// Applies watch events to the cache and enqueues the affected custom resources.
struct Reader<O>
where
    O: Resource<DynamicType = ()> + Clone + 'static,
{
    cached: Store<O>,
    writer: Writer<O>,
    concerns: Concerns<O>,
    queue: QueueHandle,
}

impl<O> Follower for Reader<O>
where
    O: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    type Object = O;

    fn event(&mut self, mut event: watcher::Event<O>) {
        if let watcher::Event::Apply(object) | watcher::Event::InitApply(object) = &mut event {
            object.managed_fields_mut().clear();
        }
        // A list is processed when it is complete, including the objects that it no longer
        // contains.
        let mut changed = match &event {
            watcher::Event::InitDone => self.cached.state(),
            watcher::Event::Apply(object) | watcher::Event::Delete(object) => {
                vec![Arc::new(object.clone())]
            }
            watcher::Event::Init | watcher::Event::InitApply(_) => Vec::new(),
        };
        // Update the cache first: the user's function may panic.
        self.writer.apply_watcher_event(&event);
        if matches!(event, watcher::Event::InitDone) {
            changed.extend(self.cached.state());
        }
        let keys = changed.iter().filter_map(|object| (self.concerns)(object));
        for key in keys.collect::<HashSet<Key>>() {
            self.queue.add(key, Priority::Event);
        }
    }

    /// Keeps the cache; the next list replaces it.
    fn state(&mut self, _: &WatchState) {}
}
