//! Signals: the first one stops the process gracefully, the second one at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// The exit code after a second signal.
const ABORTED: i32 = 130;

/// Returns a token that the first SIGTERM or SIGINT cancels; the second signal ends the process.
pub(super) fn on_signal() -> CancellationToken {
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        let (Ok(mut terminate), Ok(mut interrupt)) = (
            signal(SignalKind::terminate()),
            signal(SignalKind::interrupt()),
        ) else {
            error!("cannot install signal handlers; the process will not stop gracefully");
            return;
        };
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        info!("stopping; send the signal again to exit at once");
        token.cancel();
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        std::process::exit(ABORTED);
    });
    stop
}
