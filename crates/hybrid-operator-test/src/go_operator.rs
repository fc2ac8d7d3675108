//! The Helm operators in Go, for tests that take their releases over and give them back.

use std::path::Path;

use go_programs::{BuildError, HELM_OPERATOR, HELM_OPERATOR_CHUNKS, HELM_OPERATOR_PLUGINS};

use crate::Operator;
use crate::shared::built_or_skip;

/// A Helm operator in Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoOperator {
    /// `helm-operator` of operator-sdk.
    OperatorSdk,
    /// `helm-operator-plugins`.
    Plugins,
    /// A program with the packages of helm-operator-plugins that stores releases in chunks.
    Chunks,
}

impl GoOperator {
    /// Returns the operator of a project, whose folder has a `watches.yaml`, building its program first if needed. Returns
    /// `None` if the machine cannot build it; then a line on standard error says which test is skipped and why.
    ///
    /// # Errors
    ///
    /// Any [`BuildError`] other than a missing prerequisite, and with `REQUIRE_CONTROL_PLANE=1` any
    /// [`BuildError`].
    pub fn of_project_or_skip(self, project: &Path) -> Result<Option<Operator>, BuildError> {
        let program = match self {
            Self::OperatorSdk => &HELM_OPERATOR,
            Self::Plugins => &HELM_OPERATOR_PLUGINS,
            Self::Chunks => &HELM_OPERATOR_CHUNKS,
        };
        let program = built_or_skip(program)?;
        Ok(program.map(|program| {
            Operator::new(program)
                .args([
                    "run",
                    "--watches-file=watches.yaml",
                    "--metrics-bind-address=0",
                ])
                .arg("--health-probe-bind-address=127.0.0.1:{probe_port}")
                .dir(project)
        }))
    }
}
