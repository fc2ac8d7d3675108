//! Builds a controller from an entry of `watches.yaml` or in code.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use helm_core::{Digest, Values};
use helm_release::Storage;
use helm_release::engine::{Memories, ReleaseOptions, ReleaseRef};
use helm_release::release::{IndexState, RecordChange, ReleaseIndex};
use kube::api::DynamicObject;
use kube::core::{GroupVersionKind, PartialObjectMeta, Selector};
use kube::runtime::events::Event;
use kube_objects::{ApiKind, DiscoveryError};
use operator_runtime::controller::{
    Backoff, Key, ObjectCache, ObjectCaches, QueueHandle, TypedObject, WorkerOptions, Workers,
};
use operator_runtime::manager::{Controller, ControllerContext, ControllerError};
use operator_runtime::native::Readers;
use tracing::Span;

use super::access::Access;
use super::chart::{BuildError, Chart};
use super::events::OperatorEvents;
use super::extend::{CustomAnnotation, ExtensionError, Extensions, ReleaseContext};
use super::locate::check_scope;
use super::reconciler::{ATTEMPT_WITHIN, REPORT_WITHIN};
use super::reload::rollout::{Rollout, RolloutReconciler};
use super::remote::ChartReader;
use super::resources::Resources;
use super::router::ChangeRouter;
use super::setup::Setup;
use super::source::Source;
use super::view::{Controlled, Releases, View, Views};
use crate::process::Process;
use crate::watches::{self, ChartSource, Watch, WatchesError};

/// Opens a cache of objects that the extensions read, and routes their changes to the queue.
type OpenSource = Box<dyn FnOnce(&mut SourceContext<'_>) + Send>;

/// Caches, readers, queue and custom resources that a source of changes works with.
struct SourceContext<'a> {
    caches: &'a ObjectCaches,
    readers: &'a mut Readers,
    queue: &'a QueueHandle,
    resources: &'a Source,
}

/// Controller that runs a chart for each custom resource of a kind.
///
/// [`load`] builds one for each entry of `watches.yaml`; [`builder`](Self::builder) builds one in
/// code. The methods of both add code to it:
///
/// ```no_run
/// use hybrid_operator::helm::{Chart, ExtensionError, HelmController, ReleaseContext, Values};
/// use k8s_openapi::api::core::v1::Namespace;
/// use kube::core::GroupVersionKind;
/// use serde_json::json;
///
/// /// Gives the chart the labels of the namespace as a value.
/// async fn translate(context: ReleaseContext, mut values: Values) -> Result<Values, ExtensionError> {
///     let name = context.resource().metadata.namespace.as_deref().unwrap_or_default();
///     let namespace = context.cached::<Namespace>()?.get_in(None, name);
///     let labels = namespace.and_then(|namespace| namespace.metadata.labels.clone());
///     values.insert("namespaceLabels".to_owned(), json!(labels));
///     Ok(values)
/// }
///
/// # fn controller() -> Result<HelmController, Box<dyn std::error::Error>> {
/// let gvk = GroupVersionKind::gvk("cache.example.com", "v1alpha1", "Memcached");
/// let controller = HelmController::builder(gvk, Chart::load("helm-charts/memcached")?)
///     .options(|watch| watch.policy.lookup_is_input = true)
///     .watches_for::<Namespace>(|namespace, memcached| {
///         namespace.metadata.name == memcached.metadata.namespace
///     })
///     .value_translator(translate);
/// # Ok(controller)
/// # }
/// ```
pub struct HelmController {
    name: String,
    watch: Watch,
    chart: Chart,
    extensions: Extensions,
    sources: Vec<OpenSource>,
    storage: Storage,
}

/// Builds a controller for each entry of a watches file. Does not contact a cluster. Blocks while charts
/// are fetched.
///
/// # Errors
/// Lists all errors in the file and in its charts.
pub fn load(watches_file: &Path) -> Result<Vec<HelmController>, WatchesError> {
    let reader = ChartReader::open_default();
    watches::load_with(watches_file, |entry| {
        let chart = reader.load(&entry.watch.chart);
        let chart = chart.map_err(|error| kube_objects::with_causes(&error))?;
        let watch = entry.watch.of_chart(chart.compiled().chart())?;
        Ok(HelmController::with_chart(watch, chart))
    })
}

