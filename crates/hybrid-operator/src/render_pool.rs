//! A bounded pool of threads for the CPU work of reconciles: rendering a chart, reading what it
//! rendered.
//!
//! # Flow
//! A reconcile hands its work to [`RenderPool::run`] and awaits the result. The work waits until
//! fewer than [`RenderPool::threads`] others run, then runs on a blocking thread of tokio and is
//! given a [`Cancel`], which it passes on to
//! [`RenderInput::cancel`](helm_core::RenderInput::cancel).
//!
//! # Guarantees
//! * The threads that run watches, leases, probes and requests never run the work themselves.
//! * No more than `threads` pieces of work run at once, and no more than [`LONG_RUNNING`] beside
//!   them that have run for more than a second: a few expensive charts do not hold up the others.
//!   Work begins in the order in which it was handed over.
//! * Dropping the future of `run` cancels the work: what waits never begins, what runs sees its
//!   `Cancel`. So a deadline of the reconcile, or the deletion of its custom resource, ends the
//!   render.
//! * A panic in the work is an error of that call; the pool and other calls go on.
//!
//! # Caveats
//! * Work that does not look at its `Cancel` keeps its place in the pool until it ends, although
//!   nobody awaits it any more. A render looks at it between any two steps of the templates, but not
//!   within one call of a function; making an RSA key takes up to some seconds.
//! * On a machine with one CPU the pool has one thread. The runtime then shares the CPU with the
//!   work, and gets its turn from the scheduler of the operating system, which prefers threads that
//!   have slept.
//! * An application that ends waits for the work that runs, unless its futures were dropped before.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::Duration;

use helm_core::engine::Cancel;
use tokio::sync::Semaphore;

/// Number of pieces of long-running work that run beside the others.
pub const LONG_RUNNING: usize = 4;

/// Work that has run for longer gives its place to the next.
const LONG: Duration = Duration::from_secs(1);

/// Why work of the pool gave no result.
#[derive(Debug, thiserror::Error)]
pub enum RenderPoolError {
    /// The work panicked.
    #[error("the work panicked: {message}")]
    Panicked {
        /// What the panic said.
        message: String,
    },
    /// The runtime shut down before the work began.
    #[error("the operator is shutting down")]
    ShuttingDown,
}

impl RenderPoolError {
    /// The reason for events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Panicked { .. } => "RenderPanicked",
            Self::ShuttingDown => "ShuttingDown",
        }
    }
}

/// A bounded pool for CPU work. Clones share its threads.
#[derive(Clone, Debug)]
pub struct RenderPool {
    places: Arc<Semaphore>,
    long_running: Arc<Semaphore>,
    threads: usize,
}

impl Default for RenderPool {
    /// As many threads as there are CPUs, less one for the runtime; at least one.
    fn default() -> Self {
        let cpus = available_parallelism().map_or(1, usize::from);
        Self::new(cpus.saturating_sub(1))
    }
}

