//! Tests apply against a scripted API server.

use hybrid_operator_test::scripted::{Script, failure};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::*;
use crate::cluster::{CrIdentity, Marks, OperatorId, Primary, Scope, ownership::mark};

const PATH: &str = "/apis/apps/v1/namespaces/prod/deployments/web";
const PATCH: &str = "PATCH /apis/apps/v1/namespaces/prod/deployments/web";
const GET: &str = "GET /apis/apps/v1/namespaces/prod/deployments/web";

fn primary() -> Primary {
    Primary {
        gvk: GroupVersionKind::gvk("cache.example.com", "v1", "Memcached"),
        namespace: Some("prod".to_owned()),
        name: "one".to_owned(),
        uid: "cr-uid".to_owned(),
        component: None,
    }
}

fn claimant(primary: &Primary) -> Claimant<'_> {
    Claimant {
        primary,
        release_name: "one",
        release_namespace: "prod",
    }
}

fn deployment() -> Value {
    let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web"}, "spec": {"replicas": 3, "paused": null}, "status": {}});
    let (primary, operator) = (primary(), OperatorId::new("op"));
    let marks = Marks {
        primary: &primary,
        operator: &operator,
        chart: "memcached",
        release_name: "one",
        release_namespace: "prod",
        run: None,
        hook: false,
        unowned: false,
    };
    mark(&mut object, &marks, Scope::Namespaced);
    object
}

/// Returns a live object with this metadata.
fn live(uid: &str, more: Value) -> Value {
    let mut metadata = json!({"name": "web", "namespace": "prod", "uid": uid,
        "resourceVersion": "7", "generation": 1});
    if let (Some(metadata), Value::Object(more)) = (metadata.as_object_mut(), more) {
        metadata.extend(more);
    }
    json!({"metadata": metadata})
}

/// Helm's metadata on the objects of a release.
fn of_release(name: &str) -> Value {
    json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}, "annotations": {
        "meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": "prod"}})
}

