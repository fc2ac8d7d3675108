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
        let found = known().find(|known| known.group == kind.group && known.kind == kind.kind)?;
        Some(Resource {
            plural: found.plural.to_owned(),
            namespaced: found.namespaced,
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
        let mut defined = self.defined.iter().filter(|(kind, _)| kind.group == group);
        known().any(|known| known.group == group && known.plural == plural && !known.namespaced)
            || defined.any(|(_, resource)| resource.plural == plural && !resource.namespaced)
    }

    /// Returns whether Kubernetes serves a kind without a definition of it.
    pub(crate) fn is_built_in(kind: &GroupKind) -> bool {
        entries(BUILT_IN).any(|known| known.group == kind.group && known.kind == kind.kind)
    }

    /// Returns the group of a kind of Kubernetes, or of one that is common in charts, that has this name in one
    /// group only.
    pub(crate) fn well_known_group(kind: &str) -> Option<&'static str> {
        let mut groups = known()
            .filter(|known| known.kind == kind)
            .map(|known| known.group);
        let first = groups.next()?;
        groups.next().is_none().then_some(first)
    }
}

/// The kinds that Kubernetes serves, each with its plural, after their group in brackets. Those that begin
/// with `!` are in no namespace.
const BUILT_IN: &str = "
    [] ConfigMap/configmaps Endpoints/endpoints Event/events LimitRange/limitranges
    !Namespace/namespaces !Node/nodes !PersistentVolume/persistentvolumes
    PersistentVolumeClaim/persistentvolumeclaims Pod/pods PodTemplate/podtemplates
    ReplicationController/replicationcontrollers ResourceQuota/resourcequotas Secret/secrets
    Service/services ServiceAccount/serviceaccounts
    [admissionregistration.k8s.io] !MutatingAdmissionPolicy/mutatingadmissionpolicies
    !MutatingAdmissionPolicyBinding/mutatingadmissionpolicybindings
    !MutatingWebhookConfiguration/mutatingwebhookconfigurations
    !ValidatingAdmissionPolicy/validatingadmissionpolicies
    !ValidatingAdmissionPolicyBinding/validatingadmissionpolicybindings
    !ValidatingWebhookConfiguration/validatingwebhookconfigurations
    [apiextensions.k8s.io] !CustomResourceDefinition/customresourcedefinitions
    [apiregistration.k8s.io] !APIService/apiservices
    [apps] ControllerRevision/controllerrevisions DaemonSet/daemonsets Deployment/deployments
    ReplicaSet/replicasets StatefulSet/statefulsets
    [authentication.k8s.io] !TokenReview/tokenreviews
    [authorization.k8s.io] LocalSubjectAccessReview/localsubjectaccessreviews
    !SubjectAccessReview/subjectaccessreviews
    [autoscaling] HorizontalPodAutoscaler/horizontalpodautoscalers
    [batch] CronJob/cronjobs Job/jobs
    [certificates.k8s.io] !CertificateSigningRequest/certificatesigningrequests
    !ClusterTrustBundle/clustertrustbundles
    [coordination.k8s.io] Lease/leases
    [discovery.k8s.io] EndpointSlice/endpointslices
    [events.k8s.io] Event/events
    [flowcontrol.apiserver.k8s.io] !FlowSchema/flowschemas
    !PriorityLevelConfiguration/prioritylevelconfigurations
    [networking.k8s.io] !IPAddress/ipaddresses Ingress/ingresses !IngressClass/ingressclasses
    NetworkPolicy/networkpolicies !ServiceCIDR/servicecidrs
    [extensions] Ingress/ingresses
    [node.k8s.io] !RuntimeClass/runtimeclasses
    [policy] PodDisruptionBudget/poddisruptionbudgets !PodSecurityPolicy/podsecuritypolicies
    [rbac.authorization.k8s.io] !ClusterRole/clusterroles !ClusterRoleBinding/clusterrolebindings
    Role/roles RoleBinding/rolebindings
    [resource.k8s.io] !DeviceClass/deviceclasses ResourceClaim/resourceclaims
    ResourceClaimTemplate/resourceclaimtemplates !ResourceSlice/resourceslices
    [scheduling.k8s.io] !PriorityClass/priorityclasses
    [storage.k8s.io] !CSIDriver/csidrivers !CSINode/csinodes
    CSIStorageCapacity/csistoragecapacities !StorageClass/storageclasses
    !VolumeAttachment/volumeattachments !VolumeAttributesClass/volumeattributesclasses";

/// Kinds that charts often contain without their definition, as [`BUILT_IN`].
const CUSTOM: &str = "
    [gateway.networking.k8s.io] !GatewayClass/gatewayclasses Gateway/gateways HTTPRoute/httproutes
    GRPCRoute/grpcroutes TCPRoute/tcproutes TLSRoute/tlsroutes UDPRoute/udproutes
    ReferenceGrant/referencegrants
    [cert-manager.io] Certificate/certificates CertificateRequest/certificaterequests
    !ClusterIssuer/clusterissuers Issuer/issuers
    [monitoring.coreos.com] Alertmanager/alertmanagers AlertmanagerConfig/alertmanagerconfigs
    PodMonitor/podmonitors Probe/probes Prometheus/prometheuses PrometheusAgent/prometheusagents
    PrometheusRule/prometheusrules ScrapeConfig/scrapeconfigs ServiceMonitor/servicemonitors
    ThanosRuler/thanosrulers
    [security.openshift.io] !SecurityContextConstraints/securitycontextconstraints
    [route.openshift.io] Route/routes";

/// A kind of [`BUILT_IN`] or [`CUSTOM`].
struct Known {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
}

fn entries(table: &'static str) -> impl Iterator<Item = Known> {
    let mut group = "";
    table.split_whitespace().filter_map(move |word| {
        if let Some(name) = word.strip_prefix('[') {
            group = name.trim_end_matches(']');
            return None;
        }
        let name = word.trim_start_matches('!');
        let (kind, plural) = name.split_once('/')?;
        Some(Known {
            group,
            kind,
            plural,
            namespaced: name.len() == word.len(),
        })
    })
}

fn known() -> impl Iterator<Item = Known> {
    entries(BUILT_IN).chain(entries(CUSTOM))
}

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
