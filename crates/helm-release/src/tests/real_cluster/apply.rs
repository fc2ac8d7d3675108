//! Tests of how objects are applied, on a real API server.

use kube_objects::apply::{
    Apply, ApplyError, ApplyPolicy, Claim, LeaveOut, TakeOver, create_generated,
};
use kube_objects::ownership::RUN_LABEL;

use crate::tests::fixtures::owner_reference;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::support::{Stage, config_map, deployment, known};

#[tokio::test]
async fn foreign_objects_stay_untouched() {
    let Some(stage) = Stage::new("foreign").await else {
        return;
    };
    let mine: Api<ConfigMap> = Api::namespaced(stage.client.clone(), &stage.namespace);
    let body: ConfigMap = serde_json::from_value(config_map("theirs", &json!({"a": "1"}))).unwrap();
    let before = mine.create(&PostParams::default(), &body).await.unwrap();
    let object = config_map("theirs", &json!({"a": "2"}));
    for claim in [Claim::Unproven, Claim::Adopted] {
        let error = stage.apply(object.clone(), claim).await.unwrap_err();
        assert!(matches!(error, ApplyError::Foreign { .. }), "{error}");
    }
    let live = mine.get("theirs").await.unwrap();
    assert_eq!(live.resource_version(), before.resource_version());

    // Not even while a release is adopted: nothing says that it belongs to that.
    let policy = ApplyPolicy {
        take_over: TakeOver::HelmRelease {
            name: "rel".to_owned(),
            namespace: stage.namespace.clone(),
        },
        ..ApplyPolicy::default()
    };
    let adopting = stage.apply_with(object.clone(), Claim::Adopted, &policy);
    let error = adopting.await.unwrap_err();
    assert!(matches!(error, ApplyError::Foreign { .. }), "{error}");

    // A Go operator has marked it with an owner reference alone.
    let owner = json!({"metadata": {"ownerReferences": [owner_reference(&stage.primary)]}});
    stage.edit(&stage.config_maps(), "theirs", &owner).await;
    let taken = stage.apply_with(object, Claim::Adopted, &policy).await;
    assert!(!taken.unwrap().created);
    assert_eq!(mine.get("theirs").await.unwrap().data.unwrap()["a"], "2");
}

#[tokio::test]
async fn applying_again_changes_nothing_and_dropped_keys_go() {
    let Some(stage) = Stage::new("again").await else {
        return;
    };
    let both = config_map("conf", &json!({"a": "1", "b": "2"}));
    let first = stage.apply_first(both.clone()).await;
    assert!(first.created && first.ours != 0);
    let second = stage.apply_again(both.clone(), &first).await;
    assert_eq!(second.resource_version, first.resource_version);
    assert_eq!(second.ours, first.ours);
    // Without proof of ours it is judged by its metadata, and found to be the release's.
    let third = stage.apply_first(both).await;
    assert_eq!(third.resource_version, first.resource_version);
    let one = config_map("conf", &json!({"a": "1"}));
    let fourth = stage.apply_again(one, &first).await;
    assert_ne!(fourth.ours, first.ours);
    let live = stage.config_maps().get("conf").await.unwrap();
    assert_eq!(live.data["data"], json!({"a": "1"}));
}

#[tokio::test]
async fn objects_that_vanished_or_were_made_anew_are_noticed() {
    let Some(stage) = Stage::new("anew").await else {
        return;
    };
    let object = config_map("conf", &json!({"a": "1"}));
    let first = stage.apply_first(object.clone()).await;
    stage.delete("conf").await;
    let second = stage.apply_again(object.clone(), &first).await;
    assert!(second.created && second.uid != first.uid);
    // The server answers an apply with the uid of another object with 422, not with 409.
    let error = stage.apply(object.clone(), known(&first)).await;
    assert_eq!(error.unwrap().uid, second.uid);
    stage.delete("conf").await;
    let theirs: ConfigMap = serde_json::from_value(config_map("conf", &json!({}))).unwrap();
    let api: Api<ConfigMap> = Api::namespaced(stage.client.clone(), &stage.namespace);
    api.create(&PostParams::default(), &theirs).await.unwrap();
    let error = stage.apply(object, known(&second)).await.unwrap_err();
    assert!(matches!(error, ApplyError::Foreign { .. }), "{error}");
}

#[tokio::test]
async fn keys_that_a_former_operator_created_can_be_dropped() {
    let Some(stage) = Stage::new("former").await else {
        return;
    };
    for manager in ["helm", "helm-operator", "manager"] {
        let params = PostParams {
            field_manager: Some(manager.to_owned()),
            ..<_>::default()
        };
        let name = format!("by-{manager}");
        let body = stage
            .marked(config_map(&name, &json!({"a": "1", "b": "2"})))
            .await;
        let body = serde_json::from_value(body).unwrap();
        stage.config_maps().create(&params, &body).await.unwrap();
        let object = config_map(&name, &json!({"a": "1"}));
        stage.apply_first(object).await;
        let live = stage.config_maps().get(&name).await.unwrap();
        assert_eq!(live.data["data"], json!({"a": "1"}), "{manager}");
        let entries = live.metadata.managed_fields.unwrap();
        assert_eq!(entries.len(), 1, "{entries:?}");
        assert_eq!(entries[0].operation.as_deref(), Some("Apply"));
    }
}

