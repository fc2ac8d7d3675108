//! Resources of kinds: plural and scope, without asking a cluster.

use std::collections::BTreeMap;

use helm_core::chart::Chart;
use helm_core::manifest::parse_objects;
use serde_json::Value;

use crate::project::plural;

/// A kind in any of its versions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupKind {
    /// API group; empty for the core group.
    pub(crate) group: String,
    pub(crate) kind: String,
}

impl GroupKind {
    /// Creates it from an `apiVersion`.
    pub(crate) fn of_api_version(api_version: &str, kind: &str) -> Self {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self::new(group, kind)
    }

    /// Creates it from its group.
    pub(crate) fn new(group: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
        }
    }
}

impl std::fmt::Display for GroupKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kind)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// The resource of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resource {
    /// Plural name in lower case.
    pub(crate) plural: String,
    /// Whether its objects are in a namespace.
    pub(crate) namespaced: bool,
    /// Whether plural and scope are assumed, because no definition of the kind is known.
    pub(crate) is_assumed: bool,
}

/// The kinds whose definitions are known: those of Kubernetes and of what is common in charts, of CRD files
/// and of charts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kinds {
    defined: BTreeMap<GroupKind, Resource>,
}

impl Kinds {
    /// Adds the definitions in the `crds/` of a chart.
    pub(crate) fn add_chart(&mut self, chart: &Chart) {
        for crd in chart.crds() {
            // The operator reports files that cannot be read.
            let text = String::from_utf8_lossy(crd.file().data());
            for object in parse_objects(&text).unwrap_or_default() {
                self.add_definition(object.object());
            }
        }
    }

    /// Adds a kind that a `CustomResourceDefinition` defines; other objects are ignored.
    pub(crate) fn add_definition(&mut self, object: &Value) -> Option<GroupKind> {
        if object.get("kind")?.as_str()? != "CustomResourceDefinition" {
            return None;
        }
        let spec = object.get("spec")?;
        let name = |name| spec.get("names")?.get(name)?.as_str();
        let kind = GroupKind::new(spec.get("group")?.as_str()?, name("kind")?);
        let namespaced = spec.get("scope")?.as_str()? != "Cluster";
        self.add(kind.clone(), name("plural")?, namespaced);
        Some(kind)
    }

    pub(crate) fn add(&mut self, kind: GroupKind, plural: &str, namespaced: bool) {
        let resource = Resource {
            plural: plural.to_owned(),
            namespaced,
            is_assumed: false,
        };
        self.defined.insert(kind, resource);
    }

    /// Returns the definition of a kind, if one is known.
    pub(crate) fn defined(&self, kind: &GroupKind) -> Option<Resource> {
        if let Some(resource) = self.defined.get(kind) {
            return Some(resource.clone());
        }
        let groups = BUILT_IN
            .iter()
            .chain(CUSTOM)
            .filter(|(group, _)| *group == kind.group);
        let mut found = groups.flat_map(|(_, kinds)| *kinds);
        let (_, plural, namespaced) = found.find(|(name, ..)| *name == kind.kind)?;
        Some(Resource {
            plural: (*plural).to_owned(),
            namespaced: *namespaced,
            is_assumed: false,
        })
    }

    /// Returns the resource of a kind. Unknown kinds are assumed to have a regular plural, and to be
    /// namespaced unless their name begins with `Cluster`.
    pub(crate) fn resource(&self, kind: &GroupKind) -> Resource {
        self.defined(kind).unwrap_or_else(|| Resource {
            plural: plural(&kind.kind),
            namespaced: !kind.kind.starts_with("Cluster"),
            is_assumed: true,
        })
    }

    /// Returns whether a resource, named by its plural, is known to be in no namespace.
    pub(crate) fn is_cluster_scoped(&self, group: &str, plural: &str) -> bool {
        let mut known = BUILT_IN
            .iter()
            .chain(CUSTOM)
            .filter(|(name, _)| *name == group)
            .flat_map(|(_, kinds)| *kinds);
        let mut defined = self.defined.iter().filter(|(kind, _)| kind.group == group);
        known.any(|(_, name, namespaced)| *name == plural && !namespaced)
            || defined.any(|(_, resource)| resource.plural == plural && !resource.namespaced)
    }

    /// Returns whether Kubernetes serves a kind without a definition of it.
    pub(crate) fn is_built_in(kind: &GroupKind) -> bool {
        BUILT_IN.iter().any(|(group, kinds)| {
            *group == kind.group && kinds.iter().any(|(name, ..)| *name == kind.kind)
        })
    }

