//! Shows on standard error how a build of minutes goes on: a moving line at a terminal, a line every half minute elsewhere.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// How often a line is written where nothing can move.
const LINE_EVERY: Duration = Duration::from_secs(30);

const FIRST_LINE: &str = "control plane: building etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok from source. \
    Once; usually 6 to 9 minutes on 2 cores, seconds when Go has most of it cached.";

/// One build's progress.
pub(super) struct Progress {
    started: Instant,
    packages: u64,
    shown: Shown,
}

enum Shown {
    Bar(ProgressBar),
    /// Tells the thread that writes the lines what the build is at.
    Lines(mpsc::Sender<String>),
}

impl Progress {
    /// Says what begins and how long it usually takes.
    pub(super) fn start() -> Self {
        Self::line(FIRST_LINE);
        let started = Instant::now();
        let shown = if io::stderr().is_terminal() {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) =
                ProgressStyle::with_template("{spinner} {elapsed_precise}  {wide_msg}")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            Shown::Bar(bar)
        } else {
            let (sender, receiver) = mpsc::channel();
            thread::spawn(move || write_lines(&receiver, started));
            Shown::Lines(sender)
        };
        Self {
            started,
            packages: 0,
            shown,
        }
    }

    /// Takes one line of `go build -v`: a module that is fetched or a package that is compiled.
    pub(super) fn step(&mut self, line: &str) {
        let what = if let Some(module) = line.strip_prefix("go: downloading ") {
            format!("downloading {module}")
        } else {
            self.packages += 1;
            format!("{} packages compiled; {line}", self.packages)
        };
        match &self.shown {
            Shown::Bar(bar) => bar.set_message(what),
            // The thread lives as long as this sender.
            Shown::Lines(sender) => drop(sender.send(what)),
        }
    }

    /// Says that the binary is there.
    pub(super) fn done(self, binary: &Path) {
        let elapsed = elapsed(self.started);
        self.clear();
        Self::line(&format!(
            "control plane: built in {elapsed}: {}",
            binary.display()
        ));
    }

    /// Takes the moving line away; the error says the rest.
    pub(super) fn failed(self) {
        self.clear();
    }

    fn clear(self) {
        if let Shown::Bar(bar) = self.shown {
            bar.finish_and_clear();
        }
    }

    /// Writes one line. When nobody reads standard error there is nobody to tell.
    pub(super) fn line(text: &str) {
        drop(writeln!(io::stderr(), "{text}"));
    }
}

/// Writes a line now and then until the build has ended.
fn write_lines(steps: &mpsc::Receiver<String>, started: Instant) {
    let mut at = String::from("starting");
    let mut next = Instant::now() + LINE_EVERY;
    loop {
        match steps.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(step) => at = step,
            Err(RecvTimeoutError::Timeout) => {
                Progress::line(&format!(
                    "control plane: building for {}; {at}",
                    elapsed(started)
                ));
                next += LINE_EVERY;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn elapsed(since: Instant) -> String {
    let seconds = since.elapsed().as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
