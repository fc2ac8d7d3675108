//! The `hybrid-operator` program: everything is in the library beside it.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Rendering makes many small objects and drops them at once, for which this is made.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    hybrid_operator_cli::run(std::env::args_os())
}
