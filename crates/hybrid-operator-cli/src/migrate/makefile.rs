//! Targets of the Makefile that use the Go operator.

use std::path::Path;

use super::{Kind, Tree};

pub(super) fn check(tree: &mut Tree) {
    let path = Path::new("Makefile");
    let Some(text) = tree.files.get(path).cloned() else {
        return;
    };
    let downloads = text.lines().position(|line| {
        line.contains("/helm-operator_$(OS)")
            || line.contains("download") && line.contains("helm-operator")
    });
    if let Some(index) = downloads {
        let way_out = "'make run' downloads the Go operator; put hybrid-operator on the PATH under the name helm-operator, or run 'hybrid-operator run'";
        tree.add(Kind::ByHand, path, Some(index + 1), way_out);
    }
    if let Some(index) = text
        .lines()
        .position(|line| line.contains("generate bundle") || line.contains("bundle validate"))
    {
        let note = "'make bundle' keeps working; run it again after the migration, so that the bundle has the new image and permissions";
        tree.add(Kind::Note, path, Some(index + 1), note);
    }
}
