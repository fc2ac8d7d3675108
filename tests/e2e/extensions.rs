//! Extensions in code: value translators, and pre and post hooks, whose errors count.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use hybrid_operator::helm::{ExtensionError, PostHook, PreHook, ReleaseRef, Values};
use hybrid_operator_test::TestNamespace;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::world::{InProcessOperator, Project, api, apply, condition, control_plane, until};

const MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}-map}
data: {value: {{ .Values.value | quote }}, owner: {{ .Values.owner | quote }}}
";

/// A hook that fails while it is told to and records what it receives.
#[derive(Clone, Default)]
struct FailingHook {
    fails: Arc<AtomicBool>,
    failures: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<Value>>>,
}

impl FailingHook {
    fn failing() -> Self {
        let hook = Self::default();
        hook.fails.store(true, Ordering::SeqCst);
        hook
    }

    fn record(&self, what: Value) -> BoxFuture<'_, Result<(), ExtensionError>> {
        let fails = self.fails.load(Ordering::SeqCst);
        let answer = if fails {
            self.failures.fetch_add(1, Ordering::SeqCst);
            Err("rejected by the test".into())
        } else {
            self.seen.lock().unwrap().push(what);
            Ok(())
        };
        std::future::ready(answer).boxed()
    }
}

impl PreHook for FailingHook {
    fn run<'a>(
        &'a self,
        _: &'a DynamicObject,
        values: &'a Values,
    ) -> BoxFuture<'a, Result<(), ExtensionError>> {
        self.record(json!(values))
    }
}

impl PostHook for FailingHook {
    fn run<'a>(
        &'a self,
        _: &'a DynamicObject,
        release: &'a ReleaseRef,
    ) -> BoxFuture<'a, Result<(), ExtensionError>> {
        self.record(json!([release.name.as_str(), release.revision.0]))
    }
}

fn owned(resource: &DynamicObject, mut values: Values) -> Result<Values, ExtensionError> {
    let name = resource.metadata.name.clone().ok_or("it has no name")?;
    values.insert("owner".to_owned(), json!(name));
    Ok(values)
}

#[tokio::test(flavor = "multi_thread")]
async fn extension_hook_error_is_reported_and_retried() {
    let Some(plane) = control_plane().await else {
        return;
    };
    let project = Project::new("", &[("map.yaml", MAP)]);
    let namespace = TestNamespace::create(plane, "extended").await.unwrap();
    let (before, after) = (FailingHook::failing(), FailingHook::failing());
    let client = plane.client().await.unwrap();
    let _operator = InProcessOperator::extended(&project, client, namespace.name(), |chart| {
        chart
            .value_translator(owned)
            .pre_hook(before.clone())
            .post_hook(after.clone())
    });
    let widgets = api(&namespace, "Widget");
    apply(&widgets, "one", &json!({"spec": {"value": "v"}})).await;
    let is_failed = |which: &'static str| {
        move |cr: &Value| {
            condition(cr, "Irreconcilable").is_some_and(|c| {
                let message = c["message"].as_str().unwrap_or_default();
                c["status"] == "True"
                    && message.contains(which)
                    && message.contains("rejected by the test")
            })
        }
    };
    drop(
        until(
            &widgets,
            "one",
            "the pre hook failed",
            is_failed("pre hook"),
        )
        .await
        .unwrap(),
    );
    let maps = api(&namespace, "ConfigMap");
    assert!(
        maps.get_opt("one-map").await.unwrap().is_none(),
        "nothing was installed"
    );

    before.fails.store(false, Ordering::SeqCst);
    drop(
        until(
            &widgets,
            "one",
            "the post hook failed",
            is_failed("post hook"),
        )
        .await
        .unwrap(),
    );
    let map = maps.get("one-map").await.unwrap();
    assert_eq!(map.data["data"], json!({"value": "v", "owner": "one"}));
    assert_eq!(
        before.seen.lock().unwrap()[0],
        json!({"value": "v", "owner": "one"})
    );

    after.fails.store(false, Ordering::SeqCst);
    let ready = |cr: &Value| {
        condition(cr, "Irreconcilable").is_some_and(|c| c["status"] == "False")
            && condition(cr, "Ready").is_some_and(|c| c["status"] == "True")
            && cr["status"]["release"]["revision"] == 1
    };
    drop(until(&widgets, "one", "Ready", ready).await.unwrap());
    assert_eq!(after.seen.lock().unwrap()[0], json!(["one", 1]));
    assert!(
        before.failures.load(Ordering::SeqCst) > 0 && after.failures.load(Ordering::SeqCst) > 0
    );
}
