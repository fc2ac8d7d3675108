//! Logs the output of hooks where the chart asks for it with `helm.sh/hook-output-log-policy`. It
//! goes to the operator's log, as `helm install` prints it.
//!
//! RBAC: `list` on `pods` and `get` on `pods/log`, in the release's namespace.

use helm_core::manifest::hook::OutputLogPolicy;
use helm_core::manifest::{Hook, ObjectKey};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, LogParams};
use kube::{Client, ResourceExt};

use super::context::{ActionContext, objects};

/// Maximum number of lines that are read from the end of a container's log.
const MAX_LINES: i64 = 1_000;
/// Maximum number of bytes that are read from a container's log.
const MAX_BYTES: i64 = 256 * 1024;

#[derive(Debug, PartialEq, Eq)]
struct ContainerOutput {
    pod: String,
    container: String,
    text: String,
}

/// Logs the output of a hook if its policy says so. Failing to read the output is logged and does
/// not fail the hook.
pub(super) async fn log_output(context: &ActionContext<'_>, hook: &Hook, policy: &OutputLogPolicy) {
    if !hook.output_log_policies.contains(policy) {
        return;
    }
    for object in objects(&hook.manifest, 0).into_iter().flatten() {
        match read(context.cluster.client(), context.namespace, object.key()).await {
            Ok(all) => {
                for ContainerOutput {
                    pod,
                    container,
                    text,
                } in all
                {
                    for line in text.lines() {
                        tracing::info!(hook = hook.display_name(), %pod, %container, "{line}");
                    }
                }
            }
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::warn!(
                    hook = hook.display_name(),
                    error,
                    "cannot read the output of a hook"
                );
            }
        }
    }
}

/// Reads the logs of a hook's containers: those of a Pod, or of the Pods of a Job. Other kinds have
/// no output.
async fn read(
    client: &Client,
    release_namespace: &str,
    key: &ObjectKey,
) -> Result<Vec<ContainerOutput>, kube::Error> {
    let select = match key.kind.as_str() {
        "Job" => ListParams::default().labels(&format!("job-name={}", key.name)),
        "Pod" => ListParams::default().fields(&format!("metadata.name={}", key.name)),
        _ => return Ok(Vec::new()),
    };
    let namespace = key.namespace.as_deref().unwrap_or(release_namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut all = Vec::new();
    for pod in pods.list(&select).await? {
        let name = pod.name_any();
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            let which = LogParams {
                container: Some(container.name.clone()),
                limit_bytes: Some(MAX_BYTES),
                tail_lines: Some(MAX_LINES),
                ..LogParams::default()
            };
            all.push(ContainerOutput {
                text: pods.logs(&name, &which).await?,
                pod: name.clone(),
                container: container.name.clone(),
            });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use helm_core::manifest::ObjectKey;
    use hybrid_operator_test::scripted::Script;
    use serde_json::json;

    use super::{ContainerOutput, read};

    fn key(kind: &str) -> ObjectKey {
        ObjectKey {
            group: String::new(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            name: "migrate".to_owned(),
        }
    }

    #[tokio::test]
    async fn reads_the_logs_of_every_container_of_a_jobs_pods() {
        let container = |name: &str| json!({"name": name, "image": "i"});
        let pod = json!({
            "metadata": {"name": "migrate-x"},
            "spec": {"containers": [container("main"), container("proxy")]},
        });
        let script = Script::default()
            .on(
                "GET /api/v1/namespaces/ns/pods",
                200,
                json!({"items": [pod]}),
            )
            .on(
                "GET /api/v1/namespaces/ns/pods/migrate-x/log",
                200,
                json!(1),
            )
            .on(
                "GET /api/v1/namespaces/ns/pods/migrate-x/log",
                200,
                json!(2),
            );
        let all = read(&script.client(), "ns", &key("Job")).await.unwrap();
        let printed = |container: &str, text: &str| ContainerOutput {
            pod: "migrate-x".to_owned(),
            container: container.to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(all, [printed("main", "1"), printed("proxy", "2")]);
        let seen = script.finish();
        assert_eq!(seen[0].query["labelSelector"], "job-name=migrate");
        assert_eq!(seen[2].query["container"], "proxy");

        let nothing = read(&Script::default().client(), "ns", &key("ConfigMap")).await;
        assert_eq!(nothing.unwrap(), []);
    }
}
