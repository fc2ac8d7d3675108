//! Decides what is to be done next for a cluster: from facts to one step. Pure.
//!
//! | state | step |
//! |---|---|
//! | a Pod that does not work has another image than the wanted one | change its image |
//! | no member has ever answered | create the first member, wait for it |
//! | the majority of the members has no Pod any more | report that the data is lost |
//! | no majority answers | wait |
//! | a Pod is not in the member list | delete the Pod |
//! | a member has no Pod | remove the member |
//! | a learner has the data | promote it |
//! | a learner is not needed, or cannot start because the members have changed since | remove it |
//! | too many members | remove one |
//! | too few members | add a learner |
//! | another image is wanted and all members are healthy | change the image of one Pod |
//!
//! One rule covers lost members and an operator that died between adding a member and creating its
//! Pod: a member without a Pod is removed. It is never given a new Pod, because a member that comes
//! back without its data breaks the promises of its earlier votes. Names are not reused either.

use std::collections::BTreeSet;

use crate::membership::MemberId;
use crate::version::Version;

/// Known facts about a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// Wanted number of members.
    pub(crate) size: usize,
    /// Wanted image.
    pub(crate) image: String,
    /// The release in that image.
    pub(crate) version: Version,
    /// Whether the cluster has ever answered.
    pub(crate) bootstrapped: bool,
    /// The Pods of the cluster, by name.
    pub(crate) pods: Vec<MemberPod>,
    /// Members of the cluster.
    pub(crate) view: View,
}

/// The member list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum View {
    /// List that a majority confirms.
    Agreed(Vec<NamedMember>),
    /// List of one member, which may be out of date: no majority answers.
    Local(Vec<NamedMember>),
    /// No member answers.
    Unknown,
}

/// A member and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedMember {
    pub(crate) id: MemberId,
    /// Name of the Pod that it was added for.
    pub(crate) name: String,
    /// Whether it has ever started.
    pub(crate) started: bool,
    /// Whether it has no vote yet.
    pub(crate) learner: bool,
}

/// A Pod of the cluster.
#[derive(Debug, Clone)]
pub(crate) struct MemberPod {
    pub(crate) name: String,
    pub(crate) life: Life,
    /// Image of etcd.
    pub(crate) image: String,
    /// Whether the kubelet found it ready.
    pub(crate) ready: bool,
    /// Names of the members at the time of its creation, itself among them.
    pub(crate) initial: BTreeSet<String>,
    /// Answer of its etcd; `None` if it does not answer, or follows no leader.
    pub(crate) health: Option<Health>,
}

/// Whether a Pod can still run its member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// The Pod runs, or it can.
    Alive,
    /// The Pod has failed or ended, for example because it was evicted. Its data is lost.
    Dead,
    /// The Pod is being deleted.
    Deleting,
}

/// A member that answers and follows a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Health {
    /// The release that it runs; `None` if it is not understood.
    pub(crate) version: Option<Version>,
    /// Whether it is the leader.
    pub(crate) leads: bool,
}

/// The next step for a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// Create the Pod of the first member.
    Bootstrap,
    /// Delete a Pod that has no member.
    DeletePod(String),
    /// Remove a member from etcd's list. Its Pod, if there is one, is deleted after that.
    Remove(MemberId, String, RemoveReason),
    /// Add a learner to etcd's list and create its Pod.
    Add,
    /// Give a learner its vote.
    Promote(MemberId, String),
    /// Change the image of a Pod, which restarts its etcd with its data.
    SetImage(String),
    /// Wait for something that the operator cannot bring about.
    Wait(Waiting),
    /// The cluster cannot be repaired.
    Fail(Failure),
    /// Everything is as it should be.
    Done,
}

/// Reason for the removal of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RemoveReason {
    /// The member's Pod is gone.
    Lost,
    /// The cluster has more members than wanted.
    Surplus,
    /// The member has not started, and cannot any more, because its flags name other members.
    Outdated,
}