/// Builds a controller for each entry of a watches file, as far as no chart must be fetched. Returns the
/// entries whose charts are missing.
pub(super) fn load_known(
    watches_file: &Path,
    reader: &ChartReader,
) -> Result<(Vec<HelmController>, Vec<Watch>), WatchesError> {
    let mut missing = Vec::new();
    let entries = watches::load_with(watches_file, |entry| {
        let chart = match &entry.watch.chart {
            ChartSource::Local(path) => {
                let chart = Chart::load(path);
                Some(chart.map_err(|error| kube_objects::with_causes(&error))?)
            }
            ChartSource::Remote(chart) => reader.known(chart),
        };
        Ok(match chart {
            Some(chart) => (entry.watch.of_chart(chart.compiled().chart())?, Some(chart)),
            None => (entry.watch, None),
        })
    })?;
    let mut controllers = Vec::new();
    for (watch, chart) in entries {
        match chart {
            Some(chart) => controllers.push(HelmController::with_chart(watch, chart)),
            None => missing.push(watch),
        }
    }
    Ok((controllers, missing))
}

impl HelmController {
    /// Loads and compiles the chart of an entry of `watches.yaml`. Blocks while the chart is fetched, if
    /// it is not on this machine.
    ///
    /// # Errors
    /// If the chart cannot be fetched, loaded or parsed.
    pub fn new(watch: Watch) -> Result<Self, BuildError> {
        let chart = ChartReader::open_default().load(&watch.chart)?;
        Ok(Self::with_chart(watch, chart))
    }

    /// Starts with a kind and its chart; every option has its default.
    pub fn builder(gvk: GroupVersionKind, chart: Chart) -> Self {
        Self::with_chart(Watch::new(gvk, chart.name()), chart)
    }

    fn with_chart(watch: Watch, chart: Chart) -> Self {
        Self {
            name: watch.gvk.kind.to_lowercase(),
            watch,
            chart,
            extensions: Extensions::default(),
            sources: Vec::new(),
            storage: Storage::default(),
        }
    }

    /// Returns the kind of the custom resources.
    pub fn kind(&self) -> &str {
        &self.watch.gvk.kind
    }

    /// Changes the options: those of an entry of `watches.yaml`.
    #[must_use]
    pub fn options(mut self, change: impl FnOnce(&mut Watch)) -> Self {
        let (gvk, chart) = (self.watch.gvk.clone(), self.watch.chart.clone());
        change(&mut self.watch);
        (self.watch.gvk, self.watch.chart) = (gvk, chart);
        self
    }

    /// Sets where the release records are stored. Default: Secrets.
    ///
    /// It must not change while there are releases: a custom resource whose records are in Secrets is
    /// not reconciled with [`Storage::ConfigMaps`], and the condition `Irreconcilable` says so.
    ///
    /// `ConfigMap`s need the permissions that Secrets need otherwise: `get`, `list`, `watch`,
    /// `create`, `update`, `patch`, `delete` and `deletecollection`.
    #[must_use]
    pub fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Reconciles only custom resources that a label selector selects.
    #[must_use]
    pub fn selector(self, selector: Selector) -> Self {
        self.options(|watch| watch.selector = Some(selector))
    }

    /// Sets the function that translates the values that the options compute from the custom
    /// resource.
    ///
    /// It is called in every reconcile, so it may depend on more than the custom resource, for
    /// example on [watched](Self::watches) objects. The release is upgraded when the result changes.
    #[must_use]
    pub fn value_translator<F, Fut>(mut self, translate: F) -> Self
    where
        F: Fn(ReleaseContext, Values) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Values, ExtensionError>> + Send + 'static,
    {
        self.extensions.translator = Some(Arc::new(move |context, values| {
            Box::pin(translate(context, values))
        }));
        self
    }

