//! The directories of this machine that the schemas of charts may refer to.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

/// The directory of charts in the images of operators.
const CHARTS: &str = "/helm-charts";

/// Limit on the size of a file that a schema refers to, in bytes.
pub(super) const MAX_FILE: u64 = 4 << 20;

/// Directories whose files the schemas of a chart may refer to, besides the files of the chart itself.
///
/// Helm opens any path from the root directory of the machine for such a reference. Here the same path is looked for
/// in `/helm-charts` and below the working directory. Nothing is read that lies elsewhere after links are resolved,
/// that is not a regular file, or that is larger than 4 MiB. The root directory is never one of the directories.
#[derive(Clone, Debug, Default)]
pub struct SchemaRoots {
    /// `/helm-charts`: paths are looked for as they are, if they begin with it.
    charts: Option<PathBuf>,
    /// The directory below which any path is looked for.
    working: Option<PathBuf>,
    /// The directory of the chart. Its files are in memory, but links may lead to them.
    chart: Option<PathBuf>,
}

impl SchemaRoots {
    /// Returns `/helm-charts` and the working directory of the process.
    pub fn of_process() -> Self {
        Self::new(CHARTS, std::env::current_dir().ok())
    }

    /// Returns `/helm-charts` and the directory of a project, in which its operator runs.
    pub fn of_project(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        let here = directory.as_os_str().is_empty();
        Self::new(CHARTS, Some(if here { ".".into() } else { directory }))
    }

    fn new(charts: impl Into<PathBuf>, working: Option<PathBuf>) -> Self {
        Self {
            charts: Some(charts.into()),
            working,
            chart: None,
        }
    }

    /// Returns them with the directory that the chart was loaded from.
    pub(in crate::chart) fn with_chart(mut self, directory: &Path) -> Self {
        self.chart = Some(directory.to_owned());
        self
    }

    /// Returns other directories, with the directory of the chart that these have.
    pub(in crate::chart) fn replaced_by(&self, other: Self) -> Self {
        Self {
            chart: self.chart.clone(),
            ..other
        }
    }

    /// Reads the file at the path of a URL, if there is one.
    pub(super) fn read(&self, path: &str) -> Result<Option<Vec<u8>>, &'static str> {
        for candidate in self.candidates(path) {
            match fs::canonicalize(candidate) {
                Ok(file) if self.contain(&file) => return regular_file(&file).map(Some),
                Ok(_) => return Err("leads out of the directories in which schemas are read"),
                Err(error)
                    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(_) => return Err("cannot be read"),
            }
        }
        Ok(None)
    }

    fn candidates(&self, path: &str) -> Vec<PathBuf> {
        let path = path.trim_start_matches('/');
        let below_charts = path.strip_prefix(CHARTS.trim_start_matches('/'));
        let below_charts = below_charts.and_then(|rest| rest.strip_prefix('/'));
        let in_charts = self
            .charts
            .as_ref()
            .zip(below_charts)
            .map(|(charts, rest)| charts.join(rest.trim_start_matches('/')));
        let working = self.working.as_ref().map(|working| working.join(path));
        in_charts.into_iter().chain(working).collect()
    }

    /// Returns whether a path without links lies in one of the directories.
    pub(super) fn contain(&self, file: &Path) -> bool {
        let roots = [&self.charts, &self.working, &self.chart];
        let roots = roots.into_iter().flatten();
        let mut resolved = roots.filter_map(|root| fs::canonicalize(root).ok());
        resolved.any(|root| root.parent().is_some() && file.starts_with(root))
    }
}

