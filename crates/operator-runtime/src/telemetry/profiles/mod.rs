//! Profiles of the heap of this process, in the format of pprof.
//!
//! Without the feature `profiling` there are none, and the options refuse the flag that serves them.

#[cfg(feature = "profiling")]
pub(crate) mod heap;

/// Whether this program can take profiles.
pub(crate) const AVAILABLE: bool = cfg!(feature = "profiling");
