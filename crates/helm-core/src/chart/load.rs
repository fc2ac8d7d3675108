//! Loads charts from directories and archives, with one parser over a list of files for both.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::archive::{self, ArchiveError, Room};
use super::chart_yaml::{self, ChartYamlError};
use super::content_digest::LazyDigest;
use super::ignore::{IgnoreError, Rules};
use super::schema::{Schema, SchemaRoots};
use super::{Chart, ChartInner, File, Limits, Lock, OwnValues};
use crate::place::Place;
use crate::release::Time;
use crate::values::{self, ValuesError};

/// An error while loading a chart.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum LoadError {
    /// A file or directory cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    /// A file is not a gzipped archive.
    #[error("{} does not appear to be a gzipped archive{}", path.display(), hint)]
    NotAnArchive {
        path: PathBuf,
        /// A hint at what it may be instead.
        hint: &'static str,
    },
    /// The chart contains a device, socket or other special file.
    #[error("cannot load irregular file {}", .0.display())]
    Irregular(PathBuf),
    /// More files than the limit.
    #[error("the chart has more than {limit} files and directories")]
    TooManyFiles { limit: usize },
    /// More bytes than the limit.
    #[error("the chart has more than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: u64,
    },
    /// Charts are nested deeper than the limit.
    #[error("charts are nested more than {limit} deep")]
    TooDeep { limit: usize },
    /// `.helmignore` has an invalid rule.
    #[error("cannot read .helmignore")]
    Ignore(#[source] IgnoreError),
    /// The archive was rejected.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// `Chart.yaml` is missing.
    #[error("Chart.yaml file is missing")]
    NoChartYaml,
    /// A file that describes the chart cannot be parsed.
    #[error("cannot load {file}")]
    Metadata {
        file: &'static str,
        #[source]
        error: ChartYamlError,
    },
    /// The `apiVersion` of `Chart.yaml` is not one of Helm's.
    #[error("unsupported chart version: apiVersion is {0:?}, not v1 or v2")]
    ApiVersion(String),
    /// The content of `Chart.yaml` is invalid.
    #[error("validation: {0}")]
    Invalid(String),
    /// A field of `Chart.yaml` is invalid.
    #[error("validation: {message}, at {place}")]
    InvalidField {
        /// Place of the error.
        place: Box<Place>,
        message: String,
    },
    /// `values.yaml` cannot be parsed.
    #[error("cannot load values.yaml")]
    Values(#[source] ValuesError),
    /// A file in `charts/` is not a valid chart.
    #[error("error unpacking subchart {name} in {chart}")]
    Subchart {
        /// The file or directory in `charts/`.
        name: String,
        /// The chart that contains it.
        chart: String,
        #[source]
        error: Box<LoadError>,
    },
}

impl LoadError {
    fn read(path: &Path, error: io::Error) -> Self {
        let path = path.to_owned();
        Self::Read { path, error }
    }

    fn metadata(file: &'static str) -> impl FnOnce(ChartYamlError) -> Self {
        move |error| Self::Metadata { file, error }
    }

    /// Adds the place to an error in a field of `Chart.yaml`, which the error names.
    fn of_metadata(message: String, source: Option<&File>) -> Self {
        let name = message.strip_prefix("chart.metadata.");
        let field = name.and_then(|name| name.split(' ').next());
        let place = source
            .zip(field)
            .and_then(|(file, field)| Place::of_path(file.name(), file.data(), &[field]));
        match place {
            Some(place) => Self::InvalidField {
                place: Box::new(place),
                message,
            },
            None => Self::Invalid(message),
        }
    }

    /// Adds the file or directory `name` of `charts/` in which it occurred.
    fn in_subchart(mut self, name: &str, chart: &str) -> Self {
        if let Some(place) = self.place_mut() {
            place.move_below(&format!("charts/{name}"));
        }
        Self::Subchart {
            name: name.to_owned(),
            chart: chart.to_owned(),
            error: Box::new(self),
        }
    }

    fn place_mut(&mut self) -> Option<&mut Place> {
        match self {
            Self::Metadata { error, .. } => error.place_mut(),
            Self::InvalidField { place, .. } => Some(place),
            Self::Values(error) => error.place_mut(),
            Self::Subchart { error, .. } => error.place_mut(),
            _ => None,
        }
    }

    /// Returns the line of the file with a caret, or an empty text.
    pub fn excerpt(&self) -> &str {
        match self {
            Self::Metadata { error, .. } => error.place().map_or("", Place::excerpt),
            Self::InvalidField { place, .. } => place.excerpt(),
            Self::Values(error) => error.excerpt(),
            Self::Subchart { error, .. } => error.excerpt(),
            _ => "",
        }
    }

    /// Returns the reason for events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Read { .. } => "ChartUnreadable",
            _ => "ChartInvalid",
        }
    }
}

