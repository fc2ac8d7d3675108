//! Verbs that change annotations of custom resources.

use k8s_openapi::api::apps::v1::Deployment;

use super::*;

impl World {
    async fn annotation(&self, name: &str, annotation: &str) -> Option<String> {
        let shop = self.shops().get(name).await.unwrap();
        let annotation = format!("helm.sdk.operatorframework.io/{annotation}");
        shop.metadata
            .annotations
            .unwrap_or_default()
            .get(&annotation)
            .cloned()
    }
}

#[tokio::test]
async fn a_release_is_paused_resumed_and_forced() {
    let world = or_skip!(World::start("cli-verbs").await);
    let namespace = world.namespace.name();
    world.apply("main", json!({"replicas": 1})).await;
    world.until("main", 1, "True").await;
    let prefix = format!("kubectl annotate --namespace {namespace} shops.cli.example.com/main");
    let shown = world.outside("pause shop/main --dry-run").ok();
    let paused = format!("{prefix} --overwrite helm.sdk.operatorframework.io/paused=true\n");
    assert_eq!(shown, paused);
    assert_eq!(world.annotation("main", "paused").await, None);

    let done = world.outside("pause shop/main --wait");
    done.err.must_have("cluster: https://");
    let out = done.ok();
    assert!(out.starts_with(&paused), "{out}");
    out.must_have(&format!("Shop {namespace}/main is done: "));
    assert_eq!(
        world.annotation("main", "paused").await.as_deref(),
        Some("true")
    );
    let why = world.outside("why shop/main").ok();
    why.must_have("paused");
    why.must_have(&format!(
        "hybrid-operator resume shop/main -n {namespace}\n"
    ));
    // A paused release is not repaired.
    assert_eq!(world.outside("diff shop/main").code, Some(0));
    let workloads: Api<Deployment> = world.namespace.api();
    let scaled = Patch::Merge(json!({"spec": {"replicas": 5}}));
    let params = PatchParams::default();
    drop(workloads.patch("main", &params, &scaled).await.unwrap());
    let changed = world.outside("diff shop/main");
    assert_eq!(changed.code, Some(3), "{}", changed.err);
    changed.out.must_have("-  replicas: 5");
    changed.out.must_have("+  replicas: 1");
    let scaled = Patch::Merge(json!({"spec": {"replicas": 1}}));
    drop(workloads.patch("main", &params, &scaled).await.unwrap());
    world.apply("main", json!({"replicas": 2})).await;
    let late = world
        .outside("force shop/main --wait --timeout 1s")
        .failed();
    late.must_have("has not handled this within 1 s");

    let resumed = world.outside("resume shop/main --wait").ok();
    resumed.must_have(&format!("{prefix} helm.sdk.operatorframework.io/paused-\n"));
    world.until("main", 2, "True").await;
    let forced = world.outside("force shop/main --wait").ok();
    forced.must_have("helm.sdk.operatorframework.io/force-at=");
    forced.must_have("is done: Ready=");
    world.until("main", 3, "True").await;
    let sound = world.outside("retry shop/main --wait").ok();
    sound.must_have("is done: Ready=True");
    let reconciled = world.outside("reconcile shop/main --wait").ok();
    reconciled.must_have("reconcile-at=");
    reconciled.must_have("is done: Ready=True");
}

#[tokio::test]
async fn a_stalled_release_is_explained_and_tried_again() {
    let world = or_skip!(World::start("cli-retry").await);
    let namespace = world.namespace.name();
    world.apply("main", json!({"replicas": 1})).await;
    world.until("main", 1, "True").await;
    world.apply("main", json!({"replicas": -1})).await;
    let mut why = String::new();
    let stalled = wait::until(LIMIT, "a stalled release", async || {
        why = world.outside("why shop/main").ok();
        why.contains("failed, and not tried again")
    });
    assert!(stalled.await.is_ok(), "{why}\n{}", world.operator.log());
    for part in [
        "Cause:  ",
        "replicas",
        "Since:  ",
        "Next:   nothing, until the spec or the chart changes, or you say 'retry'",
        "Help:   Correct the values",
        &format!("  hybrid-operator retry shop/main -n {namespace} --wait\n"),
    ] {
        why.must_have(part);
    }
    let done = world.outside("retry shop/main --wait").ok();
    done.must_have("reset-at=");
    let asked = world.annotation("main", "reset-at").await.unwrap();
    let shop = world.shops().get("main").await.unwrap();
    assert_eq!(shop.data["status"]["handled"]["resetAt"], asked);
    // The spec is the values of the revision that failed.
    let done = world.outside("rollback shop/main 1 --yes").ok();
    done.must_have("has the values of revision 1 again");
    let ready = wait::until(LIMIT, "the end of the failure", async || {
        let why = world.outside("why shop/main").ok();
        if why.contains(": ready, for ") {
            Check::Met(())
        } else {
            Check::NotYet(why)
        }
    });
    ready.await.unwrap();
}

#[tokio::test]
async fn several_custom_resources_are_changed_only_after_a_yes() {
    let world = or_skip!(World::start("cli-several").await);
    let labelled = |name: &str, team: &str| {
        let mut shop = shop(name, &json!({}));
        shop["metadata"]["labels"] = json!({"team": team});
        shop
    };
    for (name, team) in [("a", "web"), ("b", "web"), ("c", "db")] {
        apply(&world.shops(), &labelled(name, team)).await;
    }
    for name in ["a", "b", "c"] {
        world.until(name, 1, "True").await;
    }
    let nothing = world.outside("pause");
    assert_eq!(nothing.code, Some(2), "{}", nothing.err);
    nothing
        .err
        .must_have("name what is meant: KIND/NAME, a kind, or labels");
    let unasked = world.outside("pause shop").failed();
    unasked.must_have("nothing was changed: confirm with --yes");
    assert_eq!(world.annotation("a", "paused").await, None);
    let web = world.outside("pause -l team=web --yes --wait").ok();
    assert_eq!(web.matches("is done: ").count(), 2, "{web}");
    let mut paused = Vec::new();
    for name in ["a", "b", "c"] {
        paused.push(world.annotation(name, "paused").await.is_some());
    }
    assert_eq!(paused, [true, true, false]);
    let none = world.outside("pause shop -l team=none --yes").failed();
    none.must_have("no custom resource was found");
}

#[tokio::test]
async fn a_release_of_helm_is_adopted() {
    let program = or_skip!(helm::ensure_or_skip().unwrap());
    let world = or_skip!(World::start("cli-adopt").await);
    let installed = Command::new(&program)
        .args(["install", "market", "helm-charts/shop"])
        .args(["--namespace", world.namespace.name()])
        .env("KUBECONFIG", world.plane.kubeconfig_path())
        .current_dir(world.project.0.path())
        .output()
        .unwrap();
    assert!(
        installed.status.success(),
        "{}",
        support::text(&installed.stderr)
    );
    world.apply("market", json!({})).await;
    let mut why = String::new();
    let refused = wait::until(LIMIT, "the refusal", async || {
        why = world.outside("why shop/market").ok();
        why.contains("failed: ErrorGettingReleaseState")
    });
    assert!(refused.await.is_ok(), "{why}");
    why.must_have("exists and does not belong to this custom resource");
    why.must_have("hybrid-operator adopt shop/market");
    let adopted = world.outside("adopt shop/market --wait").ok();
    adopted.must_have("adopt-release=true");
    let history = world.outside_json("history shop/market");
    assert_eq!(history[0]["description"], "Install complete");
}
