//! Limits on what people with few permissions can make the operator do: `docs/contributing/security.md`.

use data_encoding::BASE64;
use helm_core::manifest::{Hook, HookEvent};
use helm_core::release::{Release, Status, codec};
use hybrid_operator_test::TestNamespace;
use kube::api::{Api, DynamicObject, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::world::{
    LIMIT, MAP, Project, World, api, api_in, apply, cluster_api, delete, events, eventually,
    exists, has_event, merge, new_namespace, remove, resource, revision_of, says, set_ready,
    subject, until,
};

/// A value, a generated password, and an object that the API server rejects on request.
const CHART: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ .Values.value | quote }}}
---
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}-password}
stringData: {password: {{ randAlphaNum 20 }}}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .Release.Name }}
  {{- if .Values.bad }}
  labels: {\"not a label!\": x}
  {{- end }}
";

/// Somebody who may write Secrets in one namespace, and nothing else.
struct Forger {
    secrets: Api<DynamicObject>,
    bindings: Api<DynamicObject>,
    elsewhere: Api<DynamicObject>,
    name: String,
}

impl Forger {
    async fn in_namespace_of(world: &World) -> Self {
        let namespace = &world.namespace;
        let name = format!("forged-{}", namespace.name());
        let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]);
        crate::world::grant(namespace, "forger", subject("User", &name), rules).await;
        let file = Kubeconfig::read_from(world.plane.kubeconfig_path()).unwrap();
        let options = KubeConfigOptions::default();
        let mut config = Config::from_custom_kubeconfig(file, &options)
            .await
            .unwrap();
        config.auth_info.impersonate = Some(name.clone());
        let client = Client::try_from(config).unwrap();
        Self {
            secrets: Api::namespaced_with(client, namespace.name(), &resource("Secret")),
            bindings: cluster_api(namespace, "ClusterRoleBinding"),
            elsewhere: api_in(namespace, "default", "Pod"),
            name,
        }
    }

    /// Returns objects that nobody but the operator may create here.
    fn objects(&self) -> String {
        let name = &self.name;
        format!(
            "\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {{name: {name}}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}}\nsubjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {name}}}]\n---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: default}}\nspec: {{containers: [{{name: main, image: evil}}]}}\n"
        )
    }

    /// Returns a hook with such objects.
    fn hook(&self, event: HookEvent) -> Hook {
        Hook {
            name: self.name.clone(),
            kind: "ClusterRoleBinding".to_owned(),
            path: "chart/templates/hook.yaml".to_owned(),
            manifest: self.objects(),
            events: vec![event],
            ..Hook::default()
        }
    }

    /// Adds a foreign object, and hooks around the deletion, to a record.
    fn claim_foreign(&self, record: &mut Release) {
        let foreign = "\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: foreign}\n";
        record.manifest.push_str(foreign);
        record.hooks.push(self.hook(HookEvent::PreDelete));
        record.hooks.push(self.hook(HookEvent::PostDelete));
    }

    /// Rewrites a record as the operator would write it, except for the proof.
    async fn rewrite(
        &self,
        release: &str,
        revision: u32,
        change: impl FnOnce(&mut Release),
        relabel: impl FnOnce(&mut Value),
    ) {
        let mut secret = self.read(release, revision).await;
        let mut record = decode(&secret);
        change(&mut record);
        secret["data"]["release"] = encode(&record);
        secret["metadata"]["labels"]["status"] = record.info.status.to_string().into();
        relabel(&mut secret["metadata"]["labels"]);
        let name = secret["metadata"]["name"].as_str().unwrap().to_owned();
        let secret = serde_json::from_value(secret).unwrap();
        let replaced = self.secrets.replace(&name, &as_operator(), &secret).await;
        drop(replaced.unwrap());
    }

    async fn read(&self, release: &str, revision: u32) -> Value {
        let name = format!("sh.helm.release.v1.{release}.v{revision}");
        let secret = self.secrets.get(&name).await.unwrap();
        serde_json::to_value(secret).unwrap()
    }

    async fn create(&self, mut secret: Value) {
        for field in "uid resourceVersion creationTimestamp managedFields".split(' ') {
            secret["metadata"].as_object_mut().unwrap().remove(field);
        }
        let secret = serde_json::from_value(secret).unwrap();
        drop(self.secrets.create(&as_operator(), &secret).await.unwrap());
    }

    /// Checks that nothing of a forged record was applied.
    async fn has_nothing(&self) {
        for api in [&self.bindings, &self.elsewhere] {
            let found = api.get_opt(&self.name).await.unwrap();
            assert!(found.is_none(), "{found:?}");
        }
    }
}

