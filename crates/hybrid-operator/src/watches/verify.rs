//! Required signer of the chart of an entry.

use std::path::{Path, PathBuf};

use chart_source::verify::{Identity, Name, Policy, VerifyError};

use super::fields::{Fields, name};

/// Reason why a signature of cosign is not looked for behind a URL.
pub(super) const COSIGN_NEEDS_REGISTRY: &str = "`verify.cosign` needs a chart in a registry (url: oci://HOST/PATH); \
                                                cosign does not sign archives behind a URL";

/// Required signer of a chart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verify {
    /// The owner of a key of cosign.
    Cosign {
        /// File with the public key.
        key: PathBuf,
    },
    /// An identity to which Sigstore has issued a certificate for a signature of cosign.
    CosignIdentity(Identity),
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
            Self::CosignIdentity(identity) => &identity.trusted_root,
            Self::Provenance { keyring } => keyring,
        }
    }

    /// Returns whether only charts in a registry can be signed so.
    pub(super) fn needs_registry(&self) -> bool {
        matches!(self, Self::Cosign { .. } | Self::CosignIdentity(_))
    }

    /// Reads the public keys.
    ///
    /// # Errors
    /// If the file cannot be read, or has no key.
    pub fn policy(&self) -> Result<Policy, VerifyError> {
        match self {
            Self::Cosign { key } => Policy::cosign_key(key),
            Self::CosignIdentity(identity) => Policy::cosign_identity(identity),
            Self::Provenance { keyring } => Policy::keyring(keyring),
        }
    }
}

/// Reads the field `verify` of a chart.
pub(super) fn read(fields: &mut Fields<'_>, base: &Path) -> Option<Verify> {
    fields.section("verify", |verify| {
        let given = ["cosign", "provenance"].map(|field| verify.has(field));
        let signer = verify.section("cosign", |cosign| read_cosign(cosign, base));
        let keyring = verify.section("provenance", |provenance| {
            provenance.required("keyring", name)
        });
        match given {
            [true, false] => signer.flatten(),
            [false, true] => {
                if !Policy::HAS_PROVENANCE {
                    verify.wrong(VerifyError::NotBuilt.to_string());
                }
                Some(Verify::Provenance {
                    keyring: base.join(keyring.flatten()?),
                })
            }
            _ => {
                let forms = "give either `cosign` with the file of a public `key` or with an `identity`, or \
                             `provenance` with a `keyring`";
                verify.wrong(forms.to_owned());
                None
            }
        }
    })?
}

/// Reads who must have signed with cosign.
fn read_cosign(cosign: &mut Fields<'_>, base: &Path) -> Option<Verify> {
    let given = ["key", "identity"].map(|field| cosign.has(field));
    let key = cosign.optional("key", name);
    let identity = cosign.section("identity", |identity| read_identity(identity, base));
    match given {
        [true, false] => Some(Verify::Cosign {
            key: base.join(key?),
        }),
        [false, true] => {
            if !Policy::HAS_IDENTITY {
                cosign.wrong(VerifyError::IdentityNotBuilt.to_string());
            }
            identity.flatten().map(Verify::CosignIdentity)
        }
        _ => {
            let forms = "give either the file of a public `key`, or an `identity`";
            cosign.wrong(forms.to_owned());
            None
        }
    }
}

fn read_identity(fields: &mut Fields<'_>, base: &Path) -> Option<Identity> {
    let issuer = one_of(fields, "issuer", "issuerRegExp");
    let subject = one_of(fields, "subject", "subjectRegExp");
    let trusted_root = fields.required("trustedRoot", name);
    Some(Identity {
        issuer: issuer?,
        subject: subject?,
        trusted_root: base.join(trusted_root?),
    })
}

/// Reads a name or a pattern, of which exactly one is given.
fn one_of(fields: &mut Fields<'_>, exact: &'static str, pattern: &'static str) -> Option<Name> {
    let given = [exact, pattern].map(|field| fields.has(field));
    let is = fields.optional(exact, name).map(Name::Exact);
    let matches = fields.optional(pattern, |node| {
        Name::pattern(name(node)?, exact).map_err(|error| error.to_string())
    });
    if given[0] == given[1] {
        fields.wrong(format!("give either `{exact}` or `{pattern}`"));
        return None;
    }
    is.or(matches)
}
