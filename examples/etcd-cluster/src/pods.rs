//! Builds the Pods and Services of a cluster. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EmptyDirVolumeSource, HTTPGetAction, Pod,
    PodSecurityContext, PodSpec, Probe, SeccompProfile, SecurityContext, Service, ServicePort,
    ServiceSpec, TopologySpreadConstraint, Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;

use crate::api::{EtcdCluster, EtcdClusterSpec};
use crate::version::Version;

/// Label of Pods, with the name of their cluster.
const CLUSTER_LABEL: &str = "etcd.example.com/cluster";
/// Name of the container, and the program in it.
pub(crate) const CONTAINER: &str = "etcd";
const PROGRAM: &str = "/usr/local/bin/etcd";
/// User id of etcd; the image would run it as root.
const USER: i64 = 1000;
const VOLUME: &str = "data";
const DIRECTORY: &str = "/var/lib/etcd";
const CLIENT_PORT: i32 = 2379;
const PEER_PORT: i32 = 2380;

/// Whether a Pod starts a new cluster or joins one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitialState {
    /// The Pod is the first member.
    New,
    /// The Pod was added to a cluster.
    Existing,
}

/// Returns the image of a release.
pub(crate) fn image(spec: &EtcdClusterSpec, version: Version) -> String {
    format!("{}:v{version}", spec.repository)
}

/// Returns the name of the first member. It follows from the uid, so that a reconcile that does not
/// see the Pod in its cache yet cannot create a second first member.
pub(crate) fn first_name(cluster: &EtcdCluster) -> String {
    let uid = cluster.uid().unwrap_or_default();
    let suffix: String = uid.chars().filter(|c| *c != '-').take(6).collect();
    format!("{}-{suffix}", cluster.name_any())
}

/// Returns a name that no member had before, for all practical purposes.
pub(crate) fn new_name(cluster: &EtcdCluster) -> String {
    // No vowels, as in the names that Kubernetes generates, so that no words come out.
    const LETTERS: [char; 26] = [
        'b', 'c', 'd', 'f', 'g', 'h', 'j', 'k', 'l', 'm', 'n', 'p', 'q', 'r', 's', 't', 'v', 'w',
        'x', 'z', '2', '4', '5', '6', '7', '8',
    ];
    let suffix: String = std::iter::repeat_with(|| fastrand::choice(LETTERS))
        .take(6)
        .flatten()
        .collect();
    format!("{}-{suffix}", cluster.name_any())
}

/// Returns where other members reach a member.
pub(crate) fn peer_url(cluster: &EtcdCluster, member: &str) -> String {
    url(cluster, member, PEER_PORT)
}

/// Returns where clients reach a member.
pub(crate) fn client_url(cluster: &EtcdCluster, member: &str) -> String {
    url(cluster, member, CLIENT_PORT)
}

fn url(cluster: &EtcdCluster, member: &str, port: i32) -> String {
    let (service, namespace) = (cluster.name_any(), cluster.namespace().unwrap_or_default());
    format!("http://{member}.{service}.{namespace}.svc:{port}")
}

/// Returns the member of a peer URL.
pub fn member_of(peer_url: &str) -> &str {
    let host = peer_url.strip_prefix("http://").unwrap_or(peer_url);
    host.split(['.', ':']).next().unwrap_or(host)
}

/// Returns the two Services: one that gives each Pod a name in DNS, and one for clients.
pub(crate) fn services(cluster: &EtcdCluster) -> [Service; 2] {
    let port = |name: &str, port: i32| ServicePort {
        name: Some(name.to_owned()),
        port,
        ..ServicePort::default()
    };
    let service = |name: String, spec: ServiceSpec| Service {
        metadata: metadata(cluster, name),
        spec: Some(ServiceSpec {
            selector: Some(labels(cluster)),
            ..spec
        }),
        ..Service::default()
    };
    let peers = ServiceSpec {
        cluster_ip: Some("None".to_owned()),
        // A member needs its name in DNS before it can become ready.
        publish_not_ready_addresses: Some(true),
        ports: Some(vec![port("client", CLIENT_PORT), port("peer", PEER_PORT)]),
        ..ServiceSpec::default()
    };
    let clients = ServiceSpec {
        ports: Some(vec![port("client", CLIENT_PORT)]),
        ..ServiceSpec::default()
    };
    let name = cluster.name_any();
    [
        service(name.clone(), peers),
        service(format!("{name}-client"), clients),
    ]
}

