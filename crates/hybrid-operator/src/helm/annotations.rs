//! Annotations of a custom resource.

use std::collections::BTreeMap;
use std::time::Duration;

use helm_release::engine::{AdoptionPolicy, Instructions};
use helm_release::policy::DeletionPolicy;
use kube_objects::OperatorId;
use operator_runtime::{duration, naming};

use crate::watches::nearest;

/// Prefix of all annotations of the operator.
pub(crate) const PREFIX: &str = "helm.sdk.operatorframework.io/";

/// Parsed annotations of a custom resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Annotations {
    /// Requests that they make.
    pub(crate) instructions: Instructions,
    /// Error messages for annotations with invalid values.
    pub(crate) problems: Vec<String>,
}

/// An annotation of the operator.
struct Annotation {
    /// Name without the prefix.
    name: &'static str,
    /// Reads the value.
    read: Read,
    /// Consequence of an invalid value.
    otherwise: &'static str,
}

/// Sets what an annotation's value says; an error is the form that the value must have.
type Read = fn(&str, &mut Instructions) -> Result<(), &'static str>;

/// The form of a boolean.
const BOOLEAN: &str = "a boolean: true or false";

/// Makes the table of annotations of lines: name, reader, and the consequence of an invalid value.
macro_rules! annotations {
    ($($name:literal: $read:expr, $otherwise:literal;)*) => {
        &[$(Annotation { name: $name, read: $read, otherwise: $otherwise }),*]
    };
}

/// All annotations. Another one with the prefix is reported as unknown.
const ANNOTATIONS: &[Annotation] = annotations! {
    "install-disable-hooks": |text, all| set_bool(text, &mut all.options.install_disable_hooks),
        "install.disableHooks of watches.yaml holds";
    "install-description": |text, all| set_description(text, &mut all.options.install_description),
        "the description is Helm's";
    "upgrade-disable-hooks": |text, all| set_bool(text, &mut all.options.upgrade_disable_hooks),
        "upgrade.disableHooks and rollback.disableHooks of watches.yaml hold";
    "upgrade-description": |text, all| set_description(text, &mut all.options.upgrade_description),
        "the description is Helm's";
    "upgrade-force": |text, all| set_bool(text, &mut all.options.upgrade_force),
        "upgrades apply objects and do not replace them";
    "uninstall-disable-hooks": |text, all| set_bool(text, &mut all.options.uninstall_disable_hooks),
        "uninstall.disableHooks of watches.yaml holds";
    "uninstall-description": |text, all| set_description(text, &mut all.options.uninstall_description),
        "the description is Helm's";
    "uninstall-wait": |text, all| set_bool(text, &mut all.options.uninstall_wait),
        "uninstall.wait of watches.yaml holds";
    "rollback-force": |text, all| set_bool(text, &mut all.options.rollback_force),
        "rollbacks replace objects, which is the default";
    "reconcile-period": |text, all| set_period(text, &mut all.options.reconcile_period),
        "reconcilePeriod of watches.yaml or --reconcile-period holds";
    "paused": |text, all| set_bool(text, &mut all.paused), "the custom resource is not paused";
    "deletion-policy": |text, all| set_deletion(text, &mut all.deletion),
        "deletionPolicy of watches.yaml holds";
    "protect": |text, all| set_protection(text, &mut all.protected), "protect of watches.yaml holds";
    "adopt-release": |text, all| set_adoption(text, &mut all.adopt_release), "no release is adopted";
    "reconcile-at": |text, all| set_any(text, &mut all.reconcile_at), "";
    "force-at": |text, all| set_any(text, &mut all.force_at), "";
    "reset-at": |text, all| set_any(text, &mut all.reset_at), "";
};

/// Annotation with which a native controller marks a custom resource that it has applied.
const APPLIED: &str = "applied";

