use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Conversions;

/// Declares a version of the kind `Jar` with one field.
macro_rules! version {
    ($module:ident, $version:literal, $kind:literal, $field:ident: $type:ty) => {
        mod $module {
            use super::*;

            #[derive(CustomResource, Serialize, Deserialize, Debug, Clone)]
            #[kube(group = "example.com", version = $version, kind = $kind)]
            #[kube(root = "Root", namespaced, schema = "disabled")]
            pub(super) struct Spec {
                pub(super) $field: $type,
            }
        }
    };
}

version!(v1, "v1", "Jar", litres: u32);
version!(v2, "v2", "Jar", decilitres: u32);
version!(v3, "v3", "Jar", volume: String);
version!(other, "v1", "Other", any: u32);

macro_rules! convert {
    ($from:ident -> $to:ident, $value:ident => $result:expr) => {
        impl TryFrom<$from::Root> for $to::Root {
            type Error = String;

            fn try_from($value: $from::Root) -> Result<Self, String> {
                let mut converted = Self::new("", $result);
                converted.metadata.annotations = $value.metadata.annotations.map(|mut all| {
                    all.remove("drop");
                    all
                });
                Ok(converted)
            }
        }
    };
}

convert!(v1 -> v2, jar => v2::Spec { decilitres: jar.spec.litres * 10 });
convert!(v2 -> v1, jar => {
    if !jar.spec.decilitres.is_multiple_of(10) {
        return Err("spec.decilitres: not a whole number of litres".to_owned());
    }
    v1::Spec { litres: jar.spec.decilitres / 10 }
});
convert!(v3 -> v2, jar => v2::Spec { decilitres: jar.spec.volume.parse().unwrap() });
convert!(v2 -> v3, jar => v3::Spec { volume: jar.spec.decilitres.to_string() });
convert!(other -> v1, jar => v1::Spec { litres: jar.spec.any });
convert!(v1 -> other, jar => other::Spec { any: jar.spec.litres });

fn conversions() -> Conversions {
    let mut conversions = Conversions::default();
    conversions.add::<v2::Root, v1::Root>().unwrap();
    conversions.add::<v2::Root, v3::Root>().unwrap();
    conversions
}

fn jar(version: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("example.com/{version}"), "kind": "Jar", "spec": spec,
        "metadata": {
            "name": "honey", "namespace": "ns", "uid": "u", "labels": {"a": "b"},
            "annotations": {"drop": "1"}, "managedFields": [{"manager": "m"}],
        },
    })
}

fn convert(wanted: &str, objects: &[Value]) -> Value {
    let review = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "r", "desiredAPIVersion": format!("example.com/{wanted}"), "objects": objects},
    });
    let answer = conversions().answer(review.to_string().as_bytes()).unwrap();
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["response"]["uid"], "r");
    answer["response"].clone()
}

#[test]
fn versions_are_converted_through_the_hub_in_the_order_of_the_request() {
    let objects = [
        jar("v1", &json!({"litres": 3})),
        jar("v2", &json!({"decilitres": 5})),
        jar("v3", &json!({"volume": "7"})),
    ];
    let response = convert("v3", &objects);
    assert_eq!(response["result"]["status"], "Success");
    let converted = response["convertedObjects"].as_array().unwrap();
    for (object, volume) in converted.iter().zip(["30", "5", "7"]) {
        assert_eq!(object["apiVersion"], "example.com/v3");
        assert_eq!(object["kind"], "Jar");
        assert_eq!(object["spec"], json!({"volume": volume}));
    }
    assert_eq!(converted.len(), 3);
    // An object of the wanted version stays as it is.
    assert_eq!(converted[2], objects[2]);
}

#[test]
fn metadata_is_kept_except_what_the_conversion_changes() {
    let object = jar("v1", &json!({"litres": 3}));
    let converted = &convert("v2", std::slice::from_ref(&object))["convertedObjects"][0];
    let mut wanted = object["metadata"].clone();
    wanted["annotations"] = json!({});
    assert_eq!(converted["metadata"], wanted);
}

#[test]
fn failure_names_the_object_and_the_field() {
    let path = "Jar ns/honey from example.com/v2 to example.com/v1";
    let only = "example.com/v2, example.com/v1, example.com/v3 only";
    for (object, wanted, parts) in [
        (
            jar("v2", &json!({"decilitres": 5})),
            "v1",
            [path, "not a whole number"],
        ),
        (
            jar("v1", &json!({"litres": "x"})),
            "v2",
            ["ns/honey", "spec.litres: invalid type: string"],
        ),
        (
            jar("v3", &json!({"volume": "x"})),
            "v2",
            ["ns/honey", "panicked; see the log"],
        ),
        (jar("v1", &json!({"litres": 1})), "v9", ["ns/honey", only]),
        (
            json!({"apiVersion": "example.com/v1", "kind": "Lid", "metadata": {"name": "l"}}),
            "v2",
            ["Lid l", "no conversions of Lid in the group example.com"],
        ),
    ] {
        let response = convert(wanted, &[jar("v2", &json!({"decilitres": 10})), object]);
        assert_eq!(response["result"]["status"], "Failure");
        assert_eq!(response["convertedObjects"], json!([]));
        let message = response["result"]["message"].as_str().unwrap();
        for part in parts {
            assert!(message.contains(part), "{part} is not in {message}");
        }
    }
}

#[test]
fn declarations_that_contradict_each_other_are_refused() {
    let mut conversions = conversions();
    let twice = "example.com/v1 Jar has two conversions";
    for (added, part) in [
        (conversions.add::<v1::Root, v2::Root>(), "two hubs"),
        (conversions.add::<v2::Root, v1::Root>(), twice),
        (
            conversions.add::<v1::Root, other::Root>(),
            "not versions of one kind",
        ),
        (conversions.add::<v2::Root, v2::Root>(), "to itself"),
    ] {
        let error = added.unwrap_err();
        assert!(error.contains(part), "{error}");
    }
}
