//! Differences from a fresh install that are permitted.

use serde_json::{Value, json};

use super::helm::CUSTOM;
use super::history::Named;
use super::people::{REPLICAS, autoscaler_of, collect_leaves, is_key};
use super::snapshot::{Difference, Snapshot, text, title_of};
use super::world::World;

/// A reason for which a cluster may differ from a fresh install. Two more follow from the way in which fresh
/// installs are made: an upgrade that fails is rolled back, and random values differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Permitted {
    Hook,
    ContentOfOthers,
    Kept,
    LeftAndDeleted,
    MadeByCluster,
    Addition,
    Autoscaler,
    Untested,
    Suspended,
    LostRecord,
    LateRecord,
    Undeployed,
    Unowned,
}

const ALL: [Permitted; 13] = [
    Permitted::Hook,
    Permitted::ContentOfOthers,
    Permitted::Kept,
    Permitted::LeftAndDeleted,
    Permitted::MadeByCluster,
    Permitted::Addition,
    Permitted::Autoscaler,
    Permitted::Untested,
    Permitted::Suspended,
    Permitted::LostRecord,
    Permitted::LateRecord,
    Permitted::Undeployed,
    Permitted::Unowned,
];

/// Differences in what belongs to a custom resource, or in what belongs to none.
pub(super) struct Case<'a> {
    pub(super) world: &'a World,
    pub(super) live: &'a Snapshot,
    /// The fresh install.
    pub(super) fresh: &'a Snapshot,
    /// The fresh install of the state that was deployed, if one was.
    pub(super) deployed: Option<&'a Snapshot>,
    /// Whether there is a custom resource.
    pub(super) is_custom_left: bool,
    /// Whether its last state fails, and was there before, or one with the same objects.
    pub(super) is_back: bool,
}

impl Case<'_> {
    pub(super) fn is_permitted(&self, difference: &Difference) -> bool {
        ALL.iter().any(|reason| reason.covers(self, difference))
    }

    /// Returns whether an object belongs to a state that fails, and to none that is deployed.
    fn is_of_failed(&self, title: &str) -> bool {
        self.deployed
            .is_none_or(|deployed| !deployed.objects.contains_key(title))
    }
}

impl Permitted {
    /// Returns whether a difference is one of these.
    fn covers(self, case: &Case<'_>, difference: &Difference) -> bool {
        let Difference {
            object: title,
            path,
            expected,
            found,
        } = difference;
        let world = case.world;
        let is_left = is_left(difference);
        match self {
            Self::Hook if is_left => case.is_custom_left && found.as_ref().is_some_and(is_hook),
            Self::Hook => {
                let fresh = case.fresh.objects.get(title);
                let is_removed = found.is_none() && path.is_empty() && world.has_interrupted;
                fresh.is_some_and(is_hook) && (is_removed || world.touched.contains(title))
            }
            Self::ContentOfOthers if is_left => holds_others(world, title),
            Self::ContentOfOthers => {
                let mut live = case.live.objects.keys();
                says_that_something_is_left(difference)
                    && live.any(|title| holds_others(world, title))
            }
            Self::Kept if is_left => found.as_ref().is_some_and(is_kept),
            Self::Kept if path.is_empty() && found.is_none() => {
                let kept = expected.as_ref().filter(|object| is_kept(object));
                let custom = kept.map(custom_of);
                custom.is_some_and(|custom| {
                    case.is_back && is_stalled(case, &custom)
                        || world.touched.contains(title) && case.is_of_failed(title)
                })
            }
            Self::Kept if case.fresh.objects.get(title).is_some_and(is_kept) => {
                world.touched.contains(title) && case.is_of_failed(title)
            }
            Self::Kept => {
                let mut live = case.live.objects.iter();
                says_that_something_is_left(difference)
                    && live.any(|(title, object)| {
                        is_kept(object) && !case.fresh.objects.contains_key(title)
                    })
            }
            Self::LeftAndDeleted => {
                let condition = found.as_ref().or(expected.as_ref());
                let message = condition.and_then(|condition| condition.get("message")?.as_str());
                let is_told = |title: &String| {
                    let is_gone = !case.live.objects.contains_key(title);
                    let words = format!("{title} is not deleted: ");
                    is_gone && message.is_some_and(|message| message.contains(&words))
                };
                let mut touched = world.touched.iter();
                says_left(condition, path)
                    && match found {
                        Some(_) => touched.any(is_told),
                        None => is_stalled(case, title) && (case.is_back || touched.any(is_told)),
                    }
            }
            Self::MadeByCluster => {
                let mut live = case.live.objects.iter();
                is_left
                    && live.any(|(source, object)| {
                        let left = Difference::of(source, "", None, Some(object));
                        makes(source, title)
                            && !case.fresh.objects.contains_key(source)
                            && case.is_permitted(&left)
                    })
            }
            Self::Addition => {
                let mut leaves = Vec::new();
                if let Some(found) = found {
                    collect_leaves(path, found, &mut leaves);
                }
                let is_written = |(path, _): &(String, Value)| {
                    world.written.contains(&(title.clone(), path.clone()))
                };
                expected.is_none()
                    && !path.is_empty()
                    && leaves.iter().any(is_written)
                    && (leaves.iter()).all(|leaf| is_written(leaf) || is_key(&leaf.0))
            }
            Self::Autoscaler => path == REPLICAS && is_autoscaled(case.live, title),
            Self::Untested => is_untested(case, difference),
            Self::Suspended => {
                let status = found.as_ref().and_then(|found| found.get("status"));
                path == "/status/conditions/Paused"
                    && expected.is_none()
                    && status == Some(&json!("False"))
            }
            Self::LateRecord => {
                let found = found.as_ref();
                let statuses = found.and_then(|found| found.get("statuses")?.as_object());
                let is_pending = |status: &String| status.starts_with("pending-");
                is_left
                    && title.starts_with("Release ")
                    && world.touched.contains(title)
                    && statuses.is_some_and(|statuses| statuses.keys().all(is_pending))
            }
            Self::Undeployed => is_of_attempt(case, difference),
            Self::LostRecord => is_of_lost_record(case, difference),
            Self::Unowned => is_of_orphans(case, difference),
        }
    }
}