    /// Adds a hook that is called before a release is reconciled, unless the custom resource is
    /// paused or being deleted. While it fails, the release is left unchanged. It must be
    /// idempotent. Hooks are called in the order they are added.
    #[must_use]
    pub fn pre_hook<F, Fut>(mut self, hook: F) -> Self
    where
        F: Fn(ReleaseContext, Values) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), ExtensionError>> + Send + 'static,
    {
        let hook =
            move |context, values| -> BoxFuture<'static, _> { Box::pin(hook(context, values)) };
        self.extensions.pre.push(Arc::new(hook));
        self
    }

    /// Adds a hook that is called after each reconcile that leaves the release matching its custom
    /// resource. While it fails, the custom resource is `Irreconcilable`. It must be idempotent.
    /// Hooks are called in the order they are added.
    #[must_use]
    pub fn post_hook<F, Fut>(mut self, hook: F) -> Self
    where
        F: Fn(ReleaseContext, ReleaseRef) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), ExtensionError>> + Send + 'static,
    {
        let hook =
            move |context, release| -> BoxFuture<'static, _> { Box::pin(hook(context, release)) };
        self.extensions.post.push(Arc::new(hook));
        self
    }

    /// Watches all objects of a type, which the other functions read with
    /// [`ReleaseContext::cached`]. `related` returns the keys of the custom resources that the
    /// change of an object concerns.
    ///
    /// Needs `list` and `watch` on the type.
    #[must_use]
    pub fn watches<O: TypedObject, I: IntoIterator<Item = Key>>(
        mut self,
        related: impl Fn(&O) -> I + Send + Sync + 'static,
    ) -> Self {
        self.sources.push(Box::new(move |source| {
            let cache = source.caches.whole::<O>(None);
            source.readers.set_watched(cache.clone());
            cache.route(source.queue, related);
        }));
        self
    }

    /// Watches all objects of a type whose changes concern those custom resources that `concerns`
    /// accepts.
    ///
    /// Needs `list` and `watch` on the type.
    #[must_use]
    pub fn watches_for<O: TypedObject>(
        mut self,
        concerns: impl Fn(&O, &DynamicObject) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.sources.push(Box::new(move |source| {
            let cache = source.caches.whole::<O>(None);
            source.readers.set_watched(cache.clone());
            route_concerned(&cache, source, concerns);
        }));
        self
    }

    /// Watches the metadata of all objects of a type: nothing else of them is sent or kept.
    ///
    /// Needs `list` and `watch` on the type.
    #[must_use]
    pub fn watches_metadata<O: TypedObject, I: IntoIterator<Item = Key>>(
        mut self,
        related: impl Fn(&PartialObjectMeta<O>) -> I + Send + Sync + 'static,
    ) -> Self {
        self.sources.push(Box::new(move |source| {
            let cache = source.caches.metadata::<O>(None);
            source.readers.set_watched(cache.clone());
            cache.route(source.queue, related);
        }));
        self
    }

    /// Defines an annotation of the custom resource: `read` changes the options of the release
    /// according to its value. An error becomes an event, and the value is ignored.
    ///
    /// ```
    /// # use hybrid_operator::helm::HelmController;
    /// # fn with_annotation(controller: HelmController) -> HelmController {
    /// controller.annotation("example.com/skip-hooks", |value, options| {
    ///     let skip = value.parse().map_err(|_| format!("{value:?} is neither true nor false"))?;
    ///     options.install_disable_hooks = skip;
    ///     options.upgrade_disable_hooks = skip;
    ///     Ok(())
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn annotation(
        mut self,
        name: &str,
        read: impl Fn(&str, &mut ReleaseOptions) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.extensions.annotations.push(CustomAnnotation {
            name: name.to_owned(),
            read: Arc::new(read),
        });
        self
    }

    /// Pauses the custom resources that `is_paused` accepts, in addition to those with the pause
    /// annotation. Called in every reconcile.
    #[must_use]
    pub fn pause_handler(
        mut self,
        is_paused: impl Fn(&DynamicObject) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.extensions.is_paused = Some(Arc::new(is_paused));
        self
    }

    /// Sends events through `record` instead of to the API server. A failure is only logged.
    #[must_use]
    pub fn event_recorder<F, Fut>(mut self, record: F) -> Self
    where
        F: Fn(ReleaseContext, Event) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), ExtensionError>> + Send + 'static,
    {
        self.extensions.recorder = Some(Arc::new(move |context, event| {
            Box::pin(record(context, event))
        }));
        self
    }

    /// Logs everything about a custom resource in the span that `span` returns, for fields of your
    /// own.
    #[must_use]
    pub fn logger(mut self, span: impl Fn(&DynamicObject) -> Span + Send + Sync + 'static) -> Self {
        self.extensions.span = Some(Arc::new(span));
        self
    }
}

