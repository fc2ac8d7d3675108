//! An object of each built-in kind is created in kube-apiserver, and gets the same entries here.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use super::server::{path, root, send};
use crate::TestNamespace;
use crate::api_server::fields::types::File;
use crate::api_server::fields::{Types, Writer, keep_times, update};

type TestResult = Result<(), Box<dyn std::error::Error>>;

fn pod() -> Value {
    json!({
        "volumes": [{"name": "data", "emptyDir": {}}],
        "initContainers": [{"name": "init", "image": "a"}],
        "containers": [{"name": "web", "image": "a", "env": [{"name": "A", "value": "b"}],
            "ports": [{"containerPort": 80}], "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "resources": {"limits": {"cpu": "1"}}}],
    })
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "x"}}, "spec": pod()})
}

fn job_template() -> Value {
    let mut template = template();
    template["spec"]["restartPolicy"] = json!("Never");
    template
}

fn rules() -> Value {
    json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}])
}

fn binding() -> Value {
    json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "b"}]})
}

/// Returns objects of the cluster without their names, by API version and by kind and plural.
fn of_cluster() -> Value {
    let resources = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]);
    let webhooks = json!([{"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://127.0.0.1:1/"}, "rules": resources}]);
    json!({
        "admissionregistration.k8s.io/v1": {
            "MutatingWebhookConfiguration mutatingwebhookconfigurations": {"webhooks": webhooks},
            "ValidatingWebhookConfiguration validatingwebhookconfigurations": {"webhooks": webhooks},
            "ValidatingAdmissionPolicy validatingadmissionpolicies": {"spec": {
                "validations": [{"expression": "true"}], "matchConstraints": {"resourceRules": resources}}},
            "ValidatingAdmissionPolicyBinding validatingadmissionpolicybindings": {"spec": {
                "policyName": "a", "validationActions": ["Deny", "Audit"]}},
        },
        "apiextensions.k8s.io/v1": {"CustomResourceDefinition customresourcedefinitions": {"spec": {
            "group": "kinds.example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}}},
        "apiregistration.k8s.io/v1": {"APIService apiservices": {"spec": {
            "group": "kinds.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
            "insecureSkipTLSVerify": true, "service": {"name": "a", "namespace": "b"}}}},
        "networking.k8s.io/v1": {"IngressClass ingressclasses": {"spec": {"controller": "a.b/c"}}},
        "rbac.authorization.k8s.io/v1": {
            "ClusterRole clusterroles": {"rules": rules()},
            "ClusterRoleBinding clusterrolebindings": binding(),
        },
        "scheduling.k8s.io/v1": {"PriorityClass priorityclasses": {"value": 5}},
        "storage.k8s.io/v1": {"StorageClass storageclasses": {"provisioner": "a.b/c", "parameters": {"a": "b"}}},
        "v1": {
            "Namespace namespaces": {},
            "Node nodes": {"spec": {"podCIDR": "10.0.0.0/24"}},
            "PersistentVolume persistentvolumes": {"spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/a"}}},
        },
    })
}

/// Returns the same of a namespace.
fn of_namespace() -> Value {
    let selector = json!({"matchLabels": {"app": "x"}});
    let claim =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let workload = json!({"selector": selector, "template": template()});
    json!({
        "apps/v1": {
            "ControllerRevision controllerrevisions": {"revision": 1, "data": {"a": {"b": [1]}}},
            "DaemonSet daemonsets": {"spec": workload},
            "Deployment deployments": {"spec": workload},
            "ReplicaSet replicasets": {"spec": workload},
            "StatefulSet statefulsets": {"spec": {"selector": selector, "template": template(), "serviceName": "a",
                "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": claim}]}},
        },
        "autoscaling/v2": {"HorizontalPodAutoscaler horizontalpodautoscalers": {"spec": {
            "maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}}},
        "batch/v1": {
            "CronJob cronjobs": {"spec": {
                "schedule": "* * * * *", "jobTemplate": {"spec": {"template": job_template()}}}},
            "Job jobs": {"spec": {"template": job_template()}},
        },
        "coordination.k8s.io/v1": {"Lease leases": {"spec": {
            "holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.000000Z"}}},
        "discovery.k8s.io/v1": {"EndpointSlice endpointslices": {
            "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.1.1"]}], "ports": [{"name": "a", "port": 80}]}},
        "events.k8s.io/v1": {"Event events": {
            "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "a", "action": "b", "type": "Normal",
            "regarding": {"kind": "Pod", "name": "a"}, "reportingController": "a.b/c", "reportingInstance": "d"}},
        "networking.k8s.io/v1": {
            "Ingress ingresses": {"spec": {"rules": [{"host": "a.b", "http": {"paths": [{
                "path": "/", "pathType": "Prefix", "backend": {"service": {"name": "a", "port": {"number": 80}}}}]}}]}},
            "NetworkPolicy networkpolicies": {"spec": {
                "podSelector": selector, "ingress": [{"from": [{"podSelector": {}}]}]}},
        },
        "policy/v1": {"PodDisruptionBudget poddisruptionbudgets": {"spec": {"minAvailable": 1, "selector": selector}}},
        "rbac.authorization.k8s.io/v1": {"Role roles": {"rules": rules()}, "RoleBinding rolebindings": binding()},
        "v1": {
            "ConfigMap configmaps": {"data": {"a": "b"}},
            "Endpoints endpoints": {"subsets": [{"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 80}]}]},
            "Event events": {"involvedObject": {"kind": "Pod", "name": "a"}, "reason": "b",
                "source": {"component": "c"}, "firstTimestamp": "2026-01-01T00:00:00Z", "count": 1},
            "LimitRange limitranges": {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}},
            "PersistentVolumeClaim persistentvolumeclaims": {"spec": claim},
            "Pod pods": {"spec": pod()},
            "PodTemplate podtemplates": {"template": template()},
            "ReplicationController replicationcontrollers": {"spec": {"selector": {"app": "x"}, "template": template()}},
            "ResourceQuota resourcequotas": {"spec": {"hard": {"pods": "1"}}},
            "Secret secrets": {"data": {"a": "Yg=="}},
            "Service services": {"spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]}},
            "ServiceAccount serviceaccounts": {"imagePullSecrets": [{"name": "a"}]},
        },
    })
}

/// Returns the objects of such a table, each with its API version, kind and plural.
fn samples(table: &Value) -> impl Iterator<Item = (&str, &str, &str, Value)> {
    let versions = table.as_object().unwrap().iter();
    versions.flat_map(|(api_version, kinds)| {
        kinds
            .as_object()
            .unwrap()
            .iter()
            .map(move |(names, object)| {
                let (kind, plural) = names.split_once(' ').unwrap();
                (api_version.as_str(), kind, plural, object.clone())
            })
    })
}

/// Returns what the server sets after it noted the owners of the fields, by JSON pointers.
fn set_later(kind: &str) -> &'static [&'static str] {
    match kind {
        "APIService" | "CustomResourceDefinition" => &["/status"],
        "Job" => &[
            "/spec/selector",
            "/spec/template/metadata/labels/controller-uid",
            "/spec/template/metadata/labels/job-name",
            "/spec/template/metadata/labels/batch.kubernetes.io~1controller-uid",
            "/spec/template/metadata/labels/batch.kubernetes.io~1job-name",
        ],
        "Namespace" => &["/spec", "/status"],
        "Node" => &["/spec/taints"],
        "PersistentVolume" => &["/metadata/finalizers", "/status"],
        "PersistentVolumeClaim" => &["/metadata/finalizers", "/spec/storageClassName", "/status"],
        "Pod" => &[
            "/status",
            "/spec/serviceAccount",
            "/spec/serviceAccountName",
            "/spec/tolerations",
            "/spec/preemptionPolicy",
            "/spec/priority",
            "/spec/volumes/1",
            "/spec/containers/0/volumeMounts/1",
            "/spec/initContainers/0/volumeMounts",
        ],
        "Service" => &[
            "/spec/clusterIP",
            "/spec/clusterIPs",
            "/spec/ipFamilies",
            "/spec/ipFamilyPolicy",
        ],
        _ => &[],
    }
}

