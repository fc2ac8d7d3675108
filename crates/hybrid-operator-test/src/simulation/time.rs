//! Virtual time, and the host that follows from a seed.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use crate::api_server::Options;

/// A runtime of one thread, whose clock advances when everything waits for it.
pub(super) struct Time {
    runtime: Runtime,
    host: Rc<Seeded>,
}

struct Seeded {
    seed: u64,
    random: RefCell<fastrand::Rng>,
    started: Instant,
}

#[derive(Clone)]
struct Shared(Rc<Seeded>);

impl host::Host for Shared {
    fn now(&self) -> SystemTime {
        let epoch = Options::default().epoch.as_second();
        let epoch = Duration::from_secs(u64::try_from(epoch).unwrap_or_default());
        SystemTime::UNIX_EPOCH + epoch + self.0.started.elapsed()
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.0.random.borrow_mut().fill(bytes);
    }

    fn key(&self) -> u64 {
        self.0.seed
    }
}

impl Time {
    pub(super) fn new(seed: u64) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()?;
        let started = runtime.block_on(async { Instant::now() });
        let host = Rc::new(Seeded {
            seed,
            random: RefCell::new(fastrand::Rng::with_seed(seed)),
            started,
        });
        Ok(Self { runtime, host })
    }

    /// Runs a future, with everything that it has started.
    pub(super) fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let _simulated = host::simulate(Shared(Rc::clone(&self.host)));
        self.runtime.block_on(future)
    }
}
