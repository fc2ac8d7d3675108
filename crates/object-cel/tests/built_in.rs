//! The table of built-in kinds is that of kube-apiserver's `OpenAPI`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test stops at the first error"
)]
#![allow(
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops at the first error"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object_cel::{Type, built_in};
use serde_json::{Map, Value};

/// The documents with kinds that charts have.
const VERSIONS: &[&str] = &[
    "v1",
    "admissionregistration.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "apps/v1",
    "autoscaling/v1",
    "autoscaling/v2",
    "batch/v1",
    "coordination.k8s.io/v1",
    "discovery.k8s.io/v1",
    "networking.k8s.io/v1",
    "policy/v1",
    "rbac.authorization.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "storage.k8s.io/v1",
];

/// Returns the directory of the documents in Go's cache of modules, in the version of the tests' control plane.
fn documents() -> Option<PathBuf> {
    let go_mod =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../go-programs/programs/control-plane/go.mod");
    let go_mod = fs::read_to_string(go_mod).ok()?;
    let version = go_mod
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))?;
    let output = Command::new("go")
        .args(["env", "GOMODCACHE"])
        .current_dir(std::env::temp_dir())
        .output()
        .ok()?;
    let cache = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    let documents = cache.join(format!("k8s.io/kubernetes@{version}/api/openapi-spec/v3"));
    documents.is_dir().then_some(documents)
}

struct Reader {
    definitions: Map<String, Value>,
    types: BTreeMap<String, String>,
    /// Types that are being read.
    open: BTreeSet<String>,
}

/// Returns `apps.v1.StatefulSet` of `io.k8s.api.apps.v1.StatefulSet`.
fn short(name: &str) -> String {
    let parts: Vec<&str> = name.rsplit('.').take(3).collect();
    parts.into_iter().rev().collect::<Vec<_>>().join(".")
}

fn target(schema: &Value) -> Option<&str> {
    let reference = schema
        .get("$ref")
        .or_else(|| schema.get("allOf")?.get(0)?.get("$ref"));
    reference?.as_str()?.strip_prefix("#/components/schemas/")
}

impl Reader {
    /// Returns the code of a schema, and adds the types that it refers to.
    fn code(&mut self, schema: &Value) -> String {
        if let Some(name) = target(schema) {
            let definition = self.definitions[name].clone();
            if definition["properties"].is_null() {
                return self.code(&definition);
            }
            return if self.add(name, &definition) {
                format!("@{}", short(name))
            } else {
                "*".to_owned()
            };
        }
        let format = schema["format"].as_str().unwrap_or_default();
        if format == "int-or-string" || schema["x-kubernetes-int-or-string"] == true {
            return "x".to_owned();
        }
        match schema["type"].as_str() {
            Some("boolean") => "b".to_owned(),
            Some("integer") => "i".to_owned(),
            Some("number") => "n".to_owned(),
            Some("string") => match format {
                "date-time" => "t",
                "byte" => "y",
                _ => "s",
            }
            .to_owned(),
            Some("array") => format!("[{}", self.code(&schema["items"])),
            Some("object") if schema["additionalProperties"].is_object() => {
                format!("{{{}", self.code(&schema["additionalProperties"]))
            }
            // A quantity is a string or a number in OpenAPI, and a string in JSON of the server.
            None if schema["oneOf"].to_string().contains("number") => "s".to_owned(),
            _ => "*".to_owned(),
        }
    }

    /// Adds a type. Returns whether it is not within itself.
    fn add(&mut self, name: &str, definition: &Value) -> bool {
        let short = short(name);
        if self.types.contains_key(&short) {
            return true;
        }
        if !self.open.insert(short.clone()) {
            return false;
        }
        let mut line = short.clone();
        for (name, schema) in definition["properties"].as_object().unwrap() {
            write!(line, " {name}={}", self.code(schema)).unwrap();
        }
        self.open.remove(&short);
        self.types.insert(short, line);
        true
    }
}

