//! Tests of records in Secrets against a scripted API server.

use helm_core::Digest;
use helm_core::manifest::{Hook, HookEvent, HookPhase};
use helm_core::release::{ReleaseChart, Revision, Status, StoredFile};
use hybrid_operator_test::request::Recorded;
use hybrid_operator_test::scripted::{Script, failure};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_objects::ownership::CR_LABEL;
use kube_objects::{InstanceId, OperatorId};
use serde_json::{Value, json};

use super::*;
use crate::release::meta::{PARTS_LABEL, RecordTags};
use crate::release::side::{PartMeta, Parts};

const SECRETS: &str = "/api/v1/namespaces/prod/secrets";
const POST: &str = "POST /api/v1/namespaces/prod/secrets";
const DELETE_ALL: &str = "DELETE /api/v1/namespaces/prod/secrets";
const GET_FIRST: &str = "GET /api/v1/namespaces/prod/secrets/sh.helm.release.v1.web.v1";
const PUT_FIRST: &str = "PUT /api/v1/namespaces/prod/secrets/sh.helm.release.v1.web.v1";
const DELETE_FIRST: &str = "DELETE /api/v1/namespaces/prod/secrets/sh.helm.release.v1.web.v1";

fn release(revision: u32, status: Status) -> Release {
    let mut release = Release::new("web".parse().unwrap(), "prod", Revision(revision));
    release.info.status = status;
    release.manifest = "a manifest".to_owned();
    release
}

fn tags() -> RecordTags {
    RecordTags {
        cr: CrIdentity::of("g", "K", Some("prod"), "web"),
        operator: OperatorId::new("op"),
        writer: InstanceId::new("pod"),
        digest: Some((&Digest::of("inputs")).into()),
        account: None,
        failures: None,
        baseline: None,
        unowned: false,
        proven: true,
    }
}

fn store(script: &Script) -> RecordStore {
    RecordStore::new(
        script.client(),
        ReleaseIndex::new(),
        ProofKeys::of_process(),
    )
}

fn not_found() -> Value {
    failure(404, "NotFound", "", &json!({"kind": "secrets"}))
}

/// Returns the server's response with the metadata of the Secret that a request writes.
fn written(seen: &Recorded, version: &str) -> Value {
    let mut metadata = seen.json()["metadata"].clone();
    metadata["uid"] = "u1".into();
    metadata["resourceVersion"] = version.into();
    json!({"metadata": metadata})
}

/// Returns the Secret that a request has written, as it is read.
fn found(seen: &Recorded, version: &str) -> Value {
    let mut found = written(seen, version);
    found["data"] = seen.json()["data"].clone();
    found
}

fn name_of(seen: &Recorded) -> String {
    seen.json()["metadata"]["name"].as_str().unwrap().to_owned()
}

fn answer(revision: u32, version: &str) -> Value {
    let labels = tags().labels(Revision(revision));
    json!({"metadata": {"name": format!("sh.helm.release.v1.web.v{revision}"),
        "namespace": "prod", "uid": format!("u{revision}"), "resourceVersion": version,
        "labels": labels}})
}

/// Adds a record to the index as if it had been written.
fn index_record(store: &RecordStore, answer: &Value) -> RecordMeta {
    let metadata: ObjectMeta = serde_json::from_value(answer["metadata"].clone()).unwrap();
    let meta = RecordMeta::of(&metadata, Format::Helm).unwrap();
    store.index.written(meta.clone());
    meta
}

fn history(store: &RecordStore) -> Vec<u32> {
    let history = store.history("prod", &"web".parse().unwrap());
    history.iter().map(|meta| meta.revision.0).collect()
}

fn secret(metadata: &Value, data: &[(&str, &[u8])]) -> Value {
    let data: BTreeMap<&str, String> = data
        .iter()
        .map(|(key, value)| (*key, BASE64.encode(value)))
        .collect();
    json!({"metadata": metadata["metadata"], "data": data})
}

