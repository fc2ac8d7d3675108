//! Sorts the objects of a project by what OLM does with them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;
use serde_json::{Value, json};

use super::resources::Created;
use super::validate::is_supported;
use super::{CRD, CSV, group_version, items, kind, name, text};

/// The objects of a project.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// The Deployments that OLM creates from the install strategy.
    pub(crate) deployments: Vec<Value>,
    /// Rules by service account, for the namespaces that the operator watches.
    pub(crate) permissions: BTreeMap<String, Vec<Value>>,
    /// Rules by service account, for the whole cluster.
    pub(crate) cluster_permissions: BTreeMap<String, Vec<Value>>,
    /// The definitions.
    pub(crate) crds: Vec<Value>,
    /// The kinds of objects that the operator creates for the kinds that the definitions define.
    pub(crate) created: Created,
    /// Objects of the kinds that the definitions define.
    pub(crate) examples: Vec<Value>,
    /// The base of the `ClusterServiceVersion`, if it is among the objects.
    pub(crate) base: Option<Value>,
    /// The configuration of scorecard, if it is among the objects.
    pub(crate) scorecard: Option<Value>,
    /// Images that charts name by their digest.
    pub(crate) related: BTreeSet<String>,
    /// Other objects, which OLM creates as they are.
    pub(crate) others: Vec<Value>,
}

pub(crate) fn sort(objects: Vec<Value>) -> anyhow::Result<Parts> {
    let mut parts = Parts::default();
    let mut roles = Vec::new();
    let mut bindings = Vec::new();
    let mut accounts = Vec::new();
    let mut rest = Vec::new();
    for object in objects {
        match kind(&object) {
            "Deployment" => parts.deployments.push(object),
            CRD => parts.crds.push(object),
            // OLM installs into a namespace that exists.
            "Namespace" => {}
            "Role" | "ClusterRole" => roles.push(object),
            "RoleBinding" | "ClusterRoleBinding" => bindings.push(object),
            "ServiceAccount" => accounts.push(object),
            CSV => parts.base = Some(object),
            "Configuration" if text(&object, "/apiVersion").starts_with("scorecard.") => {
                parts.scorecard = Some(object);
            }
            _ => rest.push(object),
        }
    }
    if parts.deployments.is_empty() {
        bail!("there is no Deployment among the objects, so OLM would have nothing to run");
    }
    parts.take_permissions(roles, bindings, accounts)?;
    parts.take_examples(rest)?;
    for object in &mut parts.others {
        // OLM creates it in the namespace of the operator.
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("namespace");
        }
    }
    Ok(parts)
}

impl Parts {
    /// Returns the service accounts of the Deployments.
    fn accounts(&self) -> BTreeSet<String> {
        let deployments = self.deployments.iter();
        let accounts = deployments.map(|deployment| {
            match text(deployment, "/spec/template/spec/serviceAccountName") {
                "" => "default".to_owned(),
                name => name.to_owned(),
            }
        });
        accounts.collect()
    }

    /// Moves what is bound to the operator's accounts into the permissions.
    fn take_permissions(
        &mut self,
        roles: Vec<Value>,
        bindings: Vec<Value>,
        accounts: Vec<Value>,
    ) -> anyhow::Result<()> {
        let own = self.accounts();
        let mut taken = BTreeSet::new();
        let mut kept = BTreeSet::new();
        for mut binding in bindings {
            let of_role = |field| text(&binding, field).to_owned();
            let role = (of_role("/roleRef/kind"), of_role("/roleRef/name"));
            let is_own = |subject: &Value| {
                kind(subject) == "ServiceAccount" && own.contains(text(subject, "/name"))
            };
            let (mine, others): (Vec<Value>, Vec<Value>) =
                items(&binding, "/subjects").cloned().partition(is_own);
            for subject in &mine {
                let Some(found) = roles
                    .iter()
                    .find(|object| kind(object) == role.0 && name(object) == role.1)
                else {
                    bail!(
                        "the {} {} gives the {} {} to the operator, which is not among the objects; OLM needs its rules, so add it to config/rbac",
                        kind(&binding),
                        name(&binding),
                        role.0,
                        role.1
                    );
                };
                let permissions = match kind(&binding) {
                    "ClusterRoleBinding" => &mut self.cluster_permissions,
                    _ => &mut self.permissions,
                };
                let granted = permissions
                    .entry(text(subject, "/name").to_owned())
                    .or_default();
                granted.extend(items(found, "/rules").cloned());
            }
            if !mine.is_empty() {
                taken.insert(role.clone());
            }
            if !others.is_empty() {
                kept.insert(role);
                if let Some(subjects) = binding.get_mut("subjects") {
                    *subjects = json!(others);
                }
                self.others.push(binding);
            }
        }
        self.others.extend(roles.into_iter().filter(|object| {
            let role = (kind(object).to_owned(), name(object).to_owned());
            kept.contains(&role) || !taken.contains(&role)
        }));
        self.others.extend(
            accounts
                .into_iter()
                .filter(|account| !own.contains(name(account))),
        );
        Ok(())
    }

