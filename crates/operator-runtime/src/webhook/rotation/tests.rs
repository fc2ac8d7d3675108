//! The whole life of a certificate, with a clock that the tests move.

use std::time::Duration;

use jiff::Timestamp;

use super::{Policy, Step, Stored, certificate, has_expired};
use crate::webhook::certificate::HostName;

const DAY: Duration = Duration::from_hours(24);

fn policy() -> Policy {
    Policy {
        names: vec![HostName::Dns("hooks.ns.svc".to_owned())],
        lifetime: 90 * DAY,
    }
}

fn start() -> Timestamp {
    "2030-01-01T00:00:00Z".parse().unwrap()
}

fn step(policy: &Policy, stored: &Stored, now: Timestamp, announced: bool) -> (Step, Stored) {
    let step = policy.step(stored, now, announced);
    let changed = policy.apply(step, stored, now).unwrap();
    (step, changed.unwrap_or_else(|| stored.clone()))
}

/// Whether an API server that trusts `authorities` accepts what is served.
fn is_trusted(served: &Stored, authorities: &str, now: Timestamp) -> bool {
    let leaf = certificate::describe("tls.crt", &served.certificate).unwrap();
    let all = certificate::describe("ca.crt", authorities).unwrap();
    let issuer = all.iter().find(|authority| leaf[0].is_issued_by(authority));
    issuer.is_some_and(|issuer| now < issuer.period.until && now < leaf[0].period.until)
}

#[test]
fn certificate_is_renewed_after_two_thirds_of_its_life_with_an_overlap() {
    let policy = policy();
    let first = policy.first(start()).unwrap();
    assert_eq!(policy.step(&first, start() + 59 * DAY, true), Step::Keep);
    let now = start() + 60 * DAY;
    let (announced, next) = step(&policy, &first, now, false);
    assert_eq!(announced, Step::Announce);
    assert_eq!(next.certificate, first.certificate, "it is not served yet");
    assert!(next.authorities.starts_with(&first.authorities));
    // It is not known everywhere.
    assert_eq!(policy.step(&next, now, false), Step::Keep);

    let (switched, second) = step(&policy, &next, now, true);
    assert_eq!(switched, Step::Switch);
    assert_ne!(second.certificate, first.certificate);
    assert_eq!(second.authorities, next.authorities, "the former one stays");
    assert_eq!(policy.step(&second, start() + 89 * DAY, true), Step::Keep);
    let (forgot, last) = step(&policy, &second, start() + 90 * DAY, true);
    assert_eq!(forgot, Step::Forget);
    let both = first.authorities.clone() + &last.authorities;
    assert_eq!(both, second.authorities);
}

#[test]
fn every_replica_is_trusted_by_every_api_server_for_more_than_a_year() {
    // Replicas and API servers see each change one step, which is three days, after the other.
    let policy = policy();
    let mut secret = policy.first(start()).unwrap();
    let mut seen = vec![secret.clone(); 4];
    let mut bundles = vec![secret.authorities.clone(); 4];
    let mut certificates = std::collections::BTreeSet::new();
    for step_number in 0..160 {
        let day = 3 * step_number;
        let now = start() + day * DAY;
        seen.insert(0, secret.clone());
        seen.pop();
        bundles.insert(0, secret.authorities.clone());
        bundles.pop();
        for served in &seen[..3] {
            certificates.insert(served.certificate.clone());
            for bundle in &bundles[..3] {
                assert!(is_trusted(served, bundle, now), "day {day}");
            }
        }
        // All have had the bundle since before the oldest that is still in use.
        let announced = bundles.iter().all(|bundle| *bundle == secret.authorities);
        (_, secret) = step(&policy, &secret, now, announced);
        let known = secret.authorities.matches("BEGIN").count();
        assert!(known <= 2, "day {day}");
    }
    let made = certificates.len();
    assert!(made > 6, "{made} certificates");
    assert!(!has_expired(&secret.authorities, start() + 480 * DAY));
}

#[test]
fn stored_certificate_that_cannot_be_used_is_replaced_at_once() {
    let policy = policy();
    let good = policy.first(start()).unwrap();
    let other = policy.first(start()).unwrap();
    let broken = |change: &dyn Fn(&mut Stored)| {
        let mut stored = good.clone();
        change(&mut stored);
        stored
    };
    let (unreadable, unsigned) = ("it cannot be read", "its authority is missing");
    for (why, stored) in [
        (unreadable, Stored::default()),
        (unreadable, broken(&|s| s.key.clone_from(&other.key))),
        (unreadable, broken(&|s| s.certificate = "text".to_owned())),
        (
            unsigned,
            broken(&|s| s.authorities.clone_from(&other.authorities)),
        ),
        (unsigned, broken(&|s| s.authorities.clear())),
    ] {
        let (step, replaced) = step(&policy, &stored, start(), true);
        assert_eq!(step, Step::Replace(why));
        assert_eq!(policy.step(&replaced, start(), true), Step::Keep);
        assert!(is_trusted(&replaced, &replaced.authorities, start()));
    }
    let late = start() + 90 * DAY;
    let expected = Step::Replace("it has expired");
    assert_eq!(policy.step(&good, late, true), expected);
    let renamed = Policy {
        names: vec![HostName::new("127.0.0.1")],
        ..policy
    };
    let expected = Step::Replace("it is for other names");
    assert_eq!(renamed.step(&good, start(), true), expected);
}

#[test]
fn next_certificate_takes_over_from_one_that_has_expired() {
    let policy = policy();
    let first = policy.first(start()).unwrap();
    let (_, next) = step(&policy, &first, start() + 89 * DAY, false);
    let late = start() + 91 * DAY;
    let (switched, second) = step(&policy, &next, late, false);
    assert_eq!(switched, Step::Switch);
    assert!(is_trusted(&second, &second.authorities, late));
    // A next certificate that is broken is made again.
    let broken = Stored {
        next: Some(("text".to_owned(), "text".to_owned())),
        ..policy.first(start()).unwrap()
    };
    let (announced, repaired) = step(&policy, &broken, start(), true);
    assert_eq!(announced, Step::Announce);
    assert_eq!(policy.step(&repaired, start(), false), Step::Keep);
}
