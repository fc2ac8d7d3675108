//! Tests deletions against a scripted API server.

use hybrid_operator_test::scripted::{Script, failure};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::*;
use crate::cluster::ownership::CR_LABEL;

const GET: &str = "GET /api/v1/namespaces/prod/configmaps/conf";
const DELETE: &str = "DELETE /api/v1/namespaces/prod/configmaps/conf";
const PATCH: &str = "PATCH /api/v1/namespaces/prod/configmaps/conf";

fn primary() -> Primary {
    Primary {
        gvk: GroupVersionKind::gvk("cache.example.com", "v1", "Memcached"),
        namespace: Some("prod".to_owned()),
        name: "one".to_owned(),
        uid: "cr-uid".to_owned(),
        component: None,
    }
}

fn claimant(primary: &Primary) -> Claimant<'_> {
    Claimant {
        primary,
        release_name: "one",
        release_namespace: "prod",
    }
}

fn key(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> ObjectKey {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = namespace.into();
    }
    ObjectKey::of(&object).unwrap()
}

fn conf() -> ObjectKey {
    key("v1", "ConfigMap", Some("prod"), "conf")
}

fn ours() -> Value {
    json!({"name": "conf", "uid": "u1", "labels": {CR_LABEL: primary().identity().as_str()}})
}

fn with(mut metadata: Value, field: &str, value: Value) -> Value {
    metadata[field] = value;
    metadata
}

fn live(metadata: &Value) -> Value {
    json!({"metadata": metadata})
}

fn not_found() -> Value {
    failure(
        404,
        "NotFound",
        "",
        &json!({"kind": "configmaps", "name": "conf"}),
    )
}

#[tokio::test]
async fn every_deletion_carries_the_uid() {
    let script = Script::default().on(DELETE, 200, live(&ours()));
    let deletion = delete(
        &Cluster::scripted(&script),
        &conf(),
        "u1",
        Propagation::default(),
    )
    .await
    .unwrap();
    assert_eq!(deletion, Deletion::Requested);
    let body = script.finish()[0].json().clone();
    assert_eq!(body["preconditions"], json!({"uid": "u1"}));
    assert_eq!(body["propagationPolicy"], "Background");
}

#[tokio::test]
async fn a_recreated_object_is_not_deleted() {
    let conflict = || failure(409, "Conflict", "the UID does not match", &json!({}));
    let terminating = with(ours(), "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    for (answer, expected) in [
        (
            (200, live(&with(ours(), "uid", json!("u2")))),
            Deletion::Recreated,
        ),
        ((404, not_found()), Deletion::Gone),
        ((200, live(&terminating)), Deletion::Requested),
    ] {
        let script =
            Script::default()
                .on(DELETE, 409, conflict())
                .on(GET, answer.0, answer.1.clone());
        let deletion = delete(
            &Cluster::scripted(&script),
            &conf(),
            "u1",
            Propagation::Orphan,
        )
        .await;
        assert_eq!(deletion.unwrap(), expected);
        script.finish();
    }
    let script = Script::default().on(DELETE, 404, not_found());
    let deletion = delete(
        &Cluster::scripted(&script),
        &conf(),
        "u1",
        Propagation::default(),
    )
    .await;
    assert_eq!(deletion.unwrap(), Deletion::Gone);
}

#[tokio::test]
async fn an_object_of_a_kind_that_is_no_longer_served_is_gone() {
    let script = Script::default().on("GET /apis/gone.io/v1", 404, json!("404 page not found"));
    let key = key("gone.io/v1", "Thing", Some("prod"), "x");
    let deletion = delete(
        &Cluster::scripted(&script),
        &key,
        "u1",
        Propagation::default(),
    )
    .await
    .unwrap();
    assert_eq!(deletion, Deletion::Gone);
    script.finish();
}

