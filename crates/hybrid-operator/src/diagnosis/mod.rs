//! Finds why an object does not become ready: what a person would look up in its Pods, their events
//! and their logs.
//!
//! ```text
//! unready objects -> Pods, events, log (read now, not watched) -> finding per object -> cause
//! ```
//!
//! Only [`evidence`] sends requests. What it reads is judged by [`pod`] and [`creation`], which are
//! pure. Texts of the kubelet and the scheduler are shortened for people; nothing else depends on
//! them.
//!
//! RBAC: `get` on the workloads, `list` on `pods` and `events`, and `get` on `pods/log` for the last
//! lines of a crashed container. What may not be read is left out.

mod creation;
mod evidence;
mod pod;

use helm_core::manifest::ObjectKey;

use crate::cluster::Cluster;
use crate::reasons::Reason;
use evidence::Evidence;

/// Maximum number of unready objects that are examined.
const MAX_EXAMINED: usize = 3;
/// Maximum length of a text from elsewhere in a message, in bytes.
const MAX_TEXT: usize = 300;

/// Why a release is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    /// Reason in `CamelCase`, such as `ImagePullFailed`.
    pub(crate) reason: Reason,
    /// Object, Pod and explanation, such as `Deployment/db: Pod db-0: image x not found (12 times)`.
    pub(crate) message: String,
}

/// What was found about one object. The most severe finding is the cause.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    severity: Severity,
    reason: Reason,
    message: String,
}

/// How likely a finding is the cause of the others: a crash may follow from another Pod that did not
/// start.
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

/// Returns why these objects are not ready, or `None` if that cannot be told. Sends a few requests
/// for each object; objects after the third are not examined. `logs` tells whether
/// logs of containers are read.
pub(crate) async fn cause(cluster: &Cluster, unready: &[ObjectKey], logs: bool) -> Option<Cause> {
    let mut worst: Option<Finding> = None;
    for key in unready.iter().take(MAX_EXAMINED) {
        let evidence = Evidence::new(cluster, key, logs);
        let Some(finding) = evidence.finding().await else {
            continue;
        };
        // The first of equally severe findings is kept.
        if worst
            .as_ref()
            .is_none_or(|known| known.severity < finding.severity)
        {
            worst = Some(Finding {
                message: format!("{}/{}: {}", key.kind, key.name, finding.message),
                ..finding
            });
        }
    }
    worst.map(|finding| Cause {
        reason: finding.reason,
        message: finding.message,
    })
}

/// Shortens a text from elsewhere to one line of a limited length.
fn shortened(text: &str) -> String {
    let line: Vec<&str> = text.split_whitespace().collect();
    let line = line.join(" ");
    if line.len() <= MAX_TEXT {
        return line;
    }
    let end = (0..=MAX_TEXT).rev().find(|end| line.is_char_boundary(*end));
    let kept = end.and_then(|end| line.get(..end)).unwrap_or_default();
    format!("{kept}…")
}

/// Says how often something happened, if more than once.
fn times(count: i32) -> String {
    if count > 1 {
        format!(" ({count} times)")
    } else {
        String::new()
    }
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
