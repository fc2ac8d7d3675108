//! The `hybrid-operator` program; its code is in the library of this crate.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Rendering allocates many small objects, for which this allocator is fast.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    hybrid_operator_cli::run(std::env::args_os())
}
