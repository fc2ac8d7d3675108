//! The metadata of a record: what the labels of its Secret tell without reading it.

use std::collections::BTreeMap;
use std::fmt;

use helm_core::Digest;
use helm_core::release::{ReleaseName, Revision, SYSTEM_LABELS, Status, name};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::side::Parts;
use crate::cluster::ownership::{CR_LABEL, OPERATOR_LABEL};
use crate::cluster::{CrIdentity, InstanceId, OperatorId};

/// Label `REVISION-INSTANCE`: who wrote the record.
pub(super) const WRITER_LABEL: &str = "helm.sdk.operatorframework.io/writer";
/// Label `REVISION-HASH`: the digest of the inputs of the revision.
pub(super) const DIGEST_LABEL: &str = "helm.sdk.operatorframework.io/digest";
/// Label `REVISION-COUNT-HASH`: the parts that are stored beside the record.
pub(super) const PARTS_LABEL: &str = "helm.sdk.operatorframework.io/parts";

/// Hexadecimal digits of a digest in a label.
const DIGEST_DIGITS: usize = 32;

/// The digest of the inputs of a revision, as far as a label holds it: 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InputsDigest(String);

impl InputsDigest {
    /// The text, as labels and the status show it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&Digest> for InputsDigest {
    fn from(digest: &Digest) -> Self {
        let mut text = digest.to_string();
        text.truncate(DIGEST_DIGITS);
        Self(text)
    }
}

impl fmt::Display for InputsDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a record is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// As Helm does, in one Secret; parts may be beside it.
    #[default]
    Helm,
    /// As helm-operator-plugins does for large releases: an index Secret and chunks.
    Chunked,
}

/// What is known of a record without reading it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordMeta {
    /// Namespace of the release and of the Secret.
    pub namespace: String,
    /// Name of the release.
    pub name: ReleaseName,
    /// Number of the revision.
    pub revision: Revision,
    /// State of the revision.
    pub status: Status,
    /// The custom resource that it belongs to.
    pub cr: Option<CrIdentity>,
    /// The operator that looks after it.
    pub operator: Option<OperatorId>,
    /// Who wrote this very revision; `None` if it was not an operator of ours.
    pub writer: Option<InstanceId>,
    /// The digest of the inputs of this very revision; `None` if it was not made by us.
    pub digest: Option<InputsDigest>,
    /// Name of the Secret.
    pub secret: String,
    /// Uid of the Secret.
    pub uid: String,
    /// Resource version of the Secret; changes and deletions are fenced by it.
    pub resource_version: String,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// When the API server created the Secret: by the same clock as the objects that were applied
    /// after it.
    pub stored_at: Option<Timestamp>,
    /// When it was last changed.
    pub modified_at: Option<Timestamp>,
    /// How it is stored.
    pub format: Format,
    /// Uids of its owner references, by which garbage collection may delete it.
    pub owners: Vec<String>,
    /// What is stored beside it.
    pub(super) parts: Option<Parts>,
}

impl RecordMeta {
    /// Reads the metadata of a Secret; `None` if it is no record.
    pub fn of(metadata: &ObjectMeta, format: Format) -> Option<Self> {
        let labels = metadata.labels.as_ref()?;
        let label = |key: &str| labels.get(key).map(String::as_str);
        let secret = metadata.name.clone()?;
        // The name is what Helm goes by; labels can be edited.
        let (name, revision) = name::from_secret_name(&secret)?;
        let own = |key: &str| of_revision(label(key)?, revision);
        let seconds = |key: &str| Timestamp::from_second(label(key)?.parse().ok()?).ok();
        Some(Self {
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name,
            revision,
            status: Status::from(label("status").unwrap_or_default()),
            cr: label(CR_LABEL).map(CrIdentity::from_label),
            operator: label(OPERATOR_LABEL).map(OperatorId::new),
            writer: own(WRITER_LABEL).map(InstanceId::new),
            digest: own(DIGEST_LABEL).map(|hash| InputsDigest(hash.to_owned())),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            created_at: seconds("createdAt")
                .or_else(|| metadata.creation_timestamp.as_ref().map(|time| time.0)),
            stored_at: metadata.creation_timestamp.as_ref().map(|time| time.0),
            modified_at: seconds("modifiedAt"),
            format,
            owners: metadata
                .owner_references
                .iter()
                .flatten()
                .map(|owner| owner.uid.clone())
                .collect(),
            parts: own(PARTS_LABEL).and_then(Parts::parse),
            secret,
        })
    }

    /// A record of which only this is known.
    pub fn bare(namespace: &str, name: ReleaseName, revision: Revision, status: Status) -> Self {
        Self {
            namespace: namespace.to_owned(),
            secret: name::secret_name(&name, revision),
            name,
            revision,
            status,
            cr: None,
            operator: None,
            writer: None,
            digest: None,
            uid: String::new(),
            resource_version: String::new(),
            created_at: None,
            stored_at: None,
            modified_at: None,
            format: Format::Helm,
            owners: Vec::new(),
            parts: None,
        }
    }

    /// Whether owner references hang on it.
    pub fn is_owned(&self) -> bool {
        !self.owners.is_empty()
    }

    /// Whether this revision was made by something else than an operator of ours. Helm copies
    /// labels to the revisions that it makes; their own revision in the label gives them away.
    pub fn is_foreign(&self) -> bool {
        self.writer.is_none()
    }

    /// Whether the record is too large for Helm's command line, which then sees none of its
    /// objects.
    pub fn is_oversized(&self) -> bool {
        self.parts.as_ref().is_some_and(Parts::is_whole)
    }