/// Returns the Pod of a member. `members` are the names of all members, this one among them.
pub(crate) fn pod(
    cluster: &EtcdCluster,
    name: &str,
    members: &BTreeSet<String>,
    state: InitialState,
    image: String,
) -> Pod {
    Pod {
        metadata: metadata(cluster, name.to_owned()),
        spec: Some(PodSpec {
            hostname: Some(name.to_owned()),
            subdomain: Some(cluster.name_any()),
            // etcd that crashes starts again with its data, which belongs to the Pod.
            restart_policy: Some("Always".to_owned()),
            automount_service_account_token: Some(false),
            enable_service_links: Some(false),
            security_context: Some(PodSecurityContext {
                run_as_non_root: Some(true),
                run_as_user: Some(USER),
                fs_group: Some(USER),
                seccomp_profile: Some(SeccompProfile {
                    type_: "RuntimeDefault".to_owned(),
                    ..SeccompProfile::default()
                }),
                ..PodSecurityContext::default()
            }),
            topology_spread_constraints: Some(vec![TopologySpreadConstraint {
                topology_key: "kubernetes.io/hostname".to_owned(),
                max_skew: 1,
                when_unsatisfiable: "ScheduleAnyway".to_owned(),
                label_selector: Some(LabelSelector {
                    match_labels: Some(labels(cluster)),
                    ..LabelSelector::default()
                }),
                ..TopologySpreadConstraint::default()
            }]),
            containers: vec![container(flags(cluster, name, members, state), image)],
            volumes: Some(vec![Volume {
                name: VOLUME.to_owned(),
                empty_dir: Some(EmptyDirVolumeSource::default()),
                ..Volume::default()
            }]),
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}

fn container(flags: Vec<String>, image: String) -> Container {
    let port = |name: &str, port: i32| ContainerPort {
        name: Some(name.to_owned()),
        container_port: port,
        ..ContainerPort::default()
    };
    Container {
        name: CONTAINER.to_owned(),
        image: Some(image),
        command: Some(vec![PROGRAM.to_owned()]),
        args: Some(flags),
        ports: Some(vec![port("client", CLIENT_PORT), port("peer", PEER_PORT)]),
        // No liveness probe: `/health` fails on every member while there is no quorum, when
        // restarts only make things worse.
        readiness_probe: Some(Probe {
            http_get: Some(HTTPGetAction {
                path: Some("/health".to_owned()),
                port: IntOrString::Int(CLIENT_PORT),
                ..HTTPGetAction::default()
            }),
            period_seconds: Some(5),
            timeout_seconds: Some(5),
            ..Probe::default()
        }),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            ..SecurityContext::default()
        }),
        volume_mounts: Some(vec![VolumeMount {
            name: VOLUME.to_owned(),
            mount_path: DIRECTORY.to_owned(),
            ..VolumeMount::default()
        }]),
        ..Container::default()
    }
}

fn flags(
    cluster: &EtcdCluster,
    name: &str,
    members: &BTreeSet<String>,
    state: InitialState,
) -> Vec<String> {
    let state = match state {
        InitialState::New => "new",
        InitialState::Existing => "existing",
    };
    let initial: Vec<String> = members
        .iter()
        .map(|member| format!("{member}={}", peer_url(cluster, member)))
        .collect();
    // The token keeps a member out of a cluster that had the same name before.
    let token = cluster.uid().unwrap_or_default();
    vec![
        format!("--name={name}"),
        format!("--data-dir={DIRECTORY}/member-data"),
        format!("--listen-peer-urls=http://0.0.0.0:{PEER_PORT}"),
        format!("--listen-client-urls=http://0.0.0.0:{CLIENT_PORT}"),
        format!("--initial-advertise-peer-urls={}", peer_url(cluster, name)),
        format!("--advertise-client-urls={}", client_url(cluster, name)),
        format!("{INITIAL_CLUSTER}{}", initial.join(",")),
        format!("--initial-cluster-state={state}"),
        format!("--initial-cluster-token={token}"),
    ]
}

const INITIAL_CLUSTER: &str = "--initial-cluster=";

/// Returns the names of the members with which a Pod was created.
pub(crate) fn initial_members(pod: &Pod) -> BTreeSet<String> {
    let args = etcd(pod).and_then(|etcd| etcd.args.as_deref());
    let mut args = args.unwrap_or_default().iter();
    let initial = args.find_map(|arg| arg.strip_prefix(INITIAL_CLUSTER));
    let entries = initial.unwrap_or_default().split(',');
    let names = entries.filter_map(|entry| entry.split_once('=').map(|(name, _)| name.to_owned()));
    names.collect()
}

/// Returns the image of a Pod's etcd.
pub(crate) fn image_of(pod: &Pod) -> String {
    let image = etcd(pod).and_then(|etcd| etcd.image.clone());
    image.unwrap_or_default()
}

fn etcd(pod: &Pod) -> Option<&Container> {
    let containers = &pod.spec.as_ref()?.containers;
    containers
        .iter()
        .find(|container| container.name == CONTAINER)
}

fn metadata(cluster: &EtcdCluster, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: cluster.namespace(),
        labels: Some(labels(cluster)),
        ..ObjectMeta::default()
    }
}

