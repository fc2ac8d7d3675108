//! The documents of the web that schemas refer to. They are never fetched when values are checked: the chart has them.
//!
//! `values.schema/index.json` of a chart has the digest of each document by its URL, and `values.schema/DIGEST.json` is
//! the document. A chart also has those of its dependencies, which may be packed.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use super::documents::{Absent, MAX_BYTES, MAX_DOCUMENTS, is_of_web};
use super::{Cause, Chart, File};
use crate::Digest;

const ALGORITHM: &str = "sha256:";

/// Error of an index that is not a map of URLs to digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("values.schema/index.json is not a map of URLs to digests")]
pub struct IndexError;

/// The documents of the web that a chart keeps for its schemas and for those of its dependencies: their URLs, without
/// fragments, and their digests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DocumentIndex(BTreeMap<String, Digest>);

impl DocumentIndex {
    /// The directory of the index and the documents within a chart.
    pub const DIRECTORY: &'static str = "values.schema";
    /// The path of the index within a chart.
    pub const FILE: &'static str = "values.schema/index.json";

    /// Reads the index among the files of a chart. Without one it is empty.
    ///
    /// # Errors
    /// If it is not an index.
    pub fn read(files: &[File]) -> Result<Self, IndexError> {
        let Some(file) = files.iter().find(|file| file.name() == Self::FILE) else {
            return Ok(Self::default());
        };
        let texts: BTreeMap<String, String> =
            serde_json::from_slice(file.data()).map_err(|_| IndexError)?;
        let digests = texts.into_iter().map(|(url, digest)| {
            let digest = digest.strip_prefix(ALGORITHM).ok_or(IndexError)?;
            Ok((url, digest.parse().map_err(|_| IndexError)?))
        });
        digests.collect::<Result<_, _>>().map(Self)
    }

    /// Returns whether a file of a chart is the index or a document.
    pub fn has(file: &File) -> bool {
        let rest = file.name().strip_prefix(Self::DIRECTORY);
        rest.is_some_and(|rest| rest.starts_with('/'))
    }

    /// Returns the URLs, sorted.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the digest that the document at a URL must have.
    pub fn digest(&self, url: &str) -> Option<Digest> {
        self.0.get(url).copied()
    }

    /// Returns the document at a URL among the files of a chart, unless its digest is another one.
    pub fn find(&self, url: &str, files: &[File]) -> Option<Arc<[u8]>> {
        let digest = self.digest(url)?;
        let name = document(digest);
        let file = files.iter().find(|file| file.name() == name)?;
        (Digest::of(file.data()) == digest).then(|| file.shared_data())
    }

    /// Adds a document, and returns its file.
    pub fn insert(&mut self, url: &str, text: Arc<[u8]>) -> File {
        let digest = Digest::of(&text);
        self.0.insert(url.to_owned(), digest);
        File::new(document(digest), text)
    }

    /// Returns the file of the index.
    pub fn file(&self) -> File {
        let digests = self.0.iter();
        let digests: BTreeMap<&str, String> = digests
            .map(|(url, digest)| (url.as_str(), format!("{ALGORITHM}{digest}")))
            .collect();
        let text = serde_json::to_string_pretty(&digests).unwrap_or_default();
        File::new(Self::FILE, text + "\n")
    }
}

/// Returns the path of a document within a chart.
fn document(digest: Digest) -> String {
    format!("{}/{digest}.json", DocumentIndex::DIRECTORY)
}

/// Returns the document at a URL that one of some charts keeps; `charts` are the files of each.
pub(super) fn find(charts: &[Vec<File>], url: &str) -> Result<Arc<[u8]>, Absent> {
    let mut why = Absent::Missing;
    for files in charts {
        match DocumentIndex::read(files) {
            Ok(index) if index.digest(url).is_none() => {}
            Ok(index) => match index.find(url, files) {
                Some(text) => return Ok(text),
                None => why = Absent::Changed,
            },
            Err(IndexError) => why = Absent::NoIndex,
        }
    }
    Err(why)
}