/// Event that is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The first member to answer.
    FirstMember,
    /// A majority of the members to answer.
    Quorum,
    /// A new member to start and to receive the data.
    Joining(String),
    /// These members to become healthy.
    Healthy(Vec<String>),
    /// A member to run the release of its image.
    Restart(String),
}

/// Reason why a cluster cannot be repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There is no Pod any more.
    AllLost,
    /// So many of so many members have no Pod any more.
    QuorumLost {
        /// Members without a Pod.
        lost: usize,
        /// All voting members.
        of: usize,
    },
}

/// Decides on the next step.
pub(crate) fn next_step(facts: &Facts) -> Step {
    if let Some(pod) = broken_image(facts) {
        return Step::SetImage(pod.name.clone());
    }
    if !facts.bootstrapped {
        return first_member(facts);
    }
    match &facts.view {
        View::Agreed(members) => with_quorum(facts, members),
        View::Local(members) => without_quorum(facts, members),
        View::Unknown => without_quorum(facts, &[]),
    }
}

fn first_member(facts: &Facts) -> Step {
    if let Some(dead) = facts.pods.iter().find(|pod| pod.life == Life::Dead) {
        return Step::DeletePod(dead.name.clone());
    }
    if facts.pods.is_empty() {
        return Step::Bootstrap;
    }
    Step::Wait(Waiting::FirstMember)
}

/// A member that has a Pod may come back, one that has none does not.
fn without_quorum(facts: &Facts, members: &[NamedMember]) -> Step {
    if facts.pods.iter().all(|pod| pod.life != Life::Alive) {
        return Step::Fail(Failure::AllLost);
    }
    let voters = members.iter().filter(|member| !member.learner);
    let (lost, of) = voters.fold((0, 0), |(lost, of), member| {
        let is_lost = facts.alive(&member.name).is_none();
        (lost + usize::from(is_lost), of + 1)
    });
    if of > 0 && of - lost < majority(of) {
        return Step::Fail(Failure::QuorumLost { lost, of });
    }
    Step::Wait(Waiting::Quorum)
}

fn with_quorum(facts: &Facts, members: &[NamedMember]) -> Step {
    unmatched(facts, members)
        .or_else(|| learner(facts, members))
        .or_else(|| scale(facts, members))
        .or_else(|| upgrade(facts, members))
        .unwrap_or(Step::Done)
}

/// Pods without members and members without Pods.
fn unmatched(facts: &Facts, members: &[NamedMember]) -> Option<Step> {
    let is_member = |pod: &&MemberPod| members.iter().any(|member| member.name == pod.name);
    let extra = facts
        .pods
        .iter()
        .find(|pod| pod.life != Life::Deleting && !is_member(pod));
    if let Some(extra) = extra {
        return Some(Step::DeletePod(extra.name.clone()));
    }
    // Learners first: removing one costs no vote.
    let mut lost = members
        .iter()
        .filter(|member| facts.alive(&member.name).is_none());
    let learner = lost.clone().find(|member| member.learner);
    let lost = learner.or_else(|| lost.next())?;
    Some(remove(lost, RemoveReason::Lost))
}

/// A member that is joining.
fn learner(facts: &Facts, members: &[NamedMember]) -> Option<Step> {
    let learner = members.iter().find(|member| member.learner)?;
    let pod = facts.alive(&learner.name)?;
    if voters(members).count() >= facts.size {
        return Some(remove(learner, RemoveReason::Surplus));
    }
    if learner.started && pod.health.is_some() {
        return Some(Step::Promote(learner.id, learner.name.clone()));
    }
    // etcd refuses to start for the first time with an `--initial-cluster` that differs from the
    // member list, and the flags of a Pod cannot be changed.
    let names: BTreeSet<String> = members.iter().map(|member| member.name.clone()).collect();
    if !learner.started && pod.initial != names {
        return Some(remove(learner, RemoveReason::Outdated));
    }
    Some(Step::Wait(Waiting::Joining(learner.name.clone())))
}