    /// Returns the group of a kind of Kubernetes, or of one that is common in charts, that has this name in one
    /// group only.
    pub(crate) fn well_known_group(kind: &str) -> Option<&'static str> {
        let mut groups = BUILT_IN
            .iter()
            .chain(CUSTOM)
            .filter(|(_, kinds)| kinds.iter().any(|(name, ..)| *name == kind))
            .map(|(group, _)| *group);
        let first = groups.next()?;
        groups.next().is_none().then_some(first)
    }
}

type KindTable = [(&'static str, &'static [(&'static str, &'static str, bool)])];

/// The kinds that Kubernetes serves: kind, plural, and whether it is namespaced.
const BUILT_IN: &KindTable = &[
    (
        "",
        &[
            ("ConfigMap", "configmaps", true),
            ("Endpoints", "endpoints", true),
            ("Event", "events", true),
            ("LimitRange", "limitranges", true),
            ("Namespace", "namespaces", false),
            ("Node", "nodes", false),
            ("PersistentVolume", "persistentvolumes", false),
            ("PersistentVolumeClaim", "persistentvolumeclaims", true),
            ("Pod", "pods", true),
            ("PodTemplate", "podtemplates", true),
            ("ReplicationController", "replicationcontrollers", true),
            ("ResourceQuota", "resourcequotas", true),
            ("Secret", "secrets", true),
            ("Service", "services", true),
            ("ServiceAccount", "serviceaccounts", true),
        ],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            (
                "MutatingAdmissionPolicy",
                "mutatingadmissionpolicies",
                false,
            ),
            (
                "MutatingAdmissionPolicyBinding",
                "mutatingadmissionpolicybindings",
                false,
            ),
            (
                "MutatingWebhookConfiguration",
                "mutatingwebhookconfigurations",
                false,
            ),
            (
                "ValidatingAdmissionPolicy",
                "validatingadmissionpolicies",
                false,
            ),
            (
                "ValidatingAdmissionPolicyBinding",
                "validatingadmissionpolicybindings",
                false,
            ),
            (
                "ValidatingWebhookConfiguration",
                "validatingwebhookconfigurations",
                false,
            ),
        ],
    ),
    (
        "apiextensions.k8s.io",
        &[(
            "CustomResourceDefinition",
            "customresourcedefinitions",
            false,
        )],
    ),
    (
        "apiregistration.k8s.io",
        &[("APIService", "apiservices", false)],
    ),
    (
        "apps",
        &[
            ("ControllerRevision", "controllerrevisions", true),
            ("DaemonSet", "daemonsets", true),
            ("Deployment", "deployments", true),
            ("ReplicaSet", "replicasets", true),
            ("StatefulSet", "statefulsets", true),
        ],
    ),
    (
        "authentication.k8s.io",
        &[("TokenReview", "tokenreviews", false)],
    ),
    (
        "authorization.k8s.io",
        &[
            (
                "LocalSubjectAccessReview",
                "localsubjectaccessreviews",
                true,
            ),
            ("SubjectAccessReview", "subjectaccessreviews", false),
        ],
    ),
    (
        "autoscaling",
        &[("HorizontalPodAutoscaler", "horizontalpodautoscalers", true)],
    ),
    (
        "batch",
        &[("CronJob", "cronjobs", true), ("Job", "jobs", true)],
    ),
    (
        "certificates.k8s.io",
        &[
            (
                "CertificateSigningRequest",
                "certificatesigningrequests",
                false,
            ),
            ("ClusterTrustBundle", "clustertrustbundles", false),
        ],
    ),
    ("coordination.k8s.io", &[("Lease", "leases", true)]),
    (
        "discovery.k8s.io",
        &[("EndpointSlice", "endpointslices", true)],
    ),
    ("events.k8s.io", &[("Event", "events", true)]),
    (
        "flowcontrol.apiserver.k8s.io",
        &[
            ("FlowSchema", "flowschemas", false),
            (
                "PriorityLevelConfiguration",
                "prioritylevelconfigurations",
                false,
            ),
        ],
    ),
    (
        "networking.k8s.io",
        &[
            ("IPAddress", "ipaddresses", false),
            ("Ingress", "ingresses", true),
            ("IngressClass", "ingressclasses", false),
            ("NetworkPolicy", "networkpolicies", true),
            ("ServiceCIDR", "servicecidrs", false),
        ],
    ),
    ("extensions", &[("Ingress", "ingresses", true)]),
    ("node.k8s.io", &[("RuntimeClass", "runtimeclasses", false)]),
    (
        "policy",
        &[
            ("PodDisruptionBudget", "poddisruptionbudgets", true),
            ("PodSecurityPolicy", "podsecuritypolicies", false),
        ],
    ),
    (
        "rbac.authorization.k8s.io",
        &[
            ("ClusterRole", "clusterroles", false),
            ("ClusterRoleBinding", "clusterrolebindings", false),
            ("Role", "roles", true),
            ("RoleBinding", "rolebindings", true),
        ],
    ),
    (
        "resource.k8s.io",
        &[
            ("DeviceClass", "deviceclasses", false),
            ("ResourceClaim", "resourceclaims", true),
            ("ResourceClaimTemplate", "resourceclaimtemplates", true),
            ("ResourceSlice", "resourceslices", false),
        ],
    ),
    (
        "scheduling.k8s.io",
        &[("PriorityClass", "priorityclasses", false)],
    ),
    (
        "storage.k8s.io",
        &[
            ("CSIDriver", "csidrivers", false),
            ("CSINode", "csinodes", false),
            ("CSIStorageCapacity", "csistoragecapacities", true),
            ("StorageClass", "storageclasses", false),
            ("VolumeAttachment", "volumeattachments", false),
            ("VolumeAttributesClass", "volumeattributesclasses", false),
        ],
    ),
];

