//! Tests apply against a scripted API server.

use hybrid_operator_test::scripted::{Script, failure};
use serde_json::{Value, json};

use super::*;
use crate::{CrIdentity, Marks, OperatorId, Primary, Scope, ownership::mark};

const PATH: &str = "/apis/apps/v1/namespaces/prod/deployments/web";
const PATCH: &str = "PATCH /apis/apps/v1/namespaces/prod/deployments/web";
const PUT: &str = "PUT /apis/apps/v1/namespaces/prod/deployments/web";
const GET: &str = "GET /apis/apps/v1/namespaces/prod/deployments/web";

/// Returns an object of the release, or of a run of one of its hooks.
fn marked(mut object: Value, run: Option<&str>) -> Value {
    let (primary, operator) = (Primary::fixture(), OperatorId::new("op"));
    let marks = Marks {
        run,
        hook: run.is_some(),
        ..Marks::fixture(&primary, &operator)
    };
    mark(&mut object, &marks, Scope::Namespaced);
    object
}

fn deployment() -> Value {
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web"}, "spec": {"replicas": 3, "paused": null}, "status": {}});
    marked(object, None)
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
    let kind = json!({"kind": "deployments"});
    failure(409, "Conflict", "the object has been modified", &kind)
}

fn not_found() -> Value {
    failure(404, "NotFound", "", &json!({"kind": "deployments"}))
}

/// An object with this metadata exists where one is created.
fn exists(metadata: Value) -> Script {
    Script::default()
        .on(PATCH, 409, modified())
        .on(GET, 200, live("u1", metadata))
}

fn field_conflict() -> Value {
    let cause = json!({"reason": "FieldManagerConflict", "field": ".spec.replicas",
        "message": "conflict with \"x\""});
    failure(409, "Conflict", "Apply failed", &json!({"causes": [cause]}))
}

/// A field conflicts with an object that has this entry, and the next apply succeeds.
fn conflicts_with(entry: &Value) -> Script {
    Script::default()
        .on(PATCH, 409, field_conflict())
        .on(GET, 200, live("u1", json!({"managedFields": [entry]})))
        .on(PATCH, 200, live("u1", json!({})))
}

fn other_uid() -> Value {
    let cause = json!({"reason": "FieldValueInvalid", "field": "metadata.uid",
        "message": "Invalid value: \"old\": field is immutable"});
    failure(422, "Invalid", "invalid", &json!({"causes": [cause]}))
}

async fn apply_one(
    script: &Script,
    object: Value,
    claim: Claim,
    policy: &ApplyPolicy,
) -> Result<Applied, ApplyError> {
    let primary = Primary::fixture();
    let request = Apply {
        object,
        claim,
        claimant: Claimant::fixture(&primary),
        policy,
    };
    apply(&Cluster::scripted(script), request).await
}

async fn run_with(
    script: &Script,
    claim: Claim,
    policy: &ApplyPolicy,
) -> Result<Applied, ApplyError> {
    apply_one(script, deployment(), claim, policy).await
}

/// Applies the Deployment with the default policy.
async fn run(script: &Script, claim: Claim) -> Result<Applied, ApplyError> {
    run_with(script, claim, &ApplyPolicy::default()).await
}

fn replacing() -> ApplyPolicy {
    ApplyPolicy {
        replace: true,
        ..ApplyPolicy::default()
    }
}

fn known(uid: &str) -> Claim {
    Claim::Known {
        uid: uid.to_owned(),
    }
}

#[tokio::test]
async fn an_unproven_object_is_created_in_one_request() {
    let script = Script::default().on(PATCH, 201, live("u1", json!({})));
    let applied = run(&script, Claim::Unproven).await.unwrap();
    assert!(applied.created);
    assert_eq!((&*applied.uid, applied.generation), ("u1", Some(1)));
    let [request] = &script.finish()[..] else {
        panic!("one request")
    };
    assert_eq!(request.path, PATH);
    let query = request
        .query
        .iter()
        .map(|(name, value)| format!("{name}={value}"));
    let query: Vec<String> = query.collect();
    assert_eq!(
        query,
        ["fieldManager=helm", "fieldValidation=Strict", "force=false"]
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
    let applied = run(&script, known("u1")).await.unwrap();
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
            json!({"ownerReferences": [Primary::fixture().owner_reference()]}),
            "it was not created",
        ),
    ] {
        let script = exists(metadata);
        let error = run(&script, Claim::Unproven).await.unwrap_err();
        assert_eq!(error.reason(), "ForeignObject");
        assert!(!error.is_transient());
        assert!(error.to_string().contains(whose), "{error}");
        script.finish();
    }
}

