//! Documents of the web, such as those that schemas of values refer to.

use std::time::Duration;

use crate::access::{Access, Patience};
use crate::error::PullError;
use crate::limits;
use crate::reference::{ReferenceError, http_url, shown};
use crate::transport::{Request, Transport};

/// Longest time for a whole document.
const WHOLE: Duration = Duration::from_mins(1);

/// Fetches documents of the web. It sends no credentials: whoever writes the URLs may be anybody.
pub struct DocumentFetcher {
    transport: Transport,
}

impl DocumentFetcher {
    /// Creates a fetcher with the authorities and the patience of `access`; no request is sent.
    ///
    /// # Errors
    /// If the files for TLS cannot be used.
    pub fn new(access: &Access) -> Result<Self, PullError> {
        let access = Access {
            ca_file: access.ca_file.clone(),
            ca_certificates: access.ca_certificates.clone(),
            insecure_skip_tls_verify: access.insecure_skip_tls_verify,
            patience: Patience {
                whole: access.patience.whole.min(WHOLE),
                ..access.patience.clone()
            },
            ..Access::default()
        };
        Ok(Self {
            transport: Transport::new(&access)?,
        })
    }

    /// Returns the document at a URL, which has at most [`limits::DOCUMENT`] bytes.
    ///
    /// # Errors
    /// If the URL is not one of the web or has a user, or the document cannot be fetched.
    pub async fn fetch(&self, url: &str) -> Result<Vec<u8>, PullError> {
        let url = http_url(url)?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ReferenceError::User { url: shown(&url) }.into());
        }
        let request = Request::get(url, "document", limits::DOCUMENT);
        let answer = self.transport.send(&request).await?;
        let attempts = answer.attempts;
        answer.success(&request).map_err(|error| match error {
            // Credentials would not be sent.
            PullError::NeedsCredentials { url, status, .. } => PullError::Status {
                url,
                status,
                attempts,
            },
            error => error,
        })
    }

    /// Does what [`fetch`](Self::fetch) does on the calling thread, which must not be one that runs asynchronous tasks.
    ///
    /// # Errors
    /// As [`fetch`](Self::fetch).
    pub fn fetch_blocking(&self, url: &str) -> Result<Vec<u8>, PullError> {
        crate::puller::block_on(self.fetch(url))
    }
}
