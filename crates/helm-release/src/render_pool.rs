//! A bounded thread pool for the CPU-bound work of reconciles: rendering charts and parsing the
//! result.
//!
//! # Flow
//! A reconcile passes a job to [`RenderPool::run`] and awaits the result. The job waits until fewer
//! than the threads of the pool run, then runs on a blocking thread of tokio. It gets a
//! [`Cancel`], which it passes on to [`RenderInput::cancel`](helm_core::RenderInput::cancel).
//!
//! # Guarantees
//! * Jobs never run on the threads that serve watches, leases, probes and requests.
//! * At most `threads` jobs run concurrently, plus up to [`LONG_RUNNING`] that have run for more than
//!   a second, so that a few expensive charts do not hold up the others. Jobs start in the order of
//!   the calls.
//! * Dropping the future of `run` cancels the job: a waiting job never starts, a running one is
//!   notified through its `Cancel`. So the deadline of a reconcile, or the deletion of its custom
//!   resource, ends the render.
//! * A panic in a job is an error of its call; the pool and other calls are not affected.
//!
//! # Caveats
//! * A job that does not check its `Cancel` occupies its thread until it ends, even if nobody
//!   awaits it any more. A render checks it between any two steps of the templates, but not within
//!   a function call; generating an RSA key can take some seconds.
//! * There is a thread per CPU, so the runtime shares the CPUs with jobs, and relies on the scheduler of the operating
//!   system, which prefers threads that have slept.
//! * A program that exits waits for running jobs, unless their futures were dropped before.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use helm_core::engine::Cancel;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// Maximum number of long-running jobs beside the others.
pub(crate) const LONG_RUNNING: usize = 4;

/// A job that runs longer is long-running, and gives its permit to the next job.
const LONG: Duration = Duration::from_secs(1);

/// Error of a job that returned no result.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum RenderPoolError {
    #[error("the job panicked: {message}")]
    Panicked { message: String },
    #[error("the operator is shutting down")]
    ShuttingDown,
}

/// A bounded thread pool for CPU-bound jobs. Clones share the threads.
#[derive(Clone, Debug)]
pub struct RenderPool {
    permits: Arc<Semaphore>,
    long_running: Arc<Semaphore>,
}

impl Default for RenderPool {
    /// Uses one thread per CPU.
    fn default() -> Self {
        Self::new(host::cpus())
    }
}

impl RenderPool {
    /// Creates a pool with this number of threads; at least one.
    pub(crate) fn new(threads: usize) -> Self {
        let threads = threads.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            permits: Arc::new(Semaphore::new(threads)),
            long_running: Arc::new(Semaphore::new(LONG_RUNNING)),
        }
    }

    /// Runs a job on a thread of the pool as soon as one is free. Dropping the future cancels the
    /// job.
    ///
    /// # Errors
    /// When the job panics, or the runtime shuts down before it starts.
    pub async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(Cancel) -> T + Send + 'static,
    ) -> Result<T, RenderPoolError> {
        // The semaphore is fair and is never closed.
        let permit = Arc::clone(&self.permits)
            .acquire_owned()
            .await
            .map_err(|_| RenderPoolError::ShuttingDown)?;
        let guard = CancelOnDrop(Cancel::new());
        let cancel = guard.0.clone();
        let permit = Arc::new(Mutex::new(permit));
        let held = Arc::clone(&permit);
        let mut task = host::blocking(move || {
            // The permit is released when the job has ended, not when nobody awaits it any more.
            let _held = held;
            (!cancel.is_cancelled()).then(|| job(cancel))
        });
        let runs_long = async {
            tokio::time::sleep(LONG).await;
            Arc::clone(&self.long_running).acquire_owned().await
        };
        let ended = tokio::select! {
            biased;
            ended = &mut task => ended,
            Ok(beside) = runs_long => {
                *permit.lock() = beside;
                task.await
            }
        };
        match ended {
            Ok(Some(result)) => Ok(result),
            // Only dropping this future cancels the job, and it is still being polled.
            Ok(None) => Err(RenderPoolError::ShuttingDown),
            Err(error) => Err(match error.try_into_panic() {
                Ok(panic) => RenderPoolError::Panicked {
                    message: message_of(panic.as_ref()),
                },
                Err(_) => RenderPoolError::ShuttingDown,
            }),
        }
    }
}