#[tokio::test]
async fn an_object_of_the_release_is_taken_over() {
    let ours = json!({"labels": {ownership::CR_LABEL: Primary::fixture().identity().as_str()}});
    for metadata in [of_release("one"), ours] {
        let script = exists(metadata).on(PATCH, 200, live("u1", json!({})));
        run(&script, Claim::Unproven).await.unwrap();
        let requests = script.finish();
        assert_eq!(requests[2].json()["metadata"]["uid"], "u1");
        assert_eq!(requests[2].query["force"], "true");
    }
}

#[tokio::test]
async fn an_adoption_takes_over_only_recorded_objects_without_contradicting_metadata() {
    let by_cr = json!({"ownerReferences": [Primary::fixture().owner_reference()]});
    let by_other = json!({"ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet",
        "name": "x", "uid": "x", "controller": true}]});
    let (one, two, old) = (of_release("one"), of_release("two"), of_release("old"));
    let mut theirs = one.clone();
    theirs["labels"][ownership::CR_LABEL] = "other".into();
    let (adopted, unproven) = (&Claim::Adopted, &Claim::Unproven);
    for (what, take_over, claim, metadata, taken) in [
        ("by Helm", Some("one"), adopted, &one, true),
        ("by a Go operator", Some("one"), adopted, &by_cr, true),
        ("under its former name", Some("old"), adopted, &old, true),
        ("without an adoption", None, adopted, &by_cr, false),
        ("without it, another name", None, adopted, &old, false),
        ("not recorded", Some("one"), unproven, &by_cr, false),
        ("not recorded, renamed", Some("old"), unproven, &old, false),
        ("of another release", Some("one"), adopted, &two, false),
        ("of nobody", Some("one"), adopted, &json!({}), false),
        ("of a controller", Some("one"), adopted, &by_other, false),
        ("of another resource", Some("one"), adopted, &theirs, false),
    ] {
        let take_over = take_over.map_or(TakeOver::Never, |name| TakeOver::HelmRelease {
            name: name.to_owned(),
            namespace: "prod".to_owned(),
        });
        let mut script = Script::default();
        if claim == unproven {
            script = script.on(PATCH, 409, modified());
        }
        script = script.on(GET, 200, live("u1", metadata.clone()));
        if taken {
            script = script.on(PATCH, 200, live("u1", json!({})));
        }
        let policy = ApplyPolicy {
            take_over,
            ..ApplyPolicy::default()
        };
        let ended = run_with(&script, claim.clone(), &policy).await;
        let reason = ended.err().map(|error| error.reason());
        assert_eq!(reason, (!taken).then_some("ForeignObject"), "{what}");
        script.finish();
    }
}

#[tokio::test]
async fn an_object_that_is_being_deleted_is_waited_for() {
    let mut metadata = of_release("one");
    metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let script = exists(metadata);
    let error = run(&script, Claim::Unproven).await.unwrap_err();
    assert_eq!(error.reason(), "ObjectTerminating");
    assert!(error.is_transient());
    script.finish();
}

#[tokio::test]
async fn an_object_that_is_deleted_while_it_is_judged_is_created() {
    let script = Script::default()
        .on(PATCH, 409, modified())
        .on(GET, 404, not_found())
        .on(PATCH, 201, live("u2", json!({})));
    assert!(run(&script, Claim::Unproven).await.unwrap().created);
    script.finish();
}

#[tokio::test]
async fn a_known_object_that_is_gone_is_created_again() {
    let script = Script::default()
        .on(PATCH, 409, modified())
        .on(GET, 404, not_found())
        .on(PATCH, 201, live("u2", json!({})));
    let applied = run(&script, known("u1")).await.unwrap();
    assert_eq!((&*applied.uid, applied.created), ("u2", true));
    let sent = &script.finish()[2];
    assert_eq!(sent.json()["metadata"]["resourceVersion"], "1");
}