#[tokio::test]
async fn record_is_created_in_helms_format_with_operator_labels() {
    let script = Script::default().on(POST, 201, answer(1, "5"));
    let store = store(&script);
    let mut first = release(1, Status::PendingInstall);
    first.labels.insert("team".to_owned(), "blue".to_owned());
    let meta = store.create(&first, &tags()).await.unwrap();
    let [seen] = &script.finish()[..] else {
        panic!("one request")
    };
    assert_eq!(seen.json()["type"], "helm.sh/release.v1");
    assert_eq!(seen.json()["metadata"]["name"], "sh.helm.release.v1.web.v1");
    assert_eq!(seen.json()["metadata"].get("ownerReferences"), None);
    let labels = &seen.json()["metadata"]["labels"];
    for (key, value) in [
        ("name", "web"),
        ("owner", "helm"),
        ("status", "pending-install"),
        ("version", "1"),
        ("team", "blue"),
        ("helm.sdk.operatorframework.io/operator", "op"),
        ("helm.sdk.operatorframework.io/writer", "1-pod"),
    ] {
        assert_eq!(labels[key], value, "{key}");
    }
    let created = labels["createdAt"].as_str().unwrap();
    assert!(created.parse::<i64>().unwrap() > 0);
    assert_eq!(labels.get("modifiedAt"), None);
    let content = BASE64
        .decode(seen.json()["data"]["release"].as_str().unwrap().as_bytes())
        .unwrap();
    assert_eq!(codec::decode(&content).unwrap().manifest, "a manifest");

    assert_eq!(history(&store), [1]);
    assert_eq!(meta.digest, tags().digest);
    // A record just written is served from the cache.
    assert_eq!(store.load(&meta).await.unwrap().manifest, "a manifest");
}

#[tokio::test]
async fn existing_revision_is_not_overwritten_and_is_indexed() {
    let exists = failure(409, "AlreadyExists", "", &json!({}));
    let script = Script::default()
        .on(POST, 409, exists)
        .on(GET_FIRST, 200, answer(1, "5"));
    let store = store(&script);
    let first = release(1, Status::PendingInstall);
    let error = store.create(&first, &tags()).await.unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }));
    assert_eq!(history(&store), [1]);
    script.finish();
}

#[tokio::test]
async fn update_is_conditional_on_uid_and_resource_version() {
    let script = Script::default();
    let store = store(&script);
    let meta = index_record(&store, &answer(1, "5"));
    let script = script.on(PUT_FIRST, 200, answer(1, "6"));
    let deployed = release(1, Status::Deployed);
    let newer = store.update(&meta, &deployed, &tags()).await.unwrap();
    let seen = &script.finish()[0];
    assert_eq!(seen.json()["metadata"]["uid"], "u1");
    assert_eq!(seen.json()["metadata"]["resourceVersion"], "5");
    assert!(seen.json()["metadata"]["labels"]["modifiedAt"].is_string());
    assert_eq!(newer.resource_version, "6");

    for (code, reason) in [
        (409, "RecordChanged"),
        (404, "RecordGone"),
        (403, "Forbidden"),
    ] {
        let answer = failure(code, "", "", &json!({"kind": "secrets"}));
        script.expect(PUT_FIRST, code, answer);
        let failed = release(1, Status::Failed);
        let error = store.update(&meta, &failed, &tags()).await;
        assert_eq!(error.unwrap_err().reason(), reason);
    }
}

#[tokio::test]
async fn record_of_another_writer_is_read() {
    let foreign = release(1, Status::Deployed);
    let content = codec::encode(&foreign).unwrap();
    let script = Script::default();
    let store = store(&script);
    let mut metadata = answer(1, "5");
    metadata["metadata"]["labels"]["team"] = "blue".into();
    let meta = index_record(&store, &metadata);
    let stored = secret(&metadata, &[("release", content.as_bytes())]);
    let script = script.on(GET_FIRST, 200, stored);
    let read = store.load(&meta).await.unwrap();
    assert_eq!(read.manifest, foreign.manifest);
    assert_eq!(read.labels["team"], "blue");
    // The second load is served from the cache.
    store.load(&meta).await.unwrap();
    script.finish();
}

#[tokio::test]
async fn corrupt_and_missing_records_are_distinguished() {
    let script = Script::default();
    let store = store(&script);
    let metadata = answer(1, "5");
    let meta = index_record(&store, &metadata);
    let corrupt = secret(&metadata, &[("release", b"!")]);
    for (code, answer, reason, corrupt) in [
        (200, corrupt, "CorruptRelease", true),
        (200, secret(&metadata, &[]), "IncompleteRelease", true),
        (404, not_found(), "RecordGone", false),
        (503, failure(503, "", "", &json!({})), "Unavailable", false),
    ] {
        script.expect(GET_FIRST, code, answer);
        let error = store.load(&meta).await.unwrap_err();
        assert_eq!((error.reason(), error.is_corrupt()), (reason, corrupt));
    }
    script.finish();
}

