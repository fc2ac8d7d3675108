//! Collects the facts about a cluster: its Pods from the cache, its members from etcd.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use hybrid_operator::native::{Context, Error};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

use crate::api::EtcdCluster;
use crate::members::{Facts, Health, Life, MemberPod, NamedMember, View};
use crate::membership::{Consistency, Member, MemberStatus, Membership};
use crate::pods;
use crate::version::{self, Version};

/// Observations of a cluster.
#[derive(Debug)]
pub(crate) struct Observed {
    /// The basis of the decision.
    pub(crate) facts: Facts,
    /// Reason why the members are not changed to the release of the spec.
    pub(crate) refusal: Option<String>,
    /// The oldest release that a member runs.
    pub(crate) oldest: Option<Version>,
    /// Names of the voting members that answer, the leader first.
    pub(crate) answering: Vec<String>,
}

/// An etcd that answers.
struct Answer {
    name: String,
    status: MemberStatus,
}

/// Observes a cluster.
///
/// # Errors
/// If spec.version is not a release of etcd, which the schema prevents, or if a Pod cannot be read.
pub(crate) async fn observe<M: Membership>(
    cluster: &EtcdCluster,
    context: &Context<EtcdCluster>,
    membership: &M,
) -> Result<Observed, Error> {
    let spec = &cluster.spec;
    let Some(wanted) = Version::parse(&spec.version) else {
        let message = format!(
            "spec.version {:?} is not of the form 3.MINOR.PATCH",
            spec.version
        );
        return Err(Error::terminal(message));
    };
    // The Pods first: a Pod is created after its member is added, so that a member list which is
    // read later has the members of all Pods that are seen here.
    let mut present = context.cached::<Pod>()?.owned();
    let answers = answers(cluster, membership, &present).await;
    let view = view(cluster, membership, &answers).await;
    complete(context, &mut present, &view).await?;

    let running = running(cluster, &answers);
    let refusal = version::check(wanted, &running).err();
    // Members that are added meanwhile run what the others run.
    let newest = running.iter().max().copied();
    let version = newest.filter(|_| refusal.is_some()).unwrap_or(wanted);
    let recorded = cluster
        .status
        .as_ref()
        .is_some_and(|status| status.bootstrapped);
    let facts = Facts {
        size: usize::try_from(spec.size).unwrap_or(1),
        image: pods::image(spec, version),
        version,
        bootstrapped: recorded || view != View::Unknown,
        pods: present
            .iter()
            .map(|pod| member_pod(pod, &answers))
            .collect(),
        view,
    };
    let voters = answers.into_iter().filter(|answer| !answer.status.learner);
    Ok(Observed {
        facts,
        refusal,
        oldest: running.iter().min().copied(),
        answering: voters.map(|answer| answer.name).collect(),
    })
}

/// Asks every member about itself; those that follow a leader come first, the leader at their head.
async fn answers<M: Membership>(
    cluster: &EtcdCluster,
    membership: &M,
    present: &[Arc<Pod>],
) -> Vec<Answer> {
    let alive = present.iter().filter(|pod| life(pod) == Life::Alive);
    let answers = join_all(alive.map(|pod| async {
        let name = pod.name_any();
        match membership.status(&pods::client_url(cluster, &name)).await {
            Ok(status) => Some(Answer { name, status }),
            Err(error) => {
                tracing::debug!(
                    member = name,
                    error = &error as &dyn std::error::Error,
                    "no status"
                );
                None
            }
        }
    }));
    let mut answers: Vec<Answer> = answers.await.into_iter().flatten().collect();
    answers.sort_by_key(|answer| match answer.status.leader {
        Some(leader) if leader == answer.status.id => 0,
        Some(_) => 1,
        None => 2,
    });
    answers
}

/// Returns the member list of the first voting member that can get it confirmed, or else that of the
/// first member that has one.
async fn view<M: Membership>(cluster: &EtcdCluster, membership: &M, answers: &[Answer]) -> View {
    // A learner does not serve the member list.
    let voters = answers.iter().filter(|answer| !answer.status.learner);
    let list = async |answer: &Answer, consistency| {
        let endpoint = pods::client_url(cluster, &answer.name);
        let members = membership.list(&endpoint, consistency).await;
        let members = members.inspect_err(|error| {
            let error = error as &dyn std::error::Error;
            tracing::debug!(member = answer.name, error, "no member list");
        });
        members.map(|members| members.iter().map(named).collect())
    };
    let led = voters
        .clone()
        .filter(|answer| answer.status.leader.is_some());
    for answer in led {
        if let Ok(members) = list(answer, Consistency::Agreed).await {
            return View::Agreed(members);
        }
    }
    for answer in voters {
        if let Ok(members) = list(answer, Consistency::Local).await {
            return View::Local(members);
        }
    }
    View::Unknown
}

fn named(member: &Member) -> NamedMember {
    NamedMember {
        id: member.id,
        name: pods::member_of(&member.peer_url).to_owned(),
        started: member.started,
        learner: member.learner,
    }
}

/// Adds Pods of members that the cache does not show yet: a member is removed if it has no Pod, and
/// the cache may lag behind its creation.
async fn complete(
    context: &Context<EtcdCluster>,
    present: &mut Vec<Arc<Pod>>,
    view: &View,
) -> Result<(), Error> {
    let View::Agreed(members) = view else {
        return Ok(());
    };
    let known: BTreeSet<String> = present.iter().map(|pod| pod.name_any()).collect();
    for member in members
        .iter()
        .filter(|member| !known.contains(&member.name))
    {
        present.extend(context.get::<Pod>(&member.name).await?);
    }
    Ok(())
}

/// Returns the releases that members run, or, if none answers, the last known one.
fn running(cluster: &EtcdCluster, answers: &[Answer]) -> Vec<Version> {
    let running = answers.iter();
    let running: Vec<Version> = running
        .filter_map(|answer| Version::parse(&answer.status.version))
        .collect();
    if !running.is_empty() {
        return running;
    }
    let status = cluster.status.as_ref();
    let last = status.and_then(|status| status.current_version.as_deref());
    last.and_then(Version::parse).into_iter().collect()
}

fn member_pod(pod: &Pod, answers: &[Answer]) -> MemberPod {
    let name = pod.name_any();
    let answer = answers.iter().find(|answer| answer.name == name);
    let health = answer.and_then(|answer| {
        let leader = answer.status.leader?;
        Some(Health {
            version: Version::parse(&answer.status.version),
            leads: leader == answer.status.id,
        })
    });
    MemberPod {
        name,
        life: life(pod),
        image: pods::image_of(pod),
        ready: is_ready(pod),
        initial: pods::initial_members(pod),
        health,
    }
}

fn life(pod: &Pod) -> Life {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    if pod.metadata.deletion_timestamp.is_some() {
        Life::Deleting
    } else if matches!(phase, Some("Failed" | "Succeeded")) {
        Life::Dead
    } else {
        Life::Alive
    }
}

fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