fn remove(object: &mut Value, pointer: &str) {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match object.pointer_mut(parent) {
        Some(Value::Object(fields)) => {
            fields.remove(&name.replace("~1", "/"));
        }
        Some(Value::Array(items)) => {
            items.remove(name.parse().unwrap());
        }
        _ => {}
    }
}

#[tokio::test]
async fn created_objects_of_built_in_kinds_have_the_entries_of_the_api_server() -> TestResult {
    let Some(plane) = crate::shared_or_skip().await? else {
        return Ok(());
    };
    let namespace = TestNamespace::create(plane, "kinds").await?;
    let client = plane.client().await?;
    let mut tried = BTreeSet::new();
    let mut findings = Vec::new();
    let (of_namespace, of_cluster) = (of_namespace(), of_cluster());
    let of_namespace = samples(&of_namespace).map(|sample| (sample, true));
    let of_cluster = samples(&of_cluster).map(|sample| (sample, false));
    for ((api_version, kind, plural, mut object), has_namespace) in of_namespace.chain(of_cluster) {
        tried.insert(format!("{api_version} {kind}"));
        let name = match kind {
            "CustomResourceDefinition" => "things.kinds.example.com",
            "APIService" => "v1.kinds.example.com",
            _ => "sample",
        };
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": name, "labels": {"a": "b"}});
        for involved in ["regarding", "involvedObject"] {
            if object.get(involved).is_some() {
                object[involved]["namespace"] = json!(namespace.name());
            }
        }
        let all = if has_namespace {
            path(api_version, namespace.name(), plural)
        } else {
            format!("/{}/{api_version}/{plural}", root(api_version))
        };
        let uri = format!("{all}?dryRun=All&fieldManager=tester");
        let json = "application/json";
        let answer = send(&client, Method::POST, &uri, json, Some(&object)).await;
        if !answer.is_success() {
            findings.push(format!("{kind}: {}", answer.body));
            continue;
        }
        let server = answer.body;
        let mut new = server.clone();
        new["metadata"]["managedFields"] = Value::Null;
        for pointer in set_later(kind) {
            remove(&mut new, pointer);
        }
        let writer = Writer {
            manager: "tester",
            subresource: None,
            api_version,
            now: "",
        };
        let type_ = Types::builtin(api_version, kind)?;
        let ours = update(None, new, &type_, &writer)?;
        let mut with_ours = server.clone();
        with_ours["metadata"]["managedFields"] = ours["metadata"]["managedFields"].clone();
        if keep_times(&server, with_ours.clone()) != server
            || ours["metadata"]["managedFields"].is_null()
        {
            findings.push(format!(
                "{kind}:\n  ours   {}\n  server {}\n{server}",
                with_ours["metadata"]["managedFields"][0]["fieldsV1"],
                server["metadata"]["managedFields"][0]["fieldsV1"]
            ));
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    let file: File = serde_json::from_str(include_str!("../types.json"))?;
    let mut all: BTreeSet<_> = file.kinds.into_keys().collect();
    // Nothing creates a scale.
    all.remove("autoscaling/v1 Scale");
    assert_eq!(tried, all);
    Ok(())
}
