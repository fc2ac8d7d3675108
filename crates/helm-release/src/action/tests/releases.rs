//! Tests of whole actions: what each sends, in which order, and where it stops.

use super::*;

#[tokio::test]
async fn an_install_runs_hooks_by_weight_and_applies_objects_in_order() {
    let fixture = Fixture::new();
    let lines = "record 1 pending-install, read configmaps/early: 404,
        create configmaps/early, record 1 pending-install, record 1 pending-install,
        read configmaps/late: 404, create configmaps/late, record 1 pending-install,
        create configmaps/c, create services/s, create deployments/d, record 1 pending-install,
        read configmaps/after: 404, create configmaps/after, record 1 pending-install,
        read configmaps/after @1-post-install-1, delete configmaps/after, record 1 deployed";
    let objects = ["configmaps/c", "services/s", "deployments/d"];
    let hooks = hooks(&HookEvent::PreInstall, &HookEvent::PostInstall);
    let mut stored = stored(1, Status::PendingInstall, &objects, hooks);
    let mut live = Live::default();
    fixture
        .deploys(&mut live, deployment(&mut stored), lines)
        .await;
}

#[tokio::test]
async fn an_upgrade_prunes_removed_objects_and_then_supersedes() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let before = [
        "configmaps/c",
        "configmaps/gone",
        "configmaps/kept",
        "deployments/d",
    ];
    let previous = fixture.install(&mut live, &before).await;
    let lines = "apply configmaps/c, create services/s, apply deployments/d,
        read configmaps/gone, delete configmaps/gone,
        // To be kept: its owner reference is checked.
        read configmaps/kept, read configmaps/kept, record 2 deployed, record 1 superseded";
    let objects = ["configmaps/c", "services/s", "deployments/d"];
    let mut stored = stored(2, Status::PendingUpgrade, &objects, Vec::new());
    let upgrade = after(previous, &mut stored);
    fixture.deploys(&mut live, upgrade, lines).await;
}

#[tokio::test]
async fn a_rollback_removes_objects_of_the_failed_revision() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let good = ["configmaps/c", "deployments/d"];
    let previous = fixture.install(&mut live, &good).await;
    let lines = "record 3 pending-rollback, read configmaps/early: 404,
        create configmaps/early, record 3 pending-rollback, record 3 pending-rollback,
        read configmaps/late: 404, create configmaps/late, record 3 pending-rollback,
        apply configmaps/c, apply deployments/d, read services/s, delete services/s,
        record 3 pending-rollback, read configmaps/after: 404, create configmaps/after,
        record 3 pending-rollback, read configmaps/after @3-post-rollback-1,
        delete configmaps/after, record 3 deployed, record 1 superseded";
    let failed = stored(2, Status::Failed, &["services/s"], Vec::new());
    let hooks = hooks(&HookEvent::PreRollback, &HookEvent::PostRollback);
    let mut stored = stored(3, Status::PendingRollback, &good, hooks);
    let rollback = Deployment {
        leftovers: vec![failed],
        ..after(previous, &mut stored)
    };
    fixture.deploys(&mut live, rollback, lines).await;
}

#[tokio::test]
async fn an_uninstall_keeps_annotated_objects_and_deletes_the_record_last() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let objects = [
        "configmaps/c",
        "configmaps/kept",
        "services/s",
        "deployments/d",
    ];
    let mut stored = fixture.install(&mut live, &objects).await;
    stored.release.hooks = hooks(&HookEvent::PreDelete, &HookEvent::PostDelete);
    let lines = "record 1 deployed, read configmaps/early: 404,
        create configmaps/early, record 1 deployed, record 1 deployed, read configmaps/late: 404,
        create configmaps/late, record 1 deployed, record 1 uninstalling, read services/s,
        delete services/s, read deployments/d, delete deployments/d, read configmaps/c,
        delete configmaps/c, read configmaps/kept, read configmaps/kept, record 1 uninstalling,
        read configmaps/after: 404, create configmaps/after, record 1 uninstalling,
        read configmaps/after @1-post-delete-1, delete configmaps/after,
        // Hooks that their delete policies have kept.
        read configmaps/late, delete configmaps/late, read configmaps/early,
        delete configmaps/early, read configmaps/after: 404, forget 1";
    fixture.uninstalls(&mut live, &mut stored, lines).await;
}

