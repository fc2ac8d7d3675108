//! Runs `go build` in the cache directory and puts the result in its place in one step.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use super::progress::Progress;
use super::{BinaryError, sources};

/// Lines of Go's output that an error shows.
const TAIL: usize = 20;

/// Builds `binary` in `dir`; the caller holds the lock of `dir`.
pub(super) fn compile(dir: &Path, binary: &Path) -> Result<(), BinaryError> {
    let source = dir.join("src");
    sources::unpack(&source)?;
    let log_path = dir.join("build.log");
    let mut log = File::create(&log_path).map_err(BinaryError::cache("create", &log_path))?;
    let partial = dir.join("controlplane.partial");

    let mut progress = Progress::start();
    let mut child = Command::new("go")
        .args(sources::BUILD)
        .arg("-o")
        .arg(&partial)
        .arg(".")
        .current_dir(&source)
        .env("CGO_ENABLED", "0")
        // The caller's settings for his own module are not for this one.
        .env("GOWORK", "off")
        .env("GOFLAGS", "")
        .env("GO111MODULE", "on")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(BinaryError::GoMissing)?;

    let mut tail = VecDeque::with_capacity(TAIL);
    if let Some(output) = child.stderr.take() {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            progress.step(&line);
            writeln!(log, "{line}").map_err(BinaryError::cache("write", &log_path))?;
            if tail.len() == TAIL {
                tail.pop_front();
            }
            tail.push_back(line);
        }
    }
    let status = child
        .wait()
        .map_err(BinaryError::cache("wait for `go build` in", &source))?;
    if !status.success() {
        progress.failed();
        let tail = Vec::from(tail).join("\n");
        return Err(BinaryError::Compile {
            status: status.to_string(),
            log: log_path,
            tail,
        });
    }
    fs::rename(&partial, binary).map_err(BinaryError::cache("rename", &partial))?;
    progress.done(binary);
    Ok(())
}
