//! Formats log lines as zap does with the encoders of controller-runtime, so that log pipelines of
//! the Go operators keep working.
//!
//! `json` prints `{"level":…,"ts":…,"logger":…,"msg":…,FIELDS…,"stacktrace":…}`, and `console` the
//! same separated by tabs, with the fields as JSON at the end. The fields of the enclosing spans come
//! before those of the event.

use std::error::Error;
use std::fmt::{self, Debug, Write};

use jiff::Timestamp;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use super::logs::{Encoder, LogLevel, LogOptions, TimeEncoding};
use kube_objects::with_causes;

/// The name of the field with the text of an event.
const MESSAGE: &str = "message";

/// Formats the fields of spans.
pub(super) struct ZapFields {
    pub(super) encoder: Encoder,
}

/// Formats whole lines.
pub(super) struct ZapLines {
    pub(super) options: LogOptions,
}

/// Collects fields as members of a JSON object, without its braces.
struct Members {
    message: String,
    text: String,
    encoder: Encoder,
}

impl Members {
    fn new(encoder: Encoder) -> Self {
        Self {
            message: String::new(),
            text: String::new(),
            encoder,
        }
    }

    /// Adds a member; `json` is its encoded value.
    fn add(&mut self, name: &str, json: &str) {
        self.separate();
        let _ = write!(self.text, "{}:", quoted(name));
        if self.encoder == Encoder::Console {
            self.text.push(' ');
        }
        self.text.push_str(json);
    }

    /// Adds members that are encoded already.
    fn add_all(&mut self, members: &str) {
        if !members.is_empty() {
            self.separate();
            self.text.push_str(members);
        }
    }

    fn separate(&mut self) {
        if !self.text.is_empty() {
            let console = self.encoder == Encoder::Console;
            self.text.push_str(if console { ", " } else { "," });
        }
    }
}