#[tokio::test]
async fn test_hooks_run_by_weight_and_touch_nothing_else() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let mut stored = fixture.install(&mut live, &["configmaps/c"]).await;
    stored.release.hooks = hooks(&HookEvent::Test, &HookEvent::PostInstall);
    let lines = "record 1 deployed, read configmaps/early: 404,
        create configmaps/early, record 1 deployed, record 1 deployed,
        // Created by an earlier run: deleted, and checked again later.
        read configmaps/late, delete configmaps/late";
    let event = HookEvent::Test;
    let waiting = fixture.hooks(&mut live, &mut stored, &event, lines).await;
    let why = "test hook late".to_owned();
    assert_eq!(waiting.unwrap(), ActionProgress::Waiting { why });

    let lines = "read configmaps/late: 404, create configmaps/late, record 1 deployed";
    let done = fixture.hooks(&mut live, &mut stored, &event, lines).await;
    assert_eq!(done.unwrap(), ActionProgress::Done);
}

#[tokio::test]
async fn a_test_hook_that_the_api_server_refuses_has_failed() {
    let table = [
        ("create configmaps/h: 422", HookEvent::Test, true),
        ("create configmaps/h: 403", HookEvent::Test, true),
        ("create configmaps/h: 500", HookEvent::Test, false),
        // The release cannot go on without any other hook; it is tried again.
        ("create configmaps/h: 422", HookEvent::PostInstall, false),
    ];
    for (line, event, failed) in table {
        let fixture = Fixture::new();
        let once = DeletePolicy::BeforeHookCreation;
        let hooks = vec![hook("h", event.clone(), 0, once)];
        let mut stored = stored(1, Status::Deployed, &[], hooks);
        let mut lines = format!("record 1 deployed, read configmaps/h: 404, {line}");
        if failed {
            lines.push_str(", record 1 deployed");
        }
        let mut live = Live::default();
        let ended = fixture.hooks(&mut live, &mut stored, &event, &lines).await;
        let error = ended.unwrap_err();
        assert_eq!(error.reason() == "HookFailed", failed, "{line}: {error}");
        let phase = &stored.release.hooks[0].last_run.phase;
        assert_eq!(*phase == HookPhase::Failed, failed, "{line}: {phase:?}");
        if failed {
            let message = error.to_string();
            assert!(message.starts_with("test hook h failed: "), "{message}");
            assert!(message.contains("prod/h"), "{message}");
        }
    }
}

#[tokio::test]
async fn a_hook_deletes_nothing_that_belongs_to_others() {
    let others = json!({CR_LABEL: "another custom resource's"});
    // An object without an owner may come from the `helm` command.
    for (labels, deleted) in [(&others, false), (&json!({}), true)] {
        let fixture = Fixture::new();
        let mut live = Live::default();
        let once = DeletePolicy::BeforeHookCreation;
        let hooks = vec![hook("h", HookEvent::Test, 0, once)];
        let mut stored = stored(1, Status::Deployed, &[], hooks);
        fixture.expect("record 1 deployed");
        fixture.expect_read("configmaps/h", labelled("h", labels));
        let sent = if deleted {
            "delete configmaps/h"
        } else {
            "record 1 deployed"
        };
        let event = HookEvent::Test;
        let ended = fixture.hooks(&mut live, &mut stored, &event, sent).await;
        match ended {
            Ok(progress) => assert!(deleted && progress != ActionProgress::Done),
            Err(error) => {
                let message = error.to_string();
                assert!(!deleted, "{message}");
                assert!(message.contains("another custom resource"), "{message}");
            }
        }
    }
}

