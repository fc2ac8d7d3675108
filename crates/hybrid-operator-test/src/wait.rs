//! Waits for a condition with a deadline; the error names the condition and what was seen last.
//!
//! [`object`] and [`objects`] watch the API server and see every change at once; [`until`] polls,
//! for conditions that cannot be watched. No test needs a sleep.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};
use std::pin::pin;
use std::time::Duration;

use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep_until, timeout_at};

/// Pause between two polls of [`until`].
const ASK_EVERY: Duration = Duration::from_millis(20);

/// The condition was not met in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("waited {within:?} for {what}; last seen: {last}")]
pub struct WaitError {
    /// What was waited for.
    pub what: String,
    /// The time limit.
    pub within: Duration,
    /// What was seen last.
    pub last: String,
}

/// The result of one look: the condition is met, or what was seen instead.
///
/// Made from a `bool`, an `Option`, or a `Result` whose error describes what was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look<T> {
    /// The condition is met.
    Met(T),
    /// It is not; the text says what was seen.
    NotYet(String),
}

impl From<bool> for Look<()> {
    fn from(met: bool) -> Self {
        if met {
            Self::Met(())
        } else {
            Self::NotYet("not met".to_owned())
        }
    }
}

impl<T> From<Option<T>> for Look<T> {
    fn from(found: Option<T>) -> Self {
        found.map_or_else(|| Self::NotYet("nothing".to_owned()), Self::Met)
    }
}

impl<T, E: Display> From<Result<T, E>> for Look<T> {
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
    mut look: F,
) -> Result<T, WaitError>
where
    F: AsyncFnMut() -> L,
    L: Into<Look<T>>,
{
    let deadline = Instant::now() + within;
    let mut last = String::from("no answer");
    loop {
        match timeout_at(deadline, look()).await.map(Into::into) {
            Ok(Look::Met(found)) => return Ok(found),
            Ok(Look::NotYet(seen)) => last = seen,
            Err(_) => {}
        }
        if Instant::now() + ASK_EVERY >= deadline {
            return Err(WaitError {
                what: what.to_string(),
                within,
                last,
            });
        }
        sleep_until(Instant::now() + ASK_EVERY).await;
    }
}

/// Watches one object until the condition is met; `look` gets none while the object is absent.
///
/// Retries while the API server cannot be reached or does not serve the kind yet.
///
/// # Errors
///
/// [`WaitError`] after `within`, with what `look` saw last or why watching fails.
pub async fn object<K, T, L>(
    api: &Api<K>,
    name: &str,
    what: impl Display,
    within: Duration,
    mut look: impl FnMut(Option<&K>) -> L,
) -> Result<T, WaitError>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    L: Into<Look<T>>,
{
    let named = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let what = format!("{what} ({name})");
    watch(api, named, what, within, |objects| {
        look(objects.values().next())
    })
    .await
}

/// Watches the objects that the labels select (all, when empty) until the condition is met.
///
/// # Errors
///
/// [`WaitError`] after `within`, with what `look` saw last or why watching fails.
pub async fn objects<K, T, L>(
    api: &Api<K>,
    labels: &str,
    what: impl Display,
    within: Duration,
    mut look: impl FnMut(&[&K]) -> L,
) -> Result<T, WaitError>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    L: Into<Look<T>>,
{
    let selected = watcher::Config::default().labels(labels);
    let look = |objects: &BTreeMap<String, K>| look(&objects.values().collect::<Vec<_>>());
    watch(api, selected, what.to_string(), within, look).await
}

/// Waits until an object is gone.
///
/// # Errors
///
/// [`WaitError`] after `within`, with the finalizers that hold it.
pub async fn gone<K>(api: &Api<K>, name: &str, within: Duration) -> Result<(), WaitError>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let look = |object: Option<&K>| {
        let deleted = |object: &K| {
            if object.meta().deletion_timestamp.is_some() {
                "deleted"
            } else {
                "not deleted"
            }
        };
        object.map_or(Ok(()), |object| {
            Err(format!(
                "{}, finalizers {:?}",
                deleted(object),
                object.finalizers()
            ))
        })
    };
    object(api, name, "the object to be gone", within, look).await
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
    let look = |found: Option<&Deployment>| {
        let deployment = found.ok_or_else(|| "no such Deployment".to_owned())?;
        let wanted = deployment
            .spec
            .as_ref()
            .and_then(|spec| spec.replicas)
            .unwrap_or(1);
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
    object(api, name, "the Deployment to be available", within, look).await
}

