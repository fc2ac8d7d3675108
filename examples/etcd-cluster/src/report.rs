//! Puts what was observed and decided into the status.

use hybrid_operator::native::{Context, Error};

use crate::api::{EtcdCluster, EtcdClusterStatus, MemberNames, Phase};
use crate::members::{self, Failure, Life, RemoveReason, Step, View, Waiting};
use crate::observe::Observed;

/// Writes the status. `problem` says why the step could not be executed.
///
/// # Errors
/// If the request fails.
pub(crate) async fn report(
    cluster: &EtcdCluster,
    context: &Context<EtcdCluster>,
    observed: &Observed,
    step: &Step,
    problem: Option<&str>,
) -> Result<(), Error> {
    let present = cluster.status.clone().unwrap_or_default();
    let members = member_names(observed);
    let (reason, mut message) = match (step, &observed.refusal) {
        (Step::Done, Some(refusal)) => ("VersionRefused", refusal.clone()),
        _ => describe(step, cluster.spec.size),
    };
    if let Some(problem) = problem {
        message = format!("{message}: {problem}");
    }
    let conditions = context.conditions(Some(&present.conditions)).set(
        "Ready",
        *step == Step::Done,
        reason,
        message,
    );
    let conditions = match &observed.refusal {
        None => conditions.set(
            "VersionAccepted",
            true,
            "Supported",
            "the members can run the release of the spec",
        ),
        Some(refusal) => conditions.set(
            "VersionAccepted",
            false,
            "UnsupportedChange",
            refusal.as_str(),
        ),
    };
    let voters = match &observed.facts.view {
        View::Unknown => usize::try_from(present.size).unwrap_or_default(),
        _ => members::voters(observed.facts.members()).count(),
    };
    let oldest = observed.oldest.map(|version| version.to_string());
    let status = EtcdClusterStatus {
        phase: phase(present.phase, step),
        size: count(voters),
        ready: count(members.ready.len()),
        members,
        current_version: oldest.or(present.current_version),
        bootstrapped: observed.facts.bootstrapped,
        observed_generation: cluster.metadata.generation,
        conditions: conditions.into_vec(),
    };
    context.patch_status(&status).await
}

