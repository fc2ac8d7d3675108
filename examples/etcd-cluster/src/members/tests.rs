use std::collections::BTreeSet;

use super::{
    Facts, Failure, Health, Life, MemberPod, NamedMember, RemoveReason, Step, View, Waiting,
    next_step,
};
use crate::membership::MemberId;
use crate::version::Version;

const OLD: &str = "etcd:v3.5.21";
const NEW: &str = "etcd:v3.6.8";

/// A cluster in one letter per member, in the order of their names `a`, `b`, `c`…:
///
/// | letter | member | Pod |
/// |---|---|---|
/// | `H` | a voter | healthy |
/// | `L` | the leader | healthy |
/// | `U` | a voter | does not answer |
/// | `B` | a voter | does not answer, and the kubelet finds it not ready |
/// | `G` | a voter | gone |
/// | `D` | a voter | has failed |
/// | `T` | a voter | is being deleted |
/// | `l` | a learner that has the data | healthy |
/// | `s` | a learner that has not started | does not answer |
/// | `o` | the same | created when there were other members |
/// | `g` | a learner that has not started | none |
/// | `x` | none | healthy |
/// | `d` | none | has failed |
fn facts(letters: &str, size: usize) -> Facts {
    let names = ('a'..='z').map(String::from);
    let cast: Vec<(char, String)> = letters.chars().zip(names).collect();
    let members: Vec<NamedMember> = cast
        .iter()
        .zip(1..)
        .filter(|((letter, _), _)| !"xd".contains(*letter))
        .map(|((letter, name), id)| NamedMember {
            id: MemberId(id),
            name: name.clone(),
            started: !"sog".contains(*letter),
            learner: "lsog".contains(*letter),
        })
        .collect();
    let initial: BTreeSet<String> = members.iter().map(|member| member.name.clone()).collect();
    let pods = cast.iter().filter(|(letter, _)| !"Gg".contains(*letter));
    let pods = pods.map(|(letter, name)| MemberPod {
        name: name.clone(),
        life: match letter {
            'D' | 'd' => Life::Dead,
            'T' => Life::Deleting,
            _ => Life::Alive,
        },
        image: NEW.to_owned(),
        ready: *letter != 'B',
        initial: if *letter == 'o' {
            ["z".to_owned()].into()
        } else {
            initial.clone()
        },
        health: "HLlx".contains(*letter).then(|| Health {
            version: Version::parse("3.6.8"),
            leads: *letter == 'L',
        }),
    });
    Facts {
        size,
        image: NEW.to_owned(),
        version: Version::parse("3.6.8").unwrap(),
        bootstrapped: true,
        pods: pods.collect(),
        view: View::Agreed(members),
    }
}

fn name(name: &str) -> String {
    name.to_owned()
}

fn removal(id: u64, member: &str, reason: RemoveReason) -> Step {
    Step::Remove(MemberId(id), name(member), reason)
}

#[test]
fn every_state_with_a_quorum_leads_to_one_step() {
    use RemoveReason::{Lost, Outdated, Surplus};
    let joining = |member: &str| Step::Wait(Waiting::Joining(name(member)));
    let healthy = |members: &[&str]| {
        let members = members.iter().map(|member| name(member));
        Step::Wait(Waiting::Healthy(members.collect()))
    };
    for (letters, size, step) in [
        ("LHH", 3, Step::Done),
        ("L", 1, Step::Done),
        // Members are added one by one, and get their votes when they have the data.
        ("L", 3, Step::Add),
        ("Ls", 3, joining("b")),
        ("Ll", 3, Step::Promote(MemberId(2), name("b"))),
        ("LH", 3, Step::Add),
        ("LHH", 5, Step::Add),
        // The operator died between adding a member and creating its Pod.
        ("Lg", 3, removal(2, "b", Lost)),
        ("LHg", 3, removal(3, "c", Lost)),
        // Lost members are removed, then others are added; learners first.
        ("LHG", 3, removal(3, "c", Lost)),
        ("LHD", 3, removal(3, "c", Lost)),
        ("LHT", 3, removal(3, "c", Lost)),
        ("LHHGG", 5, removal(4, "d", Lost)),
        ("LGHg", 3, removal(4, "d", Lost)),
        // Its `--initial-cluster` names a member that was removed after its Pod was created.
        ("LHo", 3, removal(3, "c", Outdated)),
        // Pods without members: what is left of a removal, and a failed Pod.
        ("LHHx", 3, Step::DeletePod(name("d"))),
        ("LHd", 3, Step::DeletePod(name("c"))),
        ("LxG", 3, Step::DeletePod(name("b"))),
        // Fewer members: first a learner, then one that does not answer, the leader last.
        ("LHHs", 3, removal(4, "d", Surplus)),
        ("LHHHH", 3, removal(2, "b", Surplus)),
        ("LHHHU", 3, removal(5, "e", Surplus)),
        ("LH", 1, removal(2, "b", Surplus)),
        // Never so that the others are no majority any more.
        ("LHUUH", 3, removal(3, "c", Surplus)),
        ("LUUUH", 3, healthy(&["b", "c", "d"])),
        // Not added while that would endanger the quorum.
        ("LHU", 5, healthy(&["c"])),
        ("LHHHU", 7, Step::Add),
        // A member that does not answer may come back: its Pod is there.
        ("LHU", 3, healthy(&["c"])),
    ] {
        assert_eq!(next_step(&facts(letters, size)), step, "{letters} {size}");
    }
}

