//! Custom resources of `{{full_group}}/{{version}}`.

use hybrid_operator::native::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
