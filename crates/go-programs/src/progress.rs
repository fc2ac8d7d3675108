//! Writes a line to standard error now and then, so that a build of minutes is seen to go on.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::Program;

/// How often a line is written for somebody who watches.
const EVERY_AT_A_TERMINAL: Duration = Duration::from_secs(10);

/// How often a line is written into a log.
const EVERY_IN_A_LOG: Duration = Duration::from_secs(30);

/// One build's progress.
pub(crate) struct Progress {
    program: &'static str,
    started: Instant,
    packages: u64,
    /// Tells the thread that writes the lines what the build is at.
    steps: mpsc::Sender<String>,
}

impl Progress {
    /// Says what begins and how long it usually takes.
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

    /// Takes one line of `go build -v`: a module that is fetched or a package that is compiled.
    pub(crate) fn step(&mut self, line: &str) {
        let what = if let Some(module) = line.strip_prefix("go: downloading ") {
            format!("downloading {module}")
        } else {
            self.packages += 1;
            format!("{} packages compiled, now {line}", self.packages)
        };
        // The thread that receives lives as long as this sender.
        drop(self.steps.send(what));
    }

    /// Says that the binary is there.
    pub(crate) fn done(self, binary: &Path) {
        write_line(&format!(
            "{}: built in {}: {}",
            self.program,
            elapsed(self.started),
            binary.display()
        ));
    }
}

/// Writes one line to standard error; when that is closed, nobody can be told.
pub(crate) fn write_line(text: &str) {
    drop(writeln!(io::stderr(), "{text}"));
}

/// Writes a line now and then until the build has ended.
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