#[tokio::test]
async fn a_known_object_that_somebody_recreated_is_judged() {
    let script = Script::default()
        .on(PATCH, 422, other_uid())
        .on(GET, 200, live("u2", json!({})));
    let error = run(&script, known("u1")).await.unwrap_err();
    assert_eq!(error.reason(), "ForeignObject");
    script.finish();

    let script = Script::default()
        .on(PATCH, 422, other_uid())
        .on(GET, 200, live("u2", of_release("one")))
        .on(PATCH, 200, live("u2", json!({})));
    assert_eq!(run(&script, known("u1")).await.unwrap().uid, "u2");
    script.finish();
}

#[tokio::test]
async fn replicas_are_left_to_an_autoscaler() {
    let scale = json!({"f:spec": {"f:replicas": {}}});
    let entry = entry("kube-controller-manager", "Update", "scale", &scale);
    let script = conflicts_with(&entry);
    let applied = run(&script, known("u1")).await.unwrap();
    assert_eq!(applied.left_out, ["/spec/replicas"]);
    let requests = script.finish();
    assert_eq!(requests[0].query["force"], "false");
    assert_eq!(requests[2].query["force"], "true");
    assert_eq!(requests[2].json()["spec"].get("replicas"), None);
}

#[tokio::test]
async fn manually_scaled_replicas_are_restored() {
    let scale = json!({"f:spec": {"f:replicas": {}}});
    let script = conflicts_with(&entry("kubectl", "Update", "scale", &scale));
    let applied = run(&script, known("u1")).await.unwrap();
    assert!(applied.left_out.is_empty());
    assert_eq!(script.finish()[2].json()["spec"]["replicas"], 3);
}

#[tokio::test]
async fn ignored_fields_are_left_to_their_owners() {
    let spec = json!({"f:spec": {"f:replicas": {}}});
    let script = conflicts_with(&entry("kubectl-edit", "Update", "", &spec));
    let rule = LeaveOut::kind("apps", "Deployment", &["/spec/replicas"]);
    let policy = ApplyPolicy {
        leave_out: vec![rule],
        ..ApplyPolicy::default()
    };
    let applied = run_with(&script, known("u1"), &policy).await.unwrap();
    assert_eq!(applied.left_out, ["/spec/replicas"]);
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
    let applied = apply_one(&script, object, known("u1"), &ApplyPolicy::default()).await;
    applied.unwrap();
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
    run(&script, Claim::Adopted).await.unwrap();
    let requests = script.finish();
    assert_eq!(requests[1].json()[0]["value"][0]["manager"], "helm");
    assert_eq!(requests[1].json()[1]["value"], "7");
    assert_eq!(requests[2].query["force"], "true");
}

#[tokio::test]
async fn an_object_that_goes_while_it_is_replaced_is_created_by_the_next_attempt() {
    let named = json!({"kind": "deployments", "name": "web"});
    let gone = failure(404, "NotFound", "m", &named);
    let script = Script::default()
        .on(GET, 200, live("u1", of_release("one")))
        .on(PUT, 404, gone);
    let ended = run_with(&script, known("u1"), &replacing()).await;
    let error = ended.unwrap_err();
    assert_eq!((error.reason(), error.is_transient()), ("Contended", true));
    script.finish();
}