/// Parses annotations. Values have the syntax of Go's `strconv.ParseBool` and `time.ParseDuration`;
/// an invalid value or an unknown name is reported, and does not count. `pause_annotation` takes the
/// place of `paused`. `others` are the names of further annotations, which an operator defines.
#[expect(
    clippy::needless_pass_by_value,
    reason = "an iterator is cheap to clone"
)]
pub(crate) fn read<'a>(
    annotations: &BTreeMap<String, String>,
    pause_annotation: Option<&str>,
    others: impl Iterator<Item = &'a str> + Clone,
) -> Annotations {
    let mut read = Annotations::default();
    for (key, value) in annotations {
        if pause_annotation == Some(key) {
            if set_bool(value, &mut read.instructions.paused).is_err() {
                let problem =
                    format!("{key}: {value:?} is not {BOOLEAN}; the custom resource is not paused");
                read.problems.push(problem);
            }
            continue;
        }
        let Some(name) = key.strip_prefix(PREFIX) else {
            continue;
        };
        if name == APPLIED || others.clone().any(|other| other == key) {
            continue;
        }
        let known = ANNOTATIONS.iter().find(|known| known.name == name);
        let problem = match (known, pause_annotation) {
            (Some(known), Some(other)) if known.name == "paused" => Some(format!(
                "{key} has no effect; pauseAnnotation in watches.yaml is {other}"
            )),
            (Some(known), _) => (known.read)(value, &mut read.instructions)
                .err()
                .map(|wanted| format!("{key}: {value:?} is not {wanted}; {}", known.otherwise)),
            (None, _) => Some(unknown(key, name)),
        };
        read.problems.extend(problem);
    }
    read
}

fn unknown(key: &str, name: &str) -> String {
    let names: Vec<&str> = ANNOTATIONS.iter().map(|known| known.name).collect();
    let hint = nearest(name, &names).map_or_else(
        || format!("the annotations with this prefix are {}", names.join(", ")),
        |near| format!("did you mean {PREFIX}{near}?"),
    );
    format!("{key} is unknown and has no effect; {hint}")
}

fn set_bool(text: &str, target: &mut bool) -> Result<(), &'static str> {
    *target = parse_bool(text).ok_or(BOOLEAN)?;
    Ok(())
}

/// An empty description means Helm's, as in Helm.
fn set_description(text: &str, target: &mut Option<String>) -> Result<(), &'static str> {
    set_any(text, target)?;
    target.take_if(|text| text.is_empty());
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "the readers have one type")]
fn set_any(text: &str, target: &mut Option<String>) -> Result<(), &'static str> {
    *target = Some(text.to_owned());
    Ok(())
}

fn set_period(text: &str, target: &mut Option<Duration>) -> Result<(), &'static str> {
    let period = duration::parse(text);
    *target = Some(period.map_err(|_| "a duration such as 30s or 1m30s, or 0 for never")?);
    Ok(())
}

fn set_deletion(text: &str, target: &mut Option<DeletionPolicy>) -> Result<(), &'static str> {
    *target = Some(match text {
        "Delete" => DeletionPolicy::Delete,
        "Orphan" => DeletionPolicy::Orphan,
        _ => return Err("Delete or Orphan"),
    });
    Ok(())
}

fn set_protection(text: &str, target: &mut Option<bool>) -> Result<(), &'static str> {
    *target = Some(parse_bool(text).ok_or(BOOLEAN)?);
    Ok(())
}

