//! Tests of the loop with scripted streams and paused time.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use futures::stream;
use kube::core::{GroupVersionKind, Status};
use parking_lot::Mutex;
use tokio::time::timeout;
use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};

use super::*;

/// The next action of a stream.
enum Item {
    Event(watcher::Event<&'static str>),
    Error(watcher::Error),
    Panic,
    End,
    /// Sends nothing for this number of seconds.
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

/// Records its calls, and panics on the object `poison` this number of times.
struct RecordingFollower {
    calls: Arc<Mutex<Vec<(String, Instant)>>>,
    panics: usize,
}

impl RecordingFollower {
    fn record(&self, what: impl Into<String>) {
        let call = (what.into(), Instant::now());
        self.calls.lock().push(call);
    }
}

impl Follower for RecordingFollower {
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
        self.record(what);
    }

    fn state(&mut self, state: &WatchState) {
        self.record(format!("{state:?}"));
    }

    fn invalidate(&mut self) {
        self.record("invalidate");
    }
}

/// The result of running scripts.
struct RunResult {
    /// Events and states, in order.
    calls: Vec<String>,
    /// Time of each call.
    times: Vec<Duration>,
    /// Listing method and opening time of each stream.
    opened: Vec<(Lists, Duration)>,
    /// Kind and cause of each restart.
    restarts: Vec<(String, &'static str)>,
}

impl RunResult {
    /// Returns the number of restarts for a cause.
    fn restarts(&self, cause: &str) -> usize {
        let restarts = self.restarts.iter();
        restarts
            .filter(|restart| **restart == ("Widget".to_owned(), cause))
            .count()
    }

