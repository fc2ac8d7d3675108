//! Replicas over an API server in memory, which are killed, stopped, paused and cut off at random.
//!
//! Each replica writes in the ranges that it has. The network refuses what the Lease of the range does not permit: the
//! test fails if a write arrives while another replica has the range.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;

use fastrand::Rng;
use http::{Method, Request, Response};
use hybrid_operator_test::api_server::{ApiServer, Options};
use kube::client::{Body, ClientBuilder};
use kube_objects::client::{Counts, Deadlines, over};
use kube_objects::shards::range_of;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;
use tower::{BoxError, service_fn};

use super::*;
use crate::telemetry::metrics::Metrics;

/// A cluster, and the writes that have arrived.
struct Cluster {
    server: ApiServer,
    count: u32,
    id: fn(usize) -> ShardId,
    /// Number of writes, and those that were not permitted.
    writes: AtomicUsize,
    wrong: Mutex<Vec<String>>,
}

impl Cluster {
    fn new(count: u32, id: fn(usize) -> ShardId, seed: u64) -> Arc<Self> {
        let options = Options {
            seed,
            ..Options::default()
        };
        Arc::new(Self {
            server: ApiServer::new(&options),
            count,
            id,
            writes: AtomicUsize::new(0),
            wrong: Mutex::default(),
        })
    }

    /// Returns who has a range.
    fn holder(&self, index: u32) -> Option<String> {
        let name = format!("op-shard-{index}");
        let lease = self.server.objects().into_iter().find(|object| {
            object["kind"] == "Lease" && object["metadata"]["name"].as_str() == Some(&name)
        })?;
        let holder = lease["spec"]["holderIdentity"].as_str()?;
        Some(holder.to_owned())
    }

    /// Notes the arrival of a write of a replica in a range.
    fn written(&self, index: u32, by: &str) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        let holder = self.holder(index);
        if holder.as_deref() != Some(by) {
            let wrong = format!("{by} writes in range {index} of {holder:?}");
            self.wrong.lock().push(wrong);
        }
    }
}

/// Returns a namespace of a range.
fn namespace_in(count: u32, index: u32) -> String {
    let mut names = (0..).map(|number| format!("{number}-team"));
    names
        .find(|name| range_of(count, Some(name)) == index)
        .unwrap()
}

/// Faults of a process.
#[derive(Default)]
struct Fate {
    is_paused: AtomicBool,
    is_cut_off: AtomicBool,
}

/// A replica: processes, of which each follows when the one before has lost a Lease.
struct Replica {
    fate: Arc<Fate>,
    stop: CancellationToken,
    /// Ranges of the running process.
    shards: Arc<Mutex<Shards>>,
    _task: AbortOnDropHandle<()>,
}

impl Replica {
    fn start(cluster: &Arc<Cluster>, number: usize) -> Self {
        let (fate, stop) = (Arc::new(Fate::default()), CancellationToken::new());
        let shards = Arc::new(Mutex::new(Shards::of(cluster.count)));
        let processes = run(
            Arc::clone(cluster),
            number,
            Arc::clone(&fate),
            stop.clone(),
            Arc::clone(&shards),
        );
        let paused = Arc::clone(&fate);
        let task = tokio::spawn(async move {
            let mut processes = pin!(processes);
            poll_fn(|context| {
                if paused.is_paused.load(Ordering::Relaxed) {
                    // Polled by the next tick of the clock.
                    let waker = context.waker().clone();
                    tokio::spawn(async move {
                        sleep(Duration::from_millis(200)).await;
                        waker.wake();
                    });
                    return Poll::Pending;
                }
                processes.as_mut().poll(context)
            })
            .await;
        });
        Self {
            fate,
            stop,
            shards,
            _task: AbortOnDropHandle::new(task),
        }
    }

    fn ranges(&self, count: u32) -> Vec<u32> {
        let shards = self.shards.lock().clone();
        let has = |index: &u32| shards.begin(Some(&namespace_in(count, *index))).is_some();
        (0..count).filter(has).collect()
    }
}

