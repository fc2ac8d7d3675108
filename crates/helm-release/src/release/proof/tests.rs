use std::collections::BTreeMap;

use helm_core::manifest::{Hook, HookEvent, HookPhase};
use helm_core::release::{Revision, Status};
use hybrid_operator_test::scripted::{Script, failure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::*;
use crate::release::Format;

const KEY: [u8; 32] = [7; 32];

fn release() -> Release {
    let mut release = Release::new("web".parse().unwrap(), "prod", Revision(3));
    release.manifest = "kind: A".to_owned();
    release.hooks = vec![Hook {
        manifest: "kind: B".to_owned(),
        events: vec![HookEvent::PreInstall],
        ..Hook::default()
    }];
    release.values_from = Some(BTreeMap::from([("Secret a/b".to_owned(), BTreeMap::new())]));
    release
}

fn subject(cr: &CrIdentity) -> ProofSubject<'_> {
    ProofSubject {
        cr: Some(cr),
        digest: Some("d1".to_owned()),
        account: None,
    }
}

/// Returns the metadata of a record with a proof.
fn meta(namespace: &str, cr: &str, digest: &str, proof: &str) -> RecordMeta {
    let metadata: ObjectMeta = serde_json::from_value(json!({
    "name": "sh.helm.release.v1.web.v3", "namespace": namespace,
    "labels": {
        "helm.sdk.operatorframework.io/cr": cr,
        "helm.sdk.operatorframework.io/digest": format!("3-{digest}"),
        "helm.sdk.operatorframework.io/proof": format!("3-{proof}"),
    }}))
    .unwrap();
    RecordMeta::of(&metadata, Format::Helm).unwrap()
}

type Change = fn(&mut Release);

#[test]
fn a_proof_holds_only_for_the_content_place_custom_resource_and_digest_that_it_was_made_for() {
    let key = ProofKey(KEY.as_slice().into());
    let cr = CrIdentity::from_label("cr1");
    let proof = key.prove(&subject(&cr), &release());
    assert_eq!(proof.len(), DIGITS);
    let own = || meta("prod", "cr1", "d1", &proof);
    assert!(key.holds(&own(), &release()));

    let content: [(&str, Change); 9] = [
        ("manifest", |r| r.manifest.push_str("\n---\nkind: C")),
        ("a hook's manifest", |r| {
            r.hooks[0].manifest = "kind: C".to_owned();
        }),
        ("a hook's event", |r| {
            r.hooks[0].events = vec![HookEvent::PreDelete];
        }),
        ("a hook's weight", |r| r.hooks[0].weight = 1),
        ("a further hook", |r| r.hooks.push(Hook::default())),
        ("last values", |r| r.values_from = None),
        ("name", |r| r.name = "other".parse().unwrap()),
        ("namespace", |r| r.namespace = "other".to_owned()),
        ("revision", |r| r.revision = Revision(4)),
    ];
    for (what, change) in content {
        let mut changed = release();
        change(&mut changed);
        assert!(!key.holds(&own(), &changed), "{what}");
    }
    let cut = &proof[..DIGITS - 2];
    let other = "0".repeat(DIGITS);
    for (what, meta) in [
        ("another namespace", meta("other", "cr1", "d1", &proof)),
        ("another custom resource", meta("prod", "cr2", "d1", &proof)),
        ("another digest", meta("prod", "cr1", "d2", &proof)),
        ("another proof", meta("prod", "cr1", "d1", &other)),
        ("a shorter proof", meta("prod", "cr1", "d1", cut)),
        ("an empty proof", meta("prod", "cr1", "d1", "")),
        ("no hexadecimal digits", meta("prod", "cr1", "d1", "zz")),
    ] {
        assert!(!key.holds(&meta, &release()), "{what}");
    }
    let other = ProofKey([8; 32].as_slice().into());
    assert!(!other.holds(&own(), &release()));
}

#[test]
fn a_proof_covers_the_service_account_and_records_without_one_stay_valid() {
    let key = ProofKey(KEY.as_slice().into());
    let cr = CrIdentity::from_label("cr1");
    let account = |name: &str| AccountName::new("team", name).unwrap();
    let deployer = account("deployer");
    let proof = |account| {
        let subject = ProofSubject {
            account,
            ..subject(&cr)
        };
        key.prove(&subject, &release())
    };
    let record = |proof: &str, account: Option<AccountName>| RecordMeta {
        account,
        ..meta("prod", "cr1", "d1", proof)
    };
    let (with, without) = (proof(Some(&deployer)), proof(None));
    // That of a record which an earlier version has written.
    assert_eq!(without, "620b61d5973a3a648457cf7a013e63e5713dab9e3c847102");
    for (proof, named, holds) in [
        (&with, Some("deployer"), true),
        (&with, Some("admin"), false),
        (&with, None, false),
        (&without, None, true),
        (&without, Some("deployer"), false),
    ] {
        let record = record(proof, named.map(account));
        assert_eq!(key.holds(&record, &release()), holds, "{proof} {named:?}");
    }
}

