//! Changes of fields that cannot be changed: the object is deleted and created again where that is allowed, the
//! volumes of a StatefulSet grow, or the change is explained.

use std::time::Duration;

use helm_core::manifest::ManifestObject;
use kube_objects::apply::{Applied, Apply, ApplyError, Claim, apply};
use kube_objects::delete::{Propagation, Verdict, delete, is_gone, verify};
use kube_objects::read;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::context::ActionContext;
use super::error::ActionError;
use super::location::ObjectLocation;
use super::volumes::{self, Templates};
use crate::policy::{MUTABLE_OF_STATEFUL_SETS, NEVER_RECREATED};

/// Longest wait until a set is gone without its Pods.
const ORPHANED: Duration = Duration::from_secs(10);
/// Time between two looks whether it is.
const POLL: Duration = Duration::from_millis(200);
/// Maximum number of changes in a message.
const CHANGES_MAX: usize = 4;
/// Maximum length of a value in a message, in characters.
const VALUE_MAX: usize = 60;

/// An answer of the API server that fields cannot be changed.
pub(super) struct Refused {
    /// The fields, as the API server names them.
    pub(super) fields: Vec<String>,
    pub(super) message: String,
}

impl ActionContext<'_> {
    /// Returns whether an object of a kind may be created again if a field cannot be changed.
    pub(super) fn may_recreate(&self, kind: &str) -> bool {
        self.recreates(kind) || self.expand_volumes && kind == volumes::KIND
    }
}

/// Creates an object again of which a field cannot be changed, or explains why not. Returns a remark, too, if
/// something of it stays as it was.
pub(super) async fn resolve(
    context: &ActionContext<'_>,
    mut request: Apply<'_>,
    location: &ObjectLocation,
    object: &ManifestObject,
    refused: Refused,
) -> Result<(Applied, Option<String>), ActionError> {
    let kind = &location.key.kind;
    if context.expand_volumes && kind == volumes::KIND {
        let key = &location.key;
        if let Some(templates) = volumes::compare(context, key, &mut request.object).await? {
            let applied = if templates.grow() {
                // No volume grows of a set that may not be created again.
                deletable(context, &request, location, object, &refused.fields).await?;
                templates.grow_claims(context.cluster, key).await?;
                recreate(context, request, location, object, &refused.fields).await?
            } else {
                apply(context.cluster, request).await?
            };
            return Ok((applied, templates.remark(key)));
        }
    }
    if context.recreates(kind) {
        let applied = recreate(context, request, location, object, &refused.fields).await?;
        return Ok((applied, None));
    }
    Err(explained(context, location, object, refused).await.into())
}

/// Deletes an object with a changed immutable field and creates it again.
async fn recreate(
    context: &ActionContext<'_>,
    request: Apply<'_>,
    location: &ObjectLocation,
    object: &ManifestObject,
    fields: &[String],
) -> Result<Applied, ActionError> {
    if let Some(uid) = deletable(context, &request, location, object, fields).await? {
        // Keeps the Pods of the StatefulSet running.
        let propagation = if object.key().kind == volumes::KIND {
            Propagation::Orphan
        } else {
            Propagation::Background
        };
        delete(context.cluster, &location.key, &uid, propagation).await?;
        if propagation == Propagation::Orphan {
            await_orphans(context, location, &uid).await?;
        }
    }
    let recreated = Apply {
        claim: Claim::Unproven,
        ..request
    };
    Ok(apply(context.cluster, recreated).await?)
}

/// Returns the uid of an object that may be deleted, `None` if it is gone. As with any deletion, the object must be the
/// release's, must be the one that was applied, and must not be kept.
async fn deletable(
    context: &ActionContext<'_>,
    request: &Apply<'_>,
    location: &ObjectLocation,
    object: &ManifestObject,
    fields: &[String],
) -> Result<Option<String>, ActionError> {
    let recorded = match &request.claim {
        Claim::Known { uid } => Some(uid.as_str()),
        Claim::Unproven | Claim::Absent | Claim::Adopted => None,
    };
    let claimant = &request.claimant;
    let kept = object.is_kept();
    let verdict = verify(context.cluster, &location.key, claimant, recorded, kept).await?;
    let key = Box::new(location.key.clone());
    let error = match verdict {
        Verdict::Delete { uid } => return Ok(Some(uid)),
        Verdict::Gone => return Ok(None),
        Verdict::Kept { .. } => ApplyError::Kept {
            key,
            fields: fields.to_vec(),
        },
        Verdict::Foreign(owner) => ApplyError::Foreign { key, owner },
        // The object has changed since it was read; the next attempt reads it again.
        Verdict::Recreated | Verdict::Older | Verdict::OfHook | Verdict::Protected { .. } => {
            ApplyError::Contended { key }
        }
    };
    Err(error.into())
}

/// Waits until the Pods of a set have lost their owner and the set is gone, which takes a moment. What is applied now has
/// the number of replicas of an autoscaler, of which a later attempt would not know.
async fn await_orphans(
    context: &ActionContext<'_>,
    location: &ObjectLocation,
    uid: &str,
) -> Result<(), ActionError> {
    let end = Instant::now() + ORPHANED;
    while !is_gone(context.cluster, &location.key, uid).await? && Instant::now() < end {
        sleep(POLL).await;
    }
    Ok(())
}

