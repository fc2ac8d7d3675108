use jiff::Timestamp;
use serde_json::json;

use helm_release::engine::{ObjectsState, StepOutcome};

use super::apply;
use crate::helm::status::{Status, WrittenStatus};

#[test]
fn unchanged_drift_is_written_once() {
    let objects = ObjectsState {
        drifted: vec!["ConfigMap a/b".to_owned()],
        ..ObjectsState::default()
    };
    let mut written = None;
    for second in [1_000, 2_000] {
        let now = Timestamp::from_second(second).unwrap();
        let mut status = Status::read(written.as_ref(), now, Some(1));
        apply(&StepOutcome::Unchanged, &objects, &mut status);
        let patch = status.patch(&WrittenStatus::default());
        assert_eq!(patch.is_some(), written.is_none());
        written = written.or(patch);
    }
    let drifted = |status: &Status| status.conditions.iter().any(|c| c.type_ == "Drifted");
    let mut status = Status::read(written.as_ref(), Timestamp::UNIX_EPOCH, Some(1));
    assert!(drifted(&status));
    apply(
        &StepOutcome::Unchanged,
        &ObjectsState::default(),
        &mut status,
    );
    assert!(!drifted(&status), "{}", json!(status.conditions));
}
