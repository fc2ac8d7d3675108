//! The file with the types of built-in kinds is that of kube-apiserver's `OpenAPI`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::server::root;
use crate::api_server::fields::openapi::{atom, short_name, target};
use crate::api_server::fields::schema::{Atom, Relationship, UNTYPED, anything};
use crate::api_server::fields::types::{File, Kind};

/// Kinds that charts and tests use, by version.
const KINDS: &str = "
    v1 ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod PodTemplate \
        ReplicationController ResourceQuota Secret Service ServiceAccount
    admissionregistration.k8s.io/v1 MutatingWebhookConfiguration ValidatingAdmissionPolicy \
        ValidatingAdmissionPolicyBinding ValidatingWebhookConfiguration
    apiextensions.k8s.io/v1 CustomResourceDefinition
    apiregistration.k8s.io/v1 APIService
    apps/v1 ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet
    autoscaling/v1 Scale
    autoscaling/v2 HorizontalPodAutoscaler
    batch/v1 CronJob Job
    coordination.k8s.io/v1 Lease
    discovery.k8s.io/v1 EndpointSlice
    events.k8s.io/v1 Event
    networking.k8s.io/v1 Ingress IngressClass NetworkPolicy
    policy/v1 PodDisruptionBudget
    rbac.authorization.k8s.io/v1 ClusterRole ClusterRoleBinding Role RoleBinding
    scheduling.k8s.io/v1 PriorityClass
    storage.k8s.io/v1 StorageClass";

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Reads definitions of kube-apiserver and those that they refer to.
struct Reader {
    definitions: Map<String, Value>,
    types: BTreeMap<String, Atom>,
}

impl Reader {
    fn add(&mut self, name: &str) {
        let short = short_name(name);
        if self.types.contains_key(&short) {
            return;
        }
        let definition = self.definitions[name].clone();
        let type_ = match short.as_str() {
            // These two are fixed in the server, too.
            "api.resource.Quantity" => atom(&json!({"type": "string", "format": "any"}), false),
            "pkg.runtime.RawExtension" => Ok(anything(UNTYPED, Relationship::Atomic)),
            _ => atom(&definition, false),
        };
        let mut type_ = type_.unwrap();
        if let Some(map) = &mut type_.map {
            map.defaults.clear();
        }
        self.types.insert(short, type_);
        let mut referred = Vec::new();
        collect_targets(&definition, &mut referred);
        for name in referred {
            self.add(&name);
        }
    }

    /// Keeps defaults of fields that are keys of lists.
    fn add_defaults_of_keys(&mut self) {
        let names: Vec<String> = self.definitions.keys().cloned().collect();
        for name in names {
            let definition = self.definitions[&name].clone();
            for list in definition["properties"].as_object().into_iter().flatten() {
                let keys = list.1["x-kubernetes-list-map-keys"].as_array();
                let Some(items) = target(&list.1["items"]) else {
                    continue;
                };
                for key in keys.into_iter().flatten() {
                    let key = key.as_str().unwrap();
                    let default = &self.definitions[items]["properties"][key]["default"];
                    let item = self.types.get_mut(&short_name(items));
                    if let (false, Some(map)) =
                        (default.is_null(), item.and_then(|item| item.map.as_mut()))
                    {
                        map.defaults.insert(key.to_owned(), default.clone());
                    }
                }
            }
        }
    }

    /// Returns the JSON of Go's zero value of a type.
    fn empty(&self, name: &str) -> Value {
        let definition = &self.definitions[name];
        let required = definition["required"].as_array();
        let mut empty = Map::new();
        for (name, property) in definition["properties"].as_object().into_iter().flatten() {
            let value = match (&property["default"], target(property)) {
                // A part that is no pointer.
                (Value::Object(_), Some(part)) => self.empty(part),
                // A list that is null instead of absent makes a difference only if its items have owners. Of these,
                // exactly those with keys are encoded when they are null.
                (Value::Null, _) => {
                    let is_required = required.is_some_and(|names| names.contains(&json!(name)));
                    if !is_required || property["x-kubernetes-list-map-keys"].is_null() {
                        continue;
                    }
                    Value::Null
                }
                (zero, _) if [json!(""), json!(0), json!(false)].contains(zero) => zero.clone(),
                _ => continue,
            };
            empty.insert(name.clone(), value);
        }
        Value::Object(empty)
    }
}

/// Collects the names of the definitions that a schema refers to.
fn collect_targets(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            if let Some(name) = target(schema) {
                found.push(name.to_owned());
            }
            fields
                .values()
                .for_each(|below| collect_targets(below, found));
        }
        Value::Array(items) => items.iter().for_each(|below| collect_targets(below, found)),
        _ => {}
    }
}

/// Returns JSON with one kind or type in each line.
fn lines<T: serde::Serialize>(entries: &BTreeMap<String, T>) -> String {
    let lines = entries
        .iter()
        .map(|(name, entry)| format!("{}:{}", json!(name), serde_json::to_string(entry).unwrap()));
    lines.collect::<Vec<_>>().join(",\n")
}

#[tokio::test]
async fn types_of_built_in_kinds_are_those_of_the_api_server() -> TestResult {
    let Some(plane) = crate::shared_or_skip().await? else {
        return Ok(());
    };
    let client = plane.client().await?;
    let mut reader = Reader {
        definitions: Map::new(),
        types: BTreeMap::new(),
    };
    let versions = KINDS.lines().skip(1);
    let versions = versions.map(|line| line.trim().split_once(' ').unwrap());
    for (api_version, _) in versions.clone() {
        let root = root(api_version);
        let request = http::Request::get(format!("/openapi/v3/{root}/{api_version}"));
        let document: Value = client.request(request.body(Vec::new())?).await?;
        let definitions = document["components"]["schemas"].as_object().unwrap();
        reader.definitions.extend(definitions.clone());
    }
    let mut kinds = BTreeMap::new();
    for (api_version, names) in versions {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        for kind in names.split(' ') {
            let gvk = json!({"group": group, "version": version, "kind": kind});
            let found = reader.definitions.iter().find(|(_, definition)| {
                let kinds = definition["x-kubernetes-group-version-kind"].as_array();
                kinds.is_some_and(|kinds| kinds.contains(&gvk))
            });
            let name = found.unwrap_or_else(|| panic!("{gvk}")).0.clone();
            reader.add(&name);
            let mut empty = reader.empty(&name);
            empty.as_object_mut().unwrap().remove("metadata");
            let kind_of = Kind {
                type_: short_name(&name),
                empty,
            };
            kinds.insert(format!("{api_version} {kind}"), kind_of);
        }
    }
    reader.add_defaults_of_keys();
    let text = format!(
        "{{\"kinds\":{{\n{}\n}},\n\"types\":{{\n{}\n}}}}\n",
        lines(&kinds),
        lines(&reader.types)
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api_server/fields/types.json");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &text)?;
    }
    assert!(
        std::fs::read_to_string(&path)? == text,
        "{} is out of date; run `make generate`",
        path.display()
    );
    // All names are known, and the file is read as it was meant.
    let read: File = serde_json::from_str(&text)?;
    assert_eq!(read.kinds, kinds);
    assert_eq!(read.types, reader.types);
    Ok(())
}
