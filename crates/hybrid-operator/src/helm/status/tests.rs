//! Content of the status, and when it is written.

use std::time::Duration;

use helm_core::release::Revision;
use helm_release::engine::{Message, ObjectsState, Reader, Redactor, StepOutcome};
use jiff::Timestamp;
use operator_runtime::controller::{Backoff, Key};
use serde_json::{Value, json};

use crate::helm::annotations;
use crate::helm::outputs::Evaluated;
use crate::helm::report::apply;
use crate::reasons::Reason;

use super::{DeployedManifest, MAX_NOTES, ReleaseStatus, Status, WrittenStatus};

/// Reads a status of this generation.
fn read(before: Option<&Value>, generation: i64) -> Status {
    let now = Timestamp::from_second(1_000).unwrap();
    Status::read(before, now, Some(generation))
}

/// Returns the patch with which a status is written.
fn written(status: &Status) -> Option<Value> {
    status.patch(&WrittenStatus::default())
}

#[test]
fn manifest_is_left_out_of_the_status_and_removed_from_it_on_request() {
    let build = |before: Option<&serde_json::Value>, manifest: bool| {
        let mut status = read(before, 1);
        status.deployed(Reason::InstallSuccessful, "");
        status.release = Some(ReleaseStatus {
            name: "r".to_owned(),
            ..ReleaseStatus::default()
        });
        status.manifest = DeployedManifest::Of(Some("kind: Secret".to_owned()));
        if !manifest {
            status.leave_out_manifest();
        }
        written(&status)
    };
    let shown = build(None, true).unwrap();
    assert_eq!(shown["deployedRelease"]["manifest"], "kind: Secret");
    let new = build(None, false).unwrap();
    assert_eq!(new["deployedRelease"], serde_json::json!({"name": "r"}));
    let removed = build(Some(&shown), false).unwrap();
    let null = serde_json::json!({"name": "r", "manifest": null});
    assert_eq!(removed["deployedRelease"], null);
    assert_eq!(build(Some(&new), false), None);
}

#[test]
fn an_unchanged_status_is_not_written() {
    let mut status = read(None, 2);
    status.deployed(Reason::InstallSuccessful, "notes");
    status.ready(&[], None, None);
    status.release = Some(ReleaseStatus {
        name: "r".to_owned(),
        revision: 1,
        ..ReleaseStatus::default()
    });
    let patch = written(&status).unwrap();
    assert_eq!(patch["observedGeneration"], 2);
    assert_eq!(patch["deployedRelease"]["name"], "r");
    assert_eq!(status.transitions.len(), 1);

    let later = Timestamp::from_second(2_000).unwrap();
    let mut again = Status::read(Some(&patch), later, Some(2));
    again.deployed(Reason::InstallSuccessful, "notes");
    again.ready(&[], None, None);
    assert_eq!(written(&again), None);
    assert!(again.transitions.is_empty());
}

#[test]
fn manifest_is_that_of_the_deployed_revision_or_absent() {
    let release = |revision| ReleaseStatus {
        name: "r".to_owned(),
        revision,
        ..ReleaseStatus::default()
    };
    let mut status = read(None, 1);
    status.deployed(Reason::InstallSuccessful, "");
    status.release = Some(release(1));
    status.manifest = DeployedManifest::Of(Some("first".to_owned()));
    let first = written(&status).unwrap();
    assert_eq!(first["deployedRelease"]["manifest"], "first");

    // A pending revision leaves it alone.
    let mut pending = read(Some(&first), 2);
    pending.progressing("its Pods", None);
    pending.release = Some(release(2));
    let patch = written(&pending).unwrap();
    assert_eq!(patch.get("deployedRelease"), None);

    // The manifest of the second revision is not shown.
    let mut second = read(Some(&first), 2);
    second.deployed(Reason::UpgradeSuccessful, "");
    second.release = Some(release(2));
    second.manifest = DeployedManifest::Of(None);
    let mut patch = written(&second).unwrap();
    assert_eq!(
        patch["deployedRelease"],
        json!({"name": "r", "manifest": null})
    );
    // The API server drops what is null.
    patch["deployedRelease"] = json!({"name": "r"});
    let mut again = read(Some(&patch), 2);
    again.deployed(Reason::UpgradeSuccessful, "");
    again.manifest = DeployedManifest::Of(None);
    assert_eq!(written(&again), None);
}

