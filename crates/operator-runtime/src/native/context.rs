//! Context that a reconcile function works with.

use host::HashMap;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::core::PartialObjectMeta;
use kube::runtime::events::{Event, EventType};
use kube::{Client, Resource};
use kube_objects::events::EventRecorder;
use kube_objects::request::{self, Call};
use kube_objects::{ApiError, Primary};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::apply::{Applier, kind_of};
use super::error::Error;
use super::part::RunningPart;
use super::reader::{MetadataReader, Reader, Readers};
use super::status::Conditions;
use crate::controller::{Key, ObjectScope, TypedObject};
use crate::manager::ControllerContext;

/// State that all reconciles of a controller share.
pub(super) struct Shared {
    pub(super) applier: Applier,
    pub(super) recorder: EventRecorder,
    pub(super) readers: Readers,
    /// The statuses that this process wrote last: a cached object may be older.
    pub(super) statuses: Mutex<HashMap<Key, WrittenStatus>>,
    /// The part of the controller, if it has one.
    pub(super) part: Option<Arc<dyn RunningPart>>,
    pub(super) process: Process,
}

/// The process that a controller runs in.
pub(super) enum Process {
    Running(Box<ControllerContext>),
    /// State that a test gives in place of the state that controllers of a process share.
    Fixture(http::Extensions),
}

pub(super) struct WrittenStatus {
    version: u64,
    status: Value,
    /// Whether the API server has answered.
    answered: bool,
}

/// One reconcile of a `K`.
///
/// # Guarantees
/// * What is read from caches costs no request. What is applied or written as status costs one
///   request if it differs from what is cached, and none otherwise.
/// * An object of somebody else is never changed or deleted.
///
/// # Caveats
/// * Caches are behind the API server by the time that an event takes. The change of an owned or
///   watched object brings another reconcile.
pub struct Context<K> {
    object: Arc<K>,
    primary: Primary,
    shared: Arc<Shared>,
    /// Longest time until the next reconcile of the custom resource.
    due: Arc<Mutex<Option<Duration>>>,
    /// Time at which the reconcile is cancelled.
    until: Instant,
}

impl<K> Clone for Context<K> {
    fn clone(&self) -> Self {
        Self {
            object: Arc::clone(&self.object),
            primary: self.primary.clone(),
            shared: Arc::clone(&self.shared),
            due: Arc::clone(&self.due),
            until: self.until,
        }
    }
}

/// Names a typed custom resource.
pub(super) fn primary_of<K: TypedObject>(object: &K) -> Primary {
    let meta = object.meta();
    let resource = kind_of::<K>().resource;
    Primary {
        gvk: kube::core::GroupVersionKind::gvk(&resource.group, &resource.version, &resource.kind),
        namespace: meta.namespace.clone().filter(|_| K::Scope::NAMESPACED),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        component: None,
    }
}

impl<K: TypedObject> Context<K> {
    pub(super) fn new(object: Arc<K>, shared: Arc<Shared>, limit: Duration) -> Self {
        Self {
            primary: primary_of(&*object),
            object,
            shared,
            due: Arc::default(),
            until: Instant::now() + limit,
        }
    }

    /// Returns the running part of the controller, if it is of this type; see
    /// [`Builder::with`](super::Builder::with).
    pub fn part<P: RunningPart>(&self) -> Option<&P> {
        let part: &dyn Any = &**self.shared.part.as_ref()?;
        part.downcast_ref()
    }

    /// Returns state that controllers of the process share, see [`ControllerContext::shared`]; in tests, the state
    /// that [`Fixture::sharing`](super::Fixture::sharing) has given, if any.
    pub fn shared<T>(&self, open: impl FnOnce(&ControllerContext) -> T) -> Option<T>
    where
        T: Clone + Send + Sync + 'static,
    {
        match &self.shared.process {
            Process::Running(context) => Some(context.shared(open)),
            Process::Fixture(given) => given.get().cloned(),
        }
    }

