//! The loop with scripted streams. Time is paused, so that waits take none.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use futures::stream;
use kube::core::{GroupVersionKind, Status};
use tokio::time::timeout;
use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

use super::*;

/// What a stream does next.
enum Item {
    Event(watcher::Event<&'static str>),
    Error(watcher::Error),
    /// The object cannot be decoded without a panic.
    Panic,
    End,
    /// Nothing for so many seconds.
    Pause(u64),
}

use Item::{End, Error, Event, Panic, Pause};

/// A complete list of one object.
fn list() -> Vec<Item> {
    vec![Event(Init), Event(InitApply("a")), Event(InitDone)]
}

fn with(mut items: Vec<Item>, more: impl IntoIterator<Item = Item>) -> Vec<Item> {
    items.extend(more);
    items
}

fn api(code: u16) -> kube::Error {
    kube::Error::Api(Status::failure("no", "Reason").with_code(code).boxed())
}

/// Writes down what it is told, and panics at `poison` as often as asked.
struct Scribe {
    told: Arc<Mutex<Vec<String>>>,
    panics: usize,
}

impl Scribe {
    fn tell(&self, what: impl Into<String>) {
        self.told.lock().unwrap().push(what.into());
    }
}

impl Follower for Scribe {
    type Object = &'static str;

    fn event(&mut self, event: watcher::Event<&'static str>) {
        let what = match event {
            Init => "init".to_owned(),
            InitApply("poison") | Apply("poison") if self.panics > 0 => {
                self.panics -= 1;
                panic!("poisoned");
            }
            InitApply(name) | Apply(name) => format!("+{name}"),
            Delete(name) => format!("-{name}"),
            InitDone => "done".to_owned(),
        };
        self.tell(what);
    }

    fn state(&mut self, state: &WatchState) {
        self.tell(format!("{state:?}"));
    }

