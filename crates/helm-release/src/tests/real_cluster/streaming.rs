//! Streaming lists with a label selector on a real API server: one request, and nothing of what
//! does not match.

use futures::StreamExt;
use hybrid_operator_test::fault::Faults;
use hybrid_operator_test::{TestNamespace, shared_or_skip};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::watcher;
use serde_json::json;

#[tokio::test]
async fn a_streaming_list_takes_one_request_and_selects_by_label() {
    let Some(plane) = shared_or_skip().await.unwrap() else {
        return;
    };
    let namespace = TestNamespace::create(plane, "stream").await.unwrap();
    let maps = namespace.api::<ConfigMap>();
    for (name, labels) in [
        ("ours", json!({"a": "b"})),
        ("theirs", json!({})),
        ("also", json!({"a": "b"})),
    ] {
        let map = json!({"metadata": {"name": name, "labels": labels}});
        let map = serde_json::from_value(map).unwrap();
        maps.create(&<_>::default(), &map).await.unwrap();
    }
    let faults = Faults::new();
    let client = plane.client_with(&faults).await.unwrap();
    let api: Api<ConfigMap> = Api::namespaced(client, namespace.name());
    let config = watcher::Config::default().labels("a=b").streaming_lists();
    let mut events = std::pin::pin!(watcher(api, config));
    let mut names = Vec::new();
    loop {
        match events.next().await.unwrap().unwrap() {
            watcher::Event::InitApply(map) => names.push(map.metadata.name.unwrap()),
            watcher::Event::InitDone => break,
            _ => {}
        }
    }
    names.sort();
    assert_eq!(names, ["also", "ours"]);
    let counts: Vec<(String, usize)> = faults.counts().into_iter().collect();
    assert_eq!(counts, [("watch configmaps".to_owned(), 1)]);
}
