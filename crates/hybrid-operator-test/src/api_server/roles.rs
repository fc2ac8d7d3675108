//! Permissions of users, which roles and their bindings give.
//!
//! Source: `plugin/pkg/auth/authorizer/rbac` of Kubernetes.

use std::sync::Arc;

use serde_json::Value;

use super::object::{items, meta, text};
use super::request::{Call, Target};
use super::server::Server;
use super::status::{Failure, Named};
use super::store::{Key, Resource, Stored};

/// Group of all users who have logged in.
const AUTHENTICATED: &str = "system:authenticated";

/// Prefix of the user names of service accounts.
const ACCOUNT: &str = "system:serviceaccount:";

/// Somebody who makes requests.
#[derive(Debug)]
pub(super) struct User {
    name: String,
    groups: Vec<String>,
}

/// Verb and resource of a request.
#[derive(Debug)]
pub(super) struct Access<'a> {
    pub(super) verb: &'a str,
    pub(super) group: &'a str,
    /// Plural of the resource, with its subresource.
    pub(super) resource: &'a str,
    /// Namespace; empty for the whole cluster.
    pub(super) namespace: &'a str,
    /// Name of the object, if it is one.
    pub(super) name: &'a str,
}

impl User {
    /// Returns a user whom a request impersonates without naming groups.
    pub(super) fn impersonated(name: &str) -> Self {
        let mut groups = vec![AUTHENTICATED.to_owned()];
        let account = name.strip_prefix(ACCOUNT);
        if let Some((namespace, _)) = account.and_then(|account| account.split_once(':')) {
            groups.push("system:serviceaccounts".to_owned());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        Self {
            name: name.to_owned(),
            groups,
        }
    }

    pub(super) fn new(name: &str, groups: &[Value]) -> Self {
        let groups = groups.iter().filter_map(Value::as_str);
        Self {
            name: name.to_owned(),
            groups: groups.map(ToOwned::to_owned).collect(),
        }
    }

    /// Returns whether a binding in a namespace names the user.
    fn is_subject_of(&self, binding: &Value, namespace: &str) -> bool {
        items(binding.get("subjects")).iter().any(|subject| {
            let name = text(subject, "name");
            match text(subject, "kind") {
                "User" => self.name == name,
                "Group" => self.groups.iter().any(|group| group == name),
                "ServiceAccount" => {
                    let namespace = match text(subject, "namespace") {
                        "" => namespace,
                        namespace => namespace,
                    };
                    self.name == format!("{ACCOUNT}{namespace}:{name}")
                }
                _ => false,
            }
        })
    }
}

impl Access<'_> {
    fn is_allowed_by(&self, rule: &Value) -> bool {
        let has = |field: &str, matches: &dyn Fn(&str) -> bool| {
            let mut items = items(rule.get(field)).iter().filter_map(Value::as_str);
            items.any(|item| item == "*" || matches(item))
        };
        let names = items(rule.get("resourceNames"));
        has("verbs", &|verb| verb == self.verb)
            && has("apiGroups", &|group| group == self.group)
            && has("resources", &|resource| self.is_of(resource))
            && (names.is_empty() || names.iter().any(|name| name == self.name))
    }

    /// Returns whether a resource of a rule, such as `*/scale`, is that of the request.
    fn is_of(&self, resource: &str) -> bool {
        let subresource = self.resource.split_once('/').map(|(_, name)| name);
        let of_all = resource.strip_prefix("*/");
        resource == self.resource || of_all.is_some_and(|name| Some(name) == subresource)
    }

    /// Returns whether every user has the permission by the roles that each cluster has.
    fn is_basic(&self) -> bool {
        self.group == "authorization.k8s.io"
            && self.verb == "create"
            && self.resource.starts_with("selfsubject")
    }
}