fn entry(manager: &str, operation: &str, subresource: &str, fields: &Value) -> Value {
    json!({"manager": manager, "operation": operation, "subresource": subresource,
           "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn modified() -> Value {
    failure(
        409,
        "Conflict",
        "the object has been modified",
        &json!({"kind": "deployments"}),
    )
}

fn field_conflict() -> Value {
    let cause = json!({"reason": "FieldManagerConflict", "field": ".spec.replicas",
        "message": "conflict with \"x\""});
    failure(409, "Conflict", "Apply failed", &json!({"causes": [cause]}))
}

fn other_uid() -> Value {
    let cause = json!({"reason": "FieldValueInvalid", "field": "metadata.uid",
        "message": "Invalid value: \"old\": field is immutable"});
    failure(422, "Invalid", "invalid", &json!({"causes": [cause]}))
}

async fn run(script: &Script, claim: Claim, policy: &ApplyPolicy) -> Result<Applied, ApplyError> {
    let primary = primary();
    let claimant = claimant(&primary);
    apply(
        &Cluster::scripted(script),
        Apply {
            object: deployment(),
            claim,
            claimant,
            policy,
        },
    )
    .await
}

fn known(uid: &str) -> Claim {
    Claim::Known {
        uid: uid.to_owned(),
    }
}

#[tokio::test]
async fn an_unproven_object_is_created_in_one_request() {
    let script = Script::default().on(PATCH, 201, live("u1", json!({})));
    let applied = run(&script, Claim::Unproven, &ApplyPolicy::default())
        .await
        .unwrap();
    assert!(applied.created);
    assert_eq!((&*applied.uid, applied.generation), ("u1", Some(1)));
    let [request] = &script.finish()[..] else {
        panic!("one request")
    };
    assert_eq!(request.path, PATH);
    let query = [
        ("fieldManager", "helm"),
        ("fieldValidation", "Strict"),
        ("force", "false"),
    ];
    assert_eq!(
        request.query,
        query
            .map(|(name, value)| (name.into(), value.into()))
            .into()
    );
    let sent = request.json();
    assert_eq!(sent["metadata"]["resourceVersion"], "1");
    assert_eq!(sent["metadata"]["namespace"], "prod");
    assert_eq!(sent["metadata"]["ownerReferences"][0]["uid"], "cr-uid");
    assert_eq!(sent["spec"], json!({"replicas": 3, "paused": null}));
    assert_eq!(sent.get("status"), None);
}

#[tokio::test]
async fn a_known_object_is_updated_in_one_request_with_its_uid() {
    let fields = json!({"f:spec": {"f:replicas": {}}});
    let entries = json!({"managedFields": [entry("helm", "Apply", "", &fields)]});
    let script = Script::default().on(PATCH, 200, live("u1", entries));
    let applied = run(&script, known("u1"), &ApplyPolicy::default())
        .await
        .unwrap();
    assert!(!applied.created);
    assert_ne!(applied.ours, 0);
    let [request] = &script.finish()[..] else {
        panic!("one request")
    };
    assert_eq!(request.json()["metadata"]["uid"], "u1");
    assert_eq!(request.json()["metadata"].get("resourceVersion"), None);
}

#[tokio::test]
async fn a_foreign_object_is_left_untouched() {
    let by_other_cr = json!({"labels": {ownership::CR_LABEL: "other"}});
    for (metadata, whose) in [
        (json!({}), "it was not created by this release"),
        (of_release("two"), "it belongs to the release prod/two"),
        (by_other_cr, "it belongs to another custom resource"),
        // Another controller of the same custom resource may have created it.
        (
            json!({"ownerReferences": [primary().owner_reference()]}),
            "it was not created",
        ),
    ] {
        let script =
            Script::default()
                .on(PATCH, 409, modified())
                .on(GET, 200, live("u1", metadata));
        let error = run(&script, Claim::Unproven, &ApplyPolicy::default())
            .await
            .unwrap_err();
        assert_eq!(
            (error.reason(), error.is_transient()),
            ("ForeignObject", false)
        );
        assert!(error.to_string().contains(whose), "{error}");
        script.finish();
    }
}

#[tokio::test]
async fn an_object_of_the_release_is_taken_over() {
    let ours = json!({"labels": {ownership::CR_LABEL: primary().identity().as_str()}});
    for metadata in [of_release("one"), ours] {
        let script = Script::default()
            .on(PATCH, 409, modified())
            .on(GET, 200, live("u1", metadata))
            .on(PATCH, 200, live("u1", json!({})));
        run(&script, Claim::Unproven, &ApplyPolicy::default())
            .await
            .unwrap();
        let requests = script.finish();
        assert_eq!(requests[2].json()["metadata"]["uid"], "u1");
        assert_eq!(requests[2].query["force"], "true");
    }
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "one table")]
async fn an_adoption_takes_over_only_recorded_objects_without_contradicting_metadata() {
    let release = |name: &str| TakeOver::HelmRelease {
        name: name.to_owned(),
        namespace: "prod".to_owned(),
    };
    let by_reference = json!({"ownerReferences": [primary().owner_reference()]});
    let by_other = json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "name": "x", "uid": "x", "controller": true}]});
    let of_other_cr = {
        let mut metadata = of_release("one");
        metadata["labels"][ownership::CR_LABEL] = "other".into();
        metadata
    };
    for (what, take_over, claim, metadata, taken) in [
        (
            "of the release, by Helm",
            release("one"),
            Claim::Adopted,
            of_release("one"),
            true,
        ),
        (
            "of the release, by a Go operator",
            release("one"),
            Claim::Adopted,
            by_reference.clone(),
            true,
        ),
        (
            "of the release under its former name",
            release("old"),
            Claim::Adopted,
            of_release("old"),
            true,
        ),
        (
            "without an adoption",
            TakeOver::Never,
            Claim::Adopted,
            by_reference.clone(),
            false,
        ),
        (
            "without an adoption, another name",
            TakeOver::Never,
            Claim::Adopted,
            of_release("old"),
            false,
        ),
        (
            "not recorded",
            release("one"),
            Claim::Unproven,
            by_reference,
            false,
        ),
        (
            "not recorded, another name",
            release("old"),
            Claim::Unproven,
            of_release("old"),
            false,
        ),
        (
            "of another release",
            release("one"),
            Claim::Adopted,
            of_release("two"),
            false,
        ),
        (
            "of nobody",
            release("one"),
            Claim::Adopted,
            json!({}),
            false,
        ),
        (
            "of another controller",
            release("one"),
            Claim::Adopted,
            by_other,
            false,
        ),
        (
            "of another custom resource",
            release("one"),
            Claim::Adopted,
            of_other_cr,
            false,
        ),
    ] {
        let mut script = Script::default();
        if claim == Claim::Unproven {
            script = script.on(PATCH, 409, modified());
        }
        script = script.on(GET, 200, live("u1", metadata));
        if taken {
            script = script.on(PATCH, 200, live("u1", json!({})));
        }
        let policy = ApplyPolicy {
            take_over,
            ..ApplyPolicy::default()
        };
        let reason = run(&script, claim, &policy)
            .await
            .err()
            .map(|error| error.reason());
        assert_eq!(reason, (!taken).then_some("ForeignObject"), "{what}");
        script.finish();
    }
}

