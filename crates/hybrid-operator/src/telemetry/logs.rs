//! Logs by the flags that Go operators have (`--zap-log-level`, `--zap-encoder`).

use tracing_subscriber::EnvFilter;

/// How logs look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// `debug`, `info`, `error`, or a number: the higher the more.
    pub level: String,
    /// `json` or `console`.
    pub encoder: Encoder,
}

/// The form of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoder {
    /// One JSON object a line.
    #[default]
    Json,
    /// For people.
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

/// The filter of a zap level; `$RUST_LOG` overrides it.
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
            // `controller::follow` says once why a watch fails; kube says it at each attempt.
            "{ours},hyper_util=warn,h2=warn,rustls=warn,tower=warn,kube_runtime=error"
        ))
    })
}

/// Starts logging to standard error. A second call changes nothing.
pub fn start(options: &LogOptions) {
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter(&options.level))
        .with_writer(std::io::stderr)
        .with_target(false);
    // An error means that a library user logs in their own way already.
    let _ = match options.encoder {
        Encoder::Json => builder.json().flatten_event(true).try_init(),
        Encoder::Console => builder.try_init(),
    };
}
