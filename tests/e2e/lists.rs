//! Documents that hold several objects: typed lists, and lists that are hooks.

use std::collections::BTreeMap;
use std::process::Command;

use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;

use crate::helm_cli::helm;
use crate::world::{Project, World};

/// A list of two kinds as a hook, typed lists, and an object of any kind that is a list because it has items.
const LISTS: &str = "\
apiVersion: v1
kind: List
metadata:
  annotations: {helm.sh/hook: \"pre-install,pre-upgrade\", helm.sh/hook-delete-policy: \"before-hook-creation,hook-succeeded\"}
items:
- {apiVersion: v1, kind: Secret, metadata: {name: {{ .Release.Name }}-input}, stringData: {a: b}}
- apiVersion: batch/v1
  kind: Job
  metadata: {name: {{ .Release.Name }}-work}
  spec:
    template:
      metadata: {annotations: {test.hybrid-operator/pod: \"\"}}
      spec: {restartPolicy: Never, containers: [{name: main, image: image}]}
---
apiVersion: v1
kind: List
metadata: {annotations: {helm.sh/hook: post-install}}
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: {{ .Release.Name }}-after}}
---
apiVersion: v1
kind: ConfigMapList
items:
- metadata: {name: {{ .Release.Name }}-first}
  data: {value: {{ .Values.value | quote }}}
{{- if eq .Values.value \"1\" }}
- metadata: {name: {{ .Release.Name }}-second}
{{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBindingList
items:
- metadata: {name: {{ .Release.Name }}-binding}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
  subjects: [{kind: User, name: nobody}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleList
items:
- {metadata: {name: {{ .Release.Name }}-role}, rules: []}
- {apiVersion: v1, kind: ServiceAccount, metadata: {name: {{ .Release.Name }}-account}}
---
apiVersion: v1
kind: ConfigMap
items:
- metadata: {name: {{ .Release.Name }}-inner}
";

/// Returns the objects of a release by kind, without its name.
async fn objects(world: &World, release: &str) -> BTreeMap<&'static str, Vec<String>> {
    let mut found = BTreeMap::new();
    let prefix = format!("{release}-");
    for kind in "ConfigMap Job Role RoleBinding Secret ServiceAccount".split(' ') {
        let list = world.api(kind).list(&ListParams::default()).await.unwrap();
        let names = list.items.iter().map(ResourceExt::name_any);
        let names = names.filter_map(|name| Some(name.strip_prefix(&prefix)?.to_owned()));
        found.insert(kind, names.collect::<Vec<_>>());
    }
    found
}

#[tokio::test]
async fn typed_lists_and_lists_that_are_hooks_are_deployed_as_by_helm() {
    let Some(program) = helm() else { return };
    let project = Project::new("", &[("lists.yaml", LISTS)]);
    let world = or_skip!(project.start("lists").await);
    let chart = project.watches_file().with_file_name("chart");
    for (revision, value) in [(1, "1"), (2, "2")] {
        world.widget("one", json!({"value": value})).await;
        world.revision("one", revision).await;
        let (set, chart) = (format!("value={value}"), chart.to_str().unwrap());
        let args = ["upgrade", "--install", "two", "--set-string", &set];
        world.helm(&program, &[&args[..], &[chart]].concat());
        assert_eq!(objects(&world, "one").await, objects(&world, "two").await);
        world.data("one-first", json!({"value": value})).await;
    }
    world.remove("Widget", "one").await;
    let left = objects(&world, "one").await;
    assert!(left.values().all(Vec::is_empty), "{left:?}");
}

/// Lists that Helm refuses, each with what it says and with what the operator says.
const REFUSED: [(&str, &str, &str); 7] = [
    (
        "kind: List\nitems:\n- {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]}",
        "is not a list: no Items field in this object",
        "item 1 of the List is a list, too",
    ),
    (
        "kind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n- {apiVersion: v1, kind: ConfigMapList, items: []}",
        "is not a list: no Items field in this object",
        "item 2 of the List is a list, too",
    ),
    (
        "kind: List\nitems:\n- null\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}",
        "invalid object to validate",
        "item 1 of the List is not an object",
    ),
    (
        "kind: ConfigMapList\nitems:\n- null",
        "unknown object type \"nil\" in ConfigMapList.items[0]",
        "item 1 of the ConfigMapList is not an object",
    ),
    (
        "kind: ConfigMapList\nmetadata: {annotations: {helm.sh/resource-policy: keep}}\nitems:\n- {metadata: {name: a}}",
        "unknown field \"annotations\" in io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
        "the ConfigMapList has the unknown field metadata.annotations",
    ),
    (
        "kind: ConfigMapList\nmetadata: {annotations: {helm.sh/hook: pre-install}}\nitems:\n- {metadata: {name: a}}",
        "unknown field \"annotations\" in io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
        "the ConfigMapList has the unknown field metadata.annotations",
    ),
    (
        "kind: ConfigMapList\nimmutable: true\nitems:\n- {metadata: {name: a}}",
        "unknown field \"immutable\" in io.k8s.api.core.v1.ConfigMapList",
        "the ConfigMapList has the unknown field immutable",
    ),
];

#[tokio::test]
async fn lists_that_helm_refuses_are_refused_with_their_place() {
    let Some(program) = helm() else { return };
    let lists = REFUSED.iter().enumerate();
    let documents: Vec<String> = lists
        .map(|(n, (list, ..))| {
            format!("---\n{{{{ if eq (int .Values.list) {n} }}}}\napiVersion: v1\n{list}\n{{{{ end }}}}\n")
        })
        .collect();
    let template = documents.concat();
    let object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-other}\n";
    let files = [("lists.yaml", template.as_str()), ("other.yaml", object)];
    let project = Project::new("", &files);
    let world = or_skip!(project.start("refused").await);
    let chart = project.watches_file().with_file_name("chart");
    for (n, (list, theirs, ours)) in REFUSED.iter().enumerate() {
        let output = Command::new(&program)
            .args(["install", "--set"])
            .arg(format!("list={n}"))
            .args(["--namespace", world.namespace.name()])
            .arg(format!("theirs-{n}"))
            .arg(&chart)
            .env("KUBECONFIG", world.plane.kubeconfig_path())
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && error.contains(theirs),
            "{list}: {error}"
        );
        let name = format!("ours-{n}");
        world.widget(&name, json!({"list": n})).await;
        let message = world.message(&name, "Irreconcilable").await;
        assert_contains!(message, *ours, "templates/lists.yaml renders, at line ");
        assert_contains!(message, " of its output, cannot be created");
        let created = objects(&world, &name).await;
        assert!(created.values().all(Vec::is_empty), "{list}: {created:?}");
    }
}
