//! `values.schema.json`: validation of values.

mod cost;
mod documents;
mod multiple;
mod pattern;
mod references;
mod roots;
mod violation;
mod web;

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use boon::{CompileError, Compiler, SchemaIndex, Schemas, UrlLoader};
use bounded::{Budget, Limits};
use go_template::{Tree, TreeMap};
use serde_json::Value;
use url::Url;

use super::{Chart, File};
use crate::place::Place;
use crate::values::tree;

pub use roots::SchemaRoots;
pub(crate) use web::fetch_below;
pub use web::{DocumentIndex, DocumentsError, Fetch, Fetched, IndexError};

use documents::{Document, Loader, Sources, Unusable};
use multiple::Multiples;
use violation::Violation;

/// The URL of the schema of each chart, as in Helm. Relative references are resolved against it.
const URL: &str = "file:///values.schema.json";

/// A chart's schema, which is compiled on first use.
pub(crate) struct Schema {
    file: File,
    full: OnceLock<Result<FullSchema, Violation>>,
}

/// Values that a chart's schema, or those of its dependencies, reject.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rejected {
    /// A paragraph for each chart.
    pub(crate) text: String,
    /// The lines of the files that the text names.
    pub(crate) excerpt: String,
}

/// Limit on the excerpts of one error.
const MAX_EXCERPTS: usize = 5;

/// A schema with the documents that it refers to, which are read once.
struct FullSchema {
    compiled: CompiledSchema,
    /// The schema, then the others.
    documents: Vec<Document>,
    multiples: Option<Multiples>,
}

struct CompiledSchema {
    schemas: Schemas,
    root: SchemaIndex,
}

