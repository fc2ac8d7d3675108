//! Waits for a condition with a deadline. The error names the condition and the last state.
//!
//! [`object`] and [`objects`] watch the API server and see every change at once. [`until`] polls,
//! for conditions that cannot be watched.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use kube::api::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout_at};

/// Pause between two polls of [`until`].
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The condition was not met in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("waited {within:?} for {what}; last seen: {last}")]
pub struct WaitError {
    /// The condition that was waited for.
    pub what: String,
    /// The time limit.
    pub within: Duration,
    /// The last state.
    pub last: String,
}

/// The result of a check: the condition is met, or a description of the state.
///
/// Converted from a `bool`, an `Option`, or a `Result` whose error describes the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check<T> {
    /// The condition is met.
    Met(T),
    /// The condition is not met; the text describes the state.
    NotYet(String),
}

impl From<bool> for Check<()> {
    fn from(met: bool) -> Self {
        if met {
            Self::Met(())
        } else {
            Self::NotYet("not met".to_owned())
        }
    }
}

impl<T> From<Option<T>> for Check<T> {
    fn from(found: Option<T>) -> Self {
        found.map_or_else(|| Self::NotYet("nothing".to_owned()), Self::Met)
    }
}

impl<T, E: Display> From<Result<T, E>> for Check<T> {
    fn from(found: Result<T, E>) -> Self {
        found.map_or_else(|seen| Self::NotYet(seen.to_string()), Self::Met)
    }
}

/// Polls until the condition is met. Prefer [`object`] and [`objects`] for objects of the API server.
///
/// # Errors
///
/// [`WaitError`] after `within`, even while a poll is in progress.
pub async fn until<T, F, L>(
    within: Duration,
    what: impl Display,
    mut check: F,
) -> Result<T, WaitError>
where
    F: AsyncFnMut() -> L,
    L: Into<Check<T>>,
{
    let deadline = Instant::now() + within;
    let mut last = String::from("nothing");
    loop {
        match timeout_at(deadline, check()).await.map(Into::into) {
            Ok(Check::Met(found)) => return Ok(found),
            Ok(Check::NotYet(seen)) => last = seen,
            Err(_) => {}
        }
        if Instant::now() + POLL_INTERVAL >= deadline {
            return Err(WaitError {
                what: what.to_string(),
                within,
                last,
            });
        }
        sleep_until(Instant::now() + POLL_INTERVAL).await;
    }
}

/// Objects by namespace and name.
type Objects<K> = BTreeMap<(Option<String>, String), K>;

/// Watches one object until the condition is met. `check` gets `None` while the object does not
/// exist.
///
/// Retries while the API server cannot be reached or does not serve the kind yet.
///
/// # Errors
///
/// [`WaitError`] after `within`, with the last state or the error of the watch.
pub async fn object<K, T, L>(
    api: &Api<K>,
    name: &str,
    what: impl Display,
    within: Duration,
    mut check: impl FnMut(Option<&K>) -> L,
) -> Result<T, WaitError>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    L: Into<Check<T>>,
{
    let named = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let what = format!("{what} ({name})");
    let check = |objects: &Objects<K>| check(objects.values().next());
    watch(api, named, what, within, check).await
}

/// Watches one object until it exists and the condition holds for it as JSON, and returns it.
///
/// # Errors
///
/// [`WaitError`] after `within`, with the last state or the error of the watch.
pub async fn holds(
    api: &Api<DynamicObject>,
    name: &str,
    what: impl Display,
    within: Duration,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Value, WaitError> {
    let check = |object: Option<&DynamicObject>| {
        let Some(Ok(value)) = object.map(serde_json::to_value) else {
            return Check::NotYet("absent".to_owned());
        };
        if wanted(&value) {
            Check::Met(value)
        } else {
            Check::NotYet(format!("{value:#}"))
        }
    };
    object(api, name, what, within, check).await
}

/// Watches the objects that the label selector matches (all if empty) until the condition is met.
///
/// # Errors
///
/// [`WaitError`] after `within`, with the last state or the error of the watch.
pub async fn objects<K, T, L>(
    api: &Api<K>,
    labels: &str,
    what: impl Display,
    within: Duration,
    mut check: impl FnMut(&[&K]) -> L,
) -> Result<T, WaitError>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    L: Into<Check<T>>,
{
    let selected = watcher::Config::default().labels(labels);
    let check = |objects: &Objects<K>| check(&objects.values().collect::<Vec<_>>());
    watch(api, selected, what.to_string(), within, check).await
}

/// Waits until an object is gone.
///
/// # Errors
///
/// [`WaitError`] after `within`, with the remaining finalizers.
pub async fn gone<K>(api: &Api<K>, name: &str, within: Duration) -> Result<(), WaitError>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let check = |object: Option<&K>| {
        object.map_or(Ok(()), |object| {
            let is_deleted = object.meta().deletion_timestamp.is_some();
            let deleted = if is_deleted { "deleted" } else { "not deleted" };
            Err(format!("{deleted}, finalizers {:?}", object.finalizers()))
        })
    };
    object(api, name, "the object to be deleted", within, check).await
}

