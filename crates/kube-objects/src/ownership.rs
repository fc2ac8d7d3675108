//! Ownership of objects: the labels, annotations and owner references by which the objects of a
//! release are marked, watched and recognised.
//!
//! All functions are pure. The metadata is added to the objects that are sent, never to the
//! manifest in a release record.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use object_key::ObjectKey;
use serde_json::{Map, Value, json};

use super::Scope;
use super::identity::type_text;

pub use super::identity::CrIdentity;
pub use super::identity::{
    AccountName, AccountNameError, InstanceId, OperatorId, Primary, label_value,
};

/// Label with the name of the chart, as operator-sdk sets it.
pub(crate) const CHART_LABEL: &str = "helm.sdk.operatorframework.io/chart";
/// Label with the [`OperatorId`]: the selector of all watches of dependents.
pub const OPERATOR_LABEL: &str = "helm.sdk.operatorframework.io/operator";
/// Label with the [`CrIdentity`] of the custom resource that an object belongs to.
pub const CR_LABEL: &str = "helm.sdk.operatorframework.io/cr";
/// Label with the run that created an object: hooks, and objects whose name the server generates.
pub const RUN_LABEL: &str = "helm.sdk.operatorframework.io/run";
/// Annotation with the `namespace/name` of the owner, if an owner reference to it is impossible.
pub(crate) const PRIMARY_ANNOTATION: &str = "operator-sdk/primary-resource";
/// Annotation with the `Kind.group` of the owner, if an owner reference to it is impossible.
pub(crate) const PRIMARY_TYPE_ANNOTATION: &str = "operator-sdk/primary-resource-type";
/// Label by which Helm recognises its objects; the value is [`MANAGED_BY_HELM`].
pub(crate) const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY_LABEL`] on objects of a release.
pub(crate) const MANAGED_BY_HELM: &str = "Helm";
/// Annotation of Helm with the name of the release.
pub(crate) const RELEASE_NAME_ANNOTATION: &str = "meta.helm.sh/release-name";
/// Annotation of Helm with the namespace of the release.
pub(crate) const RELEASE_NAMESPACE_ANNOTATION: &str = "meta.helm.sh/release-namespace";
/// Annotation that, with the value `keep`, excludes an object from deletion.
pub(crate) const RESOURCE_POLICY_ANNOTATION: &str = "helm.sh/resource-policy";

/// Beginnings of the keys of labels and annotations that mean something to Helm, to the operator, or to operator-sdk.
const RESERVED: [&str; 4] = [
    "helm.sh/",
    "meta.helm.sh/",
    "helm.sdk.operatorframework.io/",
    "operator-sdk/",
];

/// Returns whether a label or annotation belongs to Helm, its hooks among them, or to the operator.
pub fn is_reserved_key(key: &str) -> bool {
    key == MANAGED_BY_LABEL || RESERVED.iter().any(|start| key.starts_with(start))
}

/// The input of [`mark`].
#[derive(Clone, Debug)]
pub struct Marks<'a> {
    /// The custom resource.
    pub primary: &'a Primary,
    /// The operator.
    pub operator: &'a OperatorId,
    /// Name of the chart.
    pub chart: &'a str,
    /// Name of the release.
    pub release_name: &'a str,
    /// Namespace of the release, and of objects without a namespace.
    pub release_namespace: &'a str,
    /// Value of [`RUN_LABEL`]; `None` leaves the label out.
    pub run: Option<&'a str>,
    /// Whether the object is a hook. Helm leaves its own metadata off hooks.
    pub hook: bool,
    /// Whether garbage collection must not delete the object: it gets no owner reference.
    pub unowned: bool,
}

impl Marks<'_> {
    /// Returns the claimant for judging the ownership of existing objects.
    pub fn claimant(&self) -> Claimant<'_> {
        Claimant {
            primary: self.primary,
            release_name: self.release_name,
            release_namespace: self.release_namespace,
        }
    }
}

#[cfg(test)]
impl<'a> Marks<'a> {
    /// The marks of an object of the release `one` in the namespace `prod`.
    pub fn fixture(primary: &'a Primary, operator: &'a OperatorId) -> Self {
        Self {
            primary,
            operator,
            chart: "memcached",
            release_name: "one",
            release_namespace: "prod",
            run: None,
            hook: false,
            unowned: false,
        }
    }
}

/// Adds the ownership metadata of an object of a release before it is sent: that of
/// [`mark_owned`], and Helm's.
///
/// An object that is annotated to be kept has no owner reference, nor has a namespace or a custom resource
/// definition: garbage collection does not ask what they hold.
///
/// A namespaced object without a namespace gets the namespace of the release.
pub fn mark(object: &mut Value, marks: &Marks<'_>, scope: Scope) {
    let reference = if marks.unowned || ObjectKey::of(object).is_some_and(|key| is_container(&key))
    {
        Reference::Never
    } else {
        Reference::IfPossible
    };
    mark_with(
        object,
        marks.primary,
        marks.operator,
        marks.release_namespace,
        scope,
        reference,
    );
    let Some(metadata) = entry_map(object, "metadata") else {
        return;
    };
    let mut labels = vec![(CHART_LABEL, label_value(marks.chart))];
    let mut annotations = Vec::new();
    if !marks.hook {
        labels.push((MANAGED_BY_LABEL, MANAGED_BY_HELM.to_owned()));
        annotations.push((RELEASE_NAME_ANNOTATION, marks.release_name.to_owned()));
        annotations.push((
            RELEASE_NAMESPACE_ANNOTATION,
            marks.release_namespace.to_owned(),
        ));
    }
    if let Some(run) = marks.run {
        labels.push((RUN_LABEL, label_value(run)));
    }
    set_texts(metadata, "labels", labels);
    set_texts(metadata, "annotations", annotations);
}

/// Adds the ownership metadata of a custom resource to an object before it is sent: labels, and an
/// owner reference, or annotations where a reference is impossible or unwanted (`keep`).
///
/// A namespaced object without a namespace gets `namespace`.
pub fn mark_owned(
    object: &mut Value,
    primary: &Primary,
    operator: &OperatorId,
    namespace: &str,
    scope: Scope,
) {
    let reference = Reference::IfPossible;
    mark_with(object, primary, operator, namespace, scope, reference);
}

/// Whether an object gets an owner reference.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reference {
    IfPossible,
    Never,
}

fn mark_with(
    object: &mut Value,
    primary: &Primary,
    operator: &OperatorId,
    namespace: &str,
    scope: Scope,
    reference: Reference,
) {
    let Some(metadata) = entry_map(object, "metadata") else {
        return;
    };
    if scope == Scope::Cluster {
        metadata.remove("namespace");
    } else if text_at(metadata, "namespace").is_empty() {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    let actual = metadata
        .get("namespace")
        .and_then(Value::as_str)
        .map(str::to_owned);
    let labels = vec![
        (OPERATOR_LABEL, operator.to_string()),
        (CR_LABEL, primary.identity().to_string()),
    ];
    let kept = reference == Reference::Never || is_kept_value(metadata.get("annotations"));
    if !kept && primary.can_be_referenced(scope, actual.as_deref()) {
        add_owner_reference(metadata, primary);
    } else {
        let annotations = vec![
            (PRIMARY_ANNOTATION, primary.name_text()),
            (PRIMARY_TYPE_ANNOTATION, primary.type_text()),
        ];
        set_texts(metadata, "annotations", annotations);
    }
    set_texts(metadata, "labels", labels);
}

/// The owner that an object's metadata names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerHint {
    /// API group of the owner.
    pub group: String,
    /// Kind of the owner.
    pub kind: String,
    /// Namespace of the owner if it is a namespaced kind.
    pub namespace: Option<String>,
    /// Name of the owner.
    pub name: String,
    /// Uid, if an owner reference names it.
    pub uid: Option<String>,
}

/// Returns the owner of an object from its controller reference or else the `primary-resource`
/// annotations.
pub fn owner_of(metadata: &ObjectMeta) -> Option<OwnerHint> {
    if let Some(reference) = controller_of(metadata) {
        return Some(OwnerHint {
            group: group_of(&reference.api_version).to_owned(),
            kind: reference.kind.clone(),
            namespace: metadata.namespace.clone(),
            name: reference.name.clone(),
            uid: Some(reference.uid.clone()),
        });
    }
    let annotations = metadata.annotations.as_ref()?;
    let (kind, group) = split_type(annotations.get(PRIMARY_TYPE_ANNOTATION)?);
    let owner = annotations.get(PRIMARY_ANNOTATION)?;
    let (namespace, name) = owner.split_once('/').unwrap_or(("", owner));
    Some(OwnerHint {
        group: group.to_owned(),
        kind: kind.to_owned(),
        namespace: Some(namespace.to_owned()).filter(|namespace| !namespace.is_empty()),
        name: name.to_owned(),
        uid: None,
    })
}

/// Returns the identity in an object's label.
pub(crate) fn cr_of(metadata: &ObjectMeta) -> Option<CrIdentity> {
    label(metadata, CR_LABEL).map(CrIdentity::from_label)
}

/// A custom resource and its release, for judging whether they own an object.
#[derive(Clone, Copy, Debug)]
pub struct Claimant<'a> {
    /// The custom resource.
    pub primary: &'a Primary,
    /// Name of the release.
    pub release_name: &'a str,
    /// Namespace of the release.
    pub release_namespace: &'a str,
}

#[cfg(test)]
impl<'a> Claimant<'a> {
    /// The release `one` in the namespace `prod`.
    pub fn fixture(primary: &'a Primary) -> Self {
        Self {
            primary,
            release_name: "one",
            release_namespace: "prod",
        }
    }
}

/// The ownership of an existing object, from the view of a [`Claimant`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The object carries our label, reference or annotations, without a contradiction.
    Ours,
    /// The object carries Helm's metadata for this release, without a contradiction: it is of a
    /// release that is being adopted, or the `helm` command created it.
    Release,
    /// The object belongs to somebody else, or has no owner.
    Foreign(ForeignOwner),
}

/// The owner of a foreign object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForeignOwner {
    /// Another release.
    Release {
        /// Name of the release.
        name: String,
        /// Namespace of the release.
        namespace: String,
    },
    /// Another controller.
    Controller {
        /// `Kind.group` of the owner.
        kind: String,
        /// Name of the owner.
        name: String,
    },
    /// Another custom resource, named by the label.
    CustomResource(CrIdentity),
    /// No ownership metadata.
    Nobody,
}

impl fmt::Display for ForeignOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Release { name, namespace } => {
                write!(f, "it belongs to the release {namespace}/{name}")
            }
            Self::Controller { kind, name } => write!(f, "it belongs to {kind} {name}"),
            Self::CustomResource(_) => f.write_str("it belongs to another custom resource"),
            Self::Nobody => f.write_str("it was not created by this release"),
        }
    }
}

/// Judges the ownership of an existing object.
///
/// A single contradiction (another release's annotations, another controller, another custom
/// resource's label) outweighs any agreement, because an error that a person has to resolve is
/// better than taking over or deleting an object of others.
pub fn ownership(metadata: &ObjectMeta, claimant: &Claimant<'_>) -> Ownership {
    let primary = claimant.primary;
    let identity = primary.identity();
    let labelled = cr_of(metadata);
    if let Some(other) = labelled.as_ref().filter(|label| **label != identity) {
        return Ownership::Foreign(ForeignOwner::CustomResource(other.clone()));
    }
    let name = annotation(metadata, RELEASE_NAME_ANNOTATION);
    let namespace = annotation(metadata, RELEASE_NAMESPACE_ANNOTATION);
    if name.is_some_and(|name| name != claimant.release_name)
        || namespace.is_some_and(|namespace| namespace != claimant.release_namespace)
    {
        return Ownership::Foreign(ForeignOwner::Release {
            name: name.unwrap_or_default().to_owned(),
            namespace: namespace.unwrap_or_default().to_owned(),
        });
    }
    let hint = owner_of(metadata);
    let is_primary = hint.as_ref().is_some_and(|hint| {
        hint.group == primary.gvk.group
            && hint.kind == primary.gvk.kind
            && hint.name == primary.name
            && primary
                .namespace
                .as_deref()
                .is_none_or(|own| hint.namespace.as_deref() == Some(own))
    });
    if let Some(hint) = hint.as_ref().filter(|_| !is_primary) {
        return Ownership::Foreign(ForeignOwner::Controller {
            kind: type_text(&hint.kind, &hint.group),
            name: hint.name.clone(),
        });
    }
    if labelled.is_some() || is_primary {
        Ownership::Ours
    } else if has_release_metadata(metadata, claimant) {
        Ownership::Release
    } else {
        Ownership::Foreign(ForeignOwner::Nobody)
    }
}

/// Returns whether the object has Helm's label and both annotations for this release, so that Helm
/// itself would take it over.
pub(crate) fn has_release_metadata(metadata: &ObjectMeta, claimant: &Claimant<'_>) -> bool {
    label(metadata, MANAGED_BY_LABEL) == Some(MANAGED_BY_HELM)
        && annotation(metadata, RELEASE_NAME_ANNOTATION) == Some(claimant.release_name)
        && annotation(metadata, RELEASE_NAMESPACE_ANNOTATION) == Some(claimant.release_namespace)
}

/// Returns whether a kind's objects are deleted together with objects that they hold.
pub fn is_container(key: &ObjectKey) -> bool {
    matches!(
        (key.group.as_str(), key.kind.as_str()),
        ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition")
    )
}

/// Returns whether a live object is excluded from deletion.
pub fn is_kept(metadata: &ObjectMeta) -> bool {
    annotation(metadata, RESOURCE_POLICY_ANNOTATION).is_some_and(is_keep)
}

/// Returns the uid of the controller of an object that is annotated to be kept. Garbage collection
/// deletes the object with it, before an uninstall could leave it.
pub fn holder_of(metadata: &ObjectMeta) -> Option<&str> {
    let controller = controller_of(metadata).filter(|_| is_kept(metadata))?;
    Some(&controller.uid)
}

/// Returns the run that has created a live object: that of a hook, or of a revision for a generated
/// name.
pub fn run_of(metadata: &ObjectMeta) -> Option<&str> {
    label(metadata, RUN_LABEL)
}

/// Returns the label selector of the objects of an operator.
pub fn operator_selector(operator: &OperatorId) -> String {
    format!("{OPERATOR_LABEL}={operator}")
}

/// Returns the label selector of the objects of a custom resource.
pub fn cr_selector(operator: &OperatorId, cr: &CrIdentity) -> String {
    format!("{OPERATOR_LABEL}={operator},{CR_LABEL}={cr}")
}

/// Returns a key with the namespace that its object has in the cluster: none for a cluster-scoped
/// kind, otherwise its own or the release's.
pub fn placed(key: &ObjectKey, scope: Scope, release_namespace: &str) -> ObjectKey {
    let mut key = key.clone();
    key.namespace = match scope {
        Scope::Cluster => None,
        Scope::Namespaced => Some(
            key.namespace
                .take()
                .unwrap_or_else(|| release_namespace.to_owned()),
        ),
    };
    key
}

/// Returns the owner reference that is marked as controller.
pub(crate) fn controller_of(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let references = metadata.owner_references.as_deref().unwrap_or_default();
    references
        .iter()
        .find(|reference| reference.controller == Some(true))
}

/// Returns whether an object of `primary` was created for an earlier custom resource of the same name, so that the
/// garbage collector deletes it.
pub fn is_of_predecessor(metadata: &ObjectMeta, primary: &Primary) -> bool {
    controller_of(metadata).is_some_and(|reference| reference.uid != primary.uid)
}

fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn split_type(text: &str) -> (&str, &str) {
    text.split_once('.').unwrap_or((text, ""))
}

fn is_keep(policy: &str) -> bool {
    policy.trim().eq_ignore_ascii_case("keep")
}

fn is_kept_value(annotations: Option<&Value>) -> bool {
    annotations
        .and_then(|annotations| annotations.get(RESOURCE_POLICY_ANNOTATION))
        .and_then(Value::as_str)
        .is_some_and(is_keep)
}

/// Returns the map at `key`, creating it if it is missing or null; `None` if it is another type.
fn entry_map<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Map<String, Value>> {
    let slot = object.as_object_mut()?.entry(key).or_insert(Value::Null);
    if slot.is_null() {
        *slot = Value::Object(Map::new());
    }
    slot.as_object_mut()
}

fn text_at<'a>(map: &'a Map<String, Value>, key: &str) -> &'a str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn set_texts(metadata: &mut Map<String, Value>, field: &str, texts: Vec<(&str, String)>) {
    if texts.is_empty() {
        return;
    }
    let slot = metadata.entry(field).or_insert(Value::Null);
    if !slot.is_object() {
        *slot = Value::Object(Map::new());
    }
    if let Some(map) = slot.as_object_mut() {
        map.extend(
            texts
                .into_iter()
                .map(|(key, text)| (key.to_owned(), Value::String(text))),
        );
    }
}

/// Adds the owner reference, in the place of one that the object already has: manifests of
/// helm-operator-plugins contain it, possibly with the uid of an earlier custom resource of that name.
/// If the chart sets another controller, ours is a plain reference, because an object has at most one
/// controller.
fn add_owner_reference(metadata: &mut Map<String, Value>, primary: &Primary) {
    let slot = metadata.entry("ownerReferences").or_insert(Value::Null);
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    let Some(references) = slot.as_array_mut() else {
        return;
    };
    references.retain(|reference| !refers_to(reference, primary));
    let controlled = references
        .iter()
        .any(|reference| reference.get("controller").and_then(Value::as_bool) == Some(true));
    let mut reference = json!({
        "apiVersion": primary.gvk.api_version(),
        "kind": primary.gvk.kind,
        "name": primary.name,
        "uid": primary.uid,
        "blockOwnerDeletion": true,
    });
    if let Some(reference) = reference.as_object_mut().filter(|_| !controlled) {
        reference.insert("controller".to_owned(), true.into());
    }
    references.push(reference);
}

/// Returns the owner references of an object without those to a custom resource, for a merge patch;
/// `None` if it has none to it. The uid of the present one may differ, because restoring a backup changes
/// it.
pub(super) fn other_references(live: &ObjectMeta, primary: &Primary) -> Option<Value> {
    let present = json!(live.owner_references.as_deref().unwrap_or_default());
    let others: Vec<&Value> = present
        .as_array()?
        .iter()
        .filter(|reference| !refers_to(reference, primary))
        .collect();
    let is_empty = others.is_empty();
    let others = json!(others);
    (others != present).then_some(if is_empty { Value::Null } else { others })
}

/// Returns whether an owner reference names the custom resource that an object's label names.
pub fn is_referenced(metadata: &ObjectMeta) -> bool {
    let Some(label) = cr_of(metadata) else {
        return false;
    };
    let references = metadata.owner_references.as_deref().unwrap_or_default();
    references.iter().any(|reference| {
        let group = group_of(&reference.api_version);
        [metadata.namespace.as_deref(), None]
            .into_iter()
            .any(|namespace| {
                let owner = CrIdentity::of(group, &reference.kind, namespace, &reference.name);
                label == owner || label.component_of(&owner).is_some()
            })
    })
}

/// Returns whether an owner reference names the custom resource.
fn refers_to(reference: &Value, primary: &Primary) -> bool {
    let text = |field| reference.get(field).and_then(Value::as_str);
    let named = text("apiVersion").map(group_of) == Some(&*primary.gvk.group)
        && text("kind") == Some(&*primary.gvk.kind)
        && text("name") == Some(&*primary.name);
    named || text("uid") == Some(&*primary.uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(namespace: Option<&str>) -> Primary {
        Primary {
            namespace: namespace.map(str::to_owned),
            ..Primary::fixture()
        }
    }

    fn marked(object: Value, primary: &Primary, scope: Scope) -> Value {
        let mut object = object;
        let operator = OperatorId::new("op");
        mark(&mut object, &Marks::fixture(primary, &operator), scope);
        object
    }

    fn meta(object: &Value) -> ObjectMeta {
        serde_json::from_value(object["metadata"].clone()).unwrap()
    }

    #[test]
    fn an_object_in_the_namespace_of_its_custom_resource_gets_an_owner_reference() {
        let primary = primary(Some("prod"));
        let object = marked(
            json!({"metadata": {"name": "web"}}),
            &primary,
            Scope::Namespaced,
        );
        let meta = meta(&object);
        assert_eq!(meta.namespace.as_deref(), Some("prod"));
        assert_eq!(controller_of(&meta), Some(&primary.owner_reference()));
        let annotations = object["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(annotations.len(), 2);
        assert_eq!(object["metadata"]["labels"][MANAGED_BY_LABEL], "Helm");
        let owner = owner_of(&meta).unwrap();
        assert_eq!(owner.namespace.as_deref(), Some("prod"));
        assert_eq!(owner.name, "one");
        assert_eq!(cr_of(&meta), Some(primary.identity()));
    }

    #[test]
    fn annotations_name_the_owner_where_a_reference_is_impossible_or_unwanted() {
        let namespaced = primary(Some("prod"));
        let keep = json!({"metadata": {"annotations": {RESOURCE_POLICY_ANNOTATION: " Keep "}}});
        for (object, scope) in [
            (
                json!({"metadata": {"namespace": "other"}}),
                Scope::Namespaced,
            ),
            (json!({"metadata": {"namespace": "prod"}}), Scope::Cluster),
            (keep, Scope::Namespaced),
        ] {
            let object = marked(object, &namespaced, scope);
            let meta = meta(&object);
            assert_eq!(meta.owner_references, None);
            let annotations = meta.annotations.as_ref().unwrap();
            assert_eq!(annotations[PRIMARY_ANNOTATION], "prod/one");
            let expected = "Memcached.cache.example.com";
            assert_eq!(annotations[PRIMARY_TYPE_ANNOTATION], expected);
            let owner = owner_of(&meta).unwrap();
            assert_eq!(owner.namespace.as_deref(), Some("prod"));
            assert_eq!(owner.name, "one");
        }
    }

    #[test]
    fn every_object_of_a_cluster_scoped_custom_resource_gets_an_owner_reference() {
        let primary = primary(None);
        for scope in [Scope::Cluster, Scope::Namespaced] {
            let object = marked(json!({"metadata": {"namespace": "any"}}), &primary, scope);
            let owner = owner_of(&meta(&object)).unwrap();
            assert_eq!((&*owner.kind, &*owner.name), ("Memcached", "one"));
        }
    }

    #[test]
    fn a_controller_that_the_chart_sets_stays_the_only_one() {
        let object = json!({"metadata": {"ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]}});
        let object = marked(object, &primary(Some("prod")), Scope::Namespaced);
        let meta = meta(&object);
        assert_eq!(meta.owner_references.as_ref().unwrap().len(), 2);
        assert_eq!(controller_of(&meta).unwrap().kind, "Pod");
    }

    #[test]
    fn owner_reference_of_a_recorded_manifest_is_replaced() {
        for uid in ["cr-uid", "uid-of-an-earlier-one"] {
            let object = json!({"metadata": {"ownerReferences": [
                {"apiVersion": "cache.example.com/v1alpha1", "kind": "Memcached", "name": "one",
                    "uid": uid, "controller": true, "blockOwnerDeletion": true}]}});
            let object = marked(object, &primary(Some("prod")), Scope::Namespaced);
            let references = meta(&object).owner_references.unwrap();
            let uids: Vec<&str> = references.iter().map(|owner| &*owner.uid).collect();
            assert_eq!(uids, ["cr-uid"]);
            assert_eq!(references[0].controller, Some(true));
        }
    }

    #[test]
    fn hooks_do_not_carry_helm_metadata() {
        let primary = primary(Some("prod"));
        let operator = OperatorId::new("op");
        let mut object = json!({"metadata": {"name": "hook", "labels": null}});
        let marks = Marks {
            run: Some("r1"),
            hook: true,
            ..Marks::fixture(&primary, &operator)
        };
        mark(&mut object, &marks, Scope::Namespaced);
        assert_eq!(object["metadata"]["labels"].get(MANAGED_BY_LABEL), None);
        assert_eq!(object["metadata"]["labels"][RUN_LABEL], "r1");
        assert_eq!(object["metadata"].get("annotations"), None);
    }

    #[test]
    fn ownership_is_judged_by_agreement_without_contradiction() {
        let primary = primary(Some("prod"));
        let identity = primary.identity();
        let other = CrIdentity::of("g", "K", None, "n");
        let helm = |name: &str| {
            json!({"namespace": "prod", "labels": {MANAGED_BY_LABEL: "Helm"}, "annotations": {
                RELEASE_NAME_ANNOTATION: name, RELEASE_NAMESPACE_ANNOTATION: "prod"}})
        };
        let reference = |name: &str| {
            json!({"namespace": "prod", "ownerReferences": [{"apiVersion": "cache.example.com/v1",
                "kind": "Memcached", "name": name, "uid": "old", "controller": true}]})
        };
        let with = |mut base: Value, cr: &CrIdentity| {
            base["labels"][CR_LABEL] = cr.as_str().into();
            base
        };
        let foreign_release = Ownership::Foreign(ForeignOwner::Release {
            name: "two".to_owned(),
            namespace: "prod".to_owned(),
        });
        let table = [
            (
                "nothing",
                json!({}),
                Ownership::Foreign(ForeignOwner::Nobody),
            ),
            (
                "our label",
                json!({"labels": {CR_LABEL: identity.as_str()}}),
                Ownership::Ours,
            ),
            ("our reference", reference("one"), Ownership::Ours),
            ("the release's metadata", helm("one"), Ownership::Release),
            ("both", with(helm("one"), &identity), Ownership::Ours),
            ("another release", helm("two"), foreign_release.clone()),
            (
                "our label on another release's",
                with(helm("two"), &identity),
                foreign_release,
            ),
            (
                "our release, another custom resource's label",
                with(helm("one"), &other),
                Ownership::Foreign(ForeignOwner::CustomResource(other.clone())),
            ),
            (
                "another custom resource of our kind",
                reference("two"),
                Ownership::Foreign(ForeignOwner::Controller {
                    kind: "Memcached.cache.example.com".to_owned(),
                    name: "two".to_owned(),
                }),
            ),
            (
                "half of Helm's metadata",
                json!({"labels": {MANAGED_BY_LABEL: "Helm"}}),
                Ownership::Foreign(ForeignOwner::Nobody),
            ),
        ];
        for (name, metadata, expected) in table {
            let metadata: ObjectMeta = serde_json::from_value(metadata).unwrap();
            let found = ownership(&metadata, &Claimant::fixture(&primary));
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn labels_and_annotations_of_the_operator_and_of_helm_are_reserved() {
        let ours = [
            CHART_LABEL,
            OPERATOR_LABEL,
            CR_LABEL,
            RUN_LABEL,
            PRIMARY_ANNOTATION,
            PRIMARY_TYPE_ANNOTATION,
            MANAGED_BY_LABEL,
            RELEASE_NAME_ANNOTATION,
            RELEASE_NAMESPACE_ANNOTATION,
            RESOURCE_POLICY_ANNOTATION,
            "helm.sh/hook",
            "helm.sh/hook-weight",
        ];
        assert!(ours.iter().all(|key| is_reserved_key(key)));
        for key in ["helm.sh", "example.com/helm.sh", "app.kubernetes.io/name"] {
            assert!(!is_reserved_key(key), "{key}");
        }
    }
}
