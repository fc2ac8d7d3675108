//! Watches the objects of the ranges that a process has.

use std::sync::Arc;

use futures::stream::{StreamExt, unfold};
use host::watch::Receiver;
use http::{Method, Request, Uri};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::client::{Body, ClientBuilder};
use kube::runtime::watcher::{self, Event};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use tower::service_fn;

use super::{Inner, Selection, Shards};
use crate::ownership::owner_of;
use crate::watch::follow::Events;

/// Choice of the objects of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum By {
    /// Their namespace is in a range.
    Namespace,
    /// As [`Namespace`](Self::Namespace); all, if cluster-scoped owners are in a range: their releases are in any namespace.
    Release,
    /// The namespace of their owner is in a range.
    Owner,
}

/// The objects of a watch that a process handles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The ranges of the process.
    pub shards: Shards,
    /// Choice of the objects.
    pub by: By,
    /// Whether nothing of a range is processed before the watch has listed it.
    pub is_required: bool,
}

impl By {
    /// Returns the selector that is sent to the API server; `None` if it sends all objects.
    fn selector(self, selection: &Selection) -> Option<String> {
        let selects = match self {
            Self::Namespace => true,
            Self::Release => !selection.has(None),
            Self::Owner => false,
        };
        selects.then(|| selection.selector())
    }

    fn has(self, selection: &Selection, metadata: &ObjectMeta) -> bool {
        let by_namespace = || selection.has(metadata.namespace.as_deref());
        match self {
            Self::Namespace => by_namespace(),
            Self::Release => selection.has(None) || by_namespace(),
            Self::Owner => {
                owner_of(metadata).is_none_or(|owner| selection.has(owner.namespace.as_deref()))
            }
        }
    }
}

/// Opens the stream of a watch with a client.
type Open<O> = Box<dyn Fn(&Client) -> Events<O> + Send>;

/// A watch that starts with a fresh list whenever the ranges change.
struct Selected<O> {
    inner: Arc<Inner>,
    by: By,
    client: Client,
    open: Open<O>,
    metadata_of: fn(&O) -> &ObjectMeta,
    id: u64,
    selections: Receiver<Selection>,
    current: Option<(Selection, Events<O>)>,
    /// Whether the follower has the end of a list.
    has_listed: bool,
}

impl<O> Drop for Selected<O> {
    fn drop(&mut self) {
        self.inner.close(self.id);
    }
}

impl Share {
    /// Opens a watch of the objects in the share.
    pub(crate) fn events<O: Send + 'static>(
        &self,
        client: &Client,
        open: impl Fn(&Client) -> Events<O> + Send + 'static,
        metadata_of: fn(&O) -> &ObjectMeta,
    ) -> Events<O> {
        let Some(inner) = &self.shards.0 else {
            return open(client);
        };
        let selected = Selected {
            inner: Arc::clone(inner),
            by: self.by,
            client: client.clone(),
            open: Box::new(open),
            metadata_of,
            id: inner.open(self.is_required),
            selections: inner.selection.subscribe(),
            current: None,
            has_listed: false,
        };
        unfold(selected, |mut selected| async move {
            let item = selected.next().await?;
            Some((item, selected))
        })
        .boxed()
    }
}

impl<O: Send + 'static> Selected<O> {
    async fn next(&mut self) -> Option<Result<Event<O>, watcher::Error>> {
        loop {
            let (selection, events) = self.current.get_or_insert_with(|| {
                let selection = self.selections.borrow_and_update().clone();
                let client = selecting(&self.client, self.by.selector(&selection));
                (selection, (self.open)(&client))
            });
            // The follower has handled the end of the list by now.
            if std::mem::take(&mut self.has_listed) {
                let version = selection.version;
                self.inner.progress(self.id, |listing| {
                    listing.version = version;
                    listing.is_failing = false;
                });
            }
            let item = tokio::select! {
                biased;
                // The sender lives as long as `self`.
                _ = self.selections.changed() => {
                    self.current = None;
                    continue;
                }
                item = events.next() => item?,
            };
            match &item {
                Ok(Event::InitApply(object) | Event::Apply(object) | Event::Delete(object)) => {
                    if !self.by.has(selection, (self.metadata_of)(object)) {
                        if self.by == By::Namespace {
                            self.inner.tell_of_foreign();
                        }
                        continue;
                    }
                }
                Ok(Event::InitDone) => self.has_listed = true,
                Ok(Event::Init) => {}
                Err(_) => self
                    .inner
                    .progress(self.id, |listing| listing.is_failing = true),
            }
            return Some(item);
        }
    }
}

/// Returns a client whose lists and watches ask for the selected objects alone.
fn selecting(client: &Client, selector: Option<String>) -> Client {
    let Some(selector) = selector else {
        return client.clone();
    };
    let (base, namespace) = (client.clone(), client.default_namespace().to_owned());
    let service = service_fn(move |mut request: Request<Body>| {
        if request.method() == Method::GET
            && let Some(uri) = with_selector(request.uri(), &selector)
        {
            *request.uri_mut() = uri;
        }
        let base = base.clone();
        async move { base.send(request).await }
    });
    ClientBuilder::new(service, namespace).build()
}

fn with_selector(uri: &Uri, selector: &str) -> Option<Uri> {
    let path = uri.path_and_query()?.as_str();
    let separator = if uri.query().is_some() { '&' } else { '?' };
    let encoded = utf8_percent_encode(selector, NON_ALPHANUMERIC);
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{path}{separator}shardSelector={encoded}")
        .parse()
        .ok();
    Uri::from_parts(parts).ok()
}
