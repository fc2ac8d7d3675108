//! Charts as components of the custom resources of native controllers.
//!
//! The engine that reconciles the releases of custom resources reconciles those of components: history, retries,
//! repairs and crash safety are the same. The state is returned to the caller, and kept in memory.

use futures::future::BoxFuture;
use host::{HashMap, HashSet};
use k8s_openapi::api::rbac::v1::PolicyRule;
use std::sync::Arc;
use std::time::Duration;

use helm_release::policy::{ActionPolicy, ChartLimits, ReleasePolicy};
use helm_release::release::{RecordChange, RecordStore};
use helm_release::{Advanced, Releases, Storage, Wanted};
use kube_objects::watch::{Change, Owners, Route};
use kube_objects::{CrIdentity, Key, Primary, with_causes};
use operator_runtime::controller::{Priority, QueueHandle, TypedObject};
use operator_runtime::manager::ControllerContext;
use operator_runtime::native::{self, Context};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::access::Access;
use super::builder::complete;
use super::chart::Chart;
use super::custom_resource::FINALIZER;
use super::setup::identity_of;
use crate::options::ChartOptions;
use crate::process::Process;
use known::KnownComponent;

mod known;

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

    /// Returns chart, values and options of the release.
    fn wanted(&self, generation: i64, limits: ChartLimits) -> Wanted {
        let policy = || ActionPolicy {
            timeout: self.timeout,
            wait: self.wait,
            ..ActionPolicy::default()
        };
        let uninstall = ActionPolicy {
            timeout: self.timeout,
            ..ActionPolicy::default()
        };
        Wanted {
            chart: Arc::clone(self.chart.compiled()),
            values: self.values.as_object().cloned().unwrap_or_default(),
            policy: ReleasePolicy {
                install: policy(),
                upgrade: policy(),
                rollback: policy(),
                uninstall,
                limits,
                ..ReleasePolicy::default()
            },
            generation,
        }
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

/// Lets the functions of a native controller install charts as components of its custom resources, see [`install`]:
/// the argument of [`Builder::with`](native::Builder::with).
///
/// A finalizer holds a custom resource that is being deleted until its charts are uninstalled.
///
/// Needs what a chart in `watches.yaml` needs: all verbs on Secrets, which hold the release
/// records, and those on the chart's objects.
pub fn components() -> impl native::Part {
    Installer
}

/// Installs charts for a native controller that is not started yet.
struct Installer;

impl native::Part for Installer {
    fn finalizer(&self) -> &'static str {
        FINALIZER
    }

    fn permissions(&self) -> Vec<PolicyRule> {
        let text = |text: &str| text.to_owned();
        let verbs = "create delete deletecollection get list patch update watch";
        vec![PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec![text("secrets")]),
            verbs: verbs.split(' ').map(text).collect(),
            ..PolicyRule::default()
        }]
    }

    fn start<'a>(
        &'a self,
        context: &'a ControllerContext,
        queue: &'a QueueHandle,
    ) -> BoxFuture<'a, Arc<dyn native::RunningPart>> {
        Box::pin(async move {
            let components: Arc<dyn native::RunningPart> =
                Arc::new(Components::start(context, queue).await);
            components
        })
    }
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
///     .with(helm::components())
///     .reconcile(move |shop, context| reconcile(shop, context, mysql.clone()));
/// # drop(controller);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ComponentError`] if the controller lacks [`components`], or a request fails. A chart that cannot be
/// rendered, or an install or upgrade that failed, is no error; see
/// [`Release::message`]. It is tried again after a pause, and when values or chart change.
///
/// # Caveats
/// Annotations of the custom resource have no effect on its components.
pub async fn install<K: TypedObject>(
    context: &Context<K>,
    component: Component,
) -> Result<Release, native::Error> {
    let name = component.name.clone();
    let (release, retry) = of_controller(context)?
        .install(context.primary(), component, context.until())
        .await
        .map_err(|source| ComponentError::Failed { name, source })?;
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
    let retry = of_controller(context)?
        .uninstall(context.primary(), name, context.until())
        .await
        .map_err(|source| ComponentError::Failed {
            name: name.to_owned(),
            source,
        })?;
    if let Some(delay) = retry {
        context.wake_after(delay);
    }
    Ok(retry.is_none())
}

