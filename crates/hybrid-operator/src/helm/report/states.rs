//! The states of custom resources that users meet, with the statuses that the operator gives them. The tests of
//! `hybrid-operator generate health` have Argo CD and Flux judge them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use helm_core::manifest::ObjectKey;
use helm_core::release::Revision;
use helm_release::engine::{
    ActionKind, ErrorKind, Failure, ObjectsState, ReleaseStatus, StepOutcome,
};
use jiff::Timestamp;
use kube_objects::diagnosis::{self, Cause};
use serde_json::{Value, json};

use super::apply;
use crate::helm::status::{Status, WrittenStatus};
use crate::reasons::{ConditionType, Reason};
use crate::tests::reference::conditions::reasons_of;

const FILE: &str = "../hybrid-operator-cli/tests/health/states.json";

/// A custom resource as the API server has it.
#[derive(Clone)]
struct Resource {
    generation: i64,
    is_deleted: bool,
    status: Option<Value>,
}

impl Resource {
    fn new() -> Self {
        Self {
            generation: 1,
            is_deleted: false,
            status: None,
        }
    }

    /// Somebody has changed the spec.
    fn edited(&self) -> Self {
        Self {
            generation: self.generation + 1,
            ..self.clone()
        }
    }

    /// Somebody has deleted it, which counts as a change.
    fn deleted(&self) -> Self {
        Self {
            is_deleted: true,
            ..self.edited()
        }
    }

    /// The operator has written a status.
    fn reported(&self, report: impl FnOnce(&mut Status)) -> Self {
        let now = Timestamp::from_second(1_000).unwrap();
        let mut status = Status::read(self.status.as_ref(), now, Some(self.generation));
        report(&mut status);
        let written = status.patch(&WrittenStatus::default());
        Self {
            status: written.or(self.status.clone()),
            ..self.clone()
        }
    }

    /// The operator has reported a step.
    fn step(&self, outcome: &StepOutcome) -> Self {
        self.reported(|status| apply(outcome, &ObjectsState::default(), status))
    }

    /// The operator has deployed the release, whose objects are in this state.
    fn deployed(&self, reason: Reason, objects: &ObjectsState) -> Self {
        self.reported(|status| {
            status.deployed(reason, "");
            status.release = Some(release(1));
            apply(&StepOutcome::Unchanged, objects, status);
        })
    }

