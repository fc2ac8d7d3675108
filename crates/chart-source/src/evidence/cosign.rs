//! Finds the signatures of cosign in a registry.

use crate::error::PullError;
use crate::limits;
use crate::registry::{Found, Registry, Signed};
#[cfg(feature = "cosign-identity")]
use crate::verify::identity;
use crate::verify::{Evidence, VerifyError, parse_bundle};

/// Evidence that was found, or the reason why nothing can be verified.
type Published = Result<Vec<Vec<u8>>, VerifyError>;

/// Reason why there are no signatures beside an archive.
pub(super) const BESIDE: VerifyError = VerifyError::NotApplicable(
    "signatures of cosign are in registries only; fetch the chart from a registry (oci://), or verify its provenance",
);

/// Fetches the signatures that were made with keys.
pub(super) async fn of_key(
    registry: &mut Registry<'_>,
    found: &Found,
) -> Result<Published, PullError> {
    let ((manifest, indexed), signed) =
        match signatures(registry, found, " --key cosign.key").await? {
            Ok(signed) => signed,
            Err(error) => return Ok(Err(error)),
        };
    let mut published = Vec::new();
    for one in signed {
        let (payload, signatures, bundle) = match one {
            Signed::Text {
                payload, signature, ..
            } => (payload, vec![signature], false),
            Signed::Bundle(bundle) => match parse_bundle(&bundle) {
                Some((payload, signatures)) => (payload, signatures, true),
                None => continue,
            },
        };
        let Ok(payload) = String::from_utf8(payload) else {
            continue;
        };
        for signature in signatures.into_iter().take(limits::SIGNATURES) {
            published.push(Evidence {
                manifest: manifest.clone(),
                indexed: indexed.clone(),
                payload: payload.clone(),
                bundle,
                signature,
            });
        }
    }
    Ok(written(&published))
}

/// Fetches the signatures that were made with a certificate of an identity.
#[cfg(feature = "cosign-identity")]
pub(super) async fn of_identity(
    registry: &mut Registry<'_>,
    found: &Found,
) -> Result<Published, PullError> {
    let ((manifest, indexed), signed) = match signatures(registry, found, "").await? {
        Ok(signed) => signed,
        Err(error) => return Ok(Err(error)),
    };
    let number = signed.len();
    let signed = signed.into_iter().filter_map(identity::Signed::of);
    let published: Vec<_> = signed
        .map(|signed| identity::Evidence {
            manifest: manifest.clone(),
            indexed: indexed.clone(),
            signed,
        })
        .collect();
    if published.is_empty() {
        return Ok(Err(VerifyError::NoSignature(format!(
            "none of its {number} signatures has the certificate of an identity; sign it with 'cosign sign' without \
             a key, or verify it with the key"
        ))));
    }
    Ok(written(&published))
}

/// The manifest of a chart; or an index, and what leads from it to the manifest of the chart.
type Manifests = (String, Vec<String>);

/// Returns the manifest, and fetches what was signed about it; there is at least one.
async fn signatures(
    registry: &mut Registry<'_>,
    found: &Found,
    flags: &str,
) -> Result<Result<(Manifests, Vec<Signed>), VerifyError>, PullError> {
    let texts = found.manifests.iter().cloned().map(String::from_utf8);
    let texts: Result<Vec<String>, _> = texts.collect();
    let length: usize = found.manifests.iter().map(Vec::len).sum();
    let mut texts = match texts {
        Ok(texts) if length <= limits::SIGNED_MANIFEST => texts.into_iter(),
        _ => {
            let limit = limits::SIGNED_MANIFEST >> 20;
            return Ok(Err(VerifyError::Malformed(format!(
                "the manifest is larger than {limit} MiB or not a text"
            ))));
        }
    };
    let manifests = (texts.next().unwrap_or_default(), texts.collect());
    let mut signed = registry.signatures(&found.digest).await?;
    match registry.bundles(&found.digest).await {
        Ok(bundles) => signed.extend(bundles),
        // What was found may be enough.
        Err(_) if !signed.is_empty() => {}
        Err(error) => return Err(error),
    }
    if signed.is_empty() {
        let tag = format!("sha256-{}.sig", found.digest.hex());
        return Ok(Err(VerifyError::NoSignature(format!(
            "the registry has no signature in the tag {tag} and no bundle; sign it with 'cosign sign{flags}'"
        ))));
    }
    Ok(Ok((manifests, signed)))
}

/// Returns evidence as it is kept in the cache.
fn written(published: &[impl serde::Serialize]) -> Published {
    let written = published.iter().map(serde_json::to_vec);
    let written: Result<_, _> = written.collect();
    written.map_err(|error| VerifyError::Malformed(error.to_string()))
}
