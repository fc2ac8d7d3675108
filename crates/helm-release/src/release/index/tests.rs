//! Tests of the index with lists, watch events and own writes.

use super::*;
use crate::release::meta::Format;
use helm_core::release::Status;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use serde_json::json;

fn record(revision: u32, status: &str, version: u64) -> ObjectMeta {
    serde_json::from_value(json!({
        "name": format!("sh.helm.release.v1.web.v{revision}"), "namespace": "prod",
        "uid": format!("uid-{revision}"), "resourceVersion": version.to_string(),
        "labels": {"owner": "helm", "status": status,
                   "helm.sdk.operatorframework.io/cr": "me"}}))
    .unwrap()
}

fn meta(revision: u32, status: &str, version: u64) -> RecordMeta {
    RecordMeta::of(&record(revision, status, version), Format::Helm).unwrap()
}

/// Revisions passed to a listener, and whether they were deleted.
type Changes = Arc<Mutex<Vec<(u32, bool)>>>;

fn index() -> (ReleaseIndex, Changes) {
    let index = ReleaseIndex::new();
    let changes = Changes::default();
    let recorded = Arc::clone(&changes);
    index.on_change(move |change| {
        recorded
            .lock()
            .push((change.record.revision.0, change.gone));
    });
    (index, changes)
}

fn list(index: &ReleaseIndex, records: &[ObjectMeta]) {
    index.apply(None, Event::Init);
    for record in records {
        index.apply(None, Event::InitApply(record.clone()));
    }
    index.apply(None, Event::InitDone);
}

fn statuses(index: &ReleaseIndex) -> Vec<(u32, Status)> {
    let history = index.history("prod", &"web".parse().unwrap());
    history
        .iter()
        .map(|meta| (meta.revision.0, meta.status))
        .collect()
}

#[test]
fn history_follows_lists_and_events() {
    let (index, changes) = index();
    assert_eq!(index.state(), IndexState::Starting);
    list(
        &index,
        &[record(10, "deployed", 5), record(9, "superseded", 4)],
    );
    assert_eq!(index.state(), IndexState::Synced);
    let expected = [(9, Status::Superseded), (10, Status::Deployed)];
    assert_eq!(statuses(&index), expected);
    assert_eq!(index.records_of(&CrIdentity::from_label("me")).len(), 2);
    index.apply(None, Event::Apply(record(10, "superseded", 6)));
    index.apply(None, Event::Apply(record(11, "deployed", 7)));
    index.apply(None, Event::Delete(record(9, "superseded", 8)));
    let expected = [(10, Status::Superseded), (11, Status::Deployed)];
    assert_eq!(statuses(&index), expected);
    let changes = changes.lock();
    let expected = [(10, false), (9, false), (10, false), (11, false), (9, true)];
    assert_eq!(*changes, expected);
}

#[test]
fn own_writes_are_visible_at_once_and_not_notified() {
    let (index, changes) = index();
    list(&index, &[]);
    index.written(meta(1, "pending-install", 5));
    assert_eq!(statuses(&index), [(1, Status::PendingInstall)]);
    index.written(meta(1, "deployed", 7));
    index.apply(None, Event::Apply(record(1, "pending-install", 5)));
    assert_eq!(statuses(&index), [(1, Status::Deployed)]);
    index.apply(None, Event::Apply(record(1, "deployed", 7)));
    index.removed(&meta(1, "deployed", 7));
    index.apply(None, Event::Apply(record(1, "deployed", 7)));
    assert_eq!(statuses(&index), []);
    index.apply(None, Event::Delete(record(1, "deployed", 8)));
    assert_eq!(statuses(&index), []);
    assert!(changes.lock().is_empty());
}

#[test]
fn list_that_began_before_an_own_write_does_not_undo_it() {
    let (index, _) = index();
    list(&index, &[]);
    index.apply(None, Event::Init);
    index.written(meta(1, "pending-install", 5));
    index.apply(None, Event::InitDone);
    assert_eq!(statuses(&index), [(1, Status::PendingInstall)]);
    // The next list began after the write, so a record that it lacks is deleted.
    list(&index, &[]);
    assert_eq!(statuses(&index), []);
}

#[test]
fn list_that_began_before_an_own_deletion_does_not_restore_the_record() {
    let (index, _) = index();
    list(&index, &[record(1, "deployed", 5)]);
    index.apply(None, Event::Init);
    index.removed(&meta(1, "deployed", 5));
    index.apply(None, Event::InitApply(record(1, "deployed", 5)));
    index.apply(None, Event::InitDone);
    assert_eq!(statuses(&index), []);
    index.apply(None, Event::Delete(record(1, "deployed", 6)));
    list(&index, &[]);
    assert!(index.read(|inner| inner.deleted.is_empty()));
}

