//! The documents that a schema refers to.

use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::sync::Arc;

use boon::UrlLoader;
use serde_json::Value;
use url::Url;

use super::multiple::LISTS;
use super::roots::{MAX_FILE, SchemaRoots};
use super::violation::unescaped;
use super::web::{self, Fetched};
use super::{URL, pattern};
use crate::chart::{Chart, File};

/// Limits on the documents of one schema: their number, and their size together, in bytes.
pub(super) const MAX_DOCUMENTS: usize = 256;
pub(super) const MAX_BYTES: usize = 16 << 20;

const ABSENT: &str = "is not in /helm-charts, nor below the working directory, nor in the chart";

/// Reason why a document cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum Unusable {
    /// The chart does not keep the document of the web.
    #[error(transparent)]
    Absent(#[from] Absent),
    #[error("{0}")]
    Other(String),
}

impl From<&str> for Unusable {
    fn from(why: &str) -> Self {
        Self::Other(why.to_owned())
    }
}

/// Reason why a chart does not have a document of the web.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Absent {
    #[error("is not in the chart; {FETCH}")]
    Missing,
    #[error("was changed in the chart: it is not the one of values.schema/index.json; {FETCH}")]
    Changed,
    #[error("is not in the chart, whose values.schema/index.json cannot be read; {FETCH}")]
    NoIndex,
}

const FETCH: &str = "run \"hybrid-operator charts vendor\", which fetches it into the chart, or set \"schema: skip\" in \
                     the chart's entry of watches.yaml";

/// A document, by its URL.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) url: Url,
    pub(super) value: Value,
    pub(super) text: Arc<[u8]>,
}

impl Document {
    pub(super) fn is_quotable(&self) -> bool {
        is_quotable(self.url.as_str())
    }
}

/// Places where the documents of a schema are looked for.
pub(super) struct Sources {
    /// The files of the chart with the schema, then those of the charts that contain it.
    charts: Vec<Vec<File>>,
    roots: SchemaRoots,
    /// Documents of the web that are not in the charts yet.
    fetched: Fetched,
}

impl Sources {
    /// Returns the sources for the last of `charts`, which are a chart and the dependency of a dependency that leads
    /// to it.
    pub(super) fn of(charts: &[&Chart], fetched: &Fetched) -> Self {
        let files = |chart: &&Chart| {
            let schema = chart.schema().into_iter();
            let files = chart.files().iter().chain(chart.templates()).chain(schema);
            files.cloned().collect()
        };
        Self {
            charts: charts.iter().rev().map(files).collect(),
            roots: charts
                .first()
                .map(|chart| chart.schema_roots().clone())
                .unwrap_or_default(),
            fetched: fetched.clone(),
        }
    }

    /// Returns the text at a URL of a file.
    fn file(&self, url: &Url) -> Result<Vec<u8>, &'static str> {
        let path = unescaped(url.path());
        if let Some(text) = self.roots.read(&path)? {
            return Ok(text);
        }
        let name = name_in_chart(&path).ok_or(ABSENT)?;
        let mut files = self.charts.iter().flatten();
        let file = files.find(|file| file.name() == name).ok_or(ABSENT)?;
        if file.outside().is_some_and(|path| !self.roots.contain(path)) {
            return Err("leads out of the directories in which schemas are read");
        }
        if file.data().len() as u64 > MAX_FILE {
            return Err("is larger than 4 MiB");
        }
        Ok(file.data().to_vec())
    }

    fn text(&self, url: &Url) -> Result<Arc<[u8]>, Unusable> {
        match url.scheme() {
            "file" => Ok(self.file(url)?.into()),
            _ if !is_of_web(url) => Err("is neither a file nor a document of the web".into()),
            _ => match self.fetched.get(url.as_str()) {
                Some(text) => Ok(Arc::clone(text)),
                None => Ok(web::find(&self.charts, url.as_str())?),
            },
        }
    }
}

