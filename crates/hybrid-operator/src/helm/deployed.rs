//! Finds the release of a chart's custom resource, for native controllers of the same operator.

use std::sync::Arc;

use host::HashMap;
use kube_objects::CrIdentity;
use parking_lot::Mutex;

use helm_core::Values;
use helm_core::manifest::parse_objects;
use helm_core::release::{Release as Record, Status};
use kube::Resource;
use kube_objects::with_causes;
use operator_runtime::controller::{ObjectScope, TypedObject};
use operator_runtime::manager::ControllerContext;
use operator_runtime::native::{self, Context};
use serde_json::Value;

use super::builder::complete;
use crate::process::Process;
use helm_release::Storage;
use helm_release::release::{AllRecords, RecordStore};

/// A release that is deployed: what a chart made of a custom resource.
#[derive(Debug, Clone, PartialEq)]
pub struct DeployedRelease {
    /// Name of the release.
    pub name: String,
    /// Namespace of the release.
    pub namespace: String,
    /// Number of the revision.
    pub revision: u32,
    /// Version of the chart; empty if the record has none.
    pub chart_version: String,
    /// The values that were laid over the chart's defaults.
    pub values: Values,
    objects: Vec<Value>,
}

impl DeployedRelease {
    /// Creates a first revision from a manifest, for tests.
    ///
    /// # Errors
    /// If the manifest is not valid YAML.
    pub fn new(name: &str, namespace: &str, manifest: &str) -> Result<Self, native::BoxError> {
        Ok(Self {
            name: name.to_owned(),
            namespace: namespace.to_owned(),
            revision: 1,
            chart_version: String::new(),
            values: Values::default(),
            objects: objects(manifest)?,
        })
    }

    /// Returns the objects of a type in the manifest of the release, as the chart renders them: without
    /// what the API server or others have added.
    ///
    /// # Errors
    /// If an object of the type cannot be decoded.
    pub fn objects<O: TypedObject>(&self) -> Result<Vec<O>, serde_json::Error> {
        let (kind, version) = (O::kind(&()), O::api_version(&()));
        let is_type = |object: &&Value| {
            object.get("kind").and_then(Value::as_str) == Some(&*kind)
                && object.get("apiVersion").and_then(Value::as_str) == Some(&*version)
        };
        let objects = self.objects.iter().filter(is_type);
        let decoded = objects.map(|object| {
            let mut object: O = serde_json::from_value(object.clone())?;
            if O::Scope::NAMESPACED && object.meta().namespace.is_none() {
                object.meta_mut().namespace = Some(self.namespace.clone());
            }
            Ok(object)
        });
        decoded.collect()
    }

    fn of(record: &Record) -> Result<Self, native::BoxError> {
        let chart = record
            .chart
            .as_ref()
            .and_then(|chart| chart.metadata.as_ref());
        Ok(Self {
            name: record.name.to_string(),
            namespace: record.namespace.clone(),
            revision: record.revision.0,
            chart_version: chart.map(|chart| chart.version.clone()).unwrap_or_default(),
            values: record.config.clone(),
            objects: objects(&record.manifest)?,
        })
    }
}

fn objects(manifest: &str) -> Result<Vec<Value>, native::BoxError> {
    let parsed = parse_objects(manifest)?;
    let values = parsed.into_iter().map(|object| object.object().clone());
    Ok(values.collect())
}

/// Returns the deployed release of the custom resource of a chart; `None` if there is none yet.
///
/// The records of all releases are watched once for the whole operator, so that this costs no request
/// unless the content of a record is not in memory: then it is read once. Watch the chart's kind, whose
/// status changes with the release, so that a change brings the next reconcile:
///
/// ```no_run
/// # use std::sync::Arc;
/// # use hybrid_operator::native::{Action, Context, Error};
/// # use k8s_openapi::api::core::v1::{ConfigMap as Backup, Pod as Memcached};
/// use hybrid_operator::helm;
/// use k8s_openapi::api::core::v1::Service;
///
/// async fn reconcile(_: Arc<Backup>, context: Context<Backup>) -> Result<Action, Error> {
///     let Some(memcached) = context.get::<Memcached>("main").await? else {
///         return Ok(Action::done());
///     };
///     if let Some(release) = helm::deployed(&context, &*memcached).await? {
///         let services = release.objects::<Service>()?;
///         // ...
/// #       drop(services);
///     }
///     Ok(Action::done())
/// }
/// ```
///
/// # Errors
/// When the record cannot be read.
pub async fn deployed<K, R>(
    context: &Context<K>,
    resource: &R,
) -> Result<Option<DeployedRelease>, native::Error>
where
    K: TypedObject,
    R: Resource<DynamicType = ()>,
{
    match context.shared(DeployedReleases::of) {
        Some(releases) => releases.find(&identity_of(resource)).await,
        None => Ok(None),
    }
}

