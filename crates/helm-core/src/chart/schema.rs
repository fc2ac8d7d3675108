//! `values.schema.json`: validation of values.

mod cost;
mod decimal;
mod pattern;
mod plain;

use std::fmt::Write as _;
use std::sync::OnceLock;

use boon::{Compiler, ErrorKind, SchemaIndex, Schemas, UrlLoader, ValidationError};
use bounded::{Budget, Limits};
use go_template::{Tree, TreeMap};
use serde_json::Value;

use super::{Chart, File};
use crate::values::tree;

use plain::{PlainSchema, Verdict};

const URL: &str = "file:///values.schema.json";

/// A chart's schema. It is parsed on first use, and compiled only if the plain form is not enough.
pub(crate) struct Schema {
    file: File,
    plain: OnceLock<Option<PlainSchema>>,
    compiled: OnceLock<Result<CompiledSchema, String>>,
}

struct CompiledSchema {
    document: Value,
    schemas: Schemas,
    root: SchemaIndex,
}

/// Retriever that fetches nothing: a reference to another document is an error, except URNs, which
/// cannot be fetched and for which Helm allows everything.
struct Offline;

impl UrlLoader for Offline {
    fn load(&self, url: &str) -> Result<Value, Box<dyn std::error::Error>> {
        if url.starts_with("urn:") {
            return Ok(Value::Bool(true));
        }
        Err("references to other documents are not fetched".into())
    }
}

