//! The API server in memory and kube-apiserver get the same generated requests and must give the same
//! answers.
//!
//! `API_SERVER_SEEDS=FROM..TO` runs these seeds instead of a few. A failing seed is printed with its
//! requests; in a difference, the lines of kube-apiserver have a minus.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails with a panic"
)]

mod generator;
mod replay;
mod sides;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use hybrid_operator_test::api_server::{ApiServer, Options, Pace};
use hybrid_operator_test::shared_or_skip;

use generator::{Event, Generator};
use sides::{Side, Step};

/// Number of requests of a seed.
const REQUESTS: usize = 60;

/// Time limit for the controllers to come to rest.
const REST: Duration = Duration::from_mins(3);

/// Time limit for the real server to learn what a user may do.
const PERMITTED: Duration = Duration::from_secs(20);

/// Seeds that run at the same time.
const AT_ONCE: usize = 4;

#[tokio::test]
async fn generated_requests_get_the_same_answers_as_from_kube_apiserver() {
    let Some(plane) = shared_or_skip().await.unwrap() else {
        return;
    };
    let seeds = seeds();
    let count = seeds.clone().count();
    let (mut requests, mut granted) = (0, 0);
    let mut failures = Vec::new();
    let mut runs = stream::iter(seeds)
        .map(|seed| async move {
            let client = plane.client().await.unwrap();
            (seed, compare(seed, client).await)
        })
        .buffer_unordered(AT_ONCE);
    while let Some((seed, result)) = runs.next().await {
        match result {
            Ok((sent, permitted)) => {
                requests += sent;
                granted += permitted;
            }
            Err(difference) => failures.push(format!("seed {seed}: {difference}")),
        }
    }
    println!(
        "{requests} requests of {count} seeds were answered alike, {} seeds were not",
        failures.len()
    );
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    assert!(granted > 0, "no role permits anything");
}

fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("API_SERVER_SEEDS").unwrap_or_default();
    match text.split_once("..") {
        Some((from, to)) => from.parse().unwrap()..to.parse().unwrap(),
        None => 0..6,
    }
}

/// Runs a seed on both servers. Returns the number of requests, and that of users' requests which are permitted, or the
/// first difference and the requests before.
async fn compare(seed: u64, client: kube::Client) -> Result<(usize, usize), String> {
    let mut history = String::new();
    let compared = compare_requests(seed, client, &mut history).await;
    compared.map_err(|why| format!("{why}\n{history}"))
}

async fn compare_requests(
    seed: u64,
    client: kube::Client,
    history: &mut String,
) -> Result<(usize, usize), String> {
    // Namespaces of a former run with the same seed may still exist.
    let run = format!("{:x}", std::process::id());
    let mut generator = Generator::new(seed, &run);
    let server = ApiServer::new(&Options {
        seed,
        pace: Pace::Steps,
        workloads: false,
        ..Options::default()
    });
    let mut ours = Side::new(server.client("default"));
    let mut real = Side::new(client);
    let (mut sent, mut granted) = (0, 0);
    let mut versions = Versions::new();
    let mut events: std::collections::VecDeque<Event> = generator.first().into();
    loop {
        let Some(event) = events.pop_front() else {
            if sent >= REQUESTS {
                break;
            }
            events.extend(generator.next());
            continue;
        };
        match event {
            Event::Request(step) => {
                sent += 1;
                let _ = writeln!(history, "  {step}");
                if step.changes(&generator.definition_path()) {
                    versions.retain(|path, _| !path.ends_with("/things"));
                }
                let (expected, found) = (real.send(&step).await, ours.send(&step).await);
                if expected != found {
                    return Err(format!("{step}\n{}", difference(&expected, &found)));
                }
            }
            Event::Permitted(step) => {
                sent += 1;
                let _ = writeln!(history, "  {step}");
                let is_permitted = permitted(&mut ours, &mut real, &step).await;
                granted += usize::from(is_permitted.map_err(|why| format!("{step}\n{why}"))?);
            }
            Event::Rest => {
                rest(&server, &generator, &mut ours, &mut real).await?;
                for path in generator.collections() {
                    // A changed definition begins anew.
                    if !versions.contains_key(&path)
                        && let (Some(their), Some(own)) =
                            (real.version(&path).await, ours.version(&path).await)
                    {
                        versions.insert(path, (their, own));
                    }
                }
            }
            Event::Served(probe, edition) => {
                if ours.edition(&probe).await == Some(edition.into()) {
                    served(&real, &probe, edition).await?;
                }
            }
        }
    }
    compare_watches(&versions, &mut ours, &mut real).await?;
    for namespace in generator.namespaces() {
        let step = Step::delete(format!("/api/v1/namespaces/{namespace}"));
        real.send(&step).await;
    }
    let step = Step::delete(generator.definition_path());
    real.send(&step).await;
    let unmodelled = server.unmodelled();
    if !unmodelled.is_empty() {
        return Err(format!("not modelled: {unmodelled:?}"));
    }
    Ok((sent, granted))
}