fn set_adoption(text: &str, target: &mut AdoptionPolicy) -> Result<(), &'static str> {
    *target = match parse_bool(text) {
        Some(true) => AdoptionPolicy::Allowed,
        Some(false) => AdoptionPolicy::Denied,
        None if naming::is_subdomain(text) => AdoptionPolicy::AllowedFor(OperatorId::new(text)),
        None => return Err("true, false, or the name of an operator"),
    };
    Ok(())
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
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use super::{
        ANNOTATIONS, AdoptionPolicy, Annotations, DeletionPolicy, Instructions, OperatorId, PREFIX,
    };

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| (format!("{PREFIX}{key}"), (*value).to_owned()))
            .collect()
    }

    fn read(annotations: &BTreeMap<String, String>, pause: Option<&str>) -> Annotations {
        super::read(annotations, pause, ["example.com/own"].into_iter())
    }

    /// A row of the table of annotations.
    struct Row {
        name: &'static str,
        /// Columns of the reference: value, default and meaning.
        value: &'static str,
        default: &'static str,
        meaning: &'static str,
        right: &'static str,
        /// Effect of the right value.
        effect: fn(&mut Instructions),
        /// A wrong value, the form that is wanted, and what holds instead; `None` if every text is right.
        wrong: Option<(&'static str, &'static str, &'static str)>,
        /// Test that shows the effect on a release.
        shown_by: &'static str,
    }

    const BOOLEAN: &str = "a boolean: true or false";

    /// All annotations, in the order of the reference.
    const ROWS: &[Row] = &[
        Row {
            name: "install-disable-hooks",
            value: "boolean",
            default: "`install.disableHooks`",
            meaning: "An install runs no hooks. `false` does not turn hooks on that `watches.yaml` disables.",
            right: "T",
            effect: |all| all.options.install_disable_hooks = true,
            wrong: Some(("yes", BOOLEAN, "install.disableHooks of watches.yaml holds")),
            shown_by: "annotations_of_hooks_and_descriptions_change_install_upgrade_and_uninstall",
        },
        Row {
            name: "install-description",
            value: "text",
            default: "`Install complete`",
            meaning: "The description that `helm history` shows of an install.",
            right: "first",
            effect: |all| all.options.install_description = Some("first".to_owned()),
            wrong: None,
            shown_by: "annotations_of_hooks_and_descriptions_change_install_upgrade_and_uninstall",
        },
        Row {
            name: "upgrade-disable-hooks",
            value: "boolean",
            default: "`upgrade.disableHooks`, `rollback.disableHooks`",
            meaning: "An upgrade or a rollback runs no hooks.",
            right: "1",
            effect: |all| all.options.upgrade_disable_hooks = true,
            wrong: Some((
                "",
                BOOLEAN,
                "upgrade.disableHooks and rollback.disableHooks of watches.yaml hold",
            )),
            shown_by: "annotations_of_hooks_and_descriptions_change_install_upgrade_and_uninstall",
        },
        Row {
            name: "upgrade-description",
            value: "text",
            default: "`Upgrade complete`",
            meaning: "The description that `helm history` shows of an upgrade.",
            right: "second",
            effect: |all| all.options.upgrade_description = Some("second".to_owned()),
            wrong: None,
            shown_by: "annotations_of_hooks_and_descriptions_change_install_upgrade_and_uninstall",
        },
        Row {
            name: "upgrade-force",
            value: "boolean",
            default: "`false`",
            meaning: "An upgrade replaces objects (PUT) instead of applying them. Nothing is deleted.",
            right: "true",
            effect: |all| all.options.upgrade_force = true,
            wrong: Some((
                "on",
                BOOLEAN,
                "upgrades apply objects and do not replace them",
            )),
            shown_by: "drift_is_repaired_after_a_forced_upgrade",
        },
        Row {
            name: "uninstall-disable-hooks",
            value: "boolean",
            default: "`uninstall.disableHooks`",
            meaning: "An uninstall runs no hooks.",
            right: "True",
            effect: |all| all.options.uninstall_disable_hooks = true,
            wrong: Some(("2", BOOLEAN, "uninstall.disableHooks of watches.yaml holds")),
            shown_by: "annotations_of_hooks_and_descriptions_change_install_upgrade_and_uninstall",
        },
        Row {
            name: "uninstall-description",
            value: "text",
            default: "Helm's",
            meaning: "The description of the record while the release is uninstalled.",
            right: "last",
            effect: |all| all.options.uninstall_description = Some("last".to_owned()),
            wrong: None,
            shown_by: "uninstall_waits_and_is_described_as_its_annotations_say",
        },
        Row {
            name: "uninstall-wait",
            value: "boolean",
            default: "`uninstall.wait`",
            meaning: "The custom resource stays until all objects of the release are gone.",
            right: "t",
            effect: |all| all.options.uninstall_wait = true,
            wrong: Some(("wait", BOOLEAN, "uninstall.wait of watches.yaml holds")),
            shown_by: "uninstall_waits_and_is_described_as_its_annotations_say",
        },
        Row {
            name: "rollback-force",
            value: "boolean",
            default: "`true`",
            meaning: "A rollback after a failed upgrade replaces objects (PUT) instead of applying them.",
            right: "false",
            effect: |all| all.options.rollback_force = false,
            wrong: Some((
                "no",
                BOOLEAN,
                "rollbacks replace objects, which is the default",
            )),
            shown_by: "rollback_replaces_objects_unless_the_annotation_disables_it",
        },
        Row {
            name: "reconcile-period",
            value: "duration",
            default: "`reconcilePeriod`",
            meaning: "Time between two reconciles if nothing changes; `0` means never.",
            right: "1m30s",
            effect: |all| all.options.reconcile_period = Some(Duration::from_secs(90)),
            wrong: Some((
                "5",
                "a duration such as 30s or 1m30s, or 0 for never",
                "reconcilePeriod of watches.yaml or --reconcile-period holds",
            )),
            shown_by: "reconcile_period_comes_from_the_annotation_the_entry_or_the_flag",
        },
        Row {
            name: "paused",
            value: "boolean",
            default: "`false`",
            meaning: "The release is left alone. The custom resource can still be deleted. `pauseAnnotation` in `watches.yaml` names another annotation instead.",
            right: "true",
            effect: |all| all.paused = true,
            wrong: Some(("yes", BOOLEAN, "the custom resource is not paused")),
            shown_by: "paused_resource_is_left_alone_and_can_be_deleted",
        },
        Row {
            name: "deletion-policy",
            value: "`Delete` or `Orphan`",
            default: "`deletionPolicy`",
            meaning: "With `Orphan`, the objects and the records of the release stay when the custom resource is deleted.",
            right: "Orphan",
            effect: |all| all.deletion = Some(DeletionPolicy::Orphan),
            wrong: Some((
                "orphan",
                "Delete or Orphan",
                "deletionPolicy of watches.yaml holds",
            )),
            shown_by: "a_release_outlives_its_custom_resource_and_another_one_takes_it_over",
        },
        Row {
            name: "protect",
            value: "boolean",
            default: "`protect`",
            meaning: "The release stays although the custom resource is being deleted, until this is `false`. The API server refuses the deletion if the policy of `generate protection` is installed.",
            right: "false",
            effect: |all| all.protected = Some(false),
            wrong: Some(("never", BOOLEAN, "protect of watches.yaml holds")),
            shown_by: "a_protected_custom_resource_keeps_its_release",
        },
        Row {
            name: "adopt-release",
            value: "`true`, `false`, or the name of an operator",
            default: "`false`",
            meaning: "A release of the same name and chart that somebody installed with Helm is taken over. With the name of an operator, that operator takes it over from another one, too.",
            right: "other",
            effect: |all| all.adopt_release = AdoptionPolicy::AllowedFor(OperatorId::new("other")),
            wrong: Some((
                "yes, please",
                "true, false, or the name of an operator",
                "no release is adopted",
            )),
            shown_by: "operator_named_in_adopt_release_takes_over",
        },
        Row {
            name: "reconcile-at",
            value: "text",
            default: "",
            meaning: "Any new value reconciles once, now.",
            right: "now",
            effect: |all| all.reconcile_at = Some("now".to_owned()),
            wrong: None,
            shown_by: "drift_waits_for_the_next_reconcile_when_dependents_are_not_watched",
        },
        Row {
            name: "force-at",
            value: "text",
            default: "",
            meaning: "Any new value makes a new revision, even if nothing has changed.",
            right: "now",
            effect: |all| all.force_at = Some("now".to_owned()),
            wrong: None,
            shown_by: "reset_retries_and_force_creates_a_new_revision",
        },
        Row {
            name: "reset-at",
            value: "text",
            default: "",
            meaning: "Any new value forgets the failed attempts, so that a stalled release is tried again.",
            right: "now",
            effect: |all| all.reset_at = Some("now".to_owned()),
            wrong: None,
            shown_by: "hook_failing_three_times_stalls_the_release_until_a_reset",
        },
    ];

    #[test]
    fn each_annotation_sets_its_option_and_a_wrong_value_is_named_and_does_not_count() {
        for row in ROWS {
            let mut wanted = Annotations::default();
            (row.effect)(&mut wanted.instructions);
            let found = read(&annotations(&[(row.name, row.right)]), None);
            assert_eq!(found, wanted, "{}", row.name);
            assert_ne!(found, Annotations::default(), "{}", row.name);
            let Some((wrong, form, otherwise)) = row.wrong else {
                let strange = read(&annotations(&[(row.name, "?! ")]), None);
                assert_eq!(strange.problems, [""; 0], "{}", row.name);
                continue;
            };
            let found = read(&annotations(&[(row.name, wrong)]), None);
            let problem = format!("{PREFIX}{}: {wrong:?} is not {form}; {otherwise}", row.name);
            let wanted = Annotations {
                problems: vec![problem],
                ..Annotations::default()
            };
            assert_eq!(found, wanted, "{}", row.name);
        }
    }

    #[test]
    fn the_table_the_code_and_the_documentation_have_the_same_annotations() {
        let parsed: BTreeSet<&str> = ANNOTATIONS.iter().map(|known| known.name).collect();
        let table: BTreeSet<&str> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(parsed, table);
        let rows_of_page = ROWS.iter().map(|row| {
            let name = format!("`{}`", row.name);
            [&name, row.value, row.default, row.meaning]
                .map(str::to_owned)
                .to_vec()
        });
        let text = format!(
            "Annotations of a custom resource, all with the prefix `{PREFIX}`. \
             [Annotations](../guides/watches.md#annotations) shows how they are used.\n\n{}",
            crate::tests::reference::table(&["name", "value", "default", "meaning"], rows_of_page)
        );
        crate::tests::reference::assert_generated("watches.md", "Annotations", &text);
        crate::tests::reference::assert_tests_exist(ROWS.iter().map(|row| row.shown_by));
    }

    #[test]
    fn unknown_annotation_with_the_prefix_is_reported_with_the_nearest_name() {
        let all = annotations(&[("upgrade-froce", "true"), ("zzzzz", ""), ("applied", "x")]);
        let problems = read(&all, None).problems;
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert_eq!(
            problems[0],
            format!(
                "{PREFIX}upgrade-froce is unknown and has no effect; did you mean {PREFIX}upgrade-force?"
            )
        );
        assert!(
            problems[1].contains("the annotations with this prefix are install-disable-hooks, ")
        );
        let own = super::read(
            &annotations(&[("own", "x")]),
            None,
            [format!("{PREFIX}own").as_str()].into_iter(),
        );
        assert_eq!(own, Annotations::default());
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
            assert_eq!(found.instructions.adopts(&own), release, "{value:?}");
            assert_eq!(
                found.instructions.adopts_from_operators(&own),
                operators_release
            );
        }
    }

    #[test]
    fn pause_annotation_name_is_configurable() {
        let mut all = annotations(&[("paused", "true")]);
        assert!(!read(&all, Some("example.com/hold")).instructions.paused);
        all.insert("example.com/hold".to_owned(), "true".to_owned());
        assert!(read(&all, Some("example.com/hold")).instructions.paused);
        all.insert("example.com/hold".to_owned(), "maybe".to_owned());
        let found = read(&all, Some("example.com/hold"));
        assert!(!found.instructions.paused);
        assert_eq!(
            found.problems,
            [
                "example.com/hold: \"maybe\" is not a boolean: true or false; the custom resource is not paused".to_owned(),
                format!("{PREFIX}paused has no effect; pauseAnnotation in watches.yaml is example.com/hold"),
            ]
        );
    }
}