    /// When the record was last written, as far as is known.
    pub fn written_at(&self) -> Option<Timestamp> {
        self.modified_at.max(self.created_at)
    }

    /// Whether this is a later state of the same record.
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        version_number(&self.resource_version) > version_number(&other.resource_version)
    }
}

/// Resource versions of one resource are numbers that grow (KEP-5504); one that is not counts as
/// the latest.
pub(super) fn version_number(version: &str) -> u64 {
    version.parse().unwrap_or(u64::MAX)
}

/// The labels of ours that a record carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordTags {
    /// The custom resource.
    pub cr: CrIdentity,
    /// The operator.
    pub operator: OperatorId,
    /// The instance that writes.
    pub writer: InstanceId,
    /// The digest of the inputs of the revision; `None` leaves it unknown.
    pub digest: Option<InputsDigest>,
}

impl RecordTags {
    /// The labels for a revision.
    pub(super) fn labels(&self, revision: Revision) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([
            (CR_LABEL.to_owned(), self.cr.to_string()),
            (OPERATOR_LABEL.to_owned(), self.operator.to_string()),
            (
                WRITER_LABEL.to_owned(),
                format!("{revision}-{}", self.writer),
            ),
        ]);
        if let Some(digest) = &self.digest {
            labels.insert(DIGEST_LABEL.to_owned(), format!("{revision}-{digest}"));
        }
        labels
    }
}

/// The labels of a Secret that are not Helm's own.
pub(super) fn further_labels(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let further = labels
        .iter()
        .filter(|(key, _)| !SYSTEM_LABELS.contains(&key.as_str()));
    further
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The rest of a label `REVISION-REST` if it speaks of this revision.
fn of_revision(label: &str, revision: Revision) -> Option<&str> {
    let (number, rest) = label.split_once('-')?;
    (number.parse() == Ok(revision.0)).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::json;

    fn tags() -> RecordTags {
        RecordTags {
            cr: CrIdentity::of("g", "K", Some("prod"), "web"),
            operator: OperatorId::new("op"),
            writer: InstanceId::new(&"pod-with-a-long-name-".repeat(10)),
            digest: Some((&Digest::of("inputs")).into()),
        }
    }

    fn secret(revision: u32, labels: BTreeMap<String, String>) -> ObjectMeta {
        let mut metadata: ObjectMeta = serde_json::from_value(json!({
            "name": format!("sh.helm.release.v1.web.v{revision}"), "namespace": "prod",
            "uid": "u", "resourceVersion": "12", "creationTimestamp": "2026-01-01T00:00:00Z"}))
        .unwrap();
        metadata.labels = Some(labels);
        metadata
    }

    #[test]
    fn rule_3_7_labels_are_at_most_63_characters_and_read_back() {
        let tags = tags();
        let mut labels = tags.labels(Revision(4_294_967_295));
        for (key, value) in &labels {
            assert!(value.len() <= 63, "{key}: {value}");
        }
        labels.insert("status".to_owned(), "pending-upgrade".to_owned());
        let meta = RecordMeta::of(&secret(4_294_967_295, labels), Format::Helm).unwrap();
        assert_eq!(meta.status, Status::PendingUpgrade);
        assert_eq!(meta.cr.as_ref(), Some(&tags.cr));
        assert_eq!(meta.operator.as_ref(), Some(&tags.operator));
        assert_eq!(meta.writer.as_ref(), Some(&tags.writer));
        assert_eq!(meta.digest, tags.digest);
        assert!(!meta.is_foreign());
    }

    #[test]
    fn rule_3_7_labels_that_helm_has_copied_to_its_own_revision_do_not_count() {
        let meta = RecordMeta::of(&secret(2, tags().labels(Revision(1))), Format::Helm).unwrap();
        assert_eq!((meta.writer.as_ref(), meta.digest.as_ref()), (None, None));
        assert!(meta.is_foreign());
        assert_eq!(meta.cr, Some(tags().cr));
    }

    #[test]
    fn times_come_from_the_labels_of_helm_else_from_the_secret() {
        let label = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let created = |labels: BTreeMap<_, _>| {
            let meta = RecordMeta::of(&secret(1, labels), Format::Helm).unwrap();
            (
                meta.created_at.unwrap().to_string(),
                meta.written_at().unwrap().to_string(),
            )
        };
        let from_secret = "2026-01-01T00:00:00Z".to_owned();
        assert_eq!(created(BTreeMap::new()), (from_secret.clone(), from_secret));
        let labels = [label("createdAt", "60"), label("modifiedAt", "120")].into();
        let expected = (
            "1970-01-01T00:01:00Z".to_owned(),
            "1970-01-01T00:02:00Z".to_owned(),
        );
        assert_eq!(created(labels), expected);
        let labels = [label("createdAt", "x")].into();
        assert_eq!(created(labels).0, "2026-01-01T00:00:00Z");
    }

    #[test]
    fn other_secrets_are_no_records() {
        for name in [
            "sh.helm.release.v1.web",
            "web.v1",
            "sh.helm.release.v1.WEB.v1",
        ] {
            let mut metadata = secret(1, BTreeMap::new());
            metadata.name = Some(name.to_owned());
            assert_eq!(RecordMeta::of(&metadata, Format::Helm), None, "{name}");
        }
    }

    #[test]
    fn owner_references_are_noticed() {
        let mut metadata = secret(1, BTreeMap::new());
        assert!(!RecordMeta::of(&metadata, Format::Helm).unwrap().is_owned());
        metadata.owner_references = Some(vec![OwnerReference::default()]);
        assert!(RecordMeta::of(&metadata, Format::Helm).unwrap().is_owned());
    }
}
