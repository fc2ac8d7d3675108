//! CPU profiles: the stacks of the threads that run, once per 10 ms of processor time.
//!
//! Stacks are walked by frame pointers. The standard library has them, other code if it is compiled with
//! `-C force-frame-pointers=yes`; without them a stack ends early.

use host::HashMap;

use jemalloc_pprof::{StackProfile, WeightedStack};
use mappings::MAPPINGS;
use pprof::{ProfilerGuard, ProfilerGuardBuilder};

/// Samples per second of processor time, as in Go.
const FREQUENCY: i32 = 100;

/// Processor time between two samples, in nanoseconds.
const PERIOD: f64 = 10_000_000.0;

/// A CPU profile cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CpuProfileError {
    /// Another one is being taken.
    #[error("a CPU profile is being taken; try again when it has ended")]
    Running,
    /// The samples cannot be collected.
    #[error(
        "cannot collect samples; they need a directory for temporary files that can be written: mount one at {} or set $TMPDIR, and restart",
        directory.display()
    )]
    Collect {
        /// The directory for temporary files.
        directory: std::path::PathBuf,
        #[source]
        source: pprof::Error,
    },
}

impl From<pprof::Error> for CpuProfileError {
    fn from(error: pprof::Error) -> Self {
        match error {
            pprof::Error::Running => Self::Running,
            source => Self::Collect {
                directory: std::env::temp_dir(),
                source,
            },
        }
    }
}

/// A profile that is being taken, until it is dropped.
pub(crate) struct CpuProfile(ProfilerGuard<'static>);

impl CpuProfile {
    /// Starts to take samples. Blocks the thread for some milliseconds.
    pub(crate) fn start() -> Result<Self, CpuProfileError> {
        let guard = ProfilerGuardBuilder::default()
            .frequency(FREQUENCY)
            .build()?;
        Ok(Self(guard))
    }

    /// Returns the samples as a compressed profile. Blocks the thread while their addresses are resolved.
    pub(crate) fn finish(self) -> Result<Vec<u8>, CpuProfileError> {
        let report = self.0.report().build_unresolved()?;
        drop(self);
        let mut stacks: HashMap<Vec<usize>, u32> = HashMap::default();
        for (sample, count) in &report.data {
            // Code without frame pointers may leave anything in their place.
            let frames = sample.frames.iter().map(|frame| frame.ip);
            let mut addresses: Vec<usize> = frames.take_while(|address| *address != 0).collect();
            addresses.reverse();
            let total = stacks.entry(addresses).or_default();
            *total = total.saturating_add(u32::try_from(*count).unwrap_or_default());
        }
        Ok(encode(stacks))
    }
}

/// Returns a profile of stacks, outermost address first, with the number of their samples.
fn encode(stacks: HashMap<Vec<usize>, u32>) -> Vec<u8> {
    let mut profile = StackProfile::default();
    for mapping in MAPPINGS.iter().flatten() {
        profile.push_mapping(mapping.clone());
    }
    for (addrs, count) in stacks {
        let weight = f64::from(count) * PERIOD;
        profile.push_stack(WeightedStack { addrs, weight }, None);
    }
    let cpu = ("cpu", "nanoseconds");
    profile.to_pprof(cpu, cpu, None)
}
