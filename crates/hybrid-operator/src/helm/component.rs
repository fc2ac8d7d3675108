//! Charts as components of the custom resources of native controllers.
//!
//! A component is reconciled like the custom resource of a chart, by the same code. Its custom resource is
//! made up: it has the metadata of the real one, the values as its spec, and lives in memory. The
//! release, its history, retries, repairs and crash safety are therefore the same; the state is
//! returned to the caller instead of being written as a status.

use host::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::DynamicObject;
use kube::core::{ApiResource, ObjectMeta, TypeMeta};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::HelmReconciler;
use super::access::Access;
use super::builder::complete;
use super::chart::Chart;
use super::finalizer::FINALIZER;
use super::memory::Memories;
use super::resources::Resources;
use super::setup::Setup;
use super::status::Status;
use crate::cluster::{CrIdentity, Primary};
use crate::controller::{
    Backoff, Change, Key, Outcome, Owners, Priority, QueueHandle, Reconcile, Request, Route,
    TypedObject,
};
use crate::machine;
use crate::manager::ControllerContext;
use crate::native::{self, Context, Readers};
use crate::release::{RecordChange, RecordMeta, RecordStore, Storage};
use crate::watches::{ActionPolicy, Watch};

/// Number of steps that one call takes before it lets others run.
const MAX_STEPS: usize = 16;

/// A chart that a native controller installs as a component of its custom resource.
#[derive(Clone)]
pub struct Component {
    name: String,
    chart: Chart,
    values: Value,
    release_name: Option<String>,
    wait: bool,
    timeout: Option<Duration>,
}

impl Component {
    /// Creates a component without values. `name` tells the components of one custom resource apart: lower case
    /// letters, digits and `-`, no more than 30 characters.
    ///
    /// The release is called after the custom resource and the component, `shop-db` for the component `db` of
    /// `shop`.
    pub fn new(name: &str, chart: &Chart) -> Self {
        Self {
            name: name.to_owned(),
            chart: chart.clone(),
            values: json!({}),
            release_name: None,
            wait: false,
            timeout: None,
        }
    }

    /// Sets the values that are laid over the chart's defaults: a JSON object.
    #[must_use]
    pub fn values(mut self, values: Value) -> Self {
        self.values = values;
        self
    }

    /// Sets the name of the release, which must not change while it is installed.
    #[must_use]
    pub fn release_name(mut self, name: &str) -> Self {
        self.release_name = Some(name.to_owned());
        self
    }

    /// Counts an install or upgrade as failed if its objects are not ready in time, as Helm's
    /// `--wait` does. [`install`] does not wait in any case: a change of the objects brings the next
    /// reconcile.
    #[must_use]
    pub fn wait(mut self) -> Self {
        self.wait = true;
        self
    }

    /// Limits hooks and waits. Default: 5 minutes, as in Helm.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    fn watch(&self, primary: &Primary) -> Watch {
        let policy = || ActionPolicy {
            timeout: self.timeout,
            wait: self.wait,
            ..ActionPolicy::default()
        };
        let mut watch = Watch::new(primary.gvk.clone(), self.chart.name());
        watch.release_name.clone_from(&self.release_name);
        (watch.install, watch.upgrade) = (policy(), policy());
        watch.rollback = policy();
        watch.uninstall.timeout = self.timeout;
        watch
    }
}

/// The release of a component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Name of the release.
    pub name: String,
    /// Namespace of the release.
    pub namespace: String,
    /// Newest revision of the release; 0 before the first.
    pub revision: u32,
    /// Whether the release has the given chart and values, and all of its objects are ready.
    pub ready: bool,
    /// Description of what is missing until the release is ready, or of what failed.
    pub message: String,
}

