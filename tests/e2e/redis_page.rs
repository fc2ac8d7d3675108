//! Follows `docs/tutorial/redis.md` with a registry of this machine in place of the public one: with a small chart that has
//! the objects which the page shows, and with the chart that the page names.

use std::path::Path;
use std::process::Command;

use hybrid_operator_test::{Registry, shared_or_skip, skipped};

use crate::helm_cli::helm;
use crate::remote_charts::run_helm;
use crate::transcript::has_kubectl;
use crate::tutorial::{Newcomer, archives, page};
use crate::world::root;

const PAGE: &str = "tutorial/redis.md";
/// The chart on the page.
const CHART: &str = "oci://registry-1.docker.io/bitnamicharts/redis";
/// The command on the page that takes the second version.
const UPGRADE: &str = "hybrid-operator charts upgrade";
/// Its versions on the page.
const VERSIONS: [&str; 2] = ["23.1.1", "23.2.0"];

/// Follows the page with both versions of a chart, which is a directory.
async fn follow(chart: &Path) {
    if shared_or_skip().await.unwrap().is_none() {
        return;
    }
    if !has_kubectl() {
        return skipped(1, &"there is no kubectl in $PATH");
    }
    let Some(helm) = helm() else { return };
    let registry = or_skip!(Registry::start_or_skip(None).unwrap());
    let charts = format!("oci://{}/charts", registry.address());
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| run_helm(&helm, folder.path(), arguments);
    for version in VERSIONS {
        let to = folder.path().to_str().unwrap();
        let chart = chart.to_str().unwrap();
        run(&["package", chart, "--version", version, "--destination", to]);
        let archive = format!("{to}/redis-{version}.tgz");
        run(&["push", "--plain-http", &archive, &charts]);
    }
    let text = page(PAGE);
    assert_eq!(text.matches(CHART).count(), 1);
    assert_eq!(text.matches(UPGRADE).count(), 1);
    let text = text
        .replace(CHART, &format!("{charts}/redis --plain-http"))
        .replace(UPGRADE, &format!("{UPGRADE} --plain-http"));
    Newcomer::new(root(), None).follow(&[(PAGE, text)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_about_redis_shows_what_a_platform_team_and_a_tenant_see() {
    follow(&root().join("tests/e2e/redis")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_about_redis_is_true_of_the_chart_that_it_names() {
    let archive = archives().map(|archives| archives.join(format!("redis-{}.tgz", VERSIONS[0])));
    let Some(archive) = archive.filter(|archive| archive.is_file()) else {
        return skipped(1, &"the chart redis: no conformance folder");
    };
    let folder = tempfile::tempdir().unwrap();
    let unpacked = Command::new("tar")
        .arg("xzf")
        .arg(archive)
        .arg("-C")
        .arg(folder.path())
        .status();
    assert!(unpacked.unwrap().success());
    follow(&folder.path().join("redis")).await;
}
