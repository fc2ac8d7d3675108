//! Shows on a terminal what takes longer than a second.

use std::io::{self, IsTerminal as _};
use std::time::Duration;

use indicatif::ProgressBar;

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