/// Makes the release of a component what `component` says: installs, upgrades, repairs or retries it, as an
/// operator of the chart would.
///
/// Call it in every reconcile: it costs no request if nothing differs. It does not wait until the
/// objects are ready: their changes bring the next reconcile, as does the time of the next attempt
/// after a failure.
///
/// ```no_run
/// # use std::sync::Arc;
/// # use hybrid_operator::native::{self, Action, Context, Error};
/// # use k8s_openapi::api::core::v1::ConfigMap as Shop;
/// use hybrid_operator::helm::{self, Chart, Component};
/// use serde_json::json;
///
/// async fn reconcile(_: Arc<Shop>, context: Context<Shop>, mysql: Chart) -> Result<Action, Error> {
///     let database = Component::new("db", &mysql).values(json!({"persistence": {"enabled": true}}));
///     if !helm::install(&context, database).await?.ready {
///         return Ok(Action::done());
///     }
///     // What needs the database comes here.
///     Ok(Action::done())
/// }
///
/// # fn main() -> Result<(), helm::BuildError> {
/// let mysql = Chart::load("charts/mysql")?;
/// let controller = native::controller::<Shop>("shop")
///     .installs_charts()
///     .reconcile(move |shop, context| reconcile(shop, context, mysql.clone()));
/// # drop(controller);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`native::Error::NoCharts`] if the controller lacks
/// [`installs_charts`](native::Builder::installs_charts); [`native::Error::Component`] if a request
/// fails. A chart that cannot be rendered, or an install or upgrade that failed, is no error; see
/// [`Release::message`]. It is tried again after a pause, and when values or chart change.
///
/// # Caveats
/// * Annotations of the custom resource have no effect on its components.
/// * After a restart of the operator the objects are applied once more, which changes nothing if
///   they are as they should be.
pub async fn install<K: TypedObject>(
    context: &Context<K>,
    component: Component,
) -> Result<Release, native::Error> {
    let (components, primary) = context.components()?;
    let name = component.name.clone();
    let (release, retry) = components
        .install(primary, component, context.until())
        .await
        .map_err(|source| native::Error::Component { name, source })?;
    if let Some(delay) = retry {
        context.wake_after(delay);
    }
    Ok(release)
}

/// Uninstalls the release of a component that is no longer wanted. Returns whether it is gone; until
/// then, call it in every reconcile. A component that was never installed is gone.
///
/// All components are uninstalled when the custom resource is deleted.
///
/// # Errors
/// As [`install`].
pub async fn uninstall<K: TypedObject>(
    context: &Context<K>,
    name: &str,
) -> Result<bool, native::Error> {
    let (components, primary) = context.components()?;
    let retry = components.uninstall(primary, name, context.until()).await;
    let retry = retry.map_err(|source| native::Error::Component {
        name: name.to_owned(),
        source,
    })?;
    if let Some(delay) = retry {
        context.wake_after(delay);
    }
    Ok(retry.is_none())
}

/// Error of a component.
#[derive(Debug, thiserror::Error)]
enum ComponentError {
    #[error(
        "invalid name; use lower case letters, digits and '-', and no more than {} characters",
        CrIdentity::COMPONENT_MAX
    )]
    Name,
    #[error("the values must be a JSON object")]
    Values,
    #[error("install and uninstall of one component must not run at the same time")]
    Busy,
}

/// The components that a native controller installs, of all its custom resources.
pub(crate) struct Components {
    context: ControllerContext,
    resource: ApiResource,
    store: RecordStore,
    queue: QueueHandle,
    known: Arc<Mutex<HashMap<String, Arc<KnownComponent>>>>,
    owners: Arc<Mutex<HashMap<CrIdentity, Key>>>,
    busy: Mutex<HashSet<(Key, String)>>,
}

/// The components of one name, of all custom resources.
struct KnownComponent {
    access: Arc<Access>,
    memories: Memories,
    /// Chart and values of each custom resource, with their generation.
    wanted: Mutex<HashMap<Key, (Chart, Value, i64)>>,
    /// Pauses after failures.
    pauses: Mutex<Backoff>,
}

