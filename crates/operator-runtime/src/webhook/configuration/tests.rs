use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::{Address, Setup, Trust, is_current};
use crate::webhook::builder::{Webhooks, webhooks};
use crate::webhook::{FailurePolicy, ObjectWebhook, ObjectWebhooks, Request};

const VALIDATING: &str = "ValidatingWebhookConfiguration";

fn hooks() -> Webhooks {
    webhooks()
        .validate(|_: Request<Pod>| async { Ok(()) })
        .validate_delete(|_: Request<Namespace>| async { Ok(()) })
}

fn configuration(address: &Address, trust: &Trust, namespaces: &[String]) -> Value {
    let setup = Setup {
        operator: "op",
        namespaces,
        address,
        trust,
        failure_policy: FailurePolicy::Fail,
    };
    let webhooks = hooks();
    let hooks: Vec<_> = webhooks.hooks.iter().collect();
    setup.configuration(VALIDATING, &hooks)
}

fn service() -> Address {
    Address::Service {
        namespace: "ns".to_owned(),
        name: "hooks".to_owned(),
    }
}

fn bundle(text: &str) -> Trust {
    Trust::Bundle(text.to_owned())
}

#[test]
fn configuration_says_which_requests_go_where() {
    let made = configuration(&service(), &bundle("PEM"), &["a".to_owned()]);
    assert_eq!(made["metadata"]["name"], "op-webhooks");
    let pods = &made["webhooks"][0];
    assert_eq!(pods["name"], "validate-v1.pods.core");
    assert_eq!(
        pods["clientConfig"],
        json!({
            "caBundle": "UEVN",
            "service": {"name": "hooks", "namespace": "ns", "path": "/validate--v1-pod", "port": 443},
        })
    );
    assert_eq!(
        pods["rules"],
        json!([{
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
            "operations": ["CREATE", "UPDATE"], "scope": "Namespaced",
        }])
    );
    let selected = &pods["namespaceSelector"]["matchExpressions"][0];
    assert_eq!(selected["values"], json!(["a"]));
    let namespaces = &made["webhooks"][1];
    assert_eq!(namespaces["rules"][0]["operations"], json!(["DELETE"]));
    assert_eq!(namespaces["rules"][0]["scope"], "Cluster");
    // It has no namespace.
    assert_eq!(namespaces["namespaceSelector"], json!({}));

    let injected = Trust::Injected(Some("ns/cert".to_owned()));
    let made = configuration(&Address::Url("https://host:1".to_owned()), &injected, &[]);
    let annotation = &made["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
    assert_eq!(annotation, "ns/cert");
    let client = json!({"url": "https://host:1/validate--v1-pod"});
    assert_eq!(made["webhooks"][0]["clientConfig"], client);
}

/// A configuration as the API server returns it, with defaults and managed fields.
fn live(mut applied: Value) -> Value {
    applied["metadata"]["uid"] = json!("u");
    let mut fields = json!({});
    for webhook in applied["webhooks"].as_array_mut().unwrap() {
        webhook["objectSelector"] = json!({});
        let key = format!("k:{}", json!({"name": webhook["name"]}));
        fields["f:webhooks"][&key] = json!({".": {}});
    }
    let ours = json!({"manager": "op-webhooks", "operation": "Apply", "fieldsV1": fields});
    applied["metadata"]["managedFields"] = json!([ours]);
    applied
}

#[test]
fn what_differs_is_noticed_and_defaults_are_not() {
    let wanted = configuration(&service(), &bundle("PEM"), &[]);
    let current = |live: &Value, wanted: &Value| is_current(live, wanted, "op-webhooks");
    assert!(current(&live(wanted.clone()), &wanted));
    let mut foreign = live(wanted.clone());
    let webhooks = foreign["webhooks"].as_array_mut().unwrap();
    webhooks.insert(0, json!({"name": "foreign.example.com"}));
    // Another webhook is no concern of ours.
    assert!(current(&foreign, &wanted));

    for (what, other) in [
        ("bundle", configuration(&service(), &bundle("OTHER"), &[])),
        (
            "namespaces",
            configuration(&service(), &bundle("PEM"), &["a".to_owned()]),
        ),
        (
            "address",
            configuration(&Address::Url("https://h".to_owned()), &bundle("PEM"), &[]),
        ),
    ] {
        assert!(!current(&live(other.clone()), &wanted), "{what}");
        assert!(!current(&live(wanted.clone()), &other), "{what}");
    }
    for change in [
        json!([{"op": "remove", "path": "/webhooks/1"}]),
        json!([{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]),
        json!([{"op": "add", "path": "/webhooks/0/rules/0/operations/-", "value": "DELETE"}]),
        json!([{"op": "remove", "path": "/metadata/labels"}]),
    ] {
        let mut changed = live(wanted.clone());
        let patch: json_patch::Patch = serde_json::from_value(change.clone()).unwrap();
        json_patch::patch(&mut changed, &patch).unwrap();
        assert!(!current(&changed, &wanted), "{change}");
    }
    let mut fewer = wanted.clone();
    fewer["webhooks"].as_array_mut().unwrap().pop();
    // A webhook that we applied is no longer wanted.
    assert!(!current(&live(wanted), &fewer));
}

#[test]
fn bundle_that_others_fill_in_is_left_to_them() {
    let injected = configuration(&service(), &Trust::Injected(None), &[]);
    let client = &injected["webhooks"][0]["clientConfig"];
    assert_eq!(client.get("caBundle"), None);
    let mut filled = live(injected.clone());
    filled["webhooks"][0]["clientConfig"]["caBundle"] = json!("UEVN");
    assert!(is_current(&filled, &injected, "op-webhooks"));
}

#[test]
fn kinds_that_may_change_have_their_own_policy_and_conditions() {
    let objects = ObjectWebhooks::new(|_| async { Ok(()) });
    let kind = ApiResource::erase::<Pod>(&());
    objects.set(vec![ObjectWebhook {
        kind,
        namespaced: true,
        failure_policy: FailurePolicy::Ignore,
    }]);
    let setup = Setup {
        operator: "op",
        namespaces: &[],
        address: &service(),
        trust: &bundle("PEM"),
        failure_policy: FailurePolicy::Fail,
    };
    let (native, admits) = (hooks(), objects.hooks());
    let all: Vec<_> = native.hooks.iter().chain(&admits).collect();
    let made = setup.configuration(VALIDATING, &all);
    assert_eq!(made["webhooks"][0]["failurePolicy"], "Fail");
    assert_eq!(made["webhooks"][0].get("matchConditions"), None);
    let admit = &made["webhooks"][2];
    assert_eq!(admit["name"], "admit-v1.pods.core");
    assert_eq!(admit["failurePolicy"], "Ignore");
    assert_eq!(admit["clientConfig"]["service"]["path"], "/admit");
    assert_eq!(admit["timeoutSeconds"], 5);
    let conditions = admit["matchConditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 2);
}