    fn object(&self, name: &str) -> Value {
        let mut object = json!({"metadata": {"name": name, "generation": self.generation}});
        if self.is_deleted {
            object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        if let Some(status) = &self.status {
            object["status"] = status.clone();
        }
        object
    }
}

fn release(revision: u32) -> ReleaseStatus {
    ReleaseStatus {
        name: "shop".to_owned(),
        revision,
        ..ReleaseStatus::default()
    }
}

fn failed(kind: ActionKind, next: Option<Timestamp>) -> Box<Failure> {
    Box::new(Failure {
        kind,
        message: "quota exceeded".into(),
        release: release(1),
        next,
    })
}

fn progressing() -> StepOutcome {
    StepOutcome::Progressing {
        why: "Deployment/shop".to_owned(),
        release: None,
    }
}

fn irreconcilable(reason: ErrorKind, kind: Option<ActionKind>) -> StepOutcome {
    StepOutcome::Irreconcilable {
        reason,
        message: "no value".into(),
        kind,
    }
}

fn unready(cause: Option<diagnosis::Reason>) -> ObjectsState {
    let key = ObjectKey {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: None,
        name: "shop".to_owned(),
    };
    ObjectsState {
        unready: vec![(key, "0 of 1 replicas".to_owned())],
        cause: cause.map(|reason| Cause {
            reason,
            message: "Deployment/shop: Pod shop-0".to_owned(),
        }),
        ..ObjectsState::default()
    }
}

type States = Vec<(String, Resource)>;

fn named<const N: usize>(states: [(&str, Resource); N]) -> States {
    let states = states.into_iter();
    states
        .map(|(name, state)| (name.to_owned(), state))
        .collect()
}

fn soon() -> Option<Timestamp> {
    Timestamp::from_second(2_000).ok()
}

fn stalled(kind: ActionKind) -> StepOutcome {
    StepOutcome::Stalled {
        message: "3 attempts have failed".to_owned(),
        failure: Some(failed(kind, None)),
    }
}

fn retrying(status: &mut Status) {
    status.retrying(&"connection refused".into(), Duration::from_secs(8));
}

fn installed(objects: &ObjectsState) -> Resource {
    Resource::new().deployed(Reason::InstallSuccessful, objects)
}

fn ready() -> Resource {
    installed(&ObjectsState::default())
}

fn before_the_first_success() -> States {
    let new = Resource::new();
    let again = new.step(&StepOutcome::Failed(failed(ActionKind::Install, soon())));
    let stalled = new.step(&stalled(ActionKind::Install));
    let invalid = new.step(&irreconcilable(ErrorKind::Values, None));
    named([
        ("new", new.clone()),
        ("seen", new.reported(Status::initialized)),
        ("installing", new.step(&progressing())),
        ("installing, API server away", new.reported(retrying)),
        ("install failed, tried again", again.clone()),
        ("install failed, second attempt", again.step(&progressing())),
        ("install stalled", stalled.clone()),
        ("install stalled, edited", stalled.edited()),
        (
            "install stalled, installing again",
            stalled.edited().step(&progressing()),
        ),
        (
            "install stalled, paused",
            stalled.step(&StepOutcome::Paused),
        ),
        (
            "values invalid, then installing",
            invalid.step(&progressing()),
        ),
        ("paused before the install", new.step(&StepOutcome::Paused)),
    ])
}

fn installed_once() -> States {
    let awaited = ObjectsState {
        awaited: Some("objects.shop.status.readyReplicas > 0".to_owned()),
        ..ObjectsState::default()
    };
    let drifted = ObjectsState {
        drifted: vec!["Deployment shop".to_owned()],
        ..ObjectsState::default()
    };
    let tested = StepOutcome::Tested {
        revision: Revision(1),
        failure: Some("exit code 1".into()),
    };
    let contended = StepOutcome::Contended {
        message: "Deployment/shop is changed by kubectl".to_owned(),
    };
    let contested = StepOutcome::Contested {
        message: "managed by a and b".to_owned(),
    };
    let not = |status: &mut Status| apply(&StepOutcome::Unchanged, &unready(None), status);
    let unassigned = |status: &mut Status| status.unassigned("no replica has the custom resource");
    let ready = ready();
    named([
        ("ready", ready.clone()),
        ("ready, awaits a condition", installed(&awaited)),
        ("ready, tests failed", ready.step(&tested)),
        ("ready, drifted", installed(&drifted)),
        ("ready, repaired too often", ready.step(&contended)),
        ("ready, contested", ready.step(&contested)),
        ("ready, API server away", ready.reported(retrying)),
        ("ready, then not", ready.reported(not)),
        ("ready, without a shard", ready.reported(unassigned)),
    ])
}

fn changed() -> States {
    let rolled_back = |status: &mut Status| {
        status.restored(Reason::UpgradeSuccessful, "");
        apply(
            &stalled(ActionKind::Upgrade),
            &ObjectsState::default(),
            status,
        );
    };
    let edited = ready().edited();
    let again = StepOutcome::Failed(failed(ActionKind::Upgrade, soon()));
    let upgraded = edited.deployed(Reason::UpgradeSuccessful, &ObjectsState::default());
    named([
        ("edited", edited.clone()),
        (
            "edited without effect",
            edited.step(&StepOutcome::Unchanged),
        ),
        (
            "edited, values invalid",
            edited.step(&irreconcilable(ErrorKind::Values, None)),
        ),
        ("upgrading", edited.step(&progressing())),
        ("upgraded", upgraded),
        ("upgrade failed, tried again", edited.step(&again)),
        ("upgrade rolled back", edited.reported(rolled_back)),
    ])
}

fn paused_or_deleted() -> States {
    let resumed = |status: &mut Status| {
        status.unpaused();
        apply(&StepOutcome::Unchanged, &ObjectsState::default(), status);
    };
    let paused = ready().step(&StepOutcome::Paused);
    let deleted = ready().deleted();
    let failed = StepOutcome::Failed(failed(ActionKind::Uninstall, soon()));
    named([
        ("paused", paused.clone()),
        ("paused, edited", paused.edited()),
        (
            "paused, edited and seen",
            paused.edited().step(&StepOutcome::Paused),
        ),
        ("paused, deleted", paused.deleted()),
        ("resumed", paused.reported(resumed)),
        ("deleted", deleted.clone()),
        ("uninstalling", deleted.step(&progressing())),
        ("uninstall failed", deleted.step(&failed)),
    ])
}

/// Returns a state for each reason of a false `Ready` that has no other.
fn unready_for_each_reason() -> States {
    let unready = diagnosis::Reason::ALL.iter().map(|reason| {
        let cause = Some(*reason).filter(|reason| *reason != diagnosis::Reason::ObjectsNotReady);
        (reason.as_str(), installed(&unready(cause)))
    });
    let causes = [
        (ErrorKind::Values, None),
        (ErrorKind::Capabilities, None),
        (ErrorKind::Records, None),
        (ErrorKind::Patches, Some(ActionKind::Install)),
        (ErrorKind::Chart, Some(ActionKind::Install)),
    ];
    let hopeless = causes.map(|(cause, kind)| {
        let state = Resource::new().step(&irreconcilable(cause, kind));
        (Reason::from(cause).as_str(), state)
    });
    // A step that fails is also reported as irreconcilable, which replaces this reason of `Ready`.
    let failed = [
        ActionKind::Install,
        ActionKind::Upgrade,
        ActionKind::Uninstall,
    ]
    .map(|kind| {
        let reason = Reason::of_failure(kind);
        let state = Resource::new().reported(|status| status.failed(reason, "quota exceeded"));
        (reason.as_str(), state)
    });
    let all = unready.chain(hopeless).chain(failed);
    all.map(|(reason, state)| (format!("not ready: {reason}"), state))
        .collect()
}

#[test]
fn states_for_the_tests_of_health_checks_are_up_to_date() {
    let states = [
        before_the_first_success(),
        installed_once(),
        changed(),
        paused_or_deleted(),
        unready_for_each_reason(),
    ]
    .concat();
    let reason = |state: &Resource| {
        let conditions = state.status.as_ref()?.get("conditions")?.as_array()?;
        let mut conditions = conditions.iter();
        let ready = conditions.find(|it| it["type"] == ConditionType::Ready.as_str())?;
        Some(ready["reason"].as_str()?.to_owned())
    };
    let reasons: BTreeSet<String> = states
        .iter()
        .filter_map(|(_, state)| reason(state))
        .collect();
    assert_eq!(
        reasons,
        reasons_of(ConditionType::Ready),
        "a state for each reason"
    );

    let lines: Vec<String> = states
        .iter()
        .map(|(name, state)| state.object(name).to_string())
        .collect();
    let text = format!("[\n{}\n]\n", lines.join(",\n"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let present = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        present == text,
        "{FILE} is out of date; run this test with UPDATE_GENERATED=1"
    );
}