/// Loads the chart at `path`, except for its values, which [`read_values`] reads.
pub(super) fn path(path: &Path, limits: &Limits) -> Result<Chart, LoadError> {
    let unreadable = |error| LoadError::read(path, error);
    let roots = SchemaRoots::of_process();
    if fs::metadata(path).map_err(unreadable)?.is_dir() {
        let chart = files(directory(path, limits)?, &Room::new(limits), 0)?;
        return Ok(chart.with_schema_roots(roots.with_chart(path)));
    }
    let bytes = fs::read(path).map_err(unreadable)?;
    if !bytes.starts_with(&[0x1f, 0x8b, 0x08]) {
        let hint = match path.extension().and_then(OsStr::to_str) {
            Some("yaml" | "yml") => "; it seems to be a YAML file",
            _ => "",
        };
        let path = path.to_owned();
        return Err(LoadError::NotAnArchive { path, hint });
    }
    Ok(archive(&bytes, &Room::new(limits), 0)?.with_schema_roots(roots))
}

/// Reads the values of a chart and its dependencies.
pub(super) fn read_values(chart: &Chart) -> Result<(), LoadError> {
    chart.read_own_values()?;
    for below in chart.dependencies() {
        read_values(below).map_err(|error| error.in_subchart(&below.0.entry, chart.name()))?;
    }
    Ok(())
}

/// Loads a chart, except for its values, from the bytes of an archive nested `depth` charts deep.
pub(super) fn archive(bytes: &[u8], room: &Room<'_>, depth: usize) -> Result<Chart, LoadError> {
    files(archive::read_into(bytes, room)?, room, depth)
}

/// Returns the files of a directory that `.helmignore` does not exclude, in the order of a sorted
/// walk.
fn directory(root: &Path, limits: &Limits) -> Result<Vec<File>, LoadError> {
    let ignore_file = root.join(".helmignore");
    let rules = match fs::read(&ignore_file) {
        Ok(text) => Rules::parse(&String::from_utf8_lossy(&text)).map_err(LoadError::Ignore)?,
        Err(_) => Rules::default(),
    };
    let mut walk = Walk {
        root: fs::canonicalize(root).ok(),
        rules: rules.with_defaults(),
        limits,
        files: Vec::new(),
        seen: 0,
        left: limits.unpacked,
    };
    walk.directory(root, "", 0, None)?;
    Ok(walk.files)
}

struct Walk<'a> {
    /// The directory without links.
    root: Option<PathBuf>,
    rules: Rules,
    limits: &'a Limits,
    files: Vec<File>,
    seen: usize,
    left: u64,
}

/// Limit on the depth of directories, which ends cycles of links.
const MAX_DEPTH: usize = 64;

