//! `Status`: the nine states of a release.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The state of a release record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Nothing is known; also any word that Helm does not write.
    #[default]
    Unknown,
    /// It is what the cluster has.
    Deployed,
    /// It was uninstalled and its history kept.
    Uninstalled,
    /// A later revision took its place.
    Superseded,
    /// Deploying it failed.
    Failed,
    /// It is being uninstalled.
    Uninstalling,
    /// It is being installed.
    PendingInstall,
    /// It is being upgraded to.
    PendingUpgrade,
    /// It is being rolled back to.
    PendingRollback,
}

impl Status {
    /// All nine.
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

    /// The word that Helm writes in records and labels.
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

    /// Whether an install, upgrade or rollback is under way.
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
    fn every_state_reads_what_it_writes() {
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