/// Returns a path without `.`, `..` and repeated slashes, or `None` if it leads out of the chart.
fn name_in_chart(path: &str) -> Option<String> {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Reads documents for the library that compiles schemas, and keeps them. A clone shares them.
#[derive(Clone)]
pub(super) struct Loader(Rc<Shared>);

struct Shared {
    sources: Sources,
    loaded: RefCell<Loaded>,
}

#[derive(Default)]
struct Loaded {
    documents: Vec<Document>,
    bytes: usize,
    /// The document that cannot be used, and the reason.
    failure: Option<(Url, Unusable)>,
}

impl Loader {
    pub(super) fn new(sources: Sources) -> Self {
        Self(Rc::new(Shared {
            sources,
            loaded: RefCell::default(),
        }))
    }

    /// Returns the documents that were read.
    pub(super) fn take_documents(&self) -> Vec<Document> {
        std::mem::take(&mut self.0.loaded.borrow_mut().documents)
    }

    /// Returns the document that could not be used, and why.
    pub(super) fn take_failure(&self) -> Option<(Url, Unusable)> {
        self.0.loaded.borrow_mut().failure.take()
    }

    fn read(&self, url: &Url) -> Result<Value, Unusable> {
        let mut loaded = self.0.loaded.borrow_mut();
        if loaded.documents.len() >= MAX_DOCUMENTS {
            return Err(Unusable::Other(format!(
                "is one of more than {MAX_DOCUMENTS} documents"
            )));
        }
        let text = self.0.sources.text(url)?;
        loaded.bytes = loaded.bytes.saturating_add(text.len());
        if loaded.bytes > MAX_BYTES {
            return Err(Unusable::Other(format!(
                "is one of documents that have more than {} MiB together",
                MAX_BYTES >> 20
            )));
        }
        // The errors of reader and patterns quote the text.
        let value: Value = serde_json::from_slice(&text).map_err(|_| "is not JSON")?;
        pattern::check(&value)
            .map_err(|_| "has a pattern that is refused, or is nested too deeply")?;
        loaded.documents.push(Document {
            url: url.clone(),
            value: value.clone(),
            text,
        });
        Ok(value)
    }
}

impl UrlLoader for Loader {
    fn load(&self, url: &str) -> Result<Value, Box<dyn Error>> {
        if is_without_document(url) {
            return Ok(Value::Bool(true));
        }
        let mut parsed = Url::parse(url)?;
        parsed.set_fragment(None);
        let read = if url.starts_with(LISTS) || url == URL {
            Err("is reserved".into())
        } else {
            self.read(&parsed)
        };
        read.map_err(|why| {
            let error = why.clone().into();
            self.0.loaded.borrow_mut().failure = Some((parsed, why));
            error
        })
    }
}

/// Loader for schemas of which all documents are known.
pub(super) struct NothingElse;

impl UrlLoader for NothingElse {
    fn load(&self, url: &str) -> Result<Value, Box<dyn Error>> {
        if is_without_document(url) {
            return Ok(Value::Bool(true));
        }
        Err("the document was not referred to before".into())
    }
}

/// Returns whether a URL is that of a document of the web.
pub(super) fn is_of_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}

/// Returns whether a URL is a URN, which cannot be fetched and for which Helm allows everything.
fn is_without_document(url: &str) -> bool {
    url.starts_with("urn:")
}

