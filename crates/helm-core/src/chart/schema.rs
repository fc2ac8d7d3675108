//! `values.schema.json`: validation of values.

mod cost;
mod multiple;
mod pattern;
mod plain;

use std::fmt::Write as _;
use std::sync::OnceLock;

use boon::{Compiler, ErrorKind, SchemaIndex, Schemas, UrlLoader, ValidationError};
use bounded::{Budget, Limits};
use go_template::{Tree, TreeMap};
use serde_json::Value;

use super::{Chart, File};
use crate::place::Place;
use crate::values::tree;

use multiple::Multiples;
use plain::{PlainSchema, Verdict};

const URL: &str = "file:///values.schema.json";

/// A chart's schema. It is parsed on first use, and compiled only if the plain form is not enough.
pub(crate) struct Schema {
    file: File,
    plain: OnceLock<Option<PlainSchema>>,
    compiled: OnceLock<Result<CompiledSchema, Violation>>,
}

/// A reason why values are not valid, or why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Violation {
    /// The keys and indexes that lead to the value; `None` if the schema itself is wrong.
    path: Option<Vec<String>>,
    /// The path of the rule in the schema.
    rule: Vec<String>,
    message: String,
}

impl Violation {
    /// An error in the schema itself.
    fn of_schema(message: String) -> Self {
        Self {
            path: None,
            rule: Vec::new(),
            message,
        }
    }
}

/// Values that a chart's schema, or those of its dependencies, reject.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Rejected {
    /// A paragraph for each chart.
    pub(crate) text: String,
    /// The lines of the files that the text names.
    pub(crate) excerpt: String,
}

/// Limit on the errors of one chart: the place of each is looked for in the chart's files.
const MAX_VIOLATIONS: usize = 100;

/// Limit on the excerpts of one error.
const MAX_EXCERPTS: usize = 5;

struct CompiledSchema {
    document: Value,
    multiples: Option<Multiples>,
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

    fn compile(&self) -> Result<CompiledSchema, Violation> {
        let wrong = |message| Violation::of_schema(message);
        let document: Value =
            serde_json::from_slice(self.file.data()).map_err(|error| wrong(error.to_string()))?;
        pattern::check(&document).map_err(wrong)?;
        let mut compiled = CompiledSchema::of(Compiler::new(), document).map_err(wrong)?;
        compiled.multiples = Multiples::read(self.file.data(), &compiled.document);
        Ok(compiled)
    }

    /// Validates `values`. Errors do not contain the values themselves, which may be secret.
    fn check(&self, values: &Tree) -> Result<(), Vec<Violation>> {
        let plain = self
            .plain
            .get_or_init(|| PlainSchema::read(self.file.data()));
        let valid = |plain: &PlainSchema| plain.check(values) == Verdict::Valid;
        if plain.as_ref().is_some_and(valid) {
            return Ok(());
        }
        self.check_compiled(tree::to_json(values))
    }

    fn check_compiled(&self, mut values: Value) -> Result<(), Vec<Violation>> {
        let compiled = match self.compiled.get_or_init(|| self.compile()) {
            Ok(compiled) => compiled,
            Err(wrong) => return Err(vec![wrong.clone()]),
        };
        let wrong = |message| vec![Violation::of_schema(message)];
        let cost = cost_within_limits(&compiled.document, &values).map_err(wrong)?;
        let multiples = compiled.multiples.as_ref();
        let exact = match multiples {
            Some(multiples) => multiples.for_values(&mut values, cost).map_err(wrong)?,
            None => None,
        };
        let CompiledSchema { schemas, root, .. } = exact.as_ref().unwrap_or(compiled);
        let Err(error) = schemas.validate(&values, *root) else {
            return Ok(());
        };
        let mut found = Found::default();
        describe(&error, multiples, &mut found);
        Err(found.into_violations())
    }
}

impl CompiledSchema {
    /// Compiles a document, which may refer to the documents that the compiler has already.
    fn of(mut compiler: Compiler, document: Value) -> Result<Self, String> {
        compiler.use_loader(Box::new(Offline));
        compiler
            .add_resource(URL, document.clone())
            .map_err(|error| error.to_string())?;
        let mut schemas = Schemas::new();
        let root = compiler
            .compile(URL, &mut schemas)
            .map_err(|error| format!("{error:#}"))?;
        Ok(Self {
            document,
            multiples: None,
            schemas,
            root,
        })
    }
}

/// Limit on the number of subschemas that are applied to values.
const MAX_APPLIED: u64 = 2_000_000;

/// Returns the number of subschemas that are applied to values, if they can be checked in reasonable
/// time.
fn cost_within_limits(schema: &Value, values: &Value) -> Result<u64, String> {
    let cost = cost::of(schema, values, &Budget::new(Limits::default().for_json()));
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
        && let Err(violations) = schema.check(values)
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
        let _ = match (&value, &schema) {
            (Some(value), Some(schema)) => writeln!(self.text, " ({value}, required by {schema})"),
            (None, Some(schema)) => writeln!(self.text, " (required by {schema})"),
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

/// Splits a JSON pointer into keys and indexes.
fn steps(pointer: &str) -> Vec<String> {
    let steps = pointer.split('/').skip(1);
    steps
        .map(|step| step.replace("~1", "/").replace("~0", "~"))
        .collect()
}

/// Returns whether a chart or one of its dependencies has a schema.
pub(crate) fn has_schema(chart: &Chart) -> bool {
    chart.checker().is_some() || chart.dependencies().iter().any(has_schema)
}

/// The reasons why the values of one chart are not valid.
#[derive(Default)]
struct Found {
    violations: Vec<Violation>,
    /// How many more there are.
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

/// Adds each innermost cause.
fn describe(error: &ValidationError<'_, '_>, multiples: Option<&Multiples>, found: &mut Found) {
    let divisor =
        |error: &ValidationError<'_, '_>| multiples.and_then(|multiples| multiples.divisor(error));
    let is_added = |cause: &ValidationError<'_, '_>| {
        let schema = cause.schema_url.rsplit_once("/allOf/");
        divisor(cause).is_some() && schema.is_some_and(|(schema, _)| schema == error.schema_url)
    };
    let rule = error.schema_url.split_once('#');
    let mut rule = steps(&unescaped(rule.map_or("", |(_, fragment)| fragment)));
    let path = Some(steps(&error.instance_location.to_string()));
    if let Some(divisor) = divisor(error) {
        // The reference is an item of the schema's `allOf`.
        rule.truncate(rule.len().saturating_sub(2));
        found.add(Violation {
            path,
            rule,
            message: format!("is not a multiple of {divisor}"),
        });
        return;
    }
    let shown = match &error.kind {
        ErrorKind::Group | ErrorKind::Schema { .. } | ErrorKind::Reference { .. } => None,
        // The error of a single schema has no group, and the added reference to a list is not one.
        ErrorKind::AllOf if error.causes.iter().filter(|cause| !is_added(cause)).count() == 1 => {
            None
        }
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
            message,
        });
    }
    for cause in &error.causes {
        describe(cause, multiples, found);
    }
}

/// Decodes the `%XX` of a URL.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let digits = after.get(..2).filter(|_| *first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            bytes.push(byte);
            rest = after.get(2..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn errors(schema: &str, values: &str) -> Result<(), String> {
        let found = Schema::new(File::new("values.schema.json", schema))
            .check_compiled(serde_json::from_str(values).unwrap());
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
