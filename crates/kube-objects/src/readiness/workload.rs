//! Readiness of Deployment, StatefulSet, DaemonSet, ReplicaSet, Pod and Service.

use super::Readiness;
use super::projection::{SpecView, StatusView};

/// Deadline that the Deployment controller treats as none.
const NO_DEADLINE: i64 = i32::MAX as i64;

/// Returns the readiness of a Deployment: ready if all replicas are updated and available and its
/// conditions confirm it.
pub(super) fn deployment(spec: &SpecView, status: &StatusView) -> Readiness {
    let deadline = spec.progress_deadline_seconds.unwrap_or(NO_DEADLINE);
    // Without a deadline the controller sets no Progressing condition.
    let mut progressed = deadline == NO_DEADLINE;
    if let Some(condition) = status.condition("Progressing") {
        if condition.reason.as_deref() == Some("ProgressDeadlineExceeded") {
            return Readiness::failed("Progress deadline exceeded");
        }
        progressed |=
            condition.is("True") && condition.reason.as_deref() == Some("NewReplicaSetAvailable");
    }
    let wanted = spec.replicas.unwrap_or(1);
    let existing = status.replicas.unwrap_or(0);
    let updated = status.updated_replicas.unwrap_or(0);
    let ready = status.ready_replicas.unwrap_or(0);
    let available = status.available_replicas.unwrap_or(0);
    if wanted > existing {
        return progress("Replicas", existing, wanted);
    }
    if wanted > updated {
        return progress("Updated", updated, wanted);
    }
    if existing > wanted {
        return terminating(existing - wanted);
    }
    if updated > available {
        return progress("Available", available, updated);
    }
    if wanted > ready {
        return progress("Ready", ready, wanted);
    }
    if !progressed {
        return Readiness::in_progress("ReplicaSet not Available");
    }
    if !status.has("Available", "True") {
        return Readiness::in_progress("Deployment not Available");
    }
    Readiness::Ready
}

/// Returns the readiness of a StatefulSet: ready if all replicas are ready and, except for a
/// partitioned rollout, of one revision.
pub(super) fn stateful_set(spec: &SpecView, status: &StatusView) -> Readiness {
    if spec.update_strategy.kind.as_deref() == Some("OnDelete") {
        return Readiness::Ready;
    }
    let wanted = spec.replicas.unwrap_or(1);
    let existing = status.replicas.unwrap_or(0);
    let ready = status.ready_replicas.unwrap_or(0);
    let current = status.current_replicas.unwrap_or(0);
    let updated = status.updated_replicas.unwrap_or(0);
    if wanted > existing {
        return progress("Replicas", existing, wanted);
    }
    if wanted > ready {
        return progress("Ready", ready, wanted);
    }
    if existing > wanted {
        return terminating(existing - wanted);
    }
    if let Some(partition) = spec.update_strategy.rolling_update.partition {
        let rolled_out = wanted.saturating_sub(partition);
        return if updated < rolled_out {
            progress("Updated", updated, rolled_out)
        } else {
            Readiness::Ready
        };
    }
    if wanted > current {
        return progress("Current", current, wanted);
    }
    if status.current_revision.as_deref().unwrap_or("")
        != status.update_revision.as_deref().unwrap_or("")
    {
        return Readiness::in_progress("Waiting for updated revision to match current");
    }
    Readiness::Ready
}

/// Returns the readiness of a DaemonSet: ready if each selected node has a ready Pod of the current
/// template.
pub(super) fn daemon_set(generation: Option<i64>, status: &StatusView) -> Readiness {
    if generation.is_none() || status.observed_generation.is_none() {
        return Readiness::in_progress("DaemonSet not observed yet");
    }
    let Some(wanted) = status.desired_number_scheduled else {
        return Readiness::in_progress("Missing .status.desiredNumberScheduled");
    };
    for (what, number) in [
        ("Current", status.current_number_scheduled),
        ("Updated", status.updated_number_scheduled),
        ("Available", status.number_available),
        ("Ready", status.number_ready),
    ] {
        let number = number.unwrap_or(0);
        if wanted > number {
            return progress(what, number, wanted);
        }
    }
    Readiness::Ready
}

/// Returns the readiness of a ReplicaSet: ready if all replicas are available and ready.
pub(super) fn replica_set(spec: &SpecView, status: &StatusView) -> Readiness {
    if status.has("ReplicaFailure", "True") {
        return Readiness::in_progress("Replica Failure condition. Check Pods");
    }
    let wanted = spec.replicas.unwrap_or(1);
    for (what, number) in [
        ("Labelled", status.fully_labeled_replicas),
        ("Available", status.available_replicas),
        ("Ready", status.ready_replicas),
    ] {
        let number = number.unwrap_or(0);
        if wanted > number {
            return progress(what, number, wanted);
        }
    }
    let existing = status.replicas.unwrap_or(0);
    if existing > wanted {
        terminating(existing - wanted)
    } else {
        Readiness::Ready
    }
}

