//! Reconciles `At`: waits until it is time, then runs the command in a Pod.

use std::time::Duration;

use hybrid_operator::native::{self, Action, Context, Error, NativeController};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use crate::api::{At, AtStatus, Phase};

const IMAGE: &str = "docker.io/library/busybox:1.37";

/// Builds the controller, to be added to a manager.
pub fn controller() -> NativeController<At> {
    native::controller::<At>("at")
        .defines_crd()
        .owns::<Pod>()
        .reconcile(|at, context| async move { reconcile(&at, &context, Timestamp::now()).await })
}

/// Reconciles at the time `now`.
async fn reconcile(at: &At, context: &Context<At>, now: Timestamp) -> Result<Action, Error> {
    let present = at.status.clone().unwrap_or_default();
    if matches!(present.phase, Phase::Done | Phase::Failed) {
        return Ok(Action::done());
    }
    let schedule: Timestamp = match at.spec.schedule.parse() {
        Ok(schedule) => schedule,
        Err(error) => return Err(refuse(at, context, &error).await?),
    };
    let conditions = context
        .conditions(Some(&present.conditions))
        .set("Valid", true, "ValidSchedule", "")
        .into_vec();
    let status = |phase, exit_code| AtStatus {
        phase,
        exit_code,
        conditions: conditions.clone(),
    };
    let left = Duration::try_from(schedule.duration_since(now)).unwrap_or_default();
    if left > Duration::ZERO {
        context.patch_status(&status(Phase::Pending, None)).await?;
        return Ok(Action::after(left));
    }
    if !may_run(at, context).await? {
        return Ok(Action::done());
    }
    // Later changes of the Pod bring the next reconcile.
    let pod = context.apply(&pod(at)).await?;
    let (phase, exit_code) = progress(&pod);
    context.patch_status(&status(phase, exit_code)).await?;
    Ok(Action::done())
}

/// Reports whether the Pod may be applied, so that no command runs twice or not at all.
async fn may_run(at: &At, context: &Context<At>) -> Result<bool, Error> {
    let name = at.name_any();
    let Some(pod) = context.cached::<Pod>()?.get(&name) else {
        // The Pod may have ended and been deleted since `at` was read.
        let now = context.get::<At>(&name).await?;
        let is_over = |now: &At| {
            let phase = now.status.as_ref().map(|status| status.phase);
            matches!(phase, Some(Phase::Done | Phase::Failed))
        };
        return Ok(now.is_some_and(|now| now.uid() == at.uid() && !is_over(&now)));
    };
    let owners = pod.owner_references();
    if owners
        .iter()
        .any(|owner| Some(&owner.uid) == at.metadata.uid.as_ref())
    {
        return Ok(true);
    }
    // It is the Pod of a deleted At of this name. Its end brings the next reconcile.
    context.delete(&*pod).await?;
    Ok(false)
}

/// Reports an invalid schedule; returns the error that ends the reconcile.
async fn refuse(at: &At, context: &Context<At>, error: &jiff::Error) -> Result<Error, Error> {
    let message = format!(
        "schedule {:?} is not an RFC 3339 time such as 2030-01-02T03:04:05Z: {error}",
        at.spec.schedule
    );
    let present = at.status.clone().unwrap_or_default();
    let conditions = context
        .conditions(Some(&present.conditions))
        .set("Valid", false, "InvalidSchedule", message.as_str())
        .into_vec();
    let status = AtStatus {
        conditions,
        ..present
    };
    context.patch_status(&status).await?;
    context
        .warning_event("InvalidSchedule", message.as_str())
        .await;
    Ok(Error::terminal(message))
}

