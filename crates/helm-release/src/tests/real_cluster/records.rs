//! Records on a real API server, and what Helm's command line makes of them.

use std::sync::Arc;

use kube_objects::shards::Shards;
use kube_objects::watch::Restarts;
use kube_objects::{InstanceId, OperatorId};
use parking_lot::Mutex;

use crate::release::{IndexState, ProofKeys, RecordStore, RecordTags, ReleaseIndex};
use helm_core::Digest;
use helm_core::chart::Metadata;
use helm_core::manifest::{Hook, HookEvent};
use helm_core::release::{
    ApplyMethod, Release, ReleaseChart, ReleaseName, Revision, Status, StoredFile, Time,
};
use jiff::Timestamp;
use serde_json::json;

use super::support::{Stage, until};

fn release(stage: &Stage, revision: u32, status: Status) -> Release {
    let mut release = Release::new(name(), stage.namespace.clone(), Revision(revision));
    release.set_status(status, "by a test");
    let now = Time::utc(Timestamp::now());
    release.info.first_deployed = Some(now);
    release.info.last_deployed = Some(now);
    release.apply_method = Some(ApplyMethod::ServerSide);
    release.manifest = format!(
        "---\n# Source: c/templates/a.yaml\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: \
         made\ndata:\n  revision: \"{revision}\"\n"
    );
    let metadata: Metadata =
        serde_json::from_value(json!({"name": "c", "version": "0.1.0", "apiVersion": "v2"}))
            .unwrap();
    release.chart = Some(ReleaseChart {
        metadata: Some(metadata),
        ..ReleaseChart::default()
    });
    release
}

fn tags(stage: &Stage) -> RecordTags {
    RecordTags {
        cr: stage.primary.identity(),
        operator: OperatorId::new("test"),
        writer: InstanceId::new("pod-1"),
        digest: Some((&Digest::of("inputs")).into()),
        account: None,
        failures: None,
        baseline: None,
        unowned: false,
        proven: true,
    }
}

/// A store whose index is fed until the test ends.
async fn store(stage: &Stage) -> (RecordStore, tokio::task::JoinHandle<()>) {
    let (_, store, feeding) = indexed_store(stage).await;
    (store, feeding)
}

async fn indexed_store(stage: &Stage) -> (ReleaseIndex, RecordStore, tokio::task::JoinHandle<()>) {
    let index = ReleaseIndex::new();
    let namespace = Some(stage.namespace.clone());
    let (client, metrics) = (stage.client.clone(), Restarts::default());
    let feeding = tokio::spawn(
        index
            .clone()
            .watch(client, namespace, metrics, Shards::default()),
    );
    until("the index is complete", async || {
        index.state() == IndexState::Synced
    })
    .await;
    let store = RecordStore::new(stage.client.clone(), index.clone(), ProofKeys::of_process());
    (index, store, feeding)
}

fn name() -> ReleaseName {
    "rel".parse().unwrap()
}

#[tokio::test]
async fn records_live_through_their_whole_life() {
    let Some(stage) = Stage::new("records").await else {
        return;
    };
    let (index, store, _feeding) = indexed_store(&stage).await;
    let told = Arc::new(Mutex::new(0));
    let heard = Arc::clone(&told);
    index.on_change(move |_| *heard.lock() += 1);
    let tags = tags(&stage);
    let pending = release(&stage, 1, Status::PendingInstall);
    let meta = store.create(&pending, &tags).await.unwrap();
    let again = store.create(&pending, &tags).await.unwrap_err();
    assert_eq!(again.reason(), "RevisionExists");
    let deployed = release(&stage, 1, Status::Deployed);
    let deployed = store.update(&meta, &deployed, &tags).await.unwrap();
    let late = store.update(&meta, &pending, &tags).await.unwrap_err();
    assert_eq!(late.reason(), "RecordChanged");
    let history = store.history(&stage.namespace, &name());
    assert_eq!(history, std::slice::from_ref(&deployed));
    assert_eq!(store.records_of(&tags.cr).len(), 1);

    // Somebody else: another store, with an index of its own.
    let (other, _other) = self::store(&stage).await;
    let seen = other.history(&stage.namespace, &name());
    assert_eq!(seen, std::slice::from_ref(&deployed));
    let loaded = other.load(&seen[0]).await.unwrap();
    assert_eq!(loaded.info.status, Status::Deployed);
    let second = release(&stage, 2, Status::Failed);
    let second = other.create(&second, &tags).await.unwrap();
    until("the first index knows", async || {
        store.history(&stage.namespace, &name()).len() == 2
    })
    .await;
    assert!(*told.lock() > 0);

    store.delete_all(&stage.namespace, &name()).await.unwrap();
    assert!(store.history(&stage.namespace, &name()).is_empty());
    let cached = other.load(&second).await.unwrap();
    assert_eq!(cached.revision, Revision(2));
    until("the second index knows", async || {
        other.history(&stage.namespace, &name()).is_empty()
    })
    .await;
    let deployed = release(&stage, 2, Status::Deployed);
    let gone = other.update(&second, &deployed, &tags).await;
    assert_eq!(gone.unwrap_err().reason(), "RecordGone");
}

