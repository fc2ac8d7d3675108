//! Names that users and programs compare: types of conditions and their reasons.
//!
//! The text of each one is in the reference (`docs/reference`), which tests generate from here. What users
//! can do about a reason of a condition is in `docs/guides/troubleshooting.md`, which has a heading for each one.

use helm_release::engine::{ActionKind, ErrorKind};

kube_objects::reasons! {
    /// Types of conditions. The first five are those of the Go operators, the others are additions.
    ConditionType {
        /// The operator has seen the custom resource.
        Initialized,
        /// A release is deployed; the message is the notes of the chart.
        Deployed,
        /// The last install, upgrade or uninstall failed.
        ReleaseFailed,
        /// The desired state cannot be reached; the message says why.
        Irreconcilable,
        /// The custom resource is paused.
        Paused,
        /// All objects of the release are ready, at this generation of the custom resource.
        Ready,
        /// The inputs have failed, and another attempt would do harm; the message says which, and how to
        /// try again nevertheless.
        Stalled,
        /// The tests of the chart succeeded on the deployed revision.
        TestSuccess,
        /// Another operator manages the release; the message names both.
        Contested,
        /// Objects differ from what was applied, and are not repaired: `driftDetection.mode` is `warn`, or
        /// another client changes them again and again.
        Drifted,
        /// Objects of the release cannot be watched, so that changes of them are seen late.
        WatchRefused,
        /// Something was applied otherwise than the chart renders it, or was left in the cluster; the
        /// message names up to five.
        NotAsRendered,
        /// The record of the newest revision does not fit into one Secret.
        LargeRecord,
        /// The definition lacks fields of the status, so that the API server drops them; the message
        /// names them.
        StatusPruned,
        /// All fields of `status` in `watches.yaml` are there; the message names those that are not.
        OutputsComplete,
    }
}

kube_objects::reasons! {
    /// Reasons of conditions, beside those why objects are not ready ([`kube_objects::diagnosis::Reason`]).
    Reason {
        /// The operator has seen the custom resource.
        Initialized,
        /// The release was installed.
        InstallSuccessful,
        /// The release was upgraded, or returned to an earlier revision.
        UpgradeSuccessful,
        /// An install failed.
        InstallError,
        /// An upgrade failed, or the rollback after it.
        UpgradeError,
        /// An uninstall failed.
        UninstallError,
        /// The desired state is known and can be reached.
        Reconciled,
        /// The chart cannot be rendered, or what it renders cannot be applied.
        ReconcileError,
        /// The values cannot be computed.
        ErrorGettingValues,
        /// A patch that the custom resource holds is malformed, matches not exactly one object, or changes what
        /// `patchesFrom` does not allow.
        PatchesRefused,
        /// The API server does not say what it serves.
        ErrorGettingClient,
        /// The records of the release cannot be read, or belong to somebody else.
        ErrorGettingReleaseState,
        /// The annotation that pauses the custom resource is set.
        PauseReconcileAnnotationTrue,
        /// The custom resource is no longer paused.
        NotPaused,
        /// All objects of the release are ready.
        AllObjectsReady,
        /// No replica of the operator's ring has the custom resource.
        Unassigned,
        /// An action is in progress; the message says what it waits for.
        Progressing,
        /// A request has failed several times for a reason that may pass, and is tried again; the message has
        /// the cause, and the time within which the next attempt is.
        Retrying,
        /// The release is not tried again, see the condition `Stalled`.
        Stalled,
        /// The inputs have failed, and are not tried again.
        RetriesExhausted,
        /// All tests of the chart succeeded.
        TestsSucceeded,
        /// A test of the chart failed.
        TestsFailed,
        /// Another operator has written the newest record of the release.
        OtherOperator,
        /// Objects differ from what was applied.
        ObjectsChanged,
        /// The API server refuses a watch, or it has failed for 30 s.
        CannotWatch,
        /// An object has list entries with the same key; the last one was applied.
        ListEntriesMerged,
        /// Volumes of a StatefulSet stay larger than the chart asks for, since they cannot shrink.
        VolumeSizeKept,
        /// An object of an earlier revision stays in the cluster.
        ObjectLeft,
        /// The chart renders an object twice; the last one was applied.
        RenderedTwice,
        /// `Chart.yaml` lists a dependency that the chart does not contain; the rest was deployed.
        DependencyMissing,
        /// Objects are not as the chart renders them for more than one reason.
        SeveralReasons,
        /// The record is stored in several Secrets, of which the `helm` command reads only the first.
        StoredInParts,
        /// The schema of the definition does not have all fields of the status.
        NotInSchema,
        /// All objects of the release are ready, and a condition of `readyWhen` is not met.
        AwaitsCondition,
        /// All fields of `status` in `watches.yaml` are there.
        OutputsEvaluated,
        /// A field of `status` in `watches.yaml` reads something that is not there yet.
        OutputsMissing,
        /// A field of `status` in `watches.yaml` cannot be evaluated, or a name selects several objects.
        OutputsFailed,
    }
}

impl Reason {
    /// Returns the reason of a condition about an action that has succeeded.
    pub(crate) fn of_success(kind: ActionKind) -> Self {
        match kind {
            ActionKind::Install => Self::InstallSuccessful,
            _ => Self::UpgradeSuccessful,
        }
    }

    /// Returns the reason of a condition about an action that has failed.
    pub(crate) fn of_failure(kind: ActionKind) -> Self {
        match kind {
            ActionKind::Install => Self::InstallError,
            ActionKind::Uninstall => Self::UninstallError,
            _ => Self::UpgradeError,
        }
    }
}

impl From<ErrorKind> for Reason {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Values => Self::ErrorGettingValues,
            ErrorKind::Patches => Self::PatchesRefused,
            ErrorKind::Capabilities => Self::ErrorGettingClient,
            ErrorKind::Records => Self::ErrorGettingReleaseState,
            ErrorKind::Chart => Self::ReconcileError,
        }
    }
}
