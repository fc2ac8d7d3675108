//! The sharder of kubernetes-controller-sharding, in a cluster.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use go_programs::{BuildError, SHARDER};

use crate::shared::built_or_skip;

/// A running sharder. It ends when the value is dropped, and with this process, however that ends: it reads a pipe that
/// only this process holds open.
#[derive(Debug)]
pub struct Sharder(Child);

/// An error while starting a sharder.
#[derive(Debug, thiserror::Error)]
pub enum SharderError {
    /// The sharder cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The sharder cannot be run.
    #[error("cannot run the sharder")]
    Run(#[source] std::io::Error),
}

impl Sharder {
    /// Starts a sharder in the cluster of a kubeconfig, building it first if needed. The definition of `ControllerRing` must be
    /// installed. Returns `None` if the machine cannot build it; then a line on standard error says which test
    /// is skipped and why.
    ///
    /// # Errors
    ///
    /// If it cannot be built or started.
    pub fn start_or_skip(kubeconfig: &Path) -> Result<Option<Self>, SharderError> {
        let Some(program) = built_or_skip(&SHARDER)? else {
            return Ok(None);
        };
        let child = Command::new(program)
            .arg(kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(SharderError::Run)?;
        Ok(Some(Self(child)))
    }
}

impl Drop for Sharder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