async fn run(
    cluster: Arc<Cluster>,
    number: usize,
    fate: Arc<Fate>,
    stop: CancellationToken,
    current: Arc<Mutex<Shards>>,
) {
    for process in 0.. {
        let (shards, gate) = (Shards::of(cluster.count), LeaderGate::default());
        *current.lock() = shards.clone();
        let identity = format!("replica-{number}-{process}");
        let client = client(&cluster, &identity, &fate, &gate);
        let options = ShardOptions {
            lease: LeaseOptions::new("default", "op", &identity),
            count: cluster.count,
            id: (cluster.id)(number),
        };
        let mut elector = ShardElector::new(
            client.clone(),
            options,
            shards.clone(),
            gate,
            Metrics::new(Counts::default(), Vec::new()),
        );
        let leads = async {
            if !elector.acquire(&stop).await {
                return Term::Stopped;
            }
            elector.hold(&stop).await
        };
        let working = (0..cluster.count).map(|index| {
            let namespace = namespace_in(cluster.count, index);
            work(shards.clone(), client.clone(), namespace, index)
        });
        let term = tokio::select! {
            biased;
            term = leads => term,
            _ = futures::future::join_all(working) => return,
        };
        if term == Term::Stopped {
            elector.release().await;
            return;
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// Writes in a range as long as the process has it, in reconciles of some seconds.
async fn work(shards: Shards, client: Client, namespace: String, index: u32) {
    let mut random = Rng::with_seed(u64::from(index));
    loop {
        sleep(Duration::from_millis(random.u64(100..900))).await;
        let Some(_turn) = shards.begin(Some(&namespace)) else {
            continue;
        };
        for _ in 0..random.u8(1..5) {
            let write = Request::patch(format!("/write/{index}")).body(Vec::new());
            // A refusal by the gate is what the test is about.
            let _ = client.request_text(write.unwrap()).await;
            sleep(Duration::from_millis(random.u64(0..800))).await;
        }
    }
}

fn client(cluster: &Arc<Cluster>, identity: &str, fate: &Arc<Fate>, gate: &LeaderGate) -> Client {
    let (of, fate, identity) = (Arc::clone(cluster), Arc::clone(fate), identity.to_owned());
    let base = cluster.server.client("default");
    let network = service_fn(move |request: Request<Body>| {
        let (of, fate, base) = (Arc::clone(&of), Arc::clone(&fate), base.clone());
        let identity = identity.clone();
        async move {
            if fate.is_cut_off.load(Ordering::Relaxed) {
                sleep(Duration::from_millis(500)).await;
                return Err(BoxError::from("no route"));
            }
            let path = request.uri().path().to_owned();
            if let Some(index) = path.strip_prefix("/write/") {
                assert_eq!(request.method(), Method::PATCH);
                of.written(index.parse()?, &identity);
                return Ok(Response::new(Body::from(b"{}".to_vec())));
            }
            let answer = base.send(request).await?;
            Ok::<_, BoxError>(answer)
        }
    });
    let network = ClientBuilder::new(network, "default").build();
    over(network, &Counts::default(), gate, Deadlines::default())
}

/// Lets replicas start, end, and be paused and cut off at random, and returns the number of writes.
async fn history(seed: u64) -> usize {
    let mut random = Rng::with_seed(seed);
    let count = random.u32(2..6);
    let id: fn(usize) -> ShardId = if random.bool() {
        |_| ShardId::Auto
    } else {
        |number| ShardId::Index(u32::try_from(number % 2).unwrap())
    };
    let cluster = Cluster::new(count, id, seed);
    let mut replicas: Vec<Replica> = Vec::new();
    let mut started = 0;
    for _ in 0..random.u8(5..25) {
        sleep(Duration::from_millis(random.u64(0..12_000))).await;
        let event = random.u8(0..6);
        if replicas.is_empty() || (event == 0 && replicas.len() < 4) {
            replicas.push(Replica::start(&cluster, started));
            started += 1;
            continue;
        }
        let chosen = random.usize(0..replicas.len());
        let Fate {
            is_paused,
            is_cut_off,
        } = &*replicas[chosen].fate;
        match event {
            1 => drop(is_paused.fetch_xor(true, Ordering::Relaxed)),
            2 => drop(is_cut_off.fetch_xor(true, Ordering::Relaxed)),
            3 => drop(replicas.swap_remove(chosen)),
            4 => replicas[chosen].stop.cancel(),
            _ => {}
        }
    }
    replicas.retain(|replica| !replica.stop.is_cancelled());
    if replicas.is_empty() {
        replicas.push(Replica::start(&cluster, started));
    }
    for replica in &replicas {
        replica.fate.is_paused.store(false, Ordering::Relaxed);
        replica.fate.is_cut_off.store(false, Ordering::Relaxed);
    }
    let settled = async {
        loop {
            let ranges: Vec<Vec<u32>> = replicas
                .iter()
                .map(|replica| replica.ranges(count))
                .collect();
            let mut all = ranges.concat();
            all.sort_unstable();
            let sizes = ranges.iter().map(Vec::len);
            let spread = sizes.clone().max().unwrap() - sizes.min().unwrap();
            let is_balanced = spread <= 1 || id(0) != ShardId::Auto;
            if all == (0..count).collect::<Vec<_>>() && is_balanced {
                return;
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    let within = Duration::from_mins(2);
    let ranges = || replicas.iter().map(|replica| replica.ranges(count));
    assert!(
        timeout(within, settled).await.is_ok(),
        "seed {seed}: {count} shards are {:?}",
        ranges().collect::<Vec<_>>()
    );
    let wrong = cluster.wrong.lock().join("\n");
    assert!(wrong.is_empty(), "seed {seed}: {wrong}");
    cluster.writes.load(Ordering::Relaxed)
}

#[test]
fn no_range_is_served_by_two_replicas_and_all_are_served() {
    let mut writes = 0;
    for seed in 0..40 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        writes += runtime.block_on(history(seed));
    }
    assert!(writes > 1_000, "{writes}");
}
