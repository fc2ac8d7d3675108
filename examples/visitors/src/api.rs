//! `example.com/v1`, kind `VisitorsApp`.
#![allow(
    clippy::duplicated_attributes,
    reason = "printer columns may have the same type"
)]
#![allow(
    unreachable_pub,
    reason = "the derive macro repeats the types inside of a function"
)]

use hybrid_operator::native::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A web site that lists its visitors: a frontend, a backend and a database.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "VisitorsApp",
    namespaced,
    status = "VisitorsAppStatus",
    validation = Rule::new("self.metadata.name.matches('^[a-z]([-a-z0-9]{0,52}[a-z0-9])?$')").message("the name must have at most 54 lower case letters, digits and hyphens, and begin with a letter: the Services are named after it"),
    printcolumn(name = "Size", type_ = "integer", json_path = ".spec.size"),
    printcolumn(name = "Database", type_ = "string", json_path = ".status.database"),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct VisitorsAppSpec {
    /// Number of Pods of the frontend, and of the backend.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 100))]
    pub size: i32,
    /// Title of the web site.
    #[serde(default = "title")]
    #[schemars(length(min = 1, max = 200))]
    pub title: String,
}

fn one() -> i32 {
    1
}

fn title() -> String {
    "Visitors".to_owned()
}

/// What was last seen of a `VisitorsApp`.
#[derive(KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct VisitorsAppStatus {
    /// Whether the database accepts connections.
    #[serde(default)]
    pub database: Database,
    /// Image of the backend, once it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_image: Option<String>,
    /// Image of the frontend, once it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontend_image: Option<String>,
    /// `Ready` is true when database, backend and frontend are available, each with the newest spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// State of the database.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Database {
    /// Its Pod is not ready.
    #[default]
    Starting,
    /// Its Pod is ready.
    Ready,
}