#[tokio::test]
async fn an_object_that_is_being_deleted_is_waited_for() {
    let mut metadata = of_release("one");
    metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let script = Script::default()
        .on(PATCH, 409, modified())
        .on(GET, 200, live("u1", metadata));
    let error = run(&script, Claim::Unproven, &ApplyPolicy::default())
        .await
        .unwrap_err();
    assert_eq!(
        (error.reason(), error.is_transient()),
        ("ObjectTerminating", true)
    );
    script.finish();
}

#[tokio::test]
async fn an_object_that_is_deleted_while_it_is_judged_is_created() {
    let script = Script::default()
        .on(PATCH, 409, modified())
        .on(
            GET,
            404,
            failure(404, "NotFound", "", &json!({"kind": "deployments"})),
        )
        .on(PATCH, 201, live("u2", json!({})));
    assert!(
        run(&script, Claim::Unproven, &ApplyPolicy::default())
            .await
            .unwrap()
            .created
    );
    script.finish();
}

#[tokio::test]
async fn a_known_object_that_is_gone_is_created_again() {
    let script = Script::default()
        .on(PATCH, 409, modified())
        .on(
            GET,
            404,
            failure(404, "NotFound", "", &json!({"kind": "deployments"})),
        )
        .on(PATCH, 201, live("u2", json!({})));
    let applied = run(&script, known("u1"), &ApplyPolicy::default())
        .await
        .unwrap();
    assert_eq!((&*applied.uid, applied.created), ("u2", true));
    assert_eq!(
        script.finish()[2].json()["metadata"]["resourceVersion"],
        "1"
    );
}

#[tokio::test]
async fn a_known_object_that_somebody_recreated_is_judged() {
    let script = Script::default()
        .on(PATCH, 422, other_uid())
        .on(GET, 200, live("u2", json!({})));
    let error = run(&script, known("u1"), &ApplyPolicy::default())
        .await
        .unwrap_err();
    assert_eq!(error.reason(), "ForeignObject");
    script.finish();

    let script = Script::default()
        .on(PATCH, 422, other_uid())
        .on(GET, 200, live("u2", of_release("one")))
        .on(PATCH, 200, live("u2", json!({})));
    assert_eq!(
        run(&script, known("u1"), &ApplyPolicy::default())
            .await
            .unwrap()
            .uid,
        "u2"
    );
    script.finish();
}

#[tokio::test]
async fn replicas_are_left_to_an_autoscaler() {
    let scale = json!({"f:spec": {"f:replicas": {}}});
    let entries =
        json!({"managedFields": [entry("kube-controller-manager", "Update", "scale", &scale)]});
    let script = Script::default()
        .on(PATCH, 409, field_conflict())
        .on(GET, 200, live("u1", entries))
        .on(PATCH, 200, live("u1", json!({})));
    let applied = run(&script, known("u1"), &ApplyPolicy::default())
        .await
        .unwrap();
    assert_eq!(applied.left_out, ["/spec/replicas"]);
    let requests = script.finish();
    assert_eq!(requests[0].query["force"], "false");
    assert_eq!(requests[2].query["force"], "true");
    assert_eq!(requests[2].json()["spec"].get("replicas"), None);
}

#[tokio::test]
async fn manually_scaled_replicas_are_restored() {
    let scale = json!({"f:spec": {"f:replicas": {}}});
    let entries = json!({"managedFields": [entry("kubectl", "Update", "scale", &scale)]});
    let script = Script::default()
        .on(PATCH, 409, field_conflict())
        .on(GET, 200, live("u1", entries))
        .on(PATCH, 200, live("u1", json!({})));
    let applied = run(&script, known("u1"), &ApplyPolicy::default())
        .await
        .unwrap();
    assert!(applied.left_out.is_empty());
    assert_eq!(script.finish()[2].json()["spec"]["replicas"], 3);
}