fn labels(cluster: &EtcdCluster) -> BTreeMap<String, String> {
    BTreeMap::from([(CLUSTER_LABEL.to_owned(), cluster.name_any())])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        InitialState, client_url, first_name, image_of, initial_members, member_of, new_name,
        peer_url, pod, services,
    };
    use crate::api::EtcdCluster;

    fn cluster() -> EtcdCluster {
        serde_json::from_value(json!({
            "apiVersion": "etcd.example.com/v1", "kind": "EtcdCluster",
            "metadata": {"name": "db", "namespace": "prod", "uid": "1b2c3d4e-5f60-4a1b-8c2d-000000000000"},
            "spec": {"version": "3.6.8"},
        }))
        .unwrap()
    }

    #[test]
    fn a_member_joins_with_the_flags_that_etcd_wants() {
        let members = ["db-a".to_owned(), "db-b".to_owned()].into();
        let pod = pod(
            &cluster(),
            "db-b",
            &members,
            InitialState::Existing,
            "etcd:v3.6.8".to_owned(),
        );
        let spec = pod.spec.clone().unwrap();
        assert_eq!(
            (spec.hostname.as_deref(), spec.subdomain.as_deref()),
            (Some("db-b"), Some("db"))
        );
        let expected = [
            "--name=db-b",
            "--data-dir=/var/lib/etcd/member-data",
            "--listen-peer-urls=http://0.0.0.0:2380",
            "--listen-client-urls=http://0.0.0.0:2379",
            "--initial-advertise-peer-urls=http://db-b.db.prod.svc:2380",
            "--advertise-client-urls=http://db-b.db.prod.svc:2379",
            "--initial-cluster=db-a=http://db-a.db.prod.svc:2380,db-b=http://db-b.db.prod.svc:2380",
            "--initial-cluster-state=existing",
            "--initial-cluster-token=1b2c3d4e-5f60-4a1b-8c2d-000000000000",
        ];
        assert_eq!(spec.containers[0].args.as_deref().unwrap(), expected);
        // What was built is read back.
        assert_eq!(initial_members(&pod), members);
        assert_eq!(image_of(&pod), "etcd:v3.6.8");
    }

    #[test]
    fn a_peer_url_leads_back_to_its_member() {
        assert_eq!(member_of(&peer_url(&cluster(), "db-a")), "db-a");
        assert_eq!(
            client_url(&cluster(), "db-a"),
            "http://db-a.db.prod.svc:2379"
        );
    }

    #[test]
    fn the_first_name_is_stable_and_others_are_new() {
        assert_eq!(first_name(&cluster()), "db-1b2c3d");
        let name = new_name(&cluster());
        assert!(name.starts_with("db-") && name.len() == 9, "{name}");
        assert_ne!(name, new_name(&cluster()));
    }

    #[test]
    fn one_service_names_starting_members_and_the_other_is_for_clients() {
        let [peers, clients] = services(&cluster()).map(|service| service.spec.unwrap());
        assert_eq!(peers.cluster_ip.as_deref(), Some("None"));
        assert_eq!(peers.publish_not_ready_addresses, Some(true));
        assert_eq!(
            (clients.cluster_ip, clients.publish_not_ready_addresses),
            (None, None)
        );
        assert_eq!(peers.selector, clients.selector);
    }
}
