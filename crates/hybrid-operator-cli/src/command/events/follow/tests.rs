use std::cell::{Cell, RefCell};
use std::collections::HashSet;

use hybrid_operator_test::fault::{Fault, Faults};
use hybrid_operator_test::{TestNamespace, shared_or_skip};
use kube::api::PostParams;
use serde_json::json;

use super::*;

fn event(namespace: &str, name: &str, object: &str, count: i32) -> Event {
    let event = json!({
        "metadata": {"name": name, "namespace": namespace, "uid": name},
        "involvedObject": {"kind": "Pod", "name": object, "namespace": namespace, "uid": object},
        "count": count, "reason": name, "type": "Normal",
        "lastTimestamp": format!("2026-01-01T00:00:{count:02}Z"),
    });
    serde_json::from_value(event).unwrap()
}

fn about(namespace: &str, objects: &[&str]) -> About {
    About {
        namespaces: BTreeSet::from([namespace.to_owned()]),
        uids: objects.iter().map(|name| (*name).to_owned()).collect(),
        names: HashSet::new(),
    }
}

fn reasons(rows: &[Row]) -> Vec<(&str, i32)> {
    let rows = rows.iter();
    rows.map(|row| (row.reason.as_str(), row.count)).collect()
}

#[test]
fn each_event_is_printed_once_even_if_it_is_listed_again() {
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    let now = Instant::now();
    let mut view = View::new(about("n", &["own"]));
    let mut apply = |event| view.apply("n", event, now);
    assert!(apply(Init).is_empty());
    assert!(apply(InitApply(event("n", "late", "own", 9))).is_empty());
    assert!(apply(InitApply(event("n", "early", "own", 1))).is_empty());
    assert_eq!(reasons(&apply(InitDone)), [("early", 1), ("late", 9)]);
    assert!(apply(Apply(event("n", "late", "own", 9))).is_empty());
    for count in [1, 2] {
        let new = apply(Apply(event("n", "new", "own", count)));
        assert_eq!(reasons(&new), [("new", count)]);
    }
    assert!(apply(Delete(event("n", "early", "own", 1))).is_empty());
    // The watch begins again, as after 410 Gone.
    assert!(apply(Init).is_empty());
    for (name, count) in [("late", 9), ("new", 3), ("missed", 1)] {
        assert!(apply(InitApply(event("n", name, "own", count))).is_empty());
    }
    assert_eq!(reasons(&apply(InitDone)), [("missed", 1), ("new", 3)]);
}

#[test]
fn the_first_lists_of_all_namespaces_are_printed_in_one_order() {
    use watcher::Event::{InitApply, InitDone};
    let now = Instant::now();
    let mut whose = about("a", &["own"]);
    whose.namespaces.insert("b".to_owned());
    let mut view = View::new(whose);
    drop(view.apply("b", InitApply(event("b", "second", "own", 2)), now));
    assert!(view.apply("b", InitDone, now).is_empty());
    assert!(view.is_first());
    drop(view.apply("a", InitApply(event("a", "first", "own", 1)), now));
    let rows = view.apply("a", InitDone, now);
    assert_eq!(reasons(&rows), [("first", 1), ("second", 2)]);
    assert!(!view.is_first());
}

#[test]
fn events_about_unknown_objects_wait_until_these_are_looked_up() {
    use watcher::Event::{Apply, InitDone};
    let now = Instant::now();
    let mut view = View::new(about("n", &["own"]));
    drop(view.apply("n", InitDone, now));
    for object in ["pod", "other"] {
        let rows = view.apply("n", Apply(event("n", object, object, 1)), now);
        assert!(rows.is_empty(), "{object}");
    }
    assert_eq!(view.look_up_at, Some(now + GATHER));
    let rows = view.looked_up(Some(about("n", &["own", "pod"])), now);
    assert_eq!(reasons(&rows), [("pod", 1)]);
    assert_eq!(view.look_up_at, None);
    // The object of another release is not looked up again for a while.
    drop(view.apply("n", Apply(event("n", "other", "other", 2)), now));
    assert_eq!(view.look_up_at, None);
    let later = now + FORGET;
    drop(view.apply("n", Apply(event("n", "other", "other", 3)), later));
    assert_eq!(view.look_up_at, Some(later + GATHER));
}

#[tokio::test]
async fn a_watch_that_the_server_ends_with_410_goes_on_without_gaps_or_repeats() {
    let Some(plane) = shared_or_skip().await.unwrap() else {
        return;
    };
    let namespace = TestNamespace::create(plane, "cli-events").await.unwrap();
    let name = namespace.name();
    let api: Api<Event> = Api::namespaced(namespace.client(), name);
    let create = async |event_name: &str| {
        let event = event(name, event_name, "own", 1);
        drop(api.create(&PostParams::default(), &event).await.unwrap());
    };
    create("before").await;
    let faults = Faults::new();
    let mut refused = 0;
    faults.inject_with(move |request| {
        if request.verb == "watch" && refused < 2 {
            refused += 1;
            return Some(Fault::Status(410));
        }
        None
    });
    let cluster = Cluster::of(plane.client_with(&faults).await.unwrap());
    let printed = RefCell::new(Vec::new());
    let (known, created) = (|| about(name, &["own"]), Cell::new(false));
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let sender = Cell::new(Some(sender));
    let mut print = |row: &Row| {
        printed.borrow_mut().push(row.reason.clone());
        if row.reason == "after" {
            drop(sender.take());
        }
        Ok(())
    };
    let end = async {
        let watched = async || {
            faults
                .requests()
                .iter()
                .filter(|r| r.verb == "watch")
                .count()
                > 2
        };
        let limit = Duration::from_mins(1);
        hybrid_operator_test::wait::until(limit, "a third watch", watched)
            .await
            .unwrap();
        create("after").await;
        created.set(true);
        // Ends when the event has been printed.
        let _: Result<(), _> = tokio::time::timeout(limit, receiver).await.unwrap();
    };
    let read = async || Ok(known());
    run(&cluster, known(), read, &mut print, end).await.unwrap();
    assert!(created.get());
    assert_eq!(*printed.borrow(), ["before", "after"]);
}