impl Components {
    /// Waits until the release records are known, and routes changes to the queue.
    pub(crate) async fn start(
        context: &ControllerContext,
        resource: ApiResource,
        queue: &QueueHandle,
    ) -> Self {
        // With an incomplete history an existing release would be installed again.
        let records = context.caches.records.stored_in(Storage::Secrets);
        complete(&records).await;
        let owners: Arc<Mutex<HashMap<CrIdentity, Key>>> = Arc::default();
        let router = Arc::new(ComponentRouter {
            queue: queue.clone(),
            owners: Arc::clone(&owners),
        });
        let route = Arc::clone(&router) as Arc<dyn Route>;
        context.caches.registry.add_route(route);
        let changed = move |change: &RecordChange| {
            if let Some(identity) = &change.record.cr {
                router.wake(identity);
            }
        };
        records.on_change(changed);
        Self {
            store: RecordStore::new(
                context.connection.client.clone(),
                records,
                context.caches.records.keys(),
            ),
            context: context.clone(),
            resource,
            queue: queue.clone(),
            known: Arc::default(),
            owners,
            busy: Mutex::default(),
        }
    }

    /// Reconciles a component before `until`; returns its release, and when to do so again if nothing
    /// changes.
    async fn install(
        &self,
        owner: &Primary,
        component: Component,
        until: Instant,
    ) -> Result<(Release, Option<Duration>), native::BoxError> {
        if !component.values.is_object() {
            return Err(ComponentError::Values.into());
        }
        let _busy = self.begin(owner, &component.name)?;
        let known = self.component(&component.name);
        let key = Key::from(owner);
        let generation = known.generation(&key, &component);
        let primary = of_component(owner, &component.name);
        self.owners.lock().insert(primary.identity(), key.clone());
        let data = json!({"spec": component.values, "status": known.status(&key)});
        let resource = self.made_up(owner, data, generation);
        known.access.resources.put_component(key.clone(), resource);
        let setup = self.setup(component.watch(owner), &component.name, &component.chart);
        let result = known.reconcile(setup, &key, until).await;
        let status = known.status(&key);
        let status = Status::read(status.as_ref(), machine::timestamp(), Some(generation));
        let records = self.store.records_of(&primary.identity());
        let release = release(&status, records.last());
        match result {
            Ok(retry) => {
                known.pauses.lock().reset(&key);
                Ok((release, retry))
            }
            // The caller can tell its users of a problem that the release shows.
            Err(_) if !release.message.is_empty() && !release.ready => {
                let pause = known.pauses.lock().failed(&key, 0);
                Ok((release, Some(pause)))
            }
            Err(error) => Err(error),
        }
    }

    /// Uninstalls a component; returns when to look again, or `None` if it is gone.
    async fn uninstall(
        &self,
        owner: &Primary,
        name: &str,
        until: Instant,
    ) -> Result<Option<Duration>, native::BoxError> {
        let _busy = self.begin(owner, name)?;
        let (known, key) = (self.component(name), Key::from(owner));
        let primary = of_component(owner, name);
        let present = known.access.resources.get(&key);
        let identity = primary.identity();
        if present.is_none() && self.store.records_of(&identity).is_empty() {
            // A crash before the first record may have left parts of it.
            self.store.delete_leftover_parts(&identity).await?;
            self.forget_component(name, &known, &key, &primary);
            return Ok(None);
        }
        self.owners.lock().insert(primary.identity(), key.clone());
        let status = present.and_then(|component| component.data.get("status").cloned());
        let mut resource = self.made_up(owner, json!({"spec": {}, "status": status}), 0);
        resource.metadata.deletion_timestamp = Some(Time(machine::timestamp()));
        known.access.resources.put_component(key.clone(), resource);
        let chart = known.wanted.lock().get(&key).map(|wanted| wanted.0.clone());
        // Uninstalling needs the records alone.
        let chart = chart.map_or_else(Chart::empty, Ok)?;
        let watch = Watch::new(owner.gvk.clone(), chart.name());
        let retry = known
            .reconcile(self.setup(watch, name, &chart), &key, until)
            .await?;
        let left = known.access.resources.get(&key);
        if left.is_some_and(|component| super::finalizer::is_present(&component)) {
            return Ok(Some(retry.unwrap_or(Duration::from_secs(5))));
        }
        self.forget_component(name, &known, &key, &primary);
        Ok(None)
    }