/// Waits until the real server has come to rest where ours does.
async fn rest(
    server: &ApiServer,
    generator: &Generator,
    ours: &mut Side,
    real: &mut Side,
) -> Result<(), String> {
    while server.step() {}
    let paths = generator.state();
    let found = ours.read(&paths).await;
    let all = async |side: &mut Side| side.read(&paths).await;
    let agreed = agree(real, &found, all, REST).await;
    agreed.map_err(|difference| format!("at rest\n{difference}"))
}

/// Waits until the real server answers the request of a user as ours does. Returns whether the user may make it.
async fn permitted(ours: &mut Side, real: &mut Side, step: &Step) -> Result<bool, String> {
    let found = ours.send(step).await;
    let send = async |real: &mut Side| real.send(step).await;
    agree(real, &found, send, PERMITTED).await?;
    Ok(found.code != 403)
}

/// Waits until the real server shows what ours has shown.
async fn agree<T: PartialEq + std::fmt::Debug>(
    real: &mut Side,
    found: &T,
    ask: impl AsyncFn(&mut Side) -> T,
    within: Duration,
) -> Result<(), String> {
    let deadline = Instant::now() + within;
    loop {
        let memory = real.memory();
        let expected = ask(real).await;
        if expected == *found {
            return Ok(());
        }
        real.restore(memory);
        if Instant::now() > deadline {
            return Err(difference(&expected, found));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until the real server serves a changed definition.
async fn served(real: &Side, probe: &Step, edition: u32) -> Result<(), String> {
    let deadline = Instant::now() + REST;
    while real.edition(probe).await != Some(edition.into()) {
        if Instant::now() > deadline {
            return Err(format!("edition {edition} is not served\n{probe}"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// The resource versions of both servers at which the watches of a path begin.
type Versions = BTreeMap<String, (String, String)>;

async fn compare_watches(
    versions: &Versions,
    ours: &mut Side,
    real: &mut Side,
) -> Result<(), String> {
    let uri = |path: &str, version: &str| {
        format!("{path}?watch=true&timeoutSeconds=1&resourceVersion={version}")
    };
    let uris = versions.iter();
    let uris = uris.map(|(path, (their, own))| (uri(path, their), uri(path, own)));
    let (theirs, own): (Vec<String>, Vec<String>) = uris.unzip();
    let expected = real.watch(&theirs).await;
    let found = ours.watch(&own).await;
    for ((expected, found), path) in expected.iter().zip(&found).zip(versions.keys()) {
        // The real server remembers some hundred changes of a kind, which other seeds make, too.
        let has_forgotten = expected.contains_key("") && !path.ends_with("/things");
        if expected != found && !has_forgotten {
            return Err(format!("events of {path}\n{}", difference(expected, found)));
        }
    }
    Ok(())
}

/// Returns the lines that differ, with their context.
fn difference(expected: &impl std::fmt::Debug, found: &impl std::fmt::Debug) -> String {
    let (expected, found) = (format!("{expected:#?}"), format!("{found:#?}"));
    let (expected, found) = (lines(&expected), lines(&found));
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let start = expected.iter().zip(&found).take_while(same).count();
    let rest = expected.len().min(found.len()) - start;
    let reversed = expected.iter().rev().zip(found.iter().rev());
    let end = reversed.take_while(same).count().min(rest);
    let mut text = String::new();
    for (mark, lines) in [
        (" ", &expected[start.saturating_sub(6)..start]),
        ("-", &expected[start..expected.len() - end]),
        ("+", &found[start..found.len() - end]),
    ] {
        for line in lines {
            let _ = writeln!(text, " {mark} {line}");
        }
    }
    text
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}
