//! Records on a real API server, and what Helm's command line makes of them.

use std::sync::{Arc, Mutex};

use helm_core::Digest;
use helm_core::chart::Metadata;
use helm_core::release::{
    ApplyMethod, Release, ReleaseChart, ReleaseName, Revision, Status, StoredFile, Time,
};
use hybrid_operator::cluster::{InstanceId, OperatorId};
use hybrid_operator::release::{RecordTags, ReleaseIndex, ReleaseStore, SecretStore, load_newest};
use hybrid_operator::telemetry::metrics::WatchMetrics;
use jiff::Timestamp;
use serde_json::json;

use crate::support::{Stage, until};

fn release(stage: &Stage, revision: u32, status: Status) -> Release {
    let mut release = Release::new(
        "rel".parse().unwrap(),
        stage.namespace.clone(),
        Revision(revision),
    );
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
    }
}

/// A store whose index is fed until the test ends.
async fn store(stage: &Stage) -> (SecretStore, tokio::task::JoinHandle<()>) {
    let index = ReleaseIndex::new();
    let namespace = Some(stage.namespace.clone());
    let feeding = tokio::spawn(index.clone().watch(
        stage.client.clone(),
        namespace,
        WatchMetrics::default(),
    ));
    until("the index is complete", async || index.state().is_synced()).await;
    (SecretStore::new(stage.client.clone(), index), feeding)
}

fn name() -> ReleaseName {
    "rel".parse().unwrap()
}

#[tokio::test]
async fn records_live_through_their_whole_life() {
    let Some(stage) = Stage::new("records").await else {
        return;
    };
    let (store, _feeding) = store(&stage).await;
    let told = Arc::new(Mutex::new(0));
    let heard = Arc::clone(&told);
    store
        .index()
        .on_change(Arc::new(move |_| *heard.lock().unwrap() += 1));
    let tags = tags(&stage);
    let pending = release(&stage, 1, Status::PendingInstall);
    let meta = store.create(&pending, &tags).await.unwrap();
    assert_eq!(
        store.create(&pending, &tags).await.unwrap_err().reason(),
        "RevisionExists"
    );
    let deployed = store
        .update(&meta, &release(&stage, 1, Status::Deployed), &tags)
        .await
        .unwrap();
    let late = store.update(&meta, &pending, &tags).await.unwrap_err();
    assert_eq!(late.reason(), "RecordChanged");
    assert_eq!(
        store.history(&stage.namespace, &name()),
        std::slice::from_ref(&deployed)
    );
    assert_eq!(store.records_of(&tags.cr).len(), 1);

    // Somebody else: another store, with an index of its own.
    let (other, _other) = self::store(&stage).await;
    let seen = other.history(&stage.namespace, &name());
    assert_eq!(seen, std::slice::from_ref(&deployed));
    assert_eq!(
        other.load(&seen[0]).await.unwrap().info.status,
        Status::Deployed
    );
    let second = other
        .create(&release(&stage, 2, Status::Failed), &tags)
        .await
        .unwrap();
    until("the first index knows", async || {
        store.history(&stage.namespace, &name()).len() == 2
    })
    .await;
    assert!(*told.lock().unwrap() > 0);

    store.delete_all(&stage.namespace, &name()).await.unwrap();
    assert!(store.history(&stage.namespace, &name()).is_empty());
    assert_eq!(
        other.load(&second).await.unwrap().revision,
        Revision(2),
        "it is cached"
    );
    until("the second index knows", async || {
        other.history(&stage.namespace, &name()).is_empty()
    })
    .await;
    let gone = other
        .update(&second, &release(&stage, 2, Status::Deployed), &tags)
        .await;
    assert_eq!(gone.unwrap_err().reason(), "RecordGone");
}

#[tokio::test]
async fn rule_3_8_symptom_8_a_release_of_four_mebibytes_is_kept() {
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
    let mut loaded = load_newest(&fresh, &history)
        .await
        .unwrap()
        .unwrap()
        .release;
    loaded.labels.clear();
    assert_eq!(loaded, large);
    if let Some(shown) = stage.helm(&["get", "manifest", "rel"]) {
        assert!(shown.contains("name: made"), "{shown}");
    }
    fresh.delete_all(&stage.namespace, &name()).await.unwrap();
    let secrets = stage.api("v1", "Secret", "secrets");
    assert!(
        secrets
            .list(&<_>::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
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
    let by_label = run(&[
        "ls",
        "-o",
        "json",
        "-l",
        "helm.sdk.operatorframework.io/operator=test",
    ]);
    assert!(by_label.await.contains("\"name\":\"rel\""));
    let history = run(&["history", "rel", "-o", "json"]).await;
    assert!(
        history.contains("superseded") && history.contains("by a test"),
        "{history}"
    );
    assert!(
        run(&["get", "manifest", "rel"])
            .await
            .contains("revision: \"2\"")
    );

    // Helm's rollback makes a revision of its own, with our labels copied from revision 2.
    run(&["rollback", "rel", "1"]).await;
    let known = async || store.history(&stage.namespace, &name());
    until("the third revision is known", async || {
        known()
            .await
            .iter()
            .map(|meta| meta.status)
            .collect::<Vec<_>>()
            == [Status::Superseded, Status::Superseded, Status::Deployed]
    })
    .await;
    let records = known().await;
    assert!(records[2].is_foreign() && !records[1].is_foreign());
    assert_eq!(
        (&records[2].cr, &records[2].digest),
        (&Some(tags.cr.clone()), &None)
    );
    let rolled_back = store.load(&records[2]).await.unwrap();
    assert_eq!(rolled_back.info.rollback_revision, Revision(1));
    assert_eq!(rolled_back.manifest, first.manifest);
    let made = stage.config_maps().get("made").await.unwrap();
    assert_eq!(made.data["data"]["revision"], "1");

    // Helm has changed the record of revision 2: what we knew of it is out of date.
    assert!(!records[1].resource_version.is_empty());
    assert_eq!(
        store.load(&records[1]).await.unwrap().info.status,
        Status::Superseded
    );

    let adopted = store.adopt(&records[2], &tags).await.unwrap();
    assert!(!adopted.is_foreign());
    assert!(
        run(&["ls", "-o", "json"])
            .await
            .contains("\"revision\":\"3\"")
    );

    run(&["uninstall", "rel"]).await;
    until("the records are gone", async || known().await.is_empty()).await;
}