    /// Uninstalls all components of a custom resource; returns when to look again, or `None` if all are
    /// gone.
    pub(crate) async fn uninstall_all(
        &self,
        owner: &Primary,
        until: Instant,
    ) -> Result<Option<Duration>, native::Error> {
        let mut names = self.store.components_of(&owner.identity());
        let key = Key::from(owner);
        names.extend(self.known.lock().iter().filter_map(|(name, known)| {
            let present = known.access.resources.get(&key);
            present.map(|_| name.clone())
        }));
        names.sort_unstable();
        names.dedup();
        let mut retry = None;
        for name in names {
            let left = self.uninstall(owner, &name, until).await;
            let left = left.map_err(|source| native::Error::Component { name, source })?;
            retry = left.into_iter().chain(retry).min();
        }
        Ok(retry)
    }

    /// Forgets a custom resource that is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.owners.lock().retain(|_, owner| owner != key);
        self.known.lock().retain(|_, known| known.forget(key));
    }

    fn forget_component(&self, name: &str, known: &KnownComponent, key: &Key, primary: &Primary) {
        self.owners.lock().remove(&primary.identity());
        if !known.forget(key) {
            self.known.lock().remove(name);
        }
    }

    /// Returns the components of a name.
    fn component(&self, name: &str) -> Arc<KnownComponent> {
        let mut known = self.known.lock();
        let component = known.entry(name.to_owned()).or_insert_with(|| {
            Arc::new(KnownComponent {
                access: Arc::new(Access::new(
                    &self.context,
                    &self.queue,
                    Resources::Components(Mutex::default()),
                    Readers::default(),
                    self.context.caches.records.stored_in(Storage::Secrets),
                )),
                memories: Memories::default(),
                wanted: Mutex::default(),
                pauses: Mutex::default(),
            })
        });
        Arc::clone(component)
    }

    fn setup(&self, watch: Watch, component: &str, chart: &Chart) -> Arc<Setup> {
        Arc::new(Setup {
            component: Some(component.to_owned()),
            // The native controller decides when it looks again.
            period: Duration::ZERO,
            ..Setup::of(watch, chart, &self.context)
        })
    }

    /// Makes up the custom resource of a component. It has no annotations: those of the real one are for
    /// its own controller.
    fn made_up(&self, owner: &Primary, data: Value, generation: i64) -> DynamicObject {
        DynamicObject {
            types: Some(TypeMeta {
                api_version: self.resource.api_version.clone(),
                kind: self.resource.kind.clone(),
            }),
            metadata: ObjectMeta {
                name: Some(owner.name.clone()),
                namespace: owner.namespace.clone(),
                uid: Some(owner.uid.clone()),
                generation: Some(generation),
                finalizers: Some(vec![FINALIZER.to_owned()]),
                ..ObjectMeta::default()
            },
            data,
        }
    }

    fn begin(&self, owner: &Primary, name: &str) -> Result<BusyComponent<'_>, ComponentError> {
        let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let ends = name.starts_with('-') || name.ends_with('-');
        if name.is_empty()
            || name.len() > CrIdentity::COMPONENT_MAX
            || ends
            || !name.chars().all(valid)
        {
            return Err(ComponentError::Name);
        }
        let id = (Key::from(owner), name.to_owned());
        if !self.busy.lock().insert(id.clone()) {
            return Err(ComponentError::Busy);
        }
        Ok(BusyComponent {
            busy: &self.busy,
            id,
        })
    }
}