impl Server {
    /// Fails if the user whom a request impersonates may not make it.
    pub(super) fn authorize(&self, call: &Call, target: Option<&Target>) -> Result<(), Failure> {
        let Some((user, target)) = call.user.as_ref().zip(target) else {
            return Ok(());
        };
        let name = match target.name.as_deref() {
            Some(name) => name,
            None => call
                .parameter("fieldSelector")
                .strip_prefix("metadata.name=")
                .unwrap_or_default(),
        };
        self.require(user, target.verb(call), target, name)?;
        let writes = call.method != http::Method::GET && call.method != http::Method::DELETE;
        let verb = match target.plural.as_str() {
            "roles" | "clusterroles" => "escalate",
            "rolebindings" | "clusterrolebindings" => "bind",
            _ => return Ok(()),
        };
        if writes && self.require(user, verb, target, name).is_err() {
            return Err(Failure::unmodelled(format!(
                "the check of what a role gives, for a user without the verb {verb}"
            )));
        }
        Ok(())
    }

    /// Fails if the user whom a request impersonates may not create the object that it updates or applies.
    pub(super) fn authorize_creation(&self, call: &Call) -> Result<(), Failure> {
        let Some((user, target)) = call.user.as_ref().zip(Target::of(&call.path)) else {
            return Ok(());
        };
        let name = target.name.as_deref().unwrap_or_default();
        self.require(user, "create", &target, name)
    }

    fn require(&self, user: &str, verb: &str, target: &Target, name: &str) -> Result<(), Failure> {
        let resource = target.resource();
        let access = Access {
            verb,
            group: &target.group,
            resource: &resource,
            namespace: target.namespace.as_deref().unwrap_or_default(),
            name,
        };
        let Err(missing) = self.allows(&User::impersonated(user), &access) else {
            return Ok(());
        };
        let scope = if access.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", access.namespace)
        };
        let mut why = format!(
            "User {user:?} cannot {verb} resource {resource:?} in API group {:?} {scope}",
            access.group
        );
        match missing.as_slice() {
            [] => {}
            [one] => why = format!("{why}: RBAC: {one}"),
            several => why = format!("{why}: RBAC: [{}]", several.join(", ")),
        }
        let named = Named {
            group: &target.group,
            name: &target.plural,
        };
        Err(Failure::forbidden(named, name, &why))
    }

    /// Fails if a user lacks a permission, with the roles that bindings of the user name and that do not exist.
    pub(super) fn allows(&self, user: &User, access: &Access<'_>) -> Result<(), Vec<String>> {
        if access.is_basic() {
            return Ok(());
        }
        let mut bindings = self.objects(&rbac("clusterrolebindings"), None);
        if !access.namespace.is_empty() {
            bindings.extend(self.objects(&rbac("rolebindings"), Some(access.namespace)));
        }
        let mut missing = Vec::new();
        for (key, binding) in bindings {
            if !user.is_subject_of(&binding, &key.namespace) {
                continue;
            }
            match self.role(&binding) {
                Ok(role) => {
                    let mut rules = items(role.get("rules")).iter();
                    if rules.any(|rule| access.is_allowed_by(rule)) {
                        return Ok(());
                    }
                }
                Err(role) if missing.contains(&role) => {}
                Err(role) => missing.push(role),
            }
        }
        Err(missing)
    }

    /// Returns the role of a binding, or that there is none.
    fn role(&self, binding: &Value) -> Result<Arc<Stored>, String> {
        let reference = binding.get("roleRef").unwrap_or(&Value::Null);
        let name = text(reference, "name");
        let (plural, namespace) = match text(reference, "kind") {
            "ClusterRole" => ("clusterroles", ""),
            _ => ("roles", meta(binding, "namespace")),
        };
        let key = Key::new(namespace, name);
        let singular = plural.trim_end_matches('s');
        self.store
            .get(&rbac(plural), &key)
            .ok_or_else(|| format!("{singular}.rbac.authorization.k8s.io {name:?} not found"))
    }
}

fn rbac(plural: &str) -> Resource {
    Resource::new("rbac.authorization.k8s.io", plural)
}