    /// Returns the name of the custom resource.
    pub fn primary(&self) -> &Primary {
        &self.primary
    }

    /// Returns when the reconcile is cancelled.
    pub fn until(&self) -> Instant {
        self.until
    }

    /// Reconciles the custom resource again after this time, even if its function returns
    /// [`Action::Done`](super::Action::Done).
    pub fn wake_after(&self, delay: Duration) {
        let mut due = self.due.lock();
        *due = Some(due.map_or(delay, |earlier| earlier.min(delay)));
    }

    /// Returns when the custom resource must be reconciled again at the latest.
    pub(super) fn due(&self) -> Option<Duration> {
        *self.due.lock()
    }

    /// Returns the client, for requests that no other method sends.
    pub fn client(&self) -> &Client {
        &self.shared.applier.client
    }

    /// Returns the custom resource of this reconcile.
    pub fn object(&self) -> &Arc<K> {
        &self.object
    }

    /// Returns the reader of a type that the controller owns or watches.
    ///
    /// # Errors
    /// [`Error::NotCached`] if the controller does neither.
    pub fn cached<O: TypedObject>(&self) -> Result<Reader<O>, Error> {
        self.shared.readers.reader(&self.primary)
    }

    /// Returns the reader of the metadata of a type, see
    /// [`watches_metadata`](super::Builder::watches_metadata).
    ///
    /// # Errors
    /// [`Error::NotCached`] if the controller does not watch it.
    pub fn cached_metadata<O: TypedObject>(&self) -> Result<MetadataReader<O>, Error> {
        self.shared
            .readers
            .reader::<PartialObjectMeta<O>>(&self.primary)
    }

    /// Returns an object by name, from the namespace of the custom resource if it can be in one: the
    /// cached one if there is one, otherwise read from the API server.
    ///
    /// # Errors
    /// When the request fails. An object that does not exist is `None`.
    pub async fn get<O: TypedObject>(&self, name: &str) -> Result<Option<Arc<O>>, Error> {
        let namespace = self.primary.namespace.as_deref();
        self.get_in(namespace.filter(|_| O::Scope::NAMESPACED), name)
            .await
    }

