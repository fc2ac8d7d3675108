//! Flags and environment variables of `run`, with the names and defaults of the Go operators.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use operator_runtime::duration;
use operator_runtime::manager::ControllerContext;

use crate::watches::{ChartLimits, parse_size};

pub use operator_runtime::options::*;

/// The flags of `run`.
#[derive(Parser, Debug, Clone)]
pub struct RunArgs {
    /// Flags about charts.
    #[command(flatten)]
    pub charts: ChartOptions,
    /// Flags of every operator.
    #[command(flatten)]
    pub process: ProcessArgs,
}

impl RunArgs {
    /// Combines the flags with the environment variables that `env` returns.
    pub fn options(self, env: impl Fn(&str) -> Option<String>) -> Options {
        let mut charts = self.charts;
        let variable = || env("CHART_CACHE").filter(|directory| !directory.is_empty());
        let cache = charts.chart_cache.take();
        charts.chart_cache = cache.or_else(|| variable().map(PathBuf::from));
        let mut options = self.process.options(env);
        options.extensions.insert(charts);
        options
    }
}

/// The flags of an operator with charts, which are its settings in [`Options::extensions`].
#[derive(Parser, Debug, Clone)]
#[command(rename_all = "kebab-case")]
pub struct ChartOptions {
    /// Path of the watches file, which binds kinds of custom resources to charts.
    #[arg(long, default_value = "./watches.yaml", value_name = "FILE")]
    pub watches_file: PathBuf,
    /// Reload the watches file and its charts when they change.
    #[arg(long, num_args = 0..=1, default_value_t = true, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    pub watch_files: bool,
    /// Directory in which charts of repositories and registries are kept, up to 512 MiB [default:
    /// `$CHART_CACHE`, else hybrid-operator/charts in `$XDG_CACHE_HOME` or ~/.cache].
    #[arg(long, value_name = "DIR")]
    pub chart_cache: Option<PathBuf>,
    /// Time between two releases of a kind that are upgraded because their chart or the options of
    /// their entry have changed.
    #[arg(long, default_value = "2s", value_name = "DURATION", value_parser = duration::parse)]
    pub reload_pace: Duration,
    /// Reconcile each custom resource at least this often (0 disables it).
    #[arg(long, default_value = "1m", value_name = "DURATION", value_parser = duration::parse)]
    pub reconcile_period: Duration,
    /// Memory that the values and the output of one render of a chart may hold, unless
    /// `limits.memory` of its entry says otherwise.
    #[arg(long, default_value = "256Mi", value_name = "SIZE", value_parser = parse_size)]
    pub limit_memory: usize,
    /// Processor time that one render of a chart may take, unless `limits.time` of its entry says
    /// otherwise (0 means no limit).
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration::parse)]
    pub limit_time: Duration,
    /// Omit the values from events about `overrideValues`. With =false the events contain the texts of
    /// watches.yaml, in which environment variables and templates are not expanded.
    #[arg(long, num_args = 0..=1, default_value_t = true, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    pub suppress_override_values: bool,
    /// Address of the loopback interface to serve the status page on, such as 127.0.0.1:8082 [default: it is not
    /// served].
    #[arg(long, value_name = "ADDRESS", value_parser = page_address)]
    pub ui_bind_address: Option<SocketAddr>,
    /// Write the manifest of a release to the status of its custom resource, without Secrets and if it is
    /// not large.
    #[arg(long, num_args = 0..=1, default_value_t = true, default_missing_value = "true", require_equals = true, action = clap::ArgAction::Set)]
    pub status_manifest: bool,
}

/// The settings without flags.
impl Default for ChartOptions {
    fn default() -> Self {
        Self::parse_from(["run"])
    }
}

impl ChartOptions {
    /// Returns the limits of one render of a chart, unless its entry says otherwise.
    pub(crate) fn limits(&self) -> ChartLimits {
        ChartLimits {
            memory: Some(self.limit_memory),
            time: Some(self.limit_time),
        }
    }

    /// Returns the settings of a process.
    pub(crate) fn of(context: &ControllerContext) -> Self {
        context.settings().cloned().unwrap_or_default()
    }
}

fn page_address(text: &str) -> Result<SocketAddr, String> {
    loopback(text).ok_or_else(|| {
        let wanted = "an address of the loopback interface, such as 127.0.0.1:8082; the status page has no \
            authentication, so other machines reach it with `kubectl port-forward` only";
        format!("not {wanted}")
    })
}

#[cfg(test)]
mod tests;
