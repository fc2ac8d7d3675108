//! The role for a chart: what the operator does for its custom resources and releases.

use std::collections::{BTreeMap, BTreeSet};

use helm_core::manifest::parse_objects;
use serde_json::Value;

use super::kinds::{GroupKind, Kinds, Resource};
use super::rules::{Grant, Rules, Subject, grants_of};
use super::survey::{RELEASE, Survey};
use crate::generate::ChartApi;

/// Verbs of the framework on the objects of a release, including hooks. `update` replaces an
/// object whole, for the annotations `upgrade-force` and `rollback-force`.
const OBJECT_VERBS: &[&str] = &[
    "create", "delete", "get", "list", "patch", "update", "watch",
];
/// Verbs of the framework on objects that it only reads.
const READ_VERBS: &[&str] = &["get", "list", "watch"];
/// Verbs of the framework on the records of releases.
const RECORD_VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// API group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// Needs that an entry of the watches file adds to those of its chart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WatchNeeds {
    /// Kinds that `valuesFrom` refers to.
    pub(crate) values_from: BTreeSet<&'static str>,
    /// Kinds of `dependsOn`.
    pub(crate) depends_on: BTreeSet<GroupKind>,
    /// Whether volume claims of a StatefulSet grow.
    pub(crate) expand_volumes: bool,
    /// Policy for the CRDs in `crds/`.
    pub(crate) crds: Crds,
    /// The service account that is impersonated; may be a template.
    pub(crate) service_account: Option<String>,
}

/// Policy for the installation of CRDs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Crds {
    /// CRDs are not installed.
    Skip,
    /// If they are missing.
    #[default]
    Create,
    /// If they are missing or different.
    CreateReplace,
}

/// Options for a role.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoleOptions {
    /// Write Roles instead of `ClusterRoles`.
    pub(crate) namespaced: bool,
    /// Also grant kinds that no render reached.
    pub(crate) include_unreached: bool,
    /// Grant `escalate` and `bind` where the chart's roles need them.
    pub(crate) allow_escalation: bool,
}

/// The permissions for a chart.
#[derive(Debug, Default)]
pub(crate) struct ChartRules {
    pub(crate) rules: Rules,
    /// Warnings, one line each.
    pub(crate) warnings: Vec<String>,
}

