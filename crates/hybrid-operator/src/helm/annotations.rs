//! Annotations of a custom resource.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::OperatorId;
use crate::duration;

/// Prefix of all annotations of the operator.
pub(crate) const PREFIX: &str = "helm.sdk.operatorframework.io/";

/// Which operator may adopt a release that it did not create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AdoptionPolicy {
    /// No operator.
    Denied,
    /// Any operator, unless another operator manages the release.
    Allowed,
    /// The named operator, even if another operator manages the release.
    AllowedFor(OperatorId),
}

/// Options of the actions on one release, which annotations of its custom resource set.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an annotation")]
#[non_exhaustive]
pub struct ReleaseOptions {
    /// `install-disable-hooks`
    pub install_disable_hooks: bool,
    /// `upgrade-disable-hooks`
    pub upgrade_disable_hooks: bool,
    /// `uninstall-disable-hooks`
    pub uninstall_disable_hooks: bool,
    /// `install-description`
    pub install_description: Option<String>,
    /// `upgrade-description`
    pub upgrade_description: Option<String>,
    /// `uninstall-description`
    pub uninstall_description: Option<String>,
    /// `upgrade-force`: objects are replaced instead of applied.
    pub upgrade_force: bool,
    /// `rollback-force`; true by default.
    pub rollback_force: bool,
    /// `uninstall-wait`: the finalizer stays until every object is gone.
    pub uninstall_wait: bool,
    /// `reconcile-period`; zero means never.
    pub reconcile_period: Option<Duration>,
}

/// Parsed annotations of a custom resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Annotations {
    /// Options of the actions.
    pub(crate) options: ReleaseOptions,
    /// `adopt-release`: true, false, or the name of an operator.
    pub(crate) adopt_release: AdoptionPolicy,
    /// `paused`, or the annotation configured in its place.
    pub(crate) paused: bool,
    /// `reset-at`: a new value resets the count of failed attempts.
    pub(crate) reset_at: Option<String>,
    /// `force-at`: a new value forces a new revision even if the inputs are unchanged.
    pub(crate) force_at: Option<String>,
    /// Error messages for annotations with invalid values.
    pub(crate) problems: Vec<String>,
}

impl Annotations {
    /// Returns whether `operator` may adopt a release that no operator manages.
    pub(crate) fn adopts(&self, operator: &OperatorId) -> bool {
        self.adopt_release == AdoptionPolicy::Allowed || self.adopts_from_operators(operator)
    }

    /// Returns whether `operator` may adopt a release from another operator.
    pub(crate) fn adopts_from_operators(&self, operator: &OperatorId) -> bool {
        matches!(&self.adopt_release, AdoptionPolicy::AllowedFor(chosen) if chosen == operator)
    }
}

/// Parses annotations. Values have the syntax of Go's `strconv.ParseBool` and `time.ParseDuration`;
/// an invalid value is reported and ignored.
pub(crate) fn read(
    annotations: &BTreeMap<String, String>,
    pause_annotation: Option<&str>,
) -> Annotations {
    let mut problems = Vec::new();
    let text = |name: &str| annotations.get(&format!("{PREFIX}{name}")).cloned();
    let mut flag = |name: &str, default: bool| match text(name) {
        None => default,
        Some(value) => parse_bool(&value).unwrap_or_else(|| {
            problems.push(format!("{PREFIX}{name}: invalid boolean {value:?}"));
            default
        }),
    };
    let options = ReleaseOptions {
        install_disable_hooks: flag("install-disable-hooks", false),
        upgrade_disable_hooks: flag("upgrade-disable-hooks", false),
        uninstall_disable_hooks: flag("uninstall-disable-hooks", false),
        upgrade_force: flag("upgrade-force", false),
        rollback_force: flag("rollback-force", true),
        uninstall_wait: flag("uninstall-wait", false),
        install_description: text("install-description"),
        upgrade_description: text("upgrade-description"),
        uninstall_description: text("uninstall-description"),
        reconcile_period: None,
    };
    let mut read = Annotations {
        options,
        adopt_release: adoption(text("adopt-release")),
        paused: false,
        reset_at: text("reset-at"),
        force_at: text("force-at"),
        problems: Vec::new(),
    };
    let standard = format!("{PREFIX}paused");
    let pause = annotations.get(pause_annotation.unwrap_or(&standard));
    read.paused = pause.and_then(|value| parse_bool(value)).unwrap_or(false);
    if let Some(value) = text("reconcile-period") {
        match duration::parse(&value) {
            Ok(period) => read.options.reconcile_period = Some(period),
            Err(error) => problems.push(format!("{PREFIX}reconcile-period: {error}")),
        }
    }
    read.problems = problems;
    read
}

fn adoption(value: Option<String>) -> AdoptionPolicy {
    let Some(value) = value else {
        return AdoptionPolicy::Denied;
    };
    match parse_bool(&value) {
        Some(true) => AdoptionPolicy::Allowed,
        Some(false) => AdoptionPolicy::Denied,
        None => AdoptionPolicy::AllowedFor(OperatorId::new(&value)),
    }
}

/// Port of Go's `strconv.ParseBool`.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::{OperatorId, PREFIX, read};

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn annotations_are_parsed_as_in_go() {
        let found = read(
            &annotations(&[
                ("install-disable-hooks", "T"),
                ("rollback-force", "0"),
                ("upgrade-force", "yes"),
                ("reconcile-period", "0"),
                ("paused", "true"),
            ]),
            None,
        );
        let options = &found.options;
        assert!(options.install_disable_hooks && !options.rollback_force && found.paused);
        assert!(!options.upgrade_force);
        assert_eq!(options.reconcile_period, Some(Duration::ZERO));
        assert_eq!(
            found.problems,
            ["helm.sdk.operatorframework.io/upgrade-force: invalid boolean \"yes\""]
        );
    }

    #[test]
    fn only_a_named_operator_adopts_from_another_operator() {
        let own = OperatorId::new("own");
        for (value, release, operators_release) in [
            (None, false, false),
            (Some("false"), false, false),
            (Some("true"), true, false),
            (Some("own"), true, true),
            (Some("other"), false, false),
        ] {
            let all = value.map(|value| ("adopt-release", value));
            let found = read(&annotations(all.as_slice()), None);
            assert_eq!(found.adopts(&own), release, "{value:?}");
            assert_eq!(found.adopts_from_operators(&own), operators_release);
        }
    }

    #[test]
    fn pause_annotation_name_is_configurable() {
        let mut all = annotations(&[("paused", "true")]);
        assert!(!read(&all, Some("example.com/hold")).paused);
        all.insert("example.com/hold".to_owned(), "true".to_owned());
        assert!(read(&all, Some("example.com/hold")).paused);
    }
}