impl Visit for Members {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field.name(), &Value::from(value).to_string());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field.name(), &value.to_string());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field.name(), &value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field.name(), &value.to_string());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == MESSAGE {
            value.clone_into(&mut self.message);
        } else {
            self.add(field.name(), &quoted(value));
        }
    }

    /// The text of an error does not repeat its cause, so the causes are added.
    fn record_error(&mut self, field: &Field, value: &(dyn Error + 'static)) {
        self.record_str(field, &with_causes(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

impl<'writer> FormatFields<'writer> for ZapFields {
    fn format_fields<R: RecordFields>(
        &self,
        mut writer: Writer<'writer>,
        fields: R,
    ) -> fmt::Result {
        let mut members = Members::new(self.encoder);
        fields.record(&mut members);
        writer.write_str(&members.text)
    }

    fn add_fields(
        &self,
        current: &'writer mut FormattedFields<Self>,
        fields: &tracing::span::Record<'_>,
    ) -> fmt::Result {
        let mut members = Members::new(self.encoder);
        members.add_all(&current.fields);
        fields.record(&mut members);
        current.fields = members.text;
        Ok(())
    }
}

impl<S, N> FormatEvent<S, N> for ZapLines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'fields> FormatFields<'fields> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut members = Members::new(self.options.encoder);
        let mut places = vec![Place::of(event.metadata(), None)];
        for span in context.event_scope().into_iter().flatten() {
            places.push(Place::of(span.metadata(), Some(span.name())));
        }
        let scope = context.event_scope().into_iter();
        for span in scope.flat_map(tracing_subscriber::registry::Scope::from_root) {
            if let Some(fields) = span.extensions().get::<FormattedFields<N>>() {
                members.add_all(&fields.fields);
            }
        }
        event.record(&mut members);
        let level = *event.metadata().level();
        let line = Line {
            level,
            time: self.options.time.encode(host::timestamp()),
            logger: logger(event.metadata().target()),
            stacktrace: self.options.stacktrace.admits(level).then(|| {
                let places: Vec<String> = places.iter().map(ToString::to_string).collect();
                places.join("\n")
            }),
            members,
        };
        writeln!(writer, "{line}")
    }
}

/// A place in the code: that of an event, or of an enclosing span. Together they tell more than the
/// stack of a thread, which in asynchronous code is that of the runtime, and they need no debug
/// information.
struct Place {
    module: &'static str,
    name: Option<&'static str>,
    file: &'static str,
    line: u32,
}

impl Place {
    fn of(metadata: &Metadata<'static>, name: Option<&'static str>) -> Self {
        Self {
            module: metadata.module_path().unwrap_or_else(|| metadata.target()),
            name,
            file: metadata.file().unwrap_or("?"),
            line: metadata.line().unwrap_or_default(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.module)?;
        if let Some(name) = self.name {
            write!(f, "::{name}")?;
        }
        write!(f, "\n\t{}:{}", self.file, self.line)
    }
}

struct Line {
    level: Level,
    /// The time as JSON.
    time: String,
    logger: String,
    members: Members,
    stacktrace: Option<String>,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (_, level) = zap_level(self.level);
        let Members { message, text, .. } = &self.members;
        if self.members.encoder == Encoder::Console {
            let (time, level) = (self.time.trim_matches('"'), level.to_uppercase());
            write!(f, "{time}\t{level}\t{}\t{message}", self.logger)?;
            if !text.is_empty() {
                write!(f, "\t{{{text}}}")?;
            }
            return match &self.stacktrace {
                Some(stacktrace) => write!(f, "\n{stacktrace}"),
                None => Ok(()),
            };
        }
        let (time, logger, message) = (&self.time, quoted(&self.logger), quoted(message));
        write!(
            f,
            r#"{{"level":"{level}","ts":{time},"logger":{logger},"msg":{message}"#
        )?;
        if !text.is_empty() {
            write!(f, ",{text}")?;
        }
        if let Some(stacktrace) = &self.stacktrace {
            write!(f, r#","stacktrace":{}"#, quoted(stacktrace))?;
        }
        f.write_str("}")
    }
}

impl LogLevel {
    /// Whether this threshold admits an event of `level`.
    fn admits(self, level: Level) -> bool {
        zap_level(level).0 >= self.0
    }
}

/// Returns zap's number and name of a level.
fn zap_level(level: Level) -> (i8, &'static str) {
    match level {
        Level::ERROR => (2, "error"),
        Level::WARN => (1, "warn"),
        Level::INFO => (0, "info"),
        Level::DEBUG => (-1, "debug"),
        Level::TRACE => (-2, "Level(-2)"),
    }
}

/// Returns the name of the logger: the module, with dots.
fn logger(target: &str) -> String {
    let own = ["hybrid_operator::", "operator_runtime::"];
    let mut modules = own.iter().filter_map(|own| target.strip_prefix(own));
    let module = modules.next().unwrap_or(target);
    module.replace("::", ".")
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

impl TimeEncoding {
    /// Returns a time as JSON.
    fn encode(self, time: Timestamp) -> String {
        let nanos = time.as_nanosecond();
        match self {
            Self::Epoch => decimal(nanos, 9),
            Self::Millis => decimal(nanos, 6),
            Self::Nanos => nanos.to_string(),
            Self::Iso8601 => quoted(&time.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()),
            Self::Rfc3339 => quoted(&time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            Self::Rfc3339Nano => quoted(&time.to_string()),
        }
    }
}

/// Returns `number` divided by 10 to the power of `digits`.
fn decimal(number: i128, digits: usize) -> String {
    let padded = format!("{number:0width$}", width = digits + 1);
    let (whole, fraction) = padded.split_at(padded.len() - digits);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        whole.to_owned()
    } else {
        format!("{whole}.{fraction}")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use jiff::Timestamp;
    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tracing_subscriber::fmt::MakeWriter;

    use super::super::logs::{Encoder, LogOptions, TimeEncoding, filter, subscriber};

    /// Bytes that were written.
    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Output {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot write")]
    struct Outer(#[source] std::io::Error);

    /// Returns what is printed about an install and an error in a span.
    fn printed(options: &LogOptions) -> String {
        let output = Output::default();
        tracing::subscriber::with_default(
            subscriber(options, filter(options.level), output.clone()),
            || {
                let span = tracing::error_span!("reconcile", controller = "web");
                span.in_scope(|| {
                    tracing::info!(revision = 3, namespace = "ns", "installed \"it\"");
                    let error = Outer(std::io::Error::other("full\ndisk"));
                    tracing::error!(error = &error as &dyn std::error::Error, "failed");
                    tracing::debug!("details");
                });
            },
        );
        let bytes = output.0.lock().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn json_lines_have_the_fields_of_zap_in_its_order() {
        let text = printed(&LogOptions::default());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert!(lines[0].starts_with(r#"{"level":"info","ts":""#), "{text}");
        let parsed: Vec<Value> = lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let mut first = parsed[0].clone();
        let time = first.as_object_mut().unwrap().remove("ts").unwrap();
        let time: Timestamp = time.as_str().unwrap().parse().unwrap();
        assert!(Timestamp::now().duration_since(time).as_secs() < 60);
        let expected = json!({
            "level": "info", "logger": "telemetry.zap.tests", "msg": "installed \"it\"",
            "controller": "web", "revision": 3, "namespace": "ns",
        });
        assert_eq!(first, expected);
        assert_eq!(parsed[1]["error"], "cannot write: full\ndisk");
        let stacktrace = parsed[1]["stacktrace"].as_str().unwrap();
        assert!(stacktrace.contains("tests::reconcile\n\t"), "{stacktrace}");
        assert!(stacktrace.contains("telemetry/zap.rs:"), "{stacktrace}");
    }

    #[test]
    fn console_lines_are_separated_by_tabs() {
        let options = LogOptions {
            encoder: Encoder::Console,
            level: "2".parse().unwrap(),
            stacktrace: "panic".parse().unwrap(),
            ..LogOptions::default()
        };
        let text = printed(&options);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split('\t').collect())
            .collect();
        let fields = r#"{"controller": "web", "revision": 3, "namespace": "ns"}"#;
        let expected = ["INFO", "telemetry.zap.tests", "installed \"it\"", fields];
        assert_eq!(lines[0][1..], expected, "{text}");
        let error = r#"{"controller": "web", "error": "cannot write: full\ndisk"}"#;
        assert_eq!(lines[1][4], error);
        assert_eq!(lines[2][1], "DEBUG", "{text}");
        assert_eq!(lines.len(), 3, "{text}");
    }

    #[test]
    fn times_are_encoded_as_the_flag_says() {
        let time: Timestamp = "2026-01-02T03:04:05.06Z".parse().unwrap();
        for (name, expected) in [
            ("epoch", "1767323045.06"),
            ("millis", "1767323045060"),
            ("nano", "1767323045060000000"),
            ("nanos", "1767323045060000000"),
            ("ISO8601", r#""2026-01-02T03:04:05.060Z""#),
            ("rfc3339", r#""2026-01-02T03:04:05Z""#),
            ("rfc3339nano", r#""2026-01-02T03:04:05.06Z""#),
        ] {
            let encoding: TimeEncoding = name.parse().unwrap();
            assert_eq!(encoding.encode(time), expected, "{name}");
        }
    }
}