/// JSON pointer to the condition about the tests of a release, in a snapshot.
const TESTED: &str = "/status/conditions/TestSuccess";

/// Returns whether something is a test that did not run, its result, or the result of tests before values that are
/// not tried.
fn is_untested(case: &Case<'_>, difference: &Difference) -> bool {
    let (title, is_result) = (&difference.object, difference.path == TESTED);
    match &difference.expected {
        Some(_) if difference.found.is_some() => false,
        Some(job) if difference.path.is_empty() => is_test(job) && fails(case, &custom_of(job)),
        Some(_) => is_result && fails(case, title),
        None => is_result && case.is_back && is_stalled(case, title),
    }
}

/// Returns whether a difference is a finalizer that the fresh install does not have.
fn is_finalizer(difference: &Difference) -> bool {
    difference.path == "/metadata/finalizers" && difference.expected.is_none()
}

/// Returns whether something is an object, or the record, of attempts of which none was deployed, or the finalizer
/// of their custom resource.
fn is_of_attempt(case: &Case<'_>, difference: &Difference) -> bool {
    let title = &difference.object;
    if is_finalizer(difference) {
        let name = title.rsplit_once('/').map(|(_, name)| name);
        let of_name = |release: &&String| {
            let other = release.rsplit_once('/').map(|(_, other)| other);
            release.starts_with("Release ") && other == name
        };
        let mut releases = case.live.objects.keys().filter(of_name);
        return match releases.next() {
            Some(release) => is_undeployed(case.live, release),
            // It is added before the first record is written.
            None => case.world.has_interrupted,
        };
    }
    let found = difference.found.as_ref();
    let is_its_object = found.is_some_and(|object| is_of_undeployed(case.live, object));
    is_left(difference) && (is_its_object || is_undeployed(case.live, title))
}

/// Returns whether something is the missing owner of an object whose custom resource did not own it at some time, an
/// object with a generated name that has outlived one, the begun uninstall of such a release, or the generation for which
/// it was deployed.
fn is_of_orphans(case: &Case<'_>, difference: &Difference) -> bool {
    let world = case.world;
    let was_orphaned = |object: &Value| {
        let mut customs = world.orphaned.keys();
        customs.any(|custom| world.is_of(object, custom))
    };
    if is_left(difference) {
        let found = difference.found.as_ref();
        return found.is_some_and(|object| {
            object.pointer("/metadata/generateName").is_some() && was_orphaned(object)
        });
    }
    let mut customs = world.orphaned.keys().map(title_of);
    if customs.any(|title| title == difference.object) {
        // It may have been created for what is deployed.
        return difference.path.ends_with("/observedGeneration");
    }
    let mut releases = world
        .orphaned
        .keys()
        .flat_map(|custom| world.records_of(custom));
    if difference.path == "/statuses/uninstalling" {
        return releases.any(|record| {
            let name = text(&record, "/metadata/labels/name");
            let namespace = text(&record, "/metadata/namespace");
            difference.object == format!("Release {namespace}/{name}")
        });
    }
    let is_owner = [
        "/metadata/ownerReferences",
        "/metadata/annotations/operator-sdk/primary-",
    ]
    .iter()
    .any(|owner| difference.path.starts_with(owner));
    let live = case.live.objects.get(&difference.object);
    is_owner && live.is_some_and(was_orphaned)
}

