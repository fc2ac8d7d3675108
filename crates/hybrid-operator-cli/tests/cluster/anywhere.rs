//! Commands without a checkout: kinds and releases are found from the cluster.

use hybrid_operator::helm_release::kube_objects::ownership::{CR_LABEL, CrIdentity};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};

use super::*;

#[tokio::test]
async fn releases_are_shown_and_rolled_back_without_a_watches_file() {
    let world = or_skip!(World::start("cli-anywhere").await);
    world.apply("main", json!({"replicas": 1})).await;
    world.until("main", 1, "True").await;
    world.apply("main", json!({"replicas": 3})).await;
    world.until("main", 2, "True").await;

    let rows = world.outside_json("status");
    assert_eq!(rows.as_array().map(Vec::len), Some(1), "{rows}");
    assert_eq!(
        (&rows[0]["kind"], &rows[0]["name"]),
        (&json!("Shop"), &json!("main"))
    );
    for target in ["shop/main", "shops/main", "Shop.cli.example.com/main"] {
        let tree = world.outside(&format!("status {target}")).ok();
        tree.must_have("Release main, revision 2, deployed, chart shop-1.2.3");
    }
    assert_eq!(
        world.outside("status -o name").ok(),
        "shop.cli.example.com/main\n"
    );
    let records = world.outside("history shop/main -o name").ok();
    let expected = ["v1", "v2"].map(|number| format!("secret/sh.helm.release.v1.main.{number}\n"));
    assert_eq!(records, expected.concat());
    let values = world.outside_json("get values shop/main");
    assert_eq!(values, json!({"replicas": 3}));
    let events = world.outside("events shop/main -o name").ok();
    events.must_have("event/main.");

    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = world.command(world.plane.kubeconfig_path(), "status shop/main --watch");
    let command = command.current_dir(elsewhere.path());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    first.must_have("/main Ready=True AllObjectsReady revision=2");

    let done = world.outside("rollback shop/main --yes");
    let server = world.plane.server().unwrap_or_default();
    done.err.must_have(&format!("cluster: {server}"));
    done.err.must_have("(context ");
    done.ok().must_have("has the values of revision 1 again");
    world.until("main", 3, "True").await;
    let unknown = world.outside("status shup/main").failed();
    unknown.must_have("serves no kind of custom resources \"shup\"; did you mean Shop?");
    let both = world.outside("status shop/main -l a=b");
    assert_eq!(both.code, Some(2), "{}", both.err);
}

#[tokio::test]
async fn a_release_with_a_name_of_its_own_tells_its_kind_by_its_objects() {
    let watches = format!("{WATCHES}  releaseName: 'x-{{{{ .Object.metadata.name }}}}'\n");
    let world = or_skip!(World::with("cli-renamed", &[("watches.yaml", &watches)]).await);
    world.apply("main", json!({})).await;
    world.until("main", 1, "True").await;
    let rows = world.outside_json("status");
    assert_eq!(
        (&rows[0]["name"], &rows[0]["release"]),
        (&json!("main"), &json!("x-main"))
    );
    let history = world.outside("history shop/main").ok();
    history.must_have("Install complete");
}

#[tokio::test]
async fn a_rollback_without_a_watches_file_needs_values_that_are_the_spec() {
    let watches = format!("{WATCHES}  overrideValues: {{random: 'true'}}\n");
    let world = or_skip!(World::with("cli-mapped", &[("watches.yaml", &watches)]).await);
    for (revision, replicas) in [(1, 1), (2, 2)] {
        world.apply("main", json!({"replicas": replicas})).await;
        world.until("main", revision, "True").await;
    }
    let refused = world.outside("rollback shop/main --yes").failed();
    refused.must_have("is not the values of any revision");
    refused.must_have("give its watches file with --watches-file");
    let file = world.project.path("watches.yaml");
    let known = format!("rollback shop/main --yes --watches-file {}", file.display());
    world
        .outside(&known)
        .ok()
        .must_have("has the values of revision 1 again");
}

