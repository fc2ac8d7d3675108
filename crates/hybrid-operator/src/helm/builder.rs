//! Builds a controller from an entry of `watches.yaml`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use futures::future::BoxFuture;
use helm_core::chart::LoadError;
use helm_core::{Chart, CompiledChart, RenderError};
use kube::core::GroupVersionKind;

use super::HelmReconciler;
use super::access::Access;
use super::events::EventSink;
use super::extend::{Extensions, PostHook, PreHook, ValueTranslator};
use super::interest::Interests;
use super::setup::Setup;
use crate::cluster::ownership::{CrIdentity, OperatorId};
use crate::controller::{
    Key, Owners, Priority, QueueHandle, Route, Source, WorkerOptions, Workers,
};
use crate::manager::{Controller, ControllerContext, ControllerError};
use crate::release::{IndexState, RecordChange, RecordMeta, ReleaseIndex, SecretStore};
use crate::watches::{self, Watch, WatchesError};

/// Error building a controller from an entry of `watches.yaml`.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The chart cannot be loaded.
    #[error("cannot load the chart {}", path.display())]
    Load {
        /// Path of the chart.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: LoadError,
    },
    /// A template of the chart cannot be parsed.
    #[error("cannot parse the templates of {}", path.display())]
    Parse {
        /// Path of the chart.
        path: PathBuf,
        /// The underlying error.
        #[source]
        source: RenderError,
    },
}

/// Controller that runs a chart for each custom resource of a kind.
pub struct HelmController {
    name: String,
    watch: Watch,
    chart: Arc<CompiledChart>,
    extensions: Extensions,
}

/// Builds a controller for each entry of a watches file. Does not contact a cluster.
///
/// # Errors
/// Lists all errors in the file and in its charts.
pub fn load(watches_file: &Path) -> Result<Vec<HelmController>, WatchesError> {
    watches::load_with(watches_file, |entry| {
        HelmController::new(entry.watch).map_err(|error| super::status::chain(&error))
    })
}

impl HelmController {
    /// Loads and compiles the chart of an entry.
    ///
    /// # Errors
    /// If the chart cannot be loaded or parsed.
    pub fn new(watch: Watch) -> Result<Self, BuildError> {
        let path = || watch.chart.clone();
        let chart = Chart::load(&watch.chart).map_err(|source| BuildError::Load {
            path: path(),
            source,
        })?;
        let chart = CompiledChart::compile(&chart).map_err(|source| BuildError::Parse {
            path: path(),
            source,
        })?;
        Ok(Self {
            name: watch.gvk.kind.to_lowercase(),
            watch,
            chart: Arc::new(chart),
            extensions: Extensions::default(),
        })
    }

    /// Returns the kind of the custom resources.
    pub fn kind(&self) -> &str {
        &self.watch.gvk.kind
    }

    /// Sets the code that translates the values computed by `watches.yaml`.
    #[must_use]
    pub fn value_translator(mut self, translator: impl ValueTranslator) -> Self {
        self.extensions.translator = Some(Arc::new(translator));
        self
    }

    /// Adds a hook that runs before a release is reconciled. Hooks run in the order they are added.
    #[must_use]
    pub fn pre_hook(mut self, hook: impl PreHook) -> Self {
        self.extensions.pre.push(Arc::new(hook));
        self
    }

    /// Adds a hook that runs after a release matches its custom resource. Hooks run in the order
    /// they are added.
    #[must_use]
    pub fn post_hook(mut self, hook: impl PostHook) -> Self {
        self.extensions.post.push(Arc::new(hook));
        self
    }
}

impl Controller for HelmController {
    fn name(&self) -> &str {
        &self.name
    }