#[test]
fn table_of_built_in_kinds_is_that_of_the_api_server() {
    let Some(directory) = documents() else {
        eprintln!(
            "SKIPPED (1): table_of_built_in_kinds: Kubernetes is not in Go's cache of modules"
        );
        return;
    };
    let mut kinds = String::new();
    let mut reader = Reader {
        definitions: Map::new(),
        types: BTreeMap::new(),
        open: BTreeSet::new(),
    };
    for version in VERSIONS {
        let root = if version.contains('/') {
            "apis__"
        } else {
            "api__"
        };
        let file = format!("{root}{}_openapi.json", version.replace('/', "__"));
        let text = fs::read_to_string(directory.join(file)).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        let definitions = document["components"]["schemas"].as_object().unwrap();
        reader.definitions.extend(definitions.clone());
        // A kind is what paths serve.
        let served: BTreeSet<String> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .filter(|(path, _)| path.ends_with("/{name}"))
            .filter_map(|(_, path)| path["get"]["x-kubernetes-group-version-kind"]["kind"].as_str())
            .map(str::to_owned)
            .collect();
        for kind in served {
            let (group, number) = version.split_once('/').unwrap_or(("", version));
            let found = definitions.iter().find(|(_, definition)| {
                let kinds = definition["x-kubernetes-group-version-kind"].as_array();
                kinds.into_iter().flatten().any(|of| {
                    of["group"] == group && of["version"] == number && of["kind"] == kind.as_str()
                })
            });
            let (name, definition) = found.unwrap();
            reader.add(name, &definition.clone());
            writeln!(kinds, "+{version} {kind} {}", short(name)).unwrap();
        }
    }
    let types: Vec<&str> = reader.types.values().map(String::as_str).collect();
    let text = format!("{kinds}{}\n", types.join("\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/built_in.txt");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let present = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        present == text,
        "{} is out of date; run this test with UPDATE_GENERATED=1",
        path.display()
    );
}

/// Returns the type of the field at a path.
fn field(mut type_: Type, path: &str) -> Type {
    for name in path.split('.') {
        let Type::Object(object) = type_ else {
            panic!("{name} of {path} is in no object");
        };
        type_ = object.fields[name].clone();
    }
    type_
}

#[test]
fn fields_of_built_in_kinds_have_their_types() {
    for (version, kind, path, expected) in [
        ("apps/v1", "StatefulSet", "status.readyReplicas", "int"),
        ("apps/v1", "StatefulSet", "status", "StatefulSetStatus"),
        (
            "apps/v1",
            "Deployment",
            "spec.strategy.rollingUpdate.maxSurge",
            "int or string",
        ),
        ("v1", "Secret", "data", "map(string, bytes)"),
        (
            "v1",
            "Service",
            "status.loadBalancer.ingress",
            "list(LoadBalancerIngress)",
        ),
        (
            "v1",
            "PersistentVolumeClaim",
            "status.capacity",
            "map(string, string)",
        ),
        ("v1", "Pod", "metadata.creationTimestamp", "timestamp"),
        ("v1", "Node", "status.nodeInfo.kubeletVersion", "string"),
        (
            "autoscaling/v1",
            "HorizontalPodAutoscaler",
            "spec.targetCPUUtilizationPercentage",
            "int",
        ),
        (
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "spec.metrics",
            "list(MetricSpec)",
        ),
        (
            "batch/v1",
            "CronJob",
            "status.lastScheduleTime",
            "timestamp",
        ),
        (
            "policy/v1",
            "PodDisruptionBudget",
            "spec.minAvailable",
            "int or string",
        ),
        (
            "rbac.authorization.k8s.io/v1",
            "ClusterRole",
            "rules",
            "list(PolicyRule)",
        ),
        (
            "storage.k8s.io/v1",
            "StorageClass",
            "parameters",
            "map(string, string)",
        ),
        (
            "coordination.k8s.io/v1",
            "Lease",
            "spec.renewTime",
            "timestamp",
        ),
        (
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "status.conditions",
            "list(CustomResourceDefinitionCondition)",
        ),
        (
            "networking.k8s.io/v1",
            "Ingress",
            "spec.rules",
            "list(IngressRule)",
        ),
    ] {
        let type_ = built_in(version, kind).unwrap_or_else(|| panic!("{version} {kind}"));
        assert_eq!(field(type_, path).to_string(), expected, "{kind} {path}");
    }
}