#[test]
fn a_cluster_without_a_majority_is_not_touched() {
    let quorum = Step::Wait(Waiting::Quorum);
    let lost = |lost, of| Step::Fail(Failure::QuorumLost { lost, of });
    for (letters, step) in [
        ("UUU", quorum.clone()),
        ("UUG", quorum.clone()),
        ("UGG", lost(2, 3)),
        ("UUGGT", lost(3, 5)),
        ("UUUDT", quorum),
        ("GGG", Step::Fail(Failure::AllLost)),
        ("DTG", Step::Fail(Failure::AllLost)),
    ] {
        let mut facts = facts(letters, 3);
        let View::Agreed(members) = facts.view else {
            panic!("the facts of a cluster with a quorum");
        };
        facts.view = View::Local(members);
        assert_eq!(next_step(&facts), step, "{letters}");
    }
    let mut silent = facts("UUU", 3);
    silent.view = View::Unknown;
    assert_eq!(next_step(&silent), Step::Wait(Waiting::Quorum));
    // An empty cluster in the place of one with data would be worse than none.
    silent.pods.clear();
    assert_eq!(next_step(&silent), Step::Fail(Failure::AllLost));
}

#[test]
fn the_first_member_is_created_once() {
    for (letters, step) in [
        ("", Step::Bootstrap),
        ("U", Step::Wait(Waiting::FirstMember)),
        ("T", Step::Wait(Waiting::FirstMember)),
        ("D", Step::DeletePod(name("a"))),
    ] {
        let mut facts = facts(letters, 3);
        facts.bootstrapped = false;
        facts.view = View::Unknown;
        assert_eq!(next_step(&facts), step, "{letters}");
    }
}

/// Sets the images and releases of Pods, such as `OLD OLD NEW`.
fn with_images(mut facts: Facts, images: [&str; 3], versions: [&str; 3]) -> Facts {
    for ((pod, image), version) in facts.pods.iter_mut().zip(images).zip(versions) {
        image.clone_into(&mut pod.image);
        if let Some(health) = &mut pod.health {
            health.version = Version::parse(version);
        }
    }
    facts
}

#[test]
fn images_are_changed_one_at_a_time_and_that_of_the_leader_last() {
    let set = |pod: &str| Step::SetImage(name(pod));
    let (old, new) = ("3.5.21", "3.6.8");
    let restart = Step::Wait(Waiting::Restart(name("b")));
    let healthy = Step::Wait(Waiting::Healthy(vec![name("b")]));
    let lost = removal(3, "c", RemoveReason::Lost);
    for (letters, images, versions, step) in [
        ("LHH", [OLD, OLD, OLD], [old, old, old], set("b")),
        // The old process still answers, then none does, then the new one.
        ("LHH", [OLD, NEW, OLD], [old, old, old], restart),
        ("LUH", [OLD, NEW, OLD], [old, old, old], healthy),
        ("LHH", [OLD, NEW, OLD], [old, new, old], set("c")),
        ("LHH", [OLD, NEW, NEW], [old, new, new], set("a")),
        ("LHH", [NEW, NEW, NEW], [new, new, new], Step::Done),
        // Somebody changed an image by hand.
        ("LHH", [NEW, NEW, "other"], [new, new, "3.4.0"], set("c")),
        // A member that is lost comes first.
        ("LHG", [OLD, OLD, OLD], [old, old, old], lost),
    ] {
        let facts = with_images(facts(letters, 3), images, versions);
        assert_eq!(next_step(&facts), step, "{letters} {images:?} {versions:?}");
    }
}

#[test]
fn a_pod_with_an_image_that_does_not_work_gets_another_one_at_once() {
    let images = [OLD, NEW, OLD];
    let mut broken = facts("LBH", 3);
    broken.image = OLD.to_owned();
    broken.version = Version::parse("3.5.21").unwrap();
    let broken = with_images(broken, images, ["3.5.21"; 3]);
    assert_eq!(next_step(&broken), Step::SetImage(name("b")));
    // Also when it is the only one and has never worked.
    let mut first = with_images(facts("B", 3), [OLD; 3], ["3.5.21"; 3]);
    first.bootstrapped = false;
    first.view = View::Unknown;
    assert_eq!(next_step(&first), Step::SetImage(name("a")));
    // One that the kubelet finds ready is only out of the operator's reach.
    let unreachable = with_images(facts("LUH", 3), images.map(|_| OLD), ["3.5.21"; 3]);
    let waiting = Step::Wait(Waiting::Healthy(vec![name("b")]));
    assert_eq!(next_step(&unreachable), waiting);
}