#[tokio::test]
async fn a_release_of_four_mebibytes_is_kept() {
    let Some(stage) = Stage::new("large").await else {
        return;
    };
    let (store, _feeding) = store(&stage).await;
    let mut seed = 1_u64;
    let mut next = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        seed.to_be_bytes()[0]
    };
    let mut large = release(&stage, 1, Status::Deployed);
    if let Some(chart) = &mut large.chart {
        chart.files = Some(vec![StoredFile {
            name: "big.bin".to_owned(),
            data: (0..4 << 20).map(|_| next()).collect(),
            modified: None,
        }]);
    }
    store.create(&large, &tags(&stage)).await.unwrap();
    let (fresh, _fresh) = self::store(&stage).await;
    let history = fresh.history(&stage.namespace, &name());
    let mut loaded = fresh.load(&history[0]).await.unwrap();
    loaded.labels.clear();
    assert_eq!(loaded, large);
    if let Some(shown) = stage.helm(&["get", "manifest", "rel"]) {
        assert!(shown.contains("name: made"), "{shown}");
    }
    fresh.delete_all(&stage.namespace, &name()).await.unwrap();
    let secrets = stage.api("v1", "Secret", "secrets");
    let left = secrets.list(&<_>::default()).await.unwrap();
    assert!(left.items.is_empty());
}

#[tokio::test]
async fn helms_command_line_works_on_our_records_and_we_notice() {
    let Some(stage) = Stage::new("cli").await else {
        return;
    };
    let Some(empty) = stage.helm(&["ls", "-o", "json"]) else {
        return;
    };
    assert_eq!(empty.trim(), "[]");
    let (store, _feeding) = store(&stage).await;
    let tags = tags(&stage);
    let first = release(&stage, 1, Status::Superseded);
    let second = release(&stage, 2, Status::Deployed);
    let run = async |args: &[&str]| stage.helm(args).unwrap();
    store.create(&first, &tags).await.unwrap();
    store.create(&second, &tags).await.unwrap();

    let list = run(&["ls", "-o", "json"]).await;
    for part in [
        "\"name\":\"rel\"",
        "\"revision\":\"2\"",
        "\"chart\":\"c-0.1.0\"",
        "deployed",
    ] {
        assert!(list.contains(part), "{list}");
    }
    let label = "helm.sdk.operatorframework.io/operator=test";
    let by_label = run(&["ls", "-o", "json", "-l", label]).await;
    assert!(by_label.contains("\"name\":\"rel\""));
    let history = run(&["history", "rel", "-o", "json"]).await;
    for part in ["superseded", "by a test"] {
        assert!(history.contains(part), "{history}");
    }
    let manifest = run(&["get", "manifest", "rel"]).await;
    assert!(manifest.contains("revision: \"2\""));

    // Helm's rollback makes a revision of its own, with our labels copied from revision 2.
    run(&["rollback", "rel", "1"]).await;
    let known = async || store.history(&stage.namespace, &name());
    until("the third revision is known", async || {
        let statuses: Vec<Status> = known().await.iter().map(|meta| meta.status).collect();
        statuses == [Status::Superseded, Status::Superseded, Status::Deployed]
    })
    .await;
    let records = known().await;
    assert_eq!(records[2].cr.as_ref(), Some(&tags.cr));
    assert_eq!((&records[2].writer, &records[2].digest), (&None, &None));
    // Helm has marked our second revision as superseded; the first one is as we wrote it.
    assert_eq!(records[0].writer, Some(tags.writer.clone()));
    assert_eq!(records[1].writer, None);
    assert_eq!(records[1].digest, tags.digest);
    let rolled_back = store.load(&records[2]).await.unwrap();
    assert_eq!(rolled_back.info.rollback_revision, Revision(1));
    assert_eq!(rolled_back.manifest, first.manifest);
    let made = stage.config_maps().get("made").await.unwrap();
    assert_eq!(made.data["data"]["revision"], "1");

    // Helm has changed the record of revision 2: what we knew of it is out of date.
    assert!(!records[1].resource_version.is_empty());
    let former = store.load(&records[1]).await.unwrap();
    assert_eq!(former.info.status, Status::Superseded);

    let adopted = store.adopt(&records[2], &tags, None).await.unwrap();
    assert_eq!((&adopted.writer, &adopted.digest), (&None, &tags.digest));
    let list = run(&["ls", "-o", "json"]).await;
    assert!(list.contains("\"revision\":\"3\""));

    run(&["uninstall", "rel"]).await;
    until("the records are gone", async || known().await.is_empty()).await;
}