/// Returns the components of a controller.
fn of_controller<K: TypedObject>(context: &Context<K>) -> Result<&Components, ComponentError> {
    context.part().ok_or(ComponentError::NoCharts)
}

/// Error of [`install`] and [`uninstall`].
#[derive(Debug, thiserror::Error)]
pub enum ComponentError {
    /// The controller does not install charts.
    #[error("the controller does not install charts; add .with(helm::components())")]
    NoCharts,
    /// A component cannot be installed or uninstalled.
    #[error("component {name}: {source}")]
    Failed {
        /// Name of the component.
        name: String,
        /// The cause.
        source: native::BoxError,
    },
}

impl From<ComponentError> for native::Error {
    fn from(error: ComponentError) -> Self {
        Self::other(error)
    }
}

/// Wrong call for a component.
#[derive(Debug, thiserror::Error)]
enum CallError {
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
struct Components {
    context: ControllerContext,
    store: RecordStore,
    queue: QueueHandle,
    known: Arc<Mutex<HashMap<String, Arc<KnownComponent>>>>,
    owners: Arc<Mutex<HashMap<CrIdentity, Key>>>,
    busy: Mutex<HashSet<(Key, String)>>,
}

impl native::RunningPart for Components {
    fn clean_up<'a>(
        &'a self,
        primary: &'a Primary,
        until: Instant,
    ) -> BoxFuture<'a, Result<Option<Duration>, native::Error>> {
        Box::pin(self.uninstall_all(primary, until))
    }

    fn forget(&self, key: &Key) {
        self.owners.lock().retain(|_, owner| owner != key);
        self.known.lock().retain(|_, known| known.forget(key));
    }
}

