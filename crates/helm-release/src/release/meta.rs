//! Metadata of a record, read from the metadata of its Secret.

use std::collections::BTreeMap;
use std::fmt;

use helm_core::Digest;
use helm_core::release::{ReleaseName, Revision, SYSTEM_LABELS, Status, name};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube_objects::ownership::{CR_LABEL, OPERATOR_LABEL};
use kube_objects::{AccountName, CrIdentity, InstanceId, OperatorId};

use super::asked::Asked;
use super::side::Parts;

/// Field manager of records and parts written by this operator. Helm's is `Helm`, or `helm` in
/// older versions, so that managed fields distinguish the two.
pub(super) const WRITER_MANAGER: &str = "hybrid-operator";
/// Label `REVISION-INSTANCE`: the instance that wrote the record.
pub(super) const WRITER_LABEL: &str = "helm.sdk.operatorframework.io/writer";
/// Label `REVISION-HASH`: digest of the inputs of the revision.
pub(super) const DIGEST_LABEL: &str = "helm.sdk.operatorframework.io/digest";
/// Label `REVISION-COUNT-HASH`: the parts of the record.
pub(super) const PARTS_LABEL: &str = "helm.sdk.operatorframework.io/parts";

/// Label `REVISION-ATTEMPTS` or `REVISION-ATTEMPTS-hook`: number of failed attempts of the
/// revision.
pub(super) const FAILURES_LABEL: &str = "helm.sdk.operatorframework.io/failures";

/// Label `REVISION-HASH`: hash of the operator's fields of all objects when the revision was deployed.
pub(super) const BASELINE_LABEL: &str = "helm.sdk.operatorframework.io/baseline";

/// Label `REVISION-PROOF`: proof that this operator wrote the content of the record.
pub(super) const PROOF_LABEL: &str = "helm.sdk.operatorframework.io/proof";

/// Label `REVISION-true`: the objects of the release have no owner references, so that they outlive its owner.
pub(super) const UNOWNED_LABEL: &str = "helm.sdk.operatorframework.io/unowned";

/// Label `REVISION-TEXT-COUNT`: the service account as which the objects were applied. Its text is in
/// `COUNT` labels, because it may be longer than a label value; the others end with `-2`, `-3`, ….
const ACCOUNT_LABEL: &str = "helm.sdk.operatorframework.io/account";

/// Number of characters of the text of an account in a label.
const ACCOUNT_CHARACTERS: usize = 50;

/// Number of hexadecimal digits of a digest in a label.
const DIGEST_DIGITS: usize = 32;

/// Digest of the inputs of a revision, truncated to 32 hexadecimal digits for labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InputsDigest(String);

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

/// Failed attempts of a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failures {
    /// Number of failed attempts.
    pub attempts: u32,
    /// Whether a hook failed in the last one.
    pub hook: bool,
}

impl Failures {
    pub(crate) const NONE: Self = Self {
        attempts: 0,
        hook: false,
    };

    fn parse(label: &str) -> Option<Self> {
        let (attempts, hook) = match label.strip_suffix("-hook") {
            Some(attempts) => (attempts, true),
            None => (label, false),
        };
        let attempts = attempts.parse().ok()?;
        Some(Self { attempts, hook })
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.attempts)?;
        f.write_str(if self.hook { "-hook" } else { "" })
    }
}

/// Storage format of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    /// Helm's format: one Secret, possibly with additional parts.
    #[default]
    Helm,
    /// Format of helm-operator-plugins for large releases: an index Secret and chunks.
    Chunked,
}

