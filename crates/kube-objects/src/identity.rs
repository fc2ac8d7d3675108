//! Identities of operators, their instances and custom resources, as label values.

use std::fmt;
use std::sync::Arc;

#[cfg(test)]
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::GroupVersionKind;
use sha2::{Digest as _, Sha256};

use super::Scope;
use super::shared_text::shared;

/// Maximum length of a label value.
const LABEL_MAX: usize = 63;

/// Identifies an operator in a cluster: `OPERATOR_NAME` or the leader election id. A valid label
/// value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OperatorId(Arc<str>);

/// Identifies an instance (Pod) of an operator, stable across restarts of its container. A valid
/// label value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId(Arc<str>);

/// Identifies a custom resource by group, kind, namespace and name, so that it survives backup
/// and restore, which change the uid. A valid label value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CrIdentity(Arc<str>);

/// A service account that the operator impersonates.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountName {
    namespace: String,
    name: String,
}

/// Text that names no service account.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not the name of a service account")]
pub struct AccountNameError(String);

impl AccountName {
    /// Maximum length of the text of an account.
    pub const MAX: usize = LABEL_MAX + 1 + 253;

    /// Names an account of a namespace.
    ///
    /// # Errors
    /// When no object can have the name: it is not a DNS subdomain of at most 253 characters.
    pub fn new(namespace: &str, name: &str) -> Result<Self, AccountNameError> {
        let is_part = |part: &str| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            let ends = !part.is_empty() && !part.starts_with('-') && !part.ends_with('-');
            ends && part.chars().all(inner)
        };
        if name.len() > 253 || !name.split('.').all(is_part) {
            return Err(AccountNameError(name.to_owned()));
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Reads the text of [`AccountName::text`].
    pub fn from_text(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('.')?;
        Self::new(namespace, name).ok()
    }

    /// Returns `NAMESPACE.NAME`, of characters that a label value may have.
    pub fn text(&self) -> String {
        format!("{}.{}", self.namespace, self.name)
    }

    /// Returns the namespace of the account.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the name of its user.
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// `NAMESPACE/NAME`.
impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl OperatorId {
    /// Creates an id from a name. A name that is not a valid label value is shortened and gets a
    /// hash.
    pub fn new(name: &str) -> Self {
        Self(shared(&label_value(name)))
    }
}

impl InstanceId {
    /// Maximum length of an instance id. A label value contains it after the number of a revision.
    pub const MAX: usize = 50;

    /// Creates an id from the name and uid of the Pod, or a host name.
    pub fn new(name: &str) -> Self {
        Self(shared(&label_value_within(name, Self::MAX)))
    }
}

impl CrIdentity {
    /// Computes the identity of a custom resource; `namespace` is `None` for a cluster-scoped one.
    pub fn of(group: &str, kind: &str, namespace: Option<&str>, name: &str) -> Self {
        let text = format!("{group}/{kind}/{}/{name}", namespace.unwrap_or_default());
        Self(shared(&hash_text(&text, 32)))
    }

    /// Maximum length of the name of a component.
    pub const COMPONENT_MAX: usize = LABEL_MAX - 33;

    /// Returns the identity of a component of the custom resource, which has a release of its own.
    #[must_use]
    pub fn of_component(&self, component: &str) -> Self {
        Self(shared(&format!("{}.{component}", self.0)))
    }

    /// Returns the name of the component if this is the identity of a component of `whole`.
    pub fn component_of(&self, whole: &Self) -> Option<&str> {
        self.0.strip_prefix(&*whole.0)?.strip_prefix('.')
    }

    /// Returns the identity that a label has.
    pub fn from_label(value: &str) -> Self {
        Self(shared(value))
    }

    /// Returns the value of the label.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

macro_rules! display_text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}
display_text!(OperatorId, InstanceId, CrIdentity);

/// The custom resource that a release belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Primary {
    /// Group, version and kind.
    pub gvk: GroupVersionKind,
    /// Namespace; `None` for a cluster-scoped custom resource.
    pub namespace: Option<String>,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
    /// Name of the component of the custom resource that the release is; `None` if there is one release
    /// for the whole custom resource.
    pub component: Option<String>,
}

impl Primary {
    /// Returns the identity that labels carry.
    pub fn identity(&self) -> CrIdentity {
        let whole = CrIdentity::of(
            &self.gvk.group,
            &self.gvk.kind,
            self.namespace.as_deref(),
            &self.name,
        );
        match &self.component {
            Some(component) => whole.of_component(component),
            None => whole,
        }
    }

