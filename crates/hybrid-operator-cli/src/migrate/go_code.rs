//! Go code: what it does for charts has a counterpart in Rust, and its controllers are rewritten.

use super::{Kind, Tree};

/// Options of helm-operator-plugins' reconciler, and what replaces them. Those that are set from
/// `watches.yaml` or are internal need nothing.
const OPTIONS: &[(&str, &str)] = &[
    ("WithValueTranslator", "HelmController::value_translator"),
    ("WithValueMapper", "HelmController::value_translator"),
    ("WithPreHook", "HelmController::pre_hook"),
    ("WithPostHook", "HelmController::post_hook"),
    ("WithEventRecorder", "HelmController::event_recorder"),
    ("WithPauseReconcileHandler", "HelmController::pause_handler"),
    ("WithSelector", "selector in watches.yaml"),
    ("WithMaxReleaseHistory", "maxHistory in watches.yaml"),
    (
        "WithWaitForDeletionTimeout",
        "uninstall.timeout in watches.yaml",
    ),
    ("WithControllerSetupFunc", "HelmController::watches"),
    ("WithLog", "HelmController::logger"),
];

pub(super) fn check(tree: &mut Tree) {
    let files = tree.matching(|path| {
        path.extension().is_some_and(|extension| extension == "go")
            && !path.to_string_lossy().ends_with("_test.go")
    });
    for (path, text) in files {
        for (index, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for (option, replacement) in OPTIONS {
                if code.contains(&format!(".{option}(")) {
                    let todo = format!("{option} becomes {replacement} in src/main.rs");
                    tree.add(Kind::ByHand, &path, Some(index + 1), todo);
                }
            }
            if let Some(kind) = controller(code) {
                let todo = format!(
                    "the controller of {kind} becomes a function in Rust: 'hybrid-operator create api --native --kind {kind}'"
                );
                tree.add(Kind::ByHand, &path, Some(index + 1), todo);
            }
        }
    }
}

/// Returns the kind of the controller whose `Reconcile` method begins on a line.
fn controller(line: &str) -> Option<&str> {
    let line = line.strip_prefix("func (")?;
    let (receiver, rest) = line.split_once(')')?;
    rest.trim_start().starts_with("Reconcile(").then_some(())?;
    let kind = receiver.rsplit([' ', '*']).next()?;
    kind.strip_suffix("Reconciler")
}

#[cfg(test)]
mod tests {
    use super::controller;

    #[test]
    fn controllers_are_found_by_their_reconcile_method() {
        let line = "func (r *MemcachedBackupReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {";
        assert_eq!(controller(line), Some("MemcachedBackup"));
        assert_eq!(
            controller("func (r *BackupReconciler) SetupWithManager("),
            None
        );
        assert_eq!(controller("func Reconcile() {"), None);
    }
}
