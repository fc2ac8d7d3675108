//! The program, as `cargo run` starts it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

#[test]
fn the_program_states_its_name_and_version() {
    let name = env!("CARGO_PKG_NAME");
    let output = Command::new(env!("CARGO_BIN_EXE_etcd-cluster"))
        .arg("--version")
        .output()
        .unwrap();
    let wanted = format!("{name} {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), wanted);
}