    fn run(
        self: Box<Self>,
        context: ControllerContext,
    ) -> BoxFuture<'static, Result<(), ControllerError>> {
        Box::pin(async move {
            let kind = loop {
                match context.connection.cluster.resolve(&self.watch.gvk).await {
                    Ok(kind) => break kind,
                    Err(error) => {
                        let gvk = &self.watch.gvk;
                        tracing::warn!(kind = %gvk.kind, error = &error as &dyn std::error::Error, "the kind is not served yet; is its CRD installed?");
                        let pause = tokio::time::sleep(std::time::Duration::from_secs(2));
                        if context.stop.run_until_cancelled(pause).await.is_none() {
                            return Ok(());
                        }
                    }
                }
            };
            let store = SecretStore::new(
                context.connection.client.clone(),
                context.caches.records.clone(),
            );
            let queue = QueueHandle::new(context.metrics.controller(&self.name));
            let selector = self.watch.selector.as_ref().map(ToString::to_string);
            let source = Source::start(
                &context.connection.client,
                kind.resource.clone(),
                &context.namespaces,
                selector.as_deref(),
                &queue,
                &context.stop,
            );
            // With an incomplete history an existing release would be installed again.
            let known = async { tokio::join!(source.synced(), complete(&context.caches.records)) };
            if context.stop.run_until_cancelled(known).await.is_none() {
                return Ok(());
            }
            let router = Arc::new(ChangeRouter {
                gvk: self.watch.gvk.clone(),
                operator: context.identity.operator.clone(),
                queue: queue.clone(),
                source: source.clone(),
                known: RwLock::default(),
            });
            if self.watch.watch_dependent_resources {
                let route = Arc::clone(&router) as Arc<dyn Route>;
                context.caches.registry.add_route(route);
            }
            let changed = move |change: &RecordChange| router.record_changed(&change.record);
            context.caches.records.on_change(changed);
            let options = WorkerOptions {
                concurrency: self
                    .watch
                    .max_concurrent_reconciles
                    .map_or(context.limits.max_concurrent_reconciles, usize::from),
                ..WorkerOptions::default()
            };
            let stop = context.stop.clone();
            let interests =
                Interests::new(&context.connection.cluster, queue.clone(), stop.clone());
            let reconciler = HelmReconciler {
                access: Access {
                    impersonated: Mutex::default(),
                    registry: context.caches.registry,
                    store,
                    source,
                    interests,
                    events: EventSink::new(
                        context.connection.client.clone(),
                        context.connection.reporter,
                    ),
                    pool: context.limits.pool,
                    client: context.connection.client,
                    cluster: context.connection.cluster,
                },
                setup: Arc::new(Setup {
                    period: self
                        .watch
                        .reconcile_period
                        .unwrap_or(context.limits.reconcile_period),
                    watch: self.watch,
                    chart: self.chart,
                    extensions: self.extensions,
                    operator: context.identity.operator,
                    instance: context.identity.instance,
                    elected: context.identity.elected,
                    operator_namespace: context.identity.namespace,
                    namespaces: context.namespaces,
                }),
                memories: Mutex::default(),
            };
            Workers::new(&queue, Arc::new(reconciler), options)
                .run(stop)
                .await;
            Ok(())
        })
    }
}

/// Waits until the index of all release records has synced.
async fn complete(records: &ReleaseIndex) {
    let mut states = records.states();
    loop {
        let state = states.borrow_and_update().clone();
        match state {
            IndexState::Synced => return,
            IndexState::Starting => {}
            state => {
                tracing::warn!(?state, "cannot list release records; retrying");
            }
        }
        // The index lives as long as `records`.
        let _ = states.changed().await;
    }
}

/// Enqueues the custom resource of a changed dependent or release record.
struct ChangeRouter {
    gvk: GroupVersionKind,
    operator: OperatorId,
    queue: QueueHandle,
    source: Source,
    known: RwLock<HashMap<CrIdentity, Key>>,
}

impl ChangeRouter {
    /// Returns the custom resource with an identity. Rebuilds the table if the identity is unknown.
    fn key_of(&self, identity: &CrIdentity) -> Option<Key> {
        let known = self
            .known
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(identity)
            .cloned();
        known.or_else(|| {
            let table: HashMap<CrIdentity, Key> = self
                .source
                .keys()
                .into_iter()
                .map(|key| {
                    let namespace = key.namespace.as_deref();
                    (
                        CrIdentity::of(&self.gvk.group, &self.gvk.kind, namespace, &key.name),
                        key,
                    )
                })
                .collect();
            let key = table.get(identity).cloned();
            *self.known.write().unwrap_or_else(PoisonError::into_inner) = table;
            key
        })
    }
}

impl ChangeRouter {
    /// Handles a release record changed by another client, usually `helm` or `kubectl`.
    fn record_changed(&self, record: &RecordMeta) {
        if record
            .operator
            .as_ref()
            .is_some_and(|id| *id != self.operator)
        {
            return;
        }
        let key = match &record.cr {
            Some(identity) => self.key_of(identity),
            // A release without an owner may block the custom resource of the same name.
            None => Some(Key::new(Some(&record.namespace), record.name.as_str()))
                .filter(|key| self.source.get(key).is_some()),
        };
        if let Some(key) = key {
            self.queue.add(key, Priority::Event);
        }
    }
}

impl Route for ChangeRouter {
    fn changed(&self, owners: &Owners) {
        let by_label = owners
            .label
            .as_ref()
            .and_then(|identity| self.key_of(identity));
        let by_owner = || {
            let owner = owners.hint.as_ref()?;
            let ours = owner.kind == self.gvk.kind && owner.group == self.gvk.group;
            ours.then(|| Key::new(owner.namespace.as_deref(), &owner.name))
        };
        if let Some(key) = by_label.or_else(by_owner) {
            self.queue.add(key, Priority::Event);
        }
    }
}
