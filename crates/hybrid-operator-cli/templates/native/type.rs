
/// The desired state of a `{{kind}}`.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Clone, PartialEq)]
#[kube(
    group = "{{full_group}}",
    version = "{{version}}",
    kind = "{{kind}}",
    plural = "{{plural}}",
{{#if namespaced}}
    namespaced,
{{/if}}
    status = "{{kind}}Status",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct {{kind}}Spec {
    /// Number of Pods.
    #[schemars(range(min = 0))]
    pub size: i32,
}

/// The observed state of a `{{kind}}`.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct {{kind}}Status {
    /// Number of ready Pods.
    #[serde(default)]
    pub ready_pods: i32,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready` is true when as many Pods are ready as the spec asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
