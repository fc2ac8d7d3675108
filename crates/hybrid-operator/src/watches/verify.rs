//! Who must have signed the chart of an entry.

use std::path::{Path, PathBuf};

use chart_source::verify::{Policy, VerifyError};

use super::fields::{Fields, name};

/// Why a signature of cosign is not looked for behind a URL.
pub(super) const COSIGN_NEEDS_REGISTRY: &str = "`verify.cosign` needs a chart in a registry (url: oci://HOST/PATH); \
                                                cosign does not sign archives behind a URL";

/// Who must have signed a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verify {
    /// The owner of a key of cosign.
    Cosign {
        /// File with the public key.
        key: PathBuf,
    },
}

impl Verify {
    /// Returns the file with the public key.
    pub fn file(&self) -> &Path {
        match self {
            Self::Cosign { key } => key,
        }
    }

    /// Reads the public key.
    ///
    /// # Errors
    /// If the file cannot be read, or is not a key.
    pub fn policy(&self) -> Result<Policy, VerifyError> {
        match self {
            Self::Cosign { key } => Policy::cosign_key(key),
        }
    }
}

/// Reads the field `verify` of a chart.
pub(super) fn read(fields: &mut Fields<'_>, base: &Path) -> Option<Verify> {
    fields.section("verify", |verify| {
        let is_given = verify.has("cosign");
        let key = verify.section("cosign", |cosign| {
            cosign.refuse(
                "identity",
                "signatures without a key are not verified; sign with a key (`cosign sign --key`) and give its \
                 public part as `key`",
            );
            cosign.required("key", name)
        });
        if !is_given {
            verify.wrong("give `cosign` with the file of a public `key`".to_owned());
        }
        Some(Verify::Cosign {
            key: base.join(key.flatten()?),
        })
    })?
}