/// Waits until a Job is complete.
///
/// # Errors
///
/// [`WaitError`] after `within`, with the last status; also for a Job that has failed.
pub async fn job_complete(api: &Api<Job>, name: &str, within: Duration) -> Result<Job, WaitError> {
    let look = |found: Option<&Job>| {
        let job = found.ok_or_else(|| "no such Job".to_owned())?;
        let status = job.status.clone().unwrap_or_default();
        let complete = |conditions: &Vec<_>| conditions.iter().any(is_complete);
        if status.conditions.as_ref().is_some_and(complete) {
            Ok(job.clone())
        } else {
            Err(format!("{status:?}"))
        }
    };
    object(api, name, "the Job to be complete", within, look).await
}

fn is_complete(condition: &k8s_openapi::api::batch::v1::JobCondition) -> bool {
    condition.type_ == "Complete" && condition.status == "True"
}

async fn watch<K, T, L>(
    api: &Api<K>,
    config: watcher::Config,
    what: String,
    within: Duration,
    look: impl FnMut(&BTreeMap<String, K>) -> L,
) -> Result<T, WaitError>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    L: Into<Look<T>>,
{
    let deadline = Instant::now() + within;
    let mut last = String::from("no answer");
    let events = watcher(api.clone(), config).default_backoff();
    let found = timeout_at(deadline, follow(events, look, &mut last)).await;
    match found.ok().flatten() {
        Some(found) => Ok(found),
        None => Err(WaitError { what, within, last }),
    }
}

/// Collects objects from the events and looks at them after each, once the first list is complete.
async fn follow<K, T, L>(
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
    mut look: impl FnMut(&BTreeMap<String, K>) -> L,
    last: &mut String,
) -> Option<T>
where
    K: Resource,
    L: Into<Look<T>>,
{
    let key = |object: &K| {
        format!(
            "{}/{}",
            object.namespace().unwrap_or_default(),
            object.name_any()
        )
    };
    let mut objects = BTreeMap::new();
    let mut listing = BTreeMap::new();
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        match event {
            // Do not look yet: objects that are not listed yet would seem absent.
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
        match look(&objects).into() {
            Look::Met(found) => return Some(found),
            Look::NotYet(seen) => *last = seen,
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
    async fn a_condition_that_is_met_gives_its_value() {
        let mut asked = 0;
        let found = until(Duration::from_secs(5), "the third answer", async || {
            asked += 1;
            (asked == 3).then_some(asked)
        });
        assert_eq!(found.await, Ok(3));
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_says_what_was_waited_for_and_seen_last() {
        let error = until::<(), _, _>(Duration::from_secs(2), "the moon", async || {
            Err::<(), _>("a cloud")
        })
        .await;
        assert_eq!(
            error.unwrap_err().to_string(),
            "waited 2s for the moon; last seen: a cloud"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_without_an_answer_does_not_outlast_the_deadline() {
        let error =
            until::<(), _, bool>(Duration::from_secs(2), "anybody", std::future::pending).await;
        assert_eq!(error.unwrap_err().last, "no answer");
    }

    #[tokio::test]
    async fn events_are_looked_at_once_the_first_list_is_complete() {
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
            |objects: &BTreeMap<String, ConfigMap>| {
                seen.push(
                    objects
                        .values()
                        .map(ResourceExt::name_any)
                        .collect::<Vec<_>>()
                        .join(","),
                );
                false
            },
            &mut last,
        );
        assert_eq!(found.await, None);
        assert_eq!(seen, ["a,b", "b", "b,c"]);
    }
}
