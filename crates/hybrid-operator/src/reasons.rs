//! Names that users and programs compare: types of conditions, reasons of conditions, reasons of events.
//!
//! The text of each one is in the reference (`docs/reference`), which tests generate from here. What users
//! can do about a reason of a condition is in `docs/troubleshooting.md`, which has a heading for each one.

/// Defines an enum whose variants are written as they are named, each with its text.
macro_rules! names {
    ($(#[doc = $about:literal])+ $enum:ident {
        $($(#[doc = $text:literal])+ $name:ident,)+
    }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum $enum {
            $($(#[doc = $text])+ $name,)+
        }

        impl $enum {
            pub(crate) const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }

            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)+];

            #[cfg(test)]
            pub(crate) fn text(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($text),+).trim(),)+
                }
            }
        }

        impl From<$enum> for &'static str {
            fn from(name: $enum) -> Self {
                name.as_str()
            }
        }

        impl PartialEq<$enum> for String {
            fn eq(&self, other: &$enum) -> bool {
                self == other.as_str()
            }
        }
    };
}

names! {
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
    }
}

names! {
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
    }
}

names! {
    /// Reasons of events, beside those of conditions.
    EventReason {
        /// Objects were changed or deleted by somebody, and were repaired.
        DriftRepaired,
        /// A release that somebody else had installed was taken over.
        ReleaseAdopted,
        /// The release was uninstalled.
        UninstallSuccessful,
        /// A failed upgrade was rolled back.
        RolledBack,
        /// A failed upgrade was followed by an uninstall, as `upgrade.remediation.strategy` says.
        UninstalledAfterFailure,
        /// `overrideValues` changed values of the custom resource; the paths are named.
        ValueOverridden,
        /// An object of `valuesFrom` with `optional: true` is gone; its last value is used.
        LastValueUsed,
        /// An object has list entries with the same key; the last one was applied.
        ListEntriesMerged,
        /// An object stays after an upgrade or an uninstall, with the cause: `helm.sh/resource-policy: keep`,
        /// another owner, created anew by somebody, or it holds objects of others.
        ObjectLeft,
        /// The chart renders an object twice; the last one was applied, and the message names both templates.
        RenderedTwice,
        /// `Chart.yaml` lists a dependency that the chart does not contain; the rest was deployed.
        DependencyMissing,
        /// A record was not written by this operator, so that nothing is applied from it.
        UnprovenRecord,
        /// A record cannot be read.
        CorruptRelease,
        /// Parts of a large record are missing.
        IncompleteRelease,
        /// An annotation has a value that cannot be read, or does not exist.
        InvalidAnnotation,
        /// The definition lacks fields of the status, so that the API server drops them.
        StatusPruned,
        /// The record of a revision does not fit into one Secret.
        LargeRecord,
        /// Objects cannot be watched; the condition of the same name says so while it lasts.
        WatchRefused,
        /// A changed watches file or chart was refused, and the former one is still used.
        ReloadRefused,
        /// After three failures, a changed chart is not rolled out any further.
        RolloutHalted,
    }
}

impl EventReason {
    pub(crate) const fn is_warning(self) -> bool {
        !matches!(
            self,
            Self::DriftRepaired | Self::ReleaseAdopted | Self::UninstallSuccessful
        )
    }
}