/// The field manager of the operator's own writes.
fn as_operator() -> PostParams {
    PostParams {
        field_manager: Some("hybrid-operator".to_owned()),
        ..PostParams::default()
    }
}

/// Reads the release in a record.
pub(crate) fn decode(secret: &Value) -> Release {
    let data = secret["data"]["release"].as_str().unwrap();
    let stored = BASE64.decode(data.as_bytes()).unwrap();
    codec::decode(&stored).unwrap()
}

pub(crate) fn encode(record: &Release) -> Value {
    BASE64
        .encode(codec::encode(record).unwrap().as_bytes())
        .into()
}

fn unchanged(_: &mut Value) {}

async fn password(world: &World, name: &str) -> Value {
    let secret = world.api("Secret").get(&format!("{name}-password")).await;
    secret.unwrap().data["data"]["password"].clone()
}

/// Starts an operator that takes the records of its predecessor for its own, as the container of a
/// Pod does when it is restarted.
async fn restart(world: &mut World, project: &Project) {
    let operator = project.operator(world.plane, world.namespace.name());
    let operator = operator.env("POD_NAME", world.namespace.name());
    world.operator = operator.start().await.unwrap();
}

#[tokio::test]
async fn a_repair_applies_nothing_from_a_forged_record() {
    let world = or_skip!(World::of("forge-repair", "", &[("all.yaml", CHART)]).await);
    let forger = Forger::in_namespace_of(&world).await;
    world.deploy("one", json!({"value": "v"})).await;
    let add = |record: &mut Release| record.manifest.push_str(&forger.objects());
    let without_proof = |labels: &mut Value| {
        let labels = labels.as_object_mut().unwrap();
        assert!(
            labels
                .remove("helm.sdk.operatorframework.io/proof")
                .is_some()
        );
    };
    // An operator that sees the deletion before the forged record repairs from the one it knows.
    let maps = world.api("ConfigMap");
    let repaired_as = async |revision: u32| {
        let replaced = async || {
            if exists(&maps, "one-map").await {
                delete(&maps, "one-map").await;
            }
            *revision_of(&world.get("Widget", "one").await) == revision
        };
        eventually("the new revision", replaced).await;
        world.revision("one", revision).await;
        world.data("one-map", json!({"value": "v"})).await;
    };
    // The proof is that of the former content, and then there is none.
    forger.rewrite("one", 1, add, unchanged).await;
    repaired_as(2).await;
    forger.has_nothing().await;
    forger.rewrite("one", 2, add, without_proof).await;
    repaired_as(3).await;
    forger.has_nothing().await;
}

#[tokio::test]
async fn a_restarted_operator_applies_nothing_from_a_forged_record() {
    let project = Project::new("", &[("all.yaml", CHART)]);
    let mut world = or_skip!(project.start("forge-resume").await);
    world.operator.sigkill().unwrap();
    restart(&mut world, &project).await;
    let forger = Forger::in_namespace_of(&world).await;
    world.deploy("one", json!({"value": "v"})).await;
    let mut expected = 1;
    for status in [
        Status::PendingUpgrade,
        Status::PendingRollback,
        Status::Failed,
    ] {
        world.operator.sigkill().unwrap();
        let add = |record: &mut Release| {
            record.manifest.push_str(&forger.objects());
            record.hooks.push(forger.hook(HookEvent::PreUpgrade));
            record.set_status(status, "forged");
        };
        forger.rewrite("one", expected, add, unchanged).await;
        restart(&mut world, &project).await;
        expected += 1;
        world.revision("one", expected).await;
        forger.has_nothing().await;
    }
}