#[test]
fn status_is_bounded_and_what_is_cut_is_marked() {
    // The limit is in the middle of a character.
    let long = "\u{fc}".repeat(500_000);
    let mut status = read(None, 1);
    status.deployed(Reason::InstallSuccessful, long.as_str());
    status.failed(Reason::UpgradeError, long.as_str());
    status.irreconcilable(Reason::ReconcileError, long.as_str());
    status.stalled(&long);
    status.drifted(&long);
    status.contested(&long);
    status.tested(Some(&long.as_str().into()));
    status.unwatched(&(0..9).map(|n| format!("{n}{long}")).collect());
    status.release = Some(ReleaseStatus {
        chart_version: Some(long.clone()),
        app_version: Some(long.clone()),
        ..ReleaseStatus::default()
    });
    let pairs = ["force-at", "reset-at"].map(|name| {
        let name = format!("{}{name}", annotations::PREFIX);
        (name, long.clone())
    });
    status.handle(
        &annotations::read(&pairs.into(), None, std::iter::empty()).instructions,
        Revision(1),
    );
    for condition in &status.conditions {
        assert!(condition.message.len() <= MAX_NOTES, "{}", condition.type_);
        let cut = condition.message.ends_with(" bytes in all)");
        assert!(cut || condition.message.is_empty(), "{}", condition.type_);
    }
    let patch = written(&status).unwrap();
    let size = patch.to_string().len();
    assert!((MAX_NOTES..160_000).contains(&size), "{size}");

    // What was cut is not reported again.
    let mut again = read(Some(&patch), 1);
    again.stalled(&long);
    again.drifted(&long);
    again.contested(&long);
    again.tested(Some(&long.as_str().into()));
    assert!(again.transitions.is_empty());
    assert_eq!(written(&again), None);
}

