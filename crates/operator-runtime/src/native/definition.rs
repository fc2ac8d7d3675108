//! The definition of a kind from its type's derive.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::core::CustomResourceExt;

/// Category of the kinds that operators of this framework serve, by which `hybrid-operator status` finds them.
/// `kubectl get hybrid-operator` lists the custom resources of all of them.
pub const CATEGORY: &str = "hybrid-operator";

/// Returns the definition of a kind from its type's derive, with the [`CATEGORY`], as `hybrid-operator generate crds` writes it for
/// [`defines_crd`](super::Builder::defines_crd).
///
/// Formats of Rust's integers that the API server does not know, such as `uint32`, become those that it knows:
/// it ignores others, and warns whoever applies the definition. A `u32` gets its maximum.
pub fn crd<K: CustomResourceExt>() -> CustomResourceDefinition {
    let mut definition = K::crd();
    let categories = definition.spec.names.categories.get_or_insert_default();
    if !categories.iter().any(|category| category == CATEGORY) {
        categories.push(CATEGORY.to_owned());
    }
    for version in &mut definition.spec.versions {
        let validation = version.schema.as_mut();
        let schema = validation.and_then(|validation| validation.open_api_v3_schema.as_mut());
        schema.into_iter().for_each(replace);
    }
    definition
}

fn replace(schema: &mut JSONSchemaProps) {
    let known = match schema.format.as_deref() {
        Some("int8" | "int16" | "uint8" | "uint16") => Some("int32"),
        Some("uint32") => {
            schema.maximum.get_or_insert(u32::MAX.into());
            Some("int64")
        }
        Some("int" | "uint" | "uint64") => Some("int64"),
        Some("int128" | "uint128") => None,
        other => other,
    };
    schema.format = known.map(ToOwned::to_owned);
    let items = match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(one)) => std::slice::from_mut(&mut **one),
        Some(JSONSchemaPropsOrArray::Schemas(all)) => all,
        None => &mut [],
    };
    items.iter_mut().for_each(replace);
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        replace(values);
    }
    let properties = schema.properties.iter_mut();
    properties
        .flat_map(|all| all.values_mut())
        .for_each(replace);
    let lists = [&mut schema.all_of, &mut schema.any_of, &mut schema.one_of];
    lists.into_iter().flatten().flatten().for_each(replace);
    schema.not.as_deref_mut().into_iter().for_each(replace);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kube::CustomResource;
    use schemars::JsonSchema;
    use serde::{Deserialize, Serialize};
    use serde_json::{Value, json};

    #[derive(CustomResource, Debug, Clone, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v1", kind = "Numbers", namespaced)]
    struct NumbersSpec {
        byte: u8,
        signed: i16,
        count: u32,
        size: u64,
        signed_size: i64,
        replicas: Option<i32>,
        ratio: f64,
        list: Vec<u32>,
        map: BTreeMap<String, usize>,
    }

    #[test]
    fn a_definition_has_the_category_of_the_framework() {
        let categories = super::crd::<Numbers>().spec.names.categories;
        assert_eq!(categories, Some(vec![super::CATEGORY.to_owned()]));
    }

    #[test]
    fn formats_are_those_that_the_api_server_knows() {
        let definition = serde_json::to_value(super::crd::<Numbers>()).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let spec = &schema["properties"]["spec"]["properties"];
        let about = |schema: &Value| {
            let field = |name: &str| schema[name].clone();
            [field("format"), field("minimum"), field("maximum")]
        };
        let unsigned = [json!("int64"), json!(0.0), json!(4_294_967_295.0)];
        assert_eq!(about(&spec["count"]), unsigned);
        assert_eq!(about(&spec["list"]["items"]), unsigned);
        let byte = [json!("int32"), json!(0.0), json!(255.0)];
        assert_eq!(about(&spec["byte"]), byte);
        let signed = [json!("int32"), json!(-32768.0), json!(32767.0)];
        assert_eq!(about(&spec["signed"]), signed);
        for size in [&spec["size"], &spec["map"]["additionalProperties"]] {
            assert_eq!(about(size), [json!("int64"), json!(0.0), Value::Null]);
        }
        let plain = [
            ("signed_size", "int64"),
            ("replicas", "int32"),
            ("ratio", "double"),
        ];
        for (name, format) in plain {
            let expected = [json!(format), Value::Null, Value::Null];
            assert_eq!(about(&spec[name]), expected);
        }
    }
}
