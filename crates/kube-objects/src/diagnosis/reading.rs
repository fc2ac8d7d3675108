//! Reads Pods, events, claims and logs of one namespace. Lists are read in pages, of which only what
//! explains something is kept.

use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::Client;
use kube::api::{Api, ListParams, LogParams};
use serde::de::DeserializeOwned;

use super::shortened;

/// Number of objects of a page.
const PAGE: u32 = 250;
/// Maximum number of pages of a list.
const MAX_PAGES: usize = 100;
/// Number of lines that are shown of a log.
const LOG_LINES: i64 = 5;
/// Maximum number of bytes that are read of a log.
const LOG_BYTES: i64 = 2 * 1024;

/// Reads one namespace with the rights of one account.
pub(super) struct Reader<'a> {
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
}

/// Selectors of the objects that are listed.
#[derive(Debug, Clone, Default)]
pub(super) struct Selection {
    pub(super) fields: Option<String>,
    pub(super) labels: Option<String>,
}

impl Selection {
    pub(super) fn fields(fields: impl Into<String>) -> Self {
        Self {
            fields: Some(fields.into()),
            labels: None,
        }
    }
}

impl Reader<'_> {
    pub(super) async fn pods(
        &self,
        selection: &Selection,
        each: impl FnMut(Pod),
    ) -> Result<(), kube::Error> {
        self.list(selection, each).await
    }

    pub(super) async fn events(
        &self,
        selection: &Selection,
        each: impl FnMut(Event),
    ) -> Result<(), kube::Error> {
        self.list(selection, each).await
    }

    pub(super) async fn claims(
        &self,
        each: impl FnMut(PersistentVolumeClaim),
    ) -> Result<(), kube::Error> {
        self.list(&Selection::default(), each).await
    }

    async fn list<K>(
        &self,
        selection: &Selection,
        mut each: impl FnMut(K),
    ) -> Result<(), kube::Error>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
        K::DynamicType: Default,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), self.namespace);
        let mut params = ListParams::default().limit(PAGE);
        params.field_selector.clone_from(&selection.fields);
        params.label_selector.clone_from(&selection.labels);
        for _ in 0..MAX_PAGES {
            let page = api.list(&params).await?;
            page.items.into_iter().for_each(&mut each);
            match page.metadata.continue_ {
                Some(token) if !token.is_empty() => params.continue_token = Some(token),
                _ => break,
            }
        }
        Ok(())
    }

    /// Returns the last lines of a container's log; `None` if there are none, or they cannot be read.
    pub(super) async fn log(&self, pod: &str, container: &str, previous: bool) -> Option<String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace);
        let params = LogParams {
            container: Some(container.to_owned()),
            previous,
            tail_lines: Some(LOG_LINES),
            limit_bytes: Some(LOG_BYTES),
            ..LogParams::default()
        };
        let text = match pods.logs(pod, &params).await {
            Ok(text) => text,
            Err(error) => {
                let error: &dyn std::error::Error = &error;
                tracing::debug!(pod, error, "cannot read the log of a container");
                return None;
            }
        };
        let lines: Vec<String> = text
            .lines()
            .map(|line| shortened(&printable(line)))
            .filter(|line| !line.is_empty())
            .collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// Removes control characters, such as those that colour the log on a terminal.
fn printable(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            // An escape sequence ends with a letter.
            characters.by_ref().find(char::is_ascii_alphabetic);
        } else if !character.is_control() || character == '\t' {
            text.push(character);
        }
    }
    text
}
