//! Counts requests in the API server's audit log, so that a test can limit what an operator requests.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The audit log of a control plane: one line per request, written before the response.
#[derive(Debug, Clone)]
pub struct AuditLog {
    path: PathBuf,
}

/// A position in the log; requests before it do not count.
#[derive(Debug, Clone, Copy)]
pub struct Mark(u64);

/// A completed request, or the start of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditedRequest {
    /// Name of the user.
    pub user: String,
    /// Kubernetes verb: get, list, watch, create, update, patch, delete, deletecollection.
    pub verb: String,
    /// Plural resource, with its subresource after a slash; the path if it is not a resource.
    pub resource: String,
    /// Namespace, if the request has one.
    pub namespace: Option<String>,
    /// Name of the object.
    pub name: Option<String>,
    /// Path and query.
    pub uri: String,
    /// HTTP status of the response.
    pub status: u16,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    stage: String,
    verb: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    user: User,
    object_ref: Option<ObjectRef>,
    response_status: Option<Status>,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
struct ObjectRef {
    resource: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

impl AuditLog {
    /// Creates a reader of this file.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the current end of the log.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn mark(&self) -> io::Result<Mark> {
        Ok(Mark(self.path.metadata()?.len()))
    }

    /// Returns the requests of a user since the mark, oldest first.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn since(&self, mark: Mark, user: &str) -> io::Result<Vec<AuditedRequest>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(mark.0))?;
        let mut requests = Vec::new();
        for line in BufReader::new(file).split(b'\n') {
            // The last line may not be complete yet.
            let Ok(event) = serde_json::from_slice::<Event>(&line?) else {
                continue;
            };
            if event.user.username == user {
                requests.extend(event.into_request());
            }
        }
        Ok(requests)
    }

    /// Counts the requests of a user since the mark, as `verb resource`, with ` -> status` after errors.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn count(&self, mark: Mark, user: &str) -> io::Result<BTreeMap<String, usize>> {
        let mut counts = BTreeMap::new();
        for request in self.since(mark, user)? {
            let mut kind = format!("{} {}", request.verb, request.resource);
            if request.status >= 400 {
                kind = format!("{kind} -> {}", request.status);
            }
            *counts.entry(kind).or_default() += 1;
        }
        Ok(counts)
    }
}

impl Event {
    /// Converts an event. A watch is logged when it starts and again when it ends; only the start
    /// counts.
    fn into_request(self) -> Option<AuditedRequest> {
        let status = self.response_status.map_or(200, |status| status.code);
        if self.verb == "watch" && self.stage == "ResponseComplete" && status < 400 {
            return None;
        }
        let path = self.request_uri.split('?').next().unwrap_or_default();
        let target = self.object_ref.filter(|target| target.resource.is_some());
        let target = target.unwrap_or_default();
        let resource = match (target.resource, target.subresource) {
            (None, _) => path.to_owned(),
            (Some(resource), None) => resource,
            (Some(resource), Some(sub)) => format!("{resource}/{sub}"),
        };
        Some(AuditedRequest {
            user: self.user.username,
            verb: self.verb,
            resource,
            namespace: target.namespace,
            name: target.name,
            uri: self.request_uri,
            status,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"{"stage":"ResponseComplete","verb":"get","requestURI":"/version","user":{"username":"operator"},"responseStatus":{"code":200}}
{"stage":"ResponseStarted","verb":"watch","requestURI":"/api/v1/pods?watch=1","user":{"username":"operator"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"watch","requestURI":"/api/v1/pods?watch=1","user":{"username":"operator"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200}}
{"stage":"ResponseComplete","verb":"patch","requestURI":"/x","user":{"username":"operator"},"objectRef":{"resource":"memcacheds","namespace":"a","name":"b","subresource":"status"},"responseStatus":{"code":409}}
{"stage":"ResponseComplete","verb":"get","requestURI":"/y","user":{"username":"admin"},"objectRef":{"resource":"pods"},"responseStatus":{"code":200}}
{"stage":"Resp"#;

    #[test]
    fn requests_are_counted_by_verb_resource_and_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), LOG).unwrap();
        let log = AuditLog::new(file.path());
        let counts = log.count(Mark(0), "operator").unwrap();
        let expected = [
            ("get /version", 1),
            ("patch memcacheds/status -> 409", 1),
            ("watch pods", 1),
        ];
        let expected = expected.map(|(key, count)| (key.to_owned(), count));
        assert_eq!(counts, BTreeMap::from(expected));
        let later = log.count(log.mark().unwrap(), "operator").unwrap();
        assert!(later.is_empty());
    }
}