    fn distrust(&mut self) {
        self.tell("distrust");
    }
}

/// What came of a script.
struct Played {
    /// Events and states, in order.
    told: Vec<String>,
    /// How and when each stream was opened.
    opened: Vec<(Lists, Duration)>,
    metrics: WatchMetrics,
}

impl Played {
    fn states(&self) -> Vec<&str> {
        let states = self.told.iter().map(String::as_str);
        states
            .filter(|told| told.starts_with(char::is_uppercase))
            .collect()
    }
}

fn subject() -> Subject {
    let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
    Subject::new(ApiResource::from_gvk(&kind), Some("n"))
}

/// Follows streams that do what the scripts say, one after the other, and then nothing.
async fn play(lists: Lists, panics: usize, scripts: Vec<Vec<Item>>) -> Played {
    let told = Arc::new(Mutex::new(Vec::new()));
    let opened = Arc::new(Mutex::new(Vec::new()));
    let metrics = WatchMetrics::default();
    let scripts = Mutex::new(VecDeque::from(scripts));
    let (began, openings) = (Instant::now(), Arc::clone(&opened));
    let open = move |lists| -> Events<&'static str> {
        openings.lock().unwrap().push((lists, began.elapsed()));
        let items = scripts.lock().unwrap().pop_front().unwrap_or_default();
        let ends = matches!(items.last(), Some(End));
        let items = stream::iter(items).filter_map(async |item| match item {
            Event(event) => Some(Ok(event)),
            Error(error) => Some(Err(error)),
            Panic => panic!("cannot decode"),
            End => None,
            Pause(seconds) => {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                None
            }
        });
        if ends {
            items.boxed()
        } else {
            items.chain(stream::pending()).boxed()
        }
    };
    let scribe = Scribe {
        told: Arc::clone(&told),
        panics,
    };
    let followed = follow(subject(), metrics.clone(), lists, open, scribe);
    timeout(Duration::from_hours(1), followed)
        .await
        .expect_err("it never ends by itself");
    Played {
        told: std::mem::take(&mut *told.lock().unwrap()),
        opened: std::mem::take(&mut *opened.lock().unwrap()),
        metrics,
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_panics_gets_a_fresh_list() {
    let again = vec![Event(Init), Event(InitApply("poison")), Event(InitDone)];
    let scripts = vec![
        with(list(), [Event(Apply("poison")), Event(Apply("lost"))]),
        again,
    ];
    let played = play(Lists::Paged, 1, scripts).await;
    let failing = "Failing(\"internal error: poisoned\")";
    let expected = [
        "init", "+a", "done", "Synced", "distrust", failing, "init", "+poison", "done", "Synced",
    ];
    assert_eq!(played.told, expected);
    assert_eq!(played.metrics.restarts("Widget", "panic"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_list_is_tried_again_ever_more_rarely_and_never_counts_as_synced() {
    let poisoned = || vec![Event(Init), Event(InitApply("poison")), Event(InitDone)];
    let scripts = (0..21).map(|_| poisoned()).collect();
    let played = play(Lists::Paged, 20, scripts).await;
    let failing = "Failing(\"internal error: poisoned\")";
    // It is told once, until the last list is taken in as a whole.
    assert_eq!(played.states(), [failing, "Synced"]);
    assert_eq!(played.metrics.restarts("Widget", "panic"), 20);
    let last = played.opened[20].1.abs_diff(played.opened[19].1);
    assert!(last > Duration::from_secs(20), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_and_a_stream_that_ends_do_not_stop_the_watch() {
    for (trouble, cause) in [(Panic, "panic"), (End, "end")] {
        let played = play(Lists::Paged, 0, vec![with(list(), [trouble]), list()]).await;
        assert_eq!(played.states().len(), 3, "{:?}", played.told);
        assert_eq!(played.states()[2], "Synced");
        assert_eq!(played.metrics.restarts("Widget", cause), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn states_are_told_as_they_change() {
    let forbidden =
        |verb: &str| format!("Forbidden(\"{verb} widgets.example.com in namespace n\")");
    let failing = format!("Failing({:?})", InitialListFailed(api(500)).to_string());
    let status = || Status::failure("no", "Forbidden").with_code(403).boxed();
    for (what, scripts, states, opened) in [
        ("all is well", vec![list()], vec![], 1),
        (
            "may not be listed, and then may",
            vec![vec![Error(InitialListFailed(api(403)))], list()],
            vec![forbidden("list")],
            2,
        ),
        (
            "may no longer be watched after the first list, and then may again",
            vec![with(list(), [Error(WatchStartFailed(api(403)))]), list()],
            vec!["Synced".to_owned(), forbidden("watch")],
            2,
        ),
        (
            "the watch itself says that it is not permitted",
            vec![with(list(), [Error(WatchError(status()))]), list()],
            vec!["Synced".to_owned(), forbidden("watch")],
            2,
        ),
        (
            "the kind is gone, and comes again",
            vec![with(list(), [Error(WatchStartFailed(api(404)))]), list()],
            vec!["Synced".to_owned(), "Missing".to_owned()],
            2,
        ),
        (
            "the first list fails twice and goes on",
            vec![with(
                vec![
                    Error(InitialListFailed(api(500))),
                    Error(InitialListFailed(api(500))),
                ],
                list(),
            )],
            vec![failing],
            1,
        ),
        (
            "a watch that breaks off keeps what was seen and goes on",
            vec![with(
                list(),
                [Error(WatchFailed(api(500))), Event(Apply("b"))],
            )],
            vec![],
            1,
        ),
    ] {
        let played = play(Lists::Paged, 0, scripts).await;
        let mut expected = states;
        expected.push("Synced".to_owned());
        assert_eq!(played.states(), expected, "{what}");
        assert_eq!(played.opened.len(), opened, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_asked_for_lists_at_once() {
    let scripts = vec![vec![Error(WatchStartFailed(api(400)))], list()];
    let played = play(Lists::Streaming, 0, scripts).await;
    assert_eq!(played.states(), ["Synced"]);
    let now = Duration::ZERO;
    assert_eq!(
        played.opened,
        [(Lists::Streaming, now), (Lists::Paged, now)]
    );
}

#[tokio::test(start_paused = true)]
async fn lists_without_watches_are_not_asked_for_in_a_hot_loop() {
    let denied = || with(list(), [Error(WatchStartFailed(api(403)))]);
    let played = play(Lists::Paged, 0, (0..500).map(|_| denied()).collect()).await;
    // Half a minute between two of them, but for the first few.
    let opened = played.opened.len();
    assert!((100..200).contains(&opened), "{opened} lists in an hour");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_was_well_for_long_is_tried_again_soon() {
    let trouble = || Error(WatchFailed(api(500)));
    let mut items = list();
    items.extend((0..10).map(|_| trouble()));
    items.extend([Event(Apply("b")), trouble()]);
    items.extend([
        Event(Init),
        Event(InitDone),
        Pause(60),
        Error(WatchStartFailed(api(403))),
    ]);
    let played = play(Lists::Paged, 0, vec![items, list()]).await;
    assert_eq!(played.opened.len(), 2);
    assert_eq!(played.states().last(), Some(&"Synced"));
    // 250 ms, doubling to 30 s, for ten failures, then the first wait twice; less at most a quarter.
    let waited = played.opened[1].1.as_secs_f64() - 60.0;
    let most = 0.25 + 0.5 + 1.0 + 2.0 + 4.0 + 8.0 + 16.0 + 30.0 * 3.0 + 0.25 + 0.25;
    assert!(
        waited <= most + 0.1 && waited >= most * 0.75,
        "{waited} of {most}"
    );
}

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_logged_once_for_each_state() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || writer.clone())
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let denied = || vec![Error(InitialListFailed(api(404)))];
    let mut scripts: Vec<Vec<Item>> = (0..5).map(|_| denied()).collect();
    scripts.push(with(
        list(),
        [Event(Apply("b")), Error(WatchFailed(api(500)))],
    ));
    play(Lists::Paged, 0, scripts).await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let count = |part: &str| text.lines().filter(|line| line.contains(part)).count();
    assert_eq!(count("cannot watch; trying again"), 2, "{text}");
    assert_eq!(count("install its CustomResourceDefinition"), 1, "{text}");
    assert_eq!(count("watching again"), 1, "{text}");
}
