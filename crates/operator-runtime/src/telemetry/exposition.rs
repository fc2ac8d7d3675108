//! The text formats in which metrics are served.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exposition {
    /// `OpenMetrics` 1.0, for scrapers that ask for it, as Prometheus does.
    OpenMetrics,
    /// Prometheus' own format 0.0.4, which all tools read.
    Prometheus,
}

impl Exposition {
    /// Returns the format for the `Accept` of a request.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).into_iter();
        let mut values = values.filter_map(|value| value.to_str().ok());
        if values.any(|value| value.contains("application/openmetrics-text")) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Writes metrics, which are in `OpenMetrics`, in this format.
    pub(crate) fn of(self, open_metrics: String) -> String {
        match self {
            Self::OpenMetrics => open_metrics,
            Self::Prometheus => prometheus(&open_metrics),
        }
    }
}

/// Help and type are about the names of samples here: counters and infos have their suffix there as well. There are
/// no units, exemplars and end.
fn prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut add = |parts: &[&str]| {
        text.extend(parts.iter().copied());
        text.push('\n');
    };
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ');
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|described| described.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            if let Some((_, help)) = help.take_if(|(helped, _)| *helped == name) {
                add(&["# HELP ", name, suffix, " ", help]);
            }
            add(&["# TYPE ", name, suffix, " ", kind]);
        } else if !line.starts_with('#') {
            add(&[without_exemplar(line)]);
        }
    }
    text
}

/// Returns a sample without what follows its value.
fn without_exemplar(sample: &str) -> &str {
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in sample.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'#' if !quoted => return sample.get(..at).unwrap_or(sample).trim_end(),
            _ => {}
        }
    }
    sample
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::exemplar::CounterWithExemplar;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::info::Info;
    use prometheus_client::registry::{Registry, Unit};

    use super::*;

    #[test]
    fn metrics_have_the_names_of_their_samples_in_the_format_of_prometheus() {
        let mut registry = Registry::default();
        let requests = Family::<Vec<(String, String)>, Counter>::default();
        let label = ("path".to_owned(), "a \" # \\".to_owned());
        requests.get_or_create(&vec![label]).inc();
        registry.register("requests", "Requests by path", requests);
        let age: Gauge = Gauge::default();
        registry.register_with_unit("age", "Age", Unit::Seconds, age);
        let build = Info::new(vec![("version", "1")]);
        registry.register("build", "Build", build);
        let traced = CounterWithExemplar::<Vec<(String, String)>>::default();
        traced.inc_by(2, Some(vec![("trace".to_owned(), "x".to_owned())]), None);
        registry.register("traced", "With an exemplar", traced);

        let mut open = String::new();
        prometheus_client::encoding::text::encode(&mut open, &registry).unwrap();
        assert!(open.contains(" # {trace=\"x\"}"), "{open}");
        assert_eq!(Exposition::OpenMetrics.of(open.clone()), open);
        assert_eq!(
            Exposition::Prometheus.of(open),
            "# HELP requests_total Requests by path.\n\
             # TYPE requests_total counter\n\
             requests_total{path=\"a \\\" # \\\\\"} 1\n\
             # HELP age_seconds Age.\n\
             # TYPE age_seconds gauge\n\
             age_seconds 0\n\
             # HELP build_info Build.\n\
             # TYPE build_info gauge\n\
             build_info{version=\"1\"} 1\n\
             # HELP traced_total With an exemplar.\n\
             # TYPE traced_total counter\n\
             traced_total 2\n"
        );
    }

    #[test]
    fn open_metrics_are_for_scrapers_that_name_them() {
        let accepted = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, value.parse().unwrap());
            Exposition::accepted(&headers)
        };
        // Of Prometheus 2 and of a browser.
        for (value, wanted) in [
            (
                "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Exposition::OpenMetrics,
            ),
            ("text/html,*/*;q=0.8", Exposition::Prometheus),
            ("text/plain;version=0.0.4", Exposition::Prometheus),
        ] {
            assert_eq!(accepted(value), wanted, "{value}");
        }
        let none = Exposition::accepted(&HeaderMap::new());
        assert_eq!(none, Exposition::Prometheus);
    }
}
