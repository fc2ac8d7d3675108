//! The status of a `MemcachedBackup` from its Pods. Pure.

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;

/// Returns the sorted names of the Pods that are not being deleted, and the number of ready ones.
pub(super) fn nodes<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> (Vec<String>, i32) {
    let remaining: Vec<&Pod> = pods
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none())
        .collect();
    let ready = remaining.iter().filter(|pod| is_ready(pod)).count();
    let mut names: Vec<String> = remaining.iter().map(|pod| pod.name_any()).collect();
    names.sort_unstable();
    (names, i32::try_from(ready).unwrap_or(i32::MAX))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|c| c.type_ == "Ready" && c.status == "True")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::nodes;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn nodes_are_the_sorted_names_of_pods_that_are_not_being_deleted() {
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let pods = [
            pod(json!({"metadata": {"name": "b"}, "status": ready})),
            pod(json!({"metadata": {"name": "a"}})),
            pod(json!({
                "metadata": {"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"},
                "status": ready,
            })),
        ];
        assert_eq!(nodes(&pods), (vec!["a".to_owned(), "b".to_owned()], 1));
    }
}
