//! Two servers of one seed give the same answers and the same events, byte by byte and at the same times.

use std::fmt::Write as _;
use std::time::Duration;

use http::Request;
use http_body_util::BodyExt;
use hybrid_operator_test::api_server::{ApiServer, Options};
use kube::Client;
use kube::client::Body;
use tokio::time::{Instant, sleep};

use crate::REQUESTS;
use crate::generator::{Event, Generator};
use crate::sides::Side;

/// Time for the controllers to come to rest.
const REST: Duration = Duration::from_secs(10);

#[tokio::test(start_paused = true)]
async fn servers_of_one_seed_answer_and_watch_alike() {
    for seed in 0..20 {
        let (first, second) = (transcript(seed).await, transcript(seed).await);
        let mut lines = first.lines().zip(second.lines());
        let difference = lines.find(|(first, second)| first != second);
        assert!(first == second, "seed {seed}: {difference:#?}");
        assert!(first.contains("watch: {\"type\""), "no events");
    }
}

/// Returns all requests of a seed with their answers, and the events of watches with their times.
async fn transcript(seed: u64) -> String {
    let second = Duration::from_secs(1);
    let server = ApiServer::new(&Options {
        seed,
        lag: Duration::ZERO..=second,
        ..Options::default()
    });
    let mut generator = Generator::new(seed, "replay");
    let mut side = Side::new(server.client("default"));
    let started = Instant::now();
    let mut watches = Vec::new();
    let mut text = String::new();
    let mut events = generator.first();
    for step in 0..REQUESTS {
        for event in events {
            match event {
                Event::Request(step) | Event::Permitted(step) => {
                    let (code, answer) = side.exact(&step).await;
                    let _ = writeln!(text, "{:?} {step} {code} {answer}", started.elapsed());
                }
                Event::Rest | Event::Served(..) => sleep(REST).await,
            }
        }
        if step == 0 {
            for path in generator.state() {
                let client = server.client("default");
                watches.push(tokio::spawn(watched(client, path, started)));
            }
        }
        events = generator.next();
    }
    for watch in watches {
        text.push_str(&watch.await.unwrap());
    }
    assert_eq!(server.unmodelled(), Vec::<String>::new());
    text
}

/// Returns the events of a watch until the server ends it.
async fn watched(client: Client, path: String, started: Instant) -> String {
    let uri = format!("{path}?watch=true&allowWatchBookmarks=true&timeoutSeconds=3600");
    let request = Request::get(uri).body(Body::empty()).unwrap();
    let mut body = client.send(request).await.unwrap().into_body();
    let mut text = String::new();
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        let data = String::from_utf8_lossy(&data);
        let _ = writeln!(text, "{:?} {path} watch: {data}", started.elapsed());
    }
    text
}