#[test]
fn conditions_about_the_release_hold_for_a_generation_that_changes_nothing() {
    let mut status = read(None, 1);
    status.deployed(Reason::InstallSuccessful, "");
    status.ready(&[], None, None);
    let patch = written(&status).unwrap();

    let mut later = read(Some(&patch), 2);
    later.reconciled();
    later.ready(&[], None, None);
    let patch = written(&later).unwrap();
    let conditions = patch["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 5);
    for condition in conditions {
        assert_eq!(condition["observedGeneration"], 2, "{condition}");
    }
}

#[test]
fn generation_without_conditions_is_not_observed() {
    let mut status = read(None, 1);
    status.deployed(Reason::InstallSuccessful, "");
    let patch = written(&status).unwrap();
    assert_eq!(patch.get("observedGeneration"), None);
    status.ready(&[], None, None);
    let patch = written(&status).unwrap();
    assert_eq!(patch["observedGeneration"], 1);

    // The next reconcile ended early, for example because of a connection error.
    let mut cut_short = read(Some(&patch), 2);
    assert_eq!(written(&cut_short), None);
    cut_short.progressing("its Pods", None);
    let patch = written(&cut_short).unwrap();
    assert_eq!(patch["observedGeneration"], 2);
}

#[test]
fn failure_is_published_and_keeps_the_deployed_condition() {
    let mut status = read(None, 1);
    status.deployed(Reason::InstallSuccessful, "");
    status.failed(Reason::UpgradeError, "the server said no");
    let reported: Vec<&str> = status
        .transitions
        .iter()
        .map(|transition| transition.reason)
        .collect();
    assert_eq!(reported, ["InstallSuccessful", "UpgradeError"]);
    let deployed = status
        .conditions
        .iter()
        .find(|c| c.type_ == "Deployed")
        .unwrap();
    assert_eq!(deployed.reason, "InstallSuccessful");
    assert!(
        status
            .conditions
            .iter()
            .all(|condition| !condition.reason.is_empty())
    );
}

#[test]
fn contested_is_kept_for_its_generation_until_takeover() {
    let mut status = read(None, 1);
    status.contested("the first has it, says the second");
    assert_eq!(status.transitions.len(), 1);
    let patch = written(&status).unwrap();
    for (generation, taken_over, stays) in [(1, false, true), (1, true, false), (2, false, false)] {
        let mut owner = read(Some(&patch), generation);
        owner.clear_contested(taken_over);
        assert_eq!(owner.conditions.len(), usize::from(stays));
    }
    let mut third = read(Some(&patch), 1);
    third.contested("the first has it, says the third");
    assert_eq!(written(&third), None);
}

/// Returns the status that the API server has after this change, and whether it was written.
fn changed(before: &Value, second: i64, change: impl FnOnce(&mut Status)) -> (Value, bool) {
    let now = Timestamp::from_second(second).unwrap();
    let mut status = Status::read(Some(before), now, Some(1));
    status.redact(&Redactor::default(), Reader::OfResource);
    change(&mut status);
    match written(&status) {
        None => (before.clone(), false),
        Some(patch) => {
            let mut after = before.clone();
            json_patch::merge(&mut after, &patch);
            (after, true)
        }
    }
}

fn ready_of(status: &Value) -> Option<&Value> {
    let conditions = status["conditions"].as_array().unwrap();
    conditions
        .iter()
        .find(|condition| condition["type"] == "Ready")
}

#[test]
fn what_is_retried_is_written_once_for_each_length_of_the_pause() {
    let (mut status, _) = changed(&json!({}), 0, |status| {
        status.deployed(Reason::InstallSuccessful, "notes");
        status.ready(&[], None, None);
    });
    let mut backoff = Backoff::default();
    let key = Key::new(None, "a");
    let mut texts = Vec::new();
    for attempt in 0..40 {
        // The order and the numbers vary.
        let cause = match attempt % 2 {
            0 => format!(".a: port 4{attempt}; .b: refused"),
            _ => format!(".b: refused; .a: port 4{attempt}"),
        };
        let pause = backoff.next(&key);
        backoff.failed(&key, 0);
        let (after, written) = changed(&status, attempt, |status| {
            status.retrying(&cause.as_str().into(), pause);
        });
        status = after;
        if written {
            let ready = ready_of(&status).unwrap();
            assert_eq!(
                (&ready["status"], &ready["reason"]),
                (&json!("False"), &json!("Retrying"))
            );
            texts.push(ready["message"].as_str().unwrap().to_owned());
        }
    }
    let ends = [
        "4 s", "8 s", "16 s", "32 s", "64 s", "128 s", "256 s", "300 s",
    ];
    assert_eq!(texts.len(), ends.len(), "{texts:#?}");
    for (text, end) in texts.iter().zip(ends) {
        assert!(
            text.ends_with(&format!("; the next attempt is within {end}")),
            "{text}"
        );
    }
    // Another cause is told, and the end is.
    let pause = backoff.next(&key);
    let (other, written) = changed(&status, 50, |status| {
        status.retrying(&"other".into(), pause);
    });
    assert!(
        written
            && ready_of(&other).unwrap()["message"]
                .to_string()
                .contains("other")
    );
    let (ended, _) = changed(&other, 60, |status| {
        status.reconciled();
        status.ready(&[], None, None);
    });
    assert_eq!(ready_of(&ended).unwrap()["status"], "True");
    assert_eq!(ready_of(&ended).unwrap()["message"], "");
}

#[test]
fn what_passes_within_some_attempts_is_not_told_and_a_pause_ends_what_was_told() {
    let seconds = Duration::from_secs;
    let (status, _) = changed(&json!({}), 0, |status| {
        status.retrying(&"refused".into(), seconds(2));
    });
    assert_eq!(status["conditions"], json!([]));
    let (retrying, _) = changed(&json!({}), 0, |status| {
        status.retrying(&"refused".into(), seconds(4));
    });
    assert_eq!(ready_of(&retrying).unwrap()["reason"], "Retrying");
    let (paused, _) = changed(&retrying, 1, |status| {
        apply(&StepOutcome::Paused, &ObjectsState::default(), status);
    });
    assert_eq!(ready_of(&paused), None);
}

#[test]
fn an_irreconcilable_custom_resource_that_is_retried_stays_so_and_says_when_the_next_attempt_is() {
    let failed = |before: &Value, pause| {
        changed(before, 1, |status| {
            status.irreconcilable(Reason::ErrorGettingValues, "no values");
            status.retrying(&"no values".into(), Duration::from_secs(pause));
        })
    };
    let (first, _) = failed(&json!({}), 1);
    assert_eq!(ready_of(&first).unwrap()["reason"], "ErrorGettingValues");
    let (later, _) = failed(&first, 8);
    let ready = ready_of(&later).unwrap();
    assert_eq!(
        ready["message"],
        "no values; the next attempt is within 8 s"
    );
    let irreconcilable = &later["conditions"][1];
    assert_eq!(
        (&irreconcilable["type"], &irreconcilable["status"]),
        (&json!("Irreconcilable"), &json!("True"))
    );
    assert_eq!(failed(&later, 8), (later.clone(), false));
}

#[test]
fn an_event_about_a_condition_leaves_out_what_the_condition_quotes() {
    let spec = json!({"a": "value-of-the-spec"});
    let message = Message::from("got value-of-the-spec").about(&[&spec]);
    for (reader, told) in [
        (Reader::OfResource, "got value-of-the-spec"),
        // A native controller may show the conditions of a component to anybody.
        (Reader::Anybody, "got [redacted]"),
    ] {
        let mut status = read(None, 1);
        status.redact(&Redactor::default(), reader);
        status.failed(Reason::InstallError, message.clone());
        status.irreconcilable(Reason::ReconcileError, message.clone());
        let conditions = status.conditions.iter().filter(|it| !it.message.is_empty());
        let messages: Vec<&str> = conditions.map(|it| it.message.as_str()).collect();
        assert_eq!(messages, [told; 4]);
        assert_eq!(status.transitions.len(), 2);
        for transition in &status.transitions {
            assert_eq!(transition.message, "got [redacted]");
        }
    }
}

#[test]
fn outputs_replace_what_the_status_had_and_are_written_only_when_they_change() {
    let output = |before: Option<&Value>, fields: Value| {
        let mut status = read(before, 1);
        let fields = fields.as_object().unwrap().iter();
        status.output(Evaluated {
            is_known: true,
            fields: fields
                .map(|(name, value)| (name.clone(), Some(value.clone()).filter(|v| !v.is_null())))
                .collect(),
            ..Evaluated::default()
        });
        written(&status)
    };
    let first = json!({"url": "a", "ports": {"web": 80, "more": {"admin": 81}}, "address": null});
    let written = output(None, first.clone()).unwrap();
    assert_eq!(written["ports"], first["ports"]);
    assert_eq!(written.get("address"), None);
    assert_eq!(output(Some(&written), first), None);

    let second = json!({"url": null, "ports": {"more": {}}, "address": "b"});
    let changed = output(Some(&written), second).unwrap();
    let expected = json!({"web": null, "more": {"admin": null}});
    assert_eq!(
        (&changed["url"], &changed["ports"]),
        (&Value::Null, &expected)
    );
    assert_eq!(changed["address"], "b");

    let mut fewer = read(Some(&written), 1);
    fewer.remove_outputs(vec!["url".to_owned(), "never".to_owned()]);
    let fewer = self::written(&fewer).unwrap();
    assert_eq!(fewer.get("url"), Some(&Value::Null));
    assert_eq!((fewer.get("ports"), fewer.get("never")), (None, None));
}