#[tokio::test]
async fn native_kinds_are_shown_with_the_objects_of_their_controller() {
    let world = or_skip!(World::start("cli-native").await);
    let client = world.namespace.client();
    let namespace = world.namespace.name();
    let definition = definition("lamps.example.com", "Lamp").replace(
        "names: {",
        "names: {categories: [hybrid-operator], shortNames: [la], ",
    );
    let definition: Value = go_yaml::from_str(&definition).unwrap();
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions = Api::<DynamicObject>::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    apply(&definitions, &definition).await;
    let gvk = GroupVersionKind::gvk("lamps.example.com", "v1", "Lamp");
    let resource = ApiResource::from_gvk(&gvk);
    let lamps: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
    let lamp =
        json!({"apiVersion": "lamps.example.com/v1", "kind": "Lamp", "metadata": {"name": "desk"}});
    wait::until(LIMIT, "the kind Lamp", async || {
        let params = PatchParams::apply("e2e");
        lamps
            .patch("desk", &params, &Patch::Apply(&lamp))
            .await
            .is_ok()
    })
    .await
    .unwrap();
    let unlit = json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "NoPower",
        "message": "no power", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    let params = PatchParams::default();
    drop(
        lamps
            .patch_status("desk", &params, &Patch::Merge(&unlit))
            .await
            .unwrap(),
    );
    let identity = CrIdentity::of("lamps.example.com", "Lamp", Some(namespace), "desk");
    let deployments: Api<Deployment> = world.namespace.api();
    let bulb = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "bulb", "labels": {CR_LABEL: identity.to_string()}},
        "spec": {"selector": {"matchLabels": {"app": "bulb"}}, "template": {
            "metadata": {"labels": {"app": "bulb"}},
            "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "bulb", "image": "bulb"}]}}}});
    apply(&deployments, &bulb).await;

    // Discovery follows a definition after a moment.
    let shown = wait::until(LIMIT, "the Lamp in the status", async || {
        let done = world.outside("status");
        let row = done
            .out
            .lines()
            .any(|line| line.contains("Lamp") && line.contains("NoPower"));
        if row {
            Check::Met(())
        } else {
            Check::NotYet(format!("{done:?}"))
        }
    });
    shown.await.unwrap();
    let why = world.outside("why la/desk").ok();
    for part in [
        "not ready: NoPower",
        "Cause:  no power",
        "Deployment.apps",
        "the controller's own",
    ] {
        why.must_have(part);
    }
    let events = world.outside("events lamp/desk").ok();
    events.must_have("Deployment/bulb");
    drop(
        definitions
            .delete(
                "lamps.lamps.example.com",
                &kube::api::DeleteParams::default(),
            )
            .await,
    );
}

#[tokio::test]
async fn what_may_not_be_listed_is_named_and_the_rest_is_shown() {
    let world = or_skip!(World::start("cli-viewer").await);
    world.apply("main", json!({})).await;
    world.until("main", 1, "True").await;
    let viewer = world.plane.operator_kubeconfig();
    let nothing = world.outside_as(&viewer, "status").failed();
    nothing.must_have("cannot list secrets in namespace");
    nothing.must_have(
        "so that only kinds whose definition has the category hybrid-operator are found",
    );

    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "viewer"}, "rules": [
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list"]},
            {"apiGroups": ["cli.example.com"], "resources": ["shops"], "verbs": ["get", "list"]}]});
    let roles: Api<Role> = world.namespace.api();
    apply(&roles, &role).await;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "viewer"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "viewer"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "operator"}]});
    let bindings: Api<RoleBinding> = world.namespace.api();
    apply(&bindings, &binding).await;
    let granted = wait::until(LIMIT, "the permissions", async || {
        let done = world.outside_as(&viewer, "status");
        if done.succeeds() {
            Check::Met(done)
        } else {
            Check::NotYet(done.err)
        }
    });
    granted.await.unwrap().ok().must_have("shop-1.2.3");
    // The objects of the release may not be read.
    let tree = world.outside_as(&viewer, "status shop/main").ok();
    tree.must_have("Deployment.apps");
    tree.must_have("allow the verb \"get\" on the resource \"deployments.apps\"");
    let denied = world.outside_as(&viewer, "pause shop/main").failed();
    denied.must_have("allow the verb \"patch\" on the resource \"shops.cli.example.com\"");
}
