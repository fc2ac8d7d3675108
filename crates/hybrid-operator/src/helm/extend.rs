//! What a project adds to a chart's controller in code: values, and what comes before and after.
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

/// Why an extension failed, for the condition `Irreconcilable`; the custom resource is tried again
/// with growing pauses.
pub type ExtensionError = Box<dyn std::error::Error + Send + Sync>;

/// Makes the chart's values in code, of those that `watches.yaml` makes of the custom resource.
///
/// It runs at every reconcile, so that it may depend on more than the custom resource; what it
/// answers is an input like any other: the release is upgraded when it changes.
pub trait ValueTranslator: Send + Sync + 'static {
    /// Answers the values.
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

/// Comes before a release is looked after: at every reconcile of a custom resource that is neither
/// paused nor being deleted. While it fails, the release stays as it is. It must be idempotent.
pub trait PreHook: Send + Sync + 'static {
    /// Does what must be done before.
    fn run<'a>(
        &'a self,
        resource: &'a DynamicObject,
        values: &'a Values,
    ) -> BoxFuture<'a, Result<(), ExtensionError>>;
}

/// A release as hooks in code see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseRef {
    /// Its name.
    pub name: ReleaseName,
    /// Its namespace.
    pub namespace: String,
    /// The revision that is deployed.
    pub revision: Revision,
}

/// Comes after a release has been brought to what the custom resource says: at every reconcile
/// that ends so. It must be idempotent; while it fails, the custom resource is `Irreconcilable`.
pub trait PostHook: Send + Sync + 'static {
    /// Does what must be done after.
    fn run<'a>(
        &'a self,
        resource: &'a DynamicObject,
        release: &'a ReleaseRef,
    ) -> BoxFuture<'a, Result<(), ExtensionError>>;
}

/// What was added to a controller.
#[derive(Clone, Default)]
pub(super) struct Extensions {
    pub(super) translator: Option<Arc<dyn ValueTranslator>>,
    pub(super) pre: Vec<Arc<dyn PreHook>>,
    pub(super) post: Vec<Arc<dyn PostHook>>,
}

/// A hook in code failed.
#[derive(Debug, thiserror::Error)]
#[error("the {which} hook of this operator failed")]
struct HookFailed {
    which: &'static str,
    #[source]
    source: ExtensionError,
}

/// Whether a step looks after a release, so that hooks in code belong to it.
fn belongs_to(step: &Step) -> bool {
    !matches!(
        step,
        Step::Refuse(_) | Step::Wait { .. } | Step::Uninstall | Step::Leave | Step::Forget
    )
}

impl Extensions {
    /// Runs the hooks that come before a step.
    pub(super) async fn before(
        &self,
        step: &Step,
        subject: &Subject,
        inputs: Option<&DesiredInputs>,
    ) -> Result<(), ExtensionError> {
        let Some(inputs) = inputs.filter(|_| belongs_to(step)) else {
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

    /// Runs the hooks that come after a step that has settled everything.
    pub(super) async fn after(
        &self,
        step: &Step,
        context: &ActContext<'_>,
    ) -> Result<(), ExtensionError> {
        if self.post.is_empty() || !belongs_to(step) {
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
