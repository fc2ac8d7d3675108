//! Keeps a hook's Job until its result is recorded.
//!
//! With a small `ttlSecondsAfterFinished`, Kubernetes may delete a Job before anybody has read its
//! result. The Job is therefore created with [`HELD_FOR`] and gets the chart's value once its
//! result is recorded, unless its delete policies remove it anyway. If this operator never comes
//! back, the Job is still deleted after that time.

use helm_core::manifest::Hook;
use k8s_openapi::api::batch::v1::Job;
use kube::api::{Api, Patch, PatchParams};
use kube_objects::FIELD_MANAGER;
use serde_json::{Value, json};

use super::memory::HookMemory;
use crate::action::context::{ActionContext, objects};
use crate::action::error::ActionError;

/// Time that a completed Job is kept for its result to be recorded, in seconds.
const HELD_FOR: i64 = 24 * 60 * 60;

/// Returns the chart's value if it is applied only once the Job's result is recorded.
fn held(object: &Value) -> Option<i64> {
    let text = |name: &str| object.get(name).and_then(Value::as_str);
    if text("kind") != Some("Job") || !text("apiVersion")?.starts_with("batch/") {
        return None;
    }
    let ttl = object.pointer("/spec/ttlSecondsAfterFinished")?.as_i64()?;
    (ttl < HELD_FOR).then_some(ttl)
}

/// Raises the value of a Job that is about to be created to [`HELD_FOR`].
pub(super) fn hold(object: &mut Value) {
    if held(object).is_some()
        && let Some(ttl) = object.pointer_mut("/spec/ttlSecondsAfterFinished")
    {
        *ttl = HELD_FOR.into();
    }
}

/// Sets the chart's value on the Jobs of a hook whose result is recorded. A Job on which it cannot
/// be set is logged and deleted later.
pub(super) async fn restore(
    context: &ActionContext<'_>,
    memory: &HookMemory,
    hook: &Hook,
) -> Result<(), ActionError> {
    for object in objects(&hook.manifest, 0)? {
        let Some(ttl) = held(object.object()) else {
            continue;
        };
        let mut key = object.key().clone();
        let namespace = key
            .namespace
            .get_or_insert_with(|| context.namespace.to_owned());
        let jobs: Api<Job> = Api::namespaced(context.cluster.client().clone(), namespace);
        let Some(uid) = memory.uid(&key) else {
            continue;
        };
        let patch = json!({
            "metadata": {"uid": uid},
            "spec": {"ttlSecondsAfterFinished": ttl},
        });
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match jobs.patch(&key.name, &params, &Patch::Merge(patch)).await {
            Ok(_) => {}
            // The Job is gone, or another one has its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(
                    hook = hook.display_name(),
                    error,
                    "cannot set ttlSecondsAfterFinished of a hook's Job; it is deleted a day after its completion"
                );
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_with_a_small_ttl_is_kept() {
        let spec = |ttl: Value| json!({"ttlSecondsAfterFinished": ttl, "backoffLimit": 1});
        for (version, kind, ttl, expected) in [
            ("batch/v1", "Job", json!(0), json!(HELD_FOR)),
            ("batch/v1", "Job", json!(600), json!(HELD_FOR)),
            ("batch/v1", "Job", json!(HELD_FOR + 1), json!(HELD_FOR + 1)),
            ("batch/v1", "Job", Value::Null, Value::Null),
            // Other groups and kinds.
            ("example.com/v1", "Job", json!(0), json!(0)),
            ("batch/v1", "CronJob", json!(0), json!(0)),
        ] {
            let mut object = json!({"apiVersion": version, "kind": kind, "spec": spec(ttl)});
            hold(&mut object);
            assert_eq!(object["spec"], spec(expected), "{version} {kind}");
        }
        let mut without = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": {}});
        hold(&mut without);
        assert_eq!(without["spec"], json!({}));
    }
}