/// Returns the readiness of a Pod: ready if its `Ready` condition is true or it has completed, even
/// if it failed.
///
/// Unlike kstatus, an unschedulable Pod stays in progress instead of failing 15 seconds after its
/// creation: no watch event would trigger that change, and a cluster autoscaler may make the Pod
/// schedulable.
pub(super) fn pod(status: &StatusView) -> Readiness {
    match status.phase.as_deref().unwrap_or("") {
        "Succeeded" | "Failed" => Readiness::Ready,
        "Running" if status.has("Ready", "True") => Readiness::Ready,
        "Running" => {
            let looping: Vec<&str> = status
                .container_statuses
                .iter()
                .filter(|container| {
                    container.state.waiting.reason.as_deref() == Some("CrashLoopBackOff")
                })
                .filter_map(|container| container.name.as_deref())
                .collect();
            if looping.is_empty() {
                Readiness::in_progress("Pod is running but is not Ready")
            } else {
                Readiness::Failed(format!(
                    "Containers in CrashLoop state: {}",
                    looping.join(",")
                ))
            }
        }
        "Pending" => match status.condition("PodScheduled") {
            Some(condition)
                if condition.is("False")
                    && condition.reason.as_deref() == Some("Unschedulable") =>
            {
                Readiness::InProgress(format!("Pod could not be scheduled: {}", condition.text()))
            }
            _ => Readiness::in_progress("Pod is in the Pending phase"),
        },
        "" => Readiness::in_progress("Pod phase not available"),
        _ => Readiness::Unknown,
    }
}

/// Returns the readiness of a Service: ready unless it is a load balancer without a cluster IP.
pub(super) fn service(spec: &SpecView) -> Readiness {
    if spec.kind.as_deref() == Some("LoadBalancer")
        && spec.cluster_ip.as_deref().unwrap_or("").is_empty()
    {
        return Readiness::in_progress("ClusterIP not set. Service type: LoadBalancer");
    }
    Readiness::Ready
}

fn progress(what: &str, number: i64, wanted: i64) -> Readiness {
    Readiness::InProgress(format!("{what}: {number}/{wanted}"))
}

fn terminating(number: i64) -> Readiness {
    Readiness::InProgress(format!("Pending termination: {number}"))
}

#[cfg(test)]
mod tests {
    use super::super::{Readiness, assert_readiness};
    use serde_json::{Value, json};

    fn waits(message: &str) -> Readiness {
        Readiness::InProgress(message.to_owned())
    }

    fn changed(status: &Value, field: &str, value: Value) -> Value {
        let mut status = status.clone();
        status[field] = value;
        status
    }

    #[test]
    fn deployment_is_ready_when_rolled_out() {
        let good = json!({"replicas": 2, "updatedReplicas": 2, "readyReplicas": 2,
            "availableReplicas": 2, "observedGeneration": 3, "conditions": [
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
                {"type": "Available", "status": "True"}]});
        let with = |field: &str, value| changed(&good, field, value);
        let conditions = |progressing: &str, available: &str| {
            let conditions = json!([
                {"type": "Progressing", "status": "True", "reason": progressing},
                {"type": "Available", "status": available}]);
            with("conditions", conditions)
        };
        for (status, expected) in [
            (good.clone(), Readiness::Ready),
            (json!({}), waits("Replicas: 0/2")),
            (with("replicas", json!(1)), waits("Replicas: 1/2")),
            (with("updatedReplicas", json!(1)), waits("Updated: 1/2")),
            (with("replicas", json!(3)), waits("Pending termination: 1")),
            (with("availableReplicas", json!(1)), waits("Available: 1/2")),
            (with("readyReplicas", json!(1)), waits("Ready: 1/2")),
            (
                conditions("ReplicaSetUpdated", "True"),
                waits("ReplicaSet not Available"),
            ),
            (
                conditions("NewReplicaSetAvailable", "False"),
                waits("Deployment not Available"),
            ),
            (
                conditions("ProgressDeadlineExceeded", "True"),
                Readiness::Failed("Progress deadline exceeded".to_owned()),
            ),
            (
                with("observedGeneration", json!(2)),
                waits("Deployment generation is 3, but latest observed generation is 2"),
            ),
        ] {
            let object = json!({"metadata": {"generation": 3}, "status": status,
                "spec": {"replicas": 2, "progressDeadlineSeconds": 600}});
            assert_readiness("apps", "Deployment", &object, &expected);
        }
    }

    #[test]
    fn deployment_without_deadline_needs_no_progressing_condition() {
        let object = json!({"spec": {"replicas": 0}, "status": {"conditions": [
            {"type": "Available", "status": "True"}]}});
        assert_readiness("apps", "Deployment", &object, &Readiness::Ready);
    }