/// Returns whether something is an object whose record people have deleted, or the finalizer of the custom resource.
fn is_of_lost_record(case: &Case<'_>, difference: &Difference) -> bool {
    let world = case.world;
    if is_missing_record(case, difference) {
        return true;
    }
    if is_finalizer(difference) {
        let name = difference.object.rsplit_once('/').map(|(_, name)| name);
        let mut lost = world.lost.keys();
        return lost.any(|(_, lost)| name == Some(lost.as_str()));
    }
    let object = if is_left(difference) {
        difference.found.as_ref()
    } else {
        case.live.objects.get(&difference.object)
    };
    if is_left(difference) && object.is_some_and(|object| is_hook(object) && is_lost(world, object))
    {
        return true;
    }
    let Some(was_replaced) = release_of(object).and_then(|release| world.lost.get(&release)) else {
        return false;
    };
    let is_generated =
        object.is_some_and(|object| object.pointer("/metadata/generateName").is_some());
    if is_left(difference) {
        *was_replaced || is_generated
    } else {
        *was_replaced && world.has_restarted()
    }
}

/// Returns whether something is the lost record of a release of which no other can be written, because the last state of
/// its custom resource fails.
fn is_missing_record(case: &Case<'_>, difference: &Difference) -> bool {
    let release = difference.object.strip_prefix("Release ");
    let Some((namespace, name)) = release.and_then(|release| release.split_once('/')) else {
        return false;
    };
    let key = (namespace.to_owned(), name.to_owned());
    let is_lost = difference.path.is_empty() && difference.found.is_none();
    let mut titles = case.fresh.objects.keys();
    is_lost
        && case.world.lost.get(&key) == Some(&true)
        && titles.any(|title| title.ends_with(&format!("/{name}")) && fails(case, title))
}

/// Returns whether a record is gone of the release that an object of a hook belongs to.
fn is_lost(world: &World, object: &Value) -> bool {
    let labels = object.pointer("/metadata/labels");
    let custom = labels.and_then(|labels| labels.get(CUSTOM)?.as_str());
    custom.is_some_and(|custom| world.lost_hooks.contains(custom))
}

/// Returns whether an object is there that the fresh install does not have.
fn is_left(difference: &Difference) -> bool {
    difference.expected.is_none() && difference.path.is_empty()
}

/// Returns whether an object belongs to a release of which no revision is deployed.
pub(super) fn is_of_undeployed(live: &Snapshot, object: &Value) -> bool {
    let release = release_of(Some(object));
    release.is_some_and(|(namespace, name)| {
        is_undeployed(live, &format!("Release {namespace}/{name}"))
    })
}

/// Returns whether no revision of a release is deployed.
fn is_undeployed(live: &Snapshot, release: &str) -> bool {
    let release = live.objects.get(release);
    let statuses = release.and_then(|release| release.get("statuses")?.as_object());
    statuses.is_some_and(|statuses| !statuses.contains_key("deployed"))
}

/// Returns whether a difference is a condition that names objects that were not deleted.
fn says_that_something_is_left(difference: &Difference) -> bool {
    says_left(difference.found.as_ref(), &difference.path)
}

/// Returns whether the condition at a path names objects that were not deleted.
fn says_left(condition: Option<&Value>, path: &str) -> bool {
    path == "/status/conditions/NotAsRendered"
        && condition.and_then(|condition| condition.get("reason")) == Some(&json!("ObjectLeft"))
}

/// Returns the title of the custom resource of an object.
fn custom_of(object: &Value) -> String {
    let annotation = |name: &str| {
        let path = format!("/metadata/annotations/operator-sdk~1primary-resource{name}");
        text(object, &path).to_owned()
    };
    format!("{} {}", annotation("-type"), annotation(""))
}

/// Returns whether the last state of a custom resource cannot be deployed.
fn fails(case: &Case<'_>, custom: &str) -> bool {
    let fresh = case.fresh.objects.get(custom);
    let status = fresh.and_then(|fresh| fresh.pointer("/status/conditions/Irreconcilable/status"));
    status == Some(&json!("True"))
}

/// Returns whether the last state of a custom resource fails for good.
fn is_stalled(case: &Case<'_>, custom: &str) -> bool {
    let fresh = case.fresh.objects.get(custom);
    fresh.is_some_and(|fresh| fresh.pointer("/status/conditions/Stalled").is_some())
}

