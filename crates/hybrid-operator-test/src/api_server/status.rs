//! Failures as kube-apiserver words them.

use serde_json::{Map, Value, json};

/// A failed request: the `Status` of the answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Failure {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
    details: Option<Value>,
}

/// Group and plural of a resource, or group and kind of its objects.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) group: &'a str,
    pub(super) name: &'a str,
}

impl Named<'_> {
    fn qualified(self) -> String {
        if self.group.is_empty() {
            self.name.to_owned()
        } else {
            format!("{}.{}", self.name, self.group)
        }
    }

    fn details(self, name: &str) -> Map<String, Value> {
        let mut details = Map::new();
        for (key, text) in [("name", name), ("group", self.group), ("kind", self.name)] {
            if !text.is_empty() {
                details.insert(key.to_owned(), text.into());
            }
        }
        details
    }
}

/// A field that is invalid.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cause {
    reason: &'static str,
    field: String,
    message: String,
}

impl Cause {
    pub(super) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        let message = format!("Invalid value: {value}: {detail}");
        Self::new("FieldValueInvalid", field, message)
    }

    pub(super) fn wrong_type(field: &str, found: &str, expected: &str) -> Self {
        let message = format!(
            "Invalid value: \"{found}\": {field} in body must be of type {expected}: \"{found}\""
        );
        Self::new("FieldValueTypeInvalid", field, message)
    }

    pub(super) fn required(field: impl Into<String>, detail: &str) -> Self {
        let colon = if detail.is_empty() { "" } else { ": " };
        let message = format!("Required value{colon}{detail}");
        Self::new("FieldValueRequired", field, message)
    }

    pub(super) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {detail}"))
    }

    pub(super) fn not_supported(
        field: impl Into<String>,
        value: &Value,
        supported: &[Value],
    ) -> Self {
        let supported: Vec<String> = supported.iter().map(Value::to_string).collect();
        let supported = supported.join(", ");
        let message = format!("Unsupported value: {value}: supported values: {supported}");
        Self::new("FieldValueNotSupported", field, message)
    }

    pub(super) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Duplicate value: {value}");
        Self::new("FieldValueDuplicate", field, message)
    }

    pub(super) fn too_long(field: impl Into<String>, most: u64) -> Self {
        let message = format!("Too long: may not be more than {most} bytes");
        Self::new("FieldValueTooLong", field, message)
    }

    pub(super) fn too_many(field: impl Into<String>, found: usize, most: u64) -> Self {
        let items = if most == 1 { "item" } else { "items" };
        let message = format!("Too many: {found}: must have at most {most} {items}");
        Self::new("FieldValueTooMany", field, message)
    }

    fn new(reason: &'static str, field: impl Into<String>, message: String) -> Self {
        let field = field.into();
        Self {
            reason,
            field,
            message,
        }
    }

    /// Returns the cause with the path of the object that its field is in.
    pub(super) fn inside(mut self, path: &str) -> Self {
        self.field = format!("{path}.{}", self.field);
        self
    }

    pub(super) fn text(&self) -> String {
        format!("{}: {}", self.field, self.message)
    }
}

impl Failure {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: None,
        }
    }

    /// The server has no such path, or no such kind in a group that it has.
    pub(super) fn no_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(404, "NotFound", message).with_details(json!({}))
    }

    /// The server has no such group: an answer without a `Status`.
    pub(super) fn no_page() -> Self {
        Self::new(404, "", "404 page not found\n")
    }

    /// Returns whether the answer is plain text.
    pub(super) fn is_text(&self) -> bool {
        self.code == 404 && self.reason.is_empty()
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_details(json!({}))
    }

    pub(super) fn not_found(resource: Named<'_>, name: &str) -> Self {
        let message = format!("{} {name:?} not found", resource.qualified());
        Self::new(404, "NotFound", message).with_details(resource.details(name))
    }

    pub(super) fn already_exists(resource: Named<'_>, name: &str, deleting: bool) -> Self {
        let prefix = if deleting {
            "object is being deleted: "
        } else {
            ""
        };
        let message = format!("{prefix}{} {name:?} already exists", resource.qualified());
        Self::new(409, "AlreadyExists", message).with_details(resource.details(name))
    }

    pub(super) fn conflict(resource: Named<'_>, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            resource.qualified()
        );
        Self::new(409, "Conflict", message).with_details(resource.details(name))
    }

    /// Another request has changed the object.
    pub(super) fn modified(resource: Named<'_>, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    pub(super) fn forbidden(resource: Named<'_>, name: &str, why: &str) -> Self {
        let subject = if name.is_empty() {
            resource.qualified()
        } else {
            format!("{} {name:?}", resource.qualified())
        };
        let message = format!("{subject} is forbidden: {why}");
        Self::new(403, "Forbidden", message).with_details(resource.details(name))
    }

    pub(super) fn terminating(resource: Named<'_>, name: &str, namespace: &str) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let mut details = resource.details(name);
        let cause = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        details.insert("causes".to_owned(), cause);
        Self::forbidden(resource, name, &why).with_details(details)
    }

    pub(super) fn invalid(kind: Named<'_>, name: &str, causes: &[Cause]) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for cause in causes {
            let text = cause.text();
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let texts = match texts.as_slice() {
            [one] => one.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        let message = format!("{} {name:?} is invalid: {texts}", kind.qualified());
        let mut details = kind.details(name);
        let causes = causes.iter().map(
            |cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}),
        );
        details.insert("causes".to_owned(), causes.collect());
        Self::new(422, "Invalid", message).with_details(details)
    }

    /// The options of a request are invalid.
    pub(super) fn invalid_options(kind: &str, cause: Cause) -> Self {
        Self::invalid_all_options(kind, &[cause])
    }

    /// The options of a request are invalid for several reasons.
    pub(super) fn invalid_all_options(kind: &str, causes: &[Cause]) -> Self {
        let kind = Named {
            group: "meta.k8s.io",
            name: kind,
        };
        Self::invalid(kind, "", causes)
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// The resource version is older than what the server remembers.
    pub(super) fn expired(message: &str) -> Self {
        Self::new(410, "Expired", message)
    }

    /// This server does not model the request.
    pub(super) fn unmodelled(what: impl Into<String>) -> Self {
        let message = format!("the simulated API server does not model {}", what.into());
        Self::new(501, "NotModelled", message)
    }

    pub(super) fn with_details(mut self, details: impl Into<Value>) -> Self {
        self.details = Some(details.into());
        self
    }

    pub(super) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if let Value::Object(fields) = &mut status {
            if !self.reason.is_empty() {
                fields.insert("reason".to_owned(), self.reason.into());
            }
            if let Some(details) = &self.details {
                fields.insert("details".to_owned(), details.clone());
            }
        }
        status
    }
}