/// Computes the rules for the kinds that a chart serves. `previous` are rules that only earlier
/// versions of the chart need.
pub(crate) fn rules(
    apis: &[(ChartApi<'_>, WatchNeeds)],
    survey: &Survey,
    kinds: &Kinds,
    previous: &[Grant],
    options: RoleOptions,
) -> ChartRules {
    let mut build = Build {
        survey,
        kinds,
        options,
        out: ChartRules::default(),
        skipped: BTreeSet::new(),
    };
    let impersonates = !apis.is_empty()
        && apis
            .iter()
            .all(|(_, needs)| needs.service_account.is_some());
    build.custom_resources(apis);
    build.records();
    build.objects(impersonates);
    if impersonates {
        let mut warning = "the service account of serviceAccountName makes the changes: grant it create, delete, get, list, patch and update on the chart's objects".to_owned();
        if !survey.lookups.is_empty() {
            let names: Vec<String> = survey.lookups.keys().map(ToString::to_string).collect();
            warning.push_str(", and get and list on what templates look up: ");
            warning.push_str(&names.join(", "));
        }
        build.out.warnings.push(warning);
    } else {
        build.escalation();
    }
    build.references(apis);
    build.definitions(apis);
    build.impersonation(apis);
    build.earlier(previous);
    if !build.skipped.is_empty() {
        let skipped: Vec<String> = build.skipped.iter().cloned().collect();
        build.out.warnings.push(format!(
            "cluster-scoped resources, which a Role cannot grant and the operator therefore cannot manage: {}; generate without --namespaced, or turn them off in the values",
            skipped.join(", ")
        ));
    }
    build.out
}

struct Build<'a> {
    survey: &'a Survey,
    kinds: &'a Kinds,
    options: RoleOptions,
    out: ChartRules,
    /// Cluster-scoped resources that a Role cannot grant.
    skipped: BTreeSet<String>,
}

impl Build<'_> {
    fn resource(&self, kind: &GroupKind) -> Resource {
        let found = self.survey.definitions.defined(kind);
        found.unwrap_or_else(|| self.kinds.resource(kind))
    }

    /// Returns whether a role of the wanted scope can grant a resource.
    fn can_grant(&mut self, group: &str, resource: &Resource) -> bool {
        let possible = resource.namespaced || !self.options.namespaced;
        if !possible {
            let subject = Subject::resource(group, &resource.plural);
            self.skipped.insert(subject.to_string());
        }
        possible
    }

    /// Returns a grant for all objects of a kind.
    fn grant(&mut self, kind: &GroupKind, verbs: &[&str], why: &str) -> Option<Grant> {
        let resource = self.resource(kind);
        if !self.can_grant(&kind.group, &resource) {
            return None;
        }
        let mut grant = Grant::new(Subject::resource(&kind.group, &resource.plural), verbs, why);
        if resource.is_assumed {
            let scope = if resource.namespaced {
                "namespaced"
            } else {
                "cluster-scoped"
            };
            grant.why.push(format!(
                "assumed to be {scope} with this plural: no definition in the project"
            ));
        }
        Some(grant)
    }

    fn custom_resources(&mut self, apis: &[(ChartApi<'_>, WatchNeeds)]) {
        let mut grants = Vec::new();
        for (api, _) in apis {
            let resource = Resource {
                plural: api.plural.to_owned(),
                namespaced: api.namespaced,
                is_assumed: false,
            };
            if !self.can_grant(api.group, &resource) {
                continue;
            }
            let subject = |sub: &str| Subject::resource(api.group, &format!("{}{sub}", api.plural));
            let kind = api.kind;
            grants.push(Grant::new(
                subject(""),
                &["get", "list", "patch", "watch"],
                format!("custom resource {kind} ({}); patch: finalizer", api.version),
            ));
            let status = format!("status of {kind}");
            grants.push(Grant::new(subject("/status"), &["patch"], status));
            let owners = format!("owner references to {kind} that block its deletion");
            grants.push(Grant::new(subject("/finalizers"), &["update"], owners));
        }
        self.out.rules.add("The custom resources.", grants);
    }

    fn records(&mut self) {
        let subject = Subject::resource("", "secrets");
        let grant = Grant::new(subject, RECORD_VERBS, "records of releases");
        self.out.rules.add("The release records.", [grant]);
    }

    fn objects(&mut self, impersonates: bool) {
        let verbs = if impersonates {
            READ_VERBS
        } else {
            OBJECT_VERBS
        };
        let mut grants = Vec::new();
        let survey = self.survey;
        for (kind, reach) in &survey.kinds {
            let mut why: Vec<String> = reach
                .templates
                .iter()
                .map(|(template, label)| format!("{template} ({label})"))
                .collect();
            if reach.is_hook {
                why.push("also as a hook".to_owned());
            }
            let Some(mut grant) = self.grant(kind, verbs, "") else {
                continue;
            };
            why.extend(grant.why.drain(1..));
            grant.why = why;
            grants.push(grant);
        }
        if self.options.include_unreached {
            for unreached in &survey.unreached {
                let kind = match &unreached.api_version {
                    Some(version) => GroupKind::of_api_version(version, &unreached.kind),
                    None => match Kinds::well_known_group(&unreached.kind) {
                        Some(group) => GroupKind::new(group, &unreached.kind),
                        None => continue,
                    },
                };
                let why = format!("{}:{} (not reached)", unreached.template, unreached.line);
                grants.extend(self.grant(&kind, verbs, &why));
            }
        }
        let order = |grant: &Grant| grant.subject.clone();
        grants.sort_by_key(order);
        self.out.rules.add("The chart's objects.", grants);
        self.logs();
        self.instances();
    }

    /// Grants what is needed to log the output of hooks.
    fn logs(&mut self) {
        let mut renders = self.survey.renders.iter();
        let Some(render) = renders.find(|render| render.reads_logs) else {
            return;
        };
        let why = format!("helm.sh/hook-output-log-policy ({})", render.label);
        let grants = [
            Grant::new(Subject::resource("", "pods"), &["list"], why.clone()),
            Grant::new(Subject::resource("", "pods/log"), &["get"], why),
        ];
        self.out.rules.add("The output of hooks.", grants);
    }

    /// Grants what is needed to find out whether a namespace or definition of the release holds
    /// objects of others, before it is deleted.
    fn instances(&mut self) {
        let namespace = GroupKind::new("", "Namespace");
        if self.survey.kinds.contains_key(&namespace) && !self.options.namespaced {
            let subject = Subject::resource("*", "*");
            let why =
                "objects of others in a namespace that the chart creates, before it is deleted";
            let grant = Grant::new(subject, &["list"], why);
            let comment = "A namespace of the chart is deleted only if it holds nothing of others.";
            self.out.rules.add(comment, [grant]);
            self.out.warnings.push(
                "the chart creates a Namespace: the role lists all resources, because the operator deletes a namespace only if it holds nothing of others".to_owned(),
            );
        }
        let mut grants = Vec::new();
        let survey = self.survey;
        for (found, object) in survey.objects("apiextensions.k8s.io") {
            let mut definition = Kinds::default();
            let Some(kind) = definition.add_definition(object) else {
                continue;
            };
            let why = format!(
                "objects of {kind}, which {} defines, before the definition is deleted",
                found.template
            );
            grants.extend(self.grant(&kind, &["list"], &why));
        }
        grants.dedup();
        let comment = "A definition of the chart is deleted only if no objects of others are left.";
        self.out.rules.add(comment, grants);
    }

    /// Grants what the chart's own roles grant. Kubernetes refuses a role or binding with more
    /// permissions than those of its creator.
    fn escalation(&mut self) {
        let survey = self.survey;
        let mut grants = Vec::new();
        let (mut bound, mut aggregated) = (BTreeMap::new(), BTreeMap::new());
        let mut own_roles = BTreeSet::new();
        let mut url_roles = BTreeSet::new();
        for (found, object) in survey.objects(RBAC) {
            let key = found.object.key();
            if !key.kind.ends_with("Role") {
                continue;
            }
            own_roles.insert((key.kind.as_str(), key.name.as_str()));
            if object.get("aggregationRule").is_some() {
                aggregated.insert(&key.name, &found.template);
            }
            let why = format!("granted by {} in {}", key.kind, found.template);
            let rules = object.get("rules").unwrap_or(&Value::Null);
            for mut grant in grants_of(rules, &why) {
                if let Subject::Resource { names, .. } = &mut grant.subject
                    && names.iter().any(|name| name.contains(RELEASE))
                {
                    // Each release has other names.
                    names.clear();
                }
                if self.options.namespaced && matches!(grant.subject, Subject::Url(_)) {
                    url_roles.insert(grant.subject.to_string());
                    continue;
                }
                grants.push(grant);
            }
        }
        self.skipped.append(&mut url_roles);
        for (found, object) in survey.objects(RBAC) {
            let text = |field| {
                let text = object.get("roleRef").and_then(|role| role.get(field));
                text.and_then(Value::as_str).unwrap_or_default()
            };
            let (kind, name) = (text("kind"), text("name"));
            if !name.is_empty() && !own_roles.contains(&(kind, name)) {
                bound.insert((kind.to_owned(), name.to_owned()), &found.template);
            }
        }
        for grant in &mut grants {
            grant.why.dedup();
        }
        let mut unique: Vec<Grant> = Vec::new();
        for grant in grants {
            if !unique.contains(&grant) {
                unique.push(grant);
            }
        }
        let comment = "Granted by the chart's own roles: Kubernetes lets the operator grant only what it may do itself.";
        self.out.rules.add(comment, unique);
        let mut allowed = Vec::new();
        for ((kind, name), template) in bound {
            let resource = self.resource(&GroupKind::new(RBAC, &kind)).plural;
            if self.options.allow_escalation {
                let subject = Subject::named(RBAC, &resource, vec![name]);
                let why = format!("bound in {template}");
                allowed.push(Grant::new(subject, &["bind"], why));
            } else {
                self.out.warnings.push(format!(
                    "{template} binds the {kind} {name:?}, which is not the chart's: the operator needs its permissions, or 'bind' on it (--allow-escalation)"
                ));
            }
        }
        for (name, template) in aggregated {
            if self.options.allow_escalation {
                let subject = Subject::resource(RBAC, "clusterroles");
                let why = format!("aggregated in {template}");
                allowed.push(Grant::new(subject, &["escalate"], why));
            } else {
                self.out.warnings.push(format!(
                    "{template} aggregates other roles in the ClusterRole {name:?}: the operator needs 'escalate' on it (--allow-escalation)"
                ));
            }
        }
        let escalation = "Allows the operator to grant permissions that it does not have itself (--allow-escalation).";
        self.out.rules.add(escalation, allowed);
    }

    fn references(&mut self, apis: &[(ChartApi<'_>, WatchNeeds)]) {
        let mut grants = Vec::new();
        let survey = self.survey;
        for (kind, place) in &survey.lookups {
            grants.extend(self.grant(kind, READ_VERBS, place));
        }
        self.out.rules.add("Read by lookup in templates.", grants);
        let mut referred = Vec::new();
        for (_, needs) in apis {
            for kind in &needs.values_from {
                let kind = GroupKind::new("", kind);
                referred.extend(self.grant(&kind, READ_VERBS, "valuesFrom in the watches file"));
            }
            if needs.expand_volumes {
                let why = "upgrade.expandVolumes in the watches file";
                let claims = GroupKind::new("", "PersistentVolumeClaim");
                referred.extend(self.grant(&claims, &["list", "patch"], why));
                let classes = GroupKind::new("storage.k8s.io", "StorageClass");
                referred.extend(self.grant(&classes, &["get"], why));
            }
            for kind in &needs.depends_on {
                referred.extend(self.grant(kind, READ_VERBS, "dependsOn in the watches file"));
            }
        }
        self.out
            .rules
            .add("Referred to in the watches file.", referred);
    }

    fn definitions(&mut self, apis: &[(ChartApi<'_>, WatchNeeds)]) {
        let Some((api, _)) = apis.iter().find(|(api, _)| !api.chart.crds().is_empty()) else {
            return;
        };
        let policy = apis
            .iter()
            .filter(|(_, needs)| needs.service_account.is_none())
            .map(|(_, needs)| needs.crds)
            .max();
        let verbs: &[&str] = match policy {
            None | Some(Crds::Skip) => return,
            Some(Crds::Create) => &["create", "get"],
            Some(Crds::CreateReplace) => &["create", "get", "patch"],
        };
        let kind = GroupKind::new("apiextensions.k8s.io", "CustomResourceDefinition");
        let why = format!("{}/crds", api.directory);
        let mut kinds = BTreeSet::from([kind]);
        for file in api.chart.crds() {
            let text = String::from_utf8_lossy(file.file().data());
            for object in parse_objects(&text).unwrap_or_default() {
                kinds.insert(GroupKind::new(&object.key().group, &object.key().kind));
            }
        }
        let grants = kinds
            .iter()
            .filter_map(|kind| self.grant(kind, verbs, &why));
        let grants: Vec<Grant> = grants.collect();
        let comment = "The definitions in the chart's crds/.";
        self.out.rules.add(comment, grants);
    }

    fn impersonation(&mut self, apis: &[(ChartApi<'_>, WatchNeeds)]) {
        let accounts = apis
            .iter()
            .filter_map(|(_, needs)| needs.service_account.as_ref());
        let grants: Vec<Grant> = accounts
            .map(|name| {
                // The names of a template are known only for each custom resource.
                let names = if name.contains("{{") {
                    Vec::new()
                } else {
                    vec![name.clone()]
                };
                let subject = Subject::named("", "serviceaccounts", names);
                let why = "serviceAccountName in the watches file";
                Grant::new(subject, &["impersonate"], why)
            })
            .collect();
        let comment = "The service accounts that the operator acts as.";
        self.out.rules.add(comment, grants);
    }

    fn earlier(&mut self, previous: &[Grant]) {
        let missing: Vec<Grant> = previous
            .iter()
            .filter(|grant| !self.out.rules.mentions(&grant.subject))
            .cloned()
            .collect();
        let comment = "Of an earlier version of the chart; needed until all its releases are upgraded (--prune removes it).";
        self.out.rules.add(comment, missing);
    }
}

#[cfg(test)]
mod tests;
