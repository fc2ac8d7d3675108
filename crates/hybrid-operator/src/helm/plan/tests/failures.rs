//! Tests of failed revisions: when they are tried again, rolled back or left alone.

use super::*;

#[test]
fn attempts_back_off_unless_the_obstacle_has_changed() {
    let mut state = observed(vec![RecordFacts {
        written: Duration::from_secs(3),
        ..failed(1, 3)
    }]);
    assert_eq!(
        next_step(&state, &desired()),
        Step::Wait {
            delay: Duration::from_secs(5),
            until: Until::NextAttempt {
                revision: revision(1)
            },
        }
    );
    let retry = Step::Retry {
        revision: revision(1),
    };
    state.obstacle_changed = true;
    assert_eq!(next_step(&state, &desired()), retry);
    state.obstacle_changed = false;
    // `reset-at` clears the failures.
    state.forgiven = revision(1);
    assert_eq!(next_step(&state, &desired()), retry);
    let pauses: Vec<u64> = (0..5).map(|n| retry_delay(n).as_secs()).collect();
    assert_eq!(pauses, [0, 2, 4, 8, 16]);
    assert_eq!(retry_delay(u32::MAX), MAX_RETRY_DELAY);
}

#[test]
fn release_stalls_only_if_another_attempt_could_cause_damage() {
    let hook = |attempts| RecordFacts {
        hook_failed: true,
        ..failed(1, attempts)
    };
    let retry = Step::Retry {
        revision: revision(1),
    };
    let clean: fn(&mut DesiredFacts) = |d| d.clean_up = true;
    let gone = |attempts| RecordFacts {
        status: Status::Uninstalled,
        ..failed(1, attempts)
    };
    #[expect(clippy::type_complexity, reason = "one table")]
    let cases: [(&str, RecordFacts, fn(&mut DesiredFacts), Step); 8] = [
        ("no limit", failed(1, 1000), |_| {}, retry.clone()),
        (
            "a limit in watches.yaml",
            failed(1, 2),
            |d| d.install_retries = Some(1),
            stalled(1, StallReason::ExceedsRetries),
        ),
        ("a hook failed twice", hook(2), |_| {}, retry.clone()),
        (
            "a hook failed often",
            hook(MAX_HOOK_ATTEMPTS),
            |_| {},
            stalled(1, StallReason::RunsHook),
        ),
        (
            "not cleaned up yet",
            failed(1, 1),
            clean,
            Step::CleanUp {
                revision: revision(1),
            },
        ),
        ("cleaned up", gone(1), clean, retry.clone()),
        (
            "cleaned up often",
            gone(MAX_CLEAN_INSTALLS),
            clean,
            stalled(1, StallReason::DeletesObjects),
        ),
        (
            "cleaned up, with a limit",
            gone(MAX_CLEAN_INSTALLS),
            |d| (d.clean_up, d.install_retries) = (true, Some(9)),
            retry,
        ),
    ];
    for (name, record, change, expected) in cases {
        let mut wanted = desired();
        change(&mut wanted);
        assert_eq!(
            next_step(&observed(vec![record]), &wanted),
            expected,
            "{name}"
        );
    }
}

#[test]
fn failed_upgrade_is_retried_rolled_back_or_stalled_as_configured() {
    let step = |attempts, retries, rollback, hook_failed| {
        let history = vec![
            record(1, Status::Deployed, Some("old")),
            RecordFacts {
                hook_failed,
                ..failed(2, attempts)
            },
        ];
        let wanted = DesiredFacts {
            upgrade_retries: retries,
            rollback,
            ..desired()
        };
        next_step(&observed(history), &wanted)
    };
    let retry = Step::Retry {
        revision: revision(2),
    };
    let rollback = Step::Rollback { to: revision(1) };
    assert_eq!(step(1, None, true, false), rollback);
    assert_eq!(step(1, Some(1), true, false), retry);
    assert_eq!(step(2, Some(1), true, false), rollback);
    assert_eq!(step(50, None, false, false), retry);
    assert_eq!(
        step(1, Some(0), false, false),
        stalled(2, StallReason::ExceedsRetries)
    );
    assert_eq!(
        step(MAX_HOOK_ATTEMPTS, None, false, true),
        stalled(2, StallReason::ExceedsRetries)
    );
}

/// Uninstalling a release because its upgrade failed deletes its objects: only on request, only after the
/// retries, and only while the inputs that failed are still desired.
#[test]
fn failed_upgrade_is_uninstalled_and_installed_again_only_on_request() {
    let old = record(1, Status::Deployed, Some("old"));
    let uninstalling = RecordFacts {
        status: Status::Uninstalling,
        ..failed(2, 2)
    };
    let remove = Step::Remove {
        revision: revision(2),
    };
    let retry = Step::Retry {
        revision: revision(2),
    };
    let rollback = Step::Rollback { to: revision(1) };
    let step = |history: &[&RecordFacts], reinstall: bool, retries, digest: &str| {
        let wanted = DesiredFacts {
            digest: Some(digest.to_owned()),
            rollback: !reinstall,
            reinstall,
            upgrade_retries: retries,
            ..desired()
        };
        let history = history.iter().map(|&record| record.clone()).collect();
        next_step(&observed(history), &wanted)
    };
    let twice = failed(2, 2);
    assert_eq!(step(&[&old, &twice], true, None, "new"), remove);
    assert_eq!(step(&[&old, &twice], true, Some(1), "new"), remove);
    assert_eq!(step(&[&old, &twice], true, Some(2), "new"), retry);
    assert_eq!(step(&[&old, &twice], false, None, "new"), rollback);
    assert_eq!(step(&[&old, &twice], true, None, "newer"), Step::Upgrade);
    // A crash in between.
    assert_eq!(step(&[&old, &uninstalling], true, None, "new"), remove);
    assert_eq!(step(&[&uninstalling], true, None, "new"), remove);
    assert_eq!(
        step(&[&old, &uninstalling], true, None, "newer"),
        Step::Install
    );
    assert_eq!(
        step(&[&old, &uninstalling], false, None, "new"),
        Step::Install
    );
    // The records are gone: the release is installed. If that fails, it is an install that failed.
    assert_eq!(step(&[], true, None, "new"), Step::Install);
    assert_eq!(
        step(&[&failed(1, 9)], true, None, "new"),
        Step::Retry {
            revision: revision(1)
        }
    );
}