    /// Moves custom resources into the examples; other objects must be of kinds that OLM takes.
    fn take_examples(&mut self, objects: Vec<Value>) -> anyhow::Result<()> {
        for object in objects {
            let (group, _) = group_version(&object);
            let is_example = self.crds.iter().any(|crd| {
                text(crd, "/spec/group") == group && text(crd, "/spec/names/kind") == kind(&object)
            });
            if is_example {
                self.examples.push(object);
            } else if is_supported(kind(&object)) {
                self.others.push(object);
            } else if kind(&object).ends_with("WebhookConfiguration") {
                bail!(
                    "the {} {} cannot be in a bundle; the operator writes the configurations of its webhooks itself, so remove it from config",
                    kind(&object),
                    name(&object)
                );
            } else {
                bail!(
                    "OLM does not create objects of the kind {} ({} {}); remove it from config/default, or let the operator create it",
                    kind(&object),
                    text(&object, "/apiVersion"),
                    name(&object)
                );
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, name: &str, fields: Value) -> Value {
        let mut object =
            json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "n"}});
        let Value::Object(fields) = fields else {
            return object;
        };
        object.as_object_mut().unwrap().extend(fields);
        object
    }

    fn deployment() -> Value {
        let pod = json!({"template": {"spec": {"serviceAccountName": "own"}}});
        object("Deployment", "manager", json!({"spec": pod}))
    }

    fn role(kind: &str, name: &str) -> Value {
        object(kind, name, json!({"rules": [{"verbs": [name]}]}))
    }

    fn binding(kind: &str, role: (&str, &str), accounts: &[&str]) -> Value {
        let account = |name| json!({"kind": "ServiceAccount", "name": name, "namespace": "n"});
        let subjects: Vec<Value> = accounts.iter().map(account).collect();
        let role = json!({"kind": role.0, "name": role.1});
        object(
            kind,
            "binding",
            json!({"roleRef": role, "subjects": subjects}),
        )
    }

    #[test]
    fn rules_go_where_their_binding_puts_them_and_only_what_is_left_stays_an_object() {
        let parts = sort(vec![
            deployment(),
            object("Namespace", "n", json!({})),
            object("ServiceAccount", "own", json!({})),
            object("ServiceAccount", "other", json!({})),
            role("Role", "lease"),
            role("ClusterRole", "all"),
            role("ClusterRole", "local"),
            role("ClusterRole", "shared"),
            role("ClusterRole", "reader"),
            binding("RoleBinding", ("Role", "lease"), &["own"]),
            binding("ClusterRoleBinding", ("ClusterRole", "all"), &["own"]),
            binding("RoleBinding", ("ClusterRole", "local"), &["own"]),
            binding(
                "ClusterRoleBinding",
                ("ClusterRole", "shared"),
                &["own", "other"],
            ),
        ])
        .unwrap();
        let verbs = |rules: &BTreeMap<String, Vec<Value>>| -> Vec<Value> {
            let rules = rules["own"].iter();
            rules.map(|rule| rule["verbs"][0].clone()).collect()
        };
        assert_eq!(verbs(&parts.permissions), ["lease", "local"]);
        assert_eq!(verbs(&parts.cluster_permissions), ["all", "shared"]);
        let others = parts.others.iter();
        let others: Vec<_> = others.map(|object| (kind(object), name(object))).collect();
        let expected = [
            ("ClusterRoleBinding", "binding"),
            ("ClusterRole", "shared"),
            ("ClusterRole", "reader"),
            ("ServiceAccount", "other"),
        ];
        assert_eq!(others, expected);
        assert_eq!(parts.others[0]["subjects"].as_array().unwrap().len(), 1);
        assert_eq!(parts.others[0]["metadata"].get("namespace"), None);
    }

    #[test]
    fn what_olm_would_not_create_is_refused_and_named() {
        let refused = |objects: Vec<Value>| sort(objects).unwrap_err().to_string();
        assert!(refused(vec![]).contains("no Deployment"));
        let message = refused(vec![deployment(), object("Ingress", "web", json!({}))]);
        assert!(message.contains("kind Ingress (v1 web)"), "{message}");
        let webhooks = object("ValidatingWebhookConfiguration", "web", json!({}));
        let message = refused(vec![deployment(), webhooks]);
        let why = "writes the configurations of its webhooks itself";
        assert!(message.contains(why), "{message}");
        let bound = binding("ClusterRoleBinding", ("ClusterRole", "admin"), &["own"]);
        let message = refused(vec![deployment(), bound]);
        assert!(message.contains("ClusterRole admin"), "{message}");
    }
}
