//! Waits of the tests. A wait that ends without success fails the test and names its place; operators of a test
//! that fails show their log.

use std::fmt::{Debug, Display};
use std::panic::Location;

use hybrid_operator_test::fault::Faults;
use hybrid_operator_test::wait::{self, Check, WaitError};
use kube::Resource;
use kube::api::{Api, DeleteParams, DynamicObject};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::LIMIT;

/// Waits until an object exists and a condition holds for it, and returns it.
pub(crate) async fn try_until(
    api: &Api<DynamicObject>,
    name: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> Result<Value, WaitError> {
    wait::holds(api, name, what, LIMIT, wanted).await
}

/// Returns what a wait finds, or fails the test at the place of the caller.
#[track_caller]
fn found<T>(wait: impl Future<Output = Result<T, WaitError>>) -> impl Future<Output = T> {
    let place = Location::caller();
    // A future has room for what it captures and once more for what it awaits.
    let wait = Box::pin(wait);
    async move {
        wait.await
            .unwrap_or_else(|error| panic!("{place}: {error}"))
    }
}

/// Waits until an object exists and a condition holds for it, and returns it.
#[track_caller]
pub(crate) fn until(
    api: &Api<DynamicObject>,
    name: &str,
    what: &str,
    wanted: impl Fn(&Value) -> bool,
) -> impl Future<Output = Value> {
    found(try_until(api, name, what, wanted))
}

/// Polls until a check succeeds and returns what it found.
#[track_caller]
pub(crate) fn eventually<T, L: Into<Check<T>>>(
    what: impl Display,
    check: impl AsyncFnMut() -> L,
) -> impl Future<Output = T> {
    found(wait::until(LIMIT, what, check))
}

/// Deletes an object.
#[track_caller]
pub(crate) fn delete<K>(api: &Api<K>, name: &str) -> impl Future<Output = ()>
where
    K: Clone + Debug + DeserializeOwned,
{
    let place = Location::caller();
    async move {
        let deleted = api.delete(name, &DeleteParams::default()).await;
        drop(deleted.unwrap_or_else(|error| panic!("{place}: {error}")));
    }
}

/// Waits until an object is gone.
#[track_caller]
pub(crate) fn gone<K>(api: &Api<K>, name: &str) -> impl Future<Output = ()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    found(wait::gone(api, name, LIMIT))
}

/// Deletes an object and waits until it is gone.
#[track_caller]
pub(crate) fn remove<K>(api: &Api<K>, name: &str) -> impl Future<Output = ()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let (deleted, gone) = (delete(api, name), gone(api, name));
    async move {
        deleted.await;
        gone.await;
    }
}

/// Waits until the planned fault has been injected.
pub(crate) async fn injected(faults: &Faults) {
    let injected = async || faults.was_injected();
    eventually("the fault", injected).await;
}

/// Returns a condition in the status of an object.
pub(crate) fn condition<'v>(object: &'v Value, type_: &str) -> Option<&'v Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == type_)
}

/// Returns whether a condition of an object is true.
pub(crate) fn is_true(object: &Value, type_: &str) -> bool {
    condition(object, type_).is_some_and(|condition| condition["status"] == "True")
}

/// Returns a check whether a condition of an object is true.
pub(crate) fn holds(type_: &str) -> impl Fn(&Value) -> bool + Copy {
    move |object| is_true(object, type_)
}

/// Returns whether a condition of an object is false.
pub(crate) fn is_false(object: &Value, type_: &str) -> bool {
    condition(object, type_).is_some_and(|condition| condition["status"] == "False")
}

/// Returns whether the message of a condition contains a text.
pub(crate) fn says(object: &Value, type_: &str, text: &str) -> bool {
    condition(object, type_).is_some_and(|condition| {
        let message = condition["message"].as_str().unwrap_or_default();
        message.contains(text)
    })
}

/// Returns whether a condition of the current generation has this status and text in its message.
pub(crate) fn has_condition(object: &Value, type_: &str, status: &str, text: &str) -> bool {
    let is_current = condition(object, type_).is_some_and(|condition| {
        condition["status"] == status
            && condition["observedGeneration"] == object["metadata"]["generation"]
    });
    is_current && says(object, type_, text)
}

/// Returns whether an object is ready at its current generation: by its condition or, where that
/// has no generation, by its status.
pub(crate) fn is_ready(object: &Value) -> bool {
    condition(object, "Ready").is_some_and(|ready| {
        let observed = match &ready["observedGeneration"] {
            Value::Null => &object["status"]["observedGeneration"],
            observed => observed,
        };
        ready["status"] == "True" && *observed == object["metadata"]["generation"]
    })
}

/// Returns a check whether a custom resource is ready with this revision of its release deployed.
pub(crate) fn ready_at(revision: u32) -> impl Fn(&Value) -> bool + Copy {
    move |cr| {
        let release = &cr["status"]["release"];
        is_true(cr, "Ready") && release["revision"] == revision && release["status"] == "deployed"
    }
}
