//! Extensions of a chart's controller in code: value translators, hooks before and after a
//! reconcile, and what else [`HelmController`](super::HelmController) can be given.
//!
//! ```no_run
//! use hybrid_operator::helm::{ExtensionError, ReleaseContext, Values};
//! use hybrid_operator::operator::Operator;
//! use serde_json::json;
//!
//! async fn translate(context: ReleaseContext, mut values: Values) -> Result<Values, ExtensionError> {
//!     let team = context.resource().metadata.namespace.clone();
//!     values.insert("team".to_owned(), json!(team));
//!     Ok(values)
//! }
//!
//! # fn main() -> std::process::ExitCode {
//! Operator::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
//!     .with_extended_charts(|chart| match chart.kind() {
//!         "Memcached" => chart.value_translator(translate),
//!         _ => chart,
//!     })
//!     .main()
//! # }
//! ```

use std::sync::Arc;

use futures::future::BoxFuture;
use helm_core::Values;
use helm_core::release::{ReleaseName, Revision};
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::events::Event;
use tracing::Span;

use super::access::Access;
use super::act::ActContext;
use super::annotations::ReleaseOptions;
use super::desired::DesiredInputs;
use super::plan::Step;
use super::subject::Subject;
use crate::cluster::Primary;
use crate::controller::TypedObject;
use crate::native::{self, MetadataReader, Reader, Readers};

/// Error of an extension. It is reported in the condition `Irreconcilable`, and the custom resource
/// is retried with backoff.
pub type ExtensionError = Box<dyn std::error::Error + Send + Sync>;

/// Context of an extension: the custom resource, a client, and the objects that the controller
/// [watches](super::HelmController::watches).
#[derive(Clone)]
pub struct ReleaseContext {
    resource: Arc<DynamicObject>,
    primary: Primary,
    client: Client,
    readers: Readers,
}

impl ReleaseContext {
    pub(super) fn new(access: &Access, subject: &Subject) -> Self {
        Self {
            resource: Arc::clone(&subject.resource),
            primary: subject.target.primary.clone(),
            client: access.client.clone(),
            readers: access.readers.clone(),
        }
    }

    /// Returns the custom resource.
    pub fn resource(&self) -> &Arc<DynamicObject> {
        &self.resource
    }

    /// Returns the operator's client. It does not impersonate the service account of the custom
    /// resource.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the reader of a type that the controller watches.
    ///
    /// # Errors
    /// [`native::Error::NotCached`] if it does not.
    pub fn cached<O: TypedObject>(&self) -> Result<Reader<O>, native::Error> {
        self.readers.reader(&self.primary)
    }

    /// Returns the reader of the metadata of a type that the controller watches.
    ///
    /// # Errors
    /// [`native::Error::NotCached`] if it does not.
    pub fn cached_metadata<O: TypedObject>(&self) -> Result<MetadataReader<O>, native::Error> {
        self.readers.reader(&self.primary)
    }
}

/// Release passed to a post hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseRef {
    /// Name of the release.
    pub name: ReleaseName,
    /// Namespace of the release.
    pub namespace: String,
    /// Deployed revision.
    pub revision: Revision,
}

/// Result of an extension.
type Answer<T> = BoxFuture<'static, Result<T, ExtensionError>>;
type Translate = dyn Fn(ReleaseContext, Values) -> Answer<Values> + Send + Sync;
type PreHook = dyn Fn(ReleaseContext, Values) -> Answer<()> + Send + Sync;
type PostHook = dyn Fn(ReleaseContext, ReleaseRef) -> Answer<()> + Send + Sync;
type Record = dyn Fn(ReleaseContext, Event) -> Answer<()> + Send + Sync;
type SpanOf = dyn Fn(&DynamicObject) -> Span + Send + Sync;
type IsPaused = dyn Fn(&DynamicObject) -> bool + Send + Sync;
type Read = dyn Fn(&str, &mut ReleaseOptions) -> Result<(), String> + Send + Sync;

/// An annotation that an operator defines.
#[derive(Clone)]
pub(super) struct CustomAnnotation {
    pub(super) name: String,
    pub(super) read: Arc<Read>,
}

/// Extensions of a controller.
#[derive(Clone, Default)]
pub(super) struct Extensions {
    pub(super) translator: Option<Arc<Translate>>,
    pub(super) pre: Vec<Arc<PreHook>>,
    pub(super) post: Vec<Arc<PostHook>>,
    pub(super) recorder: Option<Arc<Record>>,
    pub(super) annotations: Vec<CustomAnnotation>,
    pub(super) span: Option<Arc<SpanOf>>,
    pub(super) is_paused: Option<Arc<IsPaused>>,
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
        context: &ActContext<'_>,
        inputs: Option<&DesiredInputs>,
    ) -> Result<(), ExtensionError> {
        let Some(inputs) = inputs.filter(|_| runs_hooks(step)) else {
            return Ok(());
        };
        for hook in &self.pre {
            let given = ReleaseContext::new(context.access, context.subject);
            let done = hook(given, inputs.coalesced.user().clone()).await;
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
        let history = context.access.history(&subject.target);
        let Some(latest) = history.last() else {
            return Ok(());
        };
        let release = ReleaseRef {
            name: subject.target.name.clone(),
            namespace: subject.target.namespace.clone(),
            revision: latest.revision,
        };
        for hook in &self.post {
            let given = ReleaseContext::new(context.access, subject);
            let done = hook(given, release.clone()).await;
            done.map_err(|source| HookFailed {
                which: "post",
                source,
            })?;
        }
        Ok(())
    }
}
