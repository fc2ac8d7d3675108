//! Finds what proves a chart, in the cache or where the chart was published, and verifies it.

mod cosign;
#[cfg(feature = "provenance")]
mod provenance;

use std::path::PathBuf;

use url::Url;

use crate::cache::Cache;
use crate::error::PullError;
use crate::puller::{Pulled, Puller, Resolved};
use crate::reference::{ChartReference, Location};
use crate::registry::{Found, Registry};
use crate::verify::{Policy, Signer, Subject, VerifyError};

/// Location of the published evidence about an archive.
pub(crate) enum Origin<'a, 'b> {
    /// Beside the archive behind a URL, to which credentials are sent if it is trusted.
    #[cfg_attr(
        not(feature = "provenance"),
        allow(dead_code, reason = "cosign has no signatures there")
    )]
    Beside { url: &'a Url, trusted: bool },
    /// In the registry that has the archive.
    Registry(&'a mut Registry<'b>, &'a Found),
}

/// A chart that may be in the cache.
pub(crate) enum Kept {
    /// The chart is in the cache and proven.
    Proven(Pulled),
    /// The chart or its evidence is not in the cache.
    Missing,
    /// The evidence in the cache does not prove the chart.
    Wrong {
        /// The file with the evidence.
        path: PathBuf,
        why: VerifyError,
    },
}

impl Cache {
    /// Returns a chart whose digest the reference names, if it and what proves it are in the cache.
    ///
    /// # Errors
    /// If the cache cannot be read, or what is there does not prove the chart.
    pub fn find(
        &self,
        chart: &ChartReference,
        policy: &Policy,
    ) -> Result<Option<Pulled>, PullError> {
        match self.kept(chart, policy)? {
            Kept::Proven(pulled) => Ok(Some(pulled)),
            Kept::Missing => Ok(None),
            Kept::Wrong { why, .. } => Err(PullError::Unproven {
                url: chart.to_string(),
                source: why,
            }),
        }
    }

    pub(crate) fn kept(&self, chart: &ChartReference, policy: &Policy) -> Result<Kept, PullError> {
        let Some(digest) = chart.digest else {
            return Ok(Kept::Missing);
        };
        let Some(archive) = self.get(&digest)? else {
            return Ok(Kept::Missing);
        };
        let manifest = match &chart.location {
            Location::Oci(name) => name.digest,
            _ => None,
        };
        let subject = Subject {
            archive: digest,
            manifest,
        };
        match self.proves(&subject, policy)? {
            Some(Ok(())) => {}
            Some(Err(why)) => {
                let kind = policy.extension().unwrap_or_default();
                let path = self.evidence_path(&digest, &kind);
                return Ok(Kept::Wrong { path, why });
            }
            None => return Ok(Kept::Missing),
        }
        let resolved = Resolved {
            version: chart.version.clone(),
            url: chart.location.to_string(),
            digest,
        };
        Ok(Kept::Proven(Pulled { resolved, archive }))
    }

    /// Verifies an archive with the evidence in the cache; `None` if there is none.
    fn proves(
        &self,
        subject: &Subject,
        policy: &Policy,
    ) -> Result<Option<Result<(), VerifyError>>, PullError> {
        let Some(kind) = policy.extension() else {
            return Ok(Some(Ok(())));
        };
        let evidence = self.evidence(&subject.archive, &kind)?;
        Ok(evidence.map(|evidence| policy.check(&evidence, subject)))
    }
}

impl Puller {
    /// Returns an archive after it was verified. This is the only way by which a fetched one leaves.
    pub(crate) async fn proven(
        &self,
        resolved: Resolved,
        archive: Vec<u8>,
        origin: Origin<'_, '_>,
    ) -> Result<Pulled, PullError> {
        let Some(kind) = self.policy.extension() else {
            return Ok(Pulled { resolved, archive });
        };
        let manifest = match &origin {
            Origin::Registry(_, found) => Some(found.digest),
            Origin::Beside { .. } => None,
        };
        let subject = Subject {
            archive: resolved.digest,
            manifest,
        };
        if let Some(cache) = &self.cache
            && let Some(Ok(())) = cache.proves(&subject, &self.policy)?
        {
            return Ok(Pulled { resolved, archive });
        }
        let unproven = |source| PullError::Unproven {
            url: resolved.url.clone(),
            source,
        };
        let published = self.published(origin).await?.map_err(unproven)?;
        let evidence = first_proof(&published, &subject, &self.policy).map_err(unproven)?;
        if let Some(cache) = &self.cache {
            cache.put_evidence(&resolved.digest, &kind, evidence)?;
        }
        Ok(Pulled { resolved, archive })
    }

    /// Fetches the evidence that was published about an archive; there is at least one.
    async fn published(
        &self,
        origin: Origin<'_, '_>,
    ) -> Result<Result<Vec<Vec<u8>>, VerifyError>, PullError> {
        match (&self.policy.0, origin) {
            (Signer::Anybody, _) => Ok(Ok(Vec::new())),
            (Signer::Cosign(_), Origin::Beside { .. }) => Ok(Err(cosign::BESIDE)),
            (Signer::Cosign(_), Origin::Registry(registry, found)) => {
                cosign::of_key(registry, found).await
            }
            #[cfg(feature = "cosign-identity")]
            (Signer::Identity(_), Origin::Beside { .. }) => Ok(Err(cosign::BESIDE)),
            #[cfg(feature = "cosign-identity")]
            (Signer::Identity(_), Origin::Registry(registry, found)) => {
                cosign::of_identity(registry, found).await
            }
            #[cfg(feature = "provenance")]
            (Signer::Provenance(_), Origin::Beside { url, trusted }) => {
                self.provenance_beside(url, trusted).await
            }
            #[cfg(feature = "provenance")]
            (Signer::Provenance(_), Origin::Registry(registry, found)) => {
                provenance::in_registry(registry, found).await
            }
        }
    }
}

/// Returns the first evidence that proves an archive. Without one, says what is wrong with that of the signer.
fn first_proof<'a>(
    published: &'a [Vec<u8>],
    subject: &Subject,
    policy: &Policy,
) -> Result<&'a [u8], VerifyError> {
    let mut failure = None;
    for evidence in published {
        match policy.check(evidence, subject) {
            Ok(()) => return Ok(evidence),
            Err(VerifyError::OtherKey { .. } | VerifyError::OtherIdentity { .. })
                if failure.is_some() => {}
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| VerifyError::Malformed("it is not a text".to_owned())))
}
