//! The `hybrid-operator` program; its code is in the library of this crate.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Rendering makes and drops many small objects, which this allocator is fast at.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    hybrid_operator_cli::run(std::env::args_os())
}