#[tokio::test]
async fn an_autoscaler_keeps_its_replicas_and_a_person_does_not() {
    let Some(stage) = Stage::new("scale").await else {
        return;
    };
    let api = stage.api("apps/v1", "Deployment", "deployments");
    let replicas = async || api.get("web").await.unwrap().data["spec"]["replicas"].clone();
    let first = stage.apply_first(deployment("web", 2)).await;

    stage.scale(&api, "web", "kubectl", 4).await;
    let repaired = stage.apply_again(deployment("web", 2), &first).await;
    assert_eq!((replicas().await, repaired.ours), (json!(2), first.ours));

    stage.scale(&api, "web", "kube-controller-manager", 5).await;
    let left = stage.apply_again(deployment("web", 2), &first).await;
    assert_eq!(left.left_out, ["/spec/replicas"]);
    assert_eq!(replicas().await, json!(5));
    // From now on the autoscaler's changes are no drift.
    stage.scale(&api, "web", "kube-controller-manager", 6).await;
    let live = api.get("web").await.unwrap();
    assert_eq!(kube_objects::drift::ours_hash(&live.metadata), left.ours);
}

#[tokio::test]
async fn ignored_fields_stay_as_others_set_them() {
    let Some(stage) = Stage::new("ignored").await else {
        return;
    };
    let object = config_map("conf", &json!({"a": "1", "b": "2"}));
    let first = stage.apply_first(object.clone()).await;
    let patch = json!({"data": {"a": "theirs", "b": "theirs"}});
    stage.edit(&stage.config_maps(), "conf", &patch).await;
    let rule = LeaveOut::kind("", "ConfigMap", &["/data/a"]);
    let policy = ApplyPolicy {
        leave_out: vec![rule],
        ..ApplyPolicy::default()
    };
    let applied = stage
        .apply_with(object, known(&first), &policy)
        .await
        .unwrap();
    assert_eq!(applied.left_out, ["/data/a"]);
    let live = stage.config_maps().get("conf").await.unwrap();
    assert_eq!(live.data["data"], json!({"a": "theirs", "b": "2"}));
}

#[tokio::test]
async fn duplicate_keys_are_merged_and_misfits_are_unexplained() {
    let Some(stage) = Stage::new("duplicates").await else {
        return;
    };
    let mut object = deployment("web", 1);
    let container = &mut object["spec"]["template"]["spec"]["containers"][0];
    container["env"] = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    container["ports"] = json!([{"containerPort": 80, "name": "x"},
                                {"containerPort": 80, "protocol": "TCP", "name": "y"}]);
    let applied = stage.apply_first(object).await;
    assert_eq!(applied.merged.len(), 2);
    let api = stage.api("apps/v1", "Deployment", "deployments");
    let live = api.get("web").await.unwrap();
    let container = &live.data["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["env"], json!([{"name": "A", "value": "2"}]));
    assert_eq!(container["ports"][0]["name"], "y");

    let twice = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
        "containers": [{"name": "a", "image": "x"}, {"name": "a", "image": "y"}]}});
    let unknown = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"},
        "dat": {}});
    for object in [twice, unknown] {
        let error = stage.apply(object, Claim::Unproven).await.unwrap_err();
        assert_eq!(
            (error.reason(), error.is_transient()),
            ("UnexplainedFailure", true),
            "{error}"
        );
    }
}

#[tokio::test]
async fn immutable_fields_are_named() {
    let Some(stage) = Stage::new("immutable").await else {
        return;
    };
    let stateful = |service: &str| {
        let mut object = deployment("sts", 1);
        object["kind"] = "StatefulSet".into();
        object["spec"]["serviceName"] = service.into();
        object
    };
    let claim = |mode: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "p"},
            "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}})
    };
    let job = |image: &str| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {
            "template": {"spec": {"restartPolicy": "Never",
                "containers": [{"name": "a", "image": image}]}}}})
    };
    let selector = |app: &str| {
        let mut object = deployment("web", 1);
        object["spec"]["selector"]["matchLabels"]["app"] = app.into();
        object["spec"]["template"]["metadata"]["labels"]["app"] = app.into();
        object
    };
    let binding = |role: &str| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "b"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}})
    };
    let service = |address: Option<&str>| {
        let mut object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"ports": [{"port": 80}]}});
        if let Some(address) = address {
            object["spec"]["clusterIP"] = address.into();
        }
        object
    };
    let table: [(Value, Value, &str); 6] = [
        (stateful("a"), stateful("b"), "spec"),
        (claim("ReadWriteOnce"), claim("ReadWriteMany"), "spec"),
        (job("a"), job("b"), "spec.template"),
        (selector("a"), selector("b"), "spec.selector"),
        (binding("a"), binding("b"), "roleRef"),
        (service(None), service(Some("None")), "spec.clusterIPs[0]"),
    ];
    for (before, after, field) in table {
        let first = stage.apply_first(before).await;
        match stage.apply(after, known(&first)).await.unwrap_err() {
            ApplyError::Immutable {
                fields, message, ..
            } => {
                assert_eq!(fields, [field]);
                assert!(message.len() < 300 && !message.contains('{'), "{message}");
            }
            other => panic!("{field}: {other}"),
        }
    }
}