/// Release whose record does not fit into one Secret, and its parts.
struct Large {
    release: Release,
    parts: Parts,
}

/// Returns a release that is stored in parts because of its chart.
fn large_chart() -> Large {
    large(1_200_000, 10)
}

/// Returns a release that is stored in parts because of its manifest.
fn large_manifest() -> Large {
    large(10, 1_200_000)
}

fn large(chart: usize, manifest: usize) -> Large {
    let mut seed = 7_u64;
    let mut noise = |length: usize| -> String {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'!' + seed.to_be_bytes()[0] % 94)
        };
        (0..length).map(|_| next()).collect()
    };
    let mut release = release(1, Status::PendingInstall);
    release.manifest = noise(manifest);
    release.chart = Some(ReleaseChart {
        files: Some(vec![StoredFile {
            name: "big.bin".to_owned(),
            data: noise(chart).into_bytes().into(),
            modified: None,
        }]),
        ..ReleaseChart::default()
    });
    let parts = side::store(&release, &tags().cr).unwrap().parts.unwrap();
    Large { release, parts }
}

/// Returns the response to the creation of the first record of a large release.
fn answer_with_parts(large: &Large, version: &str) -> Value {
    let mut answer = answer(1, version);
    answer["metadata"]["labels"][PARTS_LABEL] = format!("1-{}", large.parts).into();
    answer
}

/// Returns the parts of a large release as stored by the server.
fn parts_of(large: &Large) -> Vec<Value> {
    let parts = &large.parts;
    let names = parts.names(&large.release.name, large.release.revision);
    let part = |name: &String| {
        json!({"metadata": {"name": name, "namespace": "prod", "uid": format!("uid of {name}"),
            "resourceVersion": "2", "labels": {
                "owner": "hybrid-operator",
                "helm.sdk.operatorframework.io/part-of-release": "web",
                "helm.sdk.operatorframework.io/parts": format!("1-{parts}"),
                "helm.sdk.operatorframework.io/cr": tags().cr.as_str(),
                "helm.sdk.operatorframework.io/operator": "op"}}})
    };
    names.iter().map(part).collect()
}

fn path_of(secret: &Value) -> String {
    format!("{SECRETS}/{}", secret["metadata"]["name"].as_str().unwrap())
}

/// Adds a part to the index as a watch would.
fn index_part(store: &RecordStore, part: &Value) {
    let metadata: ObjectMeta = serde_json::from_value(part["metadata"].clone()).unwrap();
    store.index.part_written(PartMeta::of(&metadata).unwrap());
}

fn index_parts(store: &RecordStore, large: &Large) {
    for part in parts_of(large) {
        index_part(store, &part);
    }
}

/// Adds parts to the index, and expects their deletion.
fn index_unused_parts(store: &RecordStore, script: &Script, large: &Large) {
    for part in parts_of(large) {
        index_part(store, &part);
        script.expect(&format!("DELETE {}", path_of(&part)), 200, json!({}));
    }
}

/// Expects the creation of the parts and of the record of a large release.
fn on_create(mut script: Script, large: &Large) -> Script {
    for part in parts_of(large) {
        script = script.on(POST, 201, part);
    }
    script.on(POST, 201, answer_with_parts(large, "5"))
}

