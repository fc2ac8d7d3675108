//! The API groups of Kubernetes itself, and API versions that it has removed or will remove, from its deprecation guide
//! (<https://kubernetes.io/docs/reference/using-api/deprecation-guide/>).

/// Groups below `k8s.io` that the API server itself serves. Others have definitions or a server of their own.
const BUILT_IN: [&str; 19] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "imagepolicy.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Returns whether the API server itself serves a group: one without a dot, or one of those below `k8s.io`.
pub fn is_built_in(group: &str) -> bool {
    !group.contains('.') || BUILT_IN.contains(&group)
}

/// An API version of kinds, and the minor versions of Kubernetes 1 that deprecate and remove it.
struct Deprecation {
    api_version: &'static str,
    /// Separated by commas; `*` for all kinds.
    kinds: &'static str,
    deprecated: u32,
    removed: u32,
    /// Replacement; empty if there is none.
    instead: &'static str,
}

/// The API versions in the order of search: API version, kinds or `*` for all, the minor versions that
/// deprecate and remove it (`-`: none), and the replacement, if there is one.
const TABLE: &str = "
    extensions/v1beta1 Ingress 14 22 networking.k8s.io/v1
    extensions/v1beta1 NetworkPolicy 9 16 networking.k8s.io/v1
    extensions/v1beta1 PodSecurityPolicy 10 16
    extensions/v1beta1 * 9 16 apps/v1
    apps/v1beta1 * 9 16 apps/v1
    apps/v1beta2 * 9 16 apps/v1
    networking.k8s.io/v1beta1 Ingress,IngressClass 19 22 networking.k8s.io/v1
    rbac.authorization.k8s.io/v1beta1 * 17 22 rbac.authorization.k8s.io/v1
    rbac.authorization.k8s.io/v1alpha1 * 17 22 rbac.authorization.k8s.io/v1
    apiextensions.k8s.io/v1beta1 * 16 22 apiextensions.k8s.io/v1
    apiregistration.k8s.io/v1beta1 * 19 22 apiregistration.k8s.io/v1
    admissionregistration.k8s.io/v1beta1 MutatingWebhookConfiguration,ValidatingWebhookConfiguration 16 22 admissionregistration.k8s.io/v1
    certificates.k8s.io/v1beta1 CertificateSigningRequest 19 22 certificates.k8s.io/v1
    coordination.k8s.io/v1beta1 Lease 19 22 coordination.k8s.io/v1
    scheduling.k8s.io/v1beta1 PriorityClass 14 22 scheduling.k8s.io/v1
    storage.k8s.io/v1beta1 CSIDriver,CSINode,StorageClass,VolumeAttachment 19 22 storage.k8s.io/v1
    storage.k8s.io/v1beta1 CSIStorageCapacity 24 27 storage.k8s.io/v1
    batch/v1beta1 CronJob 21 25 batch/v1
    discovery.k8s.io/v1beta1 EndpointSlice 21 25 discovery.k8s.io/v1
    events.k8s.io/v1beta1 Event 19 25 events.k8s.io/v1
    policy/v1beta1 PodDisruptionBudget 21 25 policy/v1
    policy/v1beta1 PodSecurityPolicy 21 25
    node.k8s.io/v1beta1 RuntimeClass 20 25 node.k8s.io/v1
    autoscaling/v2beta1 * 22 25 autoscaling/v2
    autoscaling/v2beta2 * 23 26 autoscaling/v2
    flowcontrol.apiserver.k8s.io/v1beta1 * 23 26 flowcontrol.apiserver.k8s.io/v1
    flowcontrol.apiserver.k8s.io/v1beta2 * 26 29 flowcontrol.apiserver.k8s.io/v1
    flowcontrol.apiserver.k8s.io/v1beta3 * 29 32 flowcontrol.apiserver.k8s.io/v1
    v1 Endpoints 33 - discovery.k8s.io/v1 EndpointSlice
    v1 ComponentStatus 19 -";

fn entries() -> impl Iterator<Item = Deprecation> {
    TABLE.lines().filter_map(|line| {
        let mut words = line.trim_start().splitn(5, ' ');
        Some(Deprecation {
            api_version: words.next()?,
            kinds: words.next()?,
            deprecated: words.next()?.parse().ok()?,
            removed: words.next()?.parse().unwrap_or(u32::MAX),
            instead: words.next().unwrap_or_default(),
        })
    })
}

/// Deprecation or removal of an API version by Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// Whether it is no longer served.
    pub is_removed: bool,
    /// Minor version since which it is deprecated or removed.
    pub since: u32,
    /// Replacement; empty if there is none.
    pub instead: &'static str,
}

