//! A real OCI registry, for tests of charts in registries.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use go_programs::{BuildError, REGISTRY};

use crate::shared::built_or_skip;

/// A running registry without TLS, which keeps everything in memory. It is killed when the value is
/// dropped, and ends with this process, however that ends: it reads a pipe that only this process
/// holds open.
#[derive(Debug)]
pub struct Registry {
    child: Child,
    address: String,
}

/// An error while starting a registry.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The registry cannot be built.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The registry cannot be run.
    #[error("cannot run the registry")]
    Run(#[source] std::io::Error),
    /// The registry has ended without saying where it listens.
    #[error("the registry has ended at once")]
    Ended,
}

impl Registry {
    /// Starts a registry on a free port of the loopback interface, building it first if needed. With
    /// `htpasswd`, a file with users and bcrypt hashes, clients must log in. Returns `None` if the
    /// machine cannot build it; then a line on standard error says which test is skipped and why.
    ///
    /// # Errors
    ///
    /// If it cannot be built or started.
    pub fn start_or_skip(htpasswd: Option<&Path>) -> Result<Option<Self>, RegistryError> {
        let Some(program) = built_or_skip(&REGISTRY)? else {
            return Ok(None);
        };
        let mut command = Command::new(program);
        if let Some(file) = htpasswd {
            // A missing file would be written by the registry.
            File::open(file).map_err(RegistryError::Run)?;
            command.arg("--htpasswd").arg(file);
        }
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(RegistryError::Run)?;
        let mut address = String::new();
        if let Some(output) = child.stdout.take() {
            let read = BufReader::new(output).read_line(&mut address);
            read.map_err(RegistryError::Run)?;
        }
        let registry = Self {
            child,
            address: address.trim().to_owned(),
        };
        if registry.address.is_empty() {
            return Err(RegistryError::Ended);
        }
        Ok(Some(registry))
    }

    /// Returns host and port.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        if self.child.kill().is_ok() {
            drop(self.child.wait());
        }
    }
}