/// The Pod of a command.
fn pod(at: &At) -> Pod {
    let shell = ["sh", "-c", &at.spec.command].map(ToOwned::to_owned);
    Pod {
        metadata: ObjectMeta {
            name: Some(at.name_any()),
            namespace: at.namespace(),
            annotations: Some(at.spec.pod_annotations.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![Container {
                name: "command".to_owned(),
                image: Some(IMAGE.to_owned()),
                command: Some(shell.to_vec()),
                ..Container::default()
            }],
            restart_policy: Some("Never".to_owned()),
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}

/// Returns how far a Pod is, and the exit code of its command.
fn progress(pod: &Pod) -> (Phase, Option<i32>) {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let containers = status.and_then(|status| status.container_statuses.as_ref());
    let exit_code = containers
        .into_iter()
        .flatten()
        .find_map(|container| Some(container.state.as_ref()?.terminated.as_ref()?.exit_code));
    match phase {
        Some("Succeeded") => (Phase::Done, exit_code.or(Some(0))),
        Some("Failed") => (Phase::Failed, exit_code),
        _ => (Phase::Running, None),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hybrid_operator::native::{Action, Error, Fixture};
    use hybrid_operator_test::scripted::{Answer, ScriptedApi, When};
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::{progress, reconcile};
    use crate::api::{At, Phase};

    fn at(schedule: &str) -> At {
        serde_json::from_value(json!({
            "apiVersion": "example.com/v1", "kind": "At",
            "metadata": {"name": "one", "namespace": "a", "uid": "u"},
            "spec": {"schedule": schedule, "command": "date"},
        }))
        .unwrap()
    }

    const AT: &str = "/apis/example.com/v1/namespaces/a/ats/one";

    /// Reconciles at 10 o'clock; returns the result, the written status and the requests.
    async fn at_ten(schedule: &str) -> (Result<Action, Error>, Value, Vec<String>) {
        let api = ScriptedApi::new();
        let stored = serde_json::to_value(at(schedule)).unwrap();
        api.on(When::get(AT), Answer::json(200, stored));
        api.on(When::any(), Answer::echo(200));
        let context = Fixture::new(at(schedule), api.client("a"))
            .owning::<Pod>([])
            .build();
        let now: Timestamp = "2030-01-01T10:00:00Z".parse().unwrap();
        let result = reconcile(context.object(), &context, now).await;
        let requests = api.requests();
        let status = requests
            .iter()
            .find(|request| request.path.ends_with("/status"));
        let status = status.unwrap().body.clone().unwrap()["status"].clone();
        (
            result,
            status,
            requests.iter().map(|r| r.path.clone()).collect(),
        )
    }

    #[tokio::test]
    async fn a_command_waits_for_its_time_and_no_pod_is_created_before() {
        let (action, status, requests) = at_ten("2030-01-01T12:00:30+02:00").await;
        assert_eq!(action.unwrap(), Action::after(Duration::from_secs(30)));
        assert_eq!(status["phase"], "PENDING");
        assert_eq!(requests.len(), 1, "{requests:?}");
    }

    #[tokio::test]
    async fn a_time_in_the_past_is_now() {
        let (action, status, requests) = at_ten("2029-12-31T10:00:00Z").await;
        assert_eq!(action.unwrap(), Action::done());
        assert_eq!(status["phase"], "RUNNING");
        assert_eq!(requests[..2], [AT, "/api/v1/namespaces/a/pods/one"]);
    }

    /// Reconciles an At whose time has come, of which the API server has `stored`.
    async fn requests_with(stored: Value, pods: Vec<Pod>) -> Vec<String> {
        let api = ScriptedApi::new();
        api.on(When::get(AT), Answer::json(200, stored));
        api.on(When::any(), Answer::echo(200));
        let context = Fixture::new(at("2029-12-31T10:00:00Z"), api.client("a"))
            .owning::<Pod>(pods)
            .build();
        let now: Timestamp = "2030-01-01T10:00:00Z".parse().unwrap();
        let action = reconcile(context.object(), &context, now).await;
        assert_eq!(action.unwrap(), Action::done());
        api.requests()
            .iter()
            .map(hybrid_operator_test::request::Recorded::kind)
            .collect()
    }

    #[tokio::test]
    async fn a_command_that_has_ended_meanwhile_does_not_run_again() {
        let mut stored = serde_json::to_value(at("2029-12-31T10:00:00Z")).unwrap();
        stored["status"] = json!({"phase": "DONE"});
        assert_eq!(requests_with(stored, Vec::new()).await, ["get ats"]);
    }

    #[tokio::test]
    async fn the_pod_of_a_deleted_at_of_the_same_name_is_not_that_of_the_new_one() {
        let stored = serde_json::to_value(at("2029-12-31T10:00:00Z")).unwrap();
        let owner = json!({"apiVersion": "example.com/v1", "kind": "At", "name": "one", "uid": "old", "controller": true});
        let metadata = json!({"name": "one", "namespace": "a", "ownerReferences": [owner]});
        let pod = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        assert_eq!(requests_with(stored, vec![pod]).await, ["delete pods"]);
    }

    #[tokio::test]
    async fn an_invalid_schedule_is_a_condition_and_an_event_and_is_not_retried() {
        let (error, status, requests) = at_ten("tomorrow").await;
        assert!(matches!(error.unwrap_err(), Error::Terminal(_)));
        assert_eq!(status["conditions"][0]["reason"], "InvalidSchedule");
        assert!(
            requests.iter().any(|path| path.ends_with("/events")),
            "{requests:?}"
        );
        assert!(!requests.iter().any(|path| path.contains("/pods/")));
    }

    #[test]
    fn the_phase_and_the_exit_code_are_those_of_the_pod() {
        let ended = |phase: &str, code: i32| -> Pod {
            let state = json!({"terminated": {"exitCode": code}});
            let container = json!({"name": "command", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            let status = json!({"phase": phase, "containerStatuses": [container]});
            serde_json::from_value(json!({"metadata": {}, "status": status})).unwrap()
        };
        assert_eq!(progress(&Pod::default()), (Phase::Running, None));
        assert_eq!(progress(&ended("Succeeded", 0)), (Phase::Done, Some(0)));
        assert_eq!(progress(&ended("Failed", 3)), (Phase::Failed, Some(3)));
    }
}