/// Error of [`Chart::fetch_documents`].
#[derive(Debug, thiserror::Error)]
pub enum DocumentsError {
    /// A document cannot be fetched.
    #[error("cannot fetch a document to which the schema of the chart {chart} refers")]
    Fetch {
        /// The chart with the schema.
        chart: String,
        /// The error of the function that fetches.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A document cannot be used.
    #[error("the schema of the chart {chart} cannot be used: {message}")]
    Unusable {
        /// The chart with the schema.
        chart: String,
        /// The reason.
        message: String,
    },
}

/// Fetches a document of the web by its URL.
pub type Fetch<'f> = dyn FnMut(&str) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> + 'f;

/// The documents that were fetched, by their URLs without fragments.
pub type Fetched = BTreeMap<String, Arc<[u8]>>;

/// Returns the documents of the web that the schema of the last of `charts`, and those of its dependencies, refer to
/// and that the charts do not keep. Other mistakes of the schemas are left to the check of values.
pub(crate) fn fetch_below(
    charts: &[&Chart],
    fetched: &mut Fetched,
    fetch: &mut Fetch<'_>,
) -> Result<(), DocumentsError> {
    let Some(chart) = charts.last() else {
        return Ok(());
    };
    let name = || chart.name().to_owned();
    let unusable = |message| DocumentsError::Unusable {
        chart: name(),
        message,
    };
    while let Some(schema) = chart.0.schema.as_deref() {
        let Err(failure) = schema.compile(charts, fetched) else {
            break;
        };
        let Some(url) = failure.url.filter(|url| is_of_web(url)) else {
            break;
        };
        if failure.cause != Cause::Absent || fetched.contains_key(url.as_str()) {
            return Err(unusable(failure.violation.message));
        }
        let text = fetch(url.as_str()).map_err(|source| DocumentsError::Fetch {
            chart: name(),
            source,
        })?;
        fetched.insert(String::from(*url), text.into());
        let bytes: usize = fetched.values().map(|text| text.len()).sum();
        if fetched.len() > MAX_DOCUMENTS || bytes > MAX_BYTES {
            return Err(unusable(format!(
                "the schemas of a chart and its dependencies may refer to {MAX_DOCUMENTS} documents of the web with {} \
                 MiB together",
                MAX_BYTES >> 20
            )));
        }
    }
    for below in chart.dependencies() {
        let charts: Vec<&Chart> = charts.iter().copied().chain([below]).collect();
        fetch_below(&charts, fetched, fetch)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::Limits;
    use crate::rows::rows;

    const CHART: &str = "apiVersion: v2\nname: web\nversion: 1.0.0\n";
    const A: &str = "https://example.com/schemas/a.json";
    const B: &str = "https://example.com/schemas/b.json";

    /// The documents of a server.
    const WEB: &[(&str, &str)] = &[(A, A_TEXT), (B, B_TEXT)];
    const A_TEXT: &str = r#"{"definitions": {"size": {"$ref": "b.json#/definitions/size"}}}"#;
    const B_TEXT: &str =
        r#"{"$id": "http://elsewhere.example.com/x", "definitions": {"size": {"maximum": 3}}}"#;

    fn schema(url: &str) -> File {
        let text =
            format!(r#"{{"properties": {{"size": {{"$ref": "{url}#/definitions/size"}}}}}}"#);
        File::new("values.schema.json", text)
    }

    /// Returns a chart with other files.
    fn chart(files: impl IntoIterator<Item = File>) -> Chart {
        let own = [File::new("Chart.yaml", CHART)];
        Chart::from_files(own.into_iter().chain(files)).unwrap()
    }

    /// Returns the files that keep documents.
    fn kept(documents: &[(&str, &str)]) -> Vec<File> {
        let mut index = DocumentIndex::default();
        let documents = documents.iter();
        let mut files: Vec<File> = documents
            .map(|(url, text)| index.insert(url, text.as_bytes().into()))
            .collect();
        files.push(index.file());
        files
    }

    /// Returns the URLs of the documents of [`WEB`] that a chart gets.
    fn fetched(chart: &Chart) -> Result<Vec<String>, String> {
        let mut fetch = |url: &str| -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
            let found = WEB.iter().find(|(known, _)| *known == url);
            let (_, text) = found.ok_or("there is nothing")?;
            Ok(text.as_bytes().to_vec())
        };
        let fetched = chart.fetch_documents(&mut fetch);
        let fetched = fetched.map_err(|error| error.to_string())?;
        Ok(fetched.into_keys().collect())
    }

    /// Returns the error that values of the chart have, or an empty text.
    fn check(chart: &Chart, values: &str) -> String {
        let values = crate::values::read(values.as_bytes()).unwrap();
        match crate::values::coalesce(chart, values) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn documents_of_the_web_are_those_that_the_chart_keeps() {
        let chart = chart(kept(WEB).into_iter().chain([schema(A)]));
        assert_eq!(check(&chart, "size: 3"), "");
        let error = check(&chart, "size: 4");
        let expected = "'/size': must be <= 3 (required by ";
        assert!(error.contains(expected), "{error}");
        assert_eq!(fetched(&chart), Ok(Vec::new()));
    }

    #[test]
    fn documents_that_are_missing_or_changed_are_refused_with_the_command() {
        let command = "run \"hybrid-operator charts vendor\"";
        let mut changed = kept(WEB);
        changed[0] = File::new(changed[0].name(), "true");
        let mut lost = kept(WEB);
        lost.remove(0);
        let other = File::new(DocumentIndex::FILE, "[]");
        let missing = "\"https://example.com/schemas/a.json\" is not in the chart; ";
        let unreadable = "whose values.schema/index.json cannot be read; ";
        for (files, why) in [
            (Vec::new(), missing),
            (kept(&WEB[..1]), "/b.json\" is not in the chart; "),
            (changed, "/a.json\" was changed in the chart: "),
            (lost, "/a.json\" was changed in the chart: "),
            (vec![other], unreadable),
        ] {
            let chart = chart(files.into_iter().chain([schema(A)]));
            let error = check(&chart, "size: 3");
            assert!(error.contains(why) && error.contains(command), "{error}");
            // All of it is made good.
            assert!(!fetched(&chart).unwrap().is_empty(), "{why}");
        }
    }

    #[test]
    fn chart_keeps_the_documents_of_its_dependencies() {
        let below = |file: &File| File::new(format!("charts/db/{}", file.name()), file.data());
        let metadata = File::new("charts/db/Chart.yaml", CHART.replace("web", "db"));
        let own = || [below(&schema(A)), metadata.clone()];
        let without = chart(own());
        assert_eq!(fetched(&without), Ok(vec![A.to_owned(), B.to_owned()]));
        assert!(check(&without, "db: {}").contains("is not in the chart"));
        let above = chart(own().into_iter().chain(kept(WEB)));
        assert_eq!(fetched(&above), Ok(Vec::new()));
        assert!(check(&above, "db: {size: 4}").contains("'/size': must be <= 3"));
        // A dependency that was published with its documents needs no others.
        let itself = chart(own().into_iter().chain(kept(WEB).iter().map(below)));
        assert_eq!(fetched(&itself), Ok(Vec::new()));
        // What is wrong below is replaced above.
        let broken = File::new("charts/db/values.schema/index.json", "[]");
        let both = chart(own().into_iter().chain(kept(WEB)).chain([broken]));
        assert_eq!(fetched(&both), Ok(Vec::new()));
    }

    #[test]
    fn mistakes_that_are_not_those_of_the_web_are_left_to_the_check_of_values() {
        let of = |text: &str| fetched(&chart([File::new("values.schema.json", text)]));
        let own = r##"{"$id": "https://example.com/own.json", "$ref": "#/none"}"##;
        let known = r#"{"$schema": "http://json-schema.org/draft-07/schema#"}"#;
        for text in ["no schema", r#"{"$ref": "none.json"}"#, own, known] {
            assert_eq!(of(text), Ok(Vec::new()), "{text}");
        }
        for [url, expected] in rows(
            "
            https://example.com/none.json           | cannot fetch a document to which the schema of the chart web refers
            https://example.com/schemas/a.json#/none | the schema of the chart web cannot be used: json-pointer in https://example.com/schemas/a.json#/none not found
            ",
        ) {
            let text = format!(r#"{{"$ref": "{url}"}}"#);
            assert_eq!(of(&text), Err(expected.to_owned()));
        }
    }

    #[test]
    fn documents_are_limited_in_number_and_size() {
        let chart = chart([schema("https://example.com/0?")]);
        let mut asked = 0;
        let mut endless = |_: &str| {
            asked += 1;
            let next = format!(r#"{{"$ref": "{asked}#/definitions/size"}}"#);
            Ok(format!(r#"{{"definitions": {{"size": {next}}}}}"#).into_bytes())
        };
        let error = chart.fetch_documents(&mut endless).unwrap_err().to_string();
        assert!(error.contains("one of more than 256 documents"), "{error}");
        assert_eq!(asked, 256);
        let spaces = " ".repeat(MAX_BYTES);
        let mut large = |_: &str| Ok(format!("{{}}{spaces}").into_bytes());
        let error = chart.fetch_documents(&mut large).unwrap_err().to_string();
        assert!(error.contains("with 16 MiB together"), "{error}");
        for text in ["<html>", "", "{\"a\": 1", "\u{feff}{}"] {
            let mut answer = |_: &str| Ok(text.as_bytes().to_vec());
            let error = chart.fetch_documents(&mut answer).unwrap_err();
            assert!(error.to_string().contains("is not JSON"), "{error}");
        }
    }

    #[test]
    fn documents_survive_an_archive() {
        let chart = chart(kept(WEB).into_iter().chain([schema(A)]));
        let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
            Vec::new(),
            flate2::Compression::fast(),
        ));
        let own = File::new("Chart.yaml", CHART);
        for file in chart.files().iter().chain(chart.schema()).chain([&own]) {
            let mut header = tar::Header::new_gnu();
            header.set_size(file.data().len() as u64);
            header.set_mode(0o644);
            let name = format!("web/{}", file.name());
            tar.append_data(&mut header, name, file.data()).unwrap();
        }
        let archive = tar.into_inner().unwrap().finish().unwrap();
        let packed = Chart::from_archive(&archive, &Limits::default()).unwrap();
        assert!(check(&packed, "size: 4").contains("'/size': must be <= 3"));
    }
}
