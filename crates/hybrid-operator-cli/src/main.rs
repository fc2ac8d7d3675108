//! The `hybrid-operator` command.

fn main() {}
