//! The `hybrid-operator` program; its code is in the library of this crate.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Rendering allocates many small objects, for which this allocator is fast.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // The C library musl reports the main thread's stack as much smaller than it can get. A large one from the
    // beginning spares new ones with each document.
    bounded::grow_for_drop(|| hybrid_operator_cli::run(std::env::args_os()))
}
