use std::fs;

use super::*;

fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

fn texts(files: &[(&str, &str)]) -> Vec<(Kind, String)> {
    let directory = project(files);
    let found = assess(directory.path()).unwrap().findings;
    found
        .into_iter()
        .map(|finding| (finding.kind, finding.text))
        .collect()
}

#[test]
fn a_directory_without_watches_is_refused() {
    let directory = project(&[("PROJECT", "version: \"3\"\n")]);
    let error = assess(directory.path()).unwrap_err();
    assert!(matches!(error, MigrateError::NoWatches { .. }), "{error}");
}

#[test]
fn a_project_of_the_ansible_plugin_is_refused() {
    let directory = project(&[("watches.yaml", "- kind: A\n  playbook: playbooks/a.yml\n")]);
    let error = assess(directory.path()).unwrap_err();
    assert!(matches!(error, MigrateError::Ansible { .. }), "{error}");
}

#[test]
fn mistakes_in_the_watches_file_are_left_to_be_done() {
    let found = texts(&[(
        "watches.yaml",
        "- group: a\n  version: v1\n  kind: A\n  chrat: x\n",
    )]);
    let by_hand = found.iter().any(|(kind, text)| {
        *kind == Kind::ByHand && text.contains("chrat") && text.contains("chart")
    });
    assert!(by_hand, "{found:?}");
}

#[test]
fn overridden_values_of_operator_sdk_stay_strings() {
    let watches = "- group: a.example.com
  version: v1
  kind: A
  chart: c
  overrideValues: {plain: text}
- overrideValues:
    image: $IMAGE
  group: b.example.com
  version: v1
  kind: B
  chart: c
- group: c.example.com
  version: v1
  kind: C
  chart: c
  overrideValues:
    debug: \"true\"
  overrideValuesType: typed
";
    let chart = ("c/Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n");
    let directory = project(&[("watches.yaml", watches), chart]);
    let migration = assess(directory.path()).unwrap();
    let files = migration.files().unwrap();
    let text = String::from_utf8_lossy(files.get(Path::new("watches.yaml")).unwrap()).into_owned();
    let expected = watches.replace(
        "- overrideValues:\n    image",
        "- overrideValuesType: string\n  overrideValues:\n    image",
    );
    assert_eq!(text, expected);
    // With helm-operator-plugins they have types, as here.
    fs::write(directory.path().join("go.mod"), "module m\n").unwrap();
    let files = assess(directory.path()).unwrap().files().unwrap();
    assert_eq!(files.paths().count(), 0);
}
