//! What a custom resource says by annotations.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::OperatorId;
use crate::duration;

/// The prefix of all our annotations.
pub(crate) const PREFIX: &str = "helm.sdk.operatorframework.io/";

/// Who may take over a release that somebody else made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Adoption {
    /// Nobody.
    Refused,
    /// Whichever operator sees it, unless another operator looks after it.
    Granted,
    /// This operator, even from another one.
    To(OperatorId),
}

/// What the annotations of a custom resource ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an annotation")]
pub(crate) struct Annotations {
    /// `install-disable-hooks`
    pub(crate) install_disable_hooks: bool,
    /// `upgrade-disable-hooks`
    pub(crate) upgrade_disable_hooks: bool,
    /// `uninstall-disable-hooks`
    pub(crate) uninstall_disable_hooks: bool,
    /// `install-description`
    pub(crate) install_description: Option<String>,
    /// `upgrade-description`
    pub(crate) upgrade_description: Option<String>,
    /// `uninstall-description`
    pub(crate) uninstall_description: Option<String>,
    /// `upgrade-force`: objects are replaced instead of applied.
    pub(crate) upgrade_force: bool,
    /// `rollback-force`, which is true unless said otherwise.
    pub(crate) rollback_force: bool,
    /// `uninstall-wait`: the finalizer stays until every object is gone.
    pub(crate) uninstall_wait: bool,
    /// `reconcile-period`; zero means never.
    pub(crate) reconcile_period: Option<Duration>,
    /// `adopt-release`: true, false, or the name of an operator.
    pub(crate) adopt_release: Adoption,
    /// `paused`, or the annotation that stands for it.
    pub(crate) paused: bool,
    /// `reset-at`: another value clears the attempts.
    pub(crate) reset_at: Option<String>,
    /// `force-at`: another value makes a new revision whatever the inputs are.
    pub(crate) force_at: Option<String>,
    /// Annotations whose value was not understood, with the reason.
    pub(crate) problems: Vec<String>,
}

impl Annotations {
    /// Whether this operator may take over a release that somebody else made.
    pub(crate) fn adopts(&self, operator: &OperatorId) -> bool {
        self.adopt_release == Adoption::Granted || self.adopts_from_operators(operator)
    }

    /// Whether this operator may take over a release from another operator.
    pub(crate) fn adopts_from_operators(&self, operator: &OperatorId) -> bool {
        matches!(&self.adopt_release, Adoption::To(chosen) if chosen == operator)
    }
}

/// Reads annotations. Values are as Go's `strconv.ParseBool` and `time.ParseDuration` have them;
/// one that is not understood is reported and counts as absent.
pub(crate) fn read(
    annotations: &BTreeMap<String, String>,
    pause_annotation: Option<&str>,
) -> Annotations {
    let mut problems = Vec::new();
    let text = |name: &str| annotations.get(&format!("{PREFIX}{name}")).cloned();
    let mut flag = |name: &str, default: bool| match text(name) {
        None => default,
        Some(value) => parse_bool(&value).unwrap_or_else(|| {
            problems.push(format!(
                "{PREFIX}{name}: {value:?} is neither true nor false"
            ));
            default
        }),
    };
    let mut read = Annotations {
        install_disable_hooks: flag("install-disable-hooks", false),
        upgrade_disable_hooks: flag("upgrade-disable-hooks", false),
        uninstall_disable_hooks: flag("uninstall-disable-hooks", false),
        upgrade_force: flag("upgrade-force", false),
        rollback_force: flag("rollback-force", true),
        uninstall_wait: flag("uninstall-wait", false),
        adopt_release: adoption(text("adopt-release")),
        install_description: text("install-description"),
        upgrade_description: text("upgrade-description"),
        uninstall_description: text("uninstall-description"),
        reconcile_period: None,
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
            Ok(period) => read.reconcile_period = Some(period),
            Err(error) => problems.push(format!("{PREFIX}reconcile-period: {error}")),
        }
    }
    read.problems = problems;
    read
}

fn adoption(value: Option<String>) -> Adoption {
    let Some(value) = value else {
        return Adoption::Refused;
    };
    match parse_bool(&value) {
        Some(true) => Adoption::Granted,
        Some(false) => Adoption::Refused,
        None => Adoption::To(OperatorId::new(&value)),
    }
}

/// Go's `strconv.ParseBool`.
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
    fn annotations_are_read_as_go_reads_them() {
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
        assert!(found.install_disable_hooks && !found.rollback_force && found.paused);
        assert!(!found.upgrade_force);
        assert_eq!(found.reconcile_period, Some(Duration::ZERO));
        assert_eq!(
            found.problems,
            ["helm.sdk.operatorframework.io/upgrade-force: \"yes\" is neither true nor false"]
        );
    }

    #[test]
    fn a_release_of_another_operator_is_given_to_a_named_one_alone() {
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
    fn the_pause_annotation_can_have_another_name() {
        let mut all = annotations(&[("paused", "true")]);
        assert!(!read(&all, Some("example.com/hold")).paused);
        all.insert("example.com/hold".to_owned(), "true".to_owned());
        assert!(read(&all, Some("example.com/hold")).paused);
    }
}
