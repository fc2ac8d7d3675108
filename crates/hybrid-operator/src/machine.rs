//! The clock and the threads of the machine, which a simulation replaces ([`host`]).

use std::thread::available_parallelism;

use k8s_openapi::jiff::Timestamp;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Returns the time of day.
pub(crate) fn timestamp() -> Timestamp {
    Timestamp::try_from(host::now()).unwrap_or_default()
}

/// Returns the number of processors; two in a simulation.
pub(crate) fn cpus() -> usize {
    if host::is_simulated() {
        return 2;
    }
    available_parallelism().map_or(1, usize::from)
}

/// Runs work that blocks its thread, such as reading files, on a thread of its own.
pub(crate) fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    if host::is_simulated() {
        return tokio::spawn(async {
            tokio::task::yield_now().await;
            work()
        });
    }
    tokio::task::spawn_blocking(work)
}

/// Runs a future whose polls may block their thread on a thread of its own.
pub(crate) fn blocking_future<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    if host::is_simulated() {
        return tokio::spawn(future);
    }
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || runtime.block_on(future))
}
