//! Decides what happens to the stored certificate: kept, announced, switched, replaced.
//!
//! ```text
//!          2/3 of its life            every bundle has the authority      expired
//! serve A -----------------> announce B ------------------------> serve B --------> forget A
//! ```
//!
//! The API server must trust an authority before it sees a certificate of it, and replicas learn of
//! a new certificate one after the other. So the authority of the next certificate is announced
//! first, in the bundle of all configurations; that of the former one stays until it has expired.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::certificate::{self, CertificateError, Described, HostName, Pair, Period};

/// The content of the Secret, in PEM.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Stored {
    /// `tls.crt`: what is served.
    pub(super) certificate: String,
    /// `tls.key`
    pub(super) key: String,
    /// `ca.crt`: all authorities that the API server is to trust.
    pub(super) authorities: String,
    /// `next.crt` and `next.key`: what is served once its authority is known everywhere.
    pub(super) next: Option<(String, String)>,
}

/// Next step for the stored certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Keep,
    /// A new certificate is stored as the next one, with its authority.
    Announce,
    /// The next certificate is served.
    Switch,
    /// A new certificate is served at once, because the stored one cannot be used.
    Replace(&'static str),
    /// Authorities that have expired are removed.
    Forget,
}

/// Names and life of the certificates to make.
#[derive(Debug, Clone)]
pub(super) struct Policy {
    /// Names that the certificate must have.
    pub(super) names: Vec<HostName>,
    pub(super) lifetime: Duration,
}

impl Policy {
    fn new_pair(&self, now: Timestamp) -> Result<Pair, CertificateError> {
        // The clocks of the API servers may be a little behind.
        let early = (self.lifetime / 24).min(Duration::from_hours(1));
        let far = |at: Result<Timestamp, jiff::Error>| at.unwrap_or(Timestamp::MAX);
        let period = Period {
            from: now.checked_sub(early).unwrap_or(now),
            until: far(now.checked_add(self.lifetime)),
        };
        certificate::generate(&self.names, period)
    }

    /// Returns the first content of the Secret.
    pub(super) fn first(&self, now: Timestamp) -> Result<Stored, CertificateError> {
        let pair = self.new_pair(now)?;
        Ok(Stored {
            certificate: pair.certificate,
            key: pair.key,
            authorities: pair.authority,
            next: None,
        })
    }

    /// Decides what to do. `announced` says that every configuration has had all stored authorities
    /// for long enough.
    pub(super) fn step(&self, stored: &Stored, now: Timestamp, announced: bool) -> Step {
        let next = stored
            .next
            .as_ref()
            .map(|(crt, key)| self.usable(crt, key, &stored.authorities, now));
        match self.usable(&stored.certificate, &stored.key, &stored.authorities, now) {
            Err(_) if matches!(next, Some(Ok(_))) => Step::Switch,
            Err(why) => Step::Replace(why),
            Ok(current) => match next {
                Some(Err(_)) => Step::Announce,
                Some(Ok(_)) if announced => Step::Switch,
                None if now >= renewal(current.period) => Step::Announce,
                None if has_expired(&stored.authorities, now) => Step::Forget,
                Some(Ok(_)) | None => Step::Keep,
            },
        }
    }

    /// Returns what a step makes of the stored content, or `None` if it stays the same.
    pub(super) fn apply(
        &self,
        step: Step,
        stored: &Stored,
        now: Timestamp,
    ) -> Result<Option<Stored>, CertificateError> {
        let mut changed = stored.clone();
        changed.authorities = unexpired(&stored.authorities, now);
        match step {
            Step::Keep => return Ok(None),
            Step::Forget => {}
            Step::Announce => {
                let pair = self.new_pair(now)?;
                changed.authorities.push_str(&pair.authority);
                changed.next = Some((pair.certificate, pair.key));
            }
            Step::Switch => {
                if let Some((certificate, key)) = changed.next.take() {
                    changed.certificate = certificate;
                    changed.key = key;
                }
            }
            Step::Replace(_) => {
                let first = self.first(now)?;
                let authorities = changed.authorities + &first.authorities;
                changed = Stored {
                    authorities,
                    ..first
                };
            }
        }
        Ok(Some(changed))
    }

    /// Checks that a certificate can be served, or says why not.
    fn usable(
        &self,
        certificate: &str,
        key: &str,
        authorities: &str,
        now: Timestamp,
    ) -> Result<Described, &'static str> {
        if certificate::certified(certificate, key).is_err() {
            return Err("it cannot be read");
        }
        let described = certificate::describe("tls.crt", certificate).ok();
        let Some(described) = described.and_then(|all| all.into_iter().next()) else {
            return Err("it cannot be read");
        };
        let authorities = certificate::describe("ca.crt", authorities).unwrap_or_default();
        if !authorities.iter().any(|ca| described.is_issued_by(ca)) {
            return Err("its authority is missing");
        }
        if !described.covers(&self.names) {
            return Err("it is for other names");
        }
        if now >= described.period.until {
            return Err("it has expired");
        }
        Ok(described)
    }
}

/// Returns the time at which a certificate is renewed: after two thirds of its life.
fn renewal(period: Period) -> Timestamp {
    let life: SignedDuration = period.until.duration_since(period.from);
    period
        .from
        .checked_add(life / 3 * 2)
        .unwrap_or(period.until)
}

fn has_expired(authorities: &str, now: Timestamp) -> bool {
    let all = certificate::describe("ca.crt", authorities).unwrap_or_default();
    all.iter().any(|ca| now >= ca.period.until)
}

/// Returns the readable authorities that have not expired.
fn unexpired(authorities: &str, now: Timestamp) -> String {
    const END: &str = "-----END CERTIFICATE-----\n";
    let valid = |pem: &&str| {
        certificate::describe("ca.crt", pem)
            .is_ok_and(|all| all.iter().all(|ca| now < ca.period.until))
    };
    authorities.split_inclusive(END).filter(valid).collect()
}

#[cfg(test)]
mod tests;
