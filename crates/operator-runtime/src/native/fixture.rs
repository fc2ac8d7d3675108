//! A [`Context`] without an operator, for tests of reconcile functions.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::events::Reporter;
use kube_objects::OperatorId;
use kube_objects::events::EventSender;
use parking_lot::Mutex;

use super::apply::Applier;
use super::context::{Context, Process, Shared};
use super::reader::Readers;
use crate::controller::{ObjectCache, TypedObject};

/// Builds a [`Context`] for the test of a reconcile function: its client is the given one, for
/// example that of `hybrid_operator_test::ScriptedApi`, and its caches hold the given objects.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::{ConfigMap, Pod as MyKind};
/// # async fn reconcile(_: std::sync::Arc<MyKind>, _: operator_runtime::native::Context<MyKind>) {}
/// # async fn test(object: MyKind, client: kube::Client, config_map: ConfigMap) {
/// let context = operator_runtime::native::Fixture::new(object, client)
///     .owning([config_map])
///     .build();
/// reconcile(context.object().clone(), context).await;
/// # }
/// ```
pub struct Fixture<K> {
    object: K,
    client: Client,
    readers: Readers,
    shared: http::Extensions,
}

impl<K: TypedObject> Fixture<K> {
    /// Starts with a custom resource and a client.
    pub fn new(object: K, client: Client) -> Self {
        Self {
            object,
            client,
            readers: Readers::default(),
            shared: http::Extensions::new(),
        }
    }

    /// Gives state in place of the state that controllers of a process share.
    #[must_use]
    pub fn sharing(mut self, given: impl Clone + Send + Sync + 'static) -> Self {
        self.shared.insert(given);
        self
    }

    /// Caches objects as if the controller owned their type.
    #[must_use]
    pub fn owning<O: TypedObject>(mut self, objects: impl IntoIterator<Item = O>) -> Self {
        self.readers.set_owned(ObjectCache::of(objects));
        self
    }

    /// Caches objects as if the controller watched their type.
    #[must_use]
    pub fn caching<O: TypedObject>(mut self, objects: impl IntoIterator<Item = O>) -> Self {
        self.readers.set_watched(ObjectCache::of(objects));
        self
    }

    /// Builds the context.
    pub fn build(self) -> Context<K> {
        let reporter = Reporter {
            controller: "fixture".to_owned(),
            instance: None,
        };
        let shared = Shared {
            applier: Applier {
                client: self.client.clone(),
                operator: OperatorId::new("fixture"),
                manager: "fixture".to_owned(),
            },
            recorder: EventSender::new(self.client, reporter).recorder(),
            readers: self.readers,
            statuses: Mutex::default(),
            part: None,
            process: Process::Fixture(self.shared),
        };
        Context::new(
            Arc::new(self.object),
            Arc::new(shared),
            Duration::from_mins(5),
        )
    }
}
