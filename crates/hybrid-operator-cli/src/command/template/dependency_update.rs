//! `template --dependency-update`: fetches what a chart on this machine depends on, as `helm dependency update` does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use chart_source::{ChartReference, Repositories};
use flate2::Compression;
use flate2::write::GzEncoder;
use helm_core::chart::version_range::contains;
use helm_core::chart::{Chart, Dependency, Limits};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::command::chart_flags::AccessFlags;
use crate::files::{FileSet, entries_of};
use crate::scaffold::ChartSource;

/// Directory of the charts that a chart depends on.
const CHARTS: &str = "charts";

/// Checks that a chart contains all charts that it depends on.
pub(super) fn check_complete(chart: &Chart) -> anyhow::Result<()> {
    let is_missing = |name: &&str| {
        !chart
            .dependencies()
            .iter()
            .any(|found| found.name() == *name)
    };
    let wanted = chart.metadata().dependencies.iter();
    let missing: Vec<&str> = wanted
        .map(|dependency| dependency.name.as_str())
        .filter(is_missing)
        .collect();
    if !missing.is_empty() {
        bail!(
            "found in Chart.yaml, but missing in charts/ directory: {}; fetch them with --dependency-update, or with \
             'helm dependency build'",
            missing.join(", ")
        );
    }
    Ok(())
}

/// A chart that was found.
struct Found {
    /// The dependency with its exact version.
    locked: Dependency,
    /// Name and content of the archive, unless the chart is in `charts/` as a directory.
    archive: Option<(String, Vec<u8>)>,
}

/// Fetches the newest versions in the ranges of the chart in a directory, and writes its lock.
pub(super) fn update(
    directory: &Path,
    access: &AccessFlags,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let chart = load(directory)?;
    let names = Names::of(&chart);
    let finder = Finder::new(directory, &names, access)?;
    let wanted = finder.with_urls(&chart.metadata().dependencies)?;
    let found: Vec<Found> = wanted
        .iter()
        .map(|dependency| finder.find(dependency))
        .collect::<anyhow::Result<_>>()?;
    write_archives(&found, directory, out)?;
    let locked: Vec<Dependency> = found.into_iter().map(|found| found.locked).collect();
    let digest = digest(&wanted, &locked)?;
    let is_new = chart.lock().is_none_or(|lock| lock.digest != digest);
    if is_new && !wanted.is_empty() {
        let lock = LockFile {
            dependencies: &locked,
            digest,
            generated: jiff::Timestamp::now().to_string(),
        };
        let mut files = FileSet::default();
        files.add(names.lock, go_yaml::to_string(&lock)?)?;
        files.write(directory)?;
        writeln!(out, "wrote {}", directory.join(names.lock).display())?;
    }
    Ok(())
}

fn load(path: &Path) -> anyhow::Result<Chart> {
    if !path.is_dir() {
        bail!("{} is not the directory of a chart", path.display());
    }
    Chart::load(path).with_context(|| format!("cannot load {}", path.display()))
}

/// The files with the dependencies of a chart.
struct Names {
    /// File that declares the dependencies.
    wanted: &'static str,
    lock: &'static str,
}

impl Names {
    fn of(chart: &Chart) -> Self {
        if chart.metadata().api_version == "v1" {
            return Self {
                wanted: "requirements.yaml",
                lock: "requirements.lock",
            };
        }
        Self {
            wanted: "Chart.yaml",
            lock: "Chart.lock",
        }
    }
}

/// Finds what a chart depends on.
struct Finder<'a> {
    directory: &'a Path,
    names: &'a Names,
    access: &'a AccessFlags,
    repositories: Repositories,
}

impl<'a> Finder<'a> {
    fn new(directory: &'a Path, names: &'a Names, access: &'a AccessFlags) -> anyhow::Result<Self> {
        Ok(Self {
            directory,
            names,
            access,
            repositories: access.repositories()?,
        })
    }

    /// Replaces names of `helm repo add` by URLs, which is what locks and their digests have.
    fn with_urls(&self, wanted: &[Dependency]) -> anyhow::Result<Vec<Dependency>> {
        let with_url = |dependency: &Dependency| {
            let mut dependency = dependency.clone();
            let repository = &dependency.repository;
            let name = repository
                .strip_prefix('@')
                .or_else(|| repository.strip_prefix("alias:"));
            if let Some(name) = name {
                let named = self.repositories.named(name);
                named
                    .with_context(|| self.cannot_get(&dependency))?
                    .url()
                    .clone_into(&mut dependency.repository);
            }
            Ok(dependency)
        };
        wanted.iter().map(with_url).collect()
    }

    /// Finds the newest version of a dependency in its range.
    fn find(&self, dependency: &Dependency) -> anyhow::Result<Found> {
        let found = match dependency.repository.as_str() {
            "" => beside(dependency, self.directory).map(|version| (version, None)),
            file if file.starts_with("file://") => {
                let path = self.directory.join(file.trim_start_matches("file://"));
                local(dependency, &path)
            }
            url => self.fetch(dependency, url),
        };
        let (exact, archive) = found.with_context(|| self.cannot_get(dependency))?;
        Ok(Found {
            locked: Dependency {
                name: dependency.name.clone(),
                version: exact,
                repository: dependency.repository.clone(),
                ..Dependency::default()
            },
            archive,
        })
    }

