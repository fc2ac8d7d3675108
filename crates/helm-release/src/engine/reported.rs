//! State of a release as last reported to its owner, who knows it after a restart, too.

use serde::{Deserialize, Serialize};

use crate::release::RecordMeta;

/// Release in the status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReleaseStatus {
    /// Name of the release.
    pub name: String,
    /// Newest revision.
    pub revision: u32,
    /// Helm's status of that revision.
    pub status: String,
    /// Name and version of the chart, `NAME-VERSION`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chart_version: Option<String>,
    /// `appVersion` of the chart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_version: Option<String>,
    /// Digest of the inputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Hash of the operator's fields of all objects of the deployed revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Revision that the chart's tests ran on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tested: Option<u32>,
}

/// Handled values of one-time annotations.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Handled {
    /// `force-at`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub force_at: Option<String>,
    /// `reconcile-at`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reconcile_at: Option<String>,
    /// `reset-at`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_at: Option<String>,
    /// Newest revision whose failures no longer count after `reset-at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forgiven: Option<u32>,
}

/// Knowledge about a release from former processes, beside its records.
#[derive(Debug, Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Reported {
    /// The release as last reported.
    pub release: Option<ReleaseStatus>,
    /// Whether the release was reported as deployed.
    pub is_deployed: bool,
    /// Whether the report says that nothing has failed.
    pub is_sound: bool,
    /// Whether a failure was reported.
    pub is_failed: bool,
    /// Whether a failure of the present generation was reported.
    pub is_failed_now: bool,
    /// Whether the release was ready before this generation, which may be that of the deletion.
    pub was_ready: bool,
    /// Handled values of one-time instructions.
    pub handled: Handled,
}

impl Reported {
    /// Returns whether the report is about this record, and not about one of the same number that is gone.
    pub fn is_about(&self, record: &RecordMeta) -> bool {
        let release = self.release.as_ref();
        let digest = record.digest.as_ref().map(ToString::to_string);
        release.is_some_and(|release| {
            release.revision == record.revision.0
                && release.status == record.status.to_string()
                && release.digest == digest
        })
    }

    /// Returns whether this record was reported as deployed without a failure.
    pub fn is_deployment_of(&self, record: &RecordMeta) -> bool {
        self.is_about(record) && self.is_deployed && self.is_sound
    }

    /// Returns whether it was reported why this record failed.
    pub fn is_failure_of(&self, record: &RecordMeta) -> bool {
        self.is_about(record) && self.is_failed
    }

    /// Returns whether the result of the tests of this record was reported.
    pub fn is_test_of(&self, record: &RecordMeta) -> bool {
        let tested = self.release.as_ref().and_then(|release| release.tested);
        tested == Some(record.revision.0) && self.is_about(record)
    }
}
