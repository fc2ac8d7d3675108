//! Extensions of a chart's controller in code: value translators, and hooks before and after a
//! reconcile.
//!
//! ```no_run
//! use hybrid_operator::helm::{self, ExtensionError};
//! use hybrid_operator::manager::Manager;
//! use kube::api::DynamicObject;
//! use serde_json::json;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let args = <hybrid_operator::options::RunArgs as clap::Parser>::parse();
//! # let options = args.options(|name| std::env::var(name).ok());
//! let mut manager = Manager::new(options);
//! for chart in helm::load("watches.yaml".as_ref())? {
//!     let chart = match chart.kind() {
//!         "Memcached" => chart.value_translator(
//!             |resource: &DynamicObject, mut values: helm::Values| {
//!                 let team = resource.metadata.namespace.clone();
//!                 values.insert("team".to_owned(), json!(team));
//!                 Ok::<_, ExtensionError>(values)
//!             },
//!         ),
//!         _ => chart,
//!     };
//!     manager = manager.with(chart);
//! }
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use helm_core::Values;
use helm_core::release::{ReleaseName, Revision};
use kube::api::DynamicObject;

use super::act::ActContext;
use super::desired::DesiredInputs;
use super::plan::Step;
use super::subject::Subject;

/// Error of an extension. It is reported in the condition `Irreconcilable`, and the custom resource
/// is retried with backoff.
pub type ExtensionError = Box<dyn std::error::Error + Send + Sync>;

/// Translates the values that `watches.yaml` computes from the custom resource.
///
/// Runs in every reconcile, so it may depend on more than the custom resource. The release is
/// upgraded when the result changes.
pub trait ValueTranslator: Send + Sync + 'static {
    /// Returns the values for the chart.
    fn translate<'a>(
        &'a self,
        resource: &'a DynamicObject,
        values: Values,
    ) -> BoxFuture<'a, Result<Values, ExtensionError>>;
}

impl<F> ValueTranslator for F
where
    F: Fn(&DynamicObject, Values) -> Result<Values, ExtensionError> + Send + Sync + 'static,
{
    fn translate<'a>(
        &'a self,
        resource: &'a DynamicObject,
        values: Values,
    ) -> BoxFuture<'a, Result<Values, ExtensionError>> {
        std::future::ready(self(resource, values)).boxed()
    }
}

/// Hook that runs before a release is reconciled, unless the custom resource is paused or being
/// deleted. While it fails, the release is left unchanged. Must be idempotent.
pub trait PreHook: Send + Sync + 'static {
    /// Runs the hook with the custom resource and the values of the release.
    fn run<'a>(
        &'a self,
        resource: &'a DynamicObject,
        values: &'a Values,
    ) -> BoxFuture<'a, Result<(), ExtensionError>>;
}

/// Release passed to a [`PostHook`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseRef {
    /// Name of the release.
    pub name: ReleaseName,
    /// Namespace of the release.
    pub namespace: String,
    /// Deployed revision.
    pub revision: Revision,
}

/// Hook that runs after each reconcile that leaves the release matching its custom resource. While
/// it fails, the custom resource is `Irreconcilable`. Must be idempotent.
pub trait PostHook: Send + Sync + 'static {
    /// Runs the hook with the custom resource and its release.
    fn run<'a>(
        &'a self,
        resource: &'a DynamicObject,
        release: &'a ReleaseRef,
    ) -> BoxFuture<'a, Result<(), ExtensionError>>;
}

/// Extensions of a controller.
#[derive(Clone, Default)]
pub(super) struct Extensions {
    pub(super) translator: Option<Arc<dyn ValueTranslator>>,
    pub(super) pre: Vec<Arc<dyn PreHook>>,
    pub(super) post: Vec<Arc<dyn PostHook>>,
}

/// Error of a pre or post hook.
#[derive(Debug, thiserror::Error)]
#[error("the operator's {which} hook failed")]
struct HookFailed {
    which: &'static str,
    #[source]
    source: ExtensionError,
}

/// Returns whether hooks run around a step.
fn runs_hooks(step: &Step) -> bool {
    !matches!(
        step,
        Step::Refuse(_) | Step::Wait { .. } | Step::Uninstall | Step::Leave | Step::Forget
    )
}

impl Extensions {
    /// Runs the pre hooks of a step.
    pub(super) async fn before(
        &self,
        step: &Step,
        subject: &Subject,
        inputs: Option<&DesiredInputs>,
    ) -> Result<(), ExtensionError> {
        let Some(inputs) = inputs.filter(|_| runs_hooks(step)) else {
            return Ok(());
        };
        for hook in &self.pre {
            let done = hook.run(&subject.resource, inputs.coalesced.user()).await;
            done.map_err(|source| HookFailed {
                which: "pre",
                source,
            })?;
        }
        Ok(())
    }

    /// Runs the post hooks of a step that left nothing to do.
    pub(super) async fn after(
        &self,
        step: &Step,
        context: &ActContext<'_>,
    ) -> Result<(), ExtensionError> {
        if self.post.is_empty() || !runs_hooks(step) {
            return Ok(());
        }
        let subject = context.subject;
        let store = &context.access.store;
        let history = store.history(&subject.namespace, &subject.name);
        let Some(latest) = history.last() else {
            return Ok(());
        };
        let release = ReleaseRef {
            name: subject.name.clone(),
            namespace: subject.namespace.clone(),
            revision: latest.revision,
        };
        for hook in &self.post {
            let done = hook.run(&subject.resource, &release).await;
            done.map_err(|source| HookFailed {
                which: "post",
                source,
            })?;
        }
        Ok(())
    }
}