impl Walk<'_> {
    /// Adds the files of a directory, which is `outside` of the chart's if a link led there.
    fn directory(
        &mut self,
        path: &Path,
        name: &str,
        depth: usize,
        outside: Option<&Path>,
    ) -> Result<(), LoadError> {
        let unreadable = |error| LoadError::read(path, error);
        if depth > MAX_DEPTH {
            return Err(LoadError::TooDeep { limit: MAX_DEPTH });
        }
        let mut entries: Vec<_> = fs::read_dir(path)
            .and_then(Iterator::collect)
            .map_err(unreadable)?;
        entries.sort_by_key(fs::DirEntry::file_name);
        // The directories of a mounted ConfigMap that its links point into, with a new name after
        // each change.
        let is_mount = entries.iter().any(|entry| entry.file_name() == "..data");
        if is_mount {
            let internal = |name: &OsStr| name.as_encoded_bytes().starts_with(b"..");
            entries.retain(|entry| !internal(&entry.file_name()));
        }
        for entry in entries {
            let file_name = entry.file_name().to_string_lossy().into_owned();
            let below = if name.is_empty() {
                file_name
            } else {
                format!("{name}/{file_name}")
            };
            let outside = self.outside(&entry, outside);
            self.entry(&entry.path(), below, depth, outside.as_deref())?;
        }
        Ok(())
    }

    /// Returns the path without links of what is outside of the chart's directory.
    fn outside(&self, entry: &fs::DirEntry, parent: Option<&Path>) -> Option<PathBuf> {
        if !entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            return parent.map(|parent| parent.join(entry.file_name()));
        }
        let path = entry.path();
        let target = fs::canonicalize(&path).unwrap_or(path);
        let is_inside = self
            .root
            .as_ref()
            .is_some_and(|root| target.starts_with(root));
        (!is_inside).then_some(target)
    }

    fn entry(
        &mut self,
        path: &Path,
        name: String,
        depth: usize,
        outside: Option<&Path>,
    ) -> Result<(), LoadError> {
        let unreadable = |error| LoadError::read(path, error);
        self.seen += 1;
        if self.seen > self.limits.entries {
            return Err(LoadError::TooManyFiles {
                limit: self.limits.entries,
            });
        }
        // Links are followed, as Helm does for local directories.
        let about = fs::metadata(path).map_err(unreadable)?;
        if self.rules.ignores(&name, about.is_dir()) {
            return Ok(());
        }
        if about.is_dir() {
            return self.directory(path, &name, depth + 1, outside);
        }
        if !about.is_file() {
            return Err(LoadError::Irregular(path.to_owned()));
        }
        let too_large = LoadError::TooLarge {
            limit: self.limits.unpacked,
        };
        if about.len() > self.left {
            return Err(too_large);
        }
        let data = fs::read(path).map_err(unreadable)?;
        self.left = self.left.checked_sub(data.len() as u64).ok_or(too_large)?;
        let modified = about
            .modified()
            .ok()
            .and_then(|time| jiff::Timestamp::try_from(time).ok());
        let data = archive::without_bom(&data);
        let file = File::new(name, data).modified_at(modified.map(Time::utc));
        self.files.push(file.found_at(outside));
        Ok(())
    }
}

/// Builds a chart from its files, except for its values.
pub(super) fn files(files: Vec<File>, room: &Room<'_>, depth: usize) -> Result<Chart, LoadError> {
    let limits = room.limits;
    if depth > limits.nesting {
        return Err(LoadError::TooDeep {
            limit: limits.nesting,
        });
    }
    let mut parts = Parts::default();
    assemble(files, room, depth, &mut parts).map_err(|error| {
        if matches!(error, LoadError::ApiVersion(_)) {
            return error;
        }
        // Helm reads the values before what was wrong.
        let values = OwnValues::of_file(parts.values_file.take());
        values.read().map_or_else(LoadError::Values, |_| error)
    })
}