#[test]
fn what_helm_changes_when_it_supersedes_a_revision_leaves_its_proof_valid() {
    let key = ProofKey(KEY.as_slice().into());
    let cr = CrIdentity::from_label("cr1");
    let proof = key.prove(&subject(&cr), &release());
    let mut superseded = release();
    superseded.set_status(Status::Superseded, "Superseded by 4");
    superseded.hooks[0].last_run.phase = HookPhase::Succeeded;
    assert!(key.holds(&meta("prod", "cr1", "d1", &proof), &superseded));
}

fn keys(script: &Script) -> ProofKeys {
    ProofKeys::in_secret(script.client(), "system", &OperatorId::new("My_op"))
}

const PATH: &str = "/api/v1/namespaces/system/secrets";
const NAMED: &str = "/api/v1/namespaces/system/secrets/my-op-release-record-key";

fn secret(key: &[u8]) -> serde_json::Value {
    json!({"data": {"key": BASE64.encode(key)}})
}

fn missing() -> serde_json::Value {
    failure(404, "NotFound", "", &json!({}))
}

#[tokio::test]
async fn the_key_is_created_once_and_read_after_a_restart() {
    let script = Script::default()
        .on(&format!("GET {NAMED}"), 404, missing())
        .on(&format!("POST {PATH}"), 201, json!({"metadata": {}}));
    let first = keys(&script);
    let created = first.key().await.unwrap();
    let again = first.key().await.unwrap();
    assert_eq!(again.0, created.0, "no further request");
    let requests = script.finish();
    let body = requests[1].json();
    assert_eq!(body["data"]["key"], BASE64.encode(&created.0));

    let script = Script::default().on(&format!("GET {NAMED}"), 200, secret(&created.0));
    let read = keys(&script).key().await.unwrap();
    assert_eq!(read.0, created.0);
    script.finish();
}

#[tokio::test]
async fn replicas_that_start_at_once_use_the_same_key() {
    let exists = failure(409, "AlreadyExists", "", &json!({}));
    let script = Script::default()
        .on(&format!("GET {NAMED}"), 404, missing())
        .on(&format!("POST {PATH}"), 409, exists)
        .on(&format!("GET {NAMED}"), 200, secret(&KEY));
    assert_eq!(*keys(&script).key().await.unwrap().0, KEY);
    script.finish();
}

#[tokio::test]
async fn without_a_permission_or_with_an_invalid_secret_the_key_is_that_of_the_process() {
    let forbidden = failure(403, "Forbidden", "", &json!({}));
    let script = Script::default().on(&format!("GET {NAMED}"), 403, forbidden);
    let own = keys(&script);
    let key = own.key().await.unwrap();
    assert_eq!(own.key().await.unwrap().0, key.0);
    script.finish();

    let script = Script::default().on(&format!("GET {NAMED}"), 200, secret(b"short"));
    assert_eq!(keys(&script).key().await.unwrap().0.len(), KEY_BYTES);
    script.finish();
}

#[tokio::test(start_paused = true)]
async fn the_key_of_the_process_is_kept_once_that_is_permitted() {
    let forbidden = failure(403, "Forbidden", "", &json!({}));
    let script = Script::default()
        .on(&format!("GET {NAMED}"), 403, forbidden)
        .on(&format!("GET {NAMED}"), 404, missing())
        .on(&format!("POST {PATH}"), 201, json!({"metadata": {}}));
    let keys = keys(&script);
    let key = keys.key().await.unwrap();
    tokio::time::advance(RETRY_AFTER).await;
    assert_eq!(keys.key().await.unwrap().0, key.0);
    assert_eq!(keys.key().await.unwrap().0, key.0);
    let requests = script.finish();
    assert_eq!(requests[2].json()["data"]["key"], BASE64.encode(&key.0));
}

#[tokio::test]
async fn while_the_api_server_does_not_respond_there_is_no_key() {
    let unavailable = failure(500, "InternalError", "", &json!({}));
    let script = Script::default()
        .on(&format!("GET {NAMED}"), 500, unavailable)
        .on(&format!("GET {NAMED}"), 200, secret(&KEY));
    let keys = keys(&script);
    assert!(keys.key().await.is_err_and(|error| error.is_transient()));
    assert_eq!(*keys.key().await.unwrap().0, KEY);
    script.finish();
}