fn identity_of<R: Resource<DynamicType = ()>>(resource: &R) -> CrIdentity {
    let meta = resource.meta();
    let name = meta.name.as_deref().unwrap_or_default();
    let namespace = meta.namespace.as_deref();
    CrIdentity::of(&R::group(&()), &R::kind(&()), namespace, name)
}

/// The releases that [`deployed`] finds. A test gives those that it needs to its
/// [`Fixture`](native::Fixture::sharing).
#[derive(Clone)]
pub struct DeployedReleases(Arc<Place>);

enum Place {
    /// The release records.
    Stored {
        records: AllRecords,
        /// Stores keep the content of the records that were read last.
        stores: Mutex<HashMap<Storage, RecordStore>>,
    },
    /// A test.
    Fixed(HashMap<CrIdentity, DeployedRelease>),
}

impl DeployedReleases {
    fn of(context: &ControllerContext) -> Self {
        Self(Arc::new(Place::Stored {
            records: Process::of(context).records,
            stores: Mutex::default(),
        }))
    }

    /// Gives one custom resource a release, for tests.
    pub fn fixed<R>(resource: &R, release: DeployedRelease) -> Self
    where
        R: Resource<DynamicType = ()>,
    {
        let releases = [(identity_of(resource), release)].into_iter();
        Self(Arc::new(Place::Fixed(releases.collect())))
    }

    async fn find(&self, owner: &CrIdentity) -> Result<Option<DeployedRelease>, native::Error> {
        let (records, stores) = match &*self.0 {
            Place::Stored { records, stores } => (records, stores),
            Place::Fixed(releases) => return Ok(releases.get(owner).cloned()),
        };
        for index in records.all() {
            complete(&index).await;
            let history = index.records_of(owner);
            let mut history = history.iter().rev();
            let Some(meta) = history.find(|meta| meta.status == Status::Deployed) else {
                continue;
            };
            let store = {
                let mut stores = stores.lock();
                let entry = stores.entry(index.storage());
                let store = entry.or_insert_with(|| records.store(index.clone()));
                store.clone()
            };
            let record = store.load(meta).await;
            let record = record.map_err(|error| native::Error::other(with_causes(&error)))?;
            return Ok(Some(DeployedRelease::of(&record)?));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use hybrid_operator_test::scripted::ScriptedApi;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
    use operator_runtime::native::Fixture;
    use serde_json::json;

    use super::{DeployedRelease, DeployedReleases, deployed};

    #[tokio::test]
    async fn a_test_gives_a_custom_resource_its_release() {
        let api = ScriptedApi::new();
        let named = |name: &str| json!({"metadata": {"name": name, "namespace": "a"}});
        let [one, other]: [Pod; 2] =
            ["one", "other"].map(|name| serde_json::from_value(named(name)).unwrap());
        let object: ConfigMap = serde_json::from_value(named("object")).unwrap();
        let manifest = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n";
        let release = DeployedRelease::new("one", "a", manifest).unwrap();
        let context = Fixture::new(object, api.client("a"))
            .sharing(DeployedReleases::fixed(&one, release.clone()))
            .build();
        let found = deployed(&context, &one).await.unwrap().unwrap();
        assert_eq!(found, release);
        let services: Vec<Service> = found.objects().unwrap();
        assert_eq!(services[0].metadata.namespace.as_deref(), Some("a"));
        assert_eq!(deployed(&context, &other).await.unwrap(), None);
    }
}
