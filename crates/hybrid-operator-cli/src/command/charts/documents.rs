//! The documents of the web that the schemas of a chart refer to: fetched once, and kept in the chart.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use chart_source::limits::DOCUMENT;
use helm_core::Digest;
use helm_core::chart::ignore::Rules;
use helm_core::chart::{DocumentIndex, File};

use crate::command::chart_flags::AccessFlags;
use crate::scaffold::ChartSource;

/// Time after which no further document of a chart is asked for.
const LIMIT: Duration = Duration::from_mins(5);

/// The documents that a chart has got.
#[derive(Debug, Default)]
pub(crate) struct Documents {
    /// The URLs and sizes of those that were fetched.
    fetched: Vec<(String, usize)>,
    /// The URLs of those that were there.
    present: Vec<String>,
}

/// Error of a document that is not the one that the chart had.
#[derive(Debug, thiserror::Error)]
#[error(
    "{url} has changed: its digest is sha256:{now}, and values.schema/index.json says sha256:{before}; to use it as it \
     is now, give --force"
)]
struct Changed {
    url: String,
    now: Digest,
    before: Digest,
}

#[derive(Debug, thiserror::Error)]
#[error("the documents of the chart took more than {} minutes", LIMIT.as_secs() / 60)]
struct TooSlow;

impl Documents {
    /// Adds to a chart the documents that it does not have: those of `kept`, which the directory has to which the chart
    /// is written, and else from the web.
    pub(crate) fn add_to(
        source: &mut ChartSource,
        kept: &[File],
        access: &AccessFlags,
    ) -> anyhow::Result<Self> {
        let name = source.chart.name().to_owned();
        let broken = || {
            format!(
                "cannot use the documents of the chart {name}; give --force to fetch them again"
            )
        };
        let mut index = DocumentIndex::read(source.chart.files()).with_context(broken)?;
        let earlier = DocumentIndex::read(kept).with_context(broken)?;
        let mut fetched = Vec::new();
        let mut web = None;
        let started = Instant::now();
        let mut fetch = |url: &str| -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
            if let Some(text) = earlier.find(url, kept) {
                return Ok(text.to_vec());
            }
            if started.elapsed() > LIMIT {
                return Err(TooSlow.into());
            }
            let web = match &mut web {
                Some(web) => web,
                none => none.insert(access.documents()?),
            };
            let text = web.fetch_blocking(url)?;
            let now = Digest::of(&text);
            if let Some(before) = index.digest(url).or(earlier.digest(url))
                && before != now
            {
                let url = url.to_owned();
                return Err(Changed { url, now, before }.into());
            }
            fetched.push((url.to_owned(), text.len()));
            Ok(text)
        };
        let added = source.chart.fetch_documents(&mut fetch)?;
        if !added.is_empty() {
            let mut files: Vec<File> = Vec::new();
            for (url, text) in added {
                files.push(index.insert(&url, text));
            }
            files.push(index.file());
            check_ignored(source, &files)?;
            source.add_files(files)?;
        }
        let is_present = |url: &&str| !fetched.iter().any(|(fetched, _)| fetched == url);
        Ok(Self {
            present: index.urls().filter(is_present).map(str::to_owned).collect(),
            fetched,
        })
    }

    /// Returns whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.fetched.is_empty() && self.present.is_empty()
    }

    /// Prints what was done for the chart in a directory.
    pub(crate) fn print(&self, directory: &Path, out: &mut dyn Write) -> io::Result<()> {
        let directory = directory.strip_prefix(".").unwrap_or(directory).display();
        for url in &self.present {
            writeln!(out, "{url} is in {directory} already")?;
        }
        for (url, size) in &self.fetched {
            writeln!(out, "fetched {url} ({size} bytes) into {directory}")?;
        }
        Ok(())
    }
}

/// Returns the files of the documents that a chart's directory has.
pub(crate) fn kept_in(directory: &Path) -> anyhow::Result<Vec<File>> {
    let folder = directory.join(DocumentIndex::DIRECTORY);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.and_then(Iterator::collect::<io::Result<Vec<_>>>),
    };
    let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.path();
        let about = fs::metadata(&path);
        let is_document =
            about.is_ok_and(|about| about.is_file() && about.len() <= DOCUMENT as u64);
        if is_document {
            let data = fs::read(&path);
            let data = data.with_context(|| format!("cannot read {}", path.display()))?;
            let file = entry.file_name();
            let name = format!("{}/{}", DocumentIndex::DIRECTORY, file.to_string_lossy());
            files.push(File::new(name, data));
        }
    }
    Ok(files)
}

/// Returns the files of the documents that a chart has, by their names.
pub(super) fn files_of(source: &ChartSource) -> BTreeMap<String, Vec<u8>> {
    let files = source
        .chart
        .files()
        .iter()
        .filter(|file| DocumentIndex::has(file));
    files
        .map(|file| (file.name().to_owned(), file.data().to_vec()))
        .collect()
}

/// Refuses documents that nobody would find, because they are not loaded with the chart.
fn check_ignored(source: &ChartSource, files: &[File]) -> anyhow::Result<()> {
    let mut own = source.own_files();
    let Some((_, rules)) = own.find(|(name, _)| *name == ".helmignore") else {
        return Ok(());
    };
    let rules = Rules::parse(&String::from_utf8_lossy(rules)).unwrap_or_default();
    let is_ignored = rules.ignores(DocumentIndex::DIRECTORY, true)
        || files.iter().any(|file| rules.ignores(file.name(), false));
    if is_ignored {
        bail!(
            "the .helmignore of the chart {} excludes {}/, in which the documents of its schemas are kept; change it",
            source.chart.name(),
            DocumentIndex::DIRECTORY
        );
    }
    Ok(())
}
