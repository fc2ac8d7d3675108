//! Records that are too large for a Secret: data that does not change between two writes of a
//! revision is stored separately, as far as necessary.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::codec::{self, CodecError};
use super::{Info, Release, ReleaseChart};
use crate::manifest::{Hook, HookExecution};
use crate::values::Values;

/// Maximum size of a stored record, in bytes, so that its Secret stays below the 1 MiB that
/// Kubernetes accepts.
pub const MAX_STORED: usize = 1_048_576 - 16_384;

/// Fraction of the limit reserved for what changes between two writes of a revision.
const RESERVE: usize = 64;

/// Notes that Helm's command line shows for a release whose manifest was taken out.
const TOO_LARGE: &str = "This release is too large for the Helm command line; use its operator.";

/// A record that fits into Secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// The record, possibly reduced, as encoded by [`codec::encode`].
    pub record: String,
    /// Removed data, encoded, to be stored in pieces; empty if there is none. It is the same
    /// for every write of a revision: status, description, times and last runs of hooks stay in the
    /// record.
    pub removed: String,
}

/// Takes something out of the record `to`, a copy of `from`.
type RemovalStep = fn(from: &Release, to: &mut Release, removed: &mut Removed);

/// Steps that take data out, in this order.
const REMOVAL_STEPS: [RemovalStep; 4] = [
    |from, to, removed| {
        with_chart(from, to, |from, to| {
            removed.chart.files.clone_from(&from.files);
            to.files = None;
        });
    },
    |from, to, removed| {
        with_chart(from, to, |from, to| {
            removed.chart.templates.clone_from(&from.templates);
            to.templates = None;
        });
    },
    |from, to, removed| {
        with_chart(from, to, |from, to| {
            removed.chart.schema.clone_from(&from.schema);
            removed.chart.values.clone_from(&from.values);
            to.schema = None;
            to.values = None;
        });
    },
    |from, to, removed| {
        removed.body = Some(RecordBody::take(from, to));
    },
];

/// Encodes a record in at most `limit` bytes. While it is larger, data is taken out: first the
/// chart's files, templates, and schema and values, none of which Helm's rollback, uninstall, get
/// and test need; last the manifest, hooks and config, after which Helm sees an empty release with
/// notes that say so.
///
/// # Errors
/// If the record cannot be serialized.
pub fn compact(release: &Release, limit: usize) -> Result<Compacted, CodecError> {
    let usual = limit - limit / RESERVE;
    let record = codec::encode(release)?;
    if record.len() <= usual {
        let removed = String::new();
        return Ok(Compacted { record, removed });
    }
    // Decide by the constant part, so that the decision is constant as well.
    let mut constant = without_progress(release);
    let mut reduced = release.clone();
    let mut removed = Removed::default();
    let mut record = record;
    let mut steps = REMOVAL_STEPS.iter();
    while record.len() > limit || codec::encode(&constant)?.len() > usual {
        let Some(step) = steps.next() else {
            break;
        };
        step(release, &mut constant, &mut removed);
        step(release, &mut reduced, &mut removed);
        record = codec::encode(&reduced)?;
    }
    let removed = if removed.is_empty() {
        String::new()
    } else {
        codec::pack(&codec::go_json(&removed).map_err(CodecError::Json)?)?
    };
    Ok(Compacted { record, removed })
}

/// Restores what [`compact`] took out.
///
/// # Errors
/// If the text is not such a record, or does not belong to the chart.
pub fn restore(release: &mut Release, removed: &[u8]) -> Result<(), CodecError> {
    let json = codec::unpack(removed)?;
    let Removed { chart, body } = serde_json::from_slice(&json).map_err(CodecError::Json)?;
    let target = release.chart.get_or_insert_default();
    target.files = target.files.take().or(chart.files);
    target.templates = target.templates.take().or(chart.templates);
    target.schema = target.schema.take().or(chart.schema);
    target.values = target.values.take().or(chart.values);
    if let Some(body) = body {
        body.put_back(release);
    }
    Ok(())
}

/// Returns the record without what changes while its revision is deployed.
fn without_progress(release: &Release) -> Release {
    let mut constant = release.clone();
    constant.info = Info {
        notes: std::mem::take(&mut constant.info.notes),
        ..Info::default()
    };
    for hook in &mut constant.hooks {
        hook.last_run = HookExecution::default();
    }
    constant
}