/// A chart that makes one config map.
fn chart() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("templates")).unwrap();
    for (file, text) in [
        ("Chart.yaml", "apiVersion: v2\nname: c\nversion: 0.1.0\n"),
        (
            "templates/a.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: made}\ndata: {revision: helm}\n",
        ),
        (
            "templates/test.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: test, annotations: {helm.sh/hook: test}}\n",
        ),
    ] {
        std::fs::write(dir.path().join(file), text).unwrap();
    }
    dir
}

#[tokio::test]
async fn a_record_that_helm_has_changed_is_not_taken_for_ours() {
    let directory = chart();
    let chart = directory.path().to_str().unwrap();
    for (what, args) in [
        ("upgrade", &["upgrade", "rel", chart][..]),
        ("rollback", &["rollback", "rel", "1"]),
        ("uninstall", &["uninstall", "rel", "--keep-history"]),
        ("test", &["test", "rel"]),
    ] {
        let Some(stage) = Stage::new("writer").await else {
            return;
        };
        if stage.helm(&["ls"]).is_none() {
            return;
        }
        let (store, _feeding) = store(&stage).await;
        let tags = tags(&stage);
        let first = release(&stage, 1, Status::Superseded);
        let mut second = release(&stage, 2, Status::Deployed);
        second.hooks = vec![Hook {
            name: "test".to_owned(),
            kind: "ConfigMap".to_owned(),
            path: "c/templates/test.yaml".to_owned(),
            manifest: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: test}\n".to_owned(),
            events: vec![HookEvent::Test],
            ..Hook::default()
        }];
        store.create(&first, &tags).await.unwrap();
        let begun = release(&stage, 2, Status::PendingUpgrade);
        let pending = store.create(&begun, &tags).await.unwrap();
        assert_eq!(pending.writer, Some(tags.writer.clone()), "{what}");
        let ours = store.update(&pending, &second, &tags).await.unwrap();
        assert_eq!(ours.writer, Some(tags.writer.clone()), "{what}");
        // Somebody's label does not make it somebody else's record.
        let labelled = json!({"metadata": {"labels": {"team": "blue"}}});
        let secrets = stage.api("v1", "Secret", "secrets");
        stage.edit(&secrets, &ours.secret, &labelled).await;

        stage.helm(args).unwrap();
        let records = async || store.history(&stage.namespace, &name());
        until("helm's last write is known", async || {
            let records = records().await;
            records.len() > 1
                && records.iter().all(|meta| !meta.status.is_pending())
                && records.last().unwrap().writer.is_none()
                && records[1].writer.is_none()
        })
        .await;
        let records = records().await;
        assert_eq!(records[0].writer, Some(tags.writer.clone()), "{what}");
        // The inputs of a revision do not change when it is superseded.
        assert_eq!(records[1].digest, tags.digest, "{what}");
        for theirs in &records[2..] {
            assert_eq!(theirs.cr.as_ref(), Some(&tags.cr));
            assert_eq!(theirs.digest, None);
        }
    }
}

#[tokio::test]
async fn parts_go_with_the_record_that_refers_to_them() {
    let Some(stage) = Stage::new("parts").await else {
        return;
    };
    let (store, _feeding) = store(&stage).await;
    let secrets = stage.api("v1", "Secret", "secrets");
    let left = async || secrets.list(&<_>::default()).await.unwrap().items.len();
    let mut seed = 1_u64;
    let mut noise = || -> String {
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b'!' + seed.to_be_bytes()[0] % 94)
        };
        (0..1 << 20).map(|_| next()).collect()
    };
    let tags = tags(&stage);
    let mut first = release(&stage, 1, Status::Failed);
    first.manifest = noise();
    let meta = store.create(&first, &tags).await.unwrap();
    let one_release = left().await;
    assert!(one_release > 1);
    // The revision is tried again with another content, which replaces the parts.
    first.manifest = noise();
    let meta = store.update(&meta, &first, &tags).await.unwrap();
    assert_eq!(left().await, one_release);
    let mut loaded = store.load(&meta).await.unwrap();
    loaded.labels.clear();
    assert_eq!(loaded, first);

    // Another process finds what this one would leave behind.
    let params = kube::api::DeleteParams::default();
    drop(secrets.delete(&meta.secret, &params).await.unwrap());
    let (fresh, _fresh) = self::store(&stage).await;
    fresh.delete_leftover_parts(&tags.cr).await.unwrap();
    assert_eq!(left().await, 0);
}
