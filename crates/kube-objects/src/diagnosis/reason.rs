//! Reasons why objects do not become ready.

crate::reasons! {
    /// Reason why an object does not become ready. The names are stable: scripts and alerts may compare them.
    Reason {
        /// Objects of the release are not ready; the message names the first one.
        ObjectsNotReady,
        /// The image does not exist, its name is invalid, access is denied, or the registry cannot be
        /// reached.
        ImagePullFailed,
        /// A container or volume refers to a Secret that does not exist.
        SecretMissing,
        /// A container or volume refers to a `ConfigMap` that does not exist.
        ConfigMapMissing,
        /// The container runtime refuses the container; the message has its words.
        ContainerNotStarted,
        /// A container ends with an exit code other than 0; the message has the last lines of its log.
        CrashLoop,
        /// A container used more memory than its limit.
        OOMKilled,
        /// A container runs, but its readiness or startup probe fails.
        ProbeFailed,
        /// A container runs but is not ready, and no event says why.
        ContainerNotReady,
        /// A container is being created, and no event says why that takes so long.
        ContainerCreating,
        /// No node fits; the message has the words of the scheduler.
        Unschedulable,
        /// The Pod has scheduling gates.
        SchedulingGated,
        /// A `PersistentVolumeClaim` is not bound or does not exist, or a volume cannot be attached or
        /// mounted.
        VolumePending,
        /// The node cannot set up the Pod, for example its network.
        SandboxFailed,
        /// The Pod failed as a whole, for example because it was evicted.
        PodFailed,
        /// A quota of the namespace allows no further Pods.
        QuotaExceeded,
        /// The namespace does not allow Pods like this.
        PodSecurityViolation,
        /// The service account of the Pods does not exist.
        ServiceAccountMissing,
        /// A webhook denies the Pods.
        AdmissionDenied,
        /// The API server refuses to create the Pods for another reason, which the message has.
        PodsNotCreated,
    }
}