#[test]
fn relist_removes_records_deleted_meanwhile() {
    let (index, changes) = index();
    list(
        &index,
        &[record(1, "superseded", 1), record(2, "deployed", 2)],
    );
    changes.lock().clear();
    list(&index, &[record(2, "deployed", 2)]);
    assert_eq!(statuses(&index), [(2, Status::Deployed)]);
    assert_eq!(*changes.lock(), [(1, true)]);
}

#[test]
fn recreated_record_replaces_the_old_one() {
    let (index, _) = index();
    list(&index, &[record(1, "deployed", 5)]);
    let mut recreated = record(1, "pending-install", 9);
    recreated.uid = Some("other".to_owned());
    index.apply(None, Event::Apply(recreated));
    index.apply(None, Event::Delete(record(1, "deployed", 8)));
    assert_eq!(statuses(&index), [(1, Status::PendingInstall)]);
}

#[test]
fn index_is_synced_when_all_scopes_are() {
    let (index, _) = index();
    index.expect(Some("a"));
    index.expect(Some("b"));
    index.apply(Some("a"), Event::Init);
    index.apply(Some("a"), Event::InitDone);
    assert_eq!(index.state(), IndexState::Starting);
    index.fail(Some("b"), &WatchState::Forbidden("no".to_owned()));
    assert_eq!(index.state(), IndexState::Forbidden("no".to_owned()));
    index.apply(Some("b"), Event::Init);
    index.apply(Some("b"), Event::InitDone);
    assert_eq!(index.state(), IndexState::Synced);
}

#[test]
fn list_of_one_namespace_keeps_records_of_others() {
    let (index, _) = index();
    index.apply(Some("prod"), Event::Init);
    index.apply(Some("prod"), Event::InitApply(record(1, "deployed", 5)));
    index.apply(Some("prod"), Event::InitDone);
    index.apply(Some("test"), Event::Init);
    index.apply(Some("test"), Event::InitDone);
    assert_eq!(statuses(&index), [(1, Status::Deployed)]);
}

/// Returns a part as seen by a watch.
fn part(set: &str, number: u32) -> ObjectMeta {
    serde_json::from_value(json!({
        "name": format!("release-part.web.v1.{set}.{number}"), "namespace": "prod",
        "uid": format!("part-{set}-{number}"), "resourceVersion": "3",
        "labels": {"owner": "hybrid-operator",
                   "helm.sdk.operatorframework.io/part-of-release": "web",
                   "helm.sdk.operatorframework.io/parts": format!("1-2-{set}"),
                   "helm.sdk.operatorframework.io/cr": "me"}}))
    .unwrap()
}

fn parts(index: &ReleaseIndex) -> Vec<String> {
    let parts = index.parts("prod", &"web".parse().unwrap());
    parts.into_iter().map(|part| part.secret).collect()
}

#[test]
fn parts_are_known_from_the_watch_and_from_own_writes() {
    let (index, changes) = index();
    list(&index, &[record(1, "deployed", 5), part("aa", 0)]);
    index.apply(None, Event::Apply(part("aa", 1)));
    let names = ["release-part.web.v1.aa.0", "release-part.web.v1.aa.1"];
    assert_eq!(parts(&index), names);
    assert_eq!(index.parts_of(&CrIdentity::from_label("me")).len(), 2);
    assert!(index.parts_of(&CrIdentity::from_label("other")).is_empty());
    assert_eq!(statuses(&index), [(1, Status::Deployed)]);

    let own = PartMeta::of(&part("bb", 0)).unwrap();
    index.part_written(own.clone());
    assert_eq!(parts(&index).len(), 3);
    index.part_removed(&own);
    // The watch lags behind the own deletion.
    index.apply(None, Event::Apply(part("bb", 0)));
    assert_eq!(parts(&index), names);
    index.apply(None, Event::Delete(part("aa", 0)));
    assert_eq!(parts(&index), names[1..]);
    list(&index, &[record(1, "deployed", 5)]);
    assert!(parts(&index).is_empty());
    // Listeners are not notified of parts.
    assert_eq!(*changes.lock(), [(1, false)]);
}

#[test]
fn watch_event_of_an_own_write_before_its_response_is_not_notified() {
    let (index, changes) = index();
    list(&index, &[]);
    let secrets = || vec!["sh.helm.release.v1.web.v1".to_owned()];
    let own = index.writing("prod", secrets());
    index.apply(None, Event::Apply(record(1, "pending-install", 5)));
    assert_eq!(statuses(&index), [(1, Status::PendingInstall)]);
    index.written(meta(1, "pending-install", 5));
    drop(own);
    let own = index.writing("prod", secrets());
    index.apply(None, Event::Delete(record(1, "pending-install", 6)));
    index.removed(&meta(1, "pending-install", 5));
    drop(own);
    assert_eq!(statuses(&index), []);
    assert!(changes.lock().is_empty());
}

