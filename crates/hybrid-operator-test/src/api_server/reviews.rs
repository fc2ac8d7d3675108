//! Permissions: everything is allowed but what a test denies, and reviews of that.

use http::Method;
use serde_json::{Value, json};

use super::Denial;
use super::object::set;
use super::request::{Call, Target};
use super::server::Reply;
use super::status::{Failure, Named};

/// User whose requests name no other.
const ADMIN: &str = "admin";

/// Fails if the user may not make the request.
pub(super) fn authorize(
    denials: &[Denial],
    user: &str,
    call: &Call,
    target: Option<&Target>,
) -> Result<(), Failure> {
    let Some(target) = target else { return Ok(()) };
    let verb = target.verb(call);
    let resource = target.resource();
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let name = target.name.as_deref().unwrap_or_default();
    let denied = |denial: &Denial| denial.covers(user, verb, &target.group, &resource, namespace);
    if !denials.iter().any(denied) {
        return Ok(());
    }
    let scope = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {namespace:?}")
    };
    let named = Named {
        group: &target.group,
        name: &target.plural,
    };
    let why = format!(
        "User {user:?} cannot {verb} resource {resource:?} in API group {:?} {scope}",
        target.group
    );
    Err(Failure::forbidden(named, name, &why))
}

/// Answers a review of a permission or of a token.
pub(super) fn review(denials: &[Denial], call: &Call, target: &Target) -> Result<Reply, Failure> {
    if call.method != Method::POST {
        return Err(Failure::method_not_allowed());
    }
    let kind = match target.plural.as_str() {
        "selfsubjectaccessreviews" => "SelfSubjectAccessReview",
        "subjectaccessreviews" => "SubjectAccessReview",
        "tokenreviews" => "TokenReview",
        other => return Err(Failure::unmodelled(other)),
    };
    let mut review: Value = serde_json::from_slice(&call.body)
        .map_err(|error| Failure::bad_request(error.to_string()))?;
    let status = if kind == "TokenReview" {
        json!({"user": {}, "error": "invalid bearer token"})
    } else {
        let text = |pointer: &str| {
            review
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let user = match kind {
            "SubjectAccessReview" => text("/spec/user"),
            _ => call.user.as_deref().unwrap_or(ADMIN),
        };
        let attribute = |name: &str| text(&format!("/spec/resourceAttributes/{name}"));
        let resource = match attribute("subresource") {
            "" => attribute("resource").to_owned(),
            subresource => format!("{}/{subresource}", attribute("resource")),
        };
        let denied = |denial: &Denial| {
            denial.covers(
                user,
                attribute("verb"),
                attribute("group"),
                &resource,
                attribute("namespace"),
            )
        };
        json!({"allowed": !denials.iter().any(denied)})
    };
    set(&mut review, "apiVersion", format!("{}/v1", target.group));
    set(&mut review, "kind", kind);
    if review.get("metadata").is_none() {
        set(&mut review, "metadata", json!({}));
    }
    set(&mut review, "status", status);
    Ok(Reply::with_code(201, review))
}

/// Returns whether a list of words has one, or `*`.
pub(super) fn has(words: &[String], word: &str) -> bool {
    words.iter().any(|known| known == "*" || known == word)
}