/// A Pod that works neither for etcd nor for the kubelet and has another image than the wanted one:
/// changing it cannot make things worse, and is the way back from an image that does not exist.
fn broken_image(facts: &Facts) -> Option<&MemberPod> {
    let works = |pod: &MemberPod| pod.health.is_some() || pod.ready;
    facts
        .pods
        .iter()
        .find(|pod| pod.life == Life::Alive && pod.image != facts.image && !works(pod))
}

fn scale(facts: &Facts, members: &[NamedMember]) -> Option<Step> {
    let count = voters(members).count();
    let healthy = count - unhealthy(facts, members).len();
    if count > facts.size {
        return Some(surplus(facts, members));
    }
    if count == facts.size {
        return None;
    }
    // The new member will have a vote: with it, those that are healthy now must be a majority.
    if healthy < count && healthy < majority(count + 1) {
        return Some(Step::Wait(Waiting::Healthy(unhealthy(facts, members))));
    }
    Some(Step::Add)
}

/// Removes a member that does not answer, otherwise one that is not the leader.
fn surplus(facts: &Facts, members: &[NamedMember]) -> Step {
    let health = |member: &NamedMember| facts.alive(&member.name).and_then(|pod| pod.health);
    let rank = |member: &NamedMember| health(member).map(|health| health.leads);
    let Some(member) = voters(members).min_by_key(|member| rank(member)) else {
        return Step::Done;
    };
    let others = voters(members).filter(|other| other.id != member.id);
    let (healthy, count) = others.fold((0, 0), |(healthy, count), other| {
        (healthy + usize::from(health(other).is_some()), count + 1)
    });
    if healthy < majority(count) {
        return Step::Wait(Waiting::Healthy(unhealthy(facts, members)));
    }
    remove(member, RemoveReason::Surplus)
}

/// Changes the image of one Pod when all members are healthy and none is restarting.
fn upgrade(facts: &Facts, members: &[NamedMember]) -> Option<Step> {
    let unhealthy = unhealthy(facts, members);
    if !unhealthy.is_empty() {
        return Some(Step::Wait(Waiting::Healthy(unhealthy)));
    }
    // After a change of the image the old process answers until the kubelet stops it.
    let restarts = |pod: &&MemberPod| {
        let version = pod.health.and_then(|health| health.version);
        pod.image == facts.image && version.is_some_and(|version| version != facts.version)
    };
    if let Some(pod) = facts.pods.iter().find(restarts) {
        return Some(Step::Wait(Waiting::Restart(pod.name.clone())));
    }
    // The leader last, so that there is one election instead of up to one for each member.
    let other = facts.pods.iter().filter(|pod| pod.image != facts.image);
    let pod = other.min_by_key(|pod| pod.health.is_some_and(|health| health.leads))?;
    Some(Step::SetImage(pod.name.clone()))
}

impl Facts {
    /// Returns the Pod of this name if it can run its member.
    pub(crate) fn alive(&self, name: &str) -> Option<&MemberPod> {
        let mut pods = self.pods.iter();
        pods.find(|pod| pod.name == name && pod.life == Life::Alive)
    }

    /// Returns the members, whoever confirms them.
    pub(crate) fn members(&self) -> &[NamedMember] {
        match &self.view {
            View::Agreed(members) | View::Local(members) => members,
            View::Unknown => &[],
        }
    }
}

/// Returns the members that have a vote.
pub(crate) fn voters(members: &[NamedMember]) -> impl Iterator<Item = &NamedMember> {
    members.iter().filter(|member| !member.learner)
}

fn unhealthy(facts: &Facts, members: &[NamedMember]) -> Vec<String> {
    let is_healthy = |name: &str| facts.alive(name).is_some_and(|pod| pod.health.is_some());
    let unhealthy = voters(members).filter(|member| !is_healthy(&member.name));
    unhealthy.map(|member| member.name.clone()).collect()
}

fn remove(member: &NamedMember, reason: RemoveReason) -> Step {
    Step::Remove(member.id, member.name.clone(), reason)
}

fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

#[cfg(test)]
mod tests;
