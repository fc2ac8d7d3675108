//! Finds provenance files: beside an archive, or as a layer of its manifest.

use percent_encoding::percent_decode_str;
use url::Url;

use crate::error::PullError;
use crate::limits;
use crate::puller::Puller;
use crate::registry::{Found, Registry};
use crate::transport::Request;
use crate::verify::{Provenance, VerifyError};

/// Evidence that was found, or the reason why nothing can be verified.
type Published = Result<Vec<Vec<u8>>, VerifyError>;

impl Puller {
    /// Fetches the provenance file beside an archive: its URL with `.prov` at the end of the path.
    pub(super) async fn provenance_beside(
        &self,
        url: &Url,
        trusted: bool,
    ) -> Result<Published, PullError> {
        let mut beside = url.clone();
        beside.set_path(&format!("{}.prov", url.path()));
        let mut request = Request::get(beside, "provenance file", limits::PROVENANCE);
        request.authorization = trusted.then(|| self.access.basic()).flatten();
        let answer = self.transport.send(&request).await?;
        let text = match answer.success(&request) {
            Err(PullError::NotFound { url, .. }) => {
                let why = format!("there is no {url}");
                return Ok(Err(VerifyError::NoSignature(why)));
            }
            text => text?,
        };
        let name = url.path().rsplit('/').next().unwrap_or_default();
        let name = percent_decode_str(name).decode_utf8_lossy();
        Ok(evidence(Some(name.into_owned()), text))
    }
}

/// Fetches the provenance file of a chart in a registry.
pub(super) async fn in_registry(
    registry: &mut Registry<'_>,
    found: &Found,
) -> Result<Published, PullError> {
    let Some(layer) = &found.layers.provenance else {
        let why = "its manifest in the registry has no provenance file; push it with 'helm push' and the .prov \
                   beside the archive";
        return Ok(Err(VerifyError::NoSignature(why.to_owned())));
    };
    let text = registry.provenance(layer).await?;
    // Without a tag, the version is not known, and any name is accepted.
    let version = found.tag.as_ref().map(|tag| tag.replace('_', "+"));
    let file = version.map(|version| format!("{}-{version}.tgz", registry.chart_name()));
    Ok(evidence(file, text))
}

fn evidence(file: Option<String>, text: Vec<u8>) -> Published {
    Provenance::of(file, text).map(|evidence| vec![evidence])
}
