//! Splits records that do not fit into one Secret into parts, and names and labels the parts.
//!
//! Content removed from a record ([`compact`]) is stored in parts, each a Secret of its own. It is
//! the same for all writes of a revision, so parts are written once. Their names contain a hash of
//! the content: they are written before the record that refers to them, and writing them again
//! after a crash changes nothing.
//!
//! Parts have the label `owner=hybrid-operator`, so that Helm ignores them and one watch covers
//! records and parts. Further labels name the owner, the release and the set of parts. A
//! set that no record refers to was left by a crash and is deleted.

use std::fmt;

use helm_core::Digest;
use helm_core::release::compact::{self, MAX_STORED};
use helm_core::release::{CodecError, Release, ReleaseName, Revision, codec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_objects::CrIdentity;
use kube_objects::ownership::CR_LABEL;

use super::meta::PARTS_LABEL;

/// Label with the name of the release that a part belongs to.
pub(super) const PART_OF_LABEL: &str = "helm.sdk.operatorframework.io/part-of-release";
/// Value of Helm's label `owner` on parts.
pub(super) const PART_OWNER: &str = "hybrid-operator";
/// Type of the Secrets that hold parts.
pub(super) const PART_TYPE: &str = "helm.sdk.operatorframework.io/release-part.v1";
/// Key of a part in the data of its Secret.
pub(super) const PART_KEY: &str = "part";

/// Length of the hash in the name of a part.
const HASH_DIGITS: usize = 12;

/// Set of parts that a record refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    count: u32,
    hash: String,
    /// Whether they contain the whole record, as written by earlier versions.
    whole: bool,
}

impl Parts {
    /// Parses `COUNT-HASH` or `COUNT-HASH-whole`.
    pub(super) fn parse(label: &str) -> Option<Self> {
        let (count, rest) = label.split_once('-')?;
        let (hash, whole) = match rest.strip_suffix("-whole") {
            Some(hash) => (hash, true),
            None => (rest, false),
        };
        let hash = Some(hash).filter(|hash| hash.chars().all(|c| c.is_ascii_hexdigit()))?;
        Some(Self {
            count: count.parse().ok()?,
            hash: hash.to_owned(),
            whole,
        })
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the names of the Secrets.
    pub(super) fn names(&self, name: &ReleaseName, revision: Revision) -> Vec<String> {
        let name = |part| format!("release-part.{name}.v{revision}.{}.{part}", self.hash);
        (0..self.count).map(name).collect()
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.count, self.hash)?;
        if self.whole {
            f.write_str("-whole")
        } else {
            Ok(())
        }
    }
}

/// Metadata of a part, known without reading its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartMeta {
    /// Namespace of the release and of the Secret.
    pub(super) namespace: String,
    pub(super) secret: String,
    pub(super) uid: String,
    pub(super) release: ReleaseName,
    pub(super) revision: Revision,
    pub(super) parts: Parts,
    pub(super) cr: CrIdentity,
}

impl PartMeta {
    /// Reads the metadata of a Secret. Returns `None` if it is not a part.
    pub(super) fn of(metadata: &ObjectMeta) -> Option<Self> {
        let labels = metadata.labels.as_ref()?;
        let label = |key: &str| labels.get(key).map(String::as_str);
        let (revision, parts) = label(PARTS_LABEL)?.split_once('-')?;
        Some(Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            secret: metadata.name.clone()?,
            uid: metadata.uid.clone().unwrap_or_default(),
            release: label(PART_OF_LABEL)?.parse().ok()?,
            revision: Revision(revision.parse().ok()?),
            parts: Parts::parse(parts)?,
            cr: CrIdentity::from_label(label(CR_LABEL)?),
        })
    }
}

/// Record encoded for storage.
pub(super) struct EncodedRecord {
    /// Content of Helm's Secret.
    pub(super) record: String,
    pub(super) parts: Option<Parts>,
    /// Contents of the parts, in order.
    pub(super) pieces: Vec<String>,
}

/// Encodes a record so that no Secret exceeds the size limit of Kubernetes.
pub(super) fn store(release: &Release, cr: &CrIdentity) -> Result<EncodedRecord, CodecError> {
    store_within(release, cr, MAX_STORED)
}

fn store_within(
    release: &Release,
    cr: &CrIdentity,
    limit: usize,
) -> Result<EncodedRecord, CodecError> {
    let compacted = compact::compact(release, limit)?;
    let (parts, pieces) = split(&compacted.removed, cr, limit);
    Ok(EncodedRecord {
        record: compacted.record,
        parts,
        pieces,
    })
}

