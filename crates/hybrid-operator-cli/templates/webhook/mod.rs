//! The webhooks of the native custom resources, one module per kind.

use hybrid_operator::webhook::{self, Webhooks};

/// Returns all webhooks, to be added to the operator.
pub fn webhooks() -> Webhooks {
    let mut webhooks = webhook::webhooks();
    webhooks
}
