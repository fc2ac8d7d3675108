//! Rules about the objects that a chart renders to.

use std::collections::{BTreeMap, BTreeSet};

use helm_core::chart::Chart;
use helm_core::manifest::api_versions::fate;
use helm_core::manifest::{
    DropCause, Dropped, Hook, HookEvent, ManifestObject, ObjectKey, hook, replaced,
};
use serde_json::Value;

use super::Severity::{Error, Note, Warning};
use super::place::{Line, Places};
use super::pods::{images, is_pinned, pod_spec};
use super::{Finding, Input, Severity};
use crate::olm::text;
use crate::rbac::kinds::{GroupKind, Kinds};
use crate::rbac::survey::{Found, NAMESPACE, RELEASE, RefusedList, Render, Survey};

/// Namespaces that every cluster has.
const PRESENT: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];
/// Kinds whose selector and claim templates cannot be changed.
const WORKLOADS: &[&str] = &["DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"];

pub(super) fn findings(
    input: &Input<'_>,
    survey: &Survey,
    kinds: &Kinds,
    places: &Places<'_>,
) -> Vec<Finding> {
    let mut rules = Rules {
        kube_minor: input.kube_minor,
        kinds,
        survey,
        places,
        versions: versions(input.chart),
        selectors: BTreeMap::new(),
        seen: BTreeSet::new(),
        findings: BTreeSet::new(),
    };
    for render in &survey.renders {
        rules.render(render);
    }
    rules.findings.into_iter().collect()
}

struct Rules<'a> {
    kube_minor: u32,
    kinds: &'a Kinds,
    survey: &'a Survey,
    places: &'a Places<'a>,
    /// `NAME-VERSION` of the chart and its dependencies, and their versions.
    versions: BTreeSet<String>,
    /// The first selector of each workload.
    selectors: BTreeMap<(String, String), Value>,
    /// Rule and place of the findings; only the first of each place is kept, because many renders
    /// have the same objects.
    seen: BTreeSet<(&'static str, String, usize)>,
    findings: BTreeSet<Finding>,
}

/// Returns the texts by which labels name the version of a chart.
fn versions(chart: &Chart) -> BTreeSet<String> {
    let version = &chart.metadata().version;
    let mut texts = BTreeSet::from([
        version.replace('+', "_"),
        format!("{}-{}", chart.name(), version.replace('+', "_")),
    ]);
    for dependency in chart.dependencies() {
        texts.extend(versions(dependency));
    }
    texts
}