#[tokio::test]
async fn nothing_is_created_in_a_namespace_that_ends() {
    let Some(stage) = Stage::new("ending").await else {
        return;
    };
    let mut held = config_map("held", &json!({}));
    held["metadata"]["finalizers"] = json!(["test.example.com/hold"]);
    stage.apply_first(held).await;
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    let deleted = namespaces.delete(&stage.namespace, &<_>::default()).await;
    deleted.unwrap();
    let new = config_map("new", &json!({}));
    let error = stage.apply(new, Claim::Unproven).await.unwrap_err();
    assert_eq!(error.reason(), "NamespaceTerminating");
    let mut elsewhere = config_map("new", &json!({}));
    elsewhere["metadata"]["namespace"] = "no-such-namespace".into();
    let error = stage.apply(elsewhere, Claim::Unproven).await.unwrap_err();
    assert_eq!(error.reason(), "NamespaceMissing");
    let patch = json!({"metadata": {"finalizers": null}});
    stage.edit(&stage.config_maps(), "held", &patch).await;
}

#[tokio::test]
async fn generated_names_are_made_once_per_run() {
    let Some(stage) = Stage::new("generated").await else {
        return;
    };
    let make = async |run: &str| {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"generateName": "gen-"}});
        let mut object = stage.marked(object).await;
        object["metadata"]["labels"][RUN_LABEL] = run.into();
        let claimant = stage.claimant();
        let request = Apply {
            object,
            claim: Claim::Unproven,
            claimant,
            policy: &stage.policy,
        };
        create_generated(&stage.cluster, request).await.unwrap()
    };
    let first = make("rel.1.0").await;
    assert!(first.created && first.key.name.starts_with("gen-"));
    let found = make("rel.1.0").await;
    assert_eq!((found.created, &found.uid), (false, &first.uid));
    let next = make("rel.2.0").await;
    assert!(next.created && next.uid != first.uid);
}

#[tokio::test]
async fn replacing_keeps_the_object() {
    let Some(stage) = Stage::new("replace").await else {
        return;
    };
    let service = |port: u32| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"selector": {"app": "x"}, "ports": [{"port": port}]}})
    };
    let first = stage.apply_first(service(80)).await;
    let api = stage.api("v1", "Service", "services");
    let address = api.get("s").await.unwrap().data["spec"]["clusterIP"].clone();
    let policy = ApplyPolicy {
        replace: true,
        ..ApplyPolicy::default()
    };
    let second = stage
        .apply_with(service(81), known(&first), &policy)
        .await
        .unwrap();
    assert_eq!(second.uid, first.uid);
    let live = api.get("s").await.unwrap();
    assert_eq!(live.data["spec"]["clusterIP"], address);
    assert_eq!(live.data["spec"]["ports"][0]["port"], 81);
}

#[tokio::test]
async fn drift_shows_after_a_replacement_and_dropped_keys_go() {
    let Some(stage) = Stage::new("forced").await else {
        return;
    };
    let api = stage.config_maps();
    let map = |data: Value| config_map("conf", &data);
    let object = map(json!({"a": "1", "b": "1", "c": "1"}));
    let first = stage.apply_first(object).await;
    // One key was changed by somebody to what it will be.
    stage.edit(&api, "conf", &json!({"data": {"b": "2"}})).await;
    let policy = ApplyPolicy {
        replace: true,
        ..ApplyPolicy::default()
    };
    let second = map(json!({"a": "2", "b": "2", "c": "1"}));
    let forced = stage
        .apply_with(second.clone(), known(&first), &policy)
        .await
        .unwrap();
    for key in ["a", "b", "c"] {
        stage
            .edit(&api, "conf", &json!({"data": {key: "theirs"}}))
            .await;
        let live = api.get("conf").await.unwrap();
        let ours = kube_objects::drift::ours_hash(&live.metadata);
        assert_ne!(ours, forced.ours, "{key}");
        let repaired = stage.apply_again(second.clone(), &first).await;
        assert_eq!(repaired.ours, forced.ours, "{key}");
    }
    let third = map(json!({"c": "1"}));
    stage.apply_again(third, &first).await;
    let live = api.get("conf").await.unwrap();
    assert_eq!(live.data["data"], json!({"c": "1"}));
}
