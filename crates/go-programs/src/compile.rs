//! Runs `go build` in the cache directory and moves the result into place in one step.

use std::collections::VecDeque;
use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::progress::Progress;
use crate::{BuildError, Program};

/// Lines of Go's output that an error shows.
const TAIL: usize = 20;

/// How far the heap of Go's compiler grows between two garbage collections, in percent. With Go's
/// own setting of 100 the build takes a quarter more CPU time; with this one it needs 1 GB at most.
const GOGC: &str = "400";

/// Builds `binary` in `dir`; the caller holds the lock of `dir`.
pub(crate) fn compile(program: &Program, dir: &Path, binary: &Path) -> Result<(), BuildError> {
    let source = dir.join("src");
    program.unpack(&source)?;
    let log_path = dir.join("build.log");
    let mut log = File::create(&log_path).map_err(BuildError::cache("create", &log_path))?;
    let partial = binary.with_extension("partial");

    let mut progress = Progress::start(program);
    let mut child = Command::new("go")
        .args(["build", "-v"])
        .args(program.flags)
        .arg("-o")
        .arg(&partial)
        .arg(program.package)
        .current_dir(&source)
        .env("CGO_ENABLED", "0")
        // The caller's settings for a module of his own are not for this one.
        .env("GOWORK", "off")
        .env("GOFLAGS", "")
        .env("GO111MODULE", "on")
        .env("GOGC", env::var_os("GOGC").unwrap_or_else(|| GOGC.into()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| BuildError::GoMissing {
            program: program.name,
            variable: program.variable,
            source,
        })?;

    let mut tail = VecDeque::with_capacity(TAIL);
    if let Some(output) = child.stderr.take() {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            progress.step(&line);
            writeln!(log, "{line}").map_err(BuildError::cache("write", &log_path))?;
            if tail.len() == TAIL {
                tail.pop_front();
            }
            tail.push_back(line);
        }
    }
    let status = child
        .wait()
        .map_err(BuildError::cache("wait for `go build` in", &source))?;
    if !status.success() {
        return Err(BuildError::Compile {
            program: program.name,
            status: status.to_string(),
            log: log_path,
            tail: Vec::from(tail).join("\n"),
        });
    }
    fs::rename(&partial, binary).map_err(BuildError::cache("rename", &partial))?;
    progress.done(binary);
    Ok(())
}