impl Components {
    /// Waits until the release records are known, and routes changes to the queue.
    async fn start(context: &ControllerContext, queue: &QueueHandle) -> Self {
        // With an incomplete history an existing release would be installed again.
        let all_records = Process::of(context).records;
        let records = all_records.stored_in(Storage::Secrets);
        complete(&records).await;
        let owners: Arc<Mutex<HashMap<CrIdentity, Key>>> = Arc::default();
        let router = Arc::new(ComponentRouter {
            queue: queue.clone(),
            owners: Arc::clone(&owners),
        });
        context.caches.registry.add_route(&router);
        let changed = move |change: &RecordChange| {
            if let Some(identity) = &change.record.cr {
                router.wake(identity);
            }
        };
        records.on_change(changed);
        Self {
            store: all_records.store(records),
            context: context.clone(),
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
        custom: &Primary,
        component: Component,
        until: Instant,
    ) -> Result<(Release, Option<Duration>), native::BoxError> {
        if !component.values.is_object() {
            return Err(CallError::Values.into());
        }
        let _busy = self.begin(custom, &component.name)?;
        let known = self.component(&component.name);
        let primary = of_component(custom, &component.name);
        let identity = primary.identity();
        let key = Key::from(custom);
        self.owners.lock().insert(identity.clone(), key.clone());
        let generation = known.wants(&key, &custom.uid, &component.chart, &component.values);
        let wanted = component.wanted(generation, ChartOptions::of(&self.context).limits());
        let name = component.release_name.as_deref();
        let place = known.place(&primary, name, false, &self.context)?;
        let advanced = if let Some(error) = place.error {
            Advanced::failed(with_causes(&error))
        } else {
            let location = &place.location;
            let wanted = Some(&wanted);
            known.advance(&primary, location, wanted, until).await
        };
        let records = self.store.records_of(&identity);
        let newest = records.last();
        let release = Release {
            name: newest.map_or_else(String::new, |meta| meta.name.to_string()),
            namespace: newest.map_or_else(String::new, |meta| meta.namespace.clone()),
            revision: newest.map_or(0, |meta| meta.revision.0),
            ready: advanced.state.is_ready,
            message: advanced.state.message,
        };
        match advanced.next {
            Ok(retry) => {
                known.succeeded(&key);
                Ok((release, retry))
            }
            // The caller can tell its users of a problem that the release shows.
            Err(_) if !release.message.is_empty() && !release.ready => {
                Ok((release, Some(known.failed(&key))))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Uninstalls a component; returns when to look again, or `None` if it is gone.
    async fn uninstall(
        &self,
        custom: &Primary,
        name: &str,
        until: Instant,
    ) -> Result<Option<Duration>, native::BoxError> {
        let _busy = self.begin(custom, name)?;
        let known = self.component(name);
        let primary = of_component(custom, name);
        let (identity, key) = (primary.identity(), Key::from(custom));
        let is_installed = known.is_installed(&key, &custom.uid);
        if !is_installed && self.store.records_of(&identity).is_empty() {
            // A crash before the first record may have left parts of it.
            self.store.delete_leftover_parts(&identity).await?;
            self.forget_component(name, &known, &key, &identity);
            return Ok(None);
        }
        self.owners.lock().insert(identity.clone(), key.clone());
        let place = known.place(&primary, None, true, &self.context)?;
        let advanced = known.advance(&primary, &place.location, None, until).await;
        let retry = advanced.next?;
        if !advanced.state.is_gone {
            return Ok(Some(retry.unwrap_or(Duration::from_secs(5))));
        }
        self.forget_component(name, &known, &key, &identity);
        Ok(None)
    }

    async fn uninstall_all(
        &self,
        custom: &Primary,
        until: Instant,
    ) -> Result<Option<Duration>, native::Error> {
        let mut names = self.store.components_of(&custom.identity());
        let key = Key::from(custom);
        names.extend(self.known.lock().iter().filter_map(|(name, known)| {
            let is_installed = known.is_installed(&key, &custom.uid);
            is_installed.then(|| name.clone())
        }));
        names.sort_unstable();
        names.dedup();
        let mut retry = None;
        for name in names {
            let left = self.uninstall(custom, &name, until).await;
            let left = left.map_err(|source| ComponentError::Failed { name, source })?;
            retry = left.into_iter().chain(retry).min();
        }
        Ok(retry)
    }

    fn forget_component(
        &self,
        name: &str,
        known: &KnownComponent,
        key: &Key,
        identity: &CrIdentity,
    ) {
        self.owners.lock().remove(identity);
        if !known.forget(key) {
            self.known.lock().remove(name);
        }
    }

    /// Returns the components of a name.
    fn component(&self, name: &str) -> Arc<KnownComponent> {
        let mut known = self.known.lock();
        let component = known.entry(name.to_owned()).or_insert_with(|| {
            let context = &self.context;
            let records = Process::of(context).records.stored_in(Storage::Secrets);
            let access = Access::new(context, &self.queue, records);
            let identity = identity_of(context);
            let (shared, rounds) = (Arc::clone(&access.releases), context.rounds.clone());
            let releases = Releases::new(shared, rounds, identity);
            Arc::new(KnownComponent::new(access, releases))
        });
        Arc::clone(component)
    }

    fn begin(&self, custom: &Primary, name: &str) -> Result<BusyComponent<'_>, CallError> {
        let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let ends = name.starts_with('-') || name.ends_with('-');
        if name.is_empty()
            || name.len() > CrIdentity::COMPONENT_MAX
            || ends
            || !name.chars().all(valid)
        {
            return Err(CallError::Name);
        }
        let id = (Key::from(custom), name.to_owned());
        if !self.busy.lock().insert(id.clone()) {
            return Err(CallError::Busy);
        }
        Ok(BusyComponent {
            busy: &self.busy,
            id,
        })
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

fn of_component(custom: &Primary, name: &str) -> Primary {
    Primary {
        component: Some(name.to_owned()),
        ..custom.clone()
    }
}