/// Decodes a record from the content of Helm's Secret (`record`) and of its parts (`pieces`).
pub(super) fn restore(
    record: &[u8],
    parts: Option<&Parts>,
    pieces: &[Vec<u8>],
) -> Result<Release, CodecError> {
    match parts {
        Some(parts) if parts.whole => codec::decode(&pieces.concat()),
        Some(_) => {
            let mut release = codec::decode(record)?;
            compact::restore(&mut release, &pieces.concat())?;
            Ok(release)
        }
        None => codec::decode(record),
    }
}

fn split(text: &str, cr: &CrIdentity, limit: usize) -> (Option<Parts>, Vec<String>) {
    if text.is_empty() {
        return (None, Vec::new());
    }
    // Base64 is ASCII, so any byte is a character boundary.
    let pieces: Vec<String> = text
        .as_bytes()
        .chunks(limit.max(1))
        .map(|piece| String::from_utf8_lossy(piece).into_owned())
        .collect();
    // Custom resources must not share parts, since one of them may delete them.
    let mut hash = Digest::of(format!("{cr}\n{text}")).to_string();
    hash.truncate(HASH_DIGITS);
    let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
    let whole = false;
    (Some(Parts { count, hash, whole }), pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use helm_core::release::{ReleaseChart, StoredFile};

    /// Returns text that does not compress.
    fn noise(length: usize, mut seed: u64) -> String {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'!' + seed.to_be_bytes()[0] % 94)
        };
        (0..length).map(|_| next()).collect()
    }

    fn release(manifest: usize, templates: usize) -> Release {
        let mut release = Release::new("big".parse().unwrap(), "n", Revision::FIRST);
        release.manifest = noise(manifest, 1);
        release.chart = Some(ReleaseChart {
            templates: Some(vec![StoredFile {
                name: "templates/a.yaml".to_owned(),
                data: noise(templates, 2).into_bytes().into(),
                modified: None,
            }]),
            ..ReleaseChart::default()
        });
        release
    }

    fn cr(name: &str) -> CrIdentity {
        CrIdentity::of("g", "K", Some("n"), name)
    }

    fn round_trip(release: &Release, limit: usize) -> EncodedRecord {
        let stored = store_within(release, &cr("big"), limit).unwrap();
        assert!(stored.record.len() <= limit, "{}", stored.record.len());
        assert!(stored.pieces.iter().all(|piece| piece.len() <= limit));
        let label = stored.parts.as_ref().map(ToString::to_string);
        let parts = label.as_deref().and_then(Parts::parse);
        assert_eq!(parts, stored.parts);
        let pieces: Vec<Vec<u8>> = stored
            .pieces
            .iter()
            .map(|piece| piece.clone().into_bytes())
            .collect();
        let read = restore(stored.record.as_bytes(), parts.as_ref(), &pieces).unwrap();
        assert_eq!(&read, release);
        stored
    }

    #[test]
    fn records_of_any_size_round_trip() {
        let small = round_trip(&release(100, 100), 10_000);
        assert!(small.parts.is_none() && small.pieces.is_empty());

        let large_chart = round_trip(&release(100, 30_000), 10_000);
        assert!(large_chart.pieces.len() > 1);
        let seen_by_helm = codec::decode(large_chart.record.as_bytes()).unwrap();
        assert_eq!(seen_by_helm.manifest, release(100, 30_000).manifest);

        let large_manifest = round_trip(&release(30_000, 100), 10_000);
        assert!(large_manifest.pieces.len() > 1);
        let seen_by_helm = codec::decode(large_manifest.record.as_bytes()).unwrap();
        assert!(seen_by_helm.manifest.is_empty());
    }

    #[test]
    fn whole_record_in_parts_of_an_earlier_version_is_read() {
        let release = release(300, 100);
        let encoded = codec::encode(&release).unwrap();
        let parts = Parts::parse("2-abc123def456-whole");
        assert_eq!(parts.as_ref().unwrap().to_string(), "2-abc123def456-whole");
        let (one, two) = encoded.as_bytes().split_at(encoded.len() / 2);
        let pieces = [one.to_vec(), two.to_vec()];
        assert_eq!(restore(b"", parts.as_ref(), &pieces).unwrap(), release);
    }

    #[test]
    fn part_names_depend_on_content_and_custom_resource() {
        let names = |release: &Release, name: &str| {
            let parts = store_within(release, &cr(name), 10_000).unwrap().parts;
            parts.unwrap().names(&release.name, release.revision)
        };
        let one = names(&release(100, 30_000), "big");
        assert_eq!(one, names(&release(100, 30_000), "big"));
        assert_ne!(one, names(&release(100, 40_000), "big"));
        assert_ne!(one, names(&release(100, 30_000), "other"));
        assert!(one[0].starts_with("release-part.big.v1.") && one[0].ends_with(".0"));
    }

    #[test]
    fn invalid_parts_labels_are_rejected() {
        for label in ["", "1", "x-abc", "1-../x", "1-abc-other"] {
            assert_eq!(Parts::parse(label), None, "{label}");
        }
    }
}
