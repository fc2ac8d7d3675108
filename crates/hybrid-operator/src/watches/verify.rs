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
    /// The owner of a key in a keyring, with a provenance file as Helm makes it.
    Provenance {
        /// File with the public keys.
        keyring: PathBuf,
    },
}

impl Verify {
    /// Returns the file with the public keys.
    pub fn file(&self) -> &Path {
        match self {
            Self::Cosign { key } => key,
            Self::Provenance { keyring } => keyring,
        }
    }

    /// Reads the public keys.
    ///
    /// # Errors
    /// If the file cannot be read, or has no key.
    pub fn policy(&self) -> Result<Policy, VerifyError> {
        match self {
            Self::Cosign { key } => Policy::cosign_key(key),
            Self::Provenance { keyring } => Policy::keyring(keyring),
        }
    }
}

/// Reads the field `verify` of a chart.
pub(super) fn read(fields: &mut Fields<'_>, base: &Path) -> Option<Verify> {
    fields.section("verify", |verify| {
        let given = ["cosign", "provenance"].map(|field| verify.has(field));
        let key = verify.section("cosign", |cosign| {
            cosign.refuse(
                "identity",
                "signatures without a key are not verified; sign with a key (`cosign sign --key`) and give its \
                 public part as `key`",
            );
            cosign.required("key", name)
        });
        let keyring = verify.section("provenance", |provenance| {
            provenance.required("keyring", name)
        });
        match given {
            [true, false] => Some(Verify::Cosign {
                key: base.join(key.flatten()?),
            }),
            [false, true] => {
                if !Policy::HAS_PROVENANCE {
                    verify.wrong(VerifyError::NotBuilt.to_string());
                }
                Some(Verify::Provenance {
                    keyring: base.join(keyring.flatten()?),
                })
            }
            _ => {
                let forms = "give either `cosign` with the file of a public `key`, or `provenance` with a `keyring`";
                verify.wrong(forms.to_owned());
                None
            }
        }
    })?
}
