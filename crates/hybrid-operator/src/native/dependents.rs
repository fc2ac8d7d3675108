//! Objects that a native controller reads from a cache: whole, but only those with a label.

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

/// Finds the key of the custom resource that an object concerns.
pub(super) type Concerns<O> = Arc<dyn Fn(&O) -> Option<Key> + Send + Sync>;

/// Caches by the type of their objects.
#[derive(Clone, Default)]
pub(super) struct Dependents(Arc<HashMap<TypeId, Box<dyn Any + Send + Sync>>>);

impl Dependents {
    /// The cached objects of a type; none when it is not watched.
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

/// Starts one cache.
pub(super) type Start = Box<
    dyn FnOnce(&ControllerContext, &QueueHandle) -> (TypeId, Box<dyn Any + Send + Sync>) + Send,
>;

/// A cache of `O` with these labels whose changes concern what `concerns` says.
pub(super) fn cache<O>(selector: &str, concerns: Concerns<O>) -> Start
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
    starts: Vec<Start>,
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

/// The APIs that cover the namespaces that are watched.
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

/// Takes in what a watch shows.
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
        // A list is seen when it is whole: only then is it told of, and with it what has vanished
        // since the last one.
        let mut changed = match &event {
            watcher::Event::InitDone => self.cached.state(),
            watcher::Event::Apply(object) | watcher::Event::Delete(object) => {
                vec![Arc::new(object.clone())]
            }
            watcher::Event::Init | watcher::Event::InitApply(_) => Vec::new(),
        };
        // What the user's function makes of an object must not keep the cache from being right.
        self.writer.apply_watcher_event(&event);
        if matches!(event, watcher::Event::InitDone) {
            changed.extend(self.cached.state());
        }
        let keys = changed.iter().filter_map(|object| (self.concerns)(object));
        for key in keys.collect::<HashSet<Key>>() {
            self.queue.add(key, Priority::Event);
        }
    }

    /// What is cached stays so; each list tells of everything.
    fn state(&mut self, _: &WatchState) {}
}
