//! Records that are larger than a Secret: what is taken out of them, and where it goes.
//!
//! Kubernetes accepts 1 MiB per Secret. Of a larger record first the chart is reduced, which
//! Helm's command line does not need for rollback, uninstall, get and test; what was taken out
//! goes into parts beside it. If manifest, hooks and values alone are too large, the whole record
//! goes into parts, and Helm sees an empty one that says so.
//!
//! Parts carry no `owner=helm`, so that Helm does not take them for records. Their names contain
//! a hash of the content: they are written before the record that refers to them, and writing
//! them again after a crash changes nothing.

use std::fmt;

use helm_core::Digest;
use helm_core::release::compact::{self, MAX_STORED};
use helm_core::release::{CodecError, Release, ReleaseName, Revision, codec};

/// Label with the name of the release that a part belongs to.
pub const PART_OF_LABEL: &str = "helm.sdk.operatorframework.io/part-of-release";
/// Type of the Secrets that hold parts.
pub const PART_TYPE: &str = "helm.sdk.operatorframework.io/release-part.v1";
/// Key of a part in the data of its Secret.
pub const PART_KEY: &str = "part";

/// Characters of a hash in the name of a part.
const HASH_DIGITS: usize = 12;

/// The parts that a record refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parts {
    count: u32,
    hash: String,
    whole: bool,
}

impl Parts {
    /// Reads `COUNT-HASH`, or `COUNT-HASH-whole`.
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

    /// Whether they hold the whole record.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// The names of the Secrets.
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

/// A record as it is stored.
pub(super) struct Stored {
    /// What goes into Helm's Secret.
    pub(super) record: String,
    /// What it refers to.
    pub(super) parts: Option<Parts>,
    /// What goes into the parts, in order.
    pub(super) pieces: Vec<String>,
}

/// Encodes a record so that no Secret exceeds the limit of Kubernetes.
pub(super) fn store(release: &Release) -> Result<Stored, CodecError> {
    store_within(release, MAX_STORED)
}

fn store_within(release: &Release, limit: usize) -> Result<Stored, CodecError> {
    let compacted = compact::compact(release, limit)?;
    if compacted.record.len() <= limit {
        let whole = false;
        let (parts, pieces) = split(&compacted.removed, limit, whole);
        return Ok(Stored {
            record: compacted.record,
            parts,
            pieces,
        });
    }
    let (parts, pieces) = split(&codec::encode(release)?, limit, true);
    Ok(Stored {
        record: codec::encode(&signpost(release))?,
        parts,
        pieces,
    })
}

/// The record that Helm sees in place of one that is too large for it.
fn signpost(release: &Release) -> Release {
    let mut signpost = Release::new(release.name.clone(), &*release.namespace, release.revision);
    signpost.info = release.info.clone();
    signpost.info.notes = String::new();
    "This release is too large for the Helm command line; use its operator."
        .clone_into(&mut signpost.info.description);
    signpost.apply_method = release.apply_method;
    signpost.labels.clone_from(&release.labels);
    signpost.chart = release.chart.clone().map(|mut chart| {
        (chart.templates, chart.values, chart.schema, chart.files) = (None, None, None, None);
        chart
    });
    signpost
}

/// Puts a record together: `record` is the content of Helm's Secret, `pieces` those of its parts.
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

fn split(text: &str, limit: usize, whole: bool) -> (Option<Parts>, Vec<String>) {
    if text.is_empty() {
        return (None, Vec::new());
    }
    // Base64 is ASCII, so that any byte is a boundary.
    let pieces: Vec<String> = text
        .as_bytes()
        .chunks(limit.max(1))
        .map(|piece| String::from_utf8_lossy(piece).into_owned())
        .collect();
    let mut hash = Digest::of(text).to_string();
    hash.truncate(HASH_DIGITS);
    let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
    (Some(Parts { count, hash, whole }), pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use helm_core::release::{ReleaseChart, StoredFile};

    /// Text that does not compress.
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

    fn round_trip(release: &Release, limit: usize) -> Stored {
        let stored = store_within(release, limit).unwrap();
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
    fn rule_3_8_a_record_of_any_size_comes_back() {
        let small = round_trip(&release(100, 100), 10_000);
        assert!(small.parts.is_none() && small.pieces.is_empty());

        let large_chart = round_trip(&release(100, 30_000), 10_000);
        assert!(!large_chart.parts.unwrap().is_whole());
        assert!(large_chart.pieces.len() > 1);
        let seen_by_helm = codec::decode(large_chart.record.as_bytes()).unwrap();
        assert_eq!(seen_by_helm.manifest, release(100, 30_000).manifest);

        let large_manifest = round_trip(&release(30_000, 100), 10_000);
        assert!(large_manifest.parts.unwrap().is_whole());
        let seen_by_helm = codec::decode(large_manifest.record.as_bytes()).unwrap();
        assert!(seen_by_helm.info.description.contains("too large"));
    }

    #[test]
    fn names_of_parts_tell_contents_apart() {
        let names = |release: &Release| {
            let parts = store_within(release, 10_000).unwrap().parts.unwrap();
            parts.names(&release.name, release.revision)
        };
        let one = names(&release(100, 30_000));
        assert_eq!(one, names(&release(100, 30_000)));
        assert_ne!(one, names(&release(100, 40_000)));
        assert!(one[0].starts_with("release-part.big.v1.") && one[0].ends_with(".0"));
    }

    #[test]
    fn other_labels_are_no_parts() {
        for label in ["", "1", "x-abc", "1-../x", "1-abc-other"] {
            assert_eq!(Parts::parse(label), None, "{label}");
        }
    }
}