    /// The same for an object of any namespace; `None` for a cluster-scoped one.
    ///
    /// # Errors
    /// When the request fails. An object that does not exist is `None`.
    pub async fn get_in<O: TypedObject>(
        &self,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Arc<O>>, Error> {
        let cached = self.cached::<O>().ok();
        if let Some(found) = cached.and_then(|cached| cached.get_in(namespace, name)) {
            return Ok(Some(found));
        }
        let key = Key::new(namespace, name);
        let found = self.shared.applier.read::<O>(&key).await?;
        Ok(found.map(Arc::new))
    }

    /// Makes an object exist as given, owned by the custom resource, and returns it.
    ///
    /// The fields that `object` sets become this controller's; those that it set before and does not
    /// set any more are removed; fields of others stay. In the namespace of the custom resource the
    /// owner is an owner reference, in other namespaces labels and annotations: such objects are not
    /// garbage-collected, so the controller needs a [`finalizer`](super::Builder::finalizer).
    ///
    /// # Errors
    /// [`Error::Foreign`] if the object exists and belongs to somebody else.
    pub async fn apply<O: TypedObject>(&self, object: &O) -> Result<Arc<O>, Error> {
        let wanted = self.shared.applier.wanted(object, &self.primary)?;
        let caches = self.shared.readers.caches::<O>();
        let present = [caches.owned, caches.watched]
            .into_iter()
            .flatten()
            .find_map(|cache| cache.get(&wanted.key));
        self.shared
            .applier
            .apply(wanted, present, &self.primary)
            .await
    }

    /// Applies all of these objects, then deletes other objects of the type that the custom resource
    /// owns.
    ///
    /// All objects are tried. If one fails, nothing is deleted and the first error is returned.
    ///
    /// # Errors
    /// As [`apply`](Self::apply) and [`prune`](Self::prune).
    pub async fn apply_all<O: TypedObject>(&self, objects: &[O]) -> Result<Vec<Arc<O>>, Error> {
        let mut applied = Vec::with_capacity(objects.len());
        let mut failed = None;
        for object in objects {
            match self.apply(object).await {
                Ok(object) => applied.push(object),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let wanted: Vec<Key> = applied.iter().map(|object| Key::of(&**object)).collect();
        self.prune::<O>(|object| wanted.contains(&Key::of(object)))
            .await?;
        Ok(applied)
    }

    /// Deletes the objects of a type that the custom resource owns and that `keep` does not accept;
    /// returns how many were left to delete, which includes those that are being deleted already.
    ///
    /// # Errors
    /// [`Error::NotCached`] if the controller does not own the type; otherwise the first request
    /// error, after all have been tried.
    pub async fn prune<O: TypedObject>(&self, keep: impl Fn(&O) -> bool) -> Result<usize, Error> {
        let mut extra = self.cached::<O>()?.owned();
        extra.retain(|object| !keep(object));
        let mut failed = None;
        for object in &extra {
            if object.meta().deletion_timestamp.is_none()
                && let Err(error) = self.shared.applier.delete(&**object).await
            {
                failed = failed.or(Some(error));
            }
        }
        failed.map_or(Ok(extra.len()), Err)
    }

    /// Deletes this object if the custom resource owns it. One that is gone already is no error.
    ///
    /// # Errors
    /// [`Error::Foreign`] if it belongs to somebody else.
    pub async fn delete<O: TypedObject>(&self, object: &O) -> Result<(), Error> {
        if let Some(owner) = super::apply::owner(object.meta(), &self.primary) {
            return Err(Error::Foreign {
                kind: O::kind(&()).into_owned(),
                name: Key::of(object).to_string(),
                owner,
            });
        }
        self.shared.applier.delete(object).await
    }

    /// Starts from these conditions of the status; those that are set get the generation of this
    /// object.
    pub fn conditions(&self, present: Option<&[super::Condition]>) -> Conditions {
        let present = present.unwrap_or_default().to_vec();
        Conditions::new(present, self.object.meta().generation)
    }

    /// Writes the status if it differs from the present one. Fields that it leaves out are removed.
    ///
    /// # Errors
    /// When the API server rejects it. A custom resource that is gone is no error.
    pub async fn patch_status<S: Serialize>(&self, status: &S) -> Result<(), Error> {
        let mut wanted = serde_json::to_value(status)?;
        let key = Key::of(&*self.object);
        let present = self.present_status(&key)?;
        let unanswered = self.unanswered_status(&key);
        if present == wanted && unanswered.is_none() {
            return Ok(());
        }
        let written = wanted.clone();
        if let Some(wanted) = wanted.as_object_mut() {
            let stored = unanswered.iter().chain([&present]);
            for field in stored.filter_map(Value::as_object).flat_map(Map::keys) {
                wanted.entry(field.clone()).or_insert(Value::Null);
            }
        }
        // Until the answer comes, the stored status is unknown.
        self.remember_status(&key, version_of(&*self.object), &wanted, false);
        let kind = kind_of::<K>();
        let (namespace, name) = (key.namespace.as_deref(), Some(&*key.name));
        let path = request::path(&kind, namespace, name)?;
        let manager = request::query_value(&self.shared.applier.manager);
        let body = json!({"metadata": {"uid": self.primary.uid}, "status": wanted});
        let call = Call::with_body(
            Method::PATCH,
            format!("{path}/status?fieldManager={manager}"),
            request::METADATA_ONLY,
            request::MERGE_PATCH,
            body.to_string().into_bytes(),
        );
        let target = request::target("patch", &kind, namespace, name);
        let answer = match request::call(self.client(), target, call).await {
            Err(ApiError::NotFound { .. }) => return Ok(()),
            answer => answer?,
        };
        let answer: PartialObjectMeta<K> = answer.decode()?;
        self.remember_status(&key, version_of(&answer), &written, true);
        Ok(())
    }

    fn remember_status(&self, key: &Key, version: u64, status: &Value, answered: bool) {
        let written = WrittenStatus {
            version,
            status: status.clone(),
            answered,
        };
        self.shared.statuses.lock().insert(key.clone(), written);
    }

    /// Returns the status that was written last if that was not answered.
    fn unanswered_status(&self, key: &Key) -> Option<Value> {
        let statuses = self.shared.statuses.lock();
        let written = statuses.get(key).filter(|written| !written.answered)?;
        Some(written.status.clone())
    }

    /// Returns the newest known status: the cached one, or the one that was written last if that is
    /// not cached yet.
    fn present_status(&self, key: &Key) -> Result<Value, Error> {
        let statuses = self.shared.statuses.lock();
        if let Some(written) = statuses.get(key)
            && written.answered
            && written.version > version_of(&*self.object)
        {
            return Ok(written.status.clone());
        }
        drop(statuses);
        let object = serde_json::to_value(&*self.object)?;
        Ok(object.get("status").cloned().unwrap_or(Value::Null))
    }

    /// Publishes an event of type `Normal` about the custom resource; failures are only logged.
    pub async fn normal_event(&self, reason: &str, note: impl Into<String>) {
        self.event(EventType::Normal, reason, note.into()).await;
    }

    /// Publishes an event of type `Warning` about the custom resource; failures are only logged.
    pub async fn warning_event(&self, reason: &str, note: impl Into<String>) {
        self.event(EventType::Warning, reason, note.into()).await;
    }

    async fn event(&self, type_: EventType, reason: &str, note: String) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        let reference = ObjectReference {
            api_version: Some(self.primary.gvk.api_version()),
            kind: Some(self.primary.gvk.kind.clone()),
            namespace: self.primary.namespace.clone(),
            name: Some(self.primary.name.clone()),
            uid: Some(self.primary.uid.clone()),
            ..ObjectReference::default()
        };
        self.shared.recorder.publish(&event, &reference).await;
    }

    /// Waits until `look` accepts the cached object of this name in the namespace of the custom
    /// resource, and returns its result. `look` gets `None` while there is no such object.
    ///
    /// # Errors
    /// [`Error::NotCached`], or [`Error::Timeout`] after `within`.
    ///
    /// # Caveats
    /// The reconcile occupies a worker while it waits. For waits of more than some seconds return
    /// [`Action::Done`](super::Action::Done): the change of the object brings the next reconcile.
    pub async fn wait_for<O: TypedObject, T>(
        &self,
        name: &str,
        within: Duration,
        mut look: impl FnMut(Option<&O>) -> Option<T>,
    ) -> Result<T, Error> {
        let reader = self.cached::<O>()?;
        let namespace = self.primary.namespace.as_deref();
        let key = Key::new(namespace.filter(|_| O::Scope::NAMESPACED), name);
        let found = async {
            match reader.cache() {
                Some(cache) => {
                    cache
                        .wait_for(|cache| look(cache.get(&key).as_deref()))
                        .await
                }
                None => std::future::pending().await,
            }
        };
        let found = tokio::time::timeout(within, found).await;
        found.map_err(|_| Error::Timeout {
            kind: O::kind(&()).into_owned(),
            name: key.to_string(),
            within,
        })
    }
}

fn version_of<O: Resource>(object: &O) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hybrid_operator_test::scripted::{Answer, ScriptedApi, When};
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
    use serde_json::{Value, json};

    use super::super::{Error, Fixture};

    const STATUS: &str = "/api/v1/namespaces/a/pods/one/status";

    fn pod(status: &Value, version: &str) -> Pod {
        let metadata =
            json!({"name": "one", "namespace": "a", "uid": "u", "resourceVersion": version});
        serde_json::from_value(json!({"metadata": metadata, "status": status})).unwrap()
    }

    fn map(name: &str) -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "a"}})).unwrap()
    }

    #[tokio::test]
    async fn a_status_is_written_only_when_it_differs_and_lacks_what_is_left_out() {
        let api = ScriptedApi::new();
        let written = json!({"metadata": {"name": "one", "resourceVersion": "9"}});
        api.on(When::patch(STATUS), Answer::json(200, written));
        let running = json!({"phase": "Running", "reason": "x"});
        let failed = json!({"phase": "Failed"});
        let fixture = Fixture::new(pod(&running, "5"), api.client("a"));
        let context = fixture.build();
        context.patch_status(&running).await.unwrap();
        assert!(api.requests().is_empty());
        context.patch_status(&failed).await.unwrap();
        // The cached object is older than what was written: that counts.
        context.patch_status(&failed).await.unwrap();
        let sent = api.requests();
        assert_eq!(sent.len(), 1);
        let body = sent[0].body.as_ref().unwrap();
        assert_eq!(body["status"], json!({"phase": "Failed", "reason": null}));
        context.patch_status(&running).await.unwrap();
        assert_eq!(api.requests().len(), 2);
    }

    #[tokio::test]
    async fn what_is_not_cached_is_read_and_what_is_not_there_is_none() {
        let api = ScriptedApi::new();
        api.on(
            When::get("/api/v1/namespaces/a/configmaps/live"),
            Answer::json(200, json!({"metadata": {"name": "live"}})),
        );
        api.on(When::get("/api/v1/namespaces/x"), Answer::not_found());
        let context = Fixture::new(pod(&json!({}), "5"), api.client("a"))
            .caching([map("cached")])
            .build();
        assert!(context.get::<ConfigMap>("cached").await.unwrap().is_some());
        assert!(api.requests().is_empty());
        assert!(context.get::<ConfigMap>("live").await.unwrap().is_some());
        assert!(context.get::<Namespace>("x").await.unwrap().is_none());
        let error = context.cached::<Namespace>().map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::NotCached { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_ends_with_the_object_or_the_time() {
        let api = ScriptedApi::new();
        let context = Fixture::new(pod(&json!({}), "5"), api.client("a"))
            .caching([map("cached")])
            .build();
        let minute = Duration::from_mins(1);
        let found = context.wait_for("cached", minute, |map: Option<&ConfigMap>| map.map(|_| 7));
        assert_eq!(found.await.unwrap(), 7);
        let missing = context.wait_for("missing", minute, |map: Option<&ConfigMap>| map.map(|_| 7));
        assert!(matches!(missing.await, Err(Error::Timeout { .. })));
    }

    #[tokio::test]
    async fn only_what_the_custom_resource_owns_is_pruned() {
        let api = ScriptedApi::new();
        api.on(
            When::delete("/api/v1/namespaces/a/configmaps/old"),
            Answer::json(200, json!({})),
        );
        let owned = |name: &str, owner: &str| -> ConfigMap {
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": owner, "controller": true});
            let metadata =
                json!({"name": name, "namespace": "a", "uid": name, "ownerReferences": [owner]});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        // The garbage collector deletes what a former custom resource of this name has owned.
        let former = owned("former", "v");
        let context = Fixture::new(pod(&json!({}), "5"), api.client("a"))
            .owning([owned("old", "u"), owned("new", "u"), former, map("foreign")])
            .build();
        let left = context.prune::<ConfigMap>(|map| map.metadata.name.as_deref() == Some("new"));
        assert_eq!(left.await.unwrap(), 1);
        assert_eq!(api.requests().len(), 1);
        let body = api.requests()[0].body.clone().unwrap();
        assert_eq!(body["preconditions"]["uid"], "old");
    }
}
