//! `example.com/v1`, kind `MultiSecret`.
#![allow(
    clippy::duplicated_attributes,
    reason = "printer columns may have the same type"
)]
#![allow(
    unreachable_pub,
    reason = "the derive macro repeats the types inside of a function"
)]

use std::collections::BTreeMap;

use hybrid_operator::native::Condition;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use kube::{CustomResource, KubeSchema};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A Secret that is kept in every namespace that a selector selects.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "MultiSecret",
    namespaced,
    status = "MultiSecretStatus",
    validation = "self.metadata.name.size() <= 63",
    printcolumn(name = "Wanted", type_ = "integer", json_path = ".status.wanted"),
    printcolumn(name = "Created", type_ = "integer", json_path = ".status.created"),
    printcolumn(name = "Changed", type_ = "date", json_path = ".status.changeTime"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct MultiSecretSpec {
    /// Content of the Secrets, base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "base64_texts")]
    pub data: BTreeMap<String, ByteString>,
    /// Content of the Secrets as text. A key that is also in `data` has this value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub string_data: BTreeMap<String, String>,
    /// Type of the Secrets. It cannot be changed, as that of a Secret.
    #[serde(rename = "type", default = "opaque")]
    #[x_kube(validation = Rule::new("self == oldSelf").message("type cannot be changed; delete the MultiSecret and create it again"))]
    pub type_: String,
    /// Selects namespaces by their labels; an empty selector selects all.
    pub namespace_selector: LabelSelector,
}

/// The API server refuses texts that are not base64.
fn base64_texts(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "additionalProperties": {"type": "string", "format": "byte"},
    })
}

fn opaque() -> String {
    "Opaque".to_owned()
}

/// What was last seen of a `MultiSecret`.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct MultiSecretStatus {
    /// Number of selected namespaces.
    #[serde(default)]
    pub wanted: i64,
    /// Number of namespaces that have the Secret.
    #[serde(default)]
    pub created: i64,
    /// When these numbers or the spec changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_time: Option<Time>,
    /// The generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready` is true when every selected namespace has the Secret.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
