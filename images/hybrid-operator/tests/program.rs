//! The program, as the image starts it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

#[test]
fn the_program_states_its_name_and_version() {
    let version = concat!("chart-operator ", env!("CARGO_PKG_VERSION"), "\n");
    for argument in ["version", "--version"] {
        let output = Command::new(env!("CARGO_BIN_EXE_chart-operator"))
            .arg(argument)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), version);
    }
}