    fn cannot_get(&self, Dependency { name, version, .. }: &Dependency) -> String {
        let file = self.names.wanted;
        format!("cannot get {name} {version}, which {file} depends on")
    }

    fn fetch(
        &self,
        Dependency { name, version, .. }: &Dependency,
        repository: &str,
    ) -> anyhow::Result<(String, Option<Archive>)> {
        let is_registry = repository.starts_with("oci://");
        let reference = if is_registry {
            let chart = format!("{}/{name}", repository.trim_end_matches('/'));
            ChartReference::parse(&chart, None, Some(version))
        } else {
            ChartReference::parse(name, Some(repository), Some(version))
        };
        let stored = self.repositories.at(repository);
        let pulled = self.access.pull(&reference?, stored)?;
        Chart::from_archive(&pulled.archive, &Limits::default())
            .with_context(|| format!("cannot read {}", pulled.resolved.url))?;
        let found = pulled.resolved.version.unwrap_or_else(|| version.clone());
        let url = pulled.resolved.url;
        let file = if is_registry {
            format!("{name}-{}.tgz", found.replace('+', "_"))
        } else {
            url.rsplit('/').next().unwrap_or(name).to_owned()
        };
        Ok((found, Some((file, pulled.archive))))
    }
}

type Archive = (String, Vec<u8>);

/// Checks a chart in `charts/`. Its version in the lock is the range, as Helm has it.
fn beside(dependency: &Dependency, chart: &Path) -> anyhow::Result<String> {
    let path = chart.join(CHARTS).join(&dependency.name);
    let present = Chart::load(&path).with_context(|| {
        format!(
            "it has no repository, and cannot be read at {}",
            path.display()
        )
    })?;
    check_version(dependency, &present)?;
    Ok(dependency.version.clone())
}

/// Packages a chart on this machine.
fn local(dependency: &Dependency, path: &Path) -> anyhow::Result<(String, Option<Archive>)> {
    let source = ChartSource::read(path)?;
    check_version(dependency, &source.chart)?;
    let metadata = source.chart.metadata();
    let file = format!("{}-{}.tgz", metadata.name, metadata.version);
    let archive = package(&metadata.name, source.own_files())?;
    Ok((metadata.version.clone(), Some((file, archive))))
}

fn check_version(dependency: &Dependency, chart: &Chart) -> anyhow::Result<()> {
    let present = &chart.metadata().version;
    if !contains(&dependency.version, present) {
        bail!("its version is {present}, which is not in the range");
    }
    Ok(())
}

/// Packages the files of a chart. The same files make the same archive.
fn package<'a>(
    name: &str,
    files: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> anyhow::Result<Vec<u8>> {
    let files: BTreeMap<&str, &[u8]> = files.collect();
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    for (path, data) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(data.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, format!("{name}/{path}"), data)?;
    }
    Ok(tar.into_inner()?.finish()?)
}

/// Writes the archives, and removes those of other versions of the same charts.
fn write_archives(found: &[Found], directory: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut files = FileSet::default();
    for (file, archive) in found.iter().filter_map(|found| found.archive.as_ref()) {
        files.add(file, archive.clone())?;
    }
    let directory = directory.join(CHARTS);
    if files.paths().next().is_some() {
        fs::create_dir_all(&directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    let names: BTreeSet<&str> = found
        .iter()
        .map(|found| found.locked.name.as_str())
        .collect();
    let kept: BTreeSet<PathBuf> = files.paths().map(|path| directory.join(path)).collect();
    files.write(&directory)?;
    for one in found {
        let Dependency { name, version, .. } = &one.locked;
        writeln!(out, "{name} {version}")?;
    }
    for path in archives(&directory)? {
        let other = !kept.contains(&path)
            && Chart::load(&path).is_ok_and(|chart| names.contains(chart.name()));
        if other {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            writeln!(out, "removed {}", path.display())?;
        }
    }
    Ok(())
}

/// Returns the archives in a directory, which may not exist.
fn archives(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = entries_of(directory)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "tgz"));
    Ok(paths)
}

/// A lock, as Helm writes it.
#[derive(Serialize)]
struct LockFile<'a> {
    dependencies: &'a [Dependency],
    digest: String,
    generated: String,
}

/// Returns the digest of a lock: that of the JSON of the dependencies as they are wanted and as they are
/// locked (Helm's `resolver.HashReq`).
fn digest(wanted: &[Dependency], locked: &[Dependency]) -> anyhow::Result<String> {
    Ok(sum(&serde_json::to_string(&[wanted, locked])?))
}

/// Returns the digest of JSON as Go writes it.
fn sum(json: &str) -> String {
    // Go escapes these characters in JSON; they are in texts only.
    let text = json
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029");
    let hash = Sha256::digest(text.as_bytes());
    format!("sha256:{}", data_encoding::HEXLOWER.encode(&hash))
}
