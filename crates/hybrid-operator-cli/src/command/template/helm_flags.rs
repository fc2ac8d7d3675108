//! The flags of `helm template` that choose where the output goes and how the release is named, and
//! those that are accepted because scripts pass them.

use std::net::ToSocketAddrs as _;
use std::time::Duration;

use clap::ArgAction;
use go_template::go::duration;

use crate::command::UsageError;

/// Names of labels that Helm sets on its records itself.
const SYSTEM_LABELS: [&str; 6] = [
    "name",
    "owner",
    "status",
    "version",
    "createdAt",
    "modifiedAt",
];

/// Flags with an effect, those that are refused with a reason, and those without an effect on a
/// render without a cluster. The last are not in `--help`; `docs/reference/cli.md` lists them.
#[derive(Debug, clap::Args)]
#[allow(clippy::struct_excessive_bools, reason = "one per flag")]
pub(super) struct HelmFlags {
    /// Write the output to files below this directory instead of standard output
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with = "cr",
        allow_hyphen_values = true
    )]
    output_dir: Option<String>,

    /// With --output-dir: write to a directory with the name of the release
    #[arg(long)]
    release_name: bool,

    /// Template of the release's name, with Sprig's functions; NAME must be omitted
    #[arg(
        long,
        value_name = "TEMPLATE",
        conflicts_with = "cr",
        allow_hyphen_values = true
    )]
    name_template: Option<String>,

    /// If a chart directory lacks charts that it depends on, fetch them into its charts/ first, as
    /// `helm dependency update` does
    #[arg(long, conflicts_with = "cr")]
    pub(super) dependency_update: bool,

    /// Let `getHostByName` resolve names; without it, the function returns an empty text
    #[arg(long, conflicts_with = "cr")]
    pub(super) enable_dns: bool,

    /// Kubeconfig with the default namespace
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub(super) kubeconfig: String,

    /// Context of the kubeconfig with the default namespace
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true,
        allow_hyphen_values = true
    )]
    pub(super) kube_context: String,

    /// Accepted as `client`, which is what this command does
    #[arg(
        long,
        value_name = "MODE",
        num_args = 0..=1,
        require_equals = true,
        default_value = "client",
        default_missing_value = "true",
        hide_default_value = true
    )]
    dry_run: String,

    #[arg(long, hide = true)]
    validate: bool,

    #[arg(long, value_name = "NAME", hide = true, allow_hyphen_values = true)]
    post_renderer: Option<String>,

    #[arg(short, long, value_name = "LABELS", action = ArgAction::Append, hide = true, allow_hyphen_values = true)]
    labels: Vec<String>,

    #[command(flatten)]
    #[allow(dead_code, reason = "parsing checks them")]
    without_effect: WithoutEffect,
}

/// Flags about installing, about a cluster, and about files that Helm keeps. They are checked, as Helm
/// checks them, and otherwise ignored.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Without effect")]
#[allow(clippy::struct_excessive_bools, reason = "one per flag")]
#[allow(
    dead_code,
    reason = "scripts pass them, and nothing depends on their values"
)]
struct WithoutEffect {
    #[arg(long, hide = true)]
    create_namespace: bool,
    #[arg(long, hide = true, conflicts_with = "force_conflicts")]
    force_replace: bool,
    #[arg(long, hide = true, conflicts_with = "force_conflicts")]
    force: bool,
    #[arg(long, hide = true)]
    force_conflicts: bool,
    #[arg(
        long,
        hide = true,
        action = ArgAction::Set,
        value_parser = go_bool,
        num_args = 0..=1,
        require_equals = true,
        default_value = "true",
        default_missing_value = "true"
    )]
    server_side: bool,
    #[arg(long, hide = true)]
    replace: bool,
    #[arg(long, hide = true, value_parser = go_duration, allow_hyphen_values = true)]
    timeout: Option<Duration>,
    #[arg(long, hide = true)]
    wait_for_jobs: bool,
    #[arg(
        long,
        hide = true,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "watcher",
        value_parser = ["watcher", "hookOnly", "legacy", "true", "false"]
    )]
    wait: Option<String>,
    #[arg(long, hide = true, allow_hyphen_values = true)]
    description: Option<String>,
    #[arg(long, hide = true)]
    disable_openapi_validation: bool,
    #[arg(long, hide = true)]
    rollback_on_failure: bool,
    #[arg(long, hide = true)]
    atomic: bool,
    #[arg(long, hide = true)]
    skip_crds: bool,
    #[arg(long, hide = true)]
    render_subchart_notes: bool,
    #[arg(long, hide = true)]
    hide_notes: bool,
    #[arg(long, hide = true)]
    take_ownership: bool,
    #[arg(long, hide = true, action = ArgAction::Append, allow_hyphen_values = true)]
    post_renderer_args: Vec<String>,
    #[arg(long, hide = true, allow_hyphen_values = true)]
    burst_limit: Option<i64>,
    #[arg(long, hide = true, allow_hyphen_values = true)]
    qps: Option<f32>,
    #[arg(long, alias = "colour", hide = true, value_parser = ["never", "auto", "always"])]
    color: Option<String>,
    #[arg(long, hide = true, allow_hyphen_values = true)]
    content_cache: Option<String>,
    #[arg(long, hide = true, allow_hyphen_values = true)]
    repository_cache: Option<String>,
    #[arg(long, hide = true, allow_hyphen_values = true)]
    kube_apiserver: Option<String>,
    #[arg(long, hide = true, action = ArgAction::Append, allow_hyphen_values = true)]
    kube_as_group: Vec<String>,
    #[arg(long, hide = true, allow_hyphen_values = true)]
    kube_as_user: Option<String>,
    #[arg(long, hide = true, allow_hyphen_values = true)]
    kube_ca_file: Option<String>,
    #[arg(long, hide = true)]
    kube_insecure_skip_tls_verify: bool,
    #[arg(long, hide = true, allow_hyphen_values = true)]
    kube_tls_server_name: Option<String>,
    #[arg(long, hide = true, allow_hyphen_values = true)]
    kube_token: Option<String>,
}

