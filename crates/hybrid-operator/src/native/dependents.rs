//! Objects that a native controller reads from a cache: whole, but only those with a label.

use std::any::{Any, TypeId};
use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::Api;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{Store, store};
use kube::runtime::watcher;
use kube::{Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tracing::warn;

use crate::controller::{Key, Priority, QueueHandle};
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
    let config = watcher::Config::default().labels(selector).page_size(500);
    Box::new(move |context, queue| {
        let apis = Api::<O>::in_scope(context);
        let stores: Vec<Store<O>> = apis
            .into_iter()
            .map(|api| {
                let (reader, writer) = store::<O>();
                let follow = follow(
                    api,
                    config.clone(),
                    (reader.clone(), writer),
                    Arc::clone(&concerns),
                    queue.clone(),
                );
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
            return vec![Self::all(context.client.clone())];
        }
        let namespaces = context.namespaces.iter();
        namespaces
            .map(|namespace| Self::namespaced(context.client.clone(), namespace))
            .collect()
    }
}

async fn follow<O>(
    api: Api<O>,
    config: watcher::Config,
    (reader, mut writer): (Store<O>, Writer<O>),
    concerns: Concerns<O>,
    queue: QueueHandle,
) where
    O: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let mut events = watcher(api, config).boxed();
    let mut delay = Duration::from_millis(250);
    while let Some(event) = events.next().await {
        match event {
            Ok(mut event) => {
                if !matches!(event, watcher::Event::Init) {
                    delay = Duration::from_millis(250);
                }
                if let watcher::Event::Apply(object) | watcher::Event::InitApply(object) =
                    &mut event
                {
                    object.managed_fields_mut().clear();
                }
                // A list is seen when it is whole: only then is it told of, and with it what has
                // vanished since the last one.
                let mut concerned: HashSet<Key> = HashSet::new();
                let is_list = matches!(event, watcher::Event::InitDone);
                if is_list {
                    concerned.extend(reader.state().iter().filter_map(|object| concerns(object)));
                }
                writer.apply_watcher_event(&event);
                if is_list {
                    concerned.extend(reader.state().iter().filter_map(|object| concerns(object)));
                } else if let watcher::Event::Apply(object) | watcher::Event::Delete(object) =
                    &event
                {
                    concerned.extend(concerns(object));
                }
                for key in concerned {
                    queue.add(key, Priority::Event);
                }
            }
            Err(error) => {
                warn!(kind = %O::kind(&()), error = &error as &dyn std::error::Error, "cannot watch; trying again");
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(Duration::from_secs(30));
            }
        }
    }
}