/// Cancels the job when nobody awaits it any more.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use futures::FutureExt as _;
    use helm_core::chart::{Chart, File};
    use helm_core::engine::{CompiledChart, ReleaseInfo, RenderError, RenderInput};
    use helm_core::values::Values;
    use parking_lot::Mutex;
    use tokio::time::timeout;

    use super::*;

    const DEADLINE: Duration = Duration::from_mins(1);

    /// Runs a test on a runtime of one thread, as on a machine with one CPU.
    fn on_one_thread<T>(test: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async { timeout(DEADLINE, test).await.unwrap() })
    }

    /// Blocks a thread of the pool until the job is cancelled.
    fn until_cancelled(cancel: &Cancel) {
        let begin = std::time::Instant::now();
        while !cancel.is_cancelled() {
            assert!(begin.elapsed() < DEADLINE, "the job is not cancelled");
            std::thread::yield_now();
        }
    }

    #[test]
    fn dropping_the_future_cancels_the_job_and_frees_its_thread() {
        on_one_thread(async {
            let pool = RenderPool::new(1);
            let (started, has_started) = tokio::sync::oneshot::channel();
            let (ended, has_ended) = mpsc::channel();
            let mut job = Box::pin(pool.run(move |cancel| {
                started.send(()).unwrap();
                until_cancelled(&cancel);
                ended.send(()).unwrap();
            }));
            tokio::select! {
                _ = &mut job => panic!("the job ends only when it is cancelled"),
                started = has_started => started.unwrap(),
            }
            drop(job);
            // There is one thread, so this job starts when the other has ended.
            let first_has_ended = pool
                .run(move |_| has_ended.try_recv().is_ok())
                .await
                .unwrap();
            assert!(first_has_ended);
        });
    }

    #[test]
    fn a_job_that_is_dropped_while_it_waits_never_starts() {
        on_one_thread(async {
            let pool = RenderPool::new(1);
            let (go, gone) = mpsc::channel::<()>();
            let mut first = Box::pin(pool.run(move |_| gone.recv().is_ok()));
            assert!(first.as_mut().now_or_never().is_none());
            let started = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&started);
            let mut second = Box::pin(pool.run(move |_| count.fetch_add(1, Ordering::SeqCst)));
            assert!(second.as_mut().now_or_never().is_none());
            drop(second);
            go.send(()).unwrap();
            assert!(first.await.unwrap());
            pool.run(|_| ()).await.unwrap();
            assert_eq!(started.load(Ordering::SeqCst), 0);
            assert_eq!(Arc::strong_count(&started), 1);
        });
    }

    #[test]
    fn a_panic_is_an_error_of_that_call_alone() {
        on_one_thread(async {
            let pool = RenderPool::new(1);
            let panics: [(fn(), &str); 3] = [
                (|| panic!("a literal"), "a literal"),
                (|| panic!("a number: {}", 7), "a number: 7"),
                (|| std::panic::panic_any(7), "no message"),
            ];
            for (panic, said) in panics {
                let error = pool.run(move |_| panic()).await.unwrap_err();
                assert_eq!(error.to_string(), format!("the job panicked: {said}"));
            }
            assert_eq!(pool.run(|_| 1).await.unwrap(), 1);
        });
    }

    #[test]
    fn jobs_run_in_order_and_not_more_than_there_are_threads() {
        on_one_thread(async {
            const THREADS: usize = 2;
            let pool = RenderPool::new(THREADS);
            let order = Arc::new(Mutex::new(Vec::new()));
            let running = Arc::new(AtomicUsize::new(0));
            let most = Arc::new(AtomicUsize::new(0));
            let calls = (0..12).map(|index| {
                let (pool, order) = (pool.clone(), Arc::clone(&order));
                let (running, most) = (Arc::clone(&running), Arc::clone(&most));
                async move {
                    let job = move |_| {
                        most.fetch_max(
                            running.fetch_add(1, Ordering::SeqCst) + 1,
                            Ordering::SeqCst,
                        );
                        order.lock().push(index);
                        // Jobs that start together wait for each other.
                        let begin = std::time::Instant::now();
                        while order.lock().len() < (index / THREADS + 1) * THREADS {
                            assert!(begin.elapsed() < DEADLINE, "jobs do not run concurrently");
                            std::thread::yield_now();
                        }
                        running.fetch_sub(1, Ordering::SeqCst);
                    };
                    pool.run(job).await.unwrap();
                }
            });
            futures::future::join_all(calls).await;
            assert_eq!(most.load(Ordering::SeqCst), THREADS);
            // Jobs that run together may start in either order.
            let mut order = order.lock().clone();
            order.chunks_mut(THREADS).for_each(<[usize]>::sort_unstable);
            assert_eq!(order, (0..12).collect::<Vec<_>>());
        });
    }

    #[test]
    fn timers_run_while_an_expensive_chart_is_rendered_and_the_render_can_be_cancelled() {
        const TICKS: usize = 20;
        let expensive = "{{ range until 1000000 }}\
                         {{ $x := derivePassword 1 \"long\" \"password\" \"user\" \"site\" }}{{ end }}";
        let chart = Chart::from_files([
            File::new("Chart.yaml", "{apiVersion: v2, name: c, version: 0.1.0}"),
            File::new("templates/a.yaml", expensive),
        ])
        .unwrap();
        let chart = CompiledChart::compile(&chart).unwrap();
        let values = chart.coalesce(Values::new()).unwrap();
        on_one_thread(async {
            let pool = RenderPool::new(1);
            let (started, has_started) = tokio::sync::oneshot::channel();
            let (ended, has_ended) = mpsc::channel();
            let mut render = Box::pin(pool.run(move |cancel| {
                started.send(()).unwrap();
                let mut input =
                    RenderInput::new(ReleaseInfo::new("r", "ns"), &values).cancel(cancel);
                // No limit may end the render.
                input.limits.time = None;
                input.limits.steps = u64::MAX;
                ended.send(chart.render(&input)).unwrap();
            }));
            let ticks = async {
                has_started.await.unwrap();
                let mut interval = tokio::time::interval(Duration::from_millis(1));
                for _ in 0..TICKS {
                    interval.tick().await;
                }
            };
            tokio::select! {
                biased;
                _ = &mut render => panic!("the render ends only when it is cancelled"),
                () = ticks => {}
            }
            drop(render);
            let result = pool
                .run(move |_| has_ended.try_recv())
                .await
                .unwrap()
                .unwrap();
            assert!(matches!(result, Err(RenderError::Cancelled)));
        });
    }

    #[test]
    fn long_running_jobs_release_their_permits_up_to_a_limit() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let pool = RenderPool::new(1);
            let mut long = Vec::new();
            for _ in 0..=LONG_RUNNING {
                let (begun, has_begun) = tokio::sync::oneshot::channel();
                let pool = pool.clone();
                long.push(tokio::spawn(async move {
                    pool.run(move |cancel| {
                        begun.send(()).unwrap();
                        until_cancelled(&cancel);
                    })
                    .await
                }));
                has_begun.await.unwrap();
                tokio::time::advance(LONG * 2).await;
                tokio::task::yield_now().await;
            }
            assert_eq!(pool.long_running.available_permits(), 0);
            // The last one keeps the only permit until one of the others ends.
            let next = pool.run(|_| ());
            let mut next = Box::pin(next);
            assert!(next.as_mut().now_or_never().is_none());
            long.swap_remove(0).abort();
            next.await.unwrap();
            long.iter().for_each(tokio::task::JoinHandle::abort);
        });
    }

    #[test]
    fn a_pool_has_at_least_one_thread() {
        let threads = |pool: RenderPool| pool.permits.available_permits();
        assert_eq!(threads(RenderPool::new(0)), 1);
        assert_eq!(threads(RenderPool::new(3)), 3);
        assert!(threads(RenderPool::default()) >= 1);
    }
}