impl HelmFlags {
    /// Refuses what this command cannot do.
    pub(super) fn check(&self) -> Result<(), UsageError> {
        let mode = self.dry_run.as_str();
        if self.validate || mode == "server" {
            let message = "--dry-run=server needs a cluster, which this command does not connect to; use \
                           'hybrid-operator diff' to compare with a cluster";
            return Err(UsageError(message.to_owned()));
        }
        if mode != "client" && go_bool(mode) != Ok(true) {
            return Err(UsageError(format!(
                "invalid dry-run value ({mode:?}); it must be \"client\""
            )));
        }
        if let Some(name) = given(self.post_renderer.as_ref()) {
            return Err(UsageError(format!(
                "--post-renderer {name}: plugins are not supported; pipe the output into the program"
            )));
        }
        self.labels
            .iter()
            .try_for_each(|labels| check_labels(labels))
    }

    /// Returns the directory of `--output-dir`.
    pub(super) fn output_dir(&self) -> Option<&str> {
        given(self.output_dir.as_ref())
    }

    /// Returns whether `--release-name` is set.
    pub(super) fn uses_release_name(&self) -> bool {
        self.release_name
    }

    pub(super) fn name_template(&self) -> Option<&str> {
        given(self.name_template.as_ref())
    }
}

/// Returns a text that is not empty, as Helm treats both alike.
fn given(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

/// Parses a boolean as Go's `strconv.ParseBool` does.
pub(super) fn go_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("give true or false".to_owned()),
    }
}

fn go_duration(text: &str) -> Result<Duration, String> {
    match duration::Duration::parse(text.as_bytes()) {
        // Helm accepts negative ones, and nothing depends on them.
        Ok(parsed) => Ok(Duration::try_from_secs_f64(parsed.seconds()).unwrap_or_default()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the first address of a host, for `getHostByName`.
pub(super) fn first_address(host: &str) -> std::io::Result<String> {
    let mut addresses = (host, 0).to_socket_addrs()?;
    let first = addresses.next().ok_or(std::io::ErrorKind::NotFound)?;
    Ok(first.ip().to_string())
}

/// Checks labels as Helm does: `a=b,c=d`.
fn check_labels(labels: &str) -> Result<(), UsageError> {
    let pairs: Vec<&str> = match labels.matches('=').count() {
        0 | 1 => vec![labels],
        _ => labels.split(',').collect(),
    };
    for pair in pairs {
        let Some((name, _)) = pair.split_once('=') else {
            return Err(UsageError(format!(
                "--labels {labels:?}: {pair:?} must have the form key=value"
            )));
        };
        if SYSTEM_LABELS.contains(&name.trim_matches('"')) {
            return Err(UsageError(format!(
                "--labels {labels:?}: {name:?} is reserved for Helm; reserved are {}",
                SYSTEM_LABELS.join(", ")
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_pairs_without_reserved_names() {
        for (labels, is_valid) in [
            ("a=b", true),
            ("a=b,c=d", true),
            ("a=b,c", true),
            ("a=", true),
            ("a", false),
            ("", false),
            ("a=b,c=d,e", false),
            ("owner=me", false),
            ("a=b,status=c", false),
        ] {
            assert_eq!(check_labels(labels).is_ok(), is_valid, "{labels:?}");
        }
    }

    #[test]
    fn booleans_are_those_of_go() {
        for (text, expected) in [("t", Ok(true)), ("TRUE", Ok(true)), ("0", Ok(false))] {
            assert_eq!(go_bool(text), expected, "{text}");
        }
        assert!(go_bool("yes").is_err() && go_bool("").is_err());
    }
}