impl Schema {
    pub(crate) fn new(file: File) -> Self {
        Self {
            file,
            full: OnceLock::new(),
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Compiles the schema of the last of `charts`, with documents of the web that are not in the charts yet.
    fn compile(&self, charts: &[&Chart], fetched: &Fetched) -> Result<FullSchema, Failure> {
        let wrong = |message| Failure {
            violation: Violation::of_schema(message),
            cause: Cause::Wrong,
            url: None,
        };
        let value: Value =
            serde_json::from_slice(self.file.data()).map_err(|error| wrong(error.to_string()))?;
        pattern::check(&value).map_err(wrong)?;
        let loader = Loader::new(Sources::of(charts, fetched));
        let mut library = Compiler::new();
        let added = library.add_resource(URL, value.clone());
        added.map_err(|error| wrong(error.to_string()))?;
        let result = CompiledSchema::of(library, loader.clone());
        let others = loader.take_documents();
        let compiled = result.map_err(|error| match loader.take_failure() {
            Some((url, why)) => Failure {
                violation: Violation::of_document(&value, &others, &url, &why.to_string()),
                cause: match why {
                    Unusable::Absent(_) => Cause::Absent,
                    Unusable::Other(_) => Cause::Unreadable,
                },
                url: Some(Box::new(url)),
            },
            None => Failure {
                violation: Violation::of_compilation(&value, &others, &error),
                cause: Cause::Wrong,
                url: violation::place_of(&error)
                    .and_then(|url| others.iter().find(|of| of.url.as_str() == url))
                    .map(|of| Box::new(of.url.clone())),
            },
        })?;
        let schema = Document {
            url: Url::parse(URL).map_err(|error| wrong(error.to_string()))?,
            value,
            text: self.file.shared_data(),
        };
        let mut documents: Vec<Document> = std::iter::once(schema).chain(others).collect();
        let multiples = Multiples::read(&documents);
        for document in &mut documents {
            document.text = Arc::default();
        }
        Ok(FullSchema {
            compiled,
            documents,
            multiples,
        })
    }

    /// Returns the compiled schema, which is kept unless a document could not be read, which may be there next time.
    fn full(&self, charts: &[&Chart]) -> Result<&FullSchema, Violation> {
        if let Some(known) = self.full.get() {
            return known.as_ref().map_err(Clone::clone);
        }
        let compiled = match self.compile(charts, &Fetched::new()) {
            Ok(compiled) => Ok(compiled),
            Err(failure) if failure.cause == Cause::Wrong => Err(failure.violation),
            Err(failure) => return Err(failure.violation),
        };
        let known = self.full.get_or_init(|| compiled);
        known.as_ref().map_err(Clone::clone)
    }

    /// Validates `values` by the schema of the last of `charts`. Errors do not contain the values themselves, which may
    /// be secret.
    fn check(&self, mut values: Value, charts: &[&Chart]) -> Result<(), Vec<Violation>> {
        let full = self.full(charts).map_err(|wrong| vec![wrong])?;
        let wrong = |message| vec![Violation::of_schema(message)];
        let cost = cost_within_limits(&full.documents, &values).map_err(wrong)?;
        let multiples = full.multiples.as_ref();
        let exact = match multiples {
            Some(multiples) => multiples.for_values(&mut values, cost).map_err(wrong)?,
            None => None,
        };
        let CompiledSchema { schemas, root } = exact.as_ref().unwrap_or(&full.compiled);
        let Err(error) = schemas.validate(&values, *root) else {
            return Ok(());
        };
        Err(violation::all_of(&error, multiples))
    }
}

/// The reason why a schema cannot be used.
struct Failure {
    violation: Violation,
    cause: Cause,
    /// The document that is wrong or cannot be read, if it is known and not the schema itself.
    url: Option<Box<Url>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The schema, or a document that it refers to, is wrong.
    Wrong,
    /// A document that it refers to cannot be read.
    Unreadable,
    /// The chart does not have a document of the web.
    Absent,
}

impl CompiledSchema {
    /// Compiles the schema that the compiler has already.
    fn of(
        mut compiler: Compiler,
        loader: impl UrlLoader + 'static,
    ) -> Result<Self, Box<CompileError>> {
        compiler.use_loader(Box::new(loader));
        let mut schemas = Schemas::new();
        let root = compiler.compile(URL, &mut schemas)?;
        Ok(Self { schemas, root })
    }
}

/// Limit on the number of subschemas that are applied to values.
const MAX_APPLIED: u64 = 2_000_000;

/// Returns the number of subschemas that are applied to values, if they can be checked in reasonable
/// time.
fn cost_within_limits(documents: &[Document], values: &Value) -> Result<u64, String> {
    let cost = cost::of(
        documents,
        values,
        &Budget::new(Limits::default().for_json()),
    );
    match cost {
        Ok(cost) if cost <= MAX_APPLIED => Ok(cost),
        Ok(_) => Err(format!(
            "the schema applies more than {MAX_APPLIED} subschemas to the values"
        )),
        Err(error) => Err(format!("the schema cannot be checked: {error}")),
    }
}

/// Validates the values of a chart and of its dependencies. The error has a paragraph for each
/// chart with invalid values.
pub(crate) fn check(chart: &Chart, values: &TreeMap) -> Result<(), Rejected> {
    let mut rejected = Rejected::default();
    check_below(&[chart], &Tree::from(values.clone()), &mut rejected);
    if rejected.text.is_empty() {
        Ok(())
    } else {
        Err(rejected)
    }
}

/// Validates the values of the last of `charts`, which are a chart and the dependency of a dependency
/// that leads to it.
fn check_below(charts: &[&Chart], values: &Tree, rejected: &mut Rejected) {
    let Some(chart) = charts.last() else { return };
    if let Some(schema) = chart.checker()
        && let Err(violations) = schema.check(tree::to_json(values), charts)
    {
        let _ = writeln!(rejected.text, "{}:", chart.name());
        for violation in &violations {
            let schema = place_in_schema(schema, violation, charts);
            let value = place_of_value(violation, values, charts);
            rejected.add(violation, value, schema);
        }
    }
    for below in chart.dependencies() {
        let name = below.name();
        let Tree::Map(values) = values else { continue };
        match values.get(name) {
            None | Some(Tree::Nil) => {}
            Some(values @ Tree::Map(_)) => {
                let charts: Vec<&Chart> = charts.iter().copied().chain([below]).collect();
                check_below(&charts, values, rejected);
            }
            Some(_) => {
                let _ = writeln!(
                    rejected.text,
                    "{name}:\ninvalid type for values: expected a map"
                );
            }
        }
    }
}

impl Rejected {
    /// Adds a line with the places of the value and of the rule, and the excerpt of the first of
    /// them.
    fn add(&mut self, violation: &Violation, value: Option<Place>, schema: Option<Place>) {
        let message = &violation.message;
        let _ = match &violation.path {
            Some(path) => write!(self.text, "- at '{}': {message}", pointer(path)),
            None => write!(self.text, "{message}"),
        };
        let by = schema.as_ref().map(ToString::to_string);
        let _ = match (&value, by.or_else(|| violation.document.clone())) {
            (Some(value), Some(by)) => writeln!(self.text, " ({value}, required by {by})"),
            (None, Some(by)) => writeln!(self.text, " (required by {by})"),
            (Some(value), None) => writeln!(self.text, " ({value})"),
            (None, None) => writeln!(self.text),
        };
        let Some(shown) = value.or(schema) else {
            return;
        };
        let is_new = !self.excerpt.contains(&format!("{shown}\n"));
        if is_new && self.excerpt.matches(" | ").count() < 2 * MAX_EXCERPTS {
            let _ = write!(self.excerpt, "{shown}\n{}", shown.excerpt());
        }
    }
}

/// Formats a path as a JSON pointer.
fn pointer(path: &[String]) -> String {
    let escaped = path
        .iter()
        .map(|step| format!("/{}", step.replace('~', "~0").replace('/', "~1")));
    escaped.collect()
}

/// Returns the directory of the last of `charts` within the first, with a slash at its end.
fn directory(charts: &[&Chart]) -> String {
    let below = charts.iter().skip(1);
    below
        .flat_map(|chart| ["charts/", chart.name(), "/"])
        .collect()
}

/// Returns the place of the rule that is violated.
fn place_in_schema(schema: &Schema, violation: &Violation, charts: &[&Chart]) -> Option<Place> {
    violation.path.as_ref()?;
    if violation.document.is_some() {
        return None;
    }
    let file = format!("{}{}", directory(charts), schema.file.name());
    Place::of_path(&file, schema.file.data(), &violation.rule)
}

/// Returns the place of a value in the values file of its chart, or of a chart above it, if the value
/// comes from there and not from the user.
fn place_of_value(violation: &Violation, values: &Tree, charts: &[&Chart]) -> Option<Place> {
    let path = violation.path.as_ref()?;
    let wrong = descend(values, path)?;
    for (depth, chart) in charts.iter().enumerate() {
        let below = charts.iter().skip(depth + 1).map(|chart| chart.name());
        let path: Vec<&str> = below.chain(path.iter().map(String::as_str)).collect();
        let (raw, _) = chart.value_trees();
        let own = Tree::Map(std::sync::Arc::clone(raw));
        let is_here = match (descend(&own, &path), wrong) {
            (Some(Tree::Map(_)), Tree::Map(_)) => true,
            (Some(own), wrong) => tree::to_json(own) == tree::to_json(wrong),
            (None, _) => false,
        };
        let file = chart.values_file().filter(|_| is_here);
        if let Some(file) = file {
            let above = charts.get(..=depth).unwrap_or_default();
            let name = format!("{}{}", directory(above), file.name());
            return Place::of_path(&name, file.data(), &path);
        }
    }
    None
}

/// Returns the value at a path.
fn descend<'t, S: AsRef<str>>(tree: &'t Tree, path: &[S]) -> Option<&'t Tree> {
    let mut found = tree;
    for step in path {
        found = match found {
            Tree::Map(map) => map.get(step.as_ref())?,
            Tree::List(list) => list.items().get(step.as_ref().parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(found)
}

/// Returns whether a chart or one of its dependencies has a schema.
pub(crate) fn has_schema(chart: &Chart) -> bool {
    chart.checker().is_some() || chart.dependencies().iter().any(has_schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn errors(schema: &str, values: &str) -> Result<(), String> {
        let schema = Schema::new(File::new("values.schema.json", schema));
        let found = schema.check(serde_json::from_str(values).unwrap(), &[]);
        found.map_err(|found| {
            let mut rejected = Rejected::default();
            for violation in &found {
                rejected.add(violation, None, None);
            }
            rejected.text
        })
    }

    #[test]
    fn errors_name_the_places_of_value_and_rule() {
        let chart = |name: &str| format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
        let schema = "{\"properties\": {\n  \"a/b\": {\"type\": \"string\"},\n  \
                      \"list\": {\"items\": {\"type\": \"string\"}}\n}}";
        let files = [
            ("Chart.yaml", chart("web")),
            ("values.yaml", "top: 1\ndb:\n  list: [x, 2]\n".to_owned()),
            ("charts/db/Chart.yaml", chart("db")),
            ("charts/db/values.yaml", "# own\na/b: 7\n".to_owned()),
            ("charts/db/values.schema.json", schema.to_owned()),
        ];
        let files = files.map(|(name, text)| File::new(name, text));
        let chart = Chart::from_files(files).unwrap();
        let coalesced = |user: &str| {
            let user = crate::values::read(user.as_bytes()).unwrap();
            crate::values::coalesce(&chart, user).unwrap_err()
        };
        let error = coalesced("");
        let text = error.to_string();
        for line in [
            "- at '/a~1b': want string, but got number (charts/db/values.yaml:2:6, required by \
             charts/db/values.schema.json:2:10)",
            "- at '/list/1': want string, but got number (values.yaml:3:13, required by \
             charts/db/values.schema.json:3:21)",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(
            error
                .excerpt()
                .contains("values.yaml:3:13\n  3 |   list: [x, 2]\n")
        );
        // A value of the user has no place in the chart.
        let error = coalesced("db: {'a/b': 8, list: []}");
        let line =
            "'/a~1b': want string, but got number (required by charts/db/values.schema.json:2:10)";
        assert!(error.to_string().contains(line), "{error}");
        assert!(
            error.excerpt().contains("  2 |   \"a/b\": {"),
            "{}",
            error.excerpt()
        );
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
    fn errors_beyond_the_limit_are_counted() {
        let schema = r#"{"items": {"type": "string"}}"#;
        let text = errors(schema, &format!("{:?}", [1; 100])).unwrap_err();
        assert_eq!(text.lines().count(), 100);
        let text = errors(schema, &format!("{:?}", [1; 103])).unwrap_err();
        assert_eq!(text.lines().count(), 101);
        assert!(text.ends_with("\nand 3 more errors\n"), "{text}");
    }

    #[test]
    fn dialects_are_known_by_either_scheme() {
        for name in [
            "json-schema.org/schema",
            "json-schema.org/draft-07/schema",
            "json-schema.org/draft/2019-09/schema",
            "json-schema.org/draft/2020-12/schema",
        ] {
            for url in [format!("http://{name}#"), format!("https://{name}")] {
                let schema = format!(r#"{{"$schema":"{url}","type":"object"}}"#);
                assert_eq!(errors(&schema, "{}"), Ok(()), "{url}");
            }
        }
    }

    #[test]
    fn references_lead_to_definitions_and_to_any_other_place() {
        let schema = r##"{
            "definitions": {
                "port": {"type": "integer", "maximum": 65535},
                "more": {"odd": {"type": "string"}}
            },
            "$defs": {"list": {"items": {"$ref": "#/definitions/port"}}},
            "properties": {
                "port": {"$ref": "#/definitions/port"},
                "ports": {"$ref": "#/$defs/list"},
                "odd": {"$ref": "#/definitions/more/odd"},
                "below": {"$ref": "#"},
                "same": {"$ref": "#/properties/port"}
            }
        }"##;
        let siblings = r##"{
            "$id": "https://example.com/charts",
            "properties": {"a": {"$ref": "#/definitions/a", "type": "string"}},
            "definitions": {"a": {"enum": ["x", 1]}}
        }"##;
        for (schema, values, is_fine) in [
            (schema, r#"{"port":1,"ports":[2],"odd":"x","same":3}"#, true),
            (schema, r#"{"port":70000}"#, false),
            (schema, r#"{"ports":[1,"x"]}"#, false),
            (schema, r#"{"odd":1}"#, false),
            (schema, r#"{"below":{"below":{"port":"x"}}}"#, false),
            (schema, r#"{"same":"x"}"#, false),
            (siblings, r#"{"a":"x"}"#, true),
            (siblings, r#"{"a":1}"#, false),
            (siblings, r#"{"a":"y"}"#, false),
        ] {
            assert_eq!(errors(schema, values).is_ok(), is_fine, "{values}");
        }
    }

    #[test]
    fn documents_that_are_nowhere_are_errors_except_urns() {
        assert_eq!(errors(r#"{"$ref":"urn:example:any"}"#, "1"), Ok(()));
        for (reference, why) in [
            (
                "https://example.com/x.json",
                "\"https://example.com/x.json\" is not in the chart; run \"hybrid-operator charts vendor\"",
            ),
            ("http://example.com/x.json#/a", "set \"schema: skip\" in"),
            ("ftp://example.com/x.json", "is neither a file nor"),
            ("other.json", "is not in /helm-charts, nor below"),
            ("file:///etc/passwd", "is not in /helm-charts, nor below"),
            (
                "file:///../../etc/passwd",
                "is not in /helm-charts, nor below",
            ),
            ("file:///values.schema.json/multiples#/x", "is reserved"),
        ] {
            let schema = format!(r#"{{"$ref":"{reference}"}}"#);
            let error = errors(&schema, "1").unwrap_err();
            assert!(error.contains(why), "{reference}: {error}");
        }
        assert!(errors("no schema", "1").is_err());
    }
}
