//! Controllers of workloads, and nodes: everything becomes ready after a delay.
//!
//! The annotation `test.hybrid-operator/pod` of a Pod, or of a Pod template, has the same meaning as on
//! the control plane of this crate: `pending`, `running` or `failed`. Workloads make no Pods.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::controllers::{Object, Task};
use super::object::{at, generation, is_deleting, items, meta, set_at, text};
use super::server::Server;
use super::store::Change;

/// Annotation that says what becomes of a Pod.
const BEHAVIOUR: &str = "test.hybrid-operator/pod";

/// Makes the tasks that follow from a change.
pub(super) fn react(server: &mut Server, change: &Change, object: &Object) {
    let Some(after) = &change.after else { return };
    if change.resource.group == "batch"
        && change.resource.plural == "jobs"
        && let Some(due) = expires_at(server, after)
    {
        let delay = due.saturating_sub(server.time());
        server.schedule_in(Task::Expire(object.clone()), delay);
    }
    if !server.controllers.workloads || is_deleting(after) {
        return;
    }
    let now = server.now();
    if next_status(&object.resource.plural, after, &now).is_some() {
        server.schedule(Task::Work(object.clone()));
    }
}

/// Returns the time at which a Job finished.
fn finished_at(job: &Value) -> Option<&str> {
    let mut conditions = items(at(job, &["status", "conditions"])).iter();
    let finished = conditions.find(|condition| {
        let kind = text(condition, "type");
        matches!(kind, "Complete" | "Failed") && condition.get("status") == Some(&json!("True"))
    })?;
    finished.get("lastTransitionTime")?.as_str()
}

/// Returns the time, since the start of the server, at which a Job is deleted.
fn expires_at(server: &Server, job: &Value) -> Option<Duration> {
    let ttl = at(job, &["spec", "ttlSecondsAfterFinished"])?.as_u64()?;
    let finished = server.clock.elapsed_at(finished_at(job)?)?;
    Some(finished + Duration::from_secs(ttl))
}

/// Deletes a Job whose time after its end is over.
pub(super) fn expire(server: &mut Server, object: &Object, live: &Value) {
    let Some(due) = expires_at(server, live) else {
        return;
    };
    if due > server.time() {
        let delay = due.saturating_sub(server.time());
        server.schedule_in(Task::Expire(object.clone()), delay);
        return;
    }
    let preconditions = json!({
        "uid": meta(live, "uid"), "resourceVersion": meta(live, "resourceVersion"),
    });
    let options = json!({"propagationPolicy": "Foreground", "preconditions": preconditions});
    server.act_on(Method::DELETE, object, &options);
}

/// Writes the next status of a workload.
pub(super) fn work(server: &mut Server, object: &Object, live: &Value) {
    if is_deleting(live) {
        return;
    }
    let Some(status) = next_status(&object.resource.plural, live, &server.now()) else {
        return;
    };
    let Some(kind) = server.kinds.of(&object.resource).cloned() else {
        return;
    };
    if object.resource.plural == "persistentvolumeclaims" {
        let volume = format!("pvc-{}", meta(live, "uid"));
        let spec = json!({"spec": {"volumeName": volume}});
        server.act_on(Method::PATCH, object, &spec);
    }
    let path = kind.path(&object.key.namespace, &object.key.name);
    let path = format!("{path}/status");
    let status = json!({"status": status}).to_string();
    let program = match object.resource.plural.as_str() {
        "pods" => "kubelet",
        "apiservices" => "kube-apiserver",
        _ => "kube-controller-manager",
    };
    drop(server.act_as(program, Method::PATCH, path, &status));
}

/// Returns the status that an object has next; `None` if it has come to rest.
fn next_status(plural: &str, object: &Value, now: &str) -> Option<Value> {
    let generation = generation(object);
    let observed = at(object, &["status", "observedGeneration"]).and_then(Value::as_i64);
    let status = match plural {
        "deployments" | "statefulsets" | "daemonsets" | "replicasets" => {
            if observed == Some(generation) {
                return None;
            }
            replicated(plural, object, generation, now)
        }
        "jobs" => job(object, now)?,
        "pods" => pod(object, now)?,
        "persistentvolumeclaims" => claim(object)?,
        "poddisruptionbudgets" => {
            if observed == Some(generation) {
                return None;
            }
            json!({
                "observedGeneration": generation, "currentHealthy": 0, "desiredHealthy": 0,
                "disruptionsAllowed": 0, "expectedPods": 0,
                "conditions": [condition("DisruptionAllowed", "False", "InsufficientPods", now)],
            })
        }
        "apiservices" => {
            if at(object, &["status", "conditions"]).is_some() {
                return None;
            }
            let mut available = condition("Available", "True", "Local", now);
            let message = "Local APIServices are always available";
            set_at(&mut available, &["message"], message.into());
            json!({"conditions": [available]})
        }
        _ => return None,
    };
    Some(status)
}

fn condition(kind: &str, status: &str, reason: &str, now: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": now})
}

