//! Tests deletions against a scripted API server.

use hybrid_operator_test::scripted::{Script, failure};
use serde_json::{Value, json};

use super::*;
use crate::contents::{Held, holds_others};
use crate::ownership::CR_LABEL;

const GET: &str = "GET /api/v1/namespaces/prod/configmaps/conf";
const DELETE: &str = "DELETE /api/v1/namespaces/prod/configmaps/conf";
const PATCH: &str = "PATCH /api/v1/namespaces/prod/configmaps/conf";
const GET_DEFINITION: &str =
    "GET /apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com";
const LIST: &str = "GET /apis/example.com/v1/things";

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

fn definition_key() -> ObjectKey {
    let (api_version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    key(api_version, kind, None, "things.example.com")
}

fn ours() -> Value {
    let label = Primary::fixture().identity();
    json!({"name": "conf", "uid": "u1", "labels": {CR_LABEL: label.as_str()}})
}

fn with(mut metadata: Value, field: &str, value: Value) -> Value {
    metadata[field] = value;
    metadata
}

fn live(metadata: &Value) -> Value {
    json!({"metadata": metadata})
}

fn not_found() -> Value {
    let named = json!({"kind": "configmaps", "name": "conf"});
    failure(404, "NotFound", "", &named)
}

/// The verdict about an object that is the release's.
fn deletable() -> Verdict {
    Verdict::Delete {
        uid: "u1".to_owned(),
    }
}

fn protected(by: &str) -> Verdict {
    Verdict::Protected {
        uid: "u1".to_owned(),
        held: Held::Others(by.to_owned()),
    }
}

async fn deletion_of(script: &Script, key: &ObjectKey) -> Result<Deletion, ReadError> {
    let cluster = Cluster::scripted(script);
    delete(&cluster, key, "u1", Propagation::default()).await
}

async fn verdict_about(script: &Script, key: &ObjectKey) -> Result<Verdict, ReadError> {
    let primary = Primary::fixture();
    let claimant = Claimant::fixture(&primary);
    verify(&Cluster::scripted(script), key, &claimant, None, false).await
}

/// Returns what an object holds that is not the release's.
async fn held_by(cluster: &Cluster, key: &ObjectKey) -> Result<Option<Held>, ReadError> {
    let primary = Primary::fixture();
    holds_others(cluster, key, &Claimant::fixture(&primary)).await
}

/// Releases the kept object `conf`.
async fn keep(script: &Script) {
    let (cluster, primary) = (Cluster::scripted(script), Primary::fixture());
    let kept = release_kept(&cluster, &conf(), "u1", &primary).await;
    kept.unwrap();
}

#[tokio::test]
async fn every_deletion_carries_the_uid() {
    let script = Script::default().on(DELETE, 200, live(&ours()));
    let deletion = deletion_of(&script, &conf()).await;
    assert_eq!(deletion.unwrap(), Deletion::Requested);
    let body = script.finish()[0].json().clone();
    assert_eq!(body["preconditions"], json!({"uid": "u1"}));
    assert_eq!(body["propagationPolicy"], "Background");
}

#[tokio::test]
async fn a_recreated_object_is_not_deleted() {
    let conflict = || failure(409, "Conflict", "the UID does not match", &json!({}));
    let terminating = with(ours(), "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let another = with(ours(), "uid", json!("u2"));
    for (code, answer, expected) in [
        (200, live(&another), Deletion::Recreated),
        (404, not_found(), Deletion::Gone),
        (200, live(&terminating), Deletion::Requested),
    ] {
        let script = Script::default()
            .on(DELETE, 409, conflict())
            .on(GET, code, answer);
        let cluster = Cluster::scripted(&script);
        let deletion = delete(&cluster, &conf(), "u1", Propagation::Orphan).await;
        assert_eq!(deletion.unwrap(), expected);
        script.finish();
    }
    let script = Script::default().on(DELETE, 404, not_found());
    let deletion = deletion_of(&script, &conf()).await;
    assert_eq!(deletion.unwrap(), Deletion::Gone);
}

#[tokio::test]
async fn an_object_of_a_kind_that_is_no_longer_served_is_gone() {
    // Discovery lists everything, and the kind is not among it.
    let script = Script::default().on("GET /apis/gone.io/v1", 404, json!("404 page not found"));
    let key = key("gone.io/v1", "Thing", Some("prod"), "x");
    let deletion = deletion_of(&script, &key).await;
    assert_eq!(deletion.unwrap(), Deletion::Gone);
    script.finish();
}

#[test]
fn an_object_is_judged_by_owner_uid_and_policy() {
    let primary = Primary::fixture();
    let keep = json!({"helm.sh/resource-policy": "keep"});
    let kept = Verdict::Kept {
        uid: "u1".to_owned(),
    };
    let nobody = Verdict::Foreign(ForeignOwner::Nobody);
    for (metadata, recorded, stored_keep, expected) in [
        (ours(), None, false, deletable()),
        (ours(), Some("u1"), false, deletable()),
        (ours(), Some("u0"), false, Verdict::Recreated),
        (ours(), Some("u1"), true, kept.clone()),
        (with(ours(), "annotations", keep), Some("u1"), false, kept),
        (json!({"uid": "u1"}), Some("u1"), false, nobody),
    ] {
        let live: ObjectMeta = serde_json::from_value(metadata).unwrap();
        let claimant = Claimant::fixture(&primary);
        let verdict = judge(&live, &claimant, recorded, stored_keep);
        assert_eq!(verdict, expected);
    }
}

#[tokio::test]
async fn one_request_verifies_an_ordinary_object() {
    for (code, answer, expected) in [
        (200, live(&ours()), deletable()),
        (404, not_found(), Verdict::Gone),
    ] {
        let script = Script::default().on(GET, code, answer);
        let verdict = verdict_about(&script, &conf()).await;
        assert_eq!(verdict.unwrap(), expected);
        script.finish();
    }
}

#[tokio::test]
async fn a_failed_read_does_not_count_as_a_missing_object() {
    for code in [403, 500, 503] {
        let script = Script::default().on(GET, code, failure(code, "X", "", &json!({})));
        assert!(verdict_about(&script, &conf()).await.is_err());
        let script = Script::default().on(GET, code, failure(code, "X", "", &json!({})));
        let gone = is_gone(&Cluster::scripted(&script), &conf(), "u1").await;
        assert!(gone.is_err());
    }
}

#[tokio::test]
async fn an_object_is_gone_when_it_is_missing_or_has_another_uid() {
    for (code, answer, expected) in [
        (404, not_found(), true),
        (200, live(&ours()), false),
        (200, live(&with(ours(), "uid", json!("u2"))), true),
    ] {
        let script = Script::default().on(GET, code, answer);
        let gone = is_gone(&Cluster::scripted(&script), &conf(), "u1").await;
        assert_eq!(gone.unwrap(), expected);
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
    let metadata = with(ours(), "name", json!("things.example.com"));
    let mine = with(ours(), "name", json!("mine"));
    let theirs = json!({"name": "theirs", "namespace": "other", "uid": "u9"});
    let both = json!([live(&mine), live(&theirs)]);
    for (items, expected) in [
        (json!([]), deletable()),
        (json!([live(&mine)]), deletable()),
        (both, protected("Thing other/theirs")),
    ] {
        let script = Script::default()
            .on(GET_DEFINITION, 200, live(&metadata))
            .on(GET_DEFINITION, 200, definition())
            .on(LIST, 200, json!({"items": items}));
        let verdict = verdict_about(&script, &definition_key()).await;
        assert_eq!(verdict.unwrap(), expected);
        script.finish();
    }
}

#[tokio::test]
async fn a_namespace_with_foreign_objects_is_protected() {
    let key = key("v1", "Namespace", None, "app");
    let metadata = with(ours(), "name", json!("app"));
    let empty = json!({"items": null});
    let made_with_it = json!({"items": [{"metadata": {"name": "kube-root-ca.crt"}}]});
    // Its owner is in the namespace, and checked itself.
    let derived = json!({"items": [{"metadata": {"name": "x", "namespace": "app", "ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "p", "uid": "u", "controller": true}]}}]});
    let script = |secrets: Value| {
        let get = Script::default().on("GET /api/v1/namespaces/app", 200, live(&metadata));
        let lists = [
            ("apis/apps/v1", "deployments", &derived),
            ("apis/example.com/v1", "things", &empty),
            ("apis/batch/v1", "jobs", &empty),
            ("api/v1", "configmaps", &made_with_it),
            ("api/v1", "secrets", &secrets),
            ("api/v1", "services", &empty),
        ];
        let lists = lists.into_iter();
        lists.fold(get.in_any_order(), |script, (api, kind, answer)| {
            let list = format!("GET /{api}/namespaces/app/{kind}");
            script.on(&list, 200, answer.clone())
        })
    };
    let record = json!({"items": [{"metadata": {"name": "sh.helm.release.v1.one.v1",
        "labels": {"owner": "helm", "name": "one"}}}]});
    let clean = script(record);
    let verdict = verdict_about(&clean, &key).await;
    assert_eq!(verdict.unwrap(), deletable());
    clean.finish();

    let theirs = json!({"items": [{"metadata": {"name": "theirs", "namespace": "app"}}]});
    let foreign = script(theirs);
    let verdict = verdict_about(&foreign, &key).await;
    assert_eq!(verdict.unwrap(), protected("Secret app/theirs"));

    // Once its deletion has begun, its contents are not asked for.
    let ends = with(metadata, "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    let ending = Script::default().on("GET /api/v1/namespaces/app", 200, live(&ends));
    let verdict = verdict_about(&ending, &key).await;
    assert_eq!(verdict.unwrap(), deletable());
    ending.finish();
}

#[tokio::test]
async fn our_reference_is_removed_from_a_kept_object() {
    let other = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
    let reference = Primary::fixture().owner_reference();
    let mut restored = json!(reference);
    restored["uid"] = "old".into();
    for (references, rest) in [
        (json!([reference]), Value::Null),
        (json!([restored, other]), json!([other])),
    ] {
        let owned = with(ours(), "ownerReferences", references);
        let owned = with(owned, "resourceVersion", json!("7"));
        let script = Script::default()
            .on(GET, 200, live(&owned))
            .on(PATCH, 200, live(&ours()));
        keep(&script).await;
        let body = script.finish()[1].json()["metadata"].clone();
        assert_eq!(body["ownerReferences"], rest);
        assert_eq!(body["uid"], "u1");
        assert_eq!(body["resourceVersion"], "7");
    }
}

#[tokio::test]
async fn nothing_is_sent_without_a_reference() {
    for (code, answer) in [
        (200, live(&ours())),
        (200, live(&with(ours(), "uid", json!("u2")))),
        (404, not_found()),
    ] {
        let script = Script::default().on(GET, code, answer);
        keep(&script).await;
        script.finish();
    }
}

#[tokio::test]
async fn a_patch_is_retried_after_a_conflict() {
    let references = json!([Primary::fixture().owner_reference()]);
    let owned = with(ours(), "ownerReferences", references);
    let conflict = failure(409, "Conflict", "modified", &json!({}));
    let script = Script::default()
        .on(GET, 200, live(&owned))
        .on(PATCH, 409, conflict)
        .on(GET, 200, live(&ours()));
    keep(&script).await;
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
    let error = deletion_of(&script, &conf()).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("Unsettled", true));
    script.finish();
}

#[tokio::test]
async fn a_definition_whose_objects_cannot_be_listed_is_not_deleted() {
    let beta = "GET /apis/example.com/v1beta1/things";
    let refused = |code| failure(code, "X", "", &json!({}));
    let refuse = |code| vec![(LIST, code, refused(code)), (beta, code, refused(code))];
    let empty = || json!({"items": []});
    let unknown = || json!("404 page not found");
    let with_conditions = |conditions: Value| {
        let mut definition = definition();
        definition["status"]["conditions"] = conditions;
        definition
    };
    let mut unserved = definition();
    unserved["spec"]["versions"] = json!([{"name": "v1", "served": false, "storage": true}]);
    let mut converting = definition();
    converting["spec"]["conversion"] = json!({"strategy": "Webhook"});
    let taken = json!([{"type": "NamesAccepted", "status": "False"}]);
    let fails_once = vec![(LIST, 503, refused(503)), (beta, 200, empty())];
    let no_path = vec![(LIST, 404, unknown()), (beta, 404, unknown())];
    let unready = with_conditions(json!([]));
    let listed = vec![(LIST, 200, empty())];
    for (what, definition, lists, expected) in [
        ("established", definition(), listed, Ok(false)),
        ("not established yet", unready, vec![], Err(true)),
        ("names in use", with_conditions(taken), vec![], Ok(true)),
        ("no version served", unserved, vec![], Ok(true)),
        ("forbidden", definition(), refuse(403), Ok(true)),
        ("one version fails", definition(), fails_once, Ok(false)),
        ("unavailable", definition(), refuse(503), Err(true)),
        ("no conversion", converting, refuse(500), Ok(true)),
        ("no path", definition(), no_path, Err(true)),
    ] {
        let script = Script::default().on(GET_DEFINITION, 200, definition);
        for (request, code, answer) in lists {
            script.expect(request, code, answer);
        }
        let held = held_by(&Cluster::scripted(&script), &definition_key()).await;
        let found = held.map(|held| match held {
            Some(Held::Unknown(_)) => true,
            None => false,
            other => panic!("{what}: {other:?}"),
        });
        let found = found.map_err(|error| error.is_transient());
        assert_eq!(found, expected, "{what}");
        script.finish();
    }
}

#[tokio::test]
async fn objects_count_as_those_of_their_controllers() {
    let get_web = "GET /apis/apps/v1/namespaces/other/deployments/web";
    let owned = |name: &str| {
        json!({"metadata": {"name": name, "namespace": "other", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d",
             "controller": true}]}})
    };
    let keep = json!({"helm.sh/resource-policy": "keep"});
    let kept = with(with(ours(), "annotations", keep), "name", json!("kept"));
    let others = |name: &str| Some(Held::Others(format!("Thing other/{name}")));
    let of_release = live(&with(ours(), "uid", json!("d")));
    let of_uid = |uid: &str| Some((200, live(&json!({"uid": uid}))));
    let held = Some(Held::Kept("Thing kept".to_owned()));
    let (a, b) = (owned("a"), owned("b"));
    for (items, answer, expected) in [
        // The release's, somebody's, and one whose owner is gone.
        (json!([a, b]), Some((200, of_release)), None),
        (json!([a]), of_uid("d"), others("a")),
        (json!([a]), of_uid("e"), None),
        (json!([a]), Some((404, not_found())), None),
        (json!([live(&kept)]), None, held),
    ] {
        let mut script = Script::default().on(GET_DEFINITION, 200, definition()).on(
            LIST,
            200,
            json!({"items": items}),
        );
        if let Some((code, answer)) = answer {
            script = script.on(get_web, code, answer);
        }
        let held = held_by(&Cluster::scripted(&script), &definition_key()).await;
        assert_eq!(held.unwrap(), expected);
        script.finish();
    }
}

#[tokio::test]
async fn a_kind_that_vanishes_holds_nothing_in_a_namespace() {
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
    let served = json!([resource("things", "Thing")]);
    let secrets = "GET /api/v1/namespaces/app/secrets";
    let things = "GET /apis/x.io/v1/namespaces/app/things";
    let script = Script::default()
        .in_any_order()
        .on("GET /api", 200, core())
        .on("GET /apis", 200, groups(served))
        .on(secrets, 200, json!({"items": []}))
        .on_text(things, 404, "404 page not found")
        .on("GET /api", 200, core())
        .on("GET /apis", 200, groups(json!([])))
        .on(secrets, 200, json!({"items": []}));
    let cluster = Cluster::new(script.client());
    assert_eq!(held_by(&cluster, &key).await.unwrap(), None);
    script.finish();
}
