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
use helm_release::engine::{ReleaseOptions, ReleaseRef};
use kube::Client;
use kube::api::DynamicObject;
use kube::runtime::events::Event;
use kube_objects::Primary;
use operator_runtime::controller::TypedObject;
use operator_runtime::native::{self, MetadataReader, Reader, Readers};
use tracing::Span;

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
    pub(super) fn new(
        resource: &Arc<DynamicObject>,
        primary: Primary,
        client: Client,
        readers: Readers,
    ) -> Self {
        Self {
            resource: Arc::clone(resource),
            primary,
            client,
            readers,
        }
    }

    pub(super) fn primary(&self) -> &Primary {
        &self.primary
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

impl Extensions {
    /// Returns whether a reconcile without a change calls none of them.
    pub(super) fn are_passive(&self) -> bool {
        self.translator.is_none()
            && self.pre.is_empty()
            && self.post.is_empty()
            && self.is_paused.is_none()
    }

    /// Runs the pre hooks of a step for these values.
    pub(super) async fn before(
        &self,
        context: &ReleaseContext,
        values: &Values,
    ) -> Result<(), ExtensionError> {
        for hook in &self.pre {
            let done = hook(context.clone(), values.clone()).await;
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
        context: &ReleaseContext,
        release: ReleaseRef,
    ) -> Result<(), ExtensionError> {
        for hook in &self.post {
            let done = hook(context.clone(), release.clone()).await;
            done.map_err(|source| HookFailed {
                which: "post",
                source,
            })?;
        }
        Ok(())
    }
}