#[tokio::test]
async fn parts_are_written_first_read_again_and_deleted() {
    for large in [large_chart(), large_manifest()] {
        let mut script = on_create(Script::default(), &large);
        let kept = store(&script);
        let release = &large.release;
        let meta = kept.create(release, &tags()).await.unwrap();

        let requests = script.finish();
        let (record, parts) = requests.split_last().unwrap();
        assert!(parts.len() > 1);
        for (part, expected) in parts.iter().zip(parts_of(&large)) {
            // The custom resource, the operator, the release, and the set with its revision.
            let metadata = &part.json()["metadata"];
            assert_eq!(metadata["labels"], expected["metadata"]["labels"]);
            assert_eq!(metadata.get("ownerReferences"), None);
            assert_eq!(part.json()["immutable"], true);
            assert!(part.json()["data"]["part"].as_str().unwrap().len() < (1 << 20) * 4 / 3);
        }
        assert_eq!(record.json()["type"], "helm.sh/release.v1");

        // Reading: the record and every part, by the names under which they were written.
        let get = |seen: &Recorded| format!("GET {SECRETS}/{}", name_of(seen));
        for seen in std::iter::once(record).chain(parts) {
            script = script.on(&get(seen), 200, found(seen, "5"));
        }
        let mut read = kept.load(&meta).await.unwrap();
        read.labels.clear();
        assert_eq!(read, *release);
        script.finish();

        // A missing part makes the record unreadable, not smaller.
        script =
            script
                .on(&get(record), 200, found(record, "5"))
                .on(&get(&parts[0]), 404, not_found());
        assert!(kept.load(&meta).await.unwrap_err().is_corrupt());

        script = script.on(DELETE_FIRST, 200, json!({}));
        for part in parts {
            let delete = format!("DELETE {SECRETS}/{}", name_of(part));
            script = script.on(&delete, 200, json!({}));
        }
        kept.delete(&meta).await.unwrap();
        assert!(history(&kept).is_empty());
        script.finish();
    }
}

#[tokio::test]
async fn install_in_parts_writes_each_part_once() {
    for (chart, manifest) in [(1_200_000, 10), (10, 1_200_000)] {
        let mut large = large(chart, manifest);
        let mut release = large.release.clone();
        release.hooks = vec![Hook {
            name: "migrate".to_owned(),
            path: "c/templates/job.yaml".to_owned(),
            manifest: "kind: Job".to_owned(),
            events: vec![HookEvent::PreInstall],
            ..Hook::default()
        }];
        large.parts = side::store(&release, &tags().cr).unwrap().parts.unwrap();
        let parts = parts_of(&large).len();
        let mut script = on_create(Script::default(), &large);
        let store = store(&script);
        let mut meta = store.create(&release, &tags()).await.unwrap();
        // Hook phases and the status change with each write.
        let phases = [HookPhase::Running, HookPhase::Succeeded];
        for version in 6..12 {
            release.hooks[0].last_run.phase = phases[version % 2].clone();
            let text = format!("write {version}");
            release.set_status(Status::ALL[version % Status::ALL.len()], text);
            let answer = answer_with_parts(&large, &version.to_string());
            script = script.on(PUT_FIRST, 200, answer);
            meta = store.update(&meta, &release, &tags()).await.unwrap();
        }
        let requests = script.finish();
        let count = |method: &str| requests.iter().filter(|seen| seen.method == method).count();
        assert_eq!((count("POST"), count("PUT")), (parts + 1, 6));
        assert_eq!(requests.len(), parts + 7);

        // The last state is read with the parts of the first write.
        let (record, created) = (&requests[parts + 6], &requests[..parts]);
        for seen in std::iter::once(record).chain(created) {
            let get = format!("GET {SECRETS}/{}", name_of(seen));
            script = script.on(&get, 200, found(seen, "11"));
        }
        let mut read = store.load(&meta).await.unwrap();
        read.labels.clear();
        assert_eq!(read, release);
        script.finish();
    }
}

#[tokio::test]
async fn crash_between_parts_and_record_is_recovered() {
    let large = large_chart();
    let mut script = Script::default();
    let store = store(&script);
    for part in parts_of(&large) {
        index_part(&store, &part);
        let exists = failure(409, "AlreadyExists", "", &json!({}));
        script = script.on(POST, 409, exists);
    }
    let written = answer_with_parts(&large, "5");
    script = script.on(POST, 201, written);
    store.create(&large.release, &tags()).await.unwrap();
    script.finish();
}

#[tokio::test]
async fn parts_that_no_record_refers_to_are_deleted_after_the_next_write() {
    // A process that crashed had rendered another password, so its parts are unused.
    let (lost, large) = (large_chart(), large_manifest());
    let release = &large.release;
    let mut script = on_create(Script::default(), &large);
    let store = store(&script);
    index_unused_parts(&store, &script, &lost);
    let meta = store.create(release, &tags()).await.unwrap();
    let requests = script.finish();
    let deleted = requests.last().unwrap();
    let unused = &parts_of(&lost).pop().unwrap()["metadata"];
    assert_eq!(deleted.json()["preconditions"]["uid"], unused["uid"]);

    // Parts of a failed update are deleted as well; afterwards there is nothing to delete.
    index_unused_parts(&store, &script, &lost);
    let put = |script: Script, version| {
        let answer = answer_with_parts(&large, version);
        script.on(PUT_FIRST, 200, answer)
    };
    script = put(script, "6").in_any_order();
    let meta = store.update(&meta, release, &tags()).await.unwrap();
    script = put(script, "7");
    store.update(&meta, release, &tags()).await.unwrap();
    script.finish();
}