impl Schema {
    pub(crate) fn new(file: File) -> Self {
        Self {
            file,
            plain: OnceLock::new(),
            compiled: OnceLock::new(),
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    fn compile(&self) -> Result<CompiledSchema, String> {
        let document: Value =
            serde_json::from_slice(self.file.data()).map_err(|e| e.to_string())?;
        pattern::check(&document)?;
        let mut compiler = Compiler::new();
        compiler.use_loader(Box::new(Offline));
        compiler
            .add_resource(URL, document.clone())
            .map_err(|e| e.to_string())?;
        let mut schemas = Schemas::new();
        let root = compiler
            .compile(URL, &mut schemas)
            .map_err(|e| format!("{e:#}"))?;
        Ok(CompiledSchema {
            document,
            schemas,
            root,
        })
    }

    /// Validates `values` and returns one line per error. Lines do not contain the values
    /// themselves, which may be secret.
    fn check(&self, values: &Tree) -> Result<(), String> {
        let plain = self
            .plain
            .get_or_init(|| PlainSchema::read(self.file.data()));
        let valid = |plain: &PlainSchema| plain.check(values) == Verdict::Valid;
        if plain.as_ref().is_some_and(valid) {
            return Ok(());
        }
        self.check_compiled(&tree::to_json(values))
    }

    fn check_compiled(&self, values: &Value) -> Result<(), String> {
        match self.compiled.get_or_init(|| self.compile()) {
            Ok(CompiledSchema {
                document,
                schemas,
                root,
            }) => {
                within_limits(document, values)?;
                match schemas.validate(values, *root) {
                    Err(error) if decimal::is_violation(&error) => {
                        let mut text = String::new();
                        describe(&error, &mut text);
                        Err(text)
                    }
                    _ => Ok(()),
                }
            }
            Err(message) => Err(format!("{message}\n")),
        }
    }
}

/// Limit on the number of subschemas that are applied to values.
const MAX_APPLIED: u64 = 2_000_000;

/// Checks that values can be checked in reasonable time.
fn within_limits(schema: &Value, values: &Value) -> Result<(), String> {
    let cost = cost::of(schema, values, &Budget::new(Limits::default()));
    match cost {
        Ok(cost) if cost <= MAX_APPLIED => Ok(()),
        Ok(_) => Err(format!(
            "the schema applies more than {MAX_APPLIED} subschemas to the values\n"
        )),
        Err(error) => Err(format!("the schema cannot be checked: {error}\n")),
    }
}

/// Validates the values of a chart and of its dependencies. The error has a paragraph for each
/// chart with invalid values.
pub(crate) fn check(chart: &Chart, values: &TreeMap) -> Result<(), String> {
    let mut text = String::new();
    check_below(chart, &Tree::from(values.clone()), &mut text);
    if text.is_empty() { Ok(()) } else { Err(text) }
}

fn check_below(chart: &Chart, values: &Tree, text: &mut String) {
    if let Some(schema) = chart.checker()
        && let Err(errors) = schema.check(values)
    {
        let _ = write!(text, "{}:\n{errors}", chart.name());
    }
    for below in chart.dependencies() {
        let name = below.name();
        let Tree::Map(values) = values else { continue };
        match values.get(name) {
            None | Some(Tree::Nil) => {}
            Some(values @ Tree::Map(_)) => check_below(below, values, text),
            Some(_) => {
                let _ = writeln!(text, "{name}:\ninvalid type for values: expected a map");
            }
        }
    }
}

/// Returns whether a chart or one of its dependencies has a schema.
pub(crate) fn has_schema(chart: &Chart) -> bool {
    chart.checker().is_some() || chart.dependencies().iter().any(has_schema)
}

/// Adds a line for each innermost cause.
fn describe(error: &ValidationError<'_, '_>, text: &mut String) {
    if !decimal::is_violation(error) {
        return;
    }
    let shown = match &error.kind {
        ErrorKind::Group | ErrorKind::Schema { .. } | ErrorKind::Reference { .. } => None,
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
    if let Some(shown) = shown {
        let _ = writeln!(text, "- at '{}': {shown}", error.instance_location);
    }
    error.causes.iter().for_each(|cause| describe(cause, text));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(schema: &str, values: &str) -> Result<(), String> {
        Schema::new(File::new("values.schema.json", schema))
            .check_compiled(&serde_json::from_str(values).unwrap())
    }

    #[test]
    fn errors_name_the_location_but_not_the_value() {
        let schema = r#"{"$schema":"http://json-schema.org/draft-07/schema#","type":"object",
            "required":["name"],"properties":{"a":{"properties":{"b":{"type":"integer"}}},
            "password":{"type":"string","pattern":"^[a-z]+$"}}}"#;
        assert_eq!(errors(schema, r#"{"name":1,"a":{"b":5.0}}"#), Ok(()));
        let text = errors(schema, r#"{"a":{"b":"x"},"password":"S3CRET"}"#).unwrap_err();
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "- at '': missing properties 'name'",
                "- at '/a/b': want integer, but got string",
                "- at '/password': does not match pattern '^[a-z]+$'",
            ]
        );
    }

    #[test]
    fn multiples_are_computed_in_decimal() {
        for (schema, value, is_fine) in [
            (r#"{"multipleOf":0.1}"#, "0.3", true),
            (r#"{"multipleOf":0.1}"#, "0.35", false),
            (r#"{"multipleOf":0.01}"#, "1e20", true),
            (r#"{"multipleOf":1e-7}"#, "4.35e-5", true),
            (r#"{"multipleOf":3}"#, "1e5", false),
            (
                r#"{"properties":{"a":{"anyOf":[{"multipleOf":0.1}]}}}"#,
                r#"{"a":0.7}"#,
                true,
            ),
            (
                r#"{"oneOf":[{"multipleOf":0.1},{"type":"string"}]}"#,
                "0.3",
                true,
            ),
        ] {
            assert_eq!(errors(schema, value).is_ok(), is_fine, "{schema} {value}");
        }
    }

    #[test]
    fn external_references_are_errors_except_urns() {
        assert_eq!(errors(r#"{"$ref":"urn:example:any"}"#, "1"), Ok(()));
        for reference in [
            "https://example.com/x.json",
            "other.json",
            "file:///etc/passwd",
        ] {
            let schema = format!(r#"{{"$ref":"{reference}"}}"#);
            assert!(
                errors(&schema, "1").unwrap_err().contains("not fetched"),
                "{reference}"
            );
        }
        assert!(errors("no schema", "1").is_err());
    }
}