#[test]
fn an_object_is_judged_by_owner_uid_and_policy() {
    let primary = primary();
    let keep = json!({"helm.sh/resource-policy": "keep"});
    let delete = Verdict::Delete {
        uid: "u1".to_owned(),
    };
    let kept = Verdict::Kept {
        uid: "u1".to_owned(),
    };
    for (metadata, recorded, stored_keep, expected) in [
        (ours(), None, false, delete.clone()),
        (ours(), Some("u1"), false, delete),
        (ours(), Some("u0"), false, Verdict::Recreated),
        (ours(), Some("u1"), true, kept.clone()),
        (with(ours(), "annotations", keep), Some("u1"), false, kept),
        (
            json!({"uid": "u1"}),
            Some("u1"),
            false,
            Verdict::Foreign(ForeignOwner::Nobody),
        ),
    ] {
        let live: ObjectMeta = serde_json::from_value(metadata).unwrap();
        assert_eq!(
            judge(&live, &claimant(&primary), recorded, stored_keep),
            expected
        );
    }
}

#[tokio::test]
async fn one_request_verifies_an_ordinary_object() {
    let primary = primary();
    for (answer, expected) in [
        (
            (200, live(&ours())),
            Verdict::Delete {
                uid: "u1".to_owned(),
            },
        ),
        ((404, not_found()), Verdict::Gone),
    ] {
        let script = Script::default().on(GET, answer.0, answer.1.clone());
        let cluster = Cluster::scripted(&script);
        let verdict = verify(&cluster, &conf(), &claimant(&primary), None, false).await;
        assert_eq!(verdict.unwrap(), expected);
        script.finish();
    }
}