#[tokio::test]
async fn ignored_fields_are_left_to_their_owners() {
    let spec = json!({"f:spec": {"f:replicas": {}}});
    let entries = json!({"managedFields": [entry("kubectl-edit", "Update", "", &spec)]});
    let script = Script::default()
        .on(PATCH, 409, field_conflict())
        .on(GET, 200, live("u1", entries))
        .on(PATCH, 200, live("u1", json!({})));
    let rule = LeaveOut::kind("apps", "Deployment", &["/spec/replicas"]);
    let policy = ApplyPolicy {
        leave_out: vec![rule],
        ..ApplyPolicy::default()
    };
    assert_eq!(
        run(&script, known("u1"), &policy).await.unwrap().left_out,
        ["/spec/replicas"]
    );
    script.finish();
}

#[tokio::test]
async fn a_conflict_is_forced_at_once_if_no_field_can_be_left_out() {
    let path = "PATCH /api/v1/namespaces/prod/configmaps/conf";
    let script =
        Script::default()
            .on(path, 409, field_conflict())
            .on(path, 200, live("u1", json!({})));
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "conf"}});
    let primary = primary();
    let policy = ApplyPolicy::default();
    let request = Apply {
        object,
        claim: known("u1"),
        claimant: claimant(&primary),
        policy: &policy,
    };
    apply(&Cluster::scripted(&script), request).await.unwrap();
    assert_eq!(script.finish()[1].query["force"], "true");
}

#[tokio::test]
async fn entries_of_former_tools_are_migrated_once() {
    let mut metadata = of_release("one");
    let fields = json!({"f:spec": {"f:replicas": {}}});
    metadata["managedFields"] = json!([entry("helm-operator", "Update", "", &fields)]);
    let migrated = json!({"managedFields": [entry("helm", "Apply", "", &fields)]});
    let script = Script::default()
        .on(GET, 200, live("u1", metadata))
        .on(PATCH, 200, live("u1", migrated))
        .on(PATCH, 200, live("u1", json!({})));
    run(&script, Claim::Adopted, &ApplyPolicy::default())
        .await
        .unwrap();
    let requests = script.finish();
    assert_eq!(requests[1].json()[0]["value"][0]["manager"], "helm");
    assert_eq!(requests[1].json()[1]["value"], "7");
    assert_eq!(requests[2].query["force"], "true");
}

#[tokio::test]
async fn an_object_that_goes_while_it_is_replaced_is_created_by_the_next_attempt() {
    let gone = failure(
        404,
        "NotFound",
        "m",
        &json!({"kind": "deployments", "name": "web"}),
    );
    let policy = ApplyPolicy {
        replace: true,
        ..ApplyPolicy::default()
    };
    let script = Script::default()
        .on(GET, 200, live("u1", of_release("one")))
        .on(&PATCH.replace("PATCH", "PUT"), 404, gone);
    let error = run(&script, known("u1"), &policy).await.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("Contended", true));
    script.finish();
}

#[tokio::test]
async fn replacing_never_deletes_and_takes_ownership_of_every_field() {
    const PUT: &str = "PUT /apis/apps/v1/namespaces/prod/deployments/web";
    let fields = json!({"f:spec": {"f:replicas": {}}});
    let by = |manager: &str, operation: &str| {
        let metadata = json!({"managedFields": [entry(manager, operation, "", &fields)]});
        live("u1", metadata)
    };
    let policy = ApplyPolicy {
        replace: true,
        ..ApplyPolicy::default()
    };
    // The fields that the PUT changed are in an Update entry of our field manager.
    let script = Script::default()
        .on(GET, 200, live("u1", of_release("one")))
        .on(PUT, 200, by("helm", "Update"))
        .on(PATCH, 200, by("helm", "Apply"))
        .on(PATCH, 200, by("helm", "Apply"));
    let applied = run(&script, known("u1"), &policy).await.unwrap();
    assert_ne!(applied.ours, 0, "drift would go unnoticed");
    let requests = script.finish();
    assert_eq!(requests[1].json()["metadata"]["resourceVersion"], "7");
    assert_eq!(requests[1].json()["metadata"]["uid"], "u1");
    assert_eq!(requests[2].json()[0]["value"][0]["operation"], "Apply");
    assert_eq!(requests[3].query["force"], "true");

    // The PUT changes nothing.
    let script = Script::default()
        .on(GET, 200, live("u1", of_release("one")))
        .on(PUT, 200, by("manager", "Update"))
        .on(PATCH, 200, by("helm", "Apply"));
    let applied = run(&script, known("u1"), &policy).await.unwrap();
    assert_ne!(applied.ours, 0);
    script.finish();
}