    #[test]
    fn stateful_set_is_ready_when_all_replicas_have_one_revision() {
        let good = json!({"replicas": 3, "readyReplicas": 3, "currentReplicas": 3,
            "updatedReplicas": 3, "currentRevision": "a", "updateRevision": "a"});
        let with = |field: &str, value| changed(&good, field, value);
        let all = json!({"replicas": 3});
        let partition = json!({"replicas": 3, "updateStrategy":
            {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}});
        let manual = json!({"replicas": 3, "updateStrategy": {"type": "OnDelete"}});
        let two_revisions = with("updateRevision", json!("b"));
        let (current, updated) = (waits("Current: 2/3"), waits("Updated: 0/1"));
        let mixed = waits("Waiting for updated revision to match current");
        let terminating = waits("Pending termination: 1");
        for (spec, status, expected) in [
            (&all, good.clone(), Readiness::Ready),
            (&all, json!({}), waits("Replicas: 0/3")),
            (&all, with("readyReplicas", json!(2)), waits("Ready: 2/3")),
            (&all, with("replicas", json!(4)), terminating),
            (&all, with("currentReplicas", json!(2)), current),
            (&all, two_revisions.clone(), mixed),
            (&partition, with("updatedReplicas", json!(0)), updated),
            (&partition, two_revisions, Readiness::Ready),
            (&manual, json!({}), Readiness::Ready),
        ] {
            let object = json!({"spec": spec, "status": status});
            assert_readiness("apps", "StatefulSet", &object, &expected);
        }
    }

    #[test]
    fn daemon_set_is_ready_when_each_node_has_a_ready_pod() {
        let good = json!({"observedGeneration": 1, "desiredNumberScheduled": 2,
            "currentNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2,
            "numberReady": 2});
        let with = |field: &str, value| changed(&good, field, value);
        for (status, expected) in [
            (good.clone(), Readiness::Ready),
            (json!({}), waits("DaemonSet not observed yet")),
            (
                with("desiredNumberScheduled", json!(null)),
                waits("Missing .status.desiredNumberScheduled"),
            ),
            (
                with("currentNumberScheduled", json!(1)),
                waits("Current: 1/2"),
            ),
            (
                with("updatedNumberScheduled", json!(1)),
                waits("Updated: 1/2"),
            ),
            (with("numberAvailable", json!(1)), waits("Available: 1/2")),
            (with("numberReady", json!(1)), waits("Ready: 1/2")),
            (with("desiredNumberScheduled", json!(0)), Readiness::Ready),
        ] {
            let object = json!({"metadata": {"generation": 1}, "status": status});
            assert_readiness("apps", "DaemonSet", &object, &expected);
        }
    }

    #[test]
    fn replica_set_is_ready_when_its_replicas_are_available() {
        for (status, expected) in [
            (
                json!({"replicas": 1, "fullyLabeledReplicas": 1, "availableReplicas": 1,
                       "readyReplicas": 1}),
                Readiness::Ready,
            ),
            (json!({}), waits("Labelled: 0/1")),
            (json!({"fullyLabeledReplicas": 1}), waits("Available: 0/1")),
            (
                json!({"fullyLabeledReplicas": 1, "availableReplicas": 1}),
                waits("Ready: 0/1"),
            ),
            (
                json!({"replicas": 2, "fullyLabeledReplicas": 1, "availableReplicas": 1,
                       "readyReplicas": 1}),
                waits("Pending termination: 1"),
            ),
            (
                json!({"conditions": [{"type": "ReplicaFailure", "status": "True"}]}),
                waits("Replica Failure condition. Check Pods"),
            ),
        ] {
            let object = json!({"status": status});
            assert_readiness("apps", "ReplicaSet", &object, &expected);
        }
    }

    #[test]
    fn pod_is_ready_when_its_condition_is_true_or_it_has_completed() {
        let looping = json!([{"name": "a", "state": {"running": {}}},
            {"name": "b", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
        for (status, expected) in [
            (json!({"phase": "Succeeded"}), Readiness::Ready),
            (json!({"phase": "Failed"}), Readiness::Ready),
            (
                json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}),
                Readiness::Ready,
            ),
            (
                json!({"phase": "Running"}),
                waits("Pod is running but is not Ready"),
            ),
            (
                json!({"phase": "Running", "containerStatuses": looping}),
                Readiness::Failed("Containers in CrashLoop state: b".to_owned()),
            ),
            (
                json!({"phase": "Pending"}),
                waits("Pod is in the Pending phase"),
            ),
            (
                json!({"phase": "Pending", "conditions": [{"type": "PodScheduled",
                    "status": "False", "reason": "Unschedulable", "message": "no nodes"}]}),
                waits("Pod could not be scheduled: no nodes"),
            ),
            (json!({}), waits("Pod phase not available")),
            (json!({"phase": "Odd"}), Readiness::Unknown),
        ] {
            assert_readiness("", "Pod", &json!({"status": status}), &expected);
        }
    }

    #[test]
    fn load_balancer_waits_for_its_cluster_ip() {
        for (spec, expected) in [
            (json!({}), Readiness::Ready),
            (json!({"type": "ClusterIP"}), Readiness::Ready),
            (
                json!({"type": "LoadBalancer", "clusterIP": "10.0.0.1"}),
                Readiness::Ready,
            ),
            (
                json!({"type": "LoadBalancer"}),
                waits("ClusterIP not set. Service type: LoadBalancer"),
            ),
        ] {
            assert_readiness("", "Service", &json!({"spec": spec}), &expected);
        }
    }
}
