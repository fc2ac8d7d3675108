//! The context of Helm's actions on the release of a pass.

use kube_objects::apply::{ApplyPolicy, TakeOver};

use super::access::Access;
use super::kind::ActionKind;
use super::setup::{Setup, timeout};
use super::subject::Subject;
use crate::action::ActionContext;

/// Returns the context of a Helm action.
pub(super) fn action_context<'a>(
    setup: &'a Setup,
    access: &'a Access,
    subject: &'a Subject,
    kind: ActionKind,
    recreate: &'a [String],
) -> ActionContext<'a> {
    let options = &subject.instructions.options;
    let policy = setup.policy(kind);
    let (without_hooks, replace) = match kind {
        ActionKind::Install => (options.install_disable_hooks, false),
        ActionKind::Upgrade => (options.upgrade_disable_hooks, options.upgrade_force),
        ActionKind::Rollback => (options.upgrade_disable_hooks, options.rollback_force),
        ActionKind::Uninstall => (options.uninstall_disable_hooks, false),
        ActionKind::Test => (false, false),
    };
    ActionContext {
        cluster: &subject.target.cluster,
        store: &access.store,
        registry: &access.registry,
        namespaces: &setup.identity.namespaces,
        primary: &subject.target.primary,
        operator: &setup.identity.operator,
        instance: &setup.identity.instance,
        chart: setup.chart.chart().name(),
        name: &subject.target.name,
        namespace: &subject.target.namespace,
        kept_fields: &setup.policy.kept_fields,
        policy: ApplyPolicy {
            take_over: take_over(setup, subject),
            replace,
            leave_out: setup.ignored_fields(),
            ..ApplyPolicy::default()
        },
        recreate,
        expand_volumes: setup.policy.upgrade.expand_volumes,
        timeout: timeout(policy.timeout),
        disable_hooks: without_hooks || policy.disable_hooks,
        crash_logs: setup.policy.crash_logs,
        unowned: subject.foreground || subject.is_unowned(&setup.policy),
        now: subject.target.now,
    }
}

/// Returns which objects of the recorded release may be taken over: those of an adopted release, even
/// if they lack Helm's metadata, as long as they name no other owner.
fn take_over(setup: &Setup, subject: &Subject) -> TakeOver {
    if !subject.instructions.adopts(&setup.identity.operator) {
        return TakeOver::Never;
    }
    TakeOver::HelmRelease {
        name: subject.target.name.to_string(),
        namespace: subject.target.namespace.clone(),
    }
}