#[tokio::test]
async fn the_next_apply_takes_ownership_after_an_interrupted_replacement() {
    let fields = json!({"f:spec": {"f:replicas": {}}});
    let left = json!({"managedFields": [
        entry("helm", "Apply", "", &fields), entry("helm", "Update", "", &fields)]});
    let ours = json!({"managedFields": [entry("helm", "Apply", "", &fields)]});
    let script = Script::default()
        .on(PATCH, 200, live("u1", left))
        .on(PATCH, 200, live("u1", ours.clone()))
        .on(PATCH, 200, live("u1", ours));
    let policy = ApplyPolicy::default();
    run(&script, known("u1"), &policy).await.unwrap();
    let requests = script.finish();
    assert_eq!(requests[1].json()[0]["value"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn failures_that_are_not_conflicts_are_passed_on() {
    let terminating = json!({"causes": [{"reason": "NamespaceTerminating", "field": "f"}]});
    for (code, answer, reason) in [
        (
            403,
            failure(403, "Forbidden", "no", &terminating),
            "NamespaceTerminating",
        ),
        (
            403,
            failure(403, "Forbidden", "cannot patch", &json!({})),
            "Forbidden",
        ),
        (
            404,
            failure(404, "NotFound", "", &json!({"kind": "namespaces"})),
            "NamespaceMissing",
        ),
        (
            409,
            failure(409, "Conflict", "", &json!({"kind": "resourcequotas"})),
            "Conflict",
        ),
        (
            500,
            failure(500, "", "failed to create typed patch object", &json!(null)),
            "UnexplainedFailure",
        ),
        (
            503,
            failure(503, "ServiceUnavailable", "", &json!({})),
            "Unavailable",
        ),
    ] {
        for claim in [Claim::Unproven, known("u1")] {
            let script = Script::default().on(PATCH, code, answer.clone());
            let error = run(&script, claim, &ApplyPolicy::default())
                .await
                .unwrap_err();
            assert_eq!(error.reason(), reason);
            script.finish();
        }
    }
}

#[tokio::test]
async fn a_missing_permission_names_verb_resource_and_object() {
    let script = Script::default().on(PATCH, 403, failure(403, "Forbidden", "no", &json!({})));
    let error = run(&script, Claim::Unproven, &ApplyPolicy::default())
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot patch deployments.apps prod/web: no"
    );
}

#[tokio::test]
async fn documents_without_required_fields_are_rejected() {
    let primary = primary();
    let policy = ApplyPolicy::default();
    for (object, expected) in [
        (json!({"kind": "Pod"}), "Pod lacks apiVersion or kind"),
        (json!({}), "a document lacks apiVersion or kind"),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}}),
            "Pod lacks metadata.name and metadata.generateName",
        ),
    ] {
        let claimant = claimant(&primary);
        let request = Apply {
            object,
            claim: Claim::Unproven,
            claimant,
            policy: &policy,
        };
        let error = apply(&Cluster::scripted(&Script::default()), request)
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

fn generated() -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"generateName": "job-"}});
    let (primary, operator) = (primary(), OperatorId::new("op"));
    let marks = Marks {
        primary: &primary,
        operator: &operator,
        chart: "c",
        release_name: "one",
        release_namespace: "prod",
        run: Some("one.v2.0"),
        hook: true,
        unowned: false,
    };
    mark(&mut object, &marks, Scope::Namespaced);
    object
}

async fn generate(script: &Script) -> Result<Applied, ApplyError> {
    let primary = primary();
    let policy = ApplyPolicy::default();
    let claimant = claimant(&primary);
    let request = Apply {
        object: generated(),
        claim: Claim::Unproven,
        claimant,
        policy: &policy,
    };
    create_generated(&Cluster::scripted(script), request).await
}