fn with_chart(
    from: &Release,
    to: &mut Release,
    take: impl FnOnce(&ReleaseChart, &mut ReleaseChart),
) {
    if let (Some(from), Some(to)) = (&from.chart, &mut to.chart) {
        take(from, to);
    }
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
struct Removed {
    chart: ReleaseChart,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    body: Option<RecordBody>,
}

impl Removed {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Manifest, hooks and config.
#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct RecordBody {
    manifest: String,
    config: Values,
    /// Without their last runs.
    hooks: Vec<Hook>,
    notes: String,
    #[serde(rename = "valuesFrom", skip_serializing_if = "Option::is_none")]
    values_from: Option<BTreeMap<String, BTreeMap<String, String>>>,
}

impl RecordBody {
    /// Takes the body of `from` out of `to`. Hooks keep their names and last runs but have no
    /// events, so that Helm does not run them.
    fn take(from: &Release, to: &mut Release) -> Self {
        let mut hooks = from.hooks.clone();
        for (hook, left) in hooks.iter_mut().zip(&mut to.hooks) {
            hook.last_run = HookExecution::default();
            *left = Hook {
                name: std::mem::take(&mut left.name),
                kind: std::mem::take(&mut left.kind),
                path: std::mem::take(&mut left.path),
                last_run: std::mem::take(&mut left.last_run),
                ..Hook::default()
            };
        }
        to.manifest = String::new();
        to.config = Values::new();
        TOO_LARGE.clone_into(&mut to.info.notes);
        to.values_from = None;
        Self {
            manifest: from.manifest.clone(),
            config: from.config.clone(),
            hooks,
            notes: from.info.notes.clone(),
            values_from: from.values_from.clone(),
        }
    }

    fn put_back(self, release: &mut Release) {
        let left = std::mem::replace(&mut release.hooks, self.hooks);
        for (hook, left) in release.hooks.iter_mut().zip(left) {
            if (&hook.name, &hook.path) == (&left.name, &left.path) {
                hook.last_run = left.last_run;
            }
        }
        release.manifest = self.manifest;
        release.config = self.config;
        release.info.notes = self.notes;
        release.values_from = self.values_from;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::manifest::{HookEvent, HookPhase};
    use crate::release::{Revision, Status, StoredFile};

    fn incompressible_bytes(length: usize, mut seed: u64) -> Arc<[u8]> {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed.to_be_bytes()[0]
        };
        (0..length).map(|_| next()).collect()
    }

    fn release() -> Release {
        let mut release = Release::new("big".parse().unwrap(), "n", Revision::FIRST);
        let file = |name: &str, seed| StoredFile {
            name: name.to_owned(),
            data: incompressible_bytes(40_000, seed),
            modified: None,
        };
        release.chart = Some(ReleaseChart {
            templates: Some(vec![file("templates/a.yaml", 1)]),
            files: Some(vec![file("big.bin", 2)]),
            values: Some(serde_json::from_str(r#"{"a":1}"#).unwrap()),
            ..ReleaseChart::default()
        });
        release
    }

    /// Returns a release whose manifest and hooks alone are large.
    fn large_body() -> Release {
        let mut release = release();
        release.manifest = data_encoding::BASE64.encode(&incompressible_bytes(60_000, 3));
        release.info.notes = "the notes".to_owned();
        release.config = serde_json::from_str(r#"{"b":2}"#).unwrap();
        release.hooks = vec![Hook {
            name: "h".to_owned(),
            kind: "Job".to_owned(),
            path: "chart/templates/h.yaml".to_owned(),
            manifest: "kind: Job".to_owned(),
            events: vec![HookEvent::PreInstall],
            weight: 3,
            ..Hook::default()
        }];
        release
    }

    fn round_trip(release: &Release, limit: usize) -> (Release, Compacted) {
        let compacted = compact(release, limit).unwrap();
        assert!(compacted.record.len() <= limit);
        let seen_by_helm = codec::decode(compacted.record.as_bytes()).unwrap();
        let mut read = seen_by_helm.clone();
        restore(&mut read, compacted.removed.as_bytes()).unwrap();
        assert_eq!(&read, release);
        (seen_by_helm, compacted)
    }

    #[test]
    fn small_record_is_unchanged() {
        let compacted = compact(&release(), MAX_STORED).unwrap();
        assert!(compacted.removed.is_empty());
    }

    #[test]
    fn chart_is_removed_until_the_record_fits_and_restored() {
        for (limit, templates_stay) in [(90_000, true), (20_000, false)] {
            let (seen_by_helm, _) = round_trip(&release(), limit);
            let chart = seen_by_helm.chart.unwrap();
            assert!(chart.files.is_none());
            assert_eq!(chart.templates.is_some(), templates_stay);
            assert!(chart.values.is_some());
        }
    }

    #[test]
    fn oversized_body_is_removed_and_restored() {
        let (seen_by_helm, _) = round_trip(&large_body(), 20_000);
        assert!(seen_by_helm.info.notes.contains("too large"));
        assert!(seen_by_helm.manifest.is_empty() && seen_by_helm.config.is_empty());
        // Helm has nothing to run.
        assert!(seen_by_helm.hooks[0].events.is_empty());
    }

    #[test]
    fn removed_data_is_the_same_for_every_write_of_a_revision() {
        let mut release = large_body();
        for limit in [20_000, 150_000] {
            let first = round_trip(&release, limit).1.removed;
            assert!(!first.is_empty());
            release.set_status(Status::PendingInstall, "running hooks ".repeat(50));
            release.info.last_deployed = Some("2026-01-02T03:04:05Z".parse().unwrap());
            release.hooks[0].last_run.phase = HookPhase::Running;
            assert_eq!(round_trip(&release, limit).1.removed, first);
            release.set_status(Status::Deployed, "done");
            release.hooks[0].last_run.phase = HookPhase::Succeeded;
            assert_eq!(round_trip(&release, limit).1.removed, first);
        }
    }

    #[test]
    fn changing_data_does_not_affect_how_much_is_removed() {
        let mut release = release();
        // Slightly below the usual limit, so that a longer description exceeds it.
        let size = codec::encode(&release).unwrap().len();
        let limit = size + size / 60;
        assert!(compact(&release, limit).unwrap().removed.is_empty());
        let random = data_encoding::HEXLOWER.encode(&incompressible_bytes(400, 9));
        release.set_status(Status::Failed, random);
        assert!(codec::encode(&release).unwrap().len() > limit - limit / RESERVE);
        assert!(compact(&release, limit).unwrap().removed.is_empty());
    }
}
