//! The desired Deployment of a `MemcachedBackup`. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, PodSpec, PodTemplateSpec, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::ResourceExt;

use super::source::Source;
use crate::api::v1alpha1::MemcachedBackup;

const IMAGE: &str = "docker.io/library/memcached:1.6.39";
const PORT: i32 = 11211;
const USER: i64 = 11211;

/// Returns the labels that select the Pods of a backup.
pub(super) fn labels(backup: &MemcachedBackup) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "memcachedbackup".to_owned()),
        ("app.kubernetes.io/instance", backup.name_any()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

/// Returns the Deployment, with the name of the backup and without an owner reference: with Pods like
/// those of the source, or, without a source, with those of the controller.
pub(super) fn deployment(backup: &MemcachedBackup, source: Option<&Source>) -> Deployment {
    Deployment {
        metadata: ObjectMeta {
            name: Some(backup.name_any()),
            namespace: backup.namespace(),
            labels: Some(labels(backup)),
            ..ObjectMeta::default()
        },
        spec: Some(DeploymentSpec {
            replicas: Some(backup.spec.size),
            selector: LabelSelector {
                match_labels: Some(labels(backup)),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels(backup)),
                    ..ObjectMeta::default()
                }),
                spec: Some(match source {
                    Some(source) => copy(source),
                    None => PodSpec {
                        containers: vec![container()],
                        ..PodSpec::default()
                    },
                }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

/// Returns the Pods of the source, which know its address.
fn copy(source: &Source) -> PodSpec {
    let mut pods = source.pods.clone();
    for container in &mut pods.containers {
        container.env.get_or_insert_default().push(EnvVar {
            name: "MEMCACHED_SOURCE".to_owned(),
            value: Some(source.release.address.clone()),
            ..EnvVar::default()
        });
    }
    pods
}

fn container() -> Container {
    Container {
        name: "memcached".to_owned(),
        image: Some(IMAGE.to_owned()),
        args: Some(vec!["--memory-limit=64".to_owned()]),
        ports: Some(vec![ContainerPort {
            name: Some("memcached".to_owned()),
            container_port: PORT,
            ..ContainerPort::default()
        }]),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            run_as_non_root: Some(true),
            run_as_user: Some(USER),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, PodSpec};
    use kube::ResourceExt;

    use super::super::source::Source;
    use super::deployment;
    use crate::api::v1alpha1::{BackupSource, MemcachedBackup, MemcachedBackupSpec};

    fn backup() -> MemcachedBackup {
        let spec = MemcachedBackupSpec {
            size: 3,
            memcached_ref: None,
        };
        let mut backup = MemcachedBackup::new("b", spec);
        backup.metadata.namespace = Some("ns".to_owned());
        backup
    }

    #[test]
    fn the_deployment_has_the_size_and_selects_its_own_pods() {
        let deployment = deployment(&backup(), None);
        assert_eq!(deployment.name_any(), "b");
        assert_eq!(deployment.namespace().as_deref(), Some("ns"));
        let spec = deployment.spec.unwrap();
        assert_eq!(spec.replicas, Some(3));
        assert_eq!(
            spec.selector.match_labels,
            spec.template.metadata.unwrap().labels
        );
        let pods = spec.template.spec.unwrap();
        assert_eq!(pods.containers[0].image.as_deref(), Some(super::IMAGE));
    }

    #[test]
    fn the_pods_are_those_of_the_source_and_know_its_address() {
        let source = Source {
            release: BackupSource {
                release: "main".to_owned(),
                revision: 2,
                address: "main.ns.svc:11211".to_owned(),
            },
            pods: PodSpec {
                containers: vec![Container {
                    image: Some("memcached:1".to_owned()),
                    ..Container::default()
                }],
                ..PodSpec::default()
            },
        };
        let pods = deployment(&backup(), Some(&source));
        let pods = pods.spec.unwrap().template.spec.unwrap();
        assert_eq!(pods.containers[0].image.as_deref(), Some("memcached:1"));
        let env = pods.containers[0].env.as_ref().unwrap();
        assert_eq!(env[0].name, "MEMCACHED_SOURCE");
        assert_eq!(env[0].value.as_deref(), Some("main.ns.svc:11211"));
    }
}
