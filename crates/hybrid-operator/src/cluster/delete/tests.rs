//! Tests deletions against a scripted API server.

use hybrid_operator_test::scripted::{Script, failure};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::*;
use crate::cluster::contents::{Held, holds_others};
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
    // Discovery lists everything, and the kind is not among it.
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

/// The definition of `Thing`, which two versions serve.
fn definition() -> Value {
    json!({"metadata": with(ours(), "name", json!("things.example.com")),
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v0", "served": false}, {"name": "v1beta1", "served": true},
                {"name": "v1", "served": true, "storage": true}]},
        "status": {"conditions": [{"type": "Established", "status": "True"}]}})
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
                uid: "u1".to_owned(),
                held: Held::Others("Thing other/theirs".to_owned()),
            },
        ),
    ] {
        let script = Script::default()
            .on(get, 200, live(&metadata))
            .on(get, 200, definition())
            .on(
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
    // Its owner is in the namespace, and checked itself.
    let derived = json!({"items": [{"metadata": {"name": "x", "namespace": "app", "ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "p", "uid": "u", "controller": true}]}}]});
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
            uid: "u1".to_owned(),
            held: Held::Others("Secret app/theirs".to_owned()),
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

#[tokio::test]
async fn an_object_is_deleted_in_another_version_if_its_own_is_no_longer_served() {
    let things = |version: &str| {
        json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "x.io"},
            "versions": [{"version": version, "resources": [{"resource": "things",
                "responseKind": {"kind": "Thing"}, "scope": "Namespaced"}]}]}]})
    };
    let core = || things("v1");
    let one = |version: &str| format!("DELETE /apis/x.io/{version}/namespaces/prod/things/x");
    let key = key("x.io/v1beta1", "Thing", Some("prod"), "x");
    // Discovery was cached while the version was served.
    let script = Script::default()
        .on("GET /api", 200, core())
        .on("GET /apis", 200, things("v1beta1"))
        .on_text(&one("v1beta1"), 404, "404 page not found")
        .on("GET /api", 200, core())
        .on("GET /apis", 200, things("v1"))
        .on("GET /apis/x.io/v1beta1", 404, not_found())
        .on("GET /api", 200, core())
        .on("GET /apis", 200, things("v1"))
        .on(&one("v1"), 200, live(&ours()));
    let cluster = Cluster::new(script.client());
    let deletion = delete(&cluster, &key, "u1", Propagation::default()).await;
    assert_eq!(deletion.unwrap(), Deletion::Requested);
    script.finish();
}

#[tokio::test]
async fn a_path_that_the_server_lists_and_does_not_know_is_no_proof() {
    let unknown = |script: Script| script.on_text(DELETE, 404, "404 page not found");
    let script = unknown(unknown(Script::default()));
    let cluster = Cluster::scripted(&script);
    let error = delete(&cluster, &conf(), "u1", Propagation::default()).await;
    let error = error.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("Unsettled", true));
    script.finish();
}

#[tokio::test]
async fn a_definition_whose_objects_cannot_be_listed_is_not_deleted() {
    let primary = primary();
    let key = key(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        None,
        "things.example.com",
    );
    let get = "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
    let (v1, beta) = (
        "GET /apis/example.com/v1/things",
        "GET /apis/example.com/v1beta1/things",
    );
    let refused = |code| failure(code, "X", "", &json!({}));
    let empty = || json!({"items": []});
    let with_conditions = |conditions: Value| {
        let mut definition = definition();
        definition["status"]["conditions"] = conditions;
        definition
    };
    let unserved = {
        let mut definition = definition();
        definition["spec"]["versions"] = json!([{"name": "v1", "served": false, "storage": true}]);
        definition
    };
    let converting = || {
        let mut definition = definition();
        definition["spec"]["conversion"] = json!({"strategy": "Webhook"});
        definition
    };
    let taken = json!([{"type": "NamesAccepted", "status": "False"}]);
    for (what, definition, lists, expected) in [
        (
            "established",
            definition(),
            vec![(v1, 200, empty())],
            Ok(false),
        ),
        (
            "not established yet",
            with_conditions(json!([])),
            vec![],
            Err(true),
        ),
        ("names in use", with_conditions(taken), vec![], Ok(true)),
        ("no version served", unserved, vec![], Ok(true)),
        (
            "forbidden",
            definition(),
            vec![(v1, 403, refused(403)), (beta, 403, refused(403))],
            Ok(true),
        ),
        (
            "one version fails",
            definition(),
            vec![(v1, 503, refused(503)), (beta, 200, empty())],
            Ok(false),
        ),
        (
            "unavailable",
            definition(),
            vec![(v1, 503, refused(503)), (beta, 503, refused(503))],
            Err(true),
        ),
        (
            "no conversion",
            converting(),
            vec![(v1, 500, refused(500)), (beta, 500, refused(500))],
            Ok(true),
        ),
        (
            "no path",
            definition(),
            vec![
                (v1, 404, json!("404 page not found")),
                (beta, 404, json!("404 page not found")),
            ],
            Err(true),
        ),
    ] {
        let script = Script::default().on(get, 200, definition);
        let script = lists
            .into_iter()
            .fold(script, |script, (request, code, answer)| {
                script.on(request, code, answer)
            });
        let held = holds_others(&Cluster::scripted(&script), &key, &claimant(&primary)).await;
        let found = held.map(|held| match held {
            Some(Held::Unknown(_)) => true,
            None => false,
            other => panic!("{what}: {other:?}"),
        });
        assert_eq!(
            found.map_err(|error| error.is_transient()),
            expected,
            "{what}"
        );
        script.finish();
    }
}

#[tokio::test]
async fn objects_count_as_those_of_their_controllers() {
    let primary = primary();
    let key = key(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        None,
        "things.example.com",
    );
    let get = "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
    let get_web = "GET /apis/apps/v1/namespaces/other/deployments/web";
    let owned = |name: &str| {
        json!({"metadata": {"name": name, "namespace": "other", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d",
             "controller": true}]}})
    };
    let kept = with(
        ours(),
        "annotations",
        json!({"helm.sh/resource-policy": "keep"}),
    );
    let kept = with(kept, "name", json!("kept"));
    let others = |name: &str| Some(Held::Others(format!("Thing other/{name}")));
    for (items, answer, expected) in [
        // The release's, somebody's, and one whose owner is gone.
        (
            json!([owned("a"), owned("b")]),
            Some((200, live(&with(ours(), "uid", json!("d"))))),
            None,
        ),
        (
            json!([owned("a")]),
            Some((200, json!({"metadata": {"uid": "d"}}))),
            others("a"),
        ),
        (
            json!([owned("a")]),
            Some((200, json!({"metadata": {"uid": "e"}}))),
            None,
        ),
        (json!([owned("a")]), Some((404, not_found())), None),
        (
            json!([{"metadata": kept}]),
            None,
            Some(Held::Kept("Thing kept".to_owned())),
        ),
    ] {
        let mut script = Script::default().on(get, 200, definition()).on(
            "GET /apis/example.com/v1/things",
            200,
            json!({"items": items}),
        );
        if let Some((code, answer)) = answer {
            script = script.on(get_web, code, answer);
        }
        let held = holds_others(&Cluster::scripted(&script), &key, &claimant(&primary)).await;
        assert_eq!(held.unwrap(), expected);
        script.finish();
    }
}

