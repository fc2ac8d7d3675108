//! Conversion between two versions of a kind.

use hybrid_operator::webhook;
use hybrid_operator_test::TestNamespace;
use kube::CustomResourceExt;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::crd::merge_crds;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};

use super::Replica;
use crate::world::{LIMIT, define, delete, eventually, new_namespace, remove};
use hybrid_operator_test::wait;

/// The stored version: one text.
mod v1beta1 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Debug, Clone)]
    #[kube(
        group = "convert.example.com",
        version = "v1beta1",
        kind = "Jar",
        namespaced
    )]
    pub(super) struct JarSpec {
        /// A number and a unit: `3 l`.
        pub(super) volume: String,
    }
}

/// The hub: two fields.
mod v1 {
    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};

    #[derive(CustomResource, Serialize, Deserialize, JsonSchema, Debug, Clone)]
    #[kube(
        group = "convert.example.com",
        version = "v1",
        kind = "Jar",
        namespaced
    )]
    pub(super) struct JarSpec {
        pub(super) amount: u32,
        pub(super) unit: String,
    }
}

impl TryFrom<v1beta1::Jar> for v1::Jar {
    type Error = String;

    fn try_from(jar: v1beta1::Jar) -> Result<Self, String> {
        let volume = &jar.spec.volume;
        let (amount, unit) = volume
            .split_once(' ')
            .ok_or_else(|| format!("spec.volume: {volume:?} is not a number and a unit"))?;
        let amount = amount
            .parse()
            .map_err(|_| format!("spec.volume: {amount:?} is not a number"))?;
        let unit = unit.to_owned();
        // The metadata is kept without being mentioned.
        Ok(Self::new("", v1::JarSpec { amount, unit }))
    }
}

impl From<v1::Jar> for v1beta1::Jar {
    fn from(jar: v1::Jar) -> Self {
        let volume = format!("{} {}", jar.spec.amount, jar.spec.unit);
        Self::new("", v1beta1::JarSpec { volume })
    }
}

fn jars(namespace: &TestNamespace, version: &str) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk("convert.example.com", version, "Jar");
    Api::namespaced_with(
        namespace.client(),
        namespace.name(),
        &ApiResource::from_gvk(&gvk),
    )
}

fn jar(version: &str, name: &str, spec: Value) -> DynamicObject {
    let mut jar = json!({
        "apiVersion": format!("convert.example.com/{version}"), "kind": "Jar",
        "metadata": {"name": name, "labels": {"shelf": "top"}, "annotations": {"note": "honey"}},
    });
    jar["spec"] = spec;
    serde_json::from_value(jar).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_objects_are_read_in_another_version() {
    let (plane, namespace) = or_skip!(new_namespace("convert").await);
    let crds = vec![v1beta1::Jar::crd(), v1::Jar::crd()];
    let crd = merge_crds(crds, "v1beta1").unwrap();
    define(plane, &serde_json::to_string(&crd).unwrap()).await;
    let params = PostParams::default();
    let (old, new) = (jars(&namespace, "v1beta1"), jars(&namespace, "v1"));
    let stored = jar("v1beta1", "stored", json!({"volume": "3 l"}));
    drop(old.create(&params, &stored).await.unwrap());
    let broken = jar("v1beta1", "broken", json!({"volume": "much"}));
    drop(old.create(&params, &broken).await.unwrap());

    let webhooks = webhook::webhooks().convert::<v1::Jar, v1beta1::Jar>();
    let _replica = Replica::start(plane, &namespace, webhooks).await;
    let read = async || match new.get("stored").await {
        Ok(jar) if jar.data["spec"]["amount"] == 3 => Ok(jar),
        other => Err(format!("{other:?}")),
    };
    let found = eventually("the conversion", read).await;
    assert_eq!(found.data["spec"], json!({"amount": 3, "unit": "l"}));
    assert_eq!(found.metadata.labels.unwrap()["shelf"], "top");
    assert_eq!(found.metadata.annotations.unwrap()["note"], "honey");

    let error = new.get("broken").await.unwrap_err().to_string();
    assert_contains!(error, "Jar", &format!("{}/broken", namespace.name()));
    assert_contains!(error, "spec.volume: \"much\"");
    delete(&old, "broken").await;
    // Written in the new version, read in the old one.
    let larger = json!({"spec": {"amount": 4}});
    let patched = new
        .patch("stored", &PatchParams::default(), &Patch::Merge(&larger))
        .await;
    drop(patched.unwrap());
    assert_eq!(
        old.get("stored").await.unwrap().data["spec"]["volume"],
        "4 l"
    );
    let mut applied = jar("v1", "applied", json!({"amount": 1, "unit": "dl"}));
    let apply = PatchParams::apply("e2e");
    drop(
        new.patch("applied", &apply, &Patch::Apply(&applied))
            .await
            .unwrap(),
    );
    applied.metadata.annotations = None;
    drop(
        new.patch("applied", &apply, &Patch::Apply(&applied))
            .await
            .unwrap(),
    );
    let listed = old.list(&ListParams::default()).await.unwrap().items;
    let volumes: Vec<&Value> = listed
        .iter()
        .map(|jar| &jar.data["spec"]["volume"])
        .collect();
    assert_eq!(volumes, ["1 dl", "4 l"]);
    let annotations = old.get("applied").await.unwrap().metadata.annotations;
    assert_eq!(
        annotations, None,
        "an annotation that is removed stays removed"
    );

    // Whoever writes the definition as a whole removes the conversion.
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<DynamicObject> =
        Api::all_with(namespace.client(), &ApiResource::from_gvk(&gvk));
    let name = "jars.convert.example.com";
    let none = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
    let replaced = definitions
        .patch(name, &PatchParams::default(), &Patch::Merge(&none))
        .await;
    drop(replaced.unwrap());
    let converts = |definition: Option<&DynamicObject>| {
        definition.is_some_and(|it| it.data["spec"]["conversion"]["strategy"] == "Webhook")
    };
    let again = wait::object(&definitions, name, "its conversion", LIMIT, converts);
    again.await.unwrap();

    // Without the operator nothing converts the kind, which would hold up the garbage collector.
    remove(&definitions, name).await;
}
