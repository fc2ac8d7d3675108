//! `Status`: the nine states of a release.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The status of a release record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Unknown; also any word that Helm does not write.
    #[default]
    Unknown,
    /// The revision is deployed in the cluster.
    Deployed,
    /// The release was uninstalled, and its history kept.
    Uninstalled,
    /// A later revision replaced this one.
    Superseded,
    /// The deployment of the revision failed.
    Failed,
    /// The release is being uninstalled.
    Uninstalling,
    /// The release is being installed.
    PendingInstall,
    /// The release is being upgraded to this revision.
    PendingUpgrade,
    /// The release is being rolled back to this revision.
    PendingRollback,
}

impl Status {
    /// All statuses.
    pub const ALL: [Self; 9] = [
        Self::Unknown,
        Self::Deployed,
        Self::Uninstalled,
        Self::Superseded,
        Self::Failed,
        Self::Uninstalling,
        Self::PendingInstall,
        Self::PendingUpgrade,
        Self::PendingRollback,
    ];

    /// Returns the word that Helm writes in records and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Deployed => "deployed",
            Self::Uninstalled => "uninstalled",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
            Self::Uninstalling => "uninstalling",
            Self::PendingInstall => "pending-install",
            Self::PendingUpgrade => "pending-upgrade",
            Self::PendingRollback => "pending-rollback",
        }
    }

    /// Returns whether an install, upgrade or rollback is in progress.
    pub fn is_pending(self) -> bool {
        matches!(
            self,
            Self::PendingInstall | Self::PendingUpgrade | Self::PendingRollback
        )
    }
}

impl From<&str> for Status {
    fn from(text: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Ok(text.map(|text| Self::from(&*text)).unwrap_or_default())
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Status;

    #[test]
    fn every_status_parses_its_display_form() {
        for status in Status::ALL {
            let json = serde_json::to_string(&status).unwrap();
            assert_eq!(json, format!("\"{status}\""));
            assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), status);
        }
        assert_eq!(
            serde_json::from_str::<Status>("\"DEPLOYED?\"").unwrap(),
            Status::Unknown
        );
        assert_eq!(
            serde_json::from_str::<Status>("null").unwrap(),
            Status::Unknown
        );
    }
}
