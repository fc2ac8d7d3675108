//! Shows on a terminal what takes longer than a second.

use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Time without progress on the screen.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between two pictures of the spinner.
const TICK: Duration = Duration::from_millis(100);

/// Waits for `work`. On a terminal, what takes longer than a second is named on standard error.
pub(crate) async fn with_progress<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    if !io::stderr().is_terminal() {
        return work.await;
    }
    if let Ok(done) = tokio::time::timeout(PATIENCE, &mut work).await {
        return done;
    }
    let spinner = ProgressBar::new_spinner().with_message(what.to_owned());
    spinner.enable_steady_tick(TICK);
    let done = work.await;
    spinner.finish_and_clear();
    done
}

/// Counts the steps of a task that several threads work on. On a terminal, a task that takes longer
/// than a second is shown on standard error.
pub(crate) struct Steps {
    what: String,
    began: Instant,
    on_terminal: bool,
    bar: OnceLock<ProgressBar>,
    total: AtomicU64,
    done: AtomicU64,
}

impl Steps {
    /// Begins a task.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            began: Instant::now(),
            on_terminal: io::stderr().is_terminal(),
            bar: OnceLock::new(),
            total: AtomicU64::new(0),
            done: AtomicU64::new(0),
        }
    }

    /// Adds steps that are to be done.
    pub(crate) fn expect(&self, steps: usize) {
        self.total.fetch_add(steps as u64, Ordering::Relaxed);
    }

    /// One step is done.
    pub(crate) fn done(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if !self.on_terminal || self.began.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let style = ProgressStyle::with_template("{spinner} {msg} {pos}/{len}");
            let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(0)
                .with_style(style)
                .with_message(self.what.clone())
        });
        bar.set_length(self.total.load(Ordering::Relaxed));
        bar.set_position(done);
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_shown_on_terminals_after_a_second() {
        let position = |on_terminal, age: Duration| {
            let mut steps = Steps::new("work");
            steps.on_terminal = on_terminal;
            steps.began = Instant::now().checked_sub(age).unwrap();
            steps.expect(3);
            steps.done();
            steps.done();
            let bar = steps.bar.get();
            bar.map(|bar| (bar.position(), bar.length()))
        };
        assert_eq!(position(true, PATIENCE), Some((2, Some(3))));
        assert_eq!(position(true, Duration::ZERO), None);
        assert_eq!(position(false, PATIENCE), None);
    }
}
