//! Tests of what is deleted and what is not, on a real API server.

use helm_core::manifest::ObjectKey;
use kube_objects::apply::Claim;
use kube_objects::contents::Held;
use kube_objects::delete::{Deletion, Propagation, Verdict, delete, is_gone, release_kept};
use serde_json::{Value, json};

use super::support::{Stage, config_map, known, until};

fn key(object: &Value, namespace: Option<&str>) -> ObjectKey {
    let mut key = ObjectKey::of(object).unwrap();
    key.namespace = namespace.map(str::to_owned);
    key
}

#[tokio::test]
async fn only_the_object_that_was_judged_is_deleted() {
    let Some(stage) = Stage::new("delete").await else {
        return;
    };
    let object = config_map("conf", &json!({"a": "1"}));
    let key = key(&object, Some(&stage.namespace));
    let first = stage.apply_first(object.clone()).await;
    let uid = first.uid.clone();
    let verdict = stage.verdict(&key, Some(&first.uid)).await;
    assert_eq!(verdict, Verdict::Delete { uid });
    stage.delete("conf").await;
    let second = stage.apply_first(object).await;

    let background = Propagation::default();
    let deletion = delete(&stage.cluster, &key, &first.uid, background).await;
    assert_eq!(deletion.unwrap(), Deletion::Recreated);
    assert!(is_gone(&stage.cluster, &key, &first.uid).await.unwrap());
    assert!(!is_gone(&stage.cluster, &key, &second.uid).await.unwrap());
    let deletion = delete(&stage.cluster, &key, &second.uid, background).await;
    assert_eq!(deletion.unwrap(), Deletion::Requested);
    assert!(is_gone(&stage.cluster, &key, &second.uid).await.unwrap());
    let deletion = delete(&stage.cluster, &key, &second.uid, background).await;
    assert_eq!(deletion.unwrap(), Deletion::Gone);
    assert_eq!(stage.verdict(&key, None).await, Verdict::Gone);
}

#[tokio::test]
async fn a_kept_object_survives_its_owner() {
    let Some(stage) = Stage::new("keep").await else {
        return;
    };
    let object = config_map("conf", &json!({"a": "1"}));
    let key = key(&object, Some(&stage.namespace));
    let first = stage.apply_first(object).await;
    let patch = json!({"metadata": {"annotations": {"helm.sh/resource-policy": "keep"}}});
    stage.edit(&stage.config_maps(), "conf", &patch).await;
    let uid = first.uid.clone();
    let verdict = stage.verdict(&key, Some(&first.uid)).await;
    assert_eq!(verdict, Verdict::Kept { uid });
    let released = release_kept(&stage.cluster, &key, &first.uid, &stage.primary).await;
    released.unwrap();
    // Of two objects that had the same owner, garbage collection takes the other one.
    let other = config_map("other", &json!({}));
    stage.apply_first(other).await;
    stage.delete("the-cr").await;
    until("garbage collection has passed", async || {
        let other = stage.config_maps().get_opt("other").await;
        other.unwrap().is_none()
    })
    .await;
    let live = stage.config_maps().get("conf").await.unwrap();
    assert_eq!(live.metadata.owner_references, None);
}

#[tokio::test]
async fn a_namespace_with_foreign_objects_is_protected() {
    let Some(stage) = Stage::new("protect").await else {
        return;
    };
    let name = format!("{}-inner", stage.namespace);
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let applied = stage.apply_first(namespace.clone()).await;
    let mut inner = config_map("ours", &json!({}));
    inner["metadata"]["namespace"] = name.clone().into();
    stage.apply_first(inner).await;
    until("the namespace has what every namespace has", async || {
        let made = stage.in_namespace(&name).get_opt("kube-root-ca.crt").await;
        made.unwrap().is_some()
    })
    .await;
    let namespace_key = key(&namespace, None);
    let judge = async || stage.verdict(&namespace_key, Some(&applied.uid)).await;
    let uid = applied.uid.clone();
    assert_eq!(judge().await, Verdict::Delete { uid });
    let theirs = serde_json::from_value(config_map("theirs", &json!({}))).unwrap();
    let inner = stage.in_namespace(&name);
    inner.create(&<_>::default(), &theirs).await.unwrap();
    let held = Held::Others(format!("ConfigMap {name}/theirs"));
    let uid = applied.uid.clone();
    assert_eq!(judge().await, Verdict::Protected { uid, held });
    let background = Propagation::default();
    let deleted = delete(&stage.cluster, &namespace_key, &applied.uid, background).await;
    deleted.unwrap();
}

#[tokio::test]
async fn a_definition_with_foreign_objects_is_protected() {
    let Some(stage) = Stage::new("definition").await else {
        return;
    };
    let group = format!("g{}.example.com", std::process::id());
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition", "metadata": {"name": format!("things.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"}, "versions": [{"name": "v1",
                "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let applied = stage.apply_first(definition.clone()).await;
    let thing = |name: &str| json!({"apiVersion": format!("{group}/v1"), "kind": "Thing", "metadata": {"name": name}});
    until("the definition is served", async || {
        stage.cluster.group_changed(&group);
        let gvk = kube::core::GroupVersionKind::gvk(&group, "v1", "Thing");
        stage.cluster.resolve(&gvk).await.is_ok()
    })
    .await;
    until("things can be made", async || {
        stage.apply(thing("ours"), Claim::Unproven).await.is_ok()
    })
    .await;
    let definition_key = key(&definition, None);
    let judge = async || stage.verdict(&definition_key, Some(&applied.uid)).await;
    let uid = applied.uid.clone();
    assert_eq!(judge().await, Verdict::Delete { uid });
    let things = stage.api(&format!("{group}/v1"), "Thing", "things");
    let theirs = serde_json::from_value(thing("theirs")).unwrap();
    things.create(&<_>::default(), &theirs).await.unwrap();
    let held = Held::Others(format!("Thing {}/theirs", stage.namespace));
    let uid = applied.uid.clone();
    assert_eq!(judge().await, Verdict::Protected { uid, held });

    // When the definition goes, so does the kind, and what was of it is gone.
    let ours = stage.apply_first(thing("ours")).await;
    let again = stage.marked(thing("ours")).await;
    let background = Propagation::default();
    let deleted = delete(&stage.cluster, &definition_key, &applied.uid, background).await;
    deleted.unwrap();
    until("the definition is gone", async || {
        let gone = is_gone(&stage.cluster, &definition_key, &applied.uid).await;
        gone.unwrap()
    })
    .await;
    // Whether or not the kind was resolved before.
    for _ in 0..2 {
        let applied = stage.apply_marked(again.clone(), known(&ours), &stage.policy);
        assert_eq!(applied.await.unwrap_err().reason(), "UnknownKind");
    }
    assert!(is_gone(&stage.cluster, &ours.key, &ours.uid).await.unwrap());
}
