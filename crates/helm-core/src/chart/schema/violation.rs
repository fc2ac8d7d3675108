//! Reasons why values are not valid, or why a schema cannot be used.

use boon::{CompileError, ErrorKind, ValidationError};
use serde_json::Value;
use url::Url;

use super::URL;
use super::documents::{self, Document};
use super::multiple::Multiples;

/// Limit on the errors of one chart: the place of each is looked for in the chart's files.
const MAX_VIOLATIONS: usize = 100;

/// A reason why values are not valid, or why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    /// The keys and indexes that lead to the value; `None` if the schema itself is wrong.
    pub(super) path: Option<Vec<String>>,
    /// The path of the rule in the schema.
    pub(super) rule: Vec<String>,
    /// The document with the rule, if it is not values.schema.json.
    pub(super) document: Option<String>,
    pub(super) message: String,
}

impl Violation {
    /// Returns an error in the schema itself.
    pub(super) fn of_schema(message: String) -> Self {
        Self {
            path: None,
            rule: Vec::new(),
            document: None,
            message,
        }
    }

    /// Returns the error that a document cannot be used. Its URL is named if the text that refers to it may be quoted.
    pub(super) fn of_document(schema: &Value, others: &[Document], url: &Url, why: &str) -> Self {
        let message = if is_written(schema, others, url) {
            format!("\"{url}\" {why}")
        } else {
            format!("a document that a file refers to {why}")
        };
        Self::of_schema(message)
    }

    /// Returns an error of the compiler. Its text is used if it cannot quote a file.
    pub(super) fn of_compilation(
        schema: &Value,
        others: &[Document],
        error: &CompileError,
    ) -> Self {
        let names = |location: &str| match Url::parse(location) {
            Ok(url) => is_written(schema, others, &url),
            Err(_) => false,
        };
        let may_show = match error {
            _ if others.iter().all(Document::is_quotable) => true,
            CompileError::JsonPointerNotFound(location)
            | CompileError::AnchorNotFound {
                reference: location,
                ..
            } => names(location),
            CompileError::ValidationError { url, .. }
            | CompileError::InvalidRegex { url, .. }
            | CompileError::ParseIdError { loc: url }
            | CompileError::ParseAnchorError { loc: url }
            | CompileError::DuplicateId { url, .. }
            | CompileError::DuplicateAnchor { url, .. } => {
                documents::is_quotable(url) && !others.iter().any(|of| url == of.url.as_str())
            }
            _ => false,
        };
        Self::of_schema(if may_show {
            format!("{error:#}")
        } else {
            "a file that the schema refers to is not a valid schema".to_owned()
        })
    }
}

/// Returns the URL of the document that an error of the compiler is about.
pub(super) fn place_of(error: &CompileError) -> Option<&str> {
    match error {
        CompileError::JsonPointerNotFound(url)
        | CompileError::AnchorNotFound { url, .. }
        | CompileError::UnsupportedDraft { url }
        | CompileError::MetaSchemaCycle { url }
        | CompileError::ValidationError { url, .. }
        | CompileError::InvalidRegex { url, .. }
        | CompileError::ParseIdError { loc: url }
        | CompileError::ParseAnchorError { loc: url }
        | CompileError::DuplicateId { url, .. }
        | CompileError::DuplicateAnchor { url, .. } => url.split('#').next(),
        _ => None,
    }
}

/// Returns whether a document that may be quoted has a reference to a URL, with its fragment if it has one.
fn is_written(schema: &Value, others: &[Document], url: &Url) -> bool {
    if others.iter().all(Document::is_quotable) {
        return true;
    }
    let quotable = others.iter().filter(|document| document.is_quotable());
    let values = quotable.map(|document| &document.value);
    std::iter::once(schema)
        .chain(values)
        .any(|value| refers(value, url))
}

/// Returns whether a text of a schema, which is not nested too deeply, may be a reference to a URL.
fn refers(schema: &Value, url: &Url) -> bool {
    match schema {
        Value::String(text) => {
            let base = Url::parse(URL).ok();
            let found = base.and_then(|base| base.join(text).ok());
            found.is_some_and(|mut found| {
                if url.fragment().is_none() {
                    found.set_fragment(None);
                }
                let same = |fragment: Option<&str>| fragment.map(unescaped);
                same(found.fragment()) == same(url.fragment())
                    && (found.path() == url.path() || found.as_str() == url.as_str())
            })
        }
        Value::Array(items) => items.iter().any(|item| refers(item, url)),
        Value::Object(fields) => fields.values().any(|field| refers(field, url)),
        _ => false,
    }
}