/// Returns namespace and name of the release that an object belongs to.
fn release_of(object: Option<&Value>) -> Option<(String, String)> {
    let text = |annotation: &str| {
        let path = format!("/metadata/annotations/meta.helm.sh~1{annotation}");
        let text = object?.pointer(&path)?.as_str()?;
        Some(text.to_owned())
    };
    text("release-namespace").zip(text("release-name"))
}

/// Returns whether an object is to outlive its release.
pub(super) fn is_kept(object: &Value) -> bool {
    let policy = object.pointer("/metadata/annotations/helm.sh~1resource-policy");
    policy == Some(&json!("keep"))
}

/// Returns whether an object is a test of its release.
fn is_test(object: &Value) -> bool {
    let annotations = object.pointer("/metadata/annotations");
    annotations.and_then(|annotations| annotations.get("helm.sh/hook")) == Some(&json!("test"))
}

fn is_hook(object: &Value) -> bool {
    let annotations = object.pointer("/metadata/annotations");
    annotations.is_some_and(|annotations| annotations.get("helm.sh/hook").is_some())
}

/// Returns whether an autoscaler names an object.
fn is_autoscaled(live: &Snapshot, title: &str) -> bool {
    let scaled = live.objects.get(title).zip(title.rsplit_once('/'));
    scaled.is_some_and(|(object, (_, name))| {
        let named = Named {
            name: name.to_owned(),
            ..Named::of(object)
        };
        autoscaler_of(live.objects.values(), &named).is_some()
    })
}

/// Returns whether something is a namespace or a definition that has, or may have, objects of other people in it.
fn holds_others(world: &World, title: &str) -> bool {
    let is_container = || {
        let kinds = ["Namespace /", "CustomResourceDefinition."];
        kinds.iter().any(|kind| title.starts_with(kind))
    };
    world.network.has_forbidden() && is_container()
        || world.used_by_others().any(|other| {
            let group = other.api_version.split('/').next().unwrap_or_default();
            title == format!("Namespace /{}", other.namespace)
                || title.starts_with("CustomResourceDefinition.")
                    && title.ends_with(&format!(".{group}"))
        })
}

/// Returns whether the cluster makes something for a namespace or a definition.
fn makes(source: &str, title: &str) -> bool {
    let Some((kind, name)) = source.split_once(" /") else {
        return false;
    };
    match kind.split('.').next() {
        Some("Namespace") => {
            title == format!("ServiceAccount {name}/default")
                || title == format!("ConfigMap {name}/kube-root-ca.crt")
        }
        Some("CustomResourceDefinition") => {
            let group = name.split_once('.').map_or("", |(_, group)| group);
            title.starts_with("APIService.") && title.ends_with(&format!(".{group}"))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// The sentences of the documentation about [`ALL`].
    const SENTENCES: [&str; ALL.len()] = [
        "Objects of hooks without a delete policy stay as long as the custom resource, and are not repaired; those of an interrupted run are removed.",
        "A namespace or a definition with objects of others in it, or with objects that may not be listed, outlives its release, and a condition says so.",
        "An object with `helm.sh/resource-policy: keep` outlives its release, and is neither made again nor repaired for a state that fails.",
        "A condition that names an object that was left stays until the next revision, also if people delete the object. For a state that fails it is not there if people deleted the object before, or the state has failed before.",
        "What the cluster makes for a namespace or a definition stays as long as it does.",
        "A field that others have set, and that the chart does not set, stays.",
        "The number of replicas is left to an autoscaler, as long as no state without it is tried, and the chart does not begin or cease to set, or change, a number that the autoscaler does not own.",
        "The tests of a revision run only while its values are wanted, so not any more once others followed that fail. Their result stays if these have failed before, and are not tried.",
        "The condition `Paused` of a custom resource that was paused stays, and is False.",
        "If others delete the record of a revision, the objects stay whose names were generated for it and those of its hooks, and if it is being replaced, or cannot be, all that only this revision had, also its values if the process is replaced, too; the record is missing as long as no other can be written. Objects of its hooks also stay once the limit of the history has removed the record.",
        "A pending record that `helm` writes during the uninstall of its release stays.",
        "Until a revision is deployed, the finalizer, the objects and the records of all attempts stay.",
        "An object whose custom resource had the deletion policy `Orphan` may have no owner, one with a generated name stays, and so does the record of an uninstall that had begun.",
    ];

    #[test]
    fn the_book_lists_what_is_permitted() {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/contributing/simulation.md");
        let page = std::fs::read_to_string(path).unwrap();
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        for (reason, sentence) in ALL.iter().zip(SENTENCES) {
            assert!(page.contains(sentence), "{reason:?}: {sentence}");
        }
    }
}