fn regular_file(path: &Path) -> Result<Vec<u8>, &'static str> {
    const UNREADABLE: &str = "cannot be read";
    const IRREGULAR: &str = "is not a regular file";
    const LARGE: &str = "is larger than 4 MiB";
    // Opening a pipe would wait for its other end.
    let about = fs::metadata(path).map_err(|_| UNREADABLE)?;
    if !about.is_file() {
        return Err(IRREGULAR);
    }
    if about.len() > MAX_FILE {
        return Err(LARGE);
    }
    let file = fs::File::open(path).map_err(|_| UNREADABLE)?;
    if !file.metadata().is_ok_and(|about| about.is_file()) {
        return Err(IRREGULAR);
    }
    let mut text = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut text)
        .map_err(|_| UNREADABLE)?;
    if text.len() as u64 > MAX_FILE {
        return Err(LARGE);
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Returns an image's charts and a working directory below a temporary directory, and the directory.
    fn roots() -> (tempfile::TempDir, SchemaRoots) {
        let machine = tempfile::tempdir().unwrap();
        let below = |name: &str| {
            let path = machine.path().join(name);
            fs::create_dir_all(&path).unwrap();
            path
        };
        let roots = SchemaRoots::new(below("helm-charts"), Some(below("opt/helm")));
        below("etc");
        for (file, text) in [
            ("helm-charts/web.json", "image"),
            ("opt/helm/web.json", "working"),
            ("opt/helm/helm-charts/web.json", "hidden by the image"),
            ("opt/helm/helm-charts/own.json", "project"),
            ("etc/secret.json", "S3CRET"),
        ] {
            let path = machine.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        (machine, roots)
    }

    #[test]
    fn path_is_looked_for_in_the_charts_of_the_image_and_then_below_the_working_directory() {
        let (_machine, roots) = roots();
        let read = |path: &str| {
            let found = roots.read(path).unwrap();
            found.map(|text| String::from_utf8(text).unwrap())
        };
        for (path, found) in [
            ("/helm-charts/web.json", Some("image")),
            ("/helm-charts/../helm-charts//web.json", Some("image")),
            ("/helm-charts/own.json", Some("project")),
            ("/web.json", Some("working")),
            ("//web.json", Some("working")),
            ("/helm-charts-2/web.json", None),
            ("/etc/secret.json", None),
            ("/none.json", None),
        ] {
            assert_eq!(read(path).as_deref(), found, "{path}");
        }
        assert_eq!(SchemaRoots::default().read("/web.json"), Ok(None));
    }

    #[test]
    fn nothing_is_read_elsewhere() {
        let (machine, roots) = roots();
        let at = |name: &str| machine.path().join(name);
        symlink(at("etc/secret.json"), at("opt/helm/link.json")).unwrap();
        symlink(at("etc"), at("helm-charts/etc")).unwrap();
        symlink(at("opt/helm/web.json"), at("helm-charts/to-working.json")).unwrap();
        symlink(at("none"), at("opt/helm/dangling.json")).unwrap();
        let outside = Err("leads out of the directories in which schemas are read");
        for path in [
            "/link.json",
            "/helm-charts/etc/secret.json",
            "/../../etc/secret.json",
            "/helm-charts/../etc/secret.json",
        ] {
            assert_eq!(roots.read(path), outside, "{path}");
        }
        assert_eq!(
            roots.read("/helm-charts/to-working.json"),
            Ok(Some(b"working".to_vec()))
        );
        assert_eq!(roots.read("/dangling.json"), Ok(None));
        // A process that runs in the root directory may not read everything.
        let all = SchemaRoots::new(at("none"), Some(PathBuf::from("/")));
        let secret = at("etc/secret.json");
        assert_eq!(all.read(secret.to_str().unwrap()), outside);
    }

    #[test]
    fn only_regular_files_of_a_bounded_size_are_read() {
        let (machine, roots) = roots();
        let at = |name: &str| machine.path().join("opt/helm").join(name);
        let sparse = fs::File::create(at("large.json")).unwrap();
        sparse.set_len(MAX_FILE + 1).unwrap();
        let sparse = fs::File::create(at("largest.json")).unwrap();
        sparse.set_len(MAX_FILE).unwrap();
        let pipe = std::process::Command::new("mkfifo")
            .arg(at("pipe"))
            .status();
        assert!(pipe.unwrap().success());
        assert_eq!(roots.read("/large.json"), Err("is larger than 4 MiB"));
        assert!(roots.read("/largest.json").is_ok());
        for path in ["/helm-charts", "/pipe", "/"] {
            assert_eq!(roots.read(path), Err("is not a regular file"), "{path}");
        }
    }
}
