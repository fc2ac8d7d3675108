//! Virtual time, and the host that follows from a seed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use anyhow::bail;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::api_server::Options;

/// Number of times that a program may read the clock before it advances.
const READS: u32 = 100_000;

/// A runtime of one thread, whose clock advances when everything waits for it.
pub(super) struct Time {
    runtime: Runtime,
    host: Rc<Seeded>,
}

struct Seeded {
    seed: u64,
    random: RefCell<fastrand::Rng>,
    started: Instant,
    /// The last time that the program has read, and how often.
    read: Cell<(Duration, u32)>,
    /// Wakes once it has read it too often.
    restless: Notify,
}

#[derive(Clone)]
struct Shared(Rc<Seeded>);

impl host::Host for Shared {
    fn now(&self) -> SystemTime {
        let epoch = Options::default().epoch.as_second();
        let epoch = Duration::from_secs(u64::try_from(epoch).unwrap_or_default());
        let elapsed = self.0.started.elapsed();
        let (last, count) = self.0.read.get();
        let count = if last == elapsed { count + 1 } else { 0 };
        self.0.read.set((elapsed, count));
        if count == READS {
            self.0.restless.notify_one();
        }
        SystemTime::UNIX_EPOCH + epoch + elapsed
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
            read: Cell::default(),
            restless: Notify::new(),
        });
        Ok(Self { runtime, host })
    }

    /// Runs a future, with everything that it has started.
    ///
    /// # Errors
    /// If the future has one, or if something works without an end, so that no time passes.
    pub(super) fn run<T>(
        &self,
        future: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let _simulated = host::simulate(Shared(Rc::clone(&self.host)));
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                result = future => result,
                () = self.host.restless.notified() => bail!("the program works without an end"),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_without_an_end_is_ended() {
        let time = Time::new(1).unwrap();
        let error = time.run(async {
            tokio::spawn(async {
                loop {
                    host::now();
                    tokio::task::yield_now().await;
                }
            });
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(())
        });
        let error = error.unwrap_err().to_string();
        assert_eq!(error, "the program works without an end");
    }
}