/// Writes why a reconcile failed into the status, and changes nothing else of it.
///
/// # Errors
/// If the request fails.
pub(crate) async fn report_error(
    cluster: &EtcdCluster,
    context: &Context<EtcdCluster>,
    error: &Error,
) -> Result<(), Error> {
    let mut status = cluster.status.clone().unwrap_or_default();
    let conditions = context.conditions(Some(&status.conditions));
    let conditions = conditions.set("Ready", false, "ReconcileFailed", error.to_string());
    status.conditions = conditions.into_vec();
    status.observed_generation = cluster.metadata.generation;
    context.patch_status(&status).await
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn member_names(observed: &Observed) -> MemberNames {
    let facts = &observed.facts;
    let members = facts.members();
    let is_ready = |name: &String| {
        let mut voters = members::voters(members);
        let is_healthy = facts.alive(name).is_some_and(|pod| pod.health.is_some());
        is_healthy && voters.any(|member| member.name == *name)
    };
    let alive = facts.pods.iter().filter(|pod| pod.life == Life::Alive);
    let alive = alive.map(|pod| pod.name.clone());
    let mut names: Vec<String> = members.iter().map(|member| member.name.clone()).collect();
    names.extend(alive);
    names.sort_unstable();
    names.dedup();
    let (ready, unready) = names.into_iter().partition(is_ready);
    MemberNames { ready, unready }
}

/// Returns the phase that a step means, and that follows `before`.
fn phase(before: Phase, step: &Step) -> Phase {
    let phase = match step {
        Step::Done => return Phase::Running,
        Step::Fail(_) => return Phase::Failed,
        Step::Bootstrap | Step::Wait(Waiting::FirstMember) => return Phase::Creating,
        Step::SetImage(_) | Step::Wait(Waiting::Restart(_)) => Phase::Upgrading,
        Step::Add
        | Step::Promote(..)
        | Step::DeletePod(_)
        | Step::Remove(_, _, RemoveReason::Surplus | RemoveReason::Outdated)
        | Step::Wait(Waiting::Joining(_)) => Phase::Scaling,
        // A member that restarts with another image does not answer for a moment.
        Step::Wait(Waiting::Healthy(_)) if before == Phase::Upgrading => Phase::Upgrading,
        Step::Wait(Waiting::Healthy(_) | Waiting::Quorum)
        | Step::Remove(_, _, RemoveReason::Lost) => Phase::Degraded,
    };
    if before == Phase::Creating {
        before
    } else {
        phase
    }
}

/// Returns the reason and the message of the condition `Ready`, also for events.
pub(crate) fn describe(step: &Step, size: i32) -> (&'static str, String) {
    match step {
        Step::Done => ("AllReady", format!("all members ({size}) are healthy")),
        Step::Bootstrap => ("CreatingFirst", "creating the first member".to_owned()),
        Step::Add => ("AddingMember", "adding a member".to_owned()),
        Step::Promote(_, name) => ("PromotingMember", format!("giving member {name} its vote")),
        Step::Remove(_, name, reason) => describe_removal(name, *reason, size),
        Step::DeletePod(name) => (
            "DeletingPod",
            format!("deleting Pod {name}, which is not a member of the cluster"),
        ),
        Step::SetImage(name) => (
            "ChangingImage",
            format!("changing the image of Pod {name}, which restarts etcd with its data"),
        ),
        Step::Wait(waiting) => describe_waiting(waiting),
        Step::Fail(failure) => describe_failure(*failure),
    }
}

fn describe_removal(name: &str, reason: RemoveReason, size: i32) -> (&'static str, String) {
    match reason {
        RemoveReason::Lost => (
            "ReplacingMember",
            format!("removing member {name}, which has no Pod; a new member replaces it"),
        ),
        RemoveReason::Surplus => (
            "RemovingMember",
            format!("removing member {name}: spec.size is {size}"),
        ),
        RemoveReason::Outdated => (
            "ReplacingMember",
            format!(
                "removing member {name}, which cannot start because the members have changed since its \
                 Pod was created; a new member replaces it"
            ),
        ),
    }
}

fn describe_waiting(waiting: &Waiting) -> (&'static str, String) {
    match waiting {
        Waiting::FirstMember => (
            "WaitingForFirst",
            "waiting for the first member to answer; if it does not, see the events and the log of its \
             Pod"
            .to_owned(),
        ),
        Waiting::Quorum => (
            "NoQuorum",
            "no majority of the members answers; those that have Pods may come back: see the events and \
             logs of the Pods, and make sure that the operator can reach them"
                .to_owned(),
        ),
        Waiting::Joining(name) => (
            "MemberJoining",
            format!("waiting for member {name} to start and to receive the data"),
        ),
        Waiting::Healthy(names) => (
            "MembersNotReady",
            format!(
                "waiting for members that do not answer: {}; see the events and logs of these Pods. \
                 To replace a member, delete its Pod",
                names.join(", ")
            ),
        ),
        Waiting::Restart(name) => (
            "MemberRestarting",
            format!("waiting for Pod {name} to run the release of its image"),
        ),
    }
}

fn describe_failure(failure: Failure) -> (&'static str, String) {
    let lost = match failure {
        Failure::AllLost => "all Pods of the cluster are gone, and the data with them".to_owned(),
        Failure::QuorumLost { lost, of } => {
            format!(
                "{lost} of {of} members have lost their Pods, so that there is no quorum any more"
            )
        }
    };
    let fix = "the operator does not create an empty cluster in its place. Save what a remaining Pod \
               has with `etcdutl snapshot`, then delete this EtcdCluster and create it again";
    ("QuorumLost", format!("{lost}; {fix}"))
}

#[cfg(test)]
mod tests {
    use super::{describe, phase};
    use crate::api::Phase;
    use crate::members::{Failure, RemoveReason, Step, Waiting};
    use crate::membership::MemberId;

    #[test]
    fn a_phase_follows_from_the_step_and_the_phase_before() {
        let healthy = || Step::Wait(Waiting::Healthy(vec!["a".to_owned()]));
        let image = Step::SetImage("a".to_owned());
        let lost = || Step::Remove(MemberId(1), "a".to_owned(), RemoveReason::Lost);
        for (before, step, after) in [
            (Phase::Creating, Step::Bootstrap, Phase::Creating),
            (Phase::Creating, Step::Add, Phase::Creating),
            (Phase::Creating, healthy(), Phase::Creating),
            (Phase::Creating, Step::Done, Phase::Running),
            (Phase::Running, Step::Add, Phase::Scaling),
            (Phase::Running, healthy(), Phase::Degraded),
            (Phase::Upgrading, healthy(), Phase::Upgrading),
            (Phase::Running, lost(), Phase::Degraded),
            (Phase::Running, image, Phase::Upgrading),
            (Phase::Creating, Step::Fail(Failure::AllLost), Phase::Failed),
            (Phase::Failed, Step::Done, Phase::Running),
        ] {
            assert_eq!(phase(before, &step), after, "{before:?} {step:?}");
        }
    }

    #[test]
    fn a_failed_cluster_says_what_to_do() {
        let (reason, message) = describe(&Step::Fail(Failure::QuorumLost { lost: 2, of: 3 }), 3);
        assert_eq!(reason, "QuorumLost");
        assert!(message.contains("2 of 3 members"), "{message}");
        assert!(message.contains("delete this EtcdCluster"), "{message}");
    }
}
