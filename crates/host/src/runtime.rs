//! The clock and the threads of programs on tokio.

use std::thread::available_parallelism;

use jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Returns the time of day.
pub fn timestamp() -> Timestamp {
    Timestamp::try_from(crate::now()).unwrap_or_default()
}
/// Returns the number of processors; two in a simulation.
pub fn cpus() -> usize {
    if crate::is_simulated() {
        return 2;
    }
    available_parallelism().map_or(1, usize::from)
}

/// Runs work that blocks its thread, such as reading files, on a thread of its own.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    if crate::is_simulated() {
        return tokio::spawn(async {
            tokio::task::yield_now().await;
            work()
        });
    }
    tokio::task::spawn_blocking(work)
}

/// Runs a future whose polls may block their thread on a thread of its own.
pub fn blocking_future<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    if crate::is_simulated() {
        return tokio::spawn(future);
    }
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(future))
}
