//! Placeholder.
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
/// Placeholder.
#[derive(Debug, Serialize, Deserialize)]
pub struct WebValues {
    /// Placeholder.
    pub replica_count: Option<i64>,
    /// Placeholder.
    #[serde(flatten)]
    pub other: BTreeMap<String, Value>,
}
