//! Parses a request: path, query, headers and body.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, Method};

use crate::request::decode_query;

/// Length of the longest name of a field manager.
pub(super) const MAX_MANAGER: usize = 128;

/// A request to the server.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: BTreeMap<String, String>,
    pub(super) accept: String,
    pub(super) content_type: String,
    /// The user on whose behalf the request is made, if not the client's own.
    pub(super) user: Option<String>,
    /// Whether the request names groups of the user.
    pub(super) has_groups: bool,
    /// The program that makes the request: the start of its user agent.
    program: String,
    pub(super) body: Bytes,
}

/// The resource or object that a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
}

/// The form of an answer that a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Whole,
    Metadata,
}

impl Call {
    pub(super) fn new(parts: &Parts, body: Bytes) -> Self {
        Self {
            method: parts.method.clone(),
            path: parts.uri.path().to_owned(),
            query: decode_query(parts.uri.query().unwrap_or_default()),
            accept: header(&parts.headers, ACCEPT.as_str()),
            content_type: header(&parts.headers, CONTENT_TYPE.as_str()),
            user: Some(header(&parts.headers, "impersonate-user")).filter(|user| !user.is_empty()),
            has_groups: parts.headers.contains_key("impersonate-group"),
            program: program(&header(&parts.headers, USER_AGENT.as_str())),
            body,
        }
    }

    /// Returns a request of one of the server's own controllers.
    pub(super) fn internal(
        program: &str,
        method: Method,
        path: String,
        content_type: &str,
        body: &str,
    ) -> Self {
        Self {
            program: program.to_owned(),
            method,
            path,
            query: BTreeMap::new(),
            accept: "application/json".to_owned(),
            content_type: content_type.to_owned(),
            user: None,
            has_groups: false,
            body: Bytes::from(body.to_owned()),
        }
    }

    /// Returns the field manager: the one that the request names, or its program.
    pub(super) fn manager(&self) -> &str {
        match self.parameter("fieldManager") {
            "" => &self.program,
            manager => manager,
        }
    }

    /// Returns a parameter of the query; the empty text if it is missing.
    pub(super) fn parameter(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// Returns whether a parameter of the query is true.
    pub(super) fn flag(&self, name: &str) -> bool {
        let value = self.query.get(name);
        value.is_some_and(|value| !matches!(value.as_str(), "false" | "0"))
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.parameter("dryRun") == "All"
    }

    /// Returns the request as a person reads it.
    pub(super) fn text(&self) -> String {
        let query = self.query.iter();
        let query = query.map(|(name, value)| format!("{name}={value}"));
        let query: Vec<String> = query.collect();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{} {}{mark}{}", self.method, self.path, query.join("&"))
    }

    /// Returns the form of the answer; `None` if the client accepts none that is known.
    pub(super) fn form(&self) -> Option<Form> {
        if self.accept.is_empty() {
            return Some(Form::Whole);
        }
        self.accept.split(',').find_map(|range| {
            let mut parameters = range.split(';').map(str::trim);
            let media_type = parameters.next().unwrap_or_default();
            let converted = parameters.find_map(|parameter| parameter.strip_prefix("as="));
            match (media_type, converted) {
                ("application/json" | "*/*" | "application/*", None) => Some(Form::Whole),
                (
                    "application/json",
                    Some("PartialObjectMetadata" | "PartialObjectMetadataList"),
                ) => Some(Form::Metadata),
                _ => None,
            }
        })
    }
}

impl Target {
    /// Parses `/api/v1/…` and `/apis/group/version/…`. All other paths are not resources.
    pub(super) fn of(path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            // Subresources of a namespace look like resources in it.
            ["namespaces", _, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            [plural, name, subresource] => (*plural, Some(*name), Some(*subresource)),
            _ => return None,
        };
        Some(Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            namespace: namespace.map(ToOwned::to_owned),
            name: name.map(ToOwned::to_owned),
            subresource: subresource.map(ToOwned::to_owned),
        })
    }

    /// Returns the Kubernetes verb of a request to this target.
    pub(super) fn verb(&self, call: &Call) -> &'static str {
        match (&call.method, &self.name) {
            (&Method::GET, None) if call.flag("watch") => "watch",
            (&Method::GET, None) => "list",
            (&Method::GET, Some(_)) => "get",
            (&Method::POST, _) => "create",
            (&Method::PUT, _) => "update",
            (&Method::PATCH, _) => "patch",
            (&Method::DELETE, None) => "deletecollection",
            (&Method::DELETE, Some(_)) => "delete",
            _ => "",
        }
    }

    /// Returns the resource with its subresource.
    pub(super) fn resource(&self) -> String {
        match &self.subresource {
            Some(subresource) => format!("{}/{subresource}", self.plural),
            None => self.plural.clone(),
        }
    }
}

/// Returns the start of a user agent, as it names a field manager.
fn program(user_agent: &str) -> String {
    let start = user_agent.split('/').next().unwrap_or_default();
    let printable = start.chars().filter(|letter| !letter.is_control());
    let mut length = 0;
    printable
        .take_while(|letter| {
            length += letter.len_utf8();
            length <= MAX_MANAGER
        })
        .collect()
}

fn header(headers: &HeaderMap, name: &str) -> String {
    let values = headers.get_all(name).iter();
    let values: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
    values.join(",")
}
