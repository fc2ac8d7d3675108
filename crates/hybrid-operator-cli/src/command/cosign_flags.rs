//! The flags that say who must have signed a chart with cosign, with the names of `cosign verify`.

use std::path::PathBuf;

use chart_source::verify::{Identity, Name, Policy};

use super::UsageError;
use super::chart_flags::HEADING;

/// Advice on getting a trusted root.
const CREATE: &str = "'cosign trusted-root create --with-default-services --out trusted_root.json' writes that of the \
                      public Sigstore";

/// Who must have signed with cosign. All of them are about charts in registries.
#[derive(Debug, Clone, PartialEq, Eq, Default, clap::Args)]
pub(crate) struct CosignFlags {
    /// Verify the chart with its signature of cosign in the registry, and this public key
    #[arg(long, help_heading = HEADING, hide_short_help = true, value_name = "FILE")]
    cosign_key: Option<PathBuf>,

    /// Verify the chart with its signature of cosign in the registry, which this identity must have made without a
    /// key of its own: a mail address, or the URL of a workflow. Needs the issuer and --trusted-root
    #[arg(long, help_heading = HEADING, hide_short_help = true, value_name = "NAME")]
    certificate_identity: Option<String>,

    /// Instead of --certificate-identity: a regular expression that must match the identity as a whole
    #[arg(
        long,
        help_heading = HEADING, hide_short_help = true,
        value_name = "PATTERN",
        allow_hyphen_values = true
    )]
    certificate_identity_regexp: Option<String>,

    /// Issuer of the token with which the identity has logged in, such as
    /// `https://token.actions.githubusercontent.com`
    #[arg(long, help_heading = HEADING, hide_short_help = true, value_name = "URL")]
    certificate_oidc_issuer: Option<String>,

    /// Instead of --certificate-oidc-issuer: a regular expression that must match the issuer as a whole
    #[arg(
        long,
        help_heading = HEADING, hide_short_help = true,
        value_name = "PATTERN",
        allow_hyphen_values = true
    )]
    certificate_oidc_issuer_regexp: Option<String>,

    /// File with the keys of Sigstore's authorities and logs (`trusted_root.json`), for
    /// --certificate-identity. Nothing is fetched
    #[arg(long, help_heading = HEADING, hide_short_help = true, value_name = "FILE")]
    trusted_root: Option<PathBuf>,
}

impl CosignFlags {
    /// Returns whether one of the flags is given.
    pub(crate) fn is_given(&self) -> bool {
        *self != Self::default()
    }

    /// Returns who must have signed the charts, if a flag says so.
    pub(crate) fn policy(&self) -> anyhow::Result<Option<Policy>> {
        if !self.is_given() {
            return Ok(None);
        }
        let Some(key) = &self.cosign_key else {
            return Ok(Some(Policy::cosign_identity(&self.identity()?)?));
        };
        let of_identity = Self {
            cosign_key: None,
            ..self.clone()
        };
        if of_identity.is_given() {
            let message = "--cosign-key cannot be given with --certificate-identity and the flags that belong to \
                           it: a chart is verified with a key, or by the identity of the signer";
            return Err(UsageError(message.to_owned()).into());
        }
        Ok(Some(Policy::cosign_key(key)?))
    }

    fn identity(&self) -> Result<Identity, UsageError> {
        let subject = one_of(
            ("--certificate-identity", "subject"),
            self.certificate_identity.as_deref(),
            self.certificate_identity_regexp.as_deref(),
            "who must have signed the chart is not said",
        )?;
        let issuer = one_of(
            ("--certificate-oidc-issuer", "issuer"),
            self.certificate_oidc_issuer.as_deref(),
            self.certificate_oidc_issuer_regexp.as_deref(),
            "another issuer may know somebody else by the same name",
        )?;
        let trusted_root = self.trusted_root.clone();
        let trusted_root = trusted_root.ok_or_else(|| {
            UsageError(format!(
                "--certificate-identity needs --trusted-root with the keys of Sigstore; {CREATE}"
            ))
        })?;
        Ok(Identity {
            issuer,
            subject,
            trusted_root,
        })
    }
}

/// Returns the name or the pattern that is given for a field of a signature; `why` one of them is needed.
fn one_of(
    (flag, field): (&str, &'static str),
    exact: Option<&str>,
    pattern: Option<&str>,
    why: &str,
) -> Result<Name, UsageError> {
    let found = match (exact, pattern) {
        (Some(_), Some(_)) => {
            return Err(UsageError(format!(
                "{flag} and {flag}-regexp cannot be given together"
            )));
        }
        (None, None) => return Err(UsageError(format!("give {flag} or {flag}-regexp: {why}"))),
        (Some(name), None) => Name::Exact(name.to_owned()),
        (None, Some(pattern)) => {
            Name::pattern(pattern.to_owned(), field).map_err(UsageError::of)?
        }
    };
    let (Name::Exact(text) | Name::Pattern(text)) = &found;
    if text.trim().is_empty() {
        return Err(UsageError(format!("{flag} must not be empty")));
    }
    Ok(found)
}
