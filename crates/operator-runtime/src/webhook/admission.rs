//! Answers the reviews of validations and mutations.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kube::core::DynamicObject;
use kube::core::admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, Operation};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::{error, info, warn};

use super::patch;
use super::request::{Denied, Request, Warnings};
use crate::controller::TypedObject;

/// Answers the body of a request with the body of the response.
pub(super) type Answer =
    Arc<dyn Fn(Vec<u8>) -> BoxFuture<'static, Result<Vec<u8>, Unreadable>> + Send + Sync>;

/// A body that is not a review.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("the body is not a review")]
    Json(#[from] serde_json::Error),
    #[error("the review has no request")]
    NoRequest,
}

/// A review whose objects are not decoded yet.
struct Review {
    request: AdmissionRequest<DynamicObject>,
    object: Value,
    old: Value,
}

/// Decision of a function.
enum Decision {
    Allowed,
    Patched(json_patch::Patch),
}

pub(super) fn validation<K, F, Fut>(function: F, deadline: Duration) -> Answer
where
    K: DeserializeOwned + Send + 'static,
    F: Fn(Request<K>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Denied>> + Send + 'static,
{
    let function = Arc::new(function);
    let decide = move |review: Review, warnings: Warnings| {
        let function = Arc::clone(&function);
        async move {
            let (request, _) = decode::<K>(review, warnings)?;
            function(request).await?;
            Ok(Decision::Allowed)
        }
    };
    answer(Arc::new(decide), deadline)
}

pub(super) fn mutation<K, F, Fut>(function: F, deadline: Duration) -> Answer
where
    K: TypedObject,
    F: Fn(K, Request<K>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<K, Denied>> + Send + 'static,
{
    let function = Arc::new(function);
    let decide = move |review: Review, warnings: Warnings| {
        let function = Arc::clone(&function);
        async move {
            let (request, original) = decode::<K>(review, warnings)?;
            let object = request.object().clone();
            let before = serde_json::to_value(&object)?;
            let after = serde_json::to_value(function(object, request).await?)?;
            Ok(Decision::Patched(patch::changes(
                &original, &before, &after,
            )))
        }
    };
    answer(Arc::new(decide), deadline)
}

fn answer<D, Fut>(decide: Arc<D>, deadline: Duration) -> Answer
where
    D: Fn(Review, Warnings) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Decision, Denied>> + Send + 'static,
{
    Arc::new(move |body| {
        let decide = Arc::clone(&decide);
        Box::pin(async move {
            let review = read(&body)?;
            drop(body);
            let response = AdmissionResponse::from(&review.request);
            let subject = subject(&review.request);
            let warnings = Warnings::default();
            let given = warnings.clone();
            // The function is called in the future, so that a panic of its first part is caught.
            let decided = AssertUnwindSafe(async move { decide(review, given).await });
            let decided = tokio::time::timeout(deadline, decided.catch_unwind()).await;
            let decided = match decided {
                Ok(Ok(decided)) => decided,
                Ok(Err(panic)) => {
                    let panic = panic_message(panic.as_ref());
                    error!(
                        object = subject,
                        panic, "the function of a webhook panicked"
                    );
                    let message =
                        "the function of the webhook panicked; see the log of the operator";
                    Err(Denied::internal(message))
                }
                Err(_) => {
                    warn!(
                        object = subject,
                        ?deadline,
                        "the function of a webhook was cancelled at its deadline"
                    );
                    Err(Denied::internal(format!(
                        "the function of the webhook took longer than {deadline:?}"
                    )))
                }
            };
            write(response, decided, warnings.take(), &subject)
        })
    })
}

/// Returns the message of a panic, which is nearly always a text.
pub(super) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

/// Reads a review, leaving its objects as they are.
fn read(body: &[u8]) -> Result<Review, Unreadable> {
    let mut review: Value = serde_json::from_slice(body)?;
    let mut take = |field| {
        let request = review.get_mut("request").and_then(Value::as_object_mut);
        request
            .and_then(|request| request.remove(field))
            .unwrap_or_default()
    };
    let (object, old) = (take("object"), take("oldObject"));
    let review: AdmissionReview<DynamicObject> = serde_json::from_value(review)?;
    Ok(Review {
        request: review.try_into().map_err(|_| Unreadable::NoRequest)?,
        object,
        old,
    })
}

/// Decodes the objects of a review; also returns the new object as it was sent.
fn decode<K: DeserializeOwned>(
    review: Review,
    warnings: Warnings,
) -> Result<(Request<K>, Value), Denied> {
    let Review {
        request,
        object,
        old,
    } = review;
    if request.operation == Operation::Delete {
        let typed_old = typed::<K>(&old, &request)?;
        return Ok((Request::new(typed_old, None, request, warnings), old));
    }
    let typed_object = typed::<K>(&object, &request)?;
    let typed_old = match &old {
        Value::Null => None,
        old => typed::<K>(old, &request)
            .inspect_err(|error| info!(object = subject(&request), error = error.message, "a stored object cannot be read; the function of the webhook is called without it"))
            .ok(),
    };
    Ok((
        Request::new(typed_object, typed_old, request, warnings),
        object,
    ))
}

fn typed<K: DeserializeOwned>(
    object: &Value,
    request: &AdmissionRequest<DynamicObject>,
) -> Result<K, Denied> {
    from_value(object).map_err(|(field, error)| Denied {
        code: 422,
        reason: "Invalid",
        message: format!(
            "{} does not have the fields that this operator expects: {field}: {error}",
            subject(request)
        ),
    })
}

/// Decodes a value; an error comes with the path of the field.
pub(super) fn from_value<T: DeserializeOwned>(
    value: &Value,
) -> Result<T, (String, serde_json::Error)> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        (path, error.into_inner())
    })
}

/// Names the object of a request: `Memcached ns/name`.
fn subject(request: &AdmissionRequest<DynamicObject>) -> String {
    let kind = &request.kind.kind;
    match (&request.namespace, request.name.as_str()) {
        (Some(namespace), "") => format!("a new {kind} in {namespace}"),
        (None, "") => format!("a new {kind}"),
        (Some(namespace), name) => format!("{kind} {namespace}/{name}"),
        (None, name) => format!("{kind} {name}"),
    }
}

fn write(
    mut response: AdmissionResponse,
    decided: Result<Decision, Denied>,
    warnings: Vec<String>,
    subject: &str,
) -> Result<Vec<u8>, Unreadable> {
    response.warnings = (!warnings.is_empty()).then_some(warnings);
    let decided = match decided {
        Ok(Decision::Patched(patch)) if !patch.0.is_empty() => response
            .clone()
            .with_patch(patch)
            .map_err(|error| Denied::from(&error)),
        Ok(_) => Ok(response.clone()),
        Err(denied) => Err(denied),
    };
    let response = decided.unwrap_or_else(|denied| {
        info!(
            object = subject,
            code = denied.code,
            message = denied.message,
            "denied"
        );
        let mut response = response.deny(denied.message);
        response.result.code = denied.code;
        denied.reason.clone_into(&mut response.result.reason);
        response
    });
    Ok(serde_json::to_vec(&response.into_review())?)
}

#[cfg(test)]
mod tests;