/// Reconciles the custom resources that the changes of a cache concern.
fn route_concerned<O: TypedObject>(
    cache: &ObjectCache<O>,
    source: &SourceContext<'_>,
    concerns: impl Fn(&O, &DynamicObject) -> bool + Send + Sync + 'static,
) {
    source.resources.keep_decoded();
    // The cache outlives the controller.
    let resources = source.resources.downgrade();
    cache.route(source.queue, move |object: &O| {
        let Some(resources) = resources.upgrade() else {
            return Vec::new();
        };
        let mut keys = resources.keys();
        keys.retain(|key| {
            let resource = resources.get(key);
            resource.is_some_and(|resource| concerns(object, &resource))
        });
        keys
    });
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
            if self.watch.admission.is_some() {
                return Err("admission is served for the entries of a watches file: use Charts::load, or Operator::with_charts".into());
            }
            let setup = self.setup(&context, 0);
            let metrics = context.metrics.reloads();
            let rollout = Rollout::new(&self.name, setup, Duration::ZERO, metrics);
            self.serve(context, Arc::new(rollout)).await;
            Ok(())
        })
    }
}

impl HelmController {
    /// Returns the entry of the controller.
    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Returns the chart of the entry.
    pub(super) fn chart(&self) -> &Chart {
        &self.chart
    }

    /// Returns where the release records are stored.
    pub(super) fn records_in(&self) -> Storage {
        self.storage
    }

    /// Returns whether code of the program computes values.
    pub(super) fn has_translator(&self) -> bool {
        self.extensions.translator.is_some()
    }

    /// Returns the digest of the chart's files.
    pub(super) fn chart_digest(&self) -> Digest {
        self.chart.compiled().chart().digest()
    }

    /// Returns the configuration of the controller's reconciles.
    pub(super) fn setup(&self, context: &ControllerContext, version: u64) -> Setup {
        Setup {
            version,
            extensions: self.extensions.clone(),
            ..Setup::of(self.watch.clone(), &self.chart, context)
        }
    }

