//! Drift on a real API server: what changes the hash of what is ours, and what does not.

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube_objects::drift::ours_hash;
use kube_objects::ownership::{CR_LABEL, OPERATOR_LABEL};
use serde_json::{Value, json};

use super::support::{Stage, config_map, deployment};

async fn ours(api: &Api<DynamicObject>, name: &str) -> u64 {
    ours_hash(&api.get_metadata(name).await.unwrap().metadata)
}

#[tokio::test]
async fn every_change_of_ours_shows_and_repairing_restores_the_hash() {
    let Some(stage) = Stage::new("drift").await else {
        return;
    };
    let object = config_map("conf", &json!({"a": "1", "b": "2"}));
    let api = stage.config_maps();
    let first = stage.apply_first(object.clone()).await;
    let label = |name: &str, value: Value| json!({"metadata": {"labels": {name: value}}});
    for (what, patch) in [
        ("a value", json!({"data": {"a": "9"}})),
        ("a removed key", json!({"data": {"b": null}})),
        ("everything removed", json!({"data": null})),
        ("our label removed", label(OPERATOR_LABEL, Value::Null)),
        ("our label changed", label(CR_LABEL, json!("other"))),
        (
            "the owner reference",
            json!({"metadata": {"ownerReferences": null}}),
        ),
    ] {
        stage.edit(&api, "conf", &patch).await;
        assert_ne!(ours(&api, "conf").await, first.ours, "{what}");
        let repaired = stage.apply_again(object.clone(), &first).await;
        assert_eq!(repaired.ours, first.ours, "{what}");
        let live = api.get("conf").await.unwrap();
        assert_eq!(live.data["data"], json!({"a": "1", "b": "2"}), "{what}");
    }
}

#[tokio::test]
async fn what_others_add_is_no_drift() {
    let Some(stage) = Stage::new("additions").await else {
        return;
    };
    let api = stage.config_maps();
    let object = config_map("conf", &json!({"a": "1"}));
    let first = stage.apply_first(object).await;
    for patch in [
        json!({"data": {"c": "3"}}),
        json!({"metadata": {"labels": {"team": "blue"}, "annotations": {"x": "y"}}}),
        json!({"data": {"a": "1"}}),
    ] {
        stage.edit(&api, "conf", &patch.clone()).await;
        assert_eq!(ours(&api, "conf").await, first.ours, "{patch}");
    }
}

#[tokio::test]
async fn status_and_rollouts_are_no_drift() {
    let Some(stage) = Stage::new("rollout").await else {
        return;
    };
    let api = stage.api("apps/v1", "Deployment", "deployments");
    let first = stage.apply_first(deployment("web", 2)).await;
    super::support::until("the Deployment is available", async || {
        let live = api.get("web").await.unwrap();
        live.data["status"]["availableReplicas"] == 2
    })
    .await;
    assert_eq!(ours(&api, "web").await, first.ours);
    stage.scale(&api, "web", "kubectl", 3).await;
    assert_ne!(ours(&api, "web").await, first.ours);
}

#[tokio::test]
async fn string_data_of_secrets_is_watched_and_pruned_like_data() {
    let Some(stage) = Stage::new("stringdata").await else {
        return;
    };
    let secret = |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": data});
    let api = stage.api("v1", "Secret", "secrets");
    let both = secret(json!({"a": "1", "b": "2"}));
    let first = stage.apply_first(both.clone()).await;
    let mut applied = first.ours;
    for (value, manager) in [
        ("3", None),
        ("4", Some("kubectl")),
        ("5", Some("flux")),
        ("6", None),
    ] {
        let theirs = secret(json!({"a": value}));
        if let Some(manager) = manager {
            let params = PatchParams::apply(manager).force();
            let patched = api.patch("s", &params, &Patch::Apply(&theirs)).await;
            patched.unwrap();
        } else {
            stage.edit(&api, "s", &theirs).await;
        }
        assert_ne!(ours(&api, "s").await, applied, "{value}");
        applied = stage.apply_again(both.clone(), &first).await.ours;
        assert_eq!(ours(&api, "s").await, applied);
        assert_eq!(api.get("s").await.unwrap().data["data"]["a"], "MQ==");
    }
    let pruned = stage.apply_again(secret(json!({"a": "1"})), &first).await;
    let expected = json!({"a": "MQ=="});
    assert_eq!(api.get("s").await.unwrap().data["data"], expected);
    // A key of somebody else.
    stage.edit(&api, "s", &secret(json!({"theirs": "1"}))).await;
    assert_eq!(ours(&api, "s").await, pruned.ours);
    let params = PatchParams::apply("other").force();
    let theirs = secret(json!({"theirs": "2"}));
    let patched = api.patch("s", &params, &Patch::Apply(&theirs)).await;
    patched.unwrap();
    assert_eq!(ours(&api, "s").await, pruned.ours);
}