#[tokio::test]
async fn a_rollback_restores_no_forged_record() {
    let world = or_skip!(World::of("forge-rollback", "", &[("all.yaml", CHART)]).await);
    let forger = Forger::in_namespace_of(&world).await;
    let add = |record: &mut Release| {
        record.manifest.push_str(&forger.objects());
        record.hooks.push(forger.hook(HookEvent::PreRollback));
    };
    // Without any other revision, nothing is restored.
    world.deploy("one", json!({"value": "v"})).await;
    forger.rewrite("one", 1, add, unchanged).await;
    world.bad("one", "v").await;
    assert_contains!(world.message("one", "Stalled").await, "proof");
    forger.has_nothing().await;
    // With an earlier one, that is restored.
    world.deploy("two", json!({"value": "first"})).await;
    world.widget("two", json!({"value": "second"})).await;
    world.revision("two", 2).await;
    forger.rewrite("two", 2, add, unchanged).await;
    world.bad("two", "third").await;
    world.is("two", "Stalled").await;
    world.data("two-map", json!({"value": "first"})).await;
    forger.has_nothing().await;
}

#[tokio::test]
async fn the_uninstall_after_a_failed_upgrade_runs_no_forged_hook_and_deletes_nothing_foreign() {
    let options = "upgrade: {remediation: {retries: 0, strategy: uninstall}}";
    let project = Project::new(options, &[("all.yaml", CHART)]);
    let mut world = or_skip!(project.start("forge-remove").await);
    world.operator.sigkill().unwrap();
    restart(&mut world, &project).await;
    let forger = Forger::in_namespace_of(&world).await;
    world.deploy("one", json!({"value": "v"})).await;
    let maps = world.api("ConfigMap");
    apply(&maps, "foreign", &json!({"data": {"of": "somebody"}})).await;
    // The uninstall is interrupted while it waits for an object.
    let hold = |finalizers: Value| json!({"metadata": {"finalizers": finalizers}});
    merge(&maps, "one-map", &hold(json!(["example.com/hold"]))).await;
    world.bad("one", "v").await;
    let uninstalling = async || {
        let history = world.history("one").await;
        history
            .last()
            .is_some_and(|status| status == "uninstalling")
    };
    eventually("the uninstall", uninstalling).await;
    world.operator.sigkill().unwrap();
    let revision = u32::try_from(world.history("one").await.len()).unwrap();
    let claim = |record: &mut Release| forger.claim_foreign(record);
    forger.rewrite("one", revision, claim, unchanged).await;
    merge(&maps, "one-map", &hold(json!([]))).await;
    restart(&mut world, &project).await;
    let ended = async || has_event(&world.namespace, "UninstalledAfterFailure").await;
    eventually("the end of the uninstall", ended).await;
    world.widget("one", json!({"value": "mended"})).await;
    world.data("one-map", json!({"value": "mended"})).await;
    forger.has_nothing().await;
    assert!(maps.get_opt("foreign").await.unwrap().is_some());
}

#[tokio::test]
async fn an_uninstall_runs_no_forged_hook_and_deletes_nothing_foreign() {
    let world = or_skip!(World::of("forge-uninstall", "", &[("all.yaml", CHART)]).await);
    let forger = Forger::in_namespace_of(&world).await;
    world.deploy("one", json!({"value": "v"})).await;
    let foreign = json!({"data": {"of": "somebody"}});
    apply(&world.api("ConfigMap"), "foreign", &foreign).await;
    let claim = |record: &mut Release| forger.claim_foreign(record);
    forger.rewrite("one", 1, claim, unchanged).await;
    world.remove("Widget", "one").await;
    forger.has_nothing().await;
    assert!(exists(&world.api("ConfigMap"), "foreign").await);
    assert!(!exists(&world.api("ConfigMap"), "one-map").await);
    assert!(world.history("one").await.is_empty());
}