#[tokio::test]
async fn an_uninstall_leaves_hooks_that_are_kept_or_not_ours() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let mut stored = fixture.install(&mut live, &[]).await;
    let once = DeletePolicy::BeforeHookCreation;
    let ran = |name| {
        let mut hook = hook(name, HookEvent::PreInstall, 0, once.clone());
        hook.last_run.phase = HookPhase::Succeeded;
        hook
    };
    stored.release.hooks = vec![ran("theirs"), ran("kept"), ran("ours")];
    fixture.expect("record 1 uninstalling");
    fixture.expect_read("configmaps/theirs", labelled("theirs", &json!({})));
    let lines = "read configmaps/kept, read configmaps/ours, delete configmaps/ours, forget 1";
    fixture.uninstalls(&mut live, &mut stored, lines).await;
}

#[tokio::test]
async fn an_upgrade_stops_where_it_fails() {
    let rest = "read configmaps/gone, delete configmaps/gone, record 2 deployed";
    let forbidden = Err(("Forbidden", false));
    let unavailable = Err(("Unavailable", true));
    let immutable = Err(("ImmutableField", false));
    for (lines, rest, recreate, expected) in [
        // A missing permission: later kinds are not applied, and nothing is pruned.
        ("apply configmaps/c: 403", "", "", forbidden),
        // Kinds are applied one after the other.
        (
            "apply configmaps/c, create services/s: 403",
            "",
            "",
            forbidden,
        ),
        ("apply configmaps/c: 500", "", "", unavailable),
        // An immutable field: the object is read to name the change; it is deleted and created again only if its
        // kind is configured so.
        (
            "apply configmaps/c: 422, read configmaps/c",
            "",
            "Service",
            immutable,
        ),
        (
            "apply configmaps/c: 422, read configmaps/c, delete configmaps/c,
                create configmaps/c, create services/s",
            rest,
            "ConfigMap",
            Ok(()),
        ),
        // Changed by somebody else at the same time: only read.
        (
            "apply configmaps/c: 409, read configmaps/c",
            "",
            "",
            Err(("Contended", true)),
        ),
        // Gone: created again.
        (
            "apply configmaps/c: 409, read configmaps/c: 404, create configmaps/c,
                create services/s",
            rest,
            "",
            Ok(()),
        ),
        // Already the release's, as after a crash: applied.
        (
            "apply configmaps/c, create services/s: 409, read services/s,
                force services/s",
            rest,
            "",
            Ok(()),
        ),
        // A failure to prune is reported.
        (
            "apply configmaps/c, create services/s, read configmaps/gone,
                delete configmaps/gone: 403",
            "",
            "",
            forbidden,
        ),
        // Somebody else has changed the record.
        (
            "apply configmaps/c, create services/s, read configmaps/gone,
                delete configmaps/gone, record 2 deployed: 409",
            "",
            "",
            Err(("RecordChanged", true)),
        ),
    ] {
        let mut fixture = Fixture::new();
        fixture.recreate = vec![recreate.to_owned()];
        let mut live = Live::default();
        let before = ["configmaps/c", "configmaps/gone"];
        drop(fixture.install(&mut live, &before).await);
        let superseded = stored(1, Status::Superseded, &before, Vec::new());
        let lines = format!("{lines}, {rest}");
        let objects = ["configmaps/c", "services/s"];
        let mut stored = stored(2, Status::PendingUpgrade, &objects, Vec::new());
        let upgrade = after(superseded, &mut stored);
        let ended = fixture.deploy(&mut live, upgrade, &lines).await;
        assert_eq!(action_result(ended), expected, "{lines}");
    }
}

