//! Runs `hybrid-operator migrate` on projects as operator-sdk and helm-operator-plugins write them.
//! What it prints is compared with `NAME.check` and `NAME.out` in tests/projects.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn projects() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/projects")
}

fn migrate(directory: &Path, flags: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hybrid-operator"))
        .arg("migrate")
        .args(flags)
        .arg(directory)
        .output()
        .unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Compares the output with a file.
fn compare(output: &Output, file: &str, code: i32) {
    let printed = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let expected = fs::read_to_string(projects().join(file)).unwrap_or_default();
    assert!(
        printed == expected,
        "{file} differs; printed:\n{printed}{errors}"
    );
    assert_eq!(output.status.code(), Some(code), "{file}");
}

/// Checks a project, migrates it, and migrates it again.
fn check(name: &str, code: i32) {
    let directory = tempfile::tempdir().unwrap();
    let project = directory.path().join("project");
    copy(&projects().join(name), &project);
    let before = fs::read(project.join("watches.yaml")).unwrap();
    compare(
        &migrate(&project, &["--check", "--diff"]),
        &format!("{name}.check"),
        code,
    );
    assert_eq!(fs::read(project.join("watches.yaml")).unwrap(), before);
    migrate(&project, &[]);
    compare(&migrate(&project, &[]), &format!("{name}.out"), code);
}

#[test]
fn a_project_of_operator_sdk_needs_a_new_base_image_and_a_few_permissions() {
    check("sdk", 1);
}

#[test]
fn the_go_code_of_helm_operator_plugins_is_named_line_by_line() {
    check("plugins", 1);
}

#[test]
fn a_project_from_before_kubebuilders_layout_is_migrated_too() {
    check("early", 1);
}

#[test]
fn a_directory_that_is_no_project_is_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let output = migrate(directory.path(), &["--check"]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("has no watches.yaml"), "{errors}");
    assert_eq!(output.status.code(), Some(1));
}