#[tokio::test]
async fn a_failed_read_does_not_count_as_a_missing_object() {
    let primary = primary();
    for code in [403, 500, 503] {
        let script = Script::default().on(GET, code, failure(code, "X", "", &json!({})));
        let cluster = Cluster::scripted(&script);
        assert!(
            verify(&cluster, &conf(), &claimant(&primary), None, false)
                .await
                .is_err()
        );
        let script = Script::default().on(GET, code, failure(code, "X", "", &json!({})));
        assert!(
            is_gone(&Cluster::scripted(&script), &conf(), "u1")
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn an_object_is_gone_when_it_is_missing_or_has_another_uid() {
    for (answer, expected) in [
        ((404, not_found()), true),
        ((200, live(&ours())), false),
        ((200, live(&with(ours(), "uid", json!("u2")))), true),
    ] {
        let script = Script::default().on(GET, answer.0, answer.1.clone());
        assert_eq!(
            is_gone(&Cluster::scripted(&script), &conf(), "u1")
                .await
                .unwrap(),
            expected
        );
    }
}

#[tokio::test]
async fn a_definition_with_foreign_resources_is_protected() {
    let primary = primary();
    let key = key(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        None,
        "things.example.com",
    );
    let get = "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
    let metadata = with(ours(), "name", json!("things.example.com"));
    let mine = with(ours(), "name", json!("mine"));
    let theirs = json!({"name": "theirs", "namespace": "other", "uid": "u9"});
    for (items, expected) in [
        (
            json!([]),
            Verdict::Delete {
                uid: "u1".to_owned(),
            },
        ),
        (
            json!([live(&mine)]),
            Verdict::Delete {
                uid: "u1".to_owned(),
            },
        ),
        (
            json!([live(&mine), live(&theirs)]),
            Verdict::Protected {
                holds: "Thing other/theirs".to_owned(),
            },
        ),
    ] {
        let script = Script::default().on(get, 200, live(&metadata)).on(
            "GET /apis/example.com/v1/things",
            200,
            json!({"items": items}),
        );
        let verdict = verify(
            &Cluster::scripted(&script),
            &key,
            &claimant(&primary),
            None,
            false,
        )
        .await;
        assert_eq!(verdict.unwrap(), expected);
        script.finish();
    }
}

#[tokio::test]
async fn a_namespace_with_foreign_objects_is_protected() {
    let primary = primary();
    let key = key("v1", "Namespace", None, "app");
    let metadata = with(ours(), "name", json!("app"));
    let list = |kind: &str| format!("GET {kind}");
    let empty = json!({"items": null});
    let made_with_it = json!({"items": [{"metadata": {"name": "kube-root-ca.crt"}}]});
    let derived = json!({"items": [{"metadata": {"name": "x", "ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]}}]});
    let script = |secrets: Value| {
        Script::default()
            .on("GET /api/v1/namespaces/app", 200, live(&metadata))
            .in_any_order()
            .on(
                &list("/apis/apps/v1/namespaces/app/deployments"),
                200,
                derived.clone(),
            )
            .on(
                &list("/apis/example.com/v1/namespaces/app/things"),
                200,
                empty.clone(),
            )
            .on(
                &list("/apis/batch/v1/namespaces/app/jobs"),
                200,
                empty.clone(),
            )
            .on(
                &list("/api/v1/namespaces/app/configmaps"),
                200,
                made_with_it.clone(),
            )
            .on(&list("/api/v1/namespaces/app/secrets"), 200, secrets)
            .on(&list("/api/v1/namespaces/app/services"), 200, empty.clone())
    };
    let record = json!({"items": [{"metadata": {"name": "sh.helm.release.v1.one.v1",
        "labels": {"owner": "helm", "name": "one"}}}]});
    let clean = script(record);
    let verdict = verify(
        &Cluster::scripted(&clean),
        &key,
        &claimant(&primary),
        None,
        false,
    )
    .await
    .unwrap();
    assert_eq!(
        verdict,
        Verdict::Delete {
            uid: "u1".to_owned()
        }
    );
    clean.finish();

    let theirs = json!({"items": [{"metadata": {"name": "theirs", "namespace": "app"}}]});
    let foreign = script(theirs);
    let verdict = verify(
        &Cluster::scripted(&foreign),
        &key,
        &claimant(&primary),
        None,
        false,
    )
    .await
    .unwrap();
    assert_eq!(
        verdict,
        Verdict::Protected {
            holds: "Secret app/theirs".to_owned()
        }
    );
}

#[tokio::test]
async fn our_reference_is_removed_from_a_kept_object() {
    let other = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
    let with_references = |references: Value| with(ours(), "ownerReferences", references);
    let mut restored = json!(primary().owner_reference());
    restored["uid"] = "old".into();
    for (references, rest) in [
        (json!([primary().owner_reference()]), Value::Null),
        (json!([restored, other]), json!([other])),
    ] {
        let script = Script::default()
            .on(
                GET,
                200,
                live(&with(
                    with_references(references),
                    "resourceVersion",
                    json!("7"),
                )),
            )
            .on(PATCH, 200, live(&ours()));
        release_kept(&Cluster::scripted(&script), &conf(), "u1", &primary())
            .await
            .unwrap();
        let body = script.finish()[1].json()["metadata"].clone();
        assert_eq!(body["ownerReferences"], rest);
        assert_eq!(
            (&body["uid"], &body["resourceVersion"]),
            (&json!("u1"), &json!("7"))
        );
    }
}

#[tokio::test]
async fn nothing_is_sent_without_a_reference() {
    for answer in [
        (200, live(&ours())),
        (200, live(&with(ours(), "uid", json!("u2")))),
        (404, not_found()),
    ] {
        let script = Script::default().on(GET, answer.0, answer.1);
        release_kept(&Cluster::scripted(&script), &conf(), "u1", &primary())
            .await
            .unwrap();
        script.finish();
    }
}

#[tokio::test]
async fn a_patch_is_retried_after_a_conflict() {
    let owned = with(
        ours(),
        "ownerReferences",
        json!([primary().owner_reference()]),
    );
    let conflict = failure(409, "Conflict", "modified", &json!({}));
    let script = Script::default()
        .on(GET, 200, live(&owned))
        .on(PATCH, 409, conflict)
        .on(GET, 200, live(&ours()));
    release_kept(&Cluster::scripted(&script), &conf(), "u1", &primary())
        .await
        .unwrap();
    script.finish();
}
