use jiff::Timestamp;
use serde_json::json;

use super::{ObjectsState, StepOutcome, apply, redacted};
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

#[test]
fn secrets_do_not_appear_in_a_redacted_manifest() {
    let manifest = "---\n# Source: c/a.yaml\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {k: hidden}\n---\n# Source: c/b.yaml\nkind: ConfigMap\nmetadata: {name: c}\n";
    let text = redacted(manifest).unwrap();
    assert!(!text.contains("hidden"), "{text}");
    assert!(text.contains("# Secret s: its content is not shown\n---\n# Source: c/b.yaml\n"));
    for list in [
        "kind: List\nitems: [{kind: ConfigMap}, {kind: Secret, data: {k: hidden}}]\n",
        "apiVersion: v1\nkind: SecretList\nitems: [{metadata: {name: s}, data: {k: hidden}}]\n",
    ] {
        let text = redacted(list).unwrap();
        assert!(!text.contains("hidden"), "{text}");
    }
    assert_eq!(redacted(&"x".repeat(100_000)), None);
}
