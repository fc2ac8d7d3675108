//! `why`: the cause, what the operator does next, and what helps.

use super::*;

#[tokio::test]
async fn a_pod_that_no_node_takes_is_the_cause() {
    let world = or_skip!(World::start("cli-why").await);
    let namespace = world.namespace.name();
    world.apply("main", json!({})).await;
    world.until("main", 1, "True").await;
    let sound = world.outside("why shop/main").ok();
    assert!(
        sound.starts_with(&format!("Shop {namespace}/main: ready, for ")),
        "{sound}"
    );
    sound.must_have("Next:   the operator watches the objects");
    sound.must_lack("Commands:");
    world
        .apply("stuck", json!({"nodeSelector": {"no": "node"}}))
        .await;
    let mut why = String::new();
    let explained = wait::until(LIMIT, "the cause", async || {
        let done = world.outside("why shop/stuck");
        why.clone_from(&done.out);
        done.succeeds() && why.contains("not ready: Unschedulable")
    });
    assert!(explained.await.is_ok(), "{why}");
    for part in [
        "Since:  ",
        "Next:   the operator watches the objects; Ready follows when they change\n",
        "Help:   Lower the requests, add nodes, or change nodeSelector",
        "└─ Release stuck, revision 1, deployed, chart shop-1.2.3",
        "   ├─ Deployment.apps",
        "   │  └─ Pod stuck-",
        "   └─ 1 object is ready\n",
        "\nCommands:\n  kubectl describe pod stuck-",
        &format!("  hybrid-operator events shop/stuck -n {namespace}\n"),
    ] {
        why.must_have(part);
    }
    assert!(why.lines().count() <= 24, "more than a page:\n{why}");
    let data = world.outside_json("why shop/stuck");
    assert_eq!(data["cause"]["reason"], "Unschedulable");
    assert_eq!(data["ready"], "False");
    assert!(
        data["commands"][0]
            .as_str()
            .unwrap()
            .starts_with("kubectl describe pod")
    );
}

#[tokio::test]
async fn an_install_that_is_refused_says_when_it_is_tried_again() {
    let world = or_skip!(World::start("cli-again").await);
    world.apply("main", json!({"replicas": -1})).await;
    let mut why = String::new();
    let explained = wait::until(LIMIT, "the next attempt", async || {
        why = world.outside("why shop/main").ok();
        why.contains("the operator tries again at 2")
    });
    assert!(explained.await.is_ok(), "{why}");
    why.must_have("failed: InstallError");
    why.must_have("Help:   Remove the obstacle that the cause names");
    why.must_have("hybrid-operator reconcile shop/main");
    let data = world.outside_json("why shop/main");
    assert!(data["failedAttempts"].as_u64().unwrap() >= 1, "{data}");
}