fn assemble(
    files: Vec<File>,
    room: &Room<'_>,
    depth: usize,
    parts: &mut Parts,
) -> Result<Chart, LoadError> {
    let mut document = serde_json::Map::new();
    let mut found = false;
    let mut chart_yaml = None;
    // Chart.yaml is read first, wherever it is in the list, because requirements.yaml adds to it.
    for file in files.iter().filter(|file| file.name() == "Chart.yaml") {
        found = true;
        chart_yaml::overlay(&mut document, file.name(), file.data())
            .map_err(LoadError::metadata("Chart.yaml"))?;
        parts.modified = file.modified();
        chart_yaml = Some(file.clone());
    }
    let is_v1 = document
        .get("apiVersion")
        .is_none_or(|version| version.is_null() || matches!(version.as_str(), Some("" | "v1")));
    for file in files {
        found |= file.name().starts_with("requirements.");
        parts.add(file, &mut document, found && is_v1)?;
    }
    if !found {
        return Err(LoadError::NoChartYaml);
    }
    let mut metadata = chart_yaml::read(document, chart_yaml.as_ref())
        .map_err(LoadError::metadata("Chart.yaml"))?;
    match metadata.api_version.as_str() {
        "" => "v1".clone_into(&mut metadata.api_version),
        "v1" | "v2" => {}
        // Of subcharts, Helm does not read it.
        _ if depth > 0 => {}
        other => return Err(LoadError::ApiVersion(other.to_owned())),
    }
    chart_yaml::validate(&mut metadata)
        .map_err(|message| LoadError::of_metadata(message, chart_yaml.as_ref()))?;
    let mut dependencies: Vec<Chart> = Vec::new();
    for (name, files) in std::mem::take(&mut parts.below) {
        let chart = subchart(&name, &files, room, depth + 1);
        let chart = chart.map_err(|error| {
            // Helm reads the values of the subcharts before this one first.
            let mut earlier = dependencies.iter();
            let earlier = earlier.find_map(|below| Some((below, read_values(below).err()?)));
            match earlier {
                Some((below, earlier)) => earlier.in_subchart(&below.0.entry, &metadata.name),
                None => error.in_subchart(&name, &metadata.name),
            }
        })?;
        if let Some(mut chart) = chart {
            Arc::make_mut(&mut chart.0).entry = name.into();
            dependencies.push(chart);
        }
    }
    let below = dependencies
        .iter()
        .map(|chart: &Chart| Arc::clone(&chart.0.digest));
    let parts = std::mem::take(parts);
    let digest = LazyDigest::new(parts.all, below.collect());
    Ok(Chart(Arc::new(ChartInner {
        metadata: Arc::new(metadata),
        lock: parts.lock.map(Arc::new),
        values: OwnValues::of_file(parts.values_file.clone()),
        values_file: parts.values_file,
        schema: parts.schema.map(|file| Arc::new(Schema::new(file))),
        templates: parts.templates.into(),
        files: parts.files.into(),
        dependencies,
        modified: parts.modified,
        repeated: parts.repeated.into(),
        entry: Arc::default(),
        digest: Arc::new(digest),
        schema_roots: SchemaRoots::default(),
        skips_schemas: false,
    })))
}

/// The files of a chart, grouped by purpose.
#[derive(Default)]
struct Parts {
    lock: Option<Lock>,
    values_file: Option<File>,
    schema: Option<File>,
    templates: Vec<File>,
    files: Vec<File>,
    /// Keyed by the name of the file or directory in `charts/`.
    below: BTreeMap<String, Vec<File>>,
    modified: Option<Time>,
    /// All files outside `charts/`, for the digest.
    all: Vec<File>,
    seen: HashSet<Arc<str>>,
    /// Names that several files have.
    repeated: Vec<Arc<str>>,
}

