#![doc = include_str!("../README.md")]

#[cfg(feature = "runtime")]
pub mod phases;
#[cfg(feature = "runtime")]
mod runtime;
pub mod watch;

use std::cell::{Cell, RefCell};
use std::hash::{BuildHasher, DefaultHasher, Hasher};
use std::marker::PhantomData;
use std::time::SystemTime;

pub use getrandom::Error;
#[cfg(feature = "runtime")]
pub use runtime::{blocking, blocking_future, cpus, timestamp};

/// A hash map whose order follows from the seed in a simulation.
pub type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;
/// A hash set whose order follows from the seed in a simulation.
pub type HashSet<K> = std::collections::HashSet<K, RandomState>;

/// A simulated host.
pub trait Host: 'static {
    /// Returns the time of day.
    fn now(&self) -> SystemTime;

    /// Fills a buffer with random bytes.
    fn fill(&self, bytes: &mut [u8]);

    /// Returns the key that decides the order of hash maps.
    fn key(&self) -> u64;
}

thread_local! {
    static SIMULATED: RefCell<Option<Box<dyn Host>>> = const { RefCell::new(None) };
    static IS_SIMULATED: Cell<bool> = const { Cell::new(false) };
    /// Key of the maps of a simulation.
    static KEY: Cell<u64> = const { Cell::new(0) };
}

/// A simulation of this thread, which ends when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Simulated {
    /// Keeps the simulation on the thread that it simulates.
    thread: PhantomData<*const ()>,
}

/// Simulates the host on this thread, instead of the former simulation if there is one.
pub fn simulate(host: impl Host) -> Simulated {
    KEY.set(host.key());
    SIMULATED.set(Some(Box::new(host)));
    IS_SIMULATED.set(true);
    Simulated {
        thread: PhantomData,
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        IS_SIMULATED.set(false);
        SIMULATED.set(None);
    }
}

/// Returns whether the host of this thread is simulated. Then all work is done on this thread, and no
/// limit of processor time applies.
pub fn is_simulated() -> bool {
    IS_SIMULATED.get()
}

/// Returns the time of day.
pub fn now() -> SystemTime {
    simulated(Host::now).unwrap_or_else(SystemTime::now)
}

/// Fills a buffer with random bytes.
///
/// # Errors
/// If the operating system has none.
pub fn fill(bytes: &mut [u8]) -> Result<(), Error> {
    match simulated(|host| host.fill(bytes)) {
        Some(()) => Ok(()),
        None => getrandom::fill(bytes),
    }
}

fn simulated<T>(call: impl FnOnce(&dyn Host) -> T) -> Option<T> {
    if !is_simulated() {
        return None;
    }
    SIMULATED.with_borrow(|host| host.as_deref().map(call))
}

/// Hashes with keys that are drawn for each map; in a simulation, with its key.
#[derive(Debug, Clone)]
pub struct RandomState {
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    Drawn(std::hash::RandomState),
    Seeded(u64),
}

impl Default for RandomState {
    fn default() -> Self {
        let state = if is_simulated() {
            State::Seeded(KEY.get())
        } else {
            State::Drawn(std::hash::RandomState::new())
        };
        Self { state }
    }
}

impl BuildHasher for RandomState {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        match &self.state {
            State::Drawn(state) => state.build_hasher(),
            State::Seeded(key) => {
                let mut hasher = DefaultHasher::new();
                hasher.write_u64(*key);
                hasher
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, UNIX_EPOCH};

    struct Counting(Cell<u8>);

    impl Host for Counting {
        fn now(&self) -> SystemTime {
            UNIX_EPOCH + Duration::from_secs(u64::from(self.0.get()))
        }

        fn fill(&self, bytes: &mut [u8]) {
            self.0.set(self.0.get() + 1);
            bytes.fill(self.0.get());
        }

        fn key(&self) -> u64 {
            7
        }
    }

    fn order() -> Vec<u32> {
        let set: HashSet<u32> = (0..100).collect();
        set.into_iter().collect()
    }

    #[test]
    fn time_random_numbers_and_orders_are_those_of_the_simulation_until_it_ends() {
        let run = || {
            let _simulated = simulate(Counting(Cell::new(0)));
            let mut bytes = [0; 3];
            fill(&mut bytes).unwrap();
            (bytes, now(), order())
        };
        let first = run();
        assert_eq!(first, run());
        assert_eq!(first.0, [1, 1, 1]);
        assert_eq!(first.1, UNIX_EPOCH + Duration::from_secs(1));
        assert!(!is_simulated());
        assert!(now() > UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        assert_ne!(order(), order());
    }

    #[test]
    fn other_threads_are_not_simulated() {
        let _simulated = simulate(Counting(Cell::new(0)));
        assert!(is_simulated());
        assert!(!std::thread::spawn(is_simulated).join().unwrap());
    }
}
