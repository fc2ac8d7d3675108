//! Runs `go build` in the cache directory and renames the result into place.

use std::collections::VecDeque;
use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::progress::Progress;
use crate::{BuildError, Program};

/// Number of lines of Go's output in an error.
const TAIL: usize = 20;

/// `GOGC` of the build: heap growth between garbage collections, in percent. Go's default of 100
/// takes 25% more CPU time; this value needs at most 1 GB of memory.
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
        // Ignore the caller's workspace, which is for other modules.
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