#[tokio::test]
async fn a_kind_that_vanishes_holds_nothing_in_a_namespace() {
    let primary = primary();
    let key = key("v1", "Namespace", None, "app");
    let resource = |plural: &str, kind: &str| {
        json!({"resource": plural, "responseKind": {"kind": kind}, "scope": "Namespaced",
            "verbs": ["list"]})
    };
    let core = || {
        json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {}, "versions": [
            {"version": "v1", "resources": [resource("secrets", "Secret")]}]}]})
    };
    let groups = |resources: Value| {
        json!({"kind": "APIGroupDiscoveryList", "items": [{"metadata": {"name": "x.io"},
            "versions": [{"version": "v1", "resources": resources}]}]})
    };
    let secrets = "GET /api/v1/namespaces/app/secrets";
    let things = "GET /apis/x.io/v1/namespaces/app/things";
    let script = Script::default()
        .in_any_order()
        .on("GET /api", 200, core())
        .on(
            "GET /apis",
            200,
            groups(json!([resource("things", "Thing")])),
        )
        .on(secrets, 200, json!({"items": []}))
        .on_text(things, 404, "404 page not found")
        .on("GET /api", 200, core())
        .on("GET /apis", 200, groups(json!([])))
        .on(secrets, 200, json!({"items": []}));
    let cluster = Cluster::new(script.client());
    let held = holds_others(&cluster, &key, &claimant(&primary)).await;
    assert_eq!(held.unwrap(), None);
    script.finish();
}
