//! Endpoint for traces of releases: the flag, or the environment variables of OpenTelemetry.

use super::{Options, OptionsError, forms};
use crate::telemetry::traces::{AVAILABLE, Destination};

/// A URL that takes spans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtlpEndpoint {
    /// The URL as it was given.
    pub url: String,
    /// The flag or environment variable that gave it.
    pub from: OtlpSource,
}

/// Flag or environment variable that says where traces are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtlpSource {
    /// `--otlp-endpoint`
    Flag,
    /// `$OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, whose path is used as it is.
    TracesVariable,
    /// `$OTEL_EXPORTER_OTLP_ENDPOINT`
    Variable,
}

impl OtlpSource {
    fn name(self) -> &'static str {
        match self {
            Self::Flag => "--otlp-endpoint",
            Self::TracesVariable => "$OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            Self::Variable => "$OTEL_EXPORTER_OTLP_ENDPOINT",
        }
    }
}

impl OtlpEndpoint {
    pub(super) fn of(flag: Option<String>, env: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let of = |url: Option<String>, from| url.map(|url| Self { url, from });
        let traces = env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT");
        let all = env("OTEL_EXPORTER_OTLP_ENDPOINT");
        of(flag, OtlpSource::Flag)
            .or_else(|| of(traces, OtlpSource::TracesVariable))
            .or_else(|| of(all, OtlpSource::Variable))
    }

    /// Refuses a URL of a wrong form, and the flag if the program cannot send traces. A variable is often set for
    /// all Pods of a namespace, so a program that cannot send traces ignores it.
    pub(super) fn check(&self, is_available: bool) -> Result<(), OptionsError> {
        if !is_available {
            return match self.from {
                OtlpSource::Flag => Err(OptionsError::NotBuilt {
                    flag: "--otlp-endpoint",
                    feature: "otlp",
                }),
                OtlpSource::TracesVariable | OtlpSource::Variable => {
                    tracing::info!(
                        variable = self.from.name(),
                        "no traces are sent: this program was built without the feature otlp"
                    );
                    Ok(())
                }
            };
        }
        match forms::otlp_url(&self.url) {
            Ok(_) => Ok(()),
            Err(_) => Err(OptionsError::Form {
                name: self.from.name(),
                value: self.url.clone(),
                wanted: forms::OTLP_URL,
            }),
        }
    }

    /// Returns the URL to which spans are posted.
    fn target(&self) -> String {
        match self.from {
            OtlpSource::TracesVariable => self.url.clone(),
            OtlpSource::Flag | OtlpSource::Variable => {
                format!("{}/v1/traces", self.url.trim_end_matches('/'))
            }
        }
    }
}

impl Options {
    /// Returns where spans are sent, and what they are marked with.
    pub(crate) fn traces(&self) -> Option<Destination> {
        let endpoint = self.otlp_endpoint.as_ref().filter(|_| AVAILABLE)?;
        Some(Destination {
            url: endpoint.target(),
            service: self.operator_name.clone(),
            instance: self.instance.clone(),
            namespace: self.operator_namespace.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::OtlpEndpoint;
    use crate::options::ProcessArgs;

    fn endpoint(flags: &[&str], env: &[(&str, &str)]) -> Option<OtlpEndpoint> {
        let args = ProcessArgs::try_parse_from(["run"].iter().chain(flags)).unwrap();
        let options = args.options(|name| {
            let mut env = env.iter();
            let known = env.find(|(known, _)| *known == name);
            known.map(|(_, value)| (*value).to_owned())
        });
        options.otlp_endpoint
    }

    #[test]
    fn endpoints_of_traces_come_from_the_flag_or_a_variable() {
        let all = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:4318/");
        let traces = (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "https://traces/as/it/is",
        );
        let flag = &["--otlp-endpoint=https://flag/path"][..];
        for (flags, env, expected) in [
            (
                flag,
                &[all, traces][..],
                Some("https://flag/path/v1/traces"),
            ),
            (&[], &[all, traces], Some("https://traces/as/it/is")),
            (&[], &[all], Some("http://all:4318/v1/traces")),
            (&[], &[], None),
        ] {
            let endpoint = endpoint(flags, env);
            let target = endpoint.map(|endpoint| endpoint.target());
            assert_eq!(target.as_deref(), expected);
        }
    }

    #[test]
    fn a_program_that_cannot_send_traces_refuses_the_flag_and_ignores_variables() {
        let given = |flags: &[&str], env: &[(&str, &str)]| {
            let endpoint = endpoint(flags, env).unwrap();
            let refused = |is_available| endpoint.check(is_available).err().map(|e| e.to_string());
            (refused(false), refused(true))
        };
        let (without, with) = given(&["--otlp-endpoint=http://collector"], &[]);
        let without = without.unwrap();
        assert!(
            without.starts_with("--otlp-endpoint") && without.contains("feature otlp"),
            "{without}"
        );
        assert_eq!(with, None);
        let (without, with) = given(&[], &[("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317")]);
        assert_eq!(without, None);
        let with = with.unwrap();
        assert!(with.starts_with("$OTEL_EXPORTER_OTLP_ENDPOINT"), "{with}");
    }
}