#[tokio::test]
async fn a_forged_release_to_adopt_is_replaced_by_what_the_chart_renders() {
    let world = or_skip!(World::of("forge-adopt", "", &[("all.yaml", CHART)]).await);
    let forger = Forger::in_namespace_of(&world).await;
    world.deploy("real", json!({"value": "v"})).await;
    // As a Go operator or Helm would have left it: of another name, and without our labels.
    let mut secret = forger.read("real", 1).await;
    let mut record = decode(&secret);
    record.name = "one".parse().unwrap();
    record.manifest = record.manifest.replace("real", "one") + &forger.objects();
    secret["data"]["release"] = encode(&record);
    secret["metadata"]["name"] = json!("sh.helm.release.v1.one.v1");
    let labels = secret["metadata"]["labels"].as_object_mut().unwrap();
    labels.retain(|key, _| !key.contains('/'));
    labels.insert("name".to_owned(), json!("one"));
    forger.create(secret).await;
    let annotations = json!({"helm.sdk.operatorframework.io/adopt-release": "true"});
    let widget = json!({"metadata": {"annotations": annotations}, "spec": {"value": "v"}});
    apply(&world.api("Widget"), "one", &widget).await;
    world.revision("one", 2).await;
    forger.has_nothing().await;
}

#[tokio::test]
async fn losing_the_key_of_the_proofs_loses_no_release() {
    let project = Project::new("", &[("all.yaml", CHART)]);
    let mut world = or_skip!(project.start("key").await);
    world.deploy("one", json!({"value": "v"})).await;
    let before = password(&world, "one").await;
    world.operator.sigkill().unwrap();
    let keys = api_in(&world.namespace, "default", "Secret");
    let key = format!("{}-release-record-key", world.namespace.name());
    delete(&keys, &key).await;
    delete(&world.api("ConfigMap"), "one-map").await;
    restart(&mut world, &project).await;
    world.data("one-map", json!({"value": "v"})).await;
    let cr = world.ready("Widget", "one").await;
    assert_eq!(revision_of(&cr), 1, "no new revision");
    assert_eq!(password(&world, "one").await, before);
    // It can be upgraded and rolled back as before.
    world.bad("one", "w").await;
    world.is("one", "Stalled").await;
    world.data("one-map", json!({"value": "v"})).await;
    assert_eq!(password(&world, "one").await, before);
    world.remove("Widget", "one").await;
    delete(&keys, &key).await;
}

