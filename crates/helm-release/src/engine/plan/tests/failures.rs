//! Tests of failed revisions: when they are tried again, rolled back or left alone.

use super::*;

#[test]
fn attempts_back_off_unless_the_obstacle_has_changed() {
    let mut state = observed(vec![RecordFacts {
        written: Duration::from_secs(3),
        ..failed(1, 3)
    }]);
    assert_eq!(
        next_step(&state, Some(&desired())),
        Step::Wait {
            delay: Duration::from_secs(5),
            until: Until::NextAttempt {
                revision: Revision(1)
            },
        }
    );
    state.obstacle_changed = true;
    assert_eq!(next_step(&state, Some(&desired())), retry(1));
    state.obstacle_changed = false;
    // `reset-at` clears the failures.
    state.forgiven = Revision(1);
    assert_eq!(next_step(&state, Some(&desired())), retry(1));
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
    let clean: fn(&mut DesiredFacts) = |d| d.clean_up = true;
    let gone = |attempts| RecordFacts {
        status: Status::Uninstalled,
        ..failed(1, attempts)
    };
    #[expect(clippy::type_complexity, reason = "one table")]
    let cases: [(&str, RecordFacts, fn(&mut DesiredFacts), Step); 8] = [
        ("no limit", failed(1, 1000), |_| {}, retry(1)),
        (
            "a limit in watches.yaml",
            failed(1, 2),
            |d| d.install_retries = Some(1),
            stalled(1, StallReason::ExceedsRetries),
        ),
        ("a hook failed twice", hook(2), |_| {}, retry(1)),
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
                revision: Revision(1),
            },
        ),
        ("cleaned up", gone(1), clean, retry(1)),
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
            retry(1),
        ),
    ];
    for (name, record, change, expected) in cases {
        let mut wanted = desired();
        change(&mut wanted);
        assert_eq!(
            next_step(&observed(vec![record]), Some(&wanted)),
            expected,
            "{name}"
        );
    }
}

#[test]
fn failed_upgrade_is_retried_rolled_back_or_stalled_as_configured() {
    let step = |attempts, retries, rollback, hook_failed| {
        let mut history = history("1 deployed old, 2 failed new");
        (history[1].attempts, history[1].hook_failed) = (attempts, hook_failed);
        let wanted = DesiredFacts {
            upgrade_retries: retries,
            rollback,
            ..desired()
        };
        next_step(&observed(history), Some(&wanted))
    };
    let stalled = stalled(2, StallReason::ExceedsRetries);
    assert_eq!(step(1, None, true, false), rollback(1));
    assert_eq!(step(1, Some(1), true, false), retry(2));
    assert_eq!(step(2, Some(1), true, false), rollback(1));
    assert_eq!(step(50, None, false, false), retry(2));
    assert_eq!(step(1, Some(0), false, false), stalled);
    assert_eq!(step(MAX_HOOK_ATTEMPTS, None, false, true), stalled);
}

/// Uninstalling a release because its upgrade failed deletes its objects: only on request, only after the
/// retries, and only while the inputs that failed are still desired.
#[test]
fn failed_upgrade_is_uninstalled_and_installed_again_only_on_request() {
    let revision = Revision(2);
    let remove = Step::Remove { revision };
    let step = |records: &str, reinstall: bool, retries, digest: &str| {
        let wanted = DesiredFacts {
            digest: Some(digest.to_owned()),
            rollback: !reinstall,
            reinstall,
            upgrade_retries: retries,
            ..desired()
        };
        next_step(&observed(history(records)), Some(&wanted))
    };
    let twice = "1 deployed old, 2 failed new x2";
    assert_eq!(step(twice, true, None, "new"), remove);
    assert_eq!(step(twice, true, Some(1), "new"), remove);
    assert_eq!(step(twice, true, Some(2), "new"), retry(2));
    assert_eq!(step(twice, false, None, "new"), rollback(1));
    assert_eq!(step(twice, true, None, "newer"), Step::Upgrade(()));
    // A crash in between.
    let crashed = "1 deployed old, 2 uninstalling new x2";
    assert_eq!(step(crashed, true, None, "new"), remove);
    assert_eq!(step("2 uninstalling new x2", true, None, "new"), remove);
    assert_eq!(step(crashed, true, None, "newer"), Step::Install(()));
    assert_eq!(step(crashed, false, None, "new"), Step::Install(()));
    // The records are gone: the release is installed. If that fails, it is an install that failed.
    assert_eq!(step("", true, None, "new"), Step::Install(()));
    assert_eq!(step("1 failed new x9", true, None, "new"), retry(1));
}