/// Returns what becomes of the Pods of a template, or of a Pod.
fn behaviour<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    let annotations = at(object, path).and_then(|metadata| metadata.get("annotations"));
    let behaviour = annotations.and_then(|annotations| annotations.get(BEHAVIOUR)?.as_str());
    behaviour.unwrap_or_default()
}

fn replicated(plural: &str, object: &Value, generation: i64, now: &str) -> Value {
    let replicas = at(object, &["spec", "replicas"]).and_then(Value::as_i64);
    let replicas = replicas.unwrap_or(1);
    let never = behaviour(object, &["spec", "template", "metadata"]) == "pending";
    let ready = if never { 0 } else { replicas };
    match plural {
        "deployments" => {
            let (status, available, progress) = if ready >= replicas {
                ("True", "MinimumReplicasAvailable", "NewReplicaSetAvailable")
            } else {
                ("False", "MinimumReplicasUnavailable", "ReplicaSetUpdated")
            };
            let available = condition("Available", status, available, now);
            json!({
                "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas,
                "readyReplicas": ready, "availableReplicas": ready,
                "conditions": [available, condition("Progressing", "True", progress, now)],
            })
        }
        "statefulsets" => {
            let revision = format!("{}-{generation}", meta(object, "name"));
            json!({
                "observedGeneration": generation, "replicas": replicas, "readyReplicas": ready,
                "availableReplicas": ready, "currentReplicas": replicas,
                "updatedReplicas": replicas, "currentRevision": revision,
                "updateRevision": revision, "collisionCount": 0,
            })
        }
        "daemonsets" => {
            let number = i64::from(!never);
            json!({
                "observedGeneration": generation, "desiredNumberScheduled": 1,
                "currentNumberScheduled": 1, "updatedNumberScheduled": 1, "numberMisscheduled": 0,
                "numberReady": number, "numberAvailable": number,
            })
        }
        _ => json!({
            "observedGeneration": generation, "replicas": replicas, "readyReplicas": ready,
            "availableReplicas": ready, "fullyLabeledReplicas": replicas,
        }),
    }
}

fn job(object: &Value, now: &str) -> Option<Value> {
    let suspended = at(object, &["spec", "suspend"]) == Some(&Value::Bool(true));
    if finished_at(object).is_some() || suspended {
        return None;
    }
    let completions = at(object, &["spec", "completions"]).and_then(Value::as_i64);
    let started = at(object, &["status", "startTime"]);
    match behaviour(object, &["spec", "template", "metadata"]) {
        "pending" | "running" if started.is_some() => None,
        "pending" => Some(json!({"active": 1, "ready": 0, "startTime": now})),
        "running" => Some(json!({"active": 1, "ready": 1, "startTime": now})),
        "failed" => {
            let reason = "BackoffLimitExceeded";
            let mut failed = condition("Failed", "True", reason, now);
            let message = "Job has reached the specified backoff limit";
            set_at(&mut failed, &["message"], message.into());
            Some(json!({
                "failed": 1, "ready": 0, "startTime": now,
                "conditions": [condition("FailureTarget", "True", reason, now), failed],
            }))
        }
        _ => {
            let reason = "CompletionsReached";
            let conditions = [
                condition("SuccessCriteriaMet", "True", reason, now),
                condition("Complete", "True", reason, now),
            ];
            Some(json!({
                "succeeded": completions.unwrap_or(1), "ready": 0, "startTime": now, "completionTime": now,
                "conditions": conditions,
            }))
        }
    }
}

fn pod(object: &Value, now: &str) -> Option<Value> {
    let text = |path: &[&str], default| {
        let text = at(object, path).and_then(Value::as_str);
        text.unwrap_or(default)
    };
    let phase = text(&["status", "phase"], "Pending");
    let policy = text(&["spec", "restartPolicy"], "Always");
    let conditions = |ready: &str, reason: &str| {
        let kinds = ["Initialized", "ContainersReady", "Ready"];
        kinds.map(|kind| condition(kind, ready, reason, now))
    };
    match (phase, behaviour(object, &["metadata"])) {
        ("Pending", "pending") => None,
        ("Pending", _) => Some(json!({
            "phase": "Running", "startTime": now, "podIP": "10.0.0.1",
            "conditions": conditions("True", "Started"),
        })),
        ("Running", "failed") => Some(json!({
            "phase": "Failed", "conditions": conditions("False", "PodFailed"),
        })),
        ("Running", behaviour) if policy != "Always" && behaviour != "running" => Some(json!({
            "phase": "Succeeded", "conditions": conditions("False", "PodCompleted"),
        })),
        _ => None,
    }
}

fn claim(object: &Value) -> Option<Value> {
    let requested = at(object, &["spec", "resources", "requests", "storage"]).cloned();
    let present = at(object, &["status", "capacity", "storage"]);
    let bound = at(object, &["status", "phase"]) == Some(&json!("Bound"));
    if bound && present == requested.as_ref() {
        return None;
    }
    let modes = at(object, &["spec", "accessModes"]).cloned();
    let modes = modes.unwrap_or_default();
    Some(json!({"phase": "Bound", "capacity": {"storage": requested}, "accessModes": modes}))
}
