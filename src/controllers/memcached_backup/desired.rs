//! The desired Deployment of a `MemcachedBackup`. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, EnvVar, PodSpec, PodTemplateSpec, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::ResourceExt;

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

/// Returns the Deployment, with the name of the backup and without an owner reference.
pub(super) fn deployment(backup: &MemcachedBackup) -> Deployment {
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
                spec: Some(PodSpec {
                    containers: vec![container(backup)],
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn container(backup: &MemcachedBackup) -> Container {
    let source = backup.spec.memcached_ref.as_ref().map(|reference| {
        vec![EnvVar {
            name: "MEMCACHED_NAME".to_owned(),
            value: Some(reference.name.clone()),
            ..EnvVar::default()
        }]
    });
    Container {
        name: "memcached".to_owned(),
        image: Some(IMAGE.to_owned()),
        args: Some(vec!["--memory-limit=64".to_owned()]),
        env: source,
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
    use kube::ResourceExt;

    use super::deployment;
    use crate::api::v1alpha1::{MemcachedBackup, MemcachedBackupSpec, MemcachedRef};

    #[test]
    fn the_deployment_has_the_size_and_selects_its_own_pods() {
        let mut backup = MemcachedBackup::new(
            "b",
            MemcachedBackupSpec {
                size: 3,
                memcached_ref: Some(MemcachedRef {
                    name: "main".to_owned(),
                }),
            },
        );
        backup.metadata.namespace = Some("ns".to_owned());
        let deployment = deployment(&backup);
        assert_eq!(deployment.name_any(), "b");
        assert_eq!(deployment.namespace().as_deref(), Some("ns"));
        let spec = deployment.spec.unwrap();
        assert_eq!(spec.replicas, Some(3));
        assert_eq!(
            spec.selector.match_labels,
            spec.template.metadata.unwrap().labels
        );
        let env = spec.template.spec.unwrap().containers[0]
            .env
            .clone()
            .unwrap();
        assert_eq!(env[0].value.as_deref(), Some("main"));
    }
}