/// Metadata of a record, known without reading its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordMeta {
    /// Namespace of the release and of the Secret.
    pub namespace: String,
    /// Name of the release.
    pub name: ReleaseName,
    /// Number of the revision.
    pub revision: Revision,
    /// Helm's status of the revision.
    pub status: Status,
    /// Owner that the record belongs to.
    pub cr: Option<CrIdentity>,
    /// Operator that manages the release.
    pub operator: Option<OperatorId>,
    /// Instance that wrote this revision with its current status and content; `None` if another
    /// client wrote one of them.
    pub writer: Option<InstanceId>,
    /// Digest of the inputs of this revision; `None` if another client created it.
    pub digest: Option<InputsDigest>,
    /// Service account as which the objects were applied; `None` if it was the operator's own, or is
    /// not recorded. The proof covers it.
    pub account: Option<AccountName>,
    /// Failed attempts of this revision; `None` if not recorded by this operator.
    pub failures: Option<Failures>,
    /// Hash of the operator's fields of all objects when the revision was deployed, if it was known.
    pub baseline: Option<String>,
    /// Whether the objects of the release have no owner references: those of this revision and of earlier ones.
    pub unowned: bool,
    /// One-time annotations that the release has handled.
    pub(crate) asked: Asked,
    /// Proof of its label that this operator wrote the content; `None` if it has none, or if it was
    /// found to be wrong. It is verified when the content is read.
    pub proof: Option<String>,
    /// Name of the Secret.
    pub secret: String,
    /// Uid of the Secret.
    pub uid: String,
    /// Resource version of the Secret; updates are conditional on it.
    pub resource_version: String,
    /// Creation time by Helm's label, else that of the Secret.
    pub created_at: Option<Timestamp>,
    /// Creation time of the Secret, by the clock of the API server like that of the applied
    /// objects.
    pub stored_at: Option<Timestamp>,
    /// Time of the last update by Helm's label.
    pub modified_at: Option<Timestamp>,
    /// Storage format.
    pub(crate) format: Format,
    /// Finalizers of others, which an update keeps.
    pub finalizers: Vec<String>,
    /// Uids of the owner references. Garbage collection may delete the record.
    pub owners: Vec<String>,
    pub(super) parts: Option<Parts>,
}

impl RecordMeta {
    /// Returns the number of parts of the record; 0 if it fits into one Secret.
    pub fn parts(&self) -> u32 {
        self.parts.as_ref().map_or(0, Parts::count)
    }

    /// Reads the metadata of a Secret. Returns `None` if it is not a record.
    pub(crate) fn of(metadata: &ObjectMeta, format: Format) -> Option<Self> {
        let labels = metadata.labels.as_ref()?;
        let label = |key: &str| labels.get(key).map(String::as_str);
        let secret = metadata.name.clone()?;
        // Helm identifies records by their name; labels can be edited.
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
            writer: own(WRITER_LABEL)
                .filter(|_| is_unmodified(metadata))
                .map(InstanceId::new),
            digest: own(DIGEST_LABEL).map(|hash| InputsDigest(hash.to_owned())),
            account: account_of(own),
            failures: own(FAILURES_LABEL).and_then(Failures::parse),
            baseline: own(BASELINE_LABEL).map(ToOwned::to_owned),
            unowned: own(UNOWNED_LABEL) == Some("true"),
            asked: Asked::of_labels(labels),
            proof: own(PROOF_LABEL).map(ToOwned::to_owned),
            uid: metadata.uid.clone().unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            created_at: seconds("createdAt")
                .or_else(|| metadata.creation_timestamp.as_ref().map(|time| time.0)),
            stored_at: metadata.creation_timestamp.as_ref().map(|time| time.0),
            modified_at: seconds("modifiedAt"),
            format,
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
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

    /// Returns when the record was last written, if known.
    pub fn written_at(&self) -> Option<Timestamp> {
        self.modified_at.max(self.created_at)
    }

    /// Returns whether this is the same version of the same record.
    pub(super) fn is_same_state(&self, other: &Self) -> bool {
        (&self.uid, &self.resource_version) == (&other.uid, &other.resource_version)
    }

    /// Returns whether this is a later version of the same record.
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        version_number(&self.resource_version) > version_number(&other.resource_version)
    }
}

/// Returns whether status and content of a record were last written by this operator.
///
/// Labels do not show that: Helm keeps the operator's labels when it marks a record as superseded,
/// failed or uninstalling, or records a test run. A client that changes a field removes it from the
/// entries of all other managers in `managedFields`, which the API server maintains.
fn is_unmodified(metadata: &ObjectMeta) -> bool {
    let ours = |entry: &&ManagedFieldsEntry| entry.manager.as_deref() == Some(WRITER_MANAGER);
    let mut entries = metadata.managed_fields.iter().flatten().filter(ours);
    entries.any(|entry| {
        entry.fields_v1.as_ref().is_some_and(|fields| {
            ["/f:metadata/f:labels/f:status", "/f:data/f:release"]
                .iter()
                .all(|field| fields.0.pointer(field).is_some())
        })
    })
}

/// Parses a resource version, an increasing integer (KEP-5504). Any other counts as the latest.
fn version_number(version: &str) -> u64 {
    version.parse().unwrap_or(u64::MAX)
}

/// Labels that the operator sets on a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordTags {
    /// Owner that owns the release.
    pub cr: CrIdentity,
    /// Operator that manages the release.
    pub operator: OperatorId,
    /// Instance that writes the record.
    pub writer: InstanceId,
    /// Digest of the inputs of the revision; `None` if unknown.
    pub digest: Option<InputsDigest>,
    /// Service account as which the objects are applied; `None` if it is the operator's own.
    pub account: Option<AccountName>,
    /// Failed attempts of the revision; `None` if unknown.
    pub failures: Option<Failures>,
    /// Hash of the operator's fields of all objects, if the revision has just been deployed.
    pub baseline: Option<String>,
    /// Whether the objects of the release have no owner references.
    pub unowned: bool,
    /// Whether the content was rendered by this operator or has a valid proof.
    pub proven: bool,
}

