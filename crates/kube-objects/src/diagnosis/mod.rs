//! Finds why objects do not become ready: what a person would look up in their Pods, the events and the
//! logs.
//!
//! ```text
//! unready objects of a namespace -> Pods, events, claims, logs -> finding per object -> cause per release
//! ```
//!
//! | module | does |
//! |---|---|
//! | `rounds` | when: at most once a minute for all releases of a namespace, in the background |
//! | `examine` | which requests, and what they tell of which object |
//! | `reading` | the requests |
//! | `pod`, `creation`, `event` | judge what was read; pure |
//!
//! Texts of the kubelet and the scheduler are shortened for people; nothing else depends on them.
//!
//! RBAC: `list` on `pods`, `events` and `persistentvolumeclaims`, and `get` on `pods/log` for the last
//! lines of a crashed container. What may not be read is left out.

mod creation;
mod event;
mod examine;
mod pod;
mod reading;
mod reason;
mod rounds;

use std::collections::BTreeMap;
use std::fmt;

use object_key::ObjectKey;

use crate::Cluster;
use examine::{Case, Place, examine};
use reading::{Reader, Selection};

pub use reason::Reason;
pub use rounds::{Patient, Rounds};

/// Maximum number of unready objects of a release that are examined.
const MAX_EXAMINED: usize = 3;
/// Maximum length of a text from elsewhere in a message, in bytes.
const MAX_TEXT: usize = 300;

/// Cause of an unready release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// Reason in `CamelCase`, such as `ImagePullFailed`.
    pub reason: Reason,
    /// Object, Pod and explanation, such as `Deployment/db: Pod db-0: image x not found (12 times)`.
    pub message: String,
}

impl Cause {
    /// Returns the cause that a condition names; `None` if nobody has looked for it yet.
    pub fn of_condition(reason: &str, message: &str) -> Option<Self> {
        let reason = Reason::ALL.iter().find(|cause| cause.as_str() == reason)?;
        if *reason == Reason::ObjectsNotReady {
            return None;
        }
        Some(Self {
            reason: *reason,
            message: message.to_owned(),
        })
    }
}

/// Finding about one object. The most severe finding is the cause.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    severity: Severity,
    reason: Reason,
    /// The explanation without the numbers that grow.
    message: String,
    repeats: Repeats,
    /// The end of the log of a crash.
    log: Option<String>,
}

/// Number of times that something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Repeats {
    Once,
    Times(i32),
    Restarts(i32),
}

impl Repeats {
    /// Returns the order of magnitude: the number of times that it has doubled.
    fn magnitude(self) -> u32 {
        match self {
            Self::Once => 0,
            Self::Times(count) | Self::Restarts(count) => count.max(1).ilog2(),
        }
    }
}

impl fmt::Display for Repeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(count) if *count > 1 => write!(f, " ({count} times)"),
            Self::Restarts(1) => f.write_str(", 1 restart"),
            Self::Restarts(count) if *count > 1 => write!(f, ", {count} restarts"),
            Self::Once | Self::Times(_) | Self::Restarts(_) => Ok(()),
        }
    }
}

impl Finding {
    fn new(severity: Severity, reason: Reason, message: String) -> Self {
        Self {
            severity,
            reason,
            message,
            repeats: Repeats::Once,
            log: None,
        }
    }

    /// Names the object that the finding is about.
    fn within(self, object: &str) -> Self {
        Self {
            message: format!("{object}: {}", self.message),
            ..self
        }
    }

    /// Returns the whole text.
    fn text(&self) -> String {
        let text = format!("{}{}", self.message, self.repeats);
        match &self.log {
            Some(log) => format!("{text}; its log ends with:\n{log}"),
            None => text,
        }
    }

    fn cause(&self) -> Cause {
        Cause {
            reason: self.reason,
            message: self.text(),
        }
    }
}

/// Likelihood that a finding is the cause of the others: a crash may follow from another Pod that
/// did not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    /// Still starting.
    Starting,
    /// Runs, but is not ready.
    NotReady,
    /// Runs and ends.
    Crashes,
    /// Cannot run at all.
    CannotRun,
}

/// Returns the most severe finding about these objects, the first of equally severe ones.
fn worst<'a>(found: impl Iterator<Item = (&'a ObjectKey, &'a Finding)>) -> Option<Finding> {
    let worst = found.reduce(|known, next| {
        if known.1.severity < next.1.severity {
            next
        } else {
            known
        }
    });
    let (key, finding) = worst?;
    let object = format!("{}/{}", key.kind, key.name);
    Some(finding.clone().within(&object))
}

/// Returns why a Job or Pod did not do its work, from what is left of its Pods now; `None` if that
/// cannot be told. `logs` tells whether logs of containers are read.
pub async fn of_ended(cluster: &Cluster, object: &ObjectKey, logs: bool) -> Option<Cause> {
    let place = Place::of(object)?;
    let pods = match object.kind.as_str() {
        "Job" => Selection {
            labels: Some(format!("job-name={}", object.name)),
            fields: None,
        },
        _ => Selection::fields(format!("metadata.name={}", object.name)),
    };
    let reader = Reader {
        client: cluster.client(),
        namespace: object.namespace.as_deref().unwrap_or_default(),
    };
    let case = Case {
        logs,
        ..Case::default()
    };
    let mut cases = BTreeMap::from([(place.clone(), case)]);
    if let Err(error) = examine(&reader, &pods, &mut cases).await {
        let error: &dyn std::error::Error = &error;
        tracing::debug!(%object, error, "cannot read why an object failed");
    }
    let finding = cases.remove(&place)?.finding?;
    Some(worst(std::iter::once((object, &finding)))?.cause())
}

/// Shortens a text from elsewhere to one line of a limited length.
fn shortened(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    if line.len() <= MAX_TEXT {
        return line;
    }
    let end = (0..=MAX_TEXT).rev().find(|end| line.is_char_boundary(*end));
    let kept = end.and_then(|end| line.get(..end)).unwrap_or_default();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn long_texts_are_cut_at_a_character() {
        assert_eq!(shortened("a\n  b\tc "), "a b c");
        let cut = shortened(&"é".repeat(200));
        assert_eq!(cut, format!("{}…", "é".repeat(150)));
    }
}