impl KnownComponent {
    /// Returns the status of a made-up custom resource.
    fn status(&self, key: &Key) -> Option<Value> {
        let component = self.access.resources.get(key)?;
        component.data.get("status").cloned()
    }

    /// Returns the generation of the made-up custom resource: a new one if chart or values differ
    /// from those of the last call.
    fn generation(&self, key: &Key, component: &Component) -> i64 {
        let mut wanted = self.wanted.lock();
        let before = wanted.get(key);
        let generation = match before {
            Some((chart, values, generation)) => {
                let same = chart.is_same(&component.chart) && *values == component.values;
                generation + i64::from(!same)
            }
            None => 1,
        };
        let now = (
            component.chart.clone(),
            component.values.clone(),
            generation,
        );
        wanted.insert(key.clone(), now);
        generation
    }

    /// Reconciles until nothing can be done at once; returns when to do so again if nothing changes.
    async fn reconcile(
        &self,
        setup: Arc<Setup>,
        key: &Key,
        until: Instant,
    ) -> Result<Option<Duration>, native::BoxError> {
        let mut reconciler = HelmReconciler {
            setup,
            access: Arc::clone(&self.access),
            memories: self.memories.clone(),
            limit: Duration::ZERO,
        };
        for _ in 0..MAX_STEPS {
            let request = Request {
                key: key.clone(),
                pause: self.pauses.lock().next(key),
            };
            // The caller needs time to tell of a component that is cut off.
            let left = until.saturating_duration_since(Instant::now());
            reconciler.limit = left * 9 / 10;
            match reconciler.reconcile(request).await? {
                Outcome::After(delay) if delay.is_zero() => {}
                Outcome::After(delay) => return Ok(Some(delay)),
                Outcome::Done => return Ok(None),
            }
        }
        Ok(Some(Duration::from_secs(1)))
    }

    /// Forgets a custom resource. Returns whether others are left.
    fn forget(&self, key: &Key) -> bool {
        self.access.forget(key);
        self.memories.forget(key);
        self.wanted.lock().remove(key);
        self.pauses.lock().reset(key);
        self.access.resources.remove_component(key)
    }
}

/// Marks a component while it is reconciled.
struct BusyComponent<'a> {
    busy: &'a Mutex<HashSet<(Key, String)>>,
    id: (Key, String),
}

impl Drop for BusyComponent<'_> {
    fn drop(&mut self) {
        self.busy.lock().remove(&self.id);
    }
}

/// Enqueues the custom resource of a changed object or record of a component.
struct ComponentRouter {
    queue: QueueHandle,
    owners: Arc<Mutex<HashMap<CrIdentity, Key>>>,
}

impl ComponentRouter {
    fn wake(&self, identity: &CrIdentity) {
        let key = self.owners.lock().get(identity).cloned();
        if let Some(key) = key {
            self.queue.add(key, Priority::Event);
        }
    }
}

impl Route for ComponentRouter {
    fn changed(&self, owners: &Owners, _: Change) {
        if let Some(identity) = &owners.label {
            self.wake(identity);
        }
    }
}

fn of_component(owner: &Primary, name: &str) -> Primary {
    Primary {
        component: Some(name.to_owned()),
        ..owner.clone()
    }
}

/// Returns the state of a release from the status of the made-up custom resource.
fn release(status: &Status, newest: Option<&RecordMeta>) -> Release {
    Release {
        name: newest.map_or_else(String::new, |meta| meta.name.to_string()),
        namespace: newest.map_or_else(String::new, |meta| meta.namespace.clone()),
        revision: newest.map_or(0, |meta| meta.revision.0),
        ready: status.is_ready(),
        message: status.problem().unwrap_or_default().to_owned(),
    }
}
