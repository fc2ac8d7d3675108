//! Reviews of permissions and of tokens.

use http::Method;
use serde_json::{Value, json};

use super::object::{items, set, text_at};
use super::request::{Call, Target};
use super::roles::{Access, User};
use super::server::{Reply, Server};
use super::status::Failure;

/// Answers a review of a permission or of a token.
pub(super) fn review(server: &Server, call: &Call, target: &Target) -> Result<Reply, Failure> {
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
        let user = match kind {
            "SubjectAccessReview" => {
                let groups = items(review.pointer("/spec/groups"));
                Some(User::new(text_at(&review, "/spec/user"), groups))
            }
            _ => call.user.as_deref().map(User::impersonated),
        };
        let attribute = |name: &str| text_at(&review, &format!("/spec/resourceAttributes/{name}"));
        let resource = match attribute("subresource") {
            "" => attribute("resource").to_owned(),
            subresource => format!("{}/{subresource}", attribute("resource")),
        };
        let access = Access {
            verb: attribute("verb"),
            group: attribute("group"),
            resource: &resource,
            namespace: attribute("namespace"),
            name: attribute("name"),
        };
        let is_allowed = user.is_none_or(|user| server.allows(&user, &access).is_ok());
        json!({"allowed": is_allowed})
    };
    set(&mut review, "apiVersion", format!("{}/v1", target.group));
    set(&mut review, "kind", kind);
    if review.get("metadata").is_none() {
        set(&mut review, "metadata", json!({}));
    }
    set(&mut review, "status", status);
    Ok(Reply::with_code(201, review))
}