/// Kinds that charts often contain without their definition, as [`BUILT_IN`].
const CUSTOM: &KindTable = &[
    (
        "gateway.networking.k8s.io",
        &[
            ("GatewayClass", "gatewayclasses", false),
            ("Gateway", "gateways", true),
            ("HTTPRoute", "httproutes", true),
            ("GRPCRoute", "grpcroutes", true),
            ("TCPRoute", "tcproutes", true),
            ("TLSRoute", "tlsroutes", true),
            ("UDPRoute", "udproutes", true),
            ("ReferenceGrant", "referencegrants", true),
        ],
    ),
    (
        "cert-manager.io",
        &[
            ("Certificate", "certificates", true),
            ("CertificateRequest", "certificaterequests", true),
            ("ClusterIssuer", "clusterissuers", false),
            ("Issuer", "issuers", true),
        ],
    ),
    (
        "monitoring.coreos.com",
        &[
            ("Alertmanager", "alertmanagers", true),
            ("AlertmanagerConfig", "alertmanagerconfigs", true),
            ("PodMonitor", "podmonitors", true),
            ("Probe", "probes", true),
            ("Prometheus", "prometheuses", true),
            ("PrometheusAgent", "prometheusagents", true),
            ("PrometheusRule", "prometheusrules", true),
            ("ScrapeConfig", "scrapeconfigs", true),
            ("ServiceMonitor", "servicemonitors", true),
            ("ThanosRuler", "thanosrulers", true),
        ],
    ),
    (
        "security.openshift.io",
        &[(
            "SecurityContextConstraints",
            "securitycontextconstraints",
            false,
        )],
    ),
    ("route.openshift.io", &[("Route", "routes", true)]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_of_built_in_defined_and_unknown_kinds() {
        let mut kinds = Kinds::default();
        let definition = serde_json::json!({"kind": "CustomResourceDefinition", "spec": {
            "group": "db.example.com", "scope": "Cluster",
            "names": {"kind": "Index", "plural": "indices"}}});
        kinds.add_definition(&definition).unwrap();
        for (group, kind, plural, namespaced, is_assumed) in [
            ("", "Endpoints", "endpoints", true, false),
            (
                "networking.k8s.io",
                "IngressClass",
                "ingressclasses",
                false,
                false,
            ),
            ("db.example.com", "Index", "indices", false, false),
            (
                "monitoring.coreos.com",
                "Prometheus",
                "prometheuses",
                true,
                false,
            ),
            ("x.io", "Policy", "policies", true, true),
            ("x.io", "Podinfo", "podinfoes", true, true),
            ("x.io", "ClusterProxy", "clusterproxies", false, true),
        ] {
            let expected = Resource {
                plural: plural.to_owned(),
                namespaced,
                is_assumed,
            };
            assert_eq!(
                kinds.resource(&GroupKind::new(group, kind)),
                expected,
                "{kind}"
            );
        }
        assert_eq!(Kinds::well_known_group("Deployment"), Some("apps"));
        assert_eq!(Kinds::well_known_group("Event"), None);
        assert!(Kinds::is_built_in(&GroupKind::new("", "Pod")));
        assert!(!Kinds::is_built_in(&GroupKind::new("apps", "Pod")));
        let route = GroupKind::new("gateway.networking.k8s.io", "HTTPRoute");
        assert!(!Kinds::is_built_in(&route));
    }
}