    /// Reconciles the custom resources with what `rollout` gives them, until the context is stopped.
    pub(super) async fn serve(self, context: ControllerContext, rollout: Arc<Rollout>) {
        let Some(kind) = served_kind(&self.watch, &context).await else {
            return;
        };
        let checked = check_scope(
            &self.watch,
            kind.scope,
            &context.namespaces,
            context.identity.namespace.as_deref(),
        );
        if let Err(error) = checked {
            // A reload may correct it. Until then each custom resource is `Irreconcilable`.
            tracing::error!(kind = %self.watch.gvk.kind, error = &error as &dyn std::error::Error, "the entry of the watches file cannot be used; no release of this kind is installed or upgraded");
        }
        let queue = context.queue(&self.name, Backoff::default());
        let selector = self.watch.selector.as_ref().map(ToString::to_string);
        let source = Source::start(&context, &kind, selector.as_deref(), &queue);
        let all_records = Process::of(&context).records;
        let records = all_records.stored_in(self.storage);
        let readers = open_sources(self.sources, &context, &queue, &source);
        // With an incomplete history an existing release would be installed again, and
        // extensions would take existing objects for missing.
        let known = async {
            tokio::join!(source.synced(), complete(&records));
            for other in all_records.all() {
                complete(&other).await;
            }
            for cache in readers.synced() {
                cache.await;
            }
        };
        if context.stop.run_until_cancelled(known).await.is_none() {
            return;
        }
        rollout.serves(&source);
        let router = Arc::new(ChangeRouter {
            gvk: self.watch.gvk.clone(),
            operator: context.identity.operator.clone(),
            repairs: self.watch.watch_dependent_resources,
            queue: queue.clone(),
            source: source.clone(),
        });
        context.caches.registry.add_route(&router);
        let listener = Arc::downgrade(&router);
        records.on_change(move |change: &RecordChange| {
            if let Some(router) = listener.upgrade() {
                router.record_changed(&change.record);
            }
        });
        let options = WorkerOptions {
            concurrency: self
                .watch
                .max_concurrent_reconciles
                .map_or(context.limits.max_concurrent_reconciles, usize::from),
            max_share: context.limits.max_share,
            deadline: ATTEMPT_WITHIN + REPORT_WITHIN,
        };
        let access = Arc::new(Access::new(&context, &queue, records.clone()));
        let memories = Memories::default();
        let view = View {
            gvk: self.watch.gvk.clone(),
            queue: queue.clone(),
            controlled: Controlled::Charts(Releases {
                source: source.clone(),
                records,
                store: access.releases.store.clone(),
                memories: memories.clone(),
                rollout: Arc::clone(&rollout),
            }),
        };
        let shown = context
            .settings()
            .cloned()
            .map(|views: Views| views.show(view));
        let reconciler = RolloutReconciler {
            rollout: Arc::clone(&rollout),
            access,
            resources: Resources::new(context.connection.client.clone(), source),
            readers,
            memories,
            events: OperatorEvents::new(&context),
            ring: (context.ring.clone()).map(|ring| (ring, Arc::clone(&kind))),
        };
        let workers = Workers::new(&queue, Arc::new(reconciler), options).run(context.stop.clone());
        // Turns are given only while the workers run.
        tokio::select! {
            biased;
            () = workers => {}
            () = rollout.run(&queue) => {}
        }
        // Listeners outlive the controller, but what they notify does not.
        drop((router, shown));
    }
}

/// Waits until the kind of an entry is served; `None` if the context is stopped before.
pub(super) async fn served_kind(
    watch: &Watch,
    context: &ControllerContext,
) -> Option<Arc<ApiKind>> {
    let mut logged = None;
    loop {
        match context.connection.cluster.resolve(&watch.gvk).await {
            Ok(kind) => return Some(kind),
            Err(error) => log_unserved(&watch.gvk.kind, &error, &mut logged),
        }
        let pause = tokio::time::sleep(Duration::from_secs(2));
        context.stop.run_until_cancelled(pause).await?;
    }
}

/// Logs why a kind cannot be watched yet, once for each cause.
fn log_unserved(kind: &str, error: &DiscoveryError, logged: &mut Option<String>) {
    let text = error.to_string();
    if logged.as_ref() == Some(&text) {
        return;
    }
    let cause: &dyn std::error::Error = error;
    if matches!(error, DiscoveryError::UnknownKind { .. }) {
        tracing::warn!(
            kind,
            error = cause,
            "cannot watch the custom resources; install their CustomResourceDefinition (those of a project are in config/crd/bases); the operator keeps trying"
        );
    } else {
        tracing::warn!(
            kind,
            error = cause,
            "cannot watch the custom resources; the operator keeps trying"
        );
    }
    *logged = Some(text);
}

/// Opens the caches of objects that the extensions read.
fn open_sources(
    sources: Vec<OpenSource>,
    context: &ControllerContext,
    queue: &QueueHandle,
    resources: &Source,
) -> Readers {
    let mut readers = Readers::default();
    for open in sources {
        open(&mut SourceContext {
            caches: &context.caches.objects,
            readers: &mut readers,
            queue,
            resources,
        });
    }
    readers
}

/// Waits until the index of all release records has synced.
pub(super) async fn complete(records: &ReleaseIndex) {
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