/// Returns the error of fields that cannot be changed, with their old and new values and what can be done.
pub(super) async fn explained(
    context: &ActionContext<'_>,
    location: &ObjectLocation,
    object: &ManifestObject,
    refused: Refused,
) -> ApplyError {
    let Refused { fields, message } = refused;
    let (key, wanted) = (&location.key, object.object());
    // The explanation is lost if the object cannot be read.
    let live = read::get(context.cluster, key).await.ok().flatten();
    let live = live.unwrap_or_default();
    let changed = changes(&live, wanted, &fields, key.kind != "Secret");
    let grows = || Templates::of(&live, wanted).is_some_and(|templates| templates.grow());
    let way = if key.kind == volumes::KIND && grows() {
        "set upgrade.expandVolumes in watches.yaml, so that volumes can grow"
    } else if NEVER_RECREATED.contains(&key.kind.as_str()) {
        "delete the object"
    } else {
        "add its kind to upgrade.recreate in watches.yaml, so that it is deleted and created again"
    };
    ApplyError::Immutable {
        key: Box::new(key.clone()),
        fields,
        message: format!("{message}{changed}; undo the change, or {way}"),
    }
}

/// Lists the changes below these fields, with values if they may be shown.
fn changes(live: &Value, wanted: &Value, fields: &[String], shows_values: bool) -> String {
    let mut found = Vec::new();
    for field in fields {
        let path = pointer(field);
        if let (Some(live), Some(wanted)) = (live.pointer(&path), wanted.pointer(&path)) {
            let is_set = path == "/spec" && live.get("volumeClaimTemplates").is_some();
            collect(field, live, wanted, is_set, &mut found);
        }
    }
    let more = found.len().saturating_sub(CHANGES_MAX);
    let shown = found.iter().take(CHANGES_MAX).map(|(field, live, wanted)| {
        if shows_values {
            format!("{field} is {} and becomes {}", short(live), short(wanted))
        } else {
            field.clone()
        }
    });
    let mut shown: Vec<String> = shown.collect();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    if shown.is_empty() {
        return String::new();
    }
    format!(" ({})", shown.join(", "))
}

/// Collects the values of `wanted` that differ. Fields that a StatefulSet may change are left out.
fn collect<'v>(
    field: &str,
    live: &'v Value,
    wanted: &'v Value,
    is_set: bool,
    found: &mut Vec<(String, &'v Value, &'v Value)>,
) {
    match (live, wanted) {
        (Value::Object(live_fields), Value::Object(fields)) => {
            for (name, wanted) in fields {
                if is_set && MUTABLE_OF_STATEFUL_SETS.contains(&name.as_str()) {
                    continue;
                }
                let live = live_fields.get(name).unwrap_or(&Value::Null);
                collect(&format!("{field}.{name}"), live, wanted, false, found);
            }
        }
        (Value::Array(live), Value::Array(items)) if live.len() == items.len() => {
            for (index, (live, wanted)) in live.iter().zip(items).enumerate() {
                collect(&format!("{field}[{index}]"), live, wanted, false, found);
            }
        }
        _ if live == wanted => {}
        _ => found.push((field.to_owned(), live, wanted)),
    }
}

/// Returns the JSON pointer of a field as the API server names it: `spec.clusterIPs[0]`.
fn pointer(field: &str) -> String {
    let escaped = |part: &str| {
        let name = part.trim_end_matches(']');
        name.replace('~', "~0").replace('/', "~1")
    };
    let parts: Vec<String> = field.split(['.', '[']).map(escaped).collect();
    format!("/{}", parts.join("/"))
}

fn short(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(VALUE_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_have_their_old_and_new_values() {
        let live = json!({
            "spec": {"a": 1, "list": [{"x": 1, "default": 2}], "template": {"b": 1}, "volumeClaimTemplates": []},
            "roleRef": {"name": "a"}, "long": "é".repeat(90),
        });
        let wanted = json!({
            "spec": {"a": 2, "list": [{"x": 3}], "new": true, "template": {"b": 2}},
            "roleRef": {"name": "b"}, "long": "y",
        });
        let told = |field: &str, shows| changes(&live, &wanted, &[field.to_owned()], shows);
        assert_eq!(
            told("spec", true),
            " (spec.a is 1 and becomes 2, spec.list[0].x is 1 and becomes 3, spec.new is null and becomes true)"
        );
        assert_eq!(told("spec.list[0].x", false), " (spec.list[0].x)");
        assert_eq!(told("roleRef", true), " (roleRef.name is a and becomes b)");
        assert_eq!(told("missing", true), "");
        let long = told("long", true);
        assert_eq!(
            long,
            format!(" (long is {}… and becomes y)", "é".repeat(60))
        );
    }

    #[test]
    fn many_changes_are_counted() {
        let of = |value: u32| {
            (0..9)
                .map(|n| (format!("f{n}"), json!(value)))
                .collect::<Value>()
        };
        let told = changes(
            &json!({"d": of(1)}),
            &json!({"d": of(2)}),
            &["d".to_owned()],
            false,
        );
        assert_eq!(told, " (d.f0, d.f1, d.f2, d.f3, and 5 more)");
    }
}