#[tokio::test]
async fn an_object_with_a_generated_name_is_created_with_a_post() {
    let path = "/api/v1/namespaces/prod/configmaps";
    let made = json!({"metadata": {"name": "job-x1", "namespace": "prod", "uid": "u1"}});
    let script = Script::default()
        .on(&format!("GET {path}"), 200, json!({"items": null}))
        .on(&format!("POST {path}"), 201, made);
    let applied = generate(&script).await.unwrap();
    assert_eq!((&*applied.key.name, applied.created), ("job-x1", true));
    assert_eq!(
        script.finish()[1].json()["metadata"]["labels"][ownership::RUN_LABEL],
        "one.v2.0"
    );
}

#[tokio::test]
async fn a_resumed_run_finds_the_object_that_it_created() {
    let path = "/api/v1/namespaces/prod/configmaps";
    let identity = primary().identity();
    let item = |name: &str, cr: &CrIdentity| {
        json!({"metadata": {"name": name, "namespace": "prod", "uid": name,
            "generateName": "job-", "labels": {ownership::CR_LABEL: cr.as_str()}}})
    };
    let other = CrIdentity::from_label("other");
    let list = json!({"items": [item("job-a", &other), item("job-b", &identity)]});
    let script = Script::default().on(&format!("GET {path}"), 200, list);
    let applied = generate(&script).await.unwrap();
    assert_eq!((&*applied.key.name, applied.created), ("job-b", false));
    assert_eq!(
        script.finish()[0].query["labelSelector"],
        "helm.sdk.operatorframework.io/run=one.v2.0"
    );
}

#[tokio::test]
async fn a_null_that_the_server_refuses_is_sent_as_what_exists() {
    let refused = || {
        let cause = json!({"reason": "FieldValueTypeInvalid", "field": "spec.paused",
            "message": "Invalid value: \"null\": spec.paused in body must be of type boolean"});
        failure(422, "Invalid", "invalid", &json!({"causes": [cause]}))
    };
    let mut existing = live("u1", of_release("one"));
    existing["spec"] = json!({"paused": true});
    let replace = ApplyPolicy {
        replace: true,
        ..ApplyPolicy::default()
    };
    let apply = ApplyPolicy::default();
    let answer = || live("u1", json!({}));
    for (script, policy, claim, expected) in [
        (
            Script::default()
                .on(PATCH, 422, refused())
                .on(GET, 404, failure(404, "NotFound", "not found", &json!({})))
                .on(PATCH, 201, answer()),
            &apply,
            Claim::Unproven,
            json!({"replicas": 3}),
        ),
        (
            Script::default()
                .on(PATCH, 422, refused())
                .on(GET, 200, existing.clone())
                .on(PATCH, 200, answer()),
            &apply,
            known("u1"),
            json!({"replicas": 3, "paused": true}),
        ),
        (
            Script::default()
                .on(GET, 200, existing.clone())
                .on(&PATCH.replace("PATCH", "PUT"), 422, refused())
                .on(GET, 200, existing.clone())
                .on(&PATCH.replace("PATCH", "PUT"), 200, answer())
                .on(PATCH, 422, refused())
                .on(GET, 200, existing.clone())
                .on(PATCH, 200, answer()),
            &replace,
            known("u1"),
            json!({"replicas": 3, "paused": true}),
        ),
    ] {
        run(&script, claim, policy).await.unwrap();
        let requests = script.finish();
        let writes = requests.iter().filter(|request| request.is_write());
        let sent: Vec<&Value> = writes.map(|request| &request.json()["spec"]).collect();
        let first = json!({"replicas": 3, "paused": null});
        let alternating = [&first, &expected].into_iter().cycle();
        assert!(
            sent.iter().zip(alternating).all(|(a, b)| *a == b),
            "{sent:?}"
        );
        assert_eq!(sent.len() % 2, 0);
    }
    // It is not because of the null.
    let script = Script::default()
        .on(PATCH, 422, refused())
        .on(GET, 200, existing)
        .on(PATCH, 422, refused());
    let error = run(&script, known("u1"), &apply).await.unwrap_err();
    assert_eq!(error.reason(), "InvalidObject");
    script.finish();
}
