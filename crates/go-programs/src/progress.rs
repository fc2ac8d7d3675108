//! Reports progress of a build on standard error at intervals.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Program;

/// Interval of progress lines at a terminal.
const EVERY_AT_A_TERMINAL: Duration = Duration::from_secs(10);

/// Interval of progress lines in a log.
const EVERY_IN_A_LOG: Duration = Duration::from_secs(30);

/// Progress of one build.
pub(crate) struct Progress {
    program: &'static str,
    started: Instant,
    packages: u64,
    /// Sends the current step to the thread that writes the lines.
    steps: mpsc::Sender<String>,
}

impl Progress {
    /// Reports the start of the build and how long it usually takes.
    pub(crate) fn start(program: &Program) -> Self {
        write_line(&format!(
            "{}: building from source, once: {}, seconds when Go has most of it cached",
            program.name, program.build
        ));
        let started = Instant::now();
        let (steps, receiver) = mpsc::channel();
        let name = program.name;
        thread::spawn(move || write_lines(name, &receiver, started));
        Self {
            program: name,
            started,
            packages: 0,
            steps,
        }
    }

    /// Handles one line of `go build -v`: a downloaded module or a compiled package.
    pub(crate) fn step(&mut self, line: &str) {
        let what = if let Some(module) = line.strip_prefix("go: downloading ") {
            format!("downloading {module}")
        } else {
            self.packages += 1;
            format!("{} packages compiled, now {line}", self.packages)
        };
        // The receiving thread lives as long as this sender.
        drop(self.steps.send(what));
    }

    /// Reports that the binary is built.
    pub(crate) fn done(self, binary: &Path) {
        write_line(&format!(
            "{}: built in {}: {}",
            self.program,
            elapsed(self.started),
            binary.display()
        ));
    }
}

/// Writes one line to standard error, ignoring errors.
pub(crate) fn write_line(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}

/// Writes a line at intervals until the build has ended.
fn write_lines(program: &str, steps: &mpsc::Receiver<String>, started: Instant) {
    let every = if io::stderr().is_terminal() {
        EVERY_AT_A_TERMINAL
    } else {
        EVERY_IN_A_LOG
    };
    let mut at = String::from("starting");
    let mut next = Instant::now() + every;
    loop {
        match steps.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(step) => at = step,
            Err(RecvTimeoutError::Timeout) => {
                write_line(&format!(
                    "{program}: building for {}; {at}",
                    elapsed(started)
                ));
                next += every;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn elapsed(since: Instant) -> String {
    let seconds = since.elapsed().as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
