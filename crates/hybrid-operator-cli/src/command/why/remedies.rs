//! Remedies by the reason of a condition. The page about troubleshooting says more about each.

/// Remedies.
pub(super) struct Remedy {
    reason: &'static str,
    pub(super) help: &'static str,
    /// Commands, in which `{target}` is the custom resource and `{pod}` a Pod that is not ready, both with their
    /// namespace.
    pub(super) commands: &'static [&'static str],
}

/// Returns what helps, if the reason is one of the operator's.
pub(super) fn remedy(reason: &str) -> Option<&'static Remedy> {
    REMEDIES.iter().find(|remedy| remedy.reason == reason)
}

const DESCRIBE: &str = "kubectl describe pod {pod}";
const LOGS: &str = "kubectl logs {pod}";
const HISTORY: &str = "hybrid-operator history {target}";
const VALUES: &str = "hybrid-operator get values {target} --all";

macro_rules! remedies {
    ($($reason:literal: $help:literal, [$($command:expr),*];)*) => {
        &[$(Remedy { reason: $reason, help: $help, commands: &[$($command),*] }),*]
    };
}

const REMEDIES: &[Remedy] = remedies! {
    "NoConditions": "Look at the log of the operator: does it run, watch this namespace, and have a chart for this kind? \
        Compare the labels with its selector.", ["kubectl get deployments,leases -A"];
    "InstallError": "Remove the obstacle that the cause names: grant a permission, delete a foreign object, correct a \
        value. The install continues with what is there.", [HISTORY];
    "UpgradeError": "Correct the values: an upgrade starts at once. What ran before the upgrade runs still, unless \
        the policy says otherwise.", [HISTORY, "hybrid-operator rollback {target}"];
    "UninstallError": "Remove the obstacle that the cause names; the uninstall is tried again. The annotation \
        uninstall-disable-hooks=true skips hooks that cannot succeed.", ["hybrid-operator status {target}"];
    "RetriesExhausted": "Change the values or the chart. If the cause was elsewhere and is gone, say 'retry'.", [HISTORY];
    "Stalled": "Change the values or the chart. If the cause was elsewhere and is gone, say 'retry'.", [HISTORY];
    "ReconcileError": "Correct the values or the chart at the place that the cause names.", [VALUES];
    "ErrorGettingValues": "Create the Secret or ConfigMap that the cause names, or let the operator read it.", [];
    "PatchesRefused": "Correct or remove the patch in the custom resource that the cause names.", [];
    "ErrorGettingClient": "Repair or remove the API service that is not available.", ["kubectl get apiservices"];
    "ErrorGettingReleaseState": "If the cause is a release of Helm of the same name that should be taken over, say \
        'adopt'; otherwise rename the custom resource.", ["hybrid-operator adopt {target} --wait"];
    "PauseReconcileAnnotationTrue": "Somebody has paused it. Ask who did, then say 'resume'.", [];
    "OtherOperator": "Remove one of the two operators, or hand the release over with 'adopt --by OPERATOR'.", [];
    "TestsFailed": "The tests run again with the next revision, which 'force' makes.",
        ["hybrid-operator force {target} --wait"];
    "ObjectsChanged": "Stop the client that changes the objects, or leave the fields to it with driftDetection.ignore.",
        ["hybrid-operator status {target}"];
    "CannotWatch": "Let the operator list and watch what the cause names.", [];
    "SeveralReasons": "See the objects that the cause names.", [];
    "StoredInParts": "The release works. Move large files out of the chart, so that helm can read it, too.", [];
    "OutputsMissing": "Usually nothing: the field follows when the object it reads from exists.", [];
    "OutputsFailed": "Correct the expression in the watches file of the operator.", [];
    "NotInSchema": "Apply the definition that 'generate crds' writes.", [];
    "Progressing": "Usually nothing: look at what the cause names, on which the operator waits.", [DESCRIBE];
    "AwaitsCondition": "Usually nothing: the condition of readyWhen waits for something in the cluster.", [];
    "Retrying": "Look at the server or webhook that the cause names. Nothing has to be done once it answers.", [];
    "Unassigned": "Check that the sharder of kubernetes-controller-sharding runs, and that the ControllerRing lists the kind.",
        ["kubectl get controllerrings"];
    "ObjectsNotReady": "Look at the objects below that are not ready.", [DESCRIBE];
    "ImagePullFailed": "Correct the name of the image in the values, or create the imagePullSecret of the registry.",
        [DESCRIBE];
    "SecretMissing": "Create the Secret in the namespace of the release; the Pods start by themselves.", [DESCRIBE];
    "ConfigMapMissing": "Create the ConfigMap in the namespace of the release; the Pods start by themselves.", [DESCRIBE];
    "ContainerNotStarted": "Correct the command, the mounts or the security context in the values.", [DESCRIBE];
    "CrashLoop": "Do what the log of the container says.", ["kubectl logs {pod} --previous"];
    "OOMKilled": "Raise the memory limit in the values, or let the application use less.", ["kubectl top pod {pod}", VALUES];
    "ProbeFailed": "See the log. If the application needs longer to start, raise the delay of the probe.", [LOGS];
    "ContainerNotReady": "Usually the application still starts: see its log.", [LOGS];
    "ContainerCreating": "Large images take time. If it lasts, look at the kubelet of the node.", [DESCRIBE];
    "Unschedulable": "Lower the requests, add nodes, or change nodeSelector, tolerations or affinity in the values.",
        [DESCRIBE, "kubectl get nodes"];
    "SchedulingGated": "The controller of the scheduling gate has to remove it.", [DESCRIBE];
    "VolumePending": "Name a StorageClass that exists, or create the claim or the volume.",
        ["kubectl get storageclasses", DESCRIBE];
    "SandboxFailed": "Repair the network of the node, or delete the Pod, so that it is scheduled elsewhere.", [DESCRIBE];
    "PodFailed": "After an eviction, free disk or memory on the node, or set requests.", [DESCRIBE];
    "QuotaExceeded": "Raise the quota of the namespace, or lower replicas or requests.", [];
    "PodSecurityViolation": "Set the security contexts in the values, or another level for the namespace.", [];
    "ServiceAccountMissing": "Create the service account, or let the chart do so: often serviceAccount.create=true.", [];
    "AdmissionDenied": "Do what the webhook asks for; it belongs to a policy of the cluster.", [];
    "PodsNotCreated": "Usually a value makes the Pod invalid: the cause has the words of the API server.", [];
    "ListEntriesMerged": "Correct the chart or the values: an entry of a list is there twice.", [];
    "VolumeSizeKept": "Set the size that the volume has: volumes cannot shrink.", [];
    "RenderedTwice": "Correct the chart or the values: an object is rendered twice.", [];
    "DependencyMissing": "Fetch the dependency into the chart, or remove it from Chart.yaml.", [];
    "ObjectLeft": "Delete the object yourself if it is not needed.", [];
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::REMEDIES;

    #[test]
    fn every_reason_of_a_condition_that_needs_help_has_it() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let page = std::fs::read_to_string(docs.join("reference/conditions.md")).unwrap();
        // Reasons that need something to be done are links.
        let links = page.lines().filter_map(|line| {
            let (_, link) = line.strip_prefix("| `")?.split_once("| [`")?;
            Some(link.split_once('`')?.0)
        });
        let needed: BTreeSet<&str> = links.chain(["NoConditions"]).collect();
        let known: BTreeSet<&str> = REMEDIES.iter().map(|remedy| remedy.reason).collect();
        assert_eq!(known, needed);
        assert_eq!(known.len(), REMEDIES.len(), "a reason is there twice");
    }
}