    /// Returns whether an object of this scope and namespace can have an owner reference to this
    /// custom resource: it is in the same namespace, or the custom resource is cluster-scoped. Without a uid it is no
    /// object.
    pub(crate) fn can_be_referenced(&self, scope: Scope, namespace: Option<&str>) -> bool {
        match &self.namespace {
            _ if self.uid.is_empty() => false,
            None => true,
            Some(own) => scope == Scope::Namespaced && namespace == Some(own),
        }
    }

    /// The custom resource `one` in the namespace `prod`.
    #[cfg(test)]
    pub fn fixture() -> Self {
        Self {
            gvk: GroupVersionKind::gvk("cache.example.com", "v1", "Memcached"),
            namespace: Some("prod".to_owned()),
            name: "one".to_owned(),
            uid: "cr-uid".to_owned(),
            component: None,
        }
    }

    #[cfg(test)]
    pub(super) fn owner_reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.gvk.api_version(),
            kind: self.gvk.kind.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    pub(super) fn type_text(&self) -> String {
        type_text(&self.gvk.kind, &self.gvk.group)
    }

    pub(super) fn name_text(&self) -> String {
        format!(
            "{}/{}",
            self.namespace.as_deref().unwrap_or_default(),
            self.name
        )
    }
}

/// Converts any text to a label value: unchanged if valid, otherwise shortened to a valid prefix
/// and a hash.
pub fn label_value(text: &str) -> String {
    label_value_within(text, LABEL_MAX)
}

fn label_value_within(text: &str, max: usize) -> String {
    let valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let edge = |c: char| c.is_ascii_alphanumeric();
    let fits = text.len() <= max
        && text.chars().all(valid)
        && text.starts_with(edge)
        && text.ends_with(edge);
    if fits || text.is_empty() {
        return text.to_owned();
    }
    let hash = hash_text(text, 8);
    let clean: String = text
        .chars()
        .map(|c| if valid(c) { c } else { '-' })
        .collect();
    let head: String = clean
        .trim_start_matches(|c| !edge(c))
        .chars()
        .take(max - 9)
        .collect();
    if head.is_empty() {
        hash
    } else {
        format!("{head}-{hash}")
    }
}

/// Returns `Kind.group`, or the kind alone in the core group.
pub(super) fn type_text(kind: &str, group: &str) -> String {
    if group.is_empty() {
        kind.to_owned()
    } else {
        format!("{kind}.{group}")
    }
}

fn hash_text(text: &str, digits: usize) -> String {
    let mut hex = data_encoding::HEXLOWER.encode(&Sha256::digest(text));
    hex.truncate(digits);
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_label_values_and_differ_between_custom_resources() {
        let of = |namespace| CrIdentity::of("g", "K", namespace, "n");
        let one = of(Some("prod"));
        assert_eq!(one.as_str().len(), 32);
        assert_eq!(one, of(Some("prod")));
        assert_ne!(one, of(Some("test")));
        assert_ne!(one, of(None));
    }

    #[test]
    fn any_text_becomes_a_label_value() {
        for text in ["operator", "a.b_c-d", ""] {
            assert_eq!(label_value(text), text);
        }
        for text in ["pod/uid", "-x", "x-", "é", "/", "a b"] {
            let value = label_value(text);
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            assert!(value.chars().all(allowed));
            assert!(
                !value.starts_with('-') && !value.ends_with('-'),
                "{text:?} -> {value:?}"
            );
            assert_ne!(value, label_value(&format!("{text}/")));
        }
        let long = label_value(&"x".repeat(200));
        assert_eq!(long.len(), 63);
        let instance = InstanceId::new(&"x".repeat(200)).to_string();
        assert_eq!(instance.len(), InstanceId::MAX);
        assert_ne!(long, label_value(&"x".repeat(201)));
    }
}
