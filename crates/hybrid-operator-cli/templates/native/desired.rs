//! The desired Deployment of a `{{kind}}`. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, PodSpec, PodTemplateSpec, SecurityContext,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::ResourceExt;

use crate::api::{{version}}::{{kind}};

/// Name of the application, as a label.
const APP: &str = "{{lower}}";
/// Image of the Pods.
const IMAGE: &str = "docker.io/library/busybox:1.37";

/// Returns the labels that select the Pods of an object.
pub(super) fn labels(object: &{{kind}}) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), APP.to_owned()),
        ("app.kubernetes.io/instance".to_owned(), object.name_any()),
    ])
}

/// Returns the Deployment, with the name of the object and without an owner reference.
pub(super) fn deployment(object: &{{kind}}) -> Deployment {
    Deployment {
        metadata: ObjectMeta {
            name: Some(object.name_any()),
{{#if namespaced}}
            namespace: object.namespace(),
{{else}}
            // The objects themselves are in no namespace.
            namespace: Some("default".to_owned()),
{{/if}}
            labels: Some(labels(object)),
            ..ObjectMeta::default()
        },
        spec: Some(DeploymentSpec {
            replicas: Some(object.spec.size),
            selector: LabelSelector {
                match_labels: Some(labels(object)),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels(object)),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec {
                    containers: vec![container()],
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn container() -> Container {
    Container {
        name: "main".to_owned(),
        image: Some(IMAGE.to_owned()),
        command: Some(vec!["sleep".to_owned(), "infinity".to_owned()]),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            run_as_non_root: Some(true),
            run_as_user: Some(1000),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}