/// Waits until a Deployment's current generation is rolled out and all its replicas are available.
///
/// # Errors
///
/// [`WaitError`] after `within`, with the last status.
pub async fn deployment_available(
    api: &Api<Deployment>,
    name: &str,
    within: Duration,
) -> Result<Deployment, WaitError> {
    let check = |found: Option<&Deployment>| {
        let deployment = found.ok_or_else(|| "no such Deployment".to_owned())?;
        let spec = deployment.spec.as_ref();
        let wanted = spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let status = deployment.status.clone().unwrap_or_default();
        let observed = status.observed_generation >= deployment.metadata.generation;
        let counts = [
            status.updated_replicas,
            status.available_replicas,
            status.replicas,
        ]
        .map(Option::unwrap_or_default);
        if observed && counts == [wanted; 3] {
            Ok(deployment.clone())
        } else {
            Err(format!("{status:?}"))
        }
    };
    object(api, name, "the Deployment to be available", within, check).await
}

/// Waits until a Job is complete.
///
/// # Errors
///
/// [`WaitError`] after `within`, with the last status, even if the Job has failed.
pub async fn job_complete(api: &Api<Job>, name: &str, within: Duration) -> Result<Job, WaitError> {
    let check = |found: Option<&Job>| {
        let job = found.ok_or_else(|| "no such Job".to_owned())?;
        let status = job.status.clone().unwrap_or_default();
        let complete = |conditions: &Vec<_>| conditions.iter().any(is_complete);
        if status.conditions.as_ref().is_some_and(complete) {
            Ok(job.clone())
        } else {
            Err(format!("{status:?}"))
        }
    };
    object(api, name, "the Job to be complete", within, check).await
}

fn is_complete(condition: &k8s_openapi::api::batch::v1::JobCondition) -> bool {
    condition.type_ == "Complete" && condition.status == "True"
}

async fn watch<K, T, L>(
    api: &Api<K>,
    config: watcher::Config,
    what: String,
    within: Duration,
    check: impl FnMut(&Objects<K>) -> L,
) -> Result<T, WaitError>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    L: Into<Check<T>>,
{
    let deadline = Instant::now() + within;
    let mut last = String::from("nothing");
    let events = watcher(api.clone(), config).default_backoff();
    let found = timeout_at(deadline, follow(events, check, &mut last)).await;
    match found.ok().flatten() {
        Some(found) => Ok(found),
        None => Err(WaitError { what, within, last }),
    }
}

/// Collects objects from the events and checks them after each event, once the first list is
/// complete.
async fn follow<K, T, L>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    mut check: impl FnMut(&Objects<K>) -> L,
    last: &mut String,
) -> Option<T>
where
    K: Resource,
    L: Into<Check<T>>,
{
    let key = |object: &K| (object.namespace(), object.name_any());
    let mut objects = BTreeMap::new();
    let mut listing = BTreeMap::new();
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        match event {
            // No check before the end of the list, because objects that are not listed yet would
            // seem absent.
            Ok(watcher::Event::Init) => {
                listing.clear();
                continue;
            }
            Ok(watcher::Event::InitApply(object)) => {
                listing.insert(key(&object), object);
                continue;
            }
            Ok(watcher::Event::InitDone) => objects = std::mem::take(&mut listing),
            Ok(watcher::Event::Apply(object)) => drop(objects.insert(key(&object), object)),
            Ok(watcher::Event::Delete(object)) => drop(objects.remove(&key(&object))),
            Err(error) => {
                *last = error.to_string();
                continue;
            }
        }
        match check(&objects).into() {
            Check::Met(found) => return Some(found),
            Check::NotYet(seen) => *last = seen,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::ObjectMeta;
    use watcher::Event;

    use super::*;

    fn config_map(name: &str) -> ConfigMap {
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        };
        ConfigMap {
            metadata,
            ..ConfigMap::default()
        }
    }

    #[tokio::test]
    async fn a_met_condition_returns_its_value() {
        let mut polls = 0;
        let found = until(Duration::from_secs(5), "the third poll", async || {
            polls += 1;
            (polls == 3).then_some(polls)
        });
        assert_eq!(found.await, Ok(3));
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_names_the_condition_and_the_last_state() {
        let check = async || Err::<(), _>("the state");
        let error = until(Duration::from_secs(2), "the condition", check).await;
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "waited 2s for the condition; last seen: the state");
    }

    #[tokio::test(start_paused = true)]
    async fn a_pending_poll_does_not_outlast_the_deadline() {
        let check = async || std::future::pending::<bool>().await;
        let error = until(Duration::from_secs(2), "the condition", check).await;
        assert_eq!(error.unwrap_err().last, "nothing");
    }

    #[tokio::test]
    async fn objects_are_checked_once_the_first_list_is_complete() {
        let events = futures::stream::iter([
            Ok(Event::Init),
            Ok(Event::InitApply(config_map("a"))),
            Ok(Event::InitApply(config_map("b"))),
            Ok(Event::InitDone),
            Ok(Event::Delete(config_map("a"))),
            Ok(Event::Apply(config_map("c"))),
        ]);
        let mut seen = Vec::new();
        let mut last = String::new();
        let found = follow(
            events,
            |objects: &Objects<ConfigMap>| {
                let names: Vec<_> = objects.values().map(ResourceExt::name_any).collect();
                seen.push(names.join(","));
                false
            },
            &mut last,
        );
        assert_eq!(found.await, None);
        assert_eq!(seen, ["a,b", "b", "b,c"]);
    }
}