impl Rules<'_> {
    fn find(
        &mut self,
        found: &Found,
        line: Line<'_>,
        (id, severity): (&'static str, Severity),
        message: String,
        help: &str,
    ) {
        let place = self.places.of(found, line);
        self.find_at(place, (id, severity), message, help);
    }

    fn find_at(
        &mut self,
        (file, line): (String, usize),
        (id, severity): (&'static str, Severity),
        message: String,
        help: &str,
    ) {
        if !self.seen.insert((id, file.clone(), line)) {
            return;
        }
        self.findings.insert(Finding {
            file,
            line,
            id,
            severity,
            message,
            help: help.to_owned(),
        });
    }

    /// Returns kind and name of an object as messages show it: RELEASE stands for the release's name.
    /// A name that differs in each render is left out.
    fn named(&self, found: &Found) -> String {
        let key = found.object.key();
        let name = key.name.replace(RELEASE, "RELEASE");
        if name.is_empty() || self.places.is_random(found) {
            key.kind.clone()
        } else {
            format!("{} {name}", key.kind)
        }
    }

    fn render(&mut self, render: &Render) {
        for found in &render.objects {
            self.name(found, render);
            self.scope(found, render);
            self.version(found, render);
            self.roles(found);
            self.pods(found);
            self.immutable(found, render);
            self.kept(found);
            if let Some(hook) = &found.hook {
                self.hook(found, hook);
            }
        }
        for dropped in &render.dropped {
            self.dropped(dropped);
        }
        if let Some(refused) = &render.refused {
            self.refused(refused);
        }
        let objects: Vec<&Found> = render
            .objects
            .iter()
            .filter(|found| found.hook.is_none())
            .collect();
        let manifest: Vec<ManifestObject> =
            objects.iter().map(|found| found.object.clone()).collect();
        let is_cluster_scoped = |key: &ObjectKey| !self.is_namespaced(key);
        for (earlier, last) in replaced(&manifest, NAMESPACE, &is_cluster_scoped) {
            let (Some(earlier), Some(last)) = (objects.get(earlier), objects.get(last)) else {
                continue;
            };
            let (file, line) = self.places.of(last, Line::Name);
            let key = self.named(earlier);
            let message = format!(
                "{key} is rendered twice ({}); the operator applies only the last one, which is in {file}:{line}",
                render.label
            );
            let help = "give one of them another name, or render only one";
            let rule = ("duplicate-object", Warning);
            self.find(earlier, Line::Name, rule, message, help);
        }
    }

    fn refused(&mut self, refused: &RefusedList) {
        let place = self.places.line(&refused.template, |line| {
            line.contains("kind:") && line.contains("List")
        });
        let problem = &refused.problem;
        let message = format!("this list is not created, as in Helm, which fails: {problem}");
        let help = "write its items as documents of their own";
        self.find_at(place, ("refused-list", Error), message, help);
    }

    fn dropped(&mut self, dropped: &Dropped) {
        let kind = match dropped.kind.as_str() {
            "" => "document",
            kind => kind,
        };
        let (place, message, help) = match &dropped.cause {
            DropCause::UnknownEvent(event) => {
                let place = self.places.line(&dropped.template, |line| {
                    line.contains(hook::ANNOTATION)
                        && !line.contains("helm.sh/hook-")
                        && line.to_lowercase().contains(event)
                });
                let message = format!(
                    "this {kind} is neither installed nor run, as in Helm: its hook names the event {event:?}, which does not exist"
                );
                let help = "use pre- or post-install, -upgrade, -rollback or -delete, or test";
                (place, message, help)
            }
            DropCause::AfterEnd => {
                let place = self.places.line(&dropped.template, |line| {
                    line.trim_end() == "..." || line.starts_with("... ")
                });
                let message = format!(
                    "the {kind} after the line '...' is not installed, as in Helm: '...' ends the document, and only a line '---' begins another one"
                );
                (place, message, "write '---' in place of '...'")
            }
        };
        self.find_at(place, ("dropped-document", Warning), message, help);
    }

    fn name(&mut self, found: &Found, render: &Render) {
        let object = found.object.object();
        let key = found.object.key();
        let kind = &key.kind;
        if key.name.is_empty() {
            if text(object, "/metadata/generateName").is_empty() {
                let message = format!("a {kind} has no name: the API server refuses it");
                let help = "set metadata.name";
                self.find(found, Line::Kind, ("missing-name", Error), message, help);
            } else if found.hook.is_none() {
                let message = format!(
                    "the API server makes the name of this {kind}: each revision of the release creates another one and deletes the last"
                );
                let help = "set metadata.name from the release's name";
                let line = Line::With("generateName");
                self.find(found, line, ("generate-name", Warning), message, help);
            }
            return;
        }
        // Names such as `example` come from the survey's own values.
        if !key.name.contains(RELEASE)
            && !render.label.contains("example")
            && kind != "CustomResourceDefinition"
        {
            let where_ = if self.is_namespaced(found.object.key()) {
                "one namespace"
            } else {
                "one cluster"
            };
            let message = format!(
                "{} is named without the release's name: a second custom resource in {where_} fails, because the object belongs to the first",
                self.named(found)
            );
            let help = "begin the name with {{ .Release.Name }} or the chart's fullname helper";
            self.find(found, Line::Name, ("fixed-name", Warning), message, help);
        }
    }

    fn is_namespaced(&self, key: &ObjectKey) -> bool {
        let kind = GroupKind::new(&key.group, &key.kind);
        let defined = self.survey.definitions.defined(&kind);
        defined
            .unwrap_or_else(|| self.kinds.resource(&kind))
            .namespaced
    }

    fn scope(&mut self, found: &Found, render: &Render) {
        let key = found.object.key();
        if key.kind == "CustomResourceDefinition" {
            let message = format!(
                "{} is a template: an upgrade that removes it deletes all its custom resources, and objects of its kind in the same chart cannot be applied before it is served",
                self.named(found)
            );
            let help = "move it to crds/, or to a chart of its own";
            let line = Line::Kind;
            self.find(found, line, ("crd-in-templates", Warning), message, help);
            return;
        }
        if !self.is_namespaced(found.object.key()) {
            let message = format!(
                "{} is cluster-scoped: the operator needs a ClusterRole, finds the object by annotations instead of an owner reference if the custom resource is in a namespace, and garbage collection does not delete it",
                self.named(found)
            );
            let help = "delete the custom resource before the operator; to run without a ClusterRole, put the object behind a value";
            let line = Line::Kind;
            self.find(found, line, ("cluster-scoped", Warning), message, help);
            return;
        }
        let Some(namespace) = key.namespace.as_deref().filter(|name| *name != NAMESPACE) else {
            return;
        };
        let is_created = render.objects.iter().any(|other| {
            let other = other.object.key();
            other.kind == "Namespace" && other.group.is_empty() && other.name == namespace
        });
        // A name such as `example` comes from the survey's own values.
        if namespace == "example" {
            return;
        }
        let message = format!(
            "{} is in the namespace {namespace}, not in that of the release: an operator of one namespace cannot manage it, and garbage collection does not delete it",
            self.named(found)
        );
        let help = "use {{ .Release.Namespace }}, or let the operator watch all namespaces";
        let line = Line::With("namespace:");
        self.find(found, line, ("foreign-namespace", Warning), message, help);
        if !is_created && !PRESENT.contains(&namespace) {
            let problem = format!(
                "{} is in the namespace {namespace}, which the chart does not create: the install fails until somebody creates it",
                self.named(found)
            );
            let advice = "render a Namespace, or document that it must exist";
            self.find(found, line, ("missing-namespace", Warning), problem, advice);
        }
    }

    fn version(&mut self, found: &Found, render: &Render) {
        if render.label.starts_with("--kube-version") {
            return;
        }
        let key = found.object.key();
        let version = key.api_version();
        let Some(fate) = fate(&version, &key.kind, self.kube_minor) else {
            return;
        };
        let (rule, what) = if fate.is_removed {
            (("removed-api", Error), "not served since")
        } else {
            (("deprecated-api", Warning), "deprecated since")
        };
        let message = format!(
            "{version} {} is {what} Kubernetes 1.{}",
            key.kind, fate.since
        );
        let help = if fate.instead.is_empty() {
            "nothing replaces it; remove the object".to_owned()
        } else {
            format!("use {}", fate.instead)
        };
        self.find(found, Line::ApiVersion, rule, message, &help);
    }

    fn roles(&mut self, found: &Found) {
        let key = found.object.key();
        if key.group != "rbac.authorization.k8s.io" || !key.kind.ends_with("Role") {
            return;
        }
        let object = found.object.object();
        let rules = object.get("rules").and_then(Value::as_array);
        for rule in rules.into_iter().flatten() {
            let has_all = |field: &str| {
                let list = rule.get(field).and_then(Value::as_array);
                list.is_some_and(|list| list.iter().any(|item| item == "*"))
            };
            let fields: Vec<&str> = ["apiGroups", "resources", "verbs"]
                .into_iter()
                .filter(|field| has_all(field))
                .collect();
            if !fields.is_empty() {
                let message = format!(
                    "{} grants * in {}: the operator must have these permissions itself to grant them",
                    self.named(found),
                    fields.join(" and ")
                );
                let help = "name the groups, resources and verbs that are needed";
                let line = Line::With("\"*\"");
                self.find(found, line, ("wide-rbac", Warning), message, help);
            }
        }
    }

    fn pods(&mut self, found: &Found) {
        for image in images(found.object.object()) {
            // A name such as `example` comes from the survey's own values.
            if !is_pinned(image) && !image.contains("example") {
                let message = format!(
                    "{} runs the image {image:?} without a fixed tag or digest: the same release may run different code",
                    self.named(found)
                );
                let help = "set a tag, such as the chart's appVersion, or a digest";
                let line = Line::With("image:");
                self.find(found, line, ("image-tag", Warning), message, help);
            }
        }
    }

    fn immutable(&mut self, found: &Found, render: &Render) {
        let key = found.object.key();
        if key.group != "apps" || !WORKLOADS.contains(&key.kind.as_str()) {
            return;
        }
        let object = found.object.object();
        let selector = object
            .pointer("/spec/selector/matchLabels")
            .unwrap_or(&Value::Null);
        if let Some(label) = self.versioned_label(selector) {
            let message = format!(
                "the selector of {} contains the chart's version ({label}): it cannot be changed, so every upgrade of the chart fails",
                self.named(found)
            );
            let help =
                "use only labels that never change, such as app.kubernetes.io/name and instance";
            let line = Line::With("matchLabels");
            self.find(found, line, ("immutable-field", Error), message, help);
        }
        let claims = object
            .pointer("/spec/volumeClaimTemplates")
            .and_then(Value::as_array);
        for claim in claims.into_iter().flatten() {
            let labels = claim.pointer("/metadata/labels").unwrap_or(&Value::Null);
            if let Some(label) = self.versioned_label(labels) {
                let message = format!(
                    "volumeClaimTemplates of {} contain the chart's version ({label}): they cannot be changed, so every upgrade of the chart fails",
                    self.named(found)
                );
                let help = "leave the label out of volumeClaimTemplates";
                let line = Line::With("volumeClaimTemplates");
                self.find(found, line, ("immutable-field", Error), message, help);
            }
        }
        let identity = (key.kind.clone(), key.name.clone());
        let first = self
            .selectors
            .entry(identity)
            .or_insert_with(|| selector.clone());
        if first != selector {
            let message = format!(
                "the selector of {} depends on values ({}): it cannot be changed, so a change of them fails",
                self.named(found),
                render.label
            );
            let help = "use only labels that never change in selectors";
            let line = Line::With("matchLabels");
            self.find(found, line, ("immutable-field", Warning), message, help);
        }
    }

    /// Returns a label whose value is the version of a chart.
    fn versioned_label(&self, labels: &Value) -> Option<String> {
        let labels = labels.as_object()?;
        let found = labels.iter().find(|(_, value)| {
            value
                .as_str()
                .is_some_and(|value| self.versions.contains(value))
        });
        found.map(|(name, _)| name.clone())
    }

    fn kept(&mut self, found: &Found) {
        if found.object.is_kept() {
            let message = format!(
                "{} stays when its release is uninstalled or no longer contains it (helm.sh/resource-policy: keep)",
                self.named(found)
            );
            let help = "delete it by hand; a new custom resource of the same name needs the annotation helm.sdk.operatorframework.io/adopt-release to use it";
            let line = Line::With("helm.sh/resource-policy");
            self.find(found, line, ("resource-policy-keep", Note), message, help);
        }
    }

    fn hook(&mut self, found: &Found, hook: &Hook) {
        let object = found.object.object();
        let mut policies = hook.delete_policies.iter();
        if hook.runs_at(&HookEvent::Test) {
            let message = format!(
                "{} is a test, which the operator does not run by default",
                self.named(found)
            );
            let help = "add 'test: {}' to the entry in watches.yaml to run it after each change";
            let line = Line::With("helm.sh/hook");
            self.find(found, line, ("test-hook", Note), message, help);
        } else if policies.all(|policy| policy.as_str().is_empty()) {
            let message = format!(
                "the hook {} has no delete policy: it stays in the cluster until it runs again",
                self.named(found)
            );
            let help = "add the annotation helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded";
            let line = Line::With("helm.sh/hook");
            self.find(found, line, ("hook-delete-policy", Warning), message, help);
        }
        let kind = found.object.key().kind.as_str();
        if kind == "Pod" {
            let policy = text(object, "/spec/restartPolicy");
            if policy.is_empty() || policy == "Always" {
                let message = format!(
                    "the hook {} restarts its containers for ever (restartPolicy Always): the release waits for it until the timeout and fails",
                    self.named(found)
                );
                let help = "set restartPolicy: Never, or use a Job";
                let line = Line::With("restartPolicy");
                self.find(found, line, ("hook-never-ends", Error), message, help);
            }
        }
        if kind == "Job"
            && pod_spec(object).is_some()
            && object.pointer("/spec/activeDeadlineSeconds").is_none()
        {
            let message = format!(
                "the hook {} has no activeDeadlineSeconds: only the action's timeout (5m) ends it if it hangs, and its Pods go on",
                self.named(found)
            );
            let help = "set spec.activeDeadlineSeconds";
            self.find(found, Line::Kind, ("hook-never-ends", Note), message, help);
        }
    }
}
