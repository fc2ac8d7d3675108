//! Reconciles `Memcached`: a Deployment, and the names of its Pods in the status.

use std::collections::BTreeMap;
use std::sync::Arc;

use hybrid_operator::native::{self, Action, Context, Error, Key, NativeController};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::ResourceExt;

use crate::api::{Memcached, MemcachedStatus};

const IMAGE: &str = "docker.io/library/memcached:1.6.39";
const PORT: i32 = 11211;
/// Label of the Pods, with the name of their `Memcached`.
const LABEL: &str = "native.example.com/memcached";

/// Builds the controller, to be added to a manager.
pub fn controller() -> NativeController<Memcached> {
    native::controller::<Memcached>("memcached-native")
        .defines_crd()
        .owns::<Deployment>()
        // The owner of a Pod is a ReplicaSet, so a label leads to the custom resource.
        .watches_selected::<Pod, _>(LABEL, |pod| {
            let name = pod.labels().get(LABEL)?;
            Some(Key::new(pod.namespace().as_deref(), name))
        })
        .reconcile(reconcile)
}

async fn reconcile(
    memcached: Arc<Memcached>,
    context: Context<Memcached>,
) -> Result<Action, Error> {
    context.apply(&deployment(&memcached)).await?;

    let mut pods = context.cached::<Pod>()?.list();
    pods.retain(|pod| {
        pod.labels().get(LABEL) == Some(&memcached.name_any())
            && pod.metadata.deletion_timestamp.is_none()
    });
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let wanted = usize::try_from(memcached.spec.size).unwrap_or_default();
    let is_complete = ready == wanted && pods.len() == wanted;
    let present = memcached.status.clone().unwrap_or_default();
    let status = MemcachedStatus {
        nodes: pods.iter().map(|pod| pod.name_any()).collect(),
        conditions: context
            .conditions(Some(&present.conditions))
            .set(
                "Ready",
                is_complete,
                if is_complete {
                    "AllPodsReady"
                } else {
                    "PodsNotReady"
                },
                format!("{ready} of {wanted} Pods are ready"),
            )
            .into_vec(),
    };
    context.patch_status(&status).await?;
    Ok(Action::done())
}

fn deployment(memcached: &Memcached) -> Deployment {
    let labels = BTreeMap::from([(LABEL.to_owned(), memcached.name_any())]);
    Deployment {
        metadata: ObjectMeta {
            name: Some(memcached.name_any()),
            namespace: memcached.namespace(),
            ..ObjectMeta::default()
        },
        spec: Some(DeploymentSpec {
            replicas: Some(memcached.spec.size),
            selector: LabelSelector {
                match_labels: Some(labels.clone()),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(labels),
                    ..ObjectMeta::default()
                }),
                spec: Some(PodSpec {
                    containers: vec![Container {
                        name: "memcached".to_owned(),
                        image: Some(IMAGE.to_owned()),
                        ports: Some(vec![ContainerPort {
                            container_port: PORT,
                            name: Some("memcached".to_owned()),
                            ..ContainerPort::default()
                        }]),
                        ..Container::default()
                    }],
                    ..PodSpec::default()
                }),
            },
            ..DeploymentSpec::default()
        }),
        ..Deployment::default()
    }
}

fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hybrid_operator::native::Fixture;
    use hybrid_operator_test::scripted::{Answer, ScriptedApi, When};
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::{LABEL, reconcile};
    use crate::api::{Memcached, MemcachedSpec};

    #[tokio::test]
    async fn the_status_names_the_pods_of_this_memcached() {
        let api = ScriptedApi::new();
        api.on(When::any(), Answer::echo(200));
        let mut memcached = Memcached::new("cache", MemcachedSpec { size: 2 });
        memcached.metadata.namespace = Some("a".to_owned());
        let pod = |name: &str, of: &str| -> Pod {
            let metadata = json!({"name": name, "namespace": "a", "labels": {LABEL: of}});
            let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
            serde_json::from_value(json!({"metadata": metadata, "status": ready})).unwrap()
        };
        let context = Fixture::new(memcached, api.client("a"))
            .owning::<Deployment>([])
            .caching([pod("b", "cache"), pod("a", "cache"), pod("c", "other")])
            .build();
        reconcile(Arc::clone(context.object()), context)
            .await
            .unwrap();
        let requests = api.requests();
        assert_eq!(requests[0].body.as_ref().unwrap()["spec"]["replicas"], 2);
        let status = &requests[1].body.as_ref().unwrap()["status"];
        assert_eq!(status["nodes"], json!(["a", "b"]));
        assert_eq!(status["conditions"][0]["status"], "True");
    }
}
