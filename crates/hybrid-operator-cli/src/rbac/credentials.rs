//! The roles for the Secrets that an operator reads by name: those with the credentials of charts, and the one with the
//! key that proves its records.

use std::collections::{BTreeMap, BTreeSet};

use hybrid_operator::helm::record_key_secret;
use hybrid_operator::watches::Watch;

use super::deployed::Deployed;
use super::rules::{Grant, Rules, Subject, scalar};
use super::write::{RoleScope, role};

/// Name of the role for Secrets in the operator's namespace.
pub(crate) const SECRETS_ROLE: &str = "operator-secrets-role";

/// The roles for Secrets with known names.
pub(crate) struct SecretRoles {
    /// The role for the operator's own namespace.
    pub(crate) own: String,
    /// For each other namespace, a role and its binding as one text.
    pub(crate) others: BTreeMap<String, String>,
}

/// Returns the roles for the Secrets of an operator.
pub(crate) fn secret_roles(watches: &[Watch], deployed: &Deployed) -> SecretRoles {
    let mut secrets: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for watch in watches {
        let remote = watch.chart.remote();
        if let Some(secret) = remote.and_then(|chart| chart.credentials_secret.as_ref()) {
            let namespace = secret.namespace.as_ref().unwrap_or(&deployed.namespace);
            let names = secrets.entry(namespace).or_default();
            names.insert(secret.name.clone());
        }
    }
    let mut own = Rules::default();
    let why = "The key that proves release records. A name does not limit who may create it.";
    let key = record_key_secret(&deployed.operator);
    let create = Grant::new(Subject::resource("", "secrets"), &["create"], why);
    own.add(why, [reading([key].into()), create]);
    if let Some(names) = secrets.remove(deployed.namespace.as_str()) {
        own.add(CREDENTIALS, [reading(names)]);
    }
    let comment = "The Secrets that the operator reads in its own namespace, whichever namespaces it watches.";
    SecretRoles {
        own: role(RoleScope::Namespace, SECRETS_ROLE, comment, &own),
        others: secrets
            .into_iter()
            .map(|(namespace, names)| (namespace.to_owned(), text(namespace, names, deployed)))
            .collect(),
    }
}

/// Comment above the rules for credentials.
const CREDENTIALS: &str =
    "The credentials of charts, which are read with each attempt to fetch one.";

fn reading(names: BTreeSet<String>) -> Grant {
    let subject = Subject::named("", "secrets", names.into_iter().collect());
    Grant::new(subject, &["get"], CREDENTIALS)
}

fn text(namespace: &str, secrets: BTreeSet<String>, deployed: &Deployed) -> String {
    let mut rules = Rules::default();
    rules.add(CREDENTIALS, [reading(secrets)]);
    let rules = rules.to_yaml();
    let Deployed {
        account,
        namespace: own,
        ..
    } = deployed;
    let (namespace, own) = (scalar(namespace), scalar(own));
    let name = format!("{account}-chart-credentials");
    format!(
        "# What the operator reads in a namespace that is not its own. It is no part of the kustomization, which would move it
# to the operator's namespace: apply it with kubectl.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {name}
  namespace: {namespace}
rules:
{rules}---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {name}
  namespace: {namespace}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {name}
subjects:
- kind: ServiceAccount
  name: {account}
  namespace: {own}
"
    )
}
