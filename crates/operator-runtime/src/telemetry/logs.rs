//! Logging, configured with the flags of the Go operators (`--zap-log-level`, `--zap-encoder`,
//! `--zap-time-encoding`, `--zap-stacktrace-level`, `--zap-devel`), with their defaults.

use std::str::FromStr;

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::zap::{ZapFields, ZapLines};

/// Level and format of logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogOptions {
    /// The least severe level that is logged.
    pub level: LogLevel,
    /// The format.
    pub encoder: Encoder,
    /// The format of times.
    pub time: TimeEncoding,
    /// The least severe level whose lines tell the place in the code.
    pub stacktrace: LogLevel,
}

/// A level, as zap numbers it: higher numbers are more severe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLevel(pub(super) i8);

/// The format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoder {
    /// One JSON object per line.
    #[default]
    Json,
    /// Human-readable text.
    Console,
}

/// The format of times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeEncoding {
    /// Seconds since 1970, with a fraction.
    Epoch,
    /// Milliseconds since 1970, with a fraction.
    Millis,
    /// Nanoseconds since 1970.
    Nanos,
    /// ISO 8601 with milliseconds.
    Iso8601,
    /// RFC 3339 with seconds.
    #[default]
    Rfc3339,
    /// RFC 3339 with nanoseconds.
    Rfc3339Nano,
}

/// A flag about logs has an unknown value.
#[derive(Debug, thiserror::Error)]
#[error("unknown {what}; use {known}")]
pub struct UnknownValue {
    what: &'static str,
    known: &'static str,
}

impl LogLevel {
    const PANIC: Self = Self(4);
    const ERROR: Self = Self(2);
    const WARN: Self = Self(1);
    const INFO: Self = Self(0);
    const DEBUG: Self = Self(-1);

    fn named(name: &str) -> Option<Self> {
        Some(match name.to_lowercase().as_str() {
            "panic" => Self::PANIC,
            "error" => Self::ERROR,
            "warn" => Self::WARN,
            "info" => Self::INFO,
            "debug" => Self::DEBUG,
            _ => return None,
        })
    }

    /// Reads a level of stack traces, which cannot be a number.
    ///
    /// # Errors
    /// When the text is not the name of a level.
    pub fn of_stacktraces(text: &str) -> Result<Self, UnknownValue> {
        Self::named(text).ok_or(UnknownValue {
            what: "level",
            known: "info, warn, error or panic",
        })
    }

    /// Returns the filter directive of this level.
    fn directive(self) -> &'static str {
        match self.0 {
            3.. => "off",
            2 => "error",
            1 => "warn",
            0 => "info",
            -1 => "debug",
            _ => "trace",
        }
    }
}

impl FromStr for LogLevel {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        let numbered = || {
            let number: i8 = text.parse().ok().filter(|number| *number > 0)?;
            Some(Self(-number))
        };
        Self::named(text).or_else(numbered).ok_or(UnknownValue {
            what: "level",
            known: "debug, info, warn, error, panic, or a number from 1 to 127 (higher logs more)",
        })
    }
}

impl FromStr for Encoder {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        match text.to_lowercase().as_str() {
            "json" => Ok(Self::Json),
            "console" => Ok(Self::Console),
            _ => Err(UnknownValue {
                what: "encoder",
                known: "json or console",
            }),
        }
    }
}

impl FromStr for TimeEncoding {
    type Err = UnknownValue;

    fn from_str(text: &str) -> Result<Self, UnknownValue> {
        Ok(match text.to_lowercase().as_str() {
            "epoch" => Self::Epoch,
            "millis" => Self::Millis,
            // The help of the Go operators says nano, their parser nanos.
            "nano" | "nanos" => Self::Nanos,
            "iso8601" => Self::Iso8601,
            "rfc3339" => Self::Rfc3339,
            "rfc3339nano" => Self::Rfc3339Nano,
            _ => {
                return Err(UnknownValue {
                    what: "time encoding",
                    known: "epoch, millis, nano, iso8601, rfc3339 or rfc3339nano",
                });
            }
        })
    }
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            level: LogLevel::INFO,
            encoder: Encoder::Json,
            time: TimeEncoding::Rfc3339,
            stacktrace: LogLevel::ERROR,
        }
    }
}