/// A chart that evaluates texts of the spec, and looks something up itself.
const TEXTS: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data:
  value: {{ tpl .Values.text . | quote }}
  own: {{ (lookup \"v1\" \"Secret\" .Release.Namespace \"secret\").data.of | b64dec }}
";

const HELPER: &str = "\
{{- define \"chart.secret\" }}{{ (lookup \"v1\" \"Secret\" .Release.Namespace \"secret\").data.of | b64dec }}{{ end }}
";

async fn secret_in(namespace: &TestNamespace) {
    let secret = json!({"stringData": {"of": "somebody"}});
    apply(&api(namespace, "Secret"), "secret", &secret).await;
}

#[tokio::test]
async fn a_text_of_a_custom_resource_looks_up_no_secrets_and_no_other_namespaces() {
    let project = Project::new("", &[("all.yaml", TEXTS), ("_helper.tpl", HELPER)]);
    let world = or_skip!(project.start("tpl").await);
    secret_in(&world.namespace).await;
    let namespace = world.namespace.name().to_owned();
    let refused = [
        format!(r#"{{{{ lookup "v1" "Secret" "{namespace}" "secret" }}}}"#),
        format!(r#"{{{{ lookup "v1" "Secret" "{namespace}" "" }}}}"#),
        r#"{{ lookup "v1" "ConfigMap" "kube-system" "" }}"#.to_owned(),
        r#"{{ lookup "v1" "ConfigMap" "" "" }}"#.to_owned(),
        r#"{{ lookup "v1" "Namespace" "" "default" }}"#.to_owned(),
        format!(r#"{{{{ lookup "v1" "Namespace" "{namespace}" "default" }}}}"#),
        r#"{{ include "chart.secret" . }}"#.to_owned(),
        format!(
            r#"{{{{ define "mine" }}}}{{{{ lookup "v1" "Secret" "{namespace}" "secret" }}}}{{{{ end }}}}{{{{ include "mine" . }}}}"#
        ),
        format!(
            r#"{{{{ tpl "{{{{ lookup \"v1\" \"Secret\" \"{namespace}\" \"secret\" }}}}" . }}}}"#
        ),
    ];
    for (number, text) in refused.iter().enumerate() {
        let name = format!("refused-{number}");
        world.widget(&name, json!({"text": text})).await;
        let message = world.message(&name, "Irreconcilable").await;
        assert!(message.contains("lookup: trusted"), "{text}: {message}");
    }
    // The namespace's other objects are visible, and the chart itself sees everything.
    let text = r#"{{ (lookup "v1" "ConfigMap" .Release.Namespace "kube-root-ca.crt").kind }}"#;
    let visible = json!({"data": {}});
    apply(&world.api("ConfigMap"), "kube-root-ca.crt", &visible).await;
    world.widget("seen", json!({"text": text})).await;
    let data = json!({"value": "ConfigMap", "own": "somebody"});
    world.data("seen-map", data).await;
}

#[tokio::test]
async fn a_trusted_text_looks_up_what_the_operator_may_read() {
    let project = Project::new(
        "lookup: trusted",
        &[("all.yaml", TEXTS), ("_helper.tpl", HELPER)],
    );
    let world = or_skip!(project.start("tpl-trusted").await);
    secret_in(&world.namespace).await;
    let text = r#"{{ include "chart.secret" . }}"#;
    world.widget("one", json!({"text": text})).await;
    let data = json!({"value": "somebody", "own": "somebody"});
    world.data("one-map", data).await;
}

/// Grants a service account rules in a namespace.
pub(crate) async fn grant(world: &World, account: &str, name: &str, rules: Value) {
    let namespace = &world.namespace;
    let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": namespace.name()});
    crate::world::grant(namespace, name, subject, rules).await;
}

#[tokio::test]
async fn values_and_dependencies_are_read_with_the_service_account() {
    let options = "serviceAccountName: '{{ .Object.spec.account }}', \
        valuesFrom: [{kind: Secret, name: secret, key: of, targetPath: value}], \
        dependsOn: [{apiVersion: test.example.com/v1, kind: Gadget, name: db}]";
    let world = or_skip!(World::of("accounts", options, &[("map.yaml", MAP)]).await);
    secret_in(&world.namespace).await;
    let gadget = json!({"spec": {}});
    apply(&world.api("Gadget"), "db", &gadget).await;
    set_ready(&world.api("Gadget"), "db", "True").await;
    let maps = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}]);
    grant(&world, "weak", "maps", maps).await;
    world.widget("one", json!({"account": "weak"})).await;
    let message = world.message("one", "Irreconcilable").await;
    let user = format!("system:serviceaccount:{}:weak", world.namespace.name());
    assert_contains!(message, "valuesFrom", "secrets", &user);
    let verbs = json!(["get", "list", "watch"]);
    let secrets = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": verbs}]);
    grant(&world, "weak", "secrets", secrets).await;
    let gadgets_refused = |cr: &Value| says(cr, "WatchRefused", "gadgets");
    world
        .until("Widget", "one", "the refused dependency", gadgets_refused)
        .await;
    assert!(!exists(&world.api("ConfigMap"), "one-map").await);
    let dependencies =
        json!([{"apiGroups": ["test.example.com"], "resources": ["gadgets"], "verbs": verbs}]);
    grant(&world, "weak", "gadgets", dependencies).await;
    world.data("one-map", json!({"value": "somebody"})).await;
    world.ready("Widget", "one").await;
}

#[tokio::test]
async fn a_cluster_scoped_custom_resource_picks_no_account_of_the_operator() {
    let project = Project::new("", &[("map.yaml", MAP)]);
    let watches = |more: &str| {
        let options = "selector: {matchLabels: {test: accounts}}, serviceAccountName: '{{ .Object.spec.account }}'";
        let options = format!("{options}{more}");
        project.watch("test.example.com", "GlobalCache", &options);
    };
    watches("");
    let (plane, namespace) = or_skip!(new_namespace("own-accounts").await);
    let start = async || {
        let operator = project
            .operator(plane, "")
            .env("OPERATOR_NAME", namespace.name());
        operator
            .env("POD_NAMESPACE", namespace.name())
            .start()
            .await
            .unwrap()
    };
    let operator = start().await;
    let caches = cluster_api(&namespace, "GlobalCache");
    let name = namespace.name();
    let labels = json!({"test": "accounts"});
    let cache =
        json!({"metadata": {"labels": labels}, "spec": {"account": "operator", "value": "v"}});
    apply(&caches, name, &cache).await;
    let refused = |cr: &Value| {
        let parts = ["allowOperatorAccounts", "\"operator\""];
        parts.iter().all(|part| says(cr, "Irreconcilable", part))
    };
    until(&caches, name, "the refusal", refused).await;
    drop(operator);
    // Allowed, the account is used, which may do nothing.
    watches(", allowOperatorAccounts: true");
    let operator = start().await;
    let used = |cr: &Value| says(cr, "Irreconcilable", ":operator");
    until(&caches, name, "the account's refusal", used).await;
    // The account may not uninstall anything.
    drop(operator);
    let patch = json!({"metadata": {"finalizers": null}});
    crate::world::merge(&caches, name, &patch).await;
    remove(&caches, name).await;
}

#[tokio::test]
async fn values_of_the_spec_are_in_conditions_alone_and_those_of_references_nowhere() {
    const IN_SPEC: &str = "mark3r-of-the-spec!";
    const IN_SECRET: &str = "mark3r of the Secret!";
    let chart = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-map
  {{- with .Values.label }}
  labels: {label: {{ . | quote }}}
  {{- end }}
data:
  text: {{ tpl (.Values.text | default \"\") . | quote }}
  {{- with .Values.duration }}
  duration: {{ mustToDate \"2006\" . }}
  {{- end }}
  {{- with .Values.yaml }}
  {{ . }}
  {{- end }}
";
    let schema = r#"{"type": "object", "properties": {"pattern": {"type": "string", "pattern": "^[0-9]+$"}}}"#;
    let options = "valuesFrom: [{kind: Secret, name: '{{ .Object.metadata.name }}', key: values.yaml, optional: true}]";
    let project = Project::new(options, &[("all.yaml", chart)]);
    project.write("chart/values.schema.json", schema);
    let world = or_skip!(project.start("quiet").await);
    let broken_text = format!("{{{{ fromJson (index .Values \"{IN_SPEC}\" 1 2) }}}} {IN_SPEC}");
    let cases = [
        ("spec-label", json!({"label": IN_SPEC}), None),
        ("spec-tpl", json!({"text": broken_text}), None),
        ("spec-pattern", json!({"pattern": IN_SPEC}), None),
        ("spec-function", json!({"duration": IN_SPEC}), None),
        ("secret-label", json!({}), Some("label")),
        ("secret-tpl", json!({}), Some("text")),
        ("secret-pattern", json!({}), Some("pattern")),
        ("secret-function", json!({}), Some("duration")),
        ("secret-yaml", json!({}), Some("yaml")),
    ];
    for (name, spec, key) in &cases {
        if let Some(key) = key {
            let text = match *key {
                "text" => format!("{{{{ fail }}}} {IN_SECRET}"),
                "yaml" => format!("{IN_SECRET}: : ["),
                _ => IN_SECRET.to_owned(),
            };
            let values = json!({(*key): text}).to_string();
            let secret = json!({"stringData": {"values.yaml": values}});
            apply(&world.api("Secret"), name, &secret).await;
        }
        world.widget(name, spec.clone()).await;
        world.is(name, "Irreconcilable").await;
    }
    for (name, _, key) in &cases {
        let cr = world.api("Widget").get(name).await.unwrap();
        let status = cr.data["status"].to_string();
        assert!(!status.contains(IN_SECRET), "{name}: {status}");
        // Errors of schemas quote nothing.
        let quotes = key.is_none() && *name != "spec-pattern";
        assert_eq!(status.contains(IN_SPEC), quotes, "{name}: {status}");
    }
    is_not_told(&world, &[IN_SPEC, IN_SECRET]).await;
}

#[tokio::test]
async fn values_of_the_environment_and_of_lookups_are_in_no_condition_event_or_log_line() {
    const IN_SPEC: &str = "mark3r-of-the-spec!";
    const IN_ENVIRONMENT: &str = "mark3r-of-the-environment!";
    const LOOKED_UP: &str = "mark3r-of-a-lookup!";
    let chart = "\
{{- $label := .Values.label }}
{{- if .Values.lookup }}
{{- $label = (lookup \"v1\" \"Secret\" .Release.Namespace \"found\").data.text | b64dec }}
{{- end }}
{{- if .Values.fails }}
{{- $label | mustToDate \"2006\" }}
{{- end }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-map
  labels: {label: {{ $label | quote }}, spec: {{ .Values.spec | quote }}}
";
    let options = "overrideValues: {label: '{{ if .Spec.env }}$MARKER{{ end }}'}";
    let project = Project::new(options, &[("all.yaml", chart)]);
    let started = World::with("sources", |plane, name| {
        project.operator(plane, name).env("MARKER", IN_ENVIRONMENT)
    });
    let world = or_skip!(started.await);
    let secret = json!({"stringData": {"text": LOOKED_UP}});
    apply(&world.api("Secret"), "found", &secret).await;
    for (name, spec) in [
        ("env-label", json!({"env": true})),
        ("env-function", json!({"env": true, "fails": true})),
        ("lookup-label", json!({"lookup": true})),
        ("lookup-function", json!({"lookup": true, "fails": true})),
        // What is secret stays so, even if the spec has the same.
        ("env-both", json!({"env": true, "same": IN_ENVIRONMENT})),
        ("lookup-both", json!({"lookup": true, "same": LOOKED_UP})),
    ] {
        let mut spec = spec;
        spec["spec"] = json!(IN_SPEC);
        world.widget(name, spec).await;
        let message = world.message(name, "Irreconcilable").await;
        for secret in [IN_ENVIRONMENT, LOOKED_UP] {
            assert!(!message.contains(secret), "{name}: {message}");
        }
        let quotes = !name.ends_with("function");
        assert_eq!(message.contains(IN_SPEC), quotes, "{name}: {message}");
    }
    is_not_told(&world, &[IN_SPEC, IN_ENVIRONMENT, LOOKED_UP]).await;
}

#[tokio::test]
async fn values_of_references_are_withheld_by_an_operator_that_has_not_read_them() {
    const IN_SECRET: &str = "mark3r of the Secret!";
    const IN_SPEC: &str = "mark3r of the spec!";
    let chart = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}-hook
  annotations: {helm.sh/hook: pre-delete}
  labels: {secret: {{ .Values.secret | quote }}, spec: {{ .Values.spec | quote }}}
";
    let options = "valuesFrom: [{kind: Secret, name: source, key: secret, targetPath: secret}]";
    let project = Project::new(options, &[("all.yaml", chart)]);
    let mut world = or_skip!(project.start("unread").await);
    let secret = json!({"stringData": {"secret": IN_SECRET}});
    apply(&world.api("Secret"), "source", &secret).await;
    world.deploy("one", json!({"spec": IN_SPEC})).await;
    // An uninstall works with the record alone.
    assert!(world.operator.stop(LIMIT).await.unwrap().success());
    world.operator = project
        .operator(world.plane, world.namespace.name())
        .start()
        .await
        .unwrap();
    let widgets = world.api("Widget");
    delete(&widgets, "one").await;
    let message = world.message("one", "ReleaseFailed").await;
    assert_contains!(message, IN_SPEC, "[redacted]");
    assert!(!message.contains(IN_SECRET), "{message}");
    is_not_told(&world, &[IN_SPEC, IN_SECRET]).await;
    let disabled = json!("true");
    world
        .annotate("one", "uninstall-disable-hooks", disabled)
        .await;
    world.gone("Widget", "one").await;
}

/// Checks that these texts are in no event and no log line.
async fn is_not_told(world: &World, texts: &[&str]) {
    let events = events(&world.namespace).await;
    assert!(!events.is_empty());
    for (what, all) in [
        ("events", serde_json::to_string_pretty(&events).unwrap()),
        ("the log", world.operator.log()),
    ] {
        let is_told = |line: &&str| texts.iter().any(|text| line.contains(text));
        let lines: Vec<&str> = all.lines().filter(is_told).collect();
        assert!(lines.is_empty(), "in {what}: {lines:#?}");
    }
}

#[tokio::test]
async fn a_hostile_custom_resource_holds_up_no_other_one() {
    let chart = "\
{{- define \"chart.again\" }}{{ tpl .Values.text . }}{{ end }}
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ tpl .Values.text . | quote }}}
";
    let world = or_skip!(World::of("hostile", "", &[("all.yaml", chart)]).await);
    let mut deep = json!("x");
    for _ in 0..100 {
        deep = json!({"a": deep});
    }
    let hostile = [
        (
            "endless",
            json!({"text": "{{ include \"chart.again\" . }}"}),
        ),
        (
            "huge",
            json!({"text": "{{ range until 1000 }}{{ repeat 10000000 \"x\" }}{{ end }}"}),
        ),
        ("long", json!({"text": "{{ repeat 10000000 \"x\" }}"})),
        (
            "keys",
            json!({"text": "{{ range until 100000 }}{{ genPrivateKey \"rsa\" }}{{ end }}"}),
        ),
        ("broken", json!({"text": "x".repeat(1_000_000) + "{{"})),
        ("wrong", json!({"text": deep})),
    ];
    for (name, spec) in &hostile {
        world.widget(name, spec.clone()).await;
    }
    let nested = Nested::create(&world, 5_000).await;
    world.widget("good", json!({"text": "first"})).await;
    world.data("good-map", json!({"value": "first"})).await;
    nested
        .until(r#""message":"spec.deep.a.a is nested deeper than 120 levels; make it flatter""#)
        .await;
    for (name, _) in &hostile {
        let found = world.is(name, "Irreconcilable").await;
        let length = found["message"].as_str().unwrap().len();
        assert!((1..20_000).contains(&length), "{name}: {length}");
    }
    world.widget("good", json!({"text": "second"})).await;
    world.data("good-map", json!({"value": "second"})).await;
    world.ready("Widget", "good").await;
    nested.delete().await;
    nested.until(r#""code":404"#).await;
}

/// A Widget that is nested too deep for clients that decode JSON recursively.
struct Nested {
    client: Client,
    path: String,
}

impl Nested {
    async fn create(world: &World, levels: usize) -> Self {
        let client = world.namespace.client();
        let widgets = world.api("Widget").resource_url().to_owned();
        let deep = format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        let body = format!(
            r#"{{"apiVersion": "test.example.com/v1", "kind": "Widget", "metadata": {{"name": "nested"}}, "spec": {{"text": "x", "deep": {deep}}}}}"#
        );
        let request = http::Request::post(&widgets).header("Content-Type", "application/json");
        let answer = client.request_text(request.body(body.into_bytes()).unwrap());
        answer.await.unwrap();
        Self {
            client,
            path: format!("{widgets}/nested"),
        }
    }

    async fn delete(&self) {
        let request = http::Request::delete(&self.path).body(Vec::new()).unwrap();
        self.client.request_text(request).await.unwrap();
    }

    /// Waits until the API server answers with a text that contains `part`.
    async fn until(&self, part: &str) {
        let what = format!("{} contains {part}", self.path);
        let answered = async || {
            let request = http::Request::get(&self.path).body(Vec::new()).unwrap();
            let text = match self.client.request_text(request).await {
                Ok(text) => text,
                Err(kube::Error::Api(status)) => serde_json::to_string(&status).unwrap(),
                Err(error) => error.to_string(),
            };
            if text.contains(part) {
                Ok(())
            } else {
                Err(text)
            }
        };
        eventually(what, answered).await;
    }
}
