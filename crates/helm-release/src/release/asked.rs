//! One-time annotations that a release has handled, remembered in labels of its records.
//!
//! The status of the owner shows them, too, but the schema of a CRD may prune them there, and
//! a write of the status may be lost. Helm copies labels in its own upgrades and rollbacks.

use std::collections::BTreeMap;

use helm_core::Digest;

use super::meta::RecordMeta;

/// Label: hash of the value of `force-at`.
const FORCE_LABEL: &str = "helm.sdk.operatorframework.io/force-at";
/// Label: hash of the value of `reset-at`.
const RESET_LABEL: &str = "helm.sdk.operatorframework.io/reset-at";

/// Number of hexadecimal digits of a hash.
const DIGITS: usize = 16;

/// Hashes of the values of one-time annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Hash of `force-at`.
    pub force: Option<String>,
    /// Hash of `reset-at`.
    pub reset: Option<String>,
}

impl Asked {
    /// Hashes the values of the annotations, which may have any length.
    pub(crate) fn of(force_at: Option<&str>, reset_at: Option<&str>) -> Self {
        let hash = |value: &str| {
            let mut hash = Digest::of(value).to_string();
            hash.truncate(DIGITS);
            hash
        };
        Self {
            force: force_at.map(hash),
            reset: reset_at.map(hash),
        }
    }

    /// Reads the labels of a record.
    pub(super) fn of_labels(labels: &BTreeMap<String, String>) -> Self {
        Self {
            force: labels.get(FORCE_LABEL).cloned(),
            reset: labels.get(RESET_LABEL).cloned(),
        }
    }

    /// Sets the labels of a record; those of absent annotations are kept.
    pub(crate) fn label(&self, labels: &mut BTreeMap<String, String>) {
        for (label, hash) in [(FORCE_LABEL, &self.force), (RESET_LABEL, &self.reset)] {
            if let Some(hash) = hash {
                labels.insert(label.to_owned(), hash.clone());
            }
        }
    }

    /// Returns whether the newest record that names a value of `force-at` names this one.
    pub(crate) fn is_forced_by(&self, history: &[RecordMeta]) -> bool {
        let mut newest = history
            .iter()
            .rev()
            .filter_map(|meta| meta.asked.force.as_ref());
        self.force.is_some() && newest.next() == self.force.as_ref()
    }

    /// Returns the oldest of the newest records that name this value of `reset-at`: the one that
    /// handled it first.
    pub(crate) fn reset_by<'h>(&self, history: &'h [RecordMeta]) -> Option<&'h RecordMeta> {
        self.reset.as_ref()?;
        let named = history
            .iter()
            .rev()
            .filter(|meta| meta.asked.reset.is_some());
        named
            .take_while(|meta| meta.asked.reset == self.reset)
            .last()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

    use super::Asked;
    use crate::release::RecordMeta;
    use crate::release::meta::Format;

    fn history(asked: &[(Option<&str>, Option<&str>)]) -> Vec<RecordMeta> {
        let records = asked.iter().zip(1..).map(|((force, reset), revision)| {
            let mut labels = BTreeMap::new();
            Asked::of(*force, *reset).label(&mut labels);
            let metadata = ObjectMeta {
                name: Some(format!("sh.helm.release.v1.web.v{revision}")),
                labels: Some(labels),
                ..ObjectMeta::default()
            };
            RecordMeta::of(&metadata, Format::Helm).unwrap()
        });
        records.collect()
    }

    #[test]
    fn labels_have_at_most_63_characters_and_keep_what_is_not_asked_for() {
        let mut labels = BTreeMap::new();
        Asked::of(Some(&"x".repeat(100_000)), None).label(&mut labels);
        assert!(labels.values().all(|value| value.len() <= 63), "{labels:?}");
        Asked::of(None, Some("a")).label(&mut labels);
        assert_eq!(labels.len(), 2);
    }

    #[test]
    fn only_the_newest_value_is_handled() {
        let records = history(&[(Some("a"), None), (Some("b"), None), (None, None)]);
        for (value, handled) in [(Some("a"), false), (Some("b"), true), (None, false)] {
            let forced = Asked::of(value, None).is_forced_by(&records);
            assert_eq!(forced, handled, "{value:?}");
        }
        assert!(!Asked::of(Some("a"), None).is_forced_by(&[]));
    }

    #[test]
    fn a_reset_belongs_to_the_first_record_that_names_it() {
        let (a, b) = ((None, Some("a")), (None, Some("b")));
        let records = history(&[a, b, a, (None, None), a]);
        let by = |value| {
            let asked = Asked::of(None, value);
            asked.reset_by(&records).map(|meta| meta.revision.0)
        };
        assert_eq!(by(Some("a")), Some(3));
        assert_eq!(by(Some("b")), None);
        assert_eq!(by(None), None);
    }
}