impl RecordTags {
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
        if let Some(failures) = &self.failures {
            labels.insert(FAILURES_LABEL.to_owned(), format!("{revision}-{failures}"));
        }
        if let Some(baseline) = &self.baseline {
            labels.insert(BASELINE_LABEL.to_owned(), format!("{revision}-{baseline}"));
        }
        if self.unowned {
            labels.insert(UNOWNED_LABEL.to_owned(), unowned_label(revision));
        }
        if let Some(account) = &self.account {
            let text: Vec<char> = account.text().chars().collect();
            let pieces = text.chunks(ACCOUNT_CHARACTERS);
            let count = pieces.len();
            for (key, piece) in account_labels().zip(pieces) {
                let piece: String = piece.iter().collect();
                labels.insert(key, format!("{revision}-{piece}-{count}"));
            }
        }
        labels
    }
}

/// Returns the value of [`UNOWNED_LABEL`].
pub(super) fn unowned_label(revision: Revision) -> String {
    format!("{revision}-true")
}

/// Returns the keys of the labels that an account may take.
pub(super) fn account_labels() -> impl Iterator<Item = String> {
    (1..=AccountName::MAX.div_ceil(ACCOUNT_CHARACTERS)).map(|number| match number {
        1 => ACCOUNT_LABEL.to_owned(),
        _ => format!("{ACCOUNT_LABEL}-{number}"),
    })
}

/// Reads the account from the values of its labels; `None` if one of them is missing.
fn account_of<'a>(own: impl Fn(&str) -> Option<&'a str>) -> Option<AccountName> {
    let (_, count) = own(ACCOUNT_LABEL)?.rsplit_once('-')?;
    let keys = account_labels().take(count.parse().ok()?);
    let pieces = keys.map(|key| Some(own(&key)?.rsplit_once('-')?.0));
    AccountName::from_text(&pieces.collect::<Option<String>>()?)
}