/// Returns a message without anything of the rule: the rule of a file may be any text.
fn unquoted(kind: &ErrorKind<'_, '_>) -> String {
    let keyword = match kind {
        // These have names and counts of the values, and the names of types.
        ErrorKind::Type { .. }
        | ErrorKind::AdditionalProperties { .. }
        | ErrorKind::AdditionalItems { .. }
        | ErrorKind::UniqueItems { .. }
        | ErrorKind::PropertyName { .. }
        | ErrorKind::FalseSchema
        | ErrorKind::Contains
        | ErrorKind::Not
        | ErrorKind::AllOf
        | ErrorKind::AnyOf
        | ErrorKind::OneOf(_) => return kind.to_string(),
        ErrorKind::Enum { .. } => "enum",
        ErrorKind::Const { .. } => "const",
        ErrorKind::Format { .. } => "format",
        ErrorKind::MinProperties { .. } => "minProperties",
        ErrorKind::MaxProperties { .. } => "maxProperties",
        ErrorKind::Required { .. } => "required",
        ErrorKind::Dependency { .. } => "dependencies",
        ErrorKind::DependentRequired { .. } => "dependentRequired",
        ErrorKind::MinItems { .. } => "minItems",
        ErrorKind::MaxItems { .. } => "maxItems",
        ErrorKind::MinContains { .. } => "minContains",
        ErrorKind::MaxContains { .. } => "maxContains",
        ErrorKind::MinLength { .. } => "minLength",
        ErrorKind::MaxLength { .. } => "maxLength",
        ErrorKind::Pattern { .. } => "pattern",
        ErrorKind::Minimum { .. } => "minimum",
        ErrorKind::Maximum { .. } => "maximum",
        ErrorKind::ExclusiveMinimum { .. } => "exclusiveMinimum",
        ErrorKind::ExclusiveMaximum { .. } => "exclusiveMaximum",
        ErrorKind::MultipleOf { .. } => "multipleOf",
        _ => "a rule",
    };
    violates(keyword)
}

fn violates(keyword: &str) -> String {
    format!("violates {keyword}")
}

/// Splits the location of a rule into its document and its JSON pointer.
fn split(location: &str) -> (&str, &str) {
    location.split_once('#').unwrap_or((location, ""))
}

/// Splits a JSON pointer into keys and indexes.
pub(super) fn steps(pointer: &str) -> Vec<String> {
    let steps = pointer.split('/').skip(1);
    steps
        .map(|step| step.replace("~1", "/").replace("~0", "~"))
        .collect()
}

/// The reasons why the values of one chart are not valid.
#[derive(Default)]
struct Found {
    violations: Vec<Violation>,
    /// The number of further ones.
    others: usize,
}

impl Found {
    fn add(&mut self, violation: Violation) {
        if self.violations.len() < MAX_VIOLATIONS {
            self.violations.push(violation);
        } else {
            self.others += 1;
        }
    }

    fn into_violations(mut self) -> Vec<Violation> {
        if self.others > 0 {
            let others = format!("and {} more errors", self.others);
            self.violations.push(Violation::of_schema(others));
        }
        self.violations
    }
}

/// Returns the innermost causes of an error.
pub(super) fn all_of(
    error: &ValidationError<'_, '_>,
    multiples: Option<&Multiples>,
) -> Vec<Violation> {
    let mut found = Found::default();
    describe(error, multiples, &mut found);
    found.into_violations()
}

/// Adds each innermost cause.
fn describe(error: &ValidationError<'_, '_>, multiples: Option<&Multiples>, found: &mut Found) {
    let divisor =
        |error: &ValidationError<'_, '_>| multiples.and_then(|multiples| multiples.divisor(error));
    let is_added = |cause: &ValidationError<'_, '_>| {
        let schema = cause.schema_url.rsplit_once("/allOf/");
        divisor(cause).is_some() && schema.is_some_and(|(schema, _)| schema == error.schema_url)
    };
    let (document, rule) = split(error.schema_url);
    let mut rule = steps(&unescaped(rule));
    let is_quotable = documents::is_quotable(document);
    let document = (document != URL).then(|| {
        if is_quotable {
            error.schema_url.trim_end_matches('#').to_owned()
        } else {
            document.to_owned()
        }
    });
    let path = Some(steps(&error.instance_location.to_string()));
    if let Some(divisor) = divisor(error) {
        // The reference is an item of the schema's `allOf`.
        rule.truncate(rule.len().saturating_sub(2));
        let message = if is_quotable {
            format!("is not a multiple of {divisor}")
        } else {
            violates("multipleOf")
        };
        found.add(Violation {
            path,
            rule,
            document,
            message,
        });
        return;
    }
    let shown = match &error.kind {
        ErrorKind::Group | ErrorKind::Schema { .. } | ErrorKind::Reference { .. } => None,
        // The error of a single schema has no group, and the added reference to a list is not one.
        ErrorKind::AllOf if error.causes.iter().filter(|cause| !is_added(cause)).count() == 1 => {
            None
        }
        kind if !is_quotable => Some(unquoted(kind)),
        ErrorKind::Format { want, .. } => Some(format!("is not a valid {want}")),
        ErrorKind::Pattern { want, .. } => Some(format!("does not match pattern '{want}'")),
        ErrorKind::Minimum { want, .. } => Some(format!("must be >= {want}")),
        ErrorKind::Maximum { want, .. } => Some(format!("must be <= {want}")),
        ErrorKind::ExclusiveMinimum { want, .. } => Some(format!("must be > {want}")),
        ErrorKind::ExclusiveMaximum { want, .. } => Some(format!("must be < {want}")),
        ErrorKind::MultipleOf { want, .. } => Some(format!("is not a multiple of {want}")),
        ErrorKind::ContentEncoding { want, .. } => Some(format!("is not {want} encoded")),
        ErrorKind::ContentMediaType { want, .. } => Some(format!("is not of media type {want}")),
        other => Some(other.to_string()),
    };
    if let Some(message) = shown {
        found.add(Violation {
            path,
            rule,
            document,
            message,
        });
    }
    for cause in &error.causes {
        describe(cause, multiples, found);
    }
}

/// Decodes the `%XX` of a URL.
pub(super) fn unescaped(text: &str) -> String {
    percent_encoding::percent_decode_str(text)
        .decode_utf8_lossy()
        .into_owned()
}
