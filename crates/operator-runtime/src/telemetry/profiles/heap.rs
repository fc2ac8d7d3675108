//! Profiles of the heap, from the samples of jemalloc: memory that is allocated and not freed.

use std::hint::black_box;

use jemalloc_pprof::PROF_CTL;
use tikv_jemalloc_ctl::thread;

/// Instruction that makes profiles of the heap possible.
const WANTED: &str = "start the program with _RJEM_MALLOC_CONF=prof:true";

/// A profile of the heap cannot be taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeapProfileError {
    #[error(
        "this program does not allocate with jemalloc; declare hybrid_operator::telemetry::Jemalloc as its #[global_allocator], and {WANTED}"
    )]
    OtherAllocator,
    #[error("jemalloc takes no samples; {WANTED}")]
    Off,
    #[error("cannot take a profile of the heap; it needs a directory for temporary files that can be written, {}: {reason}", directory.display())]
    Dump {
        directory: std::path::PathBuf,
        reason: String,
    },
}

/// Begins to take samples, if the allocator is prepared for it and does not yet.
pub(crate) async fn activate() {
    if is_allocator() && PROF_CTL.is_some() {
        jemalloc_pprof::activate_jemalloc_profiling().await;
    }
}

/// Returns whether a profile can be taken.
pub(crate) fn available() -> Result<(), HeapProfileError> {
    if !is_allocator() {
        return Err(HeapProfileError::OtherAllocator);
    }
    PROF_CTL.as_ref().map(drop).ok_or(HeapProfileError::Off)
}

/// Returns a compressed profile. Blocks the thread while addresses are resolved.
pub(crate) fn take() -> Result<Vec<u8>, HeapProfileError> {
    available()?;
    let control = PROF_CTL.as_ref().ok_or(HeapProfileError::Off)?;
    let profile = control.blocking_lock().dump_pprof();
    profile.map_err(|error| HeapProfileError::Dump {
        directory: std::env::temp_dir(),
        reason: format!("{error:#}"),
    })
}

/// Returns whether the memory of this program comes from jemalloc, which is linked in any case.
fn is_allocator() -> bool {
    let Ok(allocated) = thread::allocatedp::read() else {
        return false;
    };
    let before = allocated.get();
    drop(black_box(Box::new([0_u8; 64])));
    allocated.get() != before
}
