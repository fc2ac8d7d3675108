//! Invalid input is reported, and everything else continues.

use std::process::Command;

use serde_json::json;

use crate::world::{World, apply, condition, holds, program};

#[test]
fn an_operator_outside_of_a_pod_asks_before_it_changes_a_cluster_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let text = "apiVersion: v1\nkind: Config\ncurrent-context: prod\ncontexts:\n- name: prod\n  context: \
                {cluster: prod, user: me}\nclusters:\n- name: prod\n  cluster: {server: 'https://prod.invalid'}\n\
                users:\n- name: me\n  user: {}\n";
    std::fs::write(&kubeconfig, text).unwrap();
    let watches = dir.path().join("no-watches.yaml");
    let run = |arguments: &[&str], service_host: Option<&str>| {
        let mut command = Command::new(program());
        command
            .args([
                "run",
                "--metrics-bind-address=0",
                "--health-probe-bind-address=0",
            ])
            .arg("--watches-file")
            .arg(&watches)
            .args(arguments)
            .env("KUBECONFIG", &kubeconfig)
            .env_remove("KUBERNETES_SERVICE_HOST")
            .stdin(std::process::Stdio::null());
        if let Some(host) = service_host {
            command.env("KUBERNETES_SERVICE_HOST", host);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    // There is no terminal to ask, and the next mistake is that there is no watches file.
    for (arguments, service_host, is_named) in [
        (&[][..], None, true),
        (&["--yes"], None, false),
        (&[], Some("10.0.0.1"), false),
    ] {
        let log = run(arguments, service_host);
        assert!(log.contains("no-watches.yaml"), "{log}");
        let names = log.contains("not one of this machine")
            && log.contains("https://prod.invalid/ (context prod)");
        assert_eq!(names, is_named, "{log}");
    }
}

#[test]
fn watches_file_errors_are_reported_together_without_contacting_the_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let chart = dir.path().join("broken");
    std::fs::create_dir_all(chart.join("templates")).unwrap();
    std::fs::write(
        chart.join("Chart.yaml"),
        "apiVersion: v2\nname: broken\nversion: 0.1.0\n",
    )
    .unwrap();
    std::fs::write(chart.join("templates/x.yaml"), "a: {{ if }}\n").unwrap();
    let watches = "\
- group: a.example.com
  version: v1
  kind: A
  chart: broken
- group: a.example.com
  version: v1
  kind: B
  chart: nowhere
  overideValues: {}
";
    let file = dir.path().join("watches.yaml");
    std::fs::write(&file, watches).unwrap();
    let output = Command::new(program())
        .args(["run", "--watches-file"])
        .arg(&file)
        // Nothing listens there.
        .env("KUBECONFIG", dir.path().join("no-kubeconfig"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let output_text = String::from_utf8(output.stderr).unwrap();
    assert_contains!(
        output_text,
        "watches.yaml:4:10: [0].chart: cannot parse the templates",
        "x.yaml:1",
        "watches.yaml:8:10: [1].chart: ",
        "does not exist; relative paths are resolved against the folder of the watches file",
        "watches.yaml:9:3: [1].overideValues: unknown field; did you mean `overrideValues`?"
    );
}

#[tokio::test]
async fn rejected_values_are_reported_and_do_not_block_other_resources() {
    let world = or_skip!(World::start("values").await);
    apply(&world.api("Memcached"), "bad", &json!({"spec": {"podDisruptionBudget": "yes", "image": {"repository": "x", "pullPolicy": "Always"}, "resources": 3}})).await;
    world.memcached("good", json!({"replicaCount": 1})).await;
    let refused = holds("Irreconcilable");
    let bad = world.until("Memcached", "bad", "refused", refused).await;
    assert_ne!(condition(&bad, "Irreconcilable").unwrap()["message"], "");
}

#[tokio::test]
async fn rejected_object_is_reported_and_fixed_by_the_next_valid_spec() {
    let world = or_skip!(World::start("reject").await);
    let labels = json!({"podLabels": {"bad label!": "x"}});
    apply(&world.api("Memcached"), "cache", &json!({"spec": labels})).await;
    let failed = holds("ReleaseFailed");
    let failed = world.until("Memcached", "cache", "failed", failed).await;
    let condition = condition(&failed, "ReleaseFailed").unwrap();
    assert_eq!(condition["reason"], "InstallError");
    assert!(
        condition["message"]
            .as_str()
            .unwrap()
            .contains("bad label!"),
        "{condition}"
    );

    let labels = json!({"podLabels": {"good": "x"}});
    world.memcached("cache", labels).await;
    world.remove("Memcached", "cache").await;
    world.gone("Deployment", "cache-memcached").await;
}
