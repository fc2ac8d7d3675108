//! Manifests of charts, and indexes that list manifests, as registries store them. Pure.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::digest::Digest;

/// Media types of manifests.
pub(super) const MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, \
                                    application/vnd.docker.distribution.manifest.v2+json";
/// Media type of an index.
pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media types of what a chart may be found by.
pub(super) const DOCUMENTS: &str = "application/vnd.oci.image.manifest.v1+json, \
                                    application/vnd.docker.distribution.manifest.v2+json, \
                                    application/vnd.oci.image.index.v1+json, \
                                    application/vnd.docker.distribution.manifest.list.v2+json";
/// Media type of a chart's metadata, by which a chart is told from an image.
const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
/// Media types of an archive; the second is of the first versions of Helm 3.
const LAYERS: [&str; 2] = [
    "application/vnd.cncf.helm.chart.content.v1.tar+gzip",
    "application/tar+gzip",
];
/// Media type of a provenance file.
const PROVENANCE: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";

/// The archive that a manifest names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

/// The parts of a chart that its manifest names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layers {
    /// The archive.
    pub(crate) chart: Layer,
    /// The provenance file.
    #[cfg_attr(
        not(feature = "provenance"),
        allow(dead_code, reason = "only the feature reads it")
    )]
    pub(crate) provenance: Option<Layer>,
}

/// The document that a registry stores under a tag or a digest.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Document {
    /// The manifest of a chart, or why it is not one.
    Manifest(Result<Layers, String>),
    /// An index, with the manifests and indexes that it lists.
    Index(Vec<Digest>),
}

#[derive(Deserialize)]
pub(super) struct Manifest {
    #[serde(default)]
    config: Option<Descriptor>,
    #[serde(default)]
    pub(super) layers: Vec<Descriptor>,
    /// Only an index has it.
    #[serde(default)]
    manifests: Option<Vec<Descriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Descriptor {
    pub(super) media_type: String,
    digest: String,
    size: u64,
    #[serde(default)]
    pub(super) annotations: Option<BTreeMap<String, String>>,
}

impl Document {
    /// Reads a document.
    pub(super) fn of(text: &[u8]) -> Result<Self, String> {
        let manifest: Manifest = serde_json::from_slice(text)
            .map_err(|_| "its manifest is not that of a chart".to_owned())?;
        let Some(listed) = &manifest.manifests else {
            return Ok(Self::Manifest(manifest.chart()));
        };
        if manifest.config.is_some() || !manifest.layers.is_empty() {
            return Err("its manifest is an index as well".to_owned());
        }
        let listed = listed.iter().filter(|one| one.is_document());
        let digests: Result<_, _> = listed.map(Descriptor::digest).collect();
        Ok(Self::Index(digests?))
    }
}

impl Layers {
    /// Returns the layers of a chart from the text that its tag names: its manifest, or an index with what leads from
    /// it to the manifest. Each text must list the digest of the next.
    pub(crate) fn in_chain<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, String> {
        let mut listed: Option<Vec<Digest>> = None;
        for text in texts {
            if listed.is_some_and(|listed| !listed.contains(&Digest::of(text))) {
                return Err("its index does not list its manifest".to_owned());
            }
            match Document::of(text)? {
                Document::Manifest(layers) => return layers,
                Document::Index(digests) => listed = Some(digests),
            }
        }
        Err("its index has no chart".to_owned())
    }
}

impl Manifest {
    /// Returns the layers of a chart, or says why the manifest is not that of one.
    fn chart(&self) -> Result<Layers, String> {
        let config = self.config.as_ref();
        let media_type = config.map_or("", |one| one.media_type.as_str());
        if media_type != CONFIG {
            return Err(format!(
                "its config has the media type {media_type:?}, not {CONFIG:?}"
            ));
        }
        let layer = LAYERS
            .iter()
            .find_map(|kind| self.layers.iter().find(|one| one.media_type == *kind));
        let Some(layer) = layer else {
            return Err(format!(
                "it has no layer with the media type {:?}",
                LAYERS[0]
            ));
        };
        let mut layers = self.layers.iter();
        let provenance = layers.find(|one| one.media_type == PROVENANCE);
        Ok(Layers {
            chart: layer.blob()?,
            provenance: provenance.map(Descriptor::blob).transpose()?,
        })
    }
}

impl Descriptor {
    pub(super) fn blob(&self) -> Result<Layer, String> {
        Ok(Layer {
            digest: self.digest()?,
            size: self.size,
        })
    }

    fn digest(&self) -> Result<Digest, String> {
        self.digest.parse().map_err(|error| format!("{error}"))
    }

    /// Returns whether it describes a manifest or an index.
    fn is_document(&self) -> bool {
        DOCUMENTS.split(", ").any(|kind| kind == self.media_type)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

    fn descriptor(media_type: &str, text: &str) -> String {
        let digest = Digest::of(text.as_bytes());
        let size = text.len();
        format!(r#"{{"mediaType": "{media_type}", "digest": "{digest}", "size": {size}}}"#)
    }

    fn chart() -> String {
        let (config, layer) = (descriptor(CONFIG, "{}"), descriptor(LAYERS[0], "archive"));
        format!(r#"{{"config": {config}, "layers": [{layer}]}}"#)
    }

    fn index(listed: &[String]) -> String {
        format!(r#"{{"manifests": [{}]}}"#, listed.join(", "))
    }

    fn in_chain(texts: &[&str]) -> Result<Digest, String> {
        let texts = texts.iter().map(|text| text.as_bytes());
        Ok(Layers::in_chain(texts)?.chart.digest)
    }

    #[test]
    fn a_chain_leads_from_an_index_to_the_manifest_of_a_chart() {
        let archive = Ok(Digest::of(b"archive"));
        let chart = chart();
        let inner = index(&[descriptor(MANIFEST, &chart)]);
        let outer = index(&[descriptor(MANIFEST, "an image"), descriptor(INDEX, &inner)]);
        assert_eq!(in_chain(&[&chart]), archive);
        assert_eq!(in_chain(&[&inner, &chart]), archive);
        assert_eq!(in_chain(&[&outer, &inner, &chart]), archive);
        for (texts, expected) in [
            (vec![outer.as_str(), &chart], "does not list its manifest"),
            (vec![&outer, &inner], "has no chart"),
            (vec![], "has no chart"),
        ] {
            let error = in_chain(&texts).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_document_is_a_manifest_or_an_index_and_never_both() {
        let chart = chart();
        let both = format!(
            r#"{}, "manifests": [{}]}}"#,
            chart.trim_end_matches('}'),
            descriptor(MANIFEST, &chart)
        );
        let error = Document::of(both.as_bytes()).unwrap_err();
        assert_eq!(error, "its manifest is an index as well");
        let other = index(&[descriptor("application/json", &chart)]);
        assert_eq!(Document::of(other.as_bytes()), Ok(Document::Index(vec![])));
    }
}