impl LogOptions {
    /// The defaults of `--zap-devel`.
    pub(crate) fn development() -> Self {
        Self {
            level: LogLevel::DEBUG,
            encoder: Encoder::Console,
            time: TimeEncoding::Rfc3339,
            stacktrace: LogLevel::WARN,
        }
    }
}

/// Reads a filter of `$RUST_LOG`; `None` if it is not set. Some of an invalid one would be ignored.
fn explicit(text: Option<&str>) -> Result<Option<EnvFilter>, String> {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else {
        return Ok(None);
    };
    EnvFilter::try_new(text).map(Some).map_err(|error| {
        format!(
            "$RUST_LOG is {text:?}, which is no filter ({error}); it is ignored, and --zap-log-level holds; an example is hybrid_operator=debug,info"
        )
    })
}

pub(super) fn filter(level: LogLevel) -> EnvFilter {
    let level = level.directive();
    // An explicit directive of a crate would log more than a general one that is stricter.
    let calmer = |least: &'static str| match level {
        "off" => "off",
        "error" => "error",
        _ => least,
    };
    let warn = calmer("warn");
    let error = calmer("error");
    EnvFilter::new(format!(
        // `kube_objects::watch::follow` logs the failure of a watch once, kube at each attempt. The
        // client would log responses that it cannot parse, with the content of Secrets.
        "{level},hyper_util={warn},h2={warn},rustls={warn},tower={warn},kube_runtime={error},kube_client={error}"
    ))
}

/// Creates what writes the log.
pub(super) fn subscriber<W>(
    options: &LogOptions,
    filter: EnvFilter,
    writer: W,
) -> impl Subscriber + Send + Sync + use<W>
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let encoder = options.encoder;
    let options = options.clone();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        // They would be printed to standard error, and end the task with a panic if nobody reads it any more.
        .log_internal_errors(false)
        .fmt_fields(ZapFields { encoder })
        .event_format(ZapLines { options })
        .finish()
}

/// Starts logging to standard error. A second call has no effect.
pub fn start(options: &LogOptions) {
    let explicit = explicit(std::env::var(EnvFilter::DEFAULT_ENV).ok().as_deref());
    let (filter, problem) = match explicit {
        Ok(explicit) => (explicit.unwrap_or_else(|| filter(options.level)), None),
        Err(problem) => (filter(options.level), Some(problem)),
    };
    let subscriber = subscriber(options, filter, std::io::stderr);
    // An error means that the program has already set up its own logging.
    let _ = tracing_subscriber::util::SubscriberInitExt::try_init(subscriber);
    if let Some(problem) = problem {
        tracing::warn!("{problem}");
    }
}

#[cfg(test)]
mod tests {
    use super::{Encoder, LogLevel, TimeEncoding, explicit, filter};

    #[test]
    fn an_invalid_filter_is_named_and_the_level_holds() {
        assert!(explicit(None).unwrap().is_none());
        assert!(explicit(Some("")).unwrap().is_none());
        let text = explicit(Some("hybrid_operator=debug")).unwrap().unwrap();
        assert_eq!(text.to_string(), "hybrid_operator=debug");
        let problem = explicit(Some("hybrid_operator=loud")).unwrap_err();
        assert!(problem.contains("hybrid_operator=loud") && problem.contains("--zap-log-level"));
    }

    #[test]
    fn levels_are_those_of_zap_and_others_are_refused() {
        for (text, expected) in [
            ("panic", Some("off")),
            ("error", Some("error")),
            ("warn", Some("warn")),
            ("INFO", Some("info")),
            ("debug", Some("debug")),
            ("1", Some("debug")),
            ("2", Some("trace")),
            ("10", Some("trace")),
            ("0", None),
            ("-1", None),
            ("verbose", None),
            ("", None),
        ] {
            let level = text.parse::<LogLevel>().ok();
            assert_eq!(level.map(LogLevel::directive), expected, "{text}");
        }
        assert!(LogLevel::of_stacktraces("2").is_err());
        assert!("xml".parse::<Encoder>().is_err() && "unix".parse::<TimeEncoding>().is_err());
    }

    #[test]
    fn responses_that_cannot_be_parsed_are_not_logged() {
        for level in ["10", "info", "error"] {
            let filter = filter(level.parse().unwrap()).to_string();
            assert!(filter.contains("kube_client=error"), "{filter}");
        }
        let panic = filter(LogLevel::PANIC).to_string();
        assert!(panic.contains("kube_client=off"), "{panic}");
    }
}