    fn states(&self) -> Vec<&str> {
        let states = self.calls.iter().map(String::as_str);
        states
            .filter(|calls| calls.starts_with(char::is_uppercase))
            .collect()
    }
}

fn target() -> WatchTarget {
    let kind = GroupVersionKind::gvk("example.com", "v1", "Widget");
    WatchTarget::new(ApiResource::from_gvk(&kind), Some("n"))
}

/// Follows streams that run the scripts one after the other, and then send nothing.
async fn run_scripts(lists: Lists, panics: usize, scripts: Vec<Vec<Item>>) -> RunResult {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let opened = Arc::new(Mutex::new(Vec::new()));
    let restarts = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&restarts);
    let count = move |kind: &str, cause| seen.lock().push((kind.to_owned(), cause));
    let scripts = Mutex::new(VecDeque::from(scripts));
    let (began, openings) = (Instant::now(), Arc::clone(&opened));
    let open = move |lists| -> Events<&'static str> {
        openings.lock().push((lists, began.elapsed()));
        let items = scripts.lock().pop_front().unwrap_or_default();
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
    let follower = RecordingFollower {
        calls: Arc::clone(&calls),
        panics,
    };
    let endless = follow(target(), Restarts::counted_by(count), lists, open, follower);
    timeout(Duration::from_hours(1), endless)
        .await
        .expect_err("the loop never ends");
    let (calls, times) = std::mem::take(&mut *calls.lock())
        .into_iter()
        .map(|(call, at): (String, Instant)| (call, at.duration_since(began)))
        .unzip();
    RunResult {
        calls,
        times,
        opened: std::mem::take(&mut *opened.lock()),
        restarts: std::mem::take(&mut *restarts.lock()),
    }
}

#[tokio::test(start_paused = true)]
async fn a_follower_that_panics_gets_a_fresh_list() {
    let again = vec![Event(Init), Event(InitApply("poison")), Event(InitDone)];
    let scripts = vec![
        with(list(), [Event(Apply("poison")), Event(Apply("lost"))]),
        again,
    ];
    let result = run_scripts(Lists::Paged, 1, scripts).await;
    let failing = "Failing(\"internal error: poisoned\")";
    let listed = |object: &str| format!("init, {object}, done, Synced");
    let expected = [
        listed("+a"),
        format!("invalidate, {failing}"),
        listed("+poison"),
    ];
    assert_eq!(result.calls.join(", "), expected.join(", "));
    assert_eq!(result.restarts("panic"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_list_is_retried_with_backoff_and_never_counts_as_synced() {
    let poisoned = || vec![Event(Init), Event(InitApply("poison")), Event(InitDone)];
    let scripts = (0..21).map(|_| poisoned()).collect();
    let result = run_scripts(Lists::Paged, 20, scripts).await;
    let failing = "Failing(\"internal error: poisoned\")";
    // The failure is reported once, until a list is handled completely.
    assert_eq!(result.states(), [failing, "Synced"]);
    assert_eq!(result.restarts("panic"), 20);
    let last = result.opened[20].1.abs_diff(result.opened[19].1);
    assert!(last > Duration::from_secs(20), "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn decoding_panics_and_ended_streams_do_not_stop_the_watch() {
    // After a panic, an event may be lost. A stream that ended is only interrupted.
    for (trouble, cause, states) in [(Panic, "panic", 3), (End, "end", 1)] {
        let result = run_scripts(Lists::Paged, 0, vec![with(list(), [trouble]), list()]).await;
        assert_eq!(result.states().len(), states, "{:?}", result.calls);
        assert_eq!(result.states().last(), Some(&"Synced"));
        assert_eq!(result.restarts(cause), 1);
        assert_eq!(result.opened.len(), 2);
    }
}

fn failed() -> Item {
    Error(WatchFailed(api(500)))
}

#[tokio::test(start_paused = true)]
async fn short_interruptions_are_not_reported() {
    let gone = Status::failure("", "Gone").with_code(410).boxed();
    let gone = vec![Error(WatchError(gone))];
    let refused = || Error(WatchStartFailed(api(500)));
    let retries = (0..6).map(|_| refused()).collect();
    let retries = with(retries, [Event(Apply("b")), failed()]);
    let quiet = || [failed(), failed(), Pause(50)];
    let now_and_then = (0..20).flat_map(|_| quiet()).collect();
    for (what, items) in [
        ("a history that is gone", with(gone, list())),
        ("a closed connection", vec![failed()]),
        ("some retries, then an event", retries),
        ("a closed connection now and then", now_and_then),
    ] {
        let result = run_scripts(Lists::Paged, 0, vec![with(list(), items)]).await;
        assert_eq!(result.states(), ["Synced"], "{what}");
        assert_eq!(result.opened.len(), 1, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_stays_broken_is_reported_until_it_lists_again() {
    let errors = |count| (0..count).map(|_| failed()).collect::<Vec<_>>();
    let hanging = |count| (0..count).flat_map(|_| [failed(), Pause(30)]).collect();
    for (what, items, at_most) in [
        ("requests fail", errors(100), 65),
        ("requests are not answered", hanging(10), 95),
    ] {
        let more = [errors(3), list()];
        let mut scripts = vec![with(list(), items)];
        scripts.extend(more);
        let result = run_scripts(Lists::Paged, 0, scripts).await;
        let failing = format!("Failing({:?})", WatchFailed(api(500)).to_string());
        assert_eq!(result.states(), ["Synced", &failing, "Synced"], "{what}");
        // A quiet stream does not tell whether it works again, so each attempt begins with a list.
        let opened: Vec<Duration> = result.opened.iter().map(|(_, at)| *at).collect();
        let [_, first, ..] = opened[..] else {
            panic!("{what}: {opened:?}")
        };
        assert!(first >= GRACE, "{what}: {first:?}");
        assert!(first <= Duration::from_secs(at_most), "{what}: {first:?}");
        let restarts = opened.len() - 1;
        assert_eq!(result.restarts("broken"), restarts);
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_is_reported_when_the_grace_ends_though_no_request_fails_then() {
    // Eight failures take 32 seconds at most, the next one comes half a minute later.
    let items = (0..8).map(|_| failed());
    let scripts = vec![with(list(), items), list()];
    let result = run_scripts(Lists::Paged, 0, scripts).await;
    let states: Vec<(&str, Duration)> = result
        .calls
        .iter()
        .map(String::as_str)
        .zip(result.times.iter().copied())
        .filter(|(call, _)| call.starts_with("Failing"))
        .collect();
    assert_eq!(states.len(), 1, "{:?}", result.calls);
    let at = states[0].1;
    assert!(
        at >= GRACE && at <= GRACE + Duration::from_secs(2),
        "{at:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn state_changes_are_reported() {
    let forbidden =
        |verb: &str| format!("Forbidden(\"{verb} widgets.example.com in namespace n\")");
    let failing = format!("Failing({:?})", InitialListFailed(api(500)).to_string());
    let status = || Status::failure("no", "Forbidden").with_code(403).boxed();
    let synced = "Synced".to_owned();
    // It fails after the first list.
    let then = |error| vec![with(list(), [Error(error)]), list()];
    let first = || Error(InitialListFailed(api(500)));
    let resumes = [Error(WatchFailed(api(500))), Event(Apply("b"))];
    let unlisted = vec![vec![Error(InitialListFailed(api(403)))], list()];
    let unwatched = then(WatchStartFailed(api(403)));
    for (what, scripts, states) in [
        ("no failure", vec![list()], vec![]),
        ("list is forbidden", unlisted, vec![forbidden("list")]),
        (
            "watch is forbidden after the first list, then permitted",
            unwatched,
            vec![synced.clone(), forbidden("watch")],
        ),
        (
            "an event of the watch says that it is forbidden",
            then(WatchError(status())),
            vec![synced.clone(), forbidden("watch")],
        ),
        (
            "the kind is removed and added again",
            then(WatchStartFailed(api(404))),
            vec![synced.clone(), "Missing".to_owned()],
        ),
        (
            "the first list fails twice",
            vec![with(vec![first(), first()], list())],
            vec![failing],
        ),
        ("a watch resumes", vec![with(list(), resumes)], vec![]),
    ] {
        let opened = scripts.len();
        let result = run_scripts(Lists::Paged, 0, scripts).await;
        let mut expected = states;
        expected.push(synced.clone());
        assert_eq!(result.states(), expected, "{what}");
        assert_eq!(result.opened.len(), opened, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_streaming_lists_paged_lists_are_used_at_once() {
    let scripts = vec![vec![Error(WatchStartFailed(api(400)))], list()];
    let result = run_scripts(Lists::Streaming, 0, scripts).await;
    assert_eq!(result.states(), ["Synced"]);
    let now = Duration::ZERO;
    let expected = [(Lists::Streaming, now), (Lists::Paged, now)];
    assert_eq!(result.opened, expected);
}

#[tokio::test(start_paused = true)]
async fn lists_without_a_permitted_watch_are_not_sent_in_a_hot_loop() {
    let denied = || with(list(), [Error(WatchStartFailed(api(403)))]);
    let result = run_scripts(Lists::Paged, 0, (0..500).map(|_| denied()).collect()).await;
    // The delay grows to half a minute.
    let opened = result.opened.len();
    assert!((100..200).contains(&opened), "{opened} lists in an hour");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_worked_for_long_is_retried_soon() {
    let trouble = || Error(WatchFailed(api(500)));
    let mut items = list();
    items.extend((0..6).map(|_| trouble()));
    items.extend([Event(Apply("b")), trouble()]);
    items.extend([
        Event(Init),
        Event(InitDone),
        Pause(60),
        Error(WatchStartFailed(api(403))),
    ]);
    let result = run_scripts(Lists::Paged, 0, vec![items, list()]).await;
    assert_eq!(result.opened.len(), 2);
    assert_eq!(result.states().last(), Some(&"Synced"));
    // 250 ms, doubling, for six failures, then the first wait twice; less at most a quarter.
    let waited = result.opened[1].1.as_secs_f64() - 60.0;
    let most = 0.25 + 0.5 + 1.0 + 2.0 + 4.0 + 8.0 + 0.25 + 0.25;
    assert!(
        waited <= most + 0.1 && waited >= most * 0.75,
        "{waited} of {most}"
    );
}

/// Captures the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
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
    // A log call that is first reached on another thread would otherwise be switched off for this
    // one, too: with a single subscriber, tracing asks only that of the current thread.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let _guard = tracing::subscriber::set_default(subscriber);
    let denied = || vec![Error(InitialListFailed(api(404)))];
    let mut scripts: Vec<Vec<Item>> = (0..5).map(|_| denied()).collect();
    scripts.push(with(
        list(),
        [Event(Apply("b")), Error(WatchFailed(api(500)))],
    ));
    run_scripts(Lists::Paged, 0, scripts).await;
    let text = String::from_utf8(log.0.lock().clone()).unwrap();
    let count = |part: &str| text.lines().filter(|line| line.contains(part)).count();
    assert_eq!(count("cannot watch; retrying"), 2, "{text}");
    assert_eq!(count("install its CustomResourceDefinition"), 1, "{text}");
    assert_eq!(count("watching again"), 1, "{text}");
}