/// Returns the labels of a Secret without Helm's own.
pub(super) fn custom_labels(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let custom = labels
        .iter()
        .filter(|(key, _)| !SYSTEM_LABELS.contains(&key.as_str()));
    custom
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Returns the rest of a label `REVISION-REST` if it is for this revision.
fn of_revision(label: &str, revision: Revision) -> Option<&str> {
    let (number, rest) = label.split_once('-')?;
    (number.parse() == Ok(revision.0)).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::{Value, json};

    fn tags() -> RecordTags {
        RecordTags {
            cr: CrIdentity::of("g", "K", Some("prod"), "web"),
            operator: OperatorId::new("op"),
            writer: InstanceId::new(&"pod-with-a-long-name-".repeat(10)),
            digest: Some((&Digest::of("inputs")).into()),
            account: Some(AccountName::new("team", "deployer").unwrap()),
            failures: Some(Failures {
                attempts: 3,
                hook: true,
            }),
            baseline: Some("0123456789abcdef".to_owned()),
            unowned: true,
            proven: true,
        }
    }

    fn secret(revision: u32, labels: BTreeMap<String, String>) -> ObjectMeta {
        let everything = json!({
            "f:data": {".": {}, "f:release": {}}, "f:type": {},
            "f:metadata": {"f:labels": {".": {}, "f:status": {}, "f:version": {}}}});
        managed(revision, labels, &[("hybrid-operator", everything)])
    }

    /// Returns the metadata of a record with these field managers.
    fn managed(
        revision: u32,
        labels: BTreeMap<String, String>,
        managers: &[(&str, Value)],
    ) -> ObjectMeta {
        let managers: Vec<Value> = managers
            .iter()
            .map(|(manager, fields)| {
                json!({"manager": manager, "operation": "Update", "apiVersion": "v1",
                    "fieldsType": "FieldsV1", "fieldsV1": fields})
            })
            .collect();
        let mut metadata: ObjectMeta = serde_json::from_value(json!({
            "name": format!("sh.helm.release.v1.web.v{revision}"), "namespace": "prod",
            "uid": "u", "resourceVersion": "12", "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": managers}))
        .unwrap();
        metadata.labels = Some(labels);
        metadata
    }

    #[test]
    fn labels_are_at_most_63_characters_and_read_back() {
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
        assert_eq!(meta.failures, tags.failures);
        assert_eq!(meta.baseline, tags.baseline);
    }

    #[test]
    fn accounts_of_any_length_are_read_back_from_labels() {
        for (namespace, name) in [
            ("n".to_owned(), "a".to_owned()),
            ("team-a".to_owned(), "de-ploy.er-2.x".to_owned()),
            ("n".repeat(63), format!("{}.b", "a-".repeat(120) + "a")),
            ("n".repeat(63), "a".repeat(253)),
        ] {
            let account = AccountName::new(&namespace, &name).unwrap();
            let revision = Revision(u32::MAX);
            let tags = RecordTags {
                account: Some(account.clone()),
                ..tags()
            };
            let labels = tags.labels(revision);
            for (key, value) in &labels {
                let ends = [value.chars().next(), value.chars().last()];
                let valid = ends.iter().flatten().all(char::is_ascii_alphanumeric);
                assert!(value.len() <= 63 && valid, "{key}: {value}");
            }
            let read = |labels: &BTreeMap<String, String>| {
                let secret = secret(revision.0, labels.clone());
                RecordMeta::of(&secret, Format::Helm).unwrap().account
            };
            assert_eq!(read(&labels), Some(account), "{labels:?}");
            // A label that is missing leaves the account unknown.
            for key in account_labels().filter(|key| labels.contains_key(key)) {
                let mut labels = labels.clone();
                labels.remove(&key);
                assert_eq!(read(&labels), None, "{key}");
            }
        }
    }

    #[test]
    fn names_that_no_object_can_have_name_no_account() {
        let long = "a".repeat(254);
        let names = "|.|a.|-a|A|a b|a:b|a/b|<no value>".split('|');
        for name in names.chain([&*long]) {
            assert!(AccountName::new("team", name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn labels_copied_by_helm_to_another_revision_are_ignored() {
        let meta = RecordMeta::of(&secret(2, tags().labels(Revision(1))), Format::Helm).unwrap();
        assert_eq!((meta.writer.as_ref(), meta.digest.as_ref()), (None, None));
        assert_eq!(meta.cr, Some(tags().cr));
    }

    #[test]
    fn record_changed_by_another_client_has_no_writer() {
        // A manager and what it wrote: labels, and the content or not.
        let wrote = |manager, labels: &[&str], content: bool| {
            let names = labels.iter().map(|name| (format!("f:{name}"), json!({})));
            let names: BTreeMap<String, Value> = names.collect();
            let mut fields = json!({"f:metadata": {"f:labels": names}});
            if content {
                fields["f:data"] = json!({"f:release": {}});
            }
            (manager, fields)
        };
        let ours = |labels: &[&str], content| wrote("hybrid-operator", labels, content);
        let helm = |labels: &[&str], content| wrote("Helm", labels, content);
        let kubectl = |verb: &'static str, label| wrote(verb, &[label], false);
        let (status, version) = (&["status"][..], &["version"][..]);
        let table = [
            ("unchanged", vec![ours(&["status", "version"], true)], true),
            (
                "superseded or being uninstalled by Helm",
                vec![ours(version, false), helm(&["status", "modifiedAt"], true)],
                false,
            ),
            (
                "tested by Helm, which keeps the status",
                vec![ours(status, false), helm(&["modifiedAt"], true)],
                false,
            ),
            (
                "status changed with kubectl",
                vec![ours(&[], true), kubectl("kubectl-patch", "status")],
                false,
            ),
            (
                "label added with kubectl",
                vec![ours(status, true), kubectl("kubectl-label", "team")],
                true,
            ),
            (
                "adopted from Helm: the operator only wrote labels",
                vec![ours(&["writer"], false), helm(status, true)],
                false,
            ),
            ("restored from a backup without fields", vec![], false),
        ];
        for (what, managers, ours) in table {
            let metadata = managed(1, tags().labels(Revision(1)), &managers);
            let meta = RecordMeta::of(&metadata, Format::Helm).unwrap();
            assert_eq!(meta.writer.is_some(), ours, "{what}");
            assert_eq!(meta.digest, tags().digest, "{what}");
        }
    }

    #[test]
    fn times_are_read_from_helms_labels_or_the_secret() {
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
    fn other_secrets_are_not_records() {
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
    fn owner_references_are_read() {
        let mut metadata = secret(1, BTreeMap::new());
        let owners = |metadata: &ObjectMeta| RecordMeta::of(metadata, Format::Helm).unwrap().owners;
        assert!(owners(&metadata).is_empty());
        metadata.owner_references = Some(vec![OwnerReference {
            uid: "x".to_owned(),
            ..OwnerReference::default()
        }]);
        assert_eq!(owners(&metadata), ["x"]);
    }
}