#[test]
fn deletion_by_others_before_the_answer_of_an_own_write_counts() {
    let (index, changes) = index();
    list(&index, &[record(1, "pending-install", 5)]);
    changes.lock().clear();
    let own = index.writing("prod", vec!["sh.helm.release.v1.web.v1".to_owned()]);
    index.apply(None, Event::Apply(record(1, "deployed", 6)));
    index.apply(None, Event::Delete(record(1, "deployed", 7)));
    index.written(meta(1, "deployed", 6));
    drop(own);
    assert_eq!(statuses(&index), []);
    assert_eq!(*changes.lock(), [(1, true)]);
}

#[test]
fn record_that_was_read_before_others_let_it_go_is_gone() {
    let (index, _) = index();
    list(&index, &[record(1, "deployed", 5)]);
    index.removed(&meta(1, "deployed", 5));
    let read = index.writing("prod", vec!["sh.helm.release.v1.web.v1".to_owned()]);
    index.apply(None, Event::Delete(record(1, "deployed", 7)));
    index.written(meta(1, "deployed", 6));
    drop(read);
    assert_eq!(statuses(&index), []);
}

#[test]
fn change_by_others_during_an_own_write_is_notified_after_it() {
    let (index, changes) = index();
    list(&index, &[record(1, "deployed", 5)]);
    changes.lock().clear();
    let own = index.writing("prod", vec!["sh.helm.release.v1.web.v1".to_owned()]);
    index.apply(None, Event::Apply(record(1, "deployed", 6)));
    index.apply(None, Event::Apply(record(1, "uninstalled", 7)));
    // Events of other records are not held back.
    index.apply(None, Event::Apply(record(2, "deployed", 8)));
    assert_eq!(*changes.lock(), [(2, false)]);
    index.written(meta(1, "deployed", 6));
    assert_eq!(changes.lock().len(), 1);
    drop(own);
    assert_eq!(*changes.lock(), [(2, false), (1, false)]);
    let expected = [(1, Status::Uninstalled), (2, Status::Deployed)];
    assert_eq!(statuses(&index), expected);
    // If the response to a write is lost, the watch event is notified.
    let own = index.writing("prod", vec!["sh.helm.release.v1.web.v2".to_owned()]);
    index.apply(None, Event::Apply(record(2, "superseded", 9)));
    drop(own);
    assert_eq!(changes.lock().len(), 3);
}

#[test]
fn all_listeners_are_notified() {
    let (index, first) = index();
    let second = Changes::default();
    let recorded = Arc::clone(&second);
    index.on_change(move |change| {
        recorded
            .lock()
            .push((change.record.revision.0, change.gone));
    });
    list(&index, &[record(1, "deployed", 5)]);
    assert_eq!(*first.lock(), [(1, false)]);
    assert_eq!(*second.lock(), [(1, false)]);
}

#[test]
fn record_age_is_measured_by_the_local_clock_since_its_state_was_first_seen() {
    let index = ReleaseIndex::new();
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    let age = |meta: &RecordMeta, seconds| index.seen_for(meta, after(seconds)).as_secs();
    // The clock of the writer may be ahead or behind.
    for created in ["4102444800", "60"] {
        let mut pending = record(1, "pending-upgrade", 5);
        let labels = pending.labels.as_mut().unwrap();
        labels.insert("createdAt".to_owned(), created.to_owned());
        let meta = RecordMeta::of(&pending, Format::Helm).unwrap();
        index.apply_at(None, Event::Init, start);
        index.apply_at(None, Event::InitApply(pending.clone()), start);
        index.apply_at(None, Event::InitDone, start);
        assert_eq!(age(&meta, 40), 40, "{created}");
        // Seen again, in the same state.
        index.apply_at(None, Event::Apply(pending), after(30));
        assert_eq!(age(&meta, 40), 40, "{created}");
    }
    let known = meta(1, "pending-upgrade", 5);
    // The writer has updated the record.
    index.apply_at(
        None,
        Event::Apply(record(1, "pending-upgrade", 6)),
        after(50),
    );
    assert_eq!(age(&known, 60), 0, "an outdated state");
    assert_eq!(age(&meta(1, "pending-upgrade", 6), 60), 10);
    assert_eq!(age(&meta(1, "pending-upgrade", 6), 20), 0);
    assert_eq!(age(&meta(9, "pending-upgrade", 6), 60), 0, "unknown");
}