#[tokio::test]
async fn kinds_that_hold_other_objects_are_never_recreated() {
    let mut fixture = Fixture::new();
    fixture.recreate = vec!["Namespace".to_owned()];
    let mut live = Live::default();
    let objects = ["namespaces/made"];
    let previous = fixture.install(&mut live, &objects).await;
    let lines = "apply namespaces/made: 422, read namespaces/made";
    let mut stored = stored(2, Status::PendingUpgrade, &objects, Vec::new());
    let upgrade = after(previous, &mut stored);
    let ended = fixture.deploy(&mut live, upgrade, lines).await;
    assert_eq!(action_result(ended), Err(("ImmutableField", false)));
}

#[tokio::test]
async fn a_failed_uninstall_keeps_the_records() {
    for (lines, expected) in [
        ("record 1 uninstalling: 409", ("RecordChanged", true)),
        (
            "record 1 uninstalling, read deployments/d, delete deployments/d: 403",
            ("Forbidden", false),
        ),
        (
            "record 1 uninstalling, read deployments/d: 500",
            ("Unavailable", true),
        ),
        // An object that is already gone counts as deleted.
        (
            "record 1 uninstalling, read deployments/d, delete deployments/d: 409,
                read deployments/d: 404, read configmaps/c: 403",
            ("Forbidden", false),
        ),
    ] {
        let fixture = Fixture::new();
        let mut live = Live::default();
        let objects = ["configmaps/c", "deployments/d"];
        let mut stored = fixture.install(&mut live, &objects).await;
        let ended = fixture.uninstall(&mut live, &mut stored, lines).await;
        assert_eq!(action_result(ended), Err(expected), "{lines}");
    }
}

/// Puts a namespace into the objects of a record; it means nothing if their kinds are cluster-scoped.
fn in_namespace(mut stored: StoredRelease, namespace: &str) -> StoredRelease {
    let metadata = format!("metadata:\n  namespace: {namespace}\n");
    stored.release.manifest = stored.release.manifest.replace("metadata:\n", &metadata);
    stored
}

#[tokio::test]
async fn an_object_is_not_pruned_because_its_meaningless_namespace_changes() {
    for object in ["clusterroles/wide", "namespaces/wide"] {
        let fixture = Fixture::new();
        let mut live = Live::default();
        let previous = fixture.install(&mut live, &[object]).await;
        let lines = format!("apply {object}, record 2 deployed, record 1 superseded");
        let upgrade = stored(2, Status::PendingUpgrade, &[object], Vec::new());
        let mut upgrade = in_namespace(upgrade, "b");
        let upgrade = after(previous, &mut upgrade);
        fixture.deploys(&mut live, upgrade, &lines).await;

        // What a failed upgrade has applied is pruned by the rollback.
        let lines = format!("apply {object}, record 4 deployed");
        let failed = stored(3, Status::Failed, &[object], Vec::new());
        let mut rollback = stored(4, Status::PendingRollback, &[object], Vec::new());
        let rollback = Deployment {
            leftovers: vec![in_namespace(failed, "c")],
            ..deployment(&mut rollback)
        };
        fixture.deploys(&mut live, rollback, &lines).await;
    }
}

#[tokio::test]
async fn an_object_that_two_groups_serve_is_not_pruned() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let mut previous = fixture.install(&mut live, &["deployments/d"]).await;
    let manifest = previous
        .release
        .manifest
        .replace("apps/v1", "extensions/v1beta1");
    previous.release.manifest = manifest;
    fixture.expect("apply deployments/d");
    let unserved = json!("404 page not found");
    fixture
        .script
        .expect("GET /apis/extensions/v1beta1", 404, unserved);
    let rest = "read deployments/d, record 2 deployed, record 1 superseded";
    let mut upgrade = stored(2, Status::PendingUpgrade, &["deployments/d"], Vec::new());
    let upgrade = after(previous, &mut upgrade);
    fixture.deploys(&mut live, upgrade, rest).await;
}

