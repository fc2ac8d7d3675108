//! The forms of the values of flags and environment variables. A wrong value is refused at the start.

use super::{Options, OptionsError, ShardId};
use crate::naming;

const NAMESPACE: &str =
    "the name of a namespace: up to 63 lower case letters, digits and '-', such as team-a";
const OPERATOR: &str =
    "the name of an operator: lower case letters, digits, '-' and '.', such as memcached-operator";
const SELECTOR: &str = "a label selector, such as team=a,env!=dev or tier in (gold,silver)";

pub(super) fn positive(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "expected a whole number of at least 1".to_owned())
}

pub(super) fn percent(text: &str) -> Result<u8, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
    let number = number.filter(|number| (1..=100).contains(number));
    number.ok_or_else(|| "expected a percentage from 1% to 100%".to_owned())
}

pub(super) fn shards(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (2..=64).contains(number));
    number.ok_or_else(|| "expected a number of shards from 2 to 64".to_owned())
}

pub(super) fn ring(text: &str) -> Result<String, String> {
    let wanted = "the name of a ControllerRing: up to 63 lower case letters, digits, '-' and '.'";
    form(text, is_shard, wanted)
}

pub(super) fn shard_id(text: &str) -> Result<ShardId, String> {
    if text == "auto" {
        return Ok(ShardId::Auto);
    }
    let index = text.parse().map(ShardId::Index);
    index.map_err(|_| "expected auto, or the number of a shard, from 0".to_owned())
}

pub(super) fn namespace(text: &str) -> Result<String, String> {
    form_or_empty(text, naming::is_label, NAMESPACE)
}

pub(super) fn operator_name(text: &str) -> Result<String, String> {
    form_or_empty(text, naming::is_subdomain, OPERATOR)
}

pub(super) fn service(text: &str) -> Result<String, String> {
    let wanted = "the name of a Service: up to 63 lower case letters, digits and '-'";
    form(text, naming::is_label, wanted)
}

pub(super) fn selector(text: &str) -> Result<String, String> {
    form_or_empty(text, naming::is_selector, SELECTOR)
}

pub(super) fn https_url(text: &str) -> Result<String, String> {
    let host = text
        .strip_prefix("https://")
        .map(|rest| rest.trim_end_matches('/'));
    let plain = |_: &str| host.is_some_and(|host| !host.is_empty() && !host.contains('/'));
    let wanted = "an https URL without a path, such as https://10.0.0.1:9443";
    form(text, plain, wanted)
}

/// The form of the URL to which traces are sent.
pub(super) const OTLP_URL: &str =
    "an http or https URL without a user, a query or a fragment, such as http://collector:4318";

pub(super) fn otlp_url(text: &str) -> Result<String, String> {
    let is_url = |text: &str| {
        let Ok(url) = text.parse::<http::Uri>() else {
            return false;
        };
        let is_host = |host: &str| !host.is_empty() && !host.contains('@');
        matches!(url.scheme_str(), Some("http" | "https"))
            && url.authority().is_some_and(|host| is_host(host.as_str()))
            && !text.contains(['?', '#'])
    };
    form(text, is_url, OTLP_URL)
}

pub(super) fn namespaced_name(text: &str) -> Result<String, String> {
    let is_pair = |text: &str| {
        let pair = text.split_once('/');
        pair.is_some_and(|(namespace, name)| {
            naming::is_label(namespace) && naming::is_subdomain(name)
        })
    };
    form(text, is_pair, "NAMESPACE/NAME")
}

/// Empty means absent, as in Go.
fn form_or_empty(text: &str, is_right: Check, wanted: &str) -> Result<String, String> {
    form(text, |text| text.is_empty() || is_right(text), wanted)
}

fn form(text: &str, is_right: impl Fn(&str) -> bool, wanted: &str) -> Result<String, String> {
    if is_right(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("not {wanted}"))
    }
}

/// Returns whether a value has the right form.
type Check = fn(&str) -> bool;

fn is_shard(name: &str) -> bool {
    naming::is_subdomain(name) && name.len() <= 63
}

/// Checks what environment variables give, or a program that builds the options itself.
pub(super) fn check(options: &Options) -> Result<(), OptionsError> {
    let namespaces = options.watch_namespaces.iter().map(String::as_str);
    let name = options.operator_name.as_str();
    let selector = options.namespace_selector.as_deref();
    let shard = options.ring.as_ref().map(|ring| ring.shard.as_str());
    let lease = options.leader_election_namespace.as_deref();
    let label: (Check, _) = (naming::is_label, NAMESPACE);
    let subdomain: (Check, _) = (naming::is_subdomain, OPERATOR);
    let pod: (Check, _) = (naming::is_subdomain, "the name of a Pod");
    let uid: (Check, _) = (naming::is_subdomain, "the UID of a Pod");
    let labels: (Check, _) = (naming::is_selector, SELECTOR);
    let values = namespaces
        .map(|namespace| ("$WATCH_NAMESPACE", Some(namespace), label))
        .chain([
            (
                "$POD_NAMESPACE",
                options.operator_namespace.as_deref(),
                label,
            ),
            ("--leader-election-namespace", lease, label),
            ("$OPERATOR_NAME", Some(name), subdomain),
            ("$POD_NAME", options.pod.as_deref(), pod),
            (
                "$POD_NAME",
                shard,
                (
                    is_shard,
                    "the name of a Pod of up to 63 characters, as --shard-ring needs it",
                ),
            ),
            ("$POD_UID", options.pod_uid.as_deref(), uid),
            ("--namespace-selector", selector, labels),
        ]);
    for (name, value, (is_right, wanted)) in values {
        if let Some(value) = value.filter(|value| !is_right(value)) {
            let value = value.to_owned();
            return Err(OptionsError::Form {
                name,
                value,
                wanted,
            });
        }
    }
    Ok(())
}