impl Deprecation {
    fn is_of(&self, kind: &str) -> bool {
        let mut kinds = self.kinds.split(',');
        kinds.any(|name| name == "*" || name == kind)
    }

    fn successor(&self) -> Successor {
        // Another kind has other objects.
        if self.instead.is_empty() || self.instead.contains(' ') {
            Successor::None
        } else {
            Successor::ApiVersion(self.instead)
        }
    }
}

/// Replacement of an API version that Kubernetes has deprecated or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Successor {
    /// The same objects are served under this API version.
    ApiVersion(&'static str),
    /// No other API version serves them.
    None,
}

fn find(api_version: &str, kind: &str) -> Option<Deprecation> {
    entries().find(|entry| entry.api_version == api_version && entry.is_of(kind))
}

/// Returns what follows an API version that Kubernetes has deprecated or removed.
pub fn successor(api_version: &str, kind: &str) -> Option<Successor> {
    find(api_version, kind).map(|entry| entry.successor())
}

/// Returns the groups that serve the objects of a kind: the same objects, under both names.
pub fn groups_of<'g>(group: &'g str, kind: &str) -> Vec<&'g str> {
    let group_of = |api_version: &'static str| Some(api_version.split_once('/')?.0);
    let mut groups = vec![group];
    for entry in entries().filter(|entry| group_of(entry.api_version) == Some(group)) {
        if let Some(Successor::ApiVersion(other)) = successor(entry.api_version, kind)
            && let Some(other) = group_of(other)
            && !groups.contains(&other)
        {
            groups.push(other);
        }
    }
    groups
}

/// Returns what Kubernetes 1.`minor` does with a kind, if it is deprecated or removed there.
pub fn fate(api_version: &str, kind: &str, minor: u32) -> Option<Fate> {
    let found = find(api_version, kind)?;
    let is_removed = minor >= found.removed;
    (minor >= found.deprecated).then_some(Fate {
        is_removed,
        since: if is_removed {
            found.removed
        } else {
            found.deprecated
        },
        instead: found.instead,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_table_is_an_entry() {
        assert_eq!(entries().count(), TABLE.trim().lines().count());
    }

    #[test]
    fn fates_depend_on_the_version_of_kubernetes() {
        let is = |minor| {
            fate("policy/v1beta1", "PodDisruptionBudget", minor).map(|fate| fate.is_removed)
        };
        let expected = [None, Some(false), Some(false), Some(true)];
        assert_eq!([20, 21, 24, 25].map(is), expected);
        let ingress = fate("extensions/v1beta1", "Ingress", 36).unwrap();
        assert_eq!(ingress.instead, "networking.k8s.io/v1");
        let deployment = fate("extensions/v1beta1", "Deployment", 36).unwrap();
        assert_eq!(deployment.instead, "apps/v1");
        assert_eq!(fate("apps/v1", "Deployment", 36), None);
        assert_eq!(fate("v1", "Service", 36), None);
    }

    #[test]
    fn custom_resources_may_have_groups_below_k8s_io() {
        let built_in = ["", "apps", "storage.k8s.io", "rbac.authorization.k8s.io"];
        assert!(built_in.into_iter().all(is_built_in));
        let others = [
            "charts.helm.k8s.io",
            "gateway.networking.k8s.io",
            "example.com",
        ];
        assert!(!others.into_iter().any(is_built_in));
    }

    #[test]
    fn removed_versions_have_successors() {
        let table = [
            (
                "policy/v1beta1",
                "PodDisruptionBudget",
                Some(Successor::ApiVersion("policy/v1")),
            ),
            ("policy/v1beta1", "PodSecurityPolicy", Some(Successor::None)),
            ("v1", "Endpoints", Some(Successor::None)),
            ("policy/v1", "PodDisruptionBudget", None),
        ];
        for (api_version, kind, expected) in table {
            assert_eq!(
                successor(api_version, kind),
                expected,
                "{api_version} {kind}"
            );
        }
    }

    #[test]
    fn kinds_that_moved_have_two_groups() {
        let ingress = groups_of("extensions", "Ingress");
        assert_eq!(ingress, ["extensions", "networking.k8s.io"]);
        assert_eq!(groups_of("extensions", "DaemonSet"), ["extensions", "apps"]);
        assert_eq!(groups_of("batch", "CronJob"), ["batch"]);
        assert_eq!(groups_of("", "Endpoints"), [""]);
    }
}
