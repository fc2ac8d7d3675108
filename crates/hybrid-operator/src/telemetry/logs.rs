//! Logging, configured with the flags of the Go operators (`--zap-log-level`, `--zap-encoder`).

use tracing_subscriber::EnvFilter;

/// Level and format of logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// `error`, `warn`, `info`, `debug`, or a number; higher numbers log more.
    pub level: String,
    /// The format.
    pub encoder: Encoder,
}

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoder {
    /// One JSON object per line.
    #[default]
    Json,
    /// Human-readable text.
    Console,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            encoder: Encoder::Json,
        }
    }
}

/// Translates a zap level into a filter; `$RUST_LOG` overrides it.
fn filter(level: &str) -> EnvFilter {
    let ours = match level {
        "panic" | "error" => "error",
        "warn" => "warn",
        "debug" | "1" => "debug",
        other => match other.parse::<u32>() {
            Ok(2..) => "trace",
            _ => "info",
        },
    };
    EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        EnvFilter::new(format!(
            // `controller::follow` logs the failure of a watch once, kube at each attempt.
            "{ours},hyper_util=warn,h2=warn,rustls=warn,tower=warn,kube_runtime=error"
        ))
    })
}

/// Starts logging to standard error. A second call has no effect.
pub fn start(options: &LogOptions) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(&options.level))
        .with_writer(std::io::stderr)
        .with_target(false);
    // An error means that the program has already set up its own logging.
    let _ = match options.encoder {
        Encoder::Json => builder.json().flatten_event(true).try_init(),
        Encoder::Console => builder.try_init(),
    };
}