#[tokio::test]
async fn replacing_never_deletes_and_takes_ownership_of_every_field() {
    let fields = json!({"f:spec": {"f:replicas": {}}});
    let by = |manager: &str, operation: &str| {
        let metadata = json!({"managedFields": [entry(manager, operation, "", &fields)]});
        live("u1", metadata)
    };
    let policy = replacing();
    // The fields that the PUT changed are in an Update entry of our field manager.
    let script = Script::default()
        .on(GET, 200, live("u1", of_release("one")))
        .on(PUT, 200, by("helm", "Update"))
        .on(PATCH, 200, by("helm", "Apply"))
        .on(PATCH, 200, by("helm", "Apply"));
    let applied = run_with(&script, known("u1"), &policy).await.unwrap();
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
    let applied = run_with(&script, known("u1"), &policy).await.unwrap();
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
    run(&script, known("u1")).await.unwrap();
    let requests = script.finish();
    assert_eq!(requests[1].json()[0]["value"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn failures_that_are_not_conflicts_are_passed_on() {
    let terminating = json!({"causes": [{"reason": "NamespaceTerminating", "field": "f"}]});
    let kind = |kind: &str| json!({"kind": kind});
    let unexplained = "failed to create typed patch object";
    for (code, reason, message, details, expected) in [
        (403, "Forbidden", "no", terminating, "NamespaceTerminating"),
        (403, "Forbidden", "cannot patch", json!({}), "Forbidden"),
        (404, "NotFound", "", kind("namespaces"), "NamespaceMissing"),
        (409, "Conflict", "", kind("resourcequotas"), "Conflict"),
        (500, "", unexplained, Value::Null, "UnexplainedFailure"),
        (503, "ServiceUnavailable", "", json!({}), "Unavailable"),
    ] {
        let answer = failure(code, reason, message, &details);
        for claim in [Claim::Unproven, known("u1")] {
            let script = Script::default().on(PATCH, code, answer.clone());
            let error = run(&script, claim).await.unwrap_err();
            assert_eq!(error.reason(), expected);
            script.finish();
        }
    }
}

#[tokio::test]
async fn a_missing_permission_names_verb_resource_and_object() {
    let script = Script::default().on(PATCH, 403, failure(403, "Forbidden", "no", &json!({})));
    let error = run(&script, Claim::Unproven).await.unwrap_err();
    let expected = "cannot patch deployments.apps prod/web: no";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn documents_without_required_fields_are_rejected() {
    for (object, expected) in [
        (json!({"kind": "Pod"}), "Pod lacks apiVersion or kind"),
        (json!({}), "a document lacks apiVersion or kind"),
        (
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {}}),
            "Pod lacks metadata.name and metadata.generateName",
        ),
    ] {
        let (script, policy) = (Script::default(), ApplyPolicy::default());
        let ended = apply_one(&script, object, Claim::Unproven, &policy).await;
        assert_eq!(ended.unwrap_err().to_string(), expected);
    }
}

async fn generate(script: &Script) -> Result<Applied, ApplyError> {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"generateName": "job-"}});
    let (primary, policy) = (Primary::fixture(), ApplyPolicy::default());
    let request = Apply {
        object: marked(object, Some("one.v2.0")),
        claim: Claim::Unproven,
        claimant: Claimant::fixture(&primary),
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
    let labels = script.finish()[1].json()["metadata"]["labels"].clone();
    assert_eq!(labels[ownership::RUN_LABEL], "one.v2.0");
}

#[tokio::test]
async fn a_resumed_run_finds_the_object_that_it_created() {
    let path = "/api/v1/namespaces/prod/configmaps";
    let identity = Primary::fixture().identity();
    let item = |name: &str, cr: &CrIdentity| {
        json!({"metadata": {"name": name, "namespace": "prod", "uid": name,
            "generateName": "job-", "labels": {ownership::CR_LABEL: cr.as_str()}}})
    };
    let other = CrIdentity::from_label("other");
    let list = json!({"items": [item("job-a", &other), item("job-b", &identity)]});
    let script = Script::default().on(&format!("GET {path}"), 200, list);
    let applied = generate(&script).await.unwrap();
    assert_eq!((&*applied.key.name, applied.created), ("job-b", false));
    let expected = "helm.sdk.operatorframework.io/run=one.v2.0";
    assert_eq!(script.finish()[0].query["labelSelector"], expected);
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
    let (apply, replace) = (ApplyPolicy::default(), replacing());
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
                .on(PUT, 422, refused())
                .on(GET, 200, existing.clone())
                .on(PUT, 200, answer())
                .on(PATCH, 422, refused())
                .on(GET, 200, existing.clone())
                .on(PATCH, 200, answer()),
            &replace,
            known("u1"),
            json!({"replicas": 3, "paused": true}),
        ),
    ] {
        run_with(&script, claim, policy).await.unwrap();
        let requests = script.finish();
        let writes = requests.iter().filter(|request| request.is_write());
        let sent: Vec<&Value> = writes.map(|request| &request.json()["spec"]).collect();
        let first = json!({"replicas": 3, "paused": null});
        let alternating = [&first, &expected].into_iter().cycle();
        let alternate = sent.iter().zip(alternating).all(|(a, b)| *a == b);
        assert!(alternate, "{sent:?}");
        assert_eq!(sent.len() % 2, 0);
    }
    // It is not because of the null.
    let script = Script::default()
        .on(PATCH, 422, refused())
        .on(GET, 200, existing)
        .on(PATCH, 422, refused());
    let error = run(&script, known("u1")).await.unwrap_err();
    assert_eq!(error.reason(), "InvalidObject");
    script.finish();
}