#[tokio::test]
async fn failed_deletion_of_leftover_parts_does_not_fail_the_write() {
    let lost = large_chart();
    let delete = format!("DELETE {}", path_of(&parts_of(&lost)[0]));
    let script = Script::default().on(POST, 201, answer(1, "5")).on(
        &delete,
        503,
        failure(503, "", "", &json!({})),
    );
    let store = store(&script);
    index_parts(&store, &lost);
    let first = release(1, Status::PendingInstall);
    store.create(&first, &tags()).await.unwrap();
    script.finish();
    assert_eq!(store.index.parts("prod", &first.name), {
        let metadata = |part: &Value| serde_json::from_value(part["metadata"].clone()).unwrap();
        let parts = parts_of(&lost);
        let parts = parts.iter().map(|part| PartMeta::of(&metadata(part)));
        parts.map(Option::unwrap).collect::<Vec<_>>()
    });
}

#[tokio::test]
async fn parts_of_a_record_missing_from_the_index_are_kept() {
    let large = large_chart();
    let script = Script::default().on(POST, 201, answer(2, "9")).on(
        GET_FIRST,
        200,
        answer_with_parts(&large, "5"),
    );
    let store = store(&script);
    index_parts(&store, &large);
    let second = release(2, Status::PendingUpgrade);
    store.create(&second, &tags()).await.unwrap();
    script.finish();
    assert_eq!(history(&store), [1, 2]);
}

#[tokio::test]
async fn leftover_parts_of_a_release_without_records_are_deleted() {
    let lost = large_chart();
    let script = Script::default();
    let store = store(&script);
    // A release without parts needs no request.
    store.delete_leftover_parts(&tags().cr).await.unwrap();
    script.finish();

    script.expect(GET_FIRST, 404, not_found());
    index_unused_parts(&store, &script, &lost);
    let other = CrIdentity::of("g", "Other", Some("prod"), "web");
    store.delete_leftover_parts(&other).await.unwrap();
    store.delete_leftover_parts(&tags().cr).await.unwrap();
    store.delete_leftover_parts(&tags().cr).await.unwrap();
    script.finish();
}

#[tokio::test]
async fn uninstall_deletes_parts_after_the_record_that_refers_to_them() {
    let large = large_chart();
    let script = Script::default()
        .on(DELETE_FIRST, 200, json!({}))
        .on(DELETE_ALL, 200, json!({}));
    let store = store(&script);
    index_record(&store, &answer_with_parts(&large, "5"));
    index_parts(&store, &large);
    let name = large.release.name.clone();
    store.delete_all("prod", &name).await.unwrap();
    let requests = script.finish();
    assert_eq!(
        requests[1].query["labelSelector"],
        format!(
            "helm.sdk.operatorframework.io/part-of-release=web,helm.sdk.operatorframework.io/cr in ({})",
            tags().cr
        )
    );
    assert!(store.index.parts("prod", &name).is_empty());
}

#[tokio::test]
async fn parts_missing_from_the_index_are_deleted_by_name() {
    let large = large_chart();
    let mut script = Script::default().on(DELETE_FIRST, 200, json!({}));
    let store = store(&script);
    index_record(&store, &answer_with_parts(&large, "5"));
    for part in parts_of(&large) {
        script = script.on(&format!("DELETE {}", path_of(&part)), 200, json!({}));
    }
    store.delete_all("prod", &large.release.name).await.unwrap();
    script.finish();
}

#[tokio::test]
async fn newest_record_is_deleted_last() {
    let script = Script::default();
    let store = store(&script);
    for revision in 1..=3 {
        index_record(&store, &answer(revision, "5"));
    }
    let delete_last = format!("DELETE {SECRETS}/sh.helm.release.v1.web.v3");
    let script = script
        .on(DELETE_ALL, 200, json!({}))
        .on(&delete_last, 200, json!({}));
    let name = "web".parse().unwrap();
    store.delete_all("prod", &name).await.unwrap();
    let requests = script.finish();
    let expected = "owner=helm,name=web,version!=3";
    assert_eq!(requests[0].query["labelSelector"], expected);
    assert_eq!(requests[1].json()["preconditions"]["uid"], "u3");
    assert!(history(&store).is_empty());
    store.delete_all("prod", &name).await.unwrap();
}