impl Parts {
    fn add(
        &mut self,
        file: File,
        document: &mut serde_json::Map<String, serde_json::Value>,
        is_v1: bool,
    ) -> Result<(), LoadError> {
        if let Some(name) = file.name().strip_prefix("charts/") {
            if has_extension(name, "prov") {
                self.files.push(file);
            } else {
                let (chart, _) = name.split_once('/').unwrap_or((name, ""));
                self.below.entry(chart.to_owned()).or_default().push(file);
            }
            return Ok(());
        }
        self.all.push(file.clone());
        if !self.seen.insert(Arc::clone(&file.name)) {
            self.repeated.push(Arc::clone(&file.name));
            // The last one counts, except for CRDs, which are all shown.
            if !file.name().starts_with("crds/") {
                self.templates
                    .retain(|earlier| earlier.name() != file.name());
                self.files.retain(|earlier| earlier.name() != file.name());
            }
        }
        match file.name() {
            "Chart.yaml" => {}
            "Chart.lock" => {
                self.lock =
                    Some(chart_yaml::lock(&file).map_err(LoadError::metadata("Chart.lock"))?);
            }
            "values.yaml" => {
                if let Some(earlier) = self.values_file.replace(file) {
                    values::read_tree(earlier.name(), earlier.data()).map_err(LoadError::Values)?;
                }
            }
            "values.schema.json" => self.schema = Some(file),
            "requirements.yaml" => {
                chart_yaml::overlay(document, file.name(), file.data())
                    .map_err(LoadError::metadata("requirements.yaml"))?;
                if is_v1 {
                    self.files.push(file);
                }
            }
            "requirements.lock" => {
                let lock =
                    chart_yaml::lock(&file).map_err(LoadError::metadata("requirements.lock"))?;
                self.lock = Some(lock);
                if is_v1 {
                    self.files.push(file);
                }
            }
            name if name.starts_with("templates/") => self.templates.push(file),
            _ => self.files.push(file),
        }
        Ok(())
    }
}

/// Returns whether `name` ends with `.extension`, case-sensitively.
fn has_extension(name: &str, extension: &str) -> bool {
    name.strip_suffix(extension)
        .is_some_and(|stem| stem.ends_with('.'))
}

/// Loads the file or directory `name` of `charts/`. Returns `None` if it is to be skipped.
fn subchart(
    name: &str,
    files: &[File],
    room: &Room<'_>,
    depth: usize,
) -> Result<Option<Chart>, LoadError> {
    let limits = room.limits;
    if name.starts_with(['_', '.']) {
        return Ok(None);
    }
    if has_extension(name, "tgz") {
        let is_file = |file: &&File| file.name().strip_prefix("charts/") == Some(name);
        return match files.first().filter(is_file) {
            Some(file) if depth <= limits.nesting => archive(file.data(), room, depth).map(Some),
            Some(_) => Err(LoadError::TooDeep {
                limit: limits.nesting,
            }),
            None => Err(LoadError::Invalid(format!(
                "expected an archive at charts/{name}"
            ))),
        };
    }
    let below = files.iter().filter_map(|file| {
        let (_, path) = file.name().strip_prefix("charts/")?.split_once('/')?;
        Some(File {
            name: Arc::from(path),
            ..file.clone()
        })
    });
    self::files(below.collect(), room, depth).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(files: &[(&str, &str)]) -> Result<Chart, LoadError> {
        Chart::from_files(files.iter().map(|(name, text)| File::new(*name, text)))
    }

    fn chart_yaml(api_version: &str) -> String {
        format!("apiVersion: {api_version}\nname: c\nversion: 0.1.0\n")
    }

    // The answers of Helm 4.3.1.
    #[test]
    fn only_the_api_versions_of_helm_are_loaded() {
        for (api_version, read) in [
            ("v1", "v1"),
            ("v2", "v2"),
            ("v2 # two", "v2"),
            ("''", "v1"),
            ("null", "v1"),
        ] {
            let chart = load(&[("Chart.yaml", &chart_yaml(api_version))]).unwrap();
            assert_eq!(chart.metadata().api_version, read);
        }
        for api_version in ["v3", "V2", "'v2 '", "1", "2.0", "foo"] {
            let text = chart_yaml(api_version);
            let error = load(&[("Chart.yaml", &text)]).unwrap_err();
            let unsupported = |error: &LoadError| matches!(error, LoadError::ApiVersion(_));
            assert!(unsupported(&error), "{api_version}: {error}");
            // It is what is read first, and it does not matter for subcharts.
            let error = load(&[("Chart.yaml", &text), ("values.yaml", "a: [")]).unwrap_err();
            assert!(unsupported(&error), "{api_version}: {error}");
            let root = ("Chart.yaml", "{apiVersion: v2, name: a, version: 0.1.0}");
            let chart = load(&[root, ("charts/c/Chart.yaml", &text)]).unwrap();
            assert_eq!(chart.dependencies().len(), 1);
        }
    }
}