#[tokio::test]
async fn a_rollback_applies_objects_of_removed_api_versions_in_the_version_that_replaced_them() {
    for (status, expected) in [
        (Status::PendingRollback, Ok(())),
        // A chart has to render what the cluster serves.
        (Status::PendingUpgrade, Err(("UnknownKind", false))),
    ] {
        let fixture = Fixture::new();
        let mut live = Live::default();
        let mut good = fixture.install(&mut live, &["deployments/d"]).await;
        let removed = |manifest: &str| manifest.replace("apps/v1", "apps/v1beta1");
        good.release.manifest = removed(&good.release.manifest);
        let failed = stored(2, Status::Failed, &["deployments/d"], Vec::new());
        let mut third = stored(3, status, &["deployments/d"], Vec::new());
        let manifest = removed(&third.release.manifest);
        // No version replaces this one.
        let policy =
            "\n---\napiVersion: policy/v1beta1\nkind: PodSecurityPolicy\nmetadata: {name: p}\n";
        third.release.manifest = format!("{manifest}{policy}");
        for path in ["GET /apis/apps/v1beta1", "GET /apis/policy/v1beta1"] {
            let unserved = json!("404 page not found");
            fixture.script.expect(path, 404, unserved);
        }
        let lines = match expected {
            Ok(()) => "apply deployments/d, record 3 deployed, record 1 superseded",
            Err(_) => "",
        };
        let deployment = Deployment {
            leftovers: vec![failed],
            ..after(good, &mut third)
        };
        let ended = fixture.deploy(&mut live, deployment, lines).await;
        assert_eq!(action_result(ended), expected);
        let manifest = &third.release.manifest;
        assert!(manifest.contains("apps/v1beta1"), "{manifest}");
    }
}

#[tokio::test]
async fn an_uninstall_and_a_pruning_wait_until_it_is_known_what_the_cluster_serves() {
    let is_discovery = |path: &str| path == "/api" || path == "/apis";
    for code in [403, 404, 500] {
        let fixture = Fixture::new();
        let faults = fixture.script.faults();
        faults.inject_with(move |r| is_discovery(&r.path).then_some(Fault::Status(code)));
        let mut live = Live::default();
        let objects = ["configmaps/c"];
        let mut uninstalling = stored(1, Status::Deployed, &objects, Vec::new());
        let context = fixture.context();
        fixture.expect("record 1 uninstalling");
        let ended = uninstall(&context, &mut live, &mut uninstalling, &[], false, "").await;
        assert!(action_result(ended).unwrap_err().1, "{code}");
        let leftover = stored(2, Status::Failed, &objects, Vec::new());
        let pruned = prune_leftover(&context, &mut live, &leftover, &[]).await;
        assert!(pruned.unwrap_err().is_transient(), "{code}");
        fixture.assert_sent("record 1 uninstalling");

        faults.clear_faults();
        let lines = "read configmaps/c, delete configmaps/c, forget 1";
        fixture
            .uninstalls(&mut live, &mut uninstalling, lines)
            .await;
    }
}

#[tokio::test]
async fn of_an_object_that_is_rendered_twice_the_last_one_is_applied() {
    let fixture = Fixture::new();
    let mut live = Live::default();
    let objects = ["configmaps/c", "configmaps/c", "clusterroles/r"];
    let mut twice = stored(1, Status::PendingInstall, &objects, Vec::new());
    let last = document("configmaps/c", "last");
    twice.release.manifest += &last;
    twice.release.manifest += &document("clusterroles/r", "last");
    let lines = "create configmaps/c, create clusterroles/r, record 1 deployed";
    let deployment = deployment(&mut twice);
    fixture.deploys(&mut live, deployment, lines).await;
    let sent = fixture.script.finish();
    for request in &sent[..2] {
        assert_eq!(request.json()["metadata"]["annotations"]["mark"], "last");
    }
    let remarks = live.take_remarks();
    assert_eq!(remarks.len(), 2, "{remarks:?}");
    for remark in remarks {
        assert_eq!(remark.reason, EventReason::RenderedTwice);
    }
}
