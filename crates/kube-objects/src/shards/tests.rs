//! Tests of ranges, and of joining and leaving them.

use futures::StreamExt;
use futures::channel::mpsc;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use serde_json::json;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::watch::follow::Events;
use hybrid_operator_test::scripted::Script;

#[test]
fn hashes_are_fnv_1a_as_those_of_the_api_server() {
    // From Go's hash/fnv.
    for (namespace, hash) in [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c)] {
        let mut hasher = FnvHasher::default();
        hasher.write(namespace.as_bytes());
        assert_eq!(hasher.finish(), hash);
    }
    assert_eq!(range_of(4, None), 3);
    assert_eq!(range_of(4, Some("a")), 2);
}

#[test]
fn every_namespace_is_in_the_range_whose_bounds_contain_its_hash() {
    for count in 1..10 {
        assert_eq!((start_of(count, 0), start_of(count, count)), (0, 1 << 64));
        let mut used = BTreeSet::new();
        for number in 0..200 {
            let namespace = format!("{number}-team");
            let mut hasher = FnvHasher::default();
            hasher.write(namespace.as_bytes());
            let hash = u128::from(hasher.finish());
            let index = range_of(count, Some(&namespace));
            assert!(start_of(count, index) <= hash && hash < start_of(count, index + 1));
            used.insert(index);
        }
        assert_eq!(used.len(), usize::try_from(count).unwrap());
    }
    let halves = Selection {
        count: 2,
        ranges: BTreeSet::from([0, 1]),
        ..Selection::default()
    };
    assert_eq!(
        halves.selector(),
        "shardRange(object.metadata.namespace, '0x0000000000000000', '0x8000000000000000') || shardRange(object.metadata.namespace, '0x8000000000000000', '0x10000000000000000')"
    );
}

#[tokio::test(start_paused = true)]
async fn a_range_is_left_once_nothing_of_it_is_processed() {
    let shards = Shards::of(4);
    assert!(shards.begin(Some("a")).is_none());
    shards.join(2);
    assert!(shards.begin(None).is_none());
    let permit = shards.begin(Some("a")).unwrap();
    let leaving = tokio::spawn({
        let shards = shards.clone();
        async move { shards.leave(2).await }
    });
    tokio::task::yield_now().await;
    assert!(shards.begin(Some("a")).is_none());
    assert!(!leaving.is_finished());
    drop(permit);
    leaving.await.unwrap();
    assert!(shards.0.unwrap().state.lock().ranges.is_empty());
    // One process handles all.
    assert!(Shards::default().begin(Some("a")).is_some());
}

/// Lists of a watch, sent by the test.
type Feed = mpsc::UnboundedSender<Result<Event<ObjectMeta>, kube::runtime::watcher::Error>>;

/// Opens a watch of the share, and passes the feed of each stream that it opens to the test.
fn watch(
    shards: &Shards,
    by: By,
    is_required: bool,
) -> (Events<ObjectMeta>, mpsc::UnboundedReceiver<Feed>) {
    let (opened, feeds) = mpsc::unbounded();
    let share = Share {
        shards: shards.clone(),
        by,
        is_required,
    };
    let open = move |_: &kube::Client| -> Events<ObjectMeta> {
        let (feed, events) = mpsc::unbounded();
        opened.unbounded_send(feed).unwrap();
        events.boxed()
    };
    let events = share.events(&Script::default().client(), open, |metadata| metadata);
    (events, feeds)
}

fn metadata(namespace: &str, owner: Option<&str>) -> ObjectMeta {
    let mut metadata = json!({"name": "x", "namespace": namespace});
    if let Some(owner) = owner {
        metadata["annotations"] = json!({
            "operator-sdk/primary-resource": format!("{owner}/x"),
            "operator-sdk/primary-resource-type": "Widget.example.com",
        });
    }
    serde_json::from_value(metadata).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_range_is_held_once_every_required_watch_has_listed_it() {
    let shards = Shards::of(4);
    let held = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&held);
    shards.on_held(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    shards.join(3);
    assert_eq!(held.load(Ordering::Relaxed), 1);
    let (mut events, mut feeds) = watch(&shards, By::Namespace, true);
    let (mut other, mut other_feeds) = watch(&shards, By::Owner, false);
    for (events, feeds) in [(&mut events, &mut feeds), (&mut other, &mut other_feeds)] {
        assert!(futures::poll!(events.next()).is_pending());
        let feed = feeds.next().await.unwrap();
        feed.unbounded_send(Ok(Event::InitDone)).unwrap();
        assert!(matches!(events.next().await, Some(Ok(Event::InitDone))));
        assert!(futures::poll!(events.next()).is_pending());
    }
    shards.join(2);
    assert_eq!(shards.joining(), [2]);
    // The watches are opened again, with a fresh list.
    assert!(futures::poll!(events.next()).is_pending());
    assert!(futures::poll!(other.next()).is_pending());
    let feed = feeds.next().await.unwrap();
    for event in [
        Event::InitApply(metadata("a", None)),
        // Of range 0.
        Event::InitApply(metadata("b2", None)),
        Event::InitDone,
    ] {
        feed.unbounded_send(Ok(event)).unwrap();
    }
    assert_eq!(range_of(4, Some("b2")), 0);
    assert!(
        matches!(events.next().await, Some(Ok(Event::InitApply(object))) if object.namespace.as_deref() == Some("a"))
    );
    assert!(matches!(events.next().await, Some(Ok(Event::InitDone))));
    assert!(shards.begin(Some("a")).is_none());
    // The follower has the list when it asks for more.
    assert!(futures::poll!(events.next()).is_pending());
    assert_eq!(shards.joining(), [2]);
    // A watch that is not required, and fails.
    let feed = other_feeds.next().await.unwrap();
    feed.unbounded_send(Err(kube::runtime::watcher::Error::NoResourceVersion))
        .unwrap();
    assert!(matches!(other.next().await, Some(Err(_))));
    assert!(shards.joining().is_empty());
    assert!(shards.begin(Some("a")).is_some());
    assert_eq!(held.load(Ordering::Relaxed), 2);
    // Objects of owners in a range, wherever they are.
    for event in [
        Event::Apply(metadata("b2", Some("a"))),
        Event::Apply(metadata("a", Some("b2"))),
        Event::Apply(metadata("b2", None)),
    ] {
        feed.unbounded_send(Ok(event)).unwrap();
    }
    for owned in [true, false] {
        let Some(Ok(Event::Apply(object))) = other.next().await else {
            panic!("no event")
        };
        assert_eq!(
            (object.namespace.as_deref(), object.annotations.is_some()),
            (Some("b2"), owned)
        );
    }
}