/// Returns whether messages may quote the document at a URL: values.schema.json, but no file that it refers to,
/// which may be anything.
pub(super) fn is_quotable(url: &str) -> bool {
    let document = url.split('#').next().unwrap_or_default();
    document == URL || document.starts_with(LISTS) || !url.starts_with("file:")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;
    use crate::rows::rows;

    const CHART: &str = "apiVersion: v2\nname: web\nversion: 1.0.0\n";

    /// Returns a directory with a chart at `project/charts/web`, whose values have a schema, and other files.
    fn machine(schema: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let machine = tempfile::tempdir().unwrap();
        let web = [
            ("project/charts/web/Chart.yaml", CHART),
            ("project/charts/web/values.schema.json", schema),
        ];
        for (name, text) in web.iter().chain(files) {
            write(machine.path(), name, text);
        }
        machine
    }

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn load(machine: &Path) -> Chart {
        let chart = Chart::load(machine.join("project/charts/web")).unwrap();
        chart.with_schema_roots(SchemaRoots::of_project(machine.join("project")))
    }

    /// Returns the error that values of the chart have, or an empty text.
    fn check(chart: &Chart, values: &str) -> String {
        let values = crate::values::read(values.as_bytes()).unwrap();
        match crate::values::coalesce(chart, values) {
            Ok(_) => String::new(),
            Err(error) => format!("{error}\n{}", error.excerpt()),
        }
    }

    /// Returns a schema of which a part is elsewhere.
    fn referring(reference: &str) -> String {
        format!(r#"{{"properties": {{"a": {{"$ref": "{reference}"}}}}}}"#)
    }

    const TEXT: &str = r#"{"type": "string", "definitions": {"small": {"maximum": 3}}}"#;

    #[test]
    fn files_are_found_below_the_project_and_in_the_chart() {
        for [reference, file] in rows(
            "
            other.json                           | project/other.json
            ./other.json                         | project/charts/web/other.json
            file:other.json                      | project/other.json
            file:///other.json                   | project/other.json
            file:///other.json?x=1               | project/other.json
            file://./helm-charts/web/a.json      | project/helm-charts/web/a.json
            file://localhost/charts/web/x/a.json | project/charts/web/x/a.json
            file:///x/%61.json                   | project/charts/web/x/a.json
            x/../y//a.json                       | project/charts/web/y/a.json
            templates/_a.json                    | project/charts/web/templates/_a.json
            ",
        ) {
            let machine = machine(&referring(reference), &[(file, TEXT)]);
            let chart = load(machine.path());
            assert_eq!(check(&chart, "a: x"), "", "{reference}");
            let error = check(&chart, "a: 1");
            let wanted = "- at '/a': want string, but got number";
            for part in [wanted, " (required by file://"] {
                assert!(error.contains(part), "{reference}: {error}");
            }
        }
    }

    #[test]
    fn files_refer_to_further_files_and_to_their_own_definitions() {
        let schema = r#"{"properties": {"a": {"$ref": "file://./x/a.json#/definitions/b"}}}"#;
        let a = r#"{"definitions": {"b": {"$ref": "b.json#/definitions/small"}}}"#;
        let files = [("project/x/a.json", a), ("project/x/b.json", TEXT)];
        let machine = machine(schema, &files);
        let chart = load(machine.path());
        assert_eq!(check(&chart, "a: 3"), "");
        let error = check(&chart, "a: 4");
        let wanted = "- at '/a': violates maximum (required by file://./x/b.json)";
        assert!(error.contains(wanted), "{error}");
    }

    #[test]
    fn dependency_refers_to_its_own_files_and_to_those_of_the_charts_above() {
        let schema = r#"{"properties": {"a": {"$ref": "own.json"}, "b": {"$ref": "above.json"}}}"#;
        let below = "project/charts/web/charts/db/";
        let machine = machine("{}", &[("project/charts/web/above.json", TEXT)]);
        for (name, text) in [
            ("Chart.yaml", CHART.replace("web", "db").as_str()),
            ("values.schema.json", schema),
            ("own.json", TEXT),
        ] {
            write(machine.path(), &format!("{below}{name}"), text);
        }
        let error = check(&load(machine.path()), "db: {a: 1, b: 2}");
        for path in ["'/a'", "'/b'"] {
            assert!(error.contains(&format!("{path}: want string")), "{error}");
        }
        // An archive has its own files only, unless directories are given.
        let files = [
            ("Chart.yaml", CHART),
            ("values.schema.json", r#"{"$ref": "own.json"}"#),
        ];
        let files = files.map(|(name, text)| File::new(name, text));
        let chart = Chart::from_files(files.into_iter().chain([File::new("own.json", "true")]));
        assert_eq!(check(&chart.unwrap(), "a: 1"), "");
    }

    #[test]
    fn links_of_the_chart_lead_nowhere_else() {
        let outside = "leads out of the directories in which schemas are read";
        for (reference, fine) in [
            ("out.json", false),
            ("folder/secret.json", false),
            ("back.json", true),
            ("project.json", true),
        ] {
            let schema = referring(reference);
            let files = [
                ("etc/secret.json", TEXT),
                ("project/common.json", TEXT),
                ("project/charts/web/own.json", TEXT),
            ];
            let machine = machine(&schema, &files);
            let at = |name: &str| machine.path().join(name);
            let link = |target: &str, name: &str| {
                symlink(at(target), at("project/charts/web").join(name)).unwrap();
            };
            link("etc/secret.json", "out.json");
            link("etc", "folder");
            link("project/charts/web/own.json", "back.json");
            link("project/common.json", "project.json");
            let error = check(&load(machine.path()), "a: x");
            assert_eq!(error.is_empty(), fine, "{reference}: {error}");
            assert_eq!(error.contains(outside), !fine, "{reference}: {error}");
        }
    }

    #[test]
    fn messages_quote_nothing_of_a_file() {
        let texts = [
            r#"{"enum": ["S3CRET"]}"#,
            r#"{"const": "S3CRET"}"#,
            r#"{"pattern": "S3CRET"}"#,
            r#"{"pattern": "S3CRET("}"#,
            r#"{"pattern": "S3CRET{1001}"}"#,
            r#"{"format": "S3CRET", "minLength": 36737}"#,
            r#"{"type": "S3CRET"}"#,
            r#"{"$ref": "S3CRET.json"}"#,
            r#"{"$ref": "https://S3CRET/x"}"#,
            r##"{"$ref": "#/S3CRET"}"##,
            r##"{"$ref": "#S3CRET"}"##,
            r#"{"$schema": "S3CRET"}"#,
            r#"{"$schema": "https://S3CRET/"}"#,
            r#"{"$id": "http://[S3CRET"}"#,
            r#"{"$anchor": "S3CRET", "$defs": {"a": {"$anchor": "S3CRET"}}}"#,
            r#"{"$defs": {"S3CRET": {"type": 7}}}"#,
            r##"{"$defs": {"S3CRET": {"minLength": 36737}}, "$ref": "#/$defs/S3CRET"}"##,
            r##"{"definitions": {"S3CRET": {"maximum": -36737}}, "allOf": [{"$ref": "#/definitions/S3CRET"}]}"##,
            r#"{"dependentRequired": {"S3CRET": ["x"]}, "required": ["S3CRET"], "minProperties": 36737}"#,
            r#"{"multipleOf": 36737}"#,
            r#"{"type": "array", "minItems": 36737}"#,
            "password: S3CRET",
            "S3CRET",
            "\"S3CRET",
            "{\"S3CRET\": tru",
        ];
        for text in texts {
            for place in ["project/other.json", "project/charts/web/other.json"] {
                let schema = r#"{"properties": {"a": {"$ref": "other.json"}, "b": {"$ref": "other.json"},
                                 "c": {"$ref": "other.json"}, "d": {"$ref": "other.json"}}}"#;
                let machine = machine(schema, &[(place, text)]);
                let error = check(&load(machine.path()), "a: x\nb: {}\nc: 7\nd: [1]\n");
                assert!(!error.is_empty(), "{text}");
                for part in ["S3CRET", "36737", "encountered bug"] {
                    assert!(!error.contains(part), "{text}: {error}");
                }
            }
        }
    }

    #[test]
    fn references_that_lead_nowhere_are_named_with_the_reason() {
        let large = "1".repeat(5 << 20);
        for [reference, why] in rows(
            r#"
            none.json | "file:///none.json" is not in /helm-charts, nor below the working directory, nor in the chart
            large.json          | "file:///large.json" is larger than 4 MiB
            large-in-chart.json | "file:///large-in-chart.json" is larger than 4 MiB
            charts              | "file:///charts" is not a regular file
            text.json           | "file:///text.json" is not JSON
            other.json#/none    | json-pointer in file:///other.json#/none not found
            "#,
        ) {
            let files = [
                ("project/large.json", large.as_str()),
                ("project/charts/web/large-in-chart.json", &large),
                ("project/text.json", "text"),
                ("project/other.json", "{}"),
            ];
            let machine = machine(&format!(r#"{{"$ref": "{reference}"}}"#), &files);
            let error = check(&load(machine.path()), "");
            assert!(error.contains(why), "{reference}: {error}");
        }
    }

    #[test]
    fn file_that_is_missing_is_looked_for_again_and_one_that_was_read_is_not() {
        let machine = machine(&referring("late.json"), &[]);
        let chart = load(machine.path());
        assert!(check(&chart, "a: x").contains("is not in"));
        write(machine.path(), "project/late.json", TEXT);
        assert_eq!(check(&chart, "a: x"), "");
        write(machine.path(), "project/late.json", "false");
        assert_eq!(check(&chart, "a: x"), "");
        assert!(check(&load(machine.path()), "a: x").contains("'/a': "));
    }

    #[test]
    fn limits_of_a_schema_hold_for_what_it_refers_to() {
        let doubling = |refer: &dyn Fn(usize) -> String| {
            let level = |level: usize| {
                let next = refer(level + 1);
                format!(r#""d{level}": {{"allOf": [{{"$ref": "{next}"}}, {{"$ref": "{next}"}}]}}"#)
            };
            let levels: Vec<String> = (0..60).map(level).collect();
            let levels = levels.join(", ");
            format!(r#"{{"definitions": {{{levels}, "d60": {{}}}}}}"#)
        };
        let same = doubling(&|level| format!("#/definitions/d{level}"));
        let across = doubling(&|level| format!("file://other/other.json#/definitions/d{level}"));
        let cost = "the schema applies more than 2000000 subschemas";
        let pattern = r#"{"definitions": {"d0": {"pattern": "((\\pL{1,100}){1,100}){1,10}"}}}"#;
        let deep = format!("{}true{}", r#"{"not": "#.repeat(5_000), "}".repeat(5_000));
        let all_of = |file: &str, number: usize| {
            let references = (0..number).map(|at| format!(r#"{{"$ref": "{file}?{at}"}}"#));
            let references: Vec<String> = references.collect();
            format!(r#"{{"allOf": [{}]}}"#, references.join(", "))
        };
        let many = format!(
            r#"{{"definitions": {{"d0": {}}}}}"#,
            all_of("many.json", 300)
        );
        for (text, why) in [
            (same.as_str(), cost),
            (&across, cost),
            (pattern, "has a pattern that is refused"),
            (&deep, "is not JSON"),
            (&many, "is one of more than 256 documents"),
        ] {
            let schema = r#"{"$ref": "other.json#/definitions/d0"}"#;
            let files = [("project/other.json", text), ("project/many.json", "{}")];
            let machine = machine(schema, &files);
            let error = check(&load(machine.path()), "a: x");
            assert!(error.contains(why), "{error}");
        }
        let four = format!("{{\"x\": \"{}\"}}", "x".repeat(4_000_000));
        let schema = all_of("large.json", 5);
        let machine = machine(&schema, &[("project/large.json", &four)]);
        let error = check(&load(machine.path()), "a: x");
        assert!(error.contains("more than 16 MiB together"), "{error}");
    }

    #[test]
    fn divisors_of_a_file_are_exact() {
        let schema = r#"{"properties": {"a": {"$ref": "other.json#/definitions/tenth"}}}"#;
        let other = r#"{"definitions": {"tenth": {"multipleOf": 0.1}}}"#;
        let machine = machine(schema, &[("project/other.json", other)]);
        let chart = load(machine.path());
        assert_eq!(check(&chart, "a: 0.3"), "");
        assert!(check(&chart, "a: 0.35").contains("'/a': violates multipleOf"));
    }
}