impl RenderPool {
    /// A pool of so many threads; at least one.
    pub fn new(threads: usize) -> Self {
        let threads = threads.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            places: Arc::new(Semaphore::new(threads)),
            long_running: Arc::new(Semaphore::new(LONG_RUNNING)),
            threads,
        }
    }

    /// How many pieces of work run at once.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `work` on a thread of the pool as soon as there is one. Dropping the future cancels it.
    ///
    /// # Errors
    /// When the work panics, or the runtime shuts down before it begins.
    ///
    /// ```
    /// # use hybrid_operator::render_pool::RenderPool;
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let pool = RenderPool::default();
    /// let sum = pool.run(|_cancel| (1..=100).sum::<u32>()).await?;
    /// assert_eq!(sum, 5050);
    /// # Ok::<(), hybrid_operator::render_pool::RenderPoolError>(())
    /// # }).unwrap();
    /// ```
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(Cancel) -> T + Send + 'static,
    ) -> Result<T, RenderPoolError> {
        // The semaphore is fair, and is never closed.
        let place = Arc::clone(&self.places)
            .acquire_owned()
            .await
            .map_err(|_| RenderPoolError::ShuttingDown)?;
        let guard = CancelOnDrop(Cancel::new());
        let cancel = guard.0.clone();
        let place = Arc::new(Mutex::new(place));
        let held = Arc::clone(&place);
        let mut task = tokio::task::spawn_blocking(move || {
            // The place is free when the work has ended, not when nobody awaits it any more.
            let _held = held;
            (!cancel.is_cancelled()).then(|| work(cancel))
        });
        let runs_long = async {
            tokio::time::sleep(LONG).await;
            Arc::clone(&self.long_running).acquire_owned().await
        };
        let ended = tokio::select! {
            biased;
            ended = &mut task => ended,
            Ok(beside) = runs_long => {
                *place.lock().unwrap_or_else(PoisonError::into_inner) = beside;
                task.await
            }
        };
        match ended {
            Ok(Some(result)) => Ok(result),
            // The handle is cancelled by this future alone, which is still here.
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

/// Cancels the work when nobody awaits it any more.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// What `panic!` was given.
fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use futures::FutureExt as _;
    use helm_core::chart::{Chart, File};
    use helm_core::engine::{CompiledChart, ReleaseInfo, RenderError, RenderInput};
    use helm_core::values::Values;
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

    /// Waits on a thread of the pool until the work is cancelled.
    fn until_cancelled(cancel: &Cancel) {
        let begin = std::time::Instant::now();
        while !cancel.is_cancelled() {
            assert!(begin.elapsed() < DEADLINE, "nobody cancels the work");
            std::thread::yield_now();
        }
    }

    #[test]
    fn dropping_the_future_cancels_the_work_and_frees_its_place() {
        on_one_thread(async {
            let pool = RenderPool::new(1);
            let (begun, has_begun) = tokio::sync::oneshot::channel();
            let (ended, has_ended) = mpsc::channel();
            let mut work = Box::pin(pool.run(move |cancel| {
                begun.send(()).unwrap();
                until_cancelled(&cancel);
                ended.send(()).unwrap();
            }));
            tokio::select! {
                _ = &mut work => panic!("the work ends only when it is cancelled"),
                begun = has_begun => begun.unwrap(),
            }
            drop(work);
            // There is one place, so that this begins when the other has ended.
            let first_has_ended = pool
                .run(move |_| has_ended.try_recv().is_ok())
                .await
                .unwrap();
            assert!(first_has_ended);
        });
    }

    #[test]
    fn work_that_is_dropped_while_it_waits_never_begins() {
        on_one_thread(async {
            let pool = RenderPool::new(1);
            let (go, gone) = mpsc::channel::<()>();
            let mut first = Box::pin(pool.run(move |_| gone.recv().is_ok()));
            assert!(first.as_mut().now_or_never().is_none());
            let begun = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&begun);
            let mut second = Box::pin(pool.run(move |_| count.fetch_add(1, Ordering::SeqCst)));
            assert!(second.as_mut().now_or_never().is_none());
            drop(second);
            go.send(()).unwrap();
            assert!(first.await.unwrap());
            pool.run(|_| ()).await.unwrap();
            assert_eq!(begun.load(Ordering::SeqCst), 0);
            assert_eq!(Arc::strong_count(&begun), 1);
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
                assert_eq!(error.to_string(), format!("the work panicked: {said}"));
                assert_eq!(error.reason(), "RenderPanicked");
            }
            assert_eq!(pool.run(|_| 1).await.unwrap(), 1);
        });
    }

    #[test]
    fn no_more_work_runs_at_once_than_there_are_threads_and_in_order() {
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
                    let work = move |_| {
                        most.fetch_max(
                            running.fetch_add(1, Ordering::SeqCst) + 1,
                            Ordering::SeqCst,
                        );
                        order.lock().unwrap().push(index);
                        // Two that begin together wait for each other.
                        let begin = std::time::Instant::now();
                        while order.lock().unwrap().len() < (index / THREADS + 1) * THREADS {
                            assert!(begin.elapsed() < DEADLINE, "only one runs at once");
                            std::thread::yield_now();
                        }
                        running.fetch_sub(1, Ordering::SeqCst);
                    };
                    pool.run(work).await.unwrap();
                }
            });
            futures::future::join_all(calls).await;
            assert_eq!(most.load(Ordering::SeqCst), THREADS);
            // Those that run together may begin in either order.
            let mut order = order.lock().unwrap().clone();
            order.chunks_mut(THREADS).for_each(<[usize]>::sort_unstable);
            assert_eq!(order, (0..12).collect::<Vec<_>>());
        });
    }

    #[test]
    fn timers_go_on_while_an_expensive_chart_is_rendered_and_then_the_render_is_cancelled() {
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
            let (begun, has_begun) = tokio::sync::oneshot::channel();
            let (ended, has_ended) = mpsc::channel();
            let mut render = Box::pin(pool.run(move |cancel| {
                begun.send(()).unwrap();
                let mut input =
                    RenderInput::new(ReleaseInfo::new("r", "ns"), &values).cancel(cancel);
                // Nothing else is to end it.
                input.limits.time = None;
                input.limits.steps = u64::MAX;
                ended.send(chart.render(&input)).unwrap();
            }));
            let ticks = async {
                has_begun.await.unwrap();
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
    fn long_running_work_gives_its_place_to_others_up_to_a_limit() {
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
            // The last one keeps the only place until one of the others ends.
            let next = pool.run(|_| ());
            let mut next = Box::pin(next);
            assert!(next.as_mut().now_or_never().is_none());
            long.swap_remove(0).abort();
            next.await.unwrap();
            long.iter().for_each(tokio::task::JoinHandle::abort);
        });
    }

    #[test]
    fn there_is_always_a_thread() {
        assert_eq!(RenderPool::new(0).threads(), 1);
        assert_eq!(RenderPool::new(3).threads(), 3);
        assert!(RenderPool::default().threads() >= 1);
    }
}
