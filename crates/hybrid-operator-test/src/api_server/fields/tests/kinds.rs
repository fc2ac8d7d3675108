//! An object of each built-in kind is created in kube-apiserver, and gets the same entries here.

use std::collections::BTreeSet;

use http::Method;
use serde_json::{Value, json};

use super::server::send;
use crate::TestNamespace;
use crate::api_server::fields::types::File;
use crate::api_server::fields::{Types, Writer, keep_times, update};

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// A kind with its plural, whether it has namespaces, an object without its name, and what the server sets after it
/// noted the owners of the fields, by JSON pointers.
struct Sample(
    &'static str,
    &'static str,
    &'static str,
    bool,
    Value,
    &'static [&'static str],
);

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

#[expect(clippy::too_many_lines, reason = "it is a table")]
fn samples() -> Vec<Sample> {
    let selector = || json!({"matchLabels": {"app": "x"}});
    let claim =
        || json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let rules = || json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
    let webhooks = || {
        json!([{"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}])
    };
    let role = "rbac.authorization.k8s.io/v1";
    let admission = "admissionregistration.k8s.io/v1";
    let binding = || {
        json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "ServiceAccount", "name": "a", "namespace": "b"}]})
    };
    vec![
        Sample(
            admission,
            "MutatingWebhookConfiguration",
            "mutatingwebhookconfigurations",
            false,
            json!({"webhooks": webhooks()}),
            &[],
        ),
        Sample(
            admission,
            "ValidatingWebhookConfiguration",
            "validatingwebhookconfigurations",
            false,
            json!({"webhooks": webhooks()}),
            &[],
        ),
        Sample(
            admission,
            "ValidatingAdmissionPolicy",
            "validatingadmissionpolicies",
            false,
            json!({"spec": {"validations": [{"expression": "true"}], "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}}}),
            &[],
        ),
        Sample(
            admission,
            "ValidatingAdmissionPolicyBinding",
            "validatingadmissionpolicybindings",
            false,
            json!({"spec": {"policyName": "a", "validationActions": ["Deny", "Audit"]}}),
            &[],
        ),
        Sample(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            false,
            json!({"spec": {"group": "kinds.example.com", "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object"}}}]}}),
            &["/status"],
        ),
        Sample(
            "apiregistration.k8s.io/v1",
            "APIService",
            "apiservices",
            false,
            json!({"spec": {"group": "kinds.example.com", "version": "v1", "groupPriorityMinimum": 1000,
                "versionPriority": 15, "insecureSkipTLSVerify": true,
                "service": {"name": "a", "namespace": "b"}}}),
            &["/status"],
        ),
        Sample(
            "apps/v1",
            "ControllerRevision",
            "controllerrevisions",
            true,
            json!({"revision": 1, "data": {"a": {"b": [1]}}}),
            &[],
        ),
        Sample(
            "apps/v1",
            "DaemonSet",
            "daemonsets",
            true,
            json!({"spec": {"selector": selector(), "template": template()}}),
            &[],
        ),
        Sample(
            "apps/v1",
            "Deployment",
            "deployments",
            true,
            json!({"spec": {"selector": selector(), "template": template()}}),
            &[],
        ),
        Sample(
            "apps/v1",
            "ReplicaSet",
            "replicasets",
            true,
            json!({"spec": {"selector": selector(), "template": template()}}),
            &[],
        ),
        Sample(
            "apps/v1",
            "StatefulSet",
            "statefulsets",
            true,
            json!({"spec": {"selector": selector(), "template": template(), "serviceName": "a",
                "volumeClaimTemplates": [{"metadata": {"name": "d"}, "spec": claim()}]}}),
            &[],
        ),
        Sample(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            "horizontalpodautoscalers",
            true,
            json!({"spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"},
                "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 50}}}]}}),
            &[],
        ),
        Sample(
            "batch/v1",
            "CronJob",
            "cronjobs",
            true,
            json!({"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": job_template()}}}}),
            &[],
        ),
        Sample(
            "batch/v1",
            "Job",
            "jobs",
            true,
            json!({"spec": {"template": job_template()}}),
            &[
                "/spec/selector",
                "/spec/template/metadata/labels/controller-uid",
                "/spec/template/metadata/labels/job-name",
                "/spec/template/metadata/labels/batch.kubernetes.io~1controller-uid",
                "/spec/template/metadata/labels/batch.kubernetes.io~1job-name",
            ],
        ),
        Sample(
            "coordination.k8s.io/v1",
            "Lease",
            "leases",
            true,
            json!({"spec": {"holderIdentity": "a", "renewTime": "2026-01-01T00:00:00.000000Z"}}),
            &[],
        ),
        Sample(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            "endpointslices",
            true,
            json!({"addressType": "IPv4", "endpoints": [{"addresses": ["10.1.1.1"]}],
                "ports": [{"name": "a", "port": 80}]}),
            &[],
        ),
        Sample(
            "events.k8s.io/v1",
            "Event",
            "events",
            true,
            json!({"eventTime": "2026-01-01T00:00:00.000000Z", "reason": "a", "action": "b", "type": "Normal",
                "regarding": {"kind": "Pod", "name": "a"}, "reportingController": "a.b/c",
                "reportingInstance": "d"}),
            &[],
        ),
        Sample(
            "networking.k8s.io/v1",
            "Ingress",
            "ingresses",
            true,
            json!({"spec": {"rules": [{"host": "a.b", "http": {"paths": [{"path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "a", "port": {"number": 80}}}}]}}]}}),
            &[],
        ),
        Sample(
            "networking.k8s.io/v1",
            "IngressClass",
            "ingressclasses",
            false,
            json!({"spec": {"controller": "a.b/c"}}),
            &[],
        ),
        Sample(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "networkpolicies",
            true,
            json!({"spec": {"podSelector": selector(), "ingress": [{"from": [{"podSelector": {}}]}]}}),
            &[],
        ),
        Sample(
            "policy/v1",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
            true,
            json!({"spec": {"minAvailable": 1, "selector": selector()}}),
            &[],
        ),
        Sample(
            role,
            "ClusterRole",
            "clusterroles",
            false,
            json!({"rules": rules()}),
            &[],
        ),
        Sample(
            role,
            "ClusterRoleBinding",
            "clusterrolebindings",
            false,
            binding(),
            &[],
        ),
        Sample(role, "Role", "roles", true, json!({"rules": rules()}), &[]),
        Sample(role, "RoleBinding", "rolebindings", true, binding(), &[]),
        Sample(
            "scheduling.k8s.io/v1",
            "PriorityClass",
            "priorityclasses",
            false,
            json!({"value": 5}),
            &[],
        ),
        Sample(
            "storage.k8s.io/v1",
            "StorageClass",
            "storageclasses",
            false,
            json!({"provisioner": "a.b/c", "parameters": {"a": "b"}}),
            &[],
        ),
        Sample(
            "v1",
            "ConfigMap",
            "configmaps",
            true,
            json!({"data": {"a": "b"}}),
            &[],
        ),
        Sample(
            "v1",
            "Endpoints",
            "endpoints",
            true,
            json!({"subsets": [{"addresses": [{"ip": "10.1.1.1"}], "ports": [{"port": 80}]}]}),
            &[],
        ),
        Sample(
            "v1",
            "Event",
            "events",
            true,
            json!({"involvedObject": {"kind": "Pod", "name": "a"}, "reason": "b", "source": {"component": "c"},
                "firstTimestamp": "2026-01-01T00:00:00Z", "count": 1}),
            &[],
        ),
        Sample(
            "v1",
            "LimitRange",
            "limitranges",
            true,
            json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}}),
            &[],
        ),
        Sample(
            "v1",
            "Namespace",
            "namespaces",
            false,
            json!({}),
            &["/spec", "/status"],
        ),
        Sample(
            "v1",
            "Node",
            "nodes",
            false,
            json!({"spec": {"podCIDR": "10.0.0.0/24"}}),
            &["/spec/taints"],
        ),
        Sample(
            "v1",
            "PersistentVolume",
            "persistentvolumes",
            false,
            json!({"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/a"}}}),
            &["/metadata/finalizers", "/status"],
        ),
        Sample(
            "v1",
            "PersistentVolumeClaim",
            "persistentvolumeclaims",
            true,
            json!({"spec": claim()}),
            &["/metadata/finalizers", "/spec/storageClassName", "/status"],
        ),
        Sample(
            "v1",
            "Pod",
            "pods",
            true,
            json!({"spec": pod()}),
            &[
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
        ),
        Sample(
            "v1",
            "PodTemplate",
            "podtemplates",
            true,
            json!({"template": template()}),
            &[],
        ),
        Sample(
            "v1",
            "ReplicationController",
            "replicationcontrollers",
            true,
            json!({"spec": {"selector": {"app": "x"}, "template": template()}}),
            &[],
        ),
        Sample(
            "v1",
            "ResourceQuota",
            "resourcequotas",
            true,
            json!({"spec": {"hard": {"pods": "1"}}}),
            &[],
        ),
        Sample(
            "v1",
            "Secret",
            "secrets",
            true,
            json!({"data": {"a": "Yg=="}}),
            &[],
        ),
        Sample(
            "v1",
            "Service",
            "services",
            true,
            json!({"spec": {"selector": {"app": "x"}, "ports": [{"port": 80}]}}),
            &[
                "/spec/clusterIP",
                "/spec/clusterIPs",
                "/spec/ipFamilies",
                "/spec/ipFamilyPolicy",
            ],
        ),
        Sample(
            "v1",
            "ServiceAccount",
            "serviceaccounts",
            true,
            json!({"imagePullSecrets": [{"name": "a"}]}),
            &[],
        ),
    ]
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
    for Sample(api_version, kind, plural, has_namespace, mut object, set_later) in samples() {
        tried.insert(format!("{api_version} {kind}"));
        let name = if kind == "CustomResourceDefinition" {
            "things.kinds.example.com"
        } else if kind == "APIService" {
            "v1.kinds.example.com"
        } else {
            "sample"
        };
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        object["metadata"] = json!({"name": name, "labels": {"a": "b"}});
        for involved in ["regarding", "involvedObject"] {
            if object.get(involved).is_some() {
                object[involved]["namespace"] = json!(namespace.name());
            }
        }
        let root = if api_version.contains('/') {
            "apis"
        } else {
            "api"
        };
        let of_namespace = if has_namespace {
            format!("namespaces/{}/", namespace.name())
        } else {
            String::new()
        };
        let path =
            format!("/{root}/{api_version}/{of_namespace}{plural}?dryRun=All&fieldManager=tester");
        let answer = send(
            &client,
            Method::POST,
            &path,
            "application/json",
            Some(&object),
        )
        .await;
        if !answer.is_success() {
            findings.push(format!("{kind}: {}", answer.body));
            continue;
        }
        let server = answer.body;
        let mut new = server.clone();
        new["metadata"]["managedFields"] = Value::Null;
        for pointer in set_later {
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