#[tokio::test]
async fn adoption_removes_owner_references_and_adds_labels() {
    let script = Script::default();
    let store = store(&script);
    let mut foreign = answer(1, "5");
    foreign["metadata"]["labels"] = json!({"owner": "helm", "status": "deployed"});
    foreign["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "g/v1", "kind": "K", "name": "web", "uid": "x"}]);
    let meta = index_record(&store, &foreign);
    assert_eq!(meta.owners, ["x"]);
    let patch = PUT_FIRST.replace("PUT", "PATCH");
    let script = script.on(&patch, 200, answer(1, "6"));
    let adopted = store.adopt(&meta, &tags(), None).await.unwrap();
    assert!(adopted.owners.is_empty());
    assert_eq!(adopted.cr, Some(tags().cr));
    let body = script.finish()[0].json()["metadata"].clone();
    assert_eq!(body["ownerReferences"], Value::Null);
    assert!(body.get("ownerReferences").is_some());
    assert_eq!(body["resourceVersion"], "5");
    assert_eq!(body["labels"][CR_LABEL], tags().cr.as_str());
}

#[tokio::test]
async fn chunked_records_of_helm_operator_plugins_are_found_and_read() {
    let foreign = release(1, Status::Deployed);
    let packed = BASE64
        .decode(codec::encode(&foreign).unwrap().as_bytes())
        .unwrap();
    let (first, rest) = packed.split_at(packed.len() / 3);
    let (second, third) = rest.split_at(rest.len() / 2);
    let mut index = answer(1, "5");
    index["metadata"]["labels"] = json!({"owner": "x", "type": "index", "status": "deployed"});
    let more = ("extraChunks", &br#"["b","c"]"#[..]);
    let script = Script::default()
        .on(&format!("GET {SECRETS}"), 200, json!({"items": [index]}))
        .on(GET_FIRST, 200, secret(&index, &[("chunk", first), more]));
    for (name, chunk) in [("b", second), ("c", third)] {
        let get = format!("GET {SECRETS}/{name}");
        script.expect(&get, 200, secret(&index, &[("chunk", chunk)]));
    }
    let store = store(&script);
    let name = "web".parse().unwrap();
    let found = store.chunked("prod", &name).await.unwrap();
    assert_eq!((found.len(), found[0].status), (1, Status::Deployed));
    let read = store.load(&found[0]).await.unwrap();
    assert_eq!(read.manifest, foreign.manifest);
    let query = &script.finish()[0].query;
    assert_eq!(query["fieldSelector"], "type=operatorframework.io/index.v1");
    assert_eq!(query["labelSelector"], "name=web,type=index");
}

#[tokio::test]
async fn terminating_namespace_is_reported() {
    let cause = json!({"causes": [{"reason": "NamespaceTerminating"}]});
    let script = Script::default().on(POST, 403, failure(403, "Forbidden", "", &cause));
    let first = release(1, Status::PendingInstall);
    let error = store(&script).create(&first, &tags()).await;
    assert_eq!(error.unwrap_err().reason(), "NamespaceTerminating");
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    #[test]
    fn records_round_trip_through_the_store(
        manifest in ".{0,400}",
        description in ".{0,60}",
        notes in "\\PC{0,60}",
        revision in 1_u32..100_000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut original = release(revision, Status::Deployed);
        original.manifest = manifest;
        original.info.description = description;
        original.info.notes = notes;
        let read = runtime.block_on(async {
            let script = Script::default().on(POST, 201, answer(revision, "5"));
            store(&script).create(&original, &tags()).await.unwrap();
            let seen = script.finish().remove(0);
            let path = format!("GET {SECRETS}/sh.helm.release.v1.web.v{revision}");
            let script = Script::default().on(&path, 200, found(&seen, "5"));
            let other = store(&script);
            let meta = index_record(&other, &written(&seen, "5"));
            other.load(&meta).await.unwrap()
        });
        let mut read = read;
        read.labels.clear();
        proptest::prop_assert_eq!(read, original);
    }
}
