//! Admission and conversion webhooks, served by the operator.
//!
//! ```no_run
//! use operator_runtime::webhook::{self, Denied, Request};
//! # use k8s_openapi::api::core::v1::ConfigMap as MyKind;
//!
//! async fn check(request: Request<MyKind>) -> Result<(), Denied> {
//!     if request.object().data.is_none() {
//!         return Err(Denied::invalid("data", "give at least one key"));
//!     }
//!     Ok(())
//! }
//!
//! async fn complete(mut object: MyKind, _: Request<MyKind>) -> Result<MyKind, Denied> {
//!     object.metadata.labels.get_or_insert_default().insert("checked".into(), "yes".into());
//!     Ok(object)
//! }
//!
//! let webhooks = webhook::webhooks().validate(check).mutate(complete);
//! ```
//!
//! # Flow
//! Every replica serves the webhooks over TLS, whether it is the leader or not. It makes a
//! certificate, or finds the one that another replica has made, in the Secret
//! `OPERATOR-webhook-cert`; applies a `ValidatingWebhookConfiguration` and a
//! `MutatingWebhookConfiguration` named `OPERATOR-webhooks`, and `spec.conversion` of the
//! definitions of converted kinds, under the field manager `OPERATOR-webhooks`; and compares all
//! that again from time to time. `/readyz` waits for the certificate.
//!
//! # Guarantees
//! * A certificate is renewed after two thirds of its life. The API server trusts the authority of
//!   a new certificate before it is served, and that of the former one until it has expired.
//! * Nothing is written if nothing differs. Objects of these names that are not the operator's are
//!   not touched.
//! * A function that panics, fails or exceeds its deadline of 8 s denies its own request, with a
//!   message, and affects no other.
//! * The patch of a mutation contains what the function changed: fields that its type lacks stay.
//! * When the process stops, requests in progress are answered first.
//!
//! # Caveats
//! * With [`FailurePolicy::Fail`], objects cannot be written while no replica runs. Delete the
//!   configurations together with the operator.
//! * A function must not change anything: requests may be dry runs, and may be denied later.
//! * A validation also concerns updates by controllers, such as the removal of a finalizer.
//!
//! Needs `get`, `create` and `update` on Secrets in the operator's namespace; `get`, `create`,
//! `patch` and `delete` on `validatingwebhookconfigurations` and `mutatingwebhookconfigurations`;
//! and, for conversions, `get`, `patch`, `list` and `watch` on `customresourcedefinitions`.

mod admission;
mod api;
mod builder;
mod certificate;
mod changes;
mod configuration;
mod conversion;
mod objects;
mod options;
mod patch;
mod request;
mod rotation;
mod server;
mod start;
pub(crate) mod tls;
mod upkeep;

pub use builder::{FailurePolicy, Webhooks, webhooks};
pub use kube::core::admission::Operation;
pub use objects::{ObjectWebhook, ObjectWebhooks};
pub use options::WebhookOptions;
pub use request::{Denied, Request};
pub use server::BindError;
pub use start::WebhookError;

use builder::Hook;
#[cfg(test)]
pub(crate) use certificate::generated_files;
pub(crate) use certificate::{CertificateError, certified, self_signed};
pub use start::{Environment, Running};
